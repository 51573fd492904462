//! One watched node: its liveness, the freshness of its configuration, and the device that shows both.

use std::time::Duration;

use edge_monitor_contract::{Alert, BIRTH_REFUSED, MonitoredNodeDevice, NodeState, identity};
use sparkplug::{DeviceId, EdgeNodeDescriptor, Now};
use uuid::Uuid;

use crate::config_freshness::{ConfigFreshness, ReloadPolicy};
use crate::jitter::Jitter;
use crate::liveness::Liveness;
use crate::spec::{NodeSpec, Subject};

/// Longest text about a birth that was refused.
const REFUSAL_CHARACTERS_MAX: usize = 200;

#[derive(Debug)]
pub(crate) struct Watched {
    spec: NodeSpec,
    /// Where it is; None for a node known by UUID that was not born yet.
    address: Option<EdgeNodeDescriptor>,
    /// The Instance_UUID of its birth, where the subject does not say it.
    born_uuid: Option<Uuid>,
    liveness: Liveness,
    freshness: Option<ConfigFreshness>,
    created: u64,
    /// Why its last NBIRTH could not be used; None: it could, or none was received.
    refused: Option<String>,
    /// The last device whose DBIRTH could not be used, and why. A host follows the node no further than to there, so its next data end this.
    device_refused: Option<(DeviceId, String)>,
}

/// What is due for one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DueRequests {
    pub rebirth: bool,
    pub reload: bool,
}

impl Watched {
    /// A node that was not received yet.
    pub(crate) fn new(spec: NodeSpec, policy: ReloadPolicy, is_listening: bool, seed: u64, now: Now) -> Self {
        let address = match &spec.subject {
            Subject::Address(address) => Some(address.clone()),
            Subject::Uuid(_) => None,
        };
        let liveness = Liveness::new(spec.interval, is_listening, now);
        let freshness = spec.is_edge_agent.then(|| ConfigFreshness::new(policy, seed, now));
        Self {
            spec,
            address,
            born_uuid: None,
            liveness,
            freshness,
            created: now.wall,
            refused: None,
            device_refused: None,
        }
    }

    /// What is to be watched.
    pub(crate) const fn spec(&self) -> &NodeSpec {
        &self.spec
    }

    pub(crate) const fn address(&self) -> Option<&EdgeNodeDescriptor> {
        self.address.as_ref()
    }

    /// Its UUID, from the subject or from its birth.
    pub(crate) fn uuid(&self) -> Option<Uuid> {
        match self.spec.subject {
            Subject::Uuid(uuid) => Some(uuid),
            Subject::Address(_) => self.born_uuid,
        }
    }

    /// Condition of the node.
    pub(crate) const fn state(&self) -> NodeState {
        self.liveness.state()
    }

    /// Changes what is to be watched; what is known of the node stays, so it must be the one at the same place.
    pub(crate) fn change(&mut self, spec: NodeSpec, policy: ReloadPolicy, seed: u64, jitter: &mut Jitter, now: Now) {
        self.liveness.set_interval(spec.interval, jitter);
        match (&self.freshness, spec.is_edge_agent) {
            (Some(_), true) | (None, false) => {}
            (Some(_), false) => self.freshness = None,
            (None, true) => self.freshness = Some(ConfigFreshness::new(policy, seed, now)),
        }
        self.spec = spec;
    }

    /// Says where the node is (not).
    pub(crate) fn bind(&mut self, address: Option<EdgeNodeDescriptor>) {
        self.address = address;
    }

    /// The node was born with this Instance_UUID and configuration revision.
    pub(crate) fn born(&mut self, uuid: Option<Uuid>, revision: Option<String>, now: Now, jitter: &mut Jitter) {
        self.born_uuid = uuid;
        self.refused = None;
        self.liveness.born(now, jitter);
        if let Some(freshness) = &mut self.freshness {
            freshness.set_reachable(true, now, jitter);
            freshness.report(revision, now, jitter);
            freshness.born(now, jitter);
        }
    }

    /// A birth of the node, or of this device of it, could not be used.
    pub(crate) fn birth_refused(&mut self, device: Option<DeviceId>, reason: &str) {
        let reason = reason.chars().take(REFUSAL_CHARACTERS_MAX).collect();
        match device {
            Some(device) => self.device_refused = Some((device, reason)),
            None => self.refused = Some(reason),
        }
    }

    /// A birth of this device could be used, or it is gone.
    pub(crate) fn device_received(&mut self, device: &DeviceId) {
        self.device_refused.take_if(|(refused, _)| refused == device);
    }

