//! What the host says of itself: births, changes, and the messages of the protocol.

use std::time::Duration;

use bootstrapper_contract::HostNode;
use join_protocol::host::Condition;
use join_protocol::metrics::HostMessage;
use join_protocol::terms::Variant;
use sparkplug::edge_node::NodeUpdate;
use sparkplug::{Metric, Properties, TypedMetrics as _};
use uuid::Uuid;

use super::{Phase, State};
use crate::event::{Effect, Inspection};

/// Property of a message that counts what was said: an Edge Node sends nothing that it has said already, and the protocol repeats the same bytes.
const REPEAT: &str = "Repeat";

/// The shortest time between two reports of ignored messages.
const IGNORED_INTERVAL: Duration = Duration::from_secs(1);

impl State {
    pub(super) fn birth(&mut self, disk: Uuid, inspection: &Inspection) {
        self.node.variant = inspection.keys.variant.name().to_owned();
        self.node.simulated = inspection.keys.variant == Variant::Simulated;
        let name = &inspection.identity.node_name;
        self.node.node_name = (!name.is_empty()).then(|| name.clone());
        if self.published.is_some() {
            // It has looked around before in this run.
            return;
        }
        let mut metrics = HostMessage::birth_metrics(&[]);
        metrics.extend(self.node.to_metrics());
        self.published = Some(self.node.clone());
        self.effects.push(Effect::Birth { disk, metrics });
    }

    pub(super) fn publish(&mut self, message: &HostMessage) {
        self.said += 1;
        let metric = message.to_metric().with_properties(Properties::default().with(REPEAT, self.said));
        self.set(vec![metric]);
    }

    fn set(&mut self, metrics: Vec<Metric>) {
        self.effects.push(Effect::Node(NodeUpdate::Set { device: None, metrics }));
    }

    /// Says what changed.
    pub(super) fn report(&mut self) {
        self.node.state = self.state_name().to_owned();
        self.node.administrator = self.sessions.iter().any(|session| session.ends_at.is_some());
        if let Some(kind) = self.work.as_ref().and_then(|work| work.kind) {
            self.node.kind = kind.name().to_owned();
        } else if let Some(session) = self.sessions.first() {
            self.node.kind = session.kind.name().to_owned();
        }
        if let Some(published) = &self.published {
            // Any client can send messages that are ignored, and must not make the host publish as often.
            let only_ignored = HostNode { ignored: published.ignored, ..self.node.clone() } == *published;
            let waits = only_ignored && self.mono < self.published_at + IGNORED_INTERVAL;
            let changes = self.node.changes_since(published);
            if !changes.is_empty() && !waits {
                self.published = Some(self.node.clone());
                self.published_at = self.mono;
                self.set(changes);
            }
        }
        let status = self.status_text();
        if status != self.status {
            self.status.clone_from(&status);
            self.effects.push(Effect::Status(status));
        }
    }

    fn state_name(&self) -> &'static str {
        let of_machine = || self.sessions.iter().map(|session| session.machine.condition());
        match &self.phase {
            Phase::Failing { .. } | Phase::Rebooting(_) => "failed",
            Phase::Member { .. } => "member",
            // As it ended.
            Phase::Ended if self.node.state == "member" => "member",
            Phase::Ended if self.node.state == "failed" => "failed",
            Phase::Working if self.is_committed => Condition::Committed.name(),
            Phase::Working => Condition::Opened.name(),
            // The machine that is farthest.
            Phase::Asking => of_machine().max_by_key(|condition| rank(*condition)).unwrap_or(Condition::Stopped).name(),
            Phase::Looking | Phase::Preparing | Phase::Ended => Condition::Stopped.name(),
        }
    }

    fn status_text(&self) -> String {
        let doing = match &self.phase {
            Phase::Looking => "looking at TPM and state disk".to_owned(),
            Phase::Preparing => "making the state disk".to_owned(),
            Phase::Asking | Phase::Working => format!("{} {}", self.node.kind, self.node.state),
            Phase::Failing { .. } => "failed after the lock, will reboot".to_owned(),
            Phase::Rebooting(_) => "rebooting".to_owned(),
            Phase::Member { .. } => "member".to_owned(),
            Phase::Ended => "ended".to_owned(),
        };
        match (&self.node.activity, &self.node.last_error) {
            (Some(activity), _) => format!("{doing}: {activity}"),
            (None, Some(error)) => format!("{doing}; last error: {error}"),
            (None, None) => doing,
        }
    }
}

const fn rank(condition: Condition) -> u8 {
    match condition {
        Condition::Stopped => 0,
        Condition::Resting => 1,
        Condition::AwaitsChallenge => 2,
        Condition::AwaitsTpm => 3,
        Condition::AwaitsTicket => 4,
        Condition::Opened => 5,
        Condition::Committed => 6,
    }
}