    /// Data of the node or of a device.
    pub(crate) fn data_received(&mut self, now: Now, jitter: &mut Jitter) {
        self.device_refused = None;
        self.received(now, jitter);
    }

    /// Any other packet than birth and death of the node.
    pub(crate) fn received(&mut self, now: Now, jitter: &mut Jitter) {
        self.liveness.received(now, jitter);
    }

    /// The node says which configuration it has.
    pub(crate) fn reported(&mut self, revision: Option<String>, now: Now, jitter: &mut Jitter) {
        if let Some(freshness) = &mut self.freshness {
            freshness.report(revision, now, jitter);
        }
    }

    pub(crate) fn died(&mut self, now: Now, jitter: &mut Jitter) {
        self.liveness.died(now);
        self.device_refused = None;
        self.set_reachable(false, now, jitter);
    }

    /// The own session went down or came up.
    pub(crate) fn set_listening(&mut self, is_listening: bool, now: Now, jitter: &mut Jitter) {
        if is_listening {
            self.liveness.listening(now, jitter);
        } else {
            self.liveness.deafened();
        }
        self.set_reachable(is_listening && self.state() == NodeState::Online, now, jitter);
    }

    /// The freshness, if the node is an edge agent.
    pub(crate) const fn freshness_mut(&mut self) -> Option<&mut ConfigFreshness> {
        self.freshness.as_mut()
    }

    /// When [`Watched::on_timer`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let freshness = self.freshness.as_ref().and_then(ConfigFreshness::next_deadline);
        [self.liveness.next_deadline(), freshness].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn on_timer(&mut self, now: Now, jitter: &mut Jitter) -> DueRequests {
        let rebirth = self.liveness.on_timer(now, jitter).ask_rebirth;
        if self.state() == NodeState::Silent {
            self.set_reachable(false, now, jitter);
        }
        let reload = self.freshness.as_mut().is_some_and(|freshness| freshness.on_timer(now));
        DueRequests { rebirth, reload }
    }

    /// What the monitor says about it.
    pub(crate) fn device(&self) -> MonitoredNodeDevice {
        let identity = match &self.spec.subject {
            Subject::Uuid(uuid) => identity::device(*uuid),
            Subject::Address(address) => identity::device_of_address(address),
        };
        let freshness = self.freshness.as_ref();
        let never = Alert { active: false, since: self.created };
        let reason = match self.liveness.state() {
            NodeState::Unknown => Some("no birth was received yet"),
            NodeState::Offline => Some("its death was published"),
            NodeState::Silent => Some("nothing was received for three intervals"),
            NodeState::Online if freshness.is_some_and(|freshness| freshness.alert().active) => {
                Some("it was asked to reload its configuration and does not report the wanted one")
            }
            NodeState::Online => None,
        };
        let is_online = self.liveness.state() == NodeState::Online;
        let refused = self.refused.as_ref().filter(|_| !is_online).map(|reason| format!("NBIRTH: {reason}"));
        let of_device = |(device, reason): &(DeviceId, String)| format!("DBIRTH of device {device}: {reason}");
        let refused = refused.or_else(|| self.device_refused.as_ref().map(of_device));
        let refused = refused.map(|refused| format!("{BIRTH_REFUSED}{refused}"));
        let reasons: Vec<String> = reason.map(str::to_owned).into_iter().chain(refused).collect();
        MonitoredNodeDevice {
            identity,
            node: self.uuid(),
            state: self.liveness.state(),
            reason: (!reasons.is_empty()).then(|| reasons.join("; ")),
            since: self.liveness.since(),
            offline: self.liveness.alert(),
            will_not_reload: freshness.map_or(never, ConfigFreshness::alert),
            config_wanted: freshness.and_then(ConfigFreshness::wanted).map(str::to_owned),
            config_reported: freshness.and_then(ConfigFreshness::reported).map(str::to_owned),
        }
    }

    fn set_reachable(&mut self, is_reachable: bool, now: Now, jitter: &mut Jitter) {
        if let Some(freshness) = &mut self.freshness {
            freshness.set_reachable(is_reachable, now, jitter);
        }
    }
}

/// Id of the device that stands for a node: its edge node id, with `_` for each dot, because some MQTT servers and Host Applications do not allow dots in ids.
/// A node known by UUID that was not born yet has its UUID as id.
pub(crate) fn device_id(watched: &Watched) -> DeviceId {
    let text = match (watched.address(), &watched.spec().subject) {
        (Some(address), _) | (None, Subject::Address(address)) => address.edge_node.as_str().replace('.', "_"),
        (None, Subject::Uuid(uuid)) => uuid.to_string(),
    };
    DeviceId::new(text).expect("edge node ids and UUIDs obey the rules of device ids")
}
