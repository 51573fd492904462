//! The Edge Node machine: session, births, data by exception, rebirth, deaths, commands (Sparkplug 3.0, 5.1-5.15).
//!
//! The machine keeps the birth state: the current value of every metric of the node and of its devices. An application only says what is
//! true ([`NodeUpdate`]); whether that becomes a birth, a data message or nothing yet follows from the session. So data before birth, a wrong `seq` or a
//! stale will cannot be written.

mod birth;
mod callbacks;
mod command;
mod flow;
mod forward;
mod history;
mod primary_host;
mod queue;
mod rebirth;
mod session;
mod speaker;
#[cfg(test)]
mod tests;
mod update;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use birth::{Entity, Sizing};
pub use callbacks::{CallbackOutcome, CommandCallbacks};
use history::History;
pub use history::{StoreAction, StoreConfig, StoreStatus, WhenFull};
use primary_host::PrimaryHost;
use queue::{OutputQueue, Waiting};
use rebirth::RebirthPacer;
use session::Leave;
pub use speaker::{BirthNotReceived, CONTESTED, CONTESTED_TIME, ECHO_TIME, OBJECTION_TIME, OtherSpeaker, Speaker};
use speaker::{HeldCommands, OwnClaim};

use crate::backoff::Backoff;
use crate::metric::Metric;
use crate::name::{DeviceId, EdgeNodeDescriptor, HostId};
use crate::payload::{Compression, Dialect};
use crate::seq::BdSeq;
use crate::session::{TransportAction, TransportEvent, oversized};
use crate::time::Now;

/// A heartbeat that suits a service: a lost last message or birth is noticed within half a minute, at the price of some 90 bytes.
pub const HEARTBEAT: Duration = Duration::from_secs(30);

/// Settings of an [`EdgeNode`].
#[derive(Debug, Clone)]
pub struct EdgeNodeConfig {
    /// Who it is.
    pub descriptor: EdgeNodeDescriptor,
    /// bdSeq of the first session: what storage holds, or [`BdSeq::ZERO`].
    pub bd_seq: BdSeq,
    /// Number of servers in the driver's list; at least 1.
    pub servers: usize,
    /// Wait for this Primary Host before birth, and leave when it goes offline.
    pub primary_host: Option<HostId>,
    /// Give aliases to metrics (sequential, never to `Node Control/Rebirth` or `bdSeq`).
    pub aliases: bool,
    /// Payload `uuid` of births, data and deaths (Factory+ puts its marker there).
    pub payload_uuid: Option<Arc<str>>,
    /// No message is made larger than this; see [`UpdateError::TooLarge`].
    pub message_bytes_max: usize,
    /// Device births sent in one go before the machine pauses for [`Self::birth_pause`], so that a large birth does not overrun queues of QoS 0.
    pub birth_burst: usize,
    /// Pause between two bursts of births.
    pub birth_pause: Duration,
    /// Rebirth requests closer together than this are answered once.
    pub rebirth_interval_min: Duration,
    /// Data messages that wait while births are under way; beyond it waiting changes are folded into the births of one further rebirth.
    pub data_waiting_max: usize,
    /// First and longest wait before a new CONNECT; between them it doubles, with jitter.
    pub reconnect: (Duration, Duration),
    /// Seed of the jitter.
    pub seed: u64,
    /// For which readers births and data are written. With [`Dialect::Tahu`] leave [`Self::aliases`] off: names are in data either way.
    pub dialect: Dialect,
    /// Births carry the property `documentation` that metrics have ([`crate::Properties::described`]). Off: it is left out, for brokers and networks that the births of many devices are a burden
    /// to. Units and `readOnly` stay.
    pub descriptions: bool,
    /// After so long without a message ([`HEARTBEAT`]), say `Node Control/Rebirth` = false again. A gap in `seq` shows only with the message after it. Without this, a host that
    /// missed the last message before a quiet time is wrong for as long as that lasts. It names its birth by the property `birthTimestamp`, for a host that missed the birth. None: say
    /// nothing.
    pub heartbeat: Option<Duration>,
    /// Compress births and data. None, because it is a convention beside the standard: its readers must know it.
    pub compression: Option<Compression>,
    /// Store and forward: keep data while there is no session, or no Primary Host, and send them as historical values after the next births. None: what changes meanwhile is in the
    /// births with its last value only.
    pub store: Option<StoreConfig>,
    /// One process speaks for this id: births name it, and of two processes one ends ([`NodeEvent::Displaced`]). The server must let the node receive its own NBIRTH and NDEATH.
    /// None: no process looks.
    pub speaker: Option<Speaker>,
    /// With a [`Self::speaker`]: commands wait until no process can object to the births any more ([`OBJECTION_TIME`]), or are dropped with the session. So of two processes only the one
    /// that continues answers. A process that takes over does not wait. Rebirth requests are answered at once.
    pub commands_wait: bool,
}

impl EdgeNodeConfig {
    /// Defaults for everything but the name: the strict dialect, descriptions in births, no primary host, no aliases, 256 KiB messages.
    /// Births come in bursts of 200 with 20 ms pauses, rebirth at most once a second, reconnect after 0.5 s to 30 s.
    /// There is no heartbeat, no compression, no store, and no look at other processes.
    #[must_use]
    pub fn new(descriptor: EdgeNodeDescriptor) -> Self {
        Self {
            descriptor,
            bd_seq: BdSeq::ZERO,
            servers: 1,
            primary_host: None,
            aliases: false,
            payload_uuid: None,
            message_bytes_max: 256 * 1024,
            birth_burst: 200,
            birth_pause: Duration::from_millis(20),
            rebirth_interval_min: Duration::from_secs(1),
            data_waiting_max: 10_000,
            reconnect: (Duration::from_millis(500), Duration::from_secs(30)),
            seed: 0,
            dialect: Dialect::Strict,
            descriptions: true,
            heartbeat: None,
            compression: None,
            store: None,
            speaker: None,
            commands_wait: false,
        }
    }

    /// The same for a service whose readers are not known: [`Dialect::Tahu`], so that clients which keep no births read its data, and a heartbeat.
    #[must_use]
    pub fn for_any_reader(descriptor: EdgeNodeDescriptor) -> Self {
        Self { dialect: Dialect::Tahu, heartbeat: Some(HEARTBEAT), ..Self::new(descriptor) }
    }

    /// The same for a service that runs once in its group. The driver names the process.
    #[must_use]
    pub fn for_one_speaker(descriptor: EdgeNodeDescriptor) -> Self {
        Self { speaker: Some(Speaker::default()), ..Self::for_any_reader(descriptor) }
    }
}

/// What an application publishes by its Edge Node. A metric that says the same as the current one sends nothing (report by exception), whatever its timestamp.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeUpdate {
    /// These metrics of the node (`device` None) or of a device have these values. A name that the birth does not hold yet is added, which
    /// means a rebirth of the node, or DDEATH and DBIRTH of the device. Properties are set key by key: those that a metric does not give stay as they are, and so does the metadata
    /// of one that gives none.
    Set {
        /// The device, or the node itself.
        device: Option<DeviceId>,
        /// New values.
        metrics: Vec<Metric>,
    },
    /// As [`NodeUpdate::Set`], but each metric is taken as it is: properties and metadata that it does not give are removed.
    Replace {
        /// The device, or the node itself.
        device: Option<DeviceId>,
        /// The metrics as they are to be.
        metrics: Vec<Metric>,
    },
    /// The device exists and has exactly these metrics, with exactly these properties. If it is already born with the same names and types, only the differences are sent.
    DeviceBirth {
        /// Which.
        device: DeviceId,
        /// All its metrics.
        metrics: Vec<Metric>,
    },
    /// The device is gone: DDEATH, and no birth of it any more.
    DeviceDeath {
        /// Which.
        device: DeviceId,
    },
    /// The values of the device again, as `Device Control/Rebirth` asks for them: at most once in the interval of rebirths. Nothing, if it is not born.
    Resend {
        /// Which.
        device: DeviceId,
    },
    /// Historical values (`is_historical`), sent as they are, in order; the current values stay.
    Historical {
        /// The device, or the node itself.
        device: Option<DeviceId>,
        /// Values of metrics of the birth; each with its timestamp.
        metrics: Vec<Metric>,
    },
    /// Send all births again.
    Rebirth,
    /// NDEATH, then disconnect; the machine ends with [`NodeEvent::Stopped`].
    Stop,
}

/// Why an update is refused; the state is as before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// The message that would carry it is larger than [`EdgeNodeConfig::message_bytes_max`].
    #[error("{what} would take {bytes} bytes in one message; at most {max} are allowed")]
    TooLarge {
        /// `NBIRTH`, `DBIRTH of <device>`, ...
        what: String,
        /// Encoded size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The device is not known.
    #[error("device {device} is not born; declare it with its metrics first")]
    UnknownDevice {
        /// Which.
        device: DeviceId,
    },
    /// A metric has another datatype than in the birth.
    #[error("metric {name:?} is {is:?} in the birth, but the update has {got:?}")]
    Datatype {
        /// Which metric.
        name: String,
        /// Datatype in the birth.
        is: crate::DataType,
        /// Datatype in the update.
        got: crate::DataType,
    },
    /// A name that the machine owns (`bdSeq`, `Node Control/Rebirth`), an empty name, or one name twice.
    #[error("metric name {name:?}: {rule}")]
    Name {
        /// Which.
        name: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// The machine has been stopped.
    #[error("the edge node has been stopped; it takes no updates")]
    Stopped,
}

/// What an Edge Node reports to its application.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeEvent {
    /// All births of this session are out (also after a rebirth: `rebirth` true).
    Born {
        /// bdSeq of the session.
        bd_seq: BdSeq,
        /// Not the first birth of the session.
        rebirth: bool,
    },
    /// The session ended or could not be opened; the machine tries again by itself.
    Offline {
        /// For people.
        reason: String,
    },
    /// The store of an Edge Node with [`EdgeNodeConfig::store`] is empty again: everything in it has reached the server or was dropped.
    Forwarded {
        /// Records that reached the server since it was empty before.
        sent: u64,
        /// Records that were dropped since then.
        dropped: u64,
    },
    /// An NCMD (`device` None) or DCMD arrived. Names and types are resolved: by alias and birth, by the datatype in the message, or by the value field of an unknown name.
    /// `Node Control/Rebirth` is answered by the machine and left out.
    Command {
        /// The addressed device, which need not be born; or the node.
        device: Option<DeviceId>,
        /// The wanted values.
        metrics: Vec<Metric>,
        /// Payload timestamp.
        timestamp: Option<u64>,
    },
    /// A message was not usable and was dropped.
    Rejected {
        /// Its topic.
        topic: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process speaks for this node and continues; this machine publishes NDEATH and ends with [`NodeEvent::Stopped`].
    Displaced(OtherSpeaker),
    /// Another process was born with the id of this node, and learns from births of this one that it has to end.
    Contested(OtherSpeaker),
    /// With a [`EdgeNodeConfig::speaker`]: for [`ECHO_TIME`] the server has not delivered the own NBIRTH. Said once in a session; the births are repeated.
    BirthNotReceived(BirthNotReceived),
    /// The own NBIRTH is received after all.
    BirthReceived,
    /// NDEATH and DISCONNECT are out; the machine is at its end.
    Stopped,
}

/// What [`EdgeNode::poll_output`] yields.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeOutput {
    /// For the driver.
    Transport(TransportAction),
    /// For the application.
    Event(NodeEvent),
}

/// Where the session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No session; the next CONNECT is at this time.
    Away { until: Duration },
    /// CONNECT is out.
    Connecting,
    /// SUBSCRIBE is out (tck-id-message-flow-edge-node-birth-publish-connect: births wait for it).
    Subscribing,
    /// Subscribed; no birth before the Primary Host is online.
    AwaitingPrimaryHost { since: Duration },
    /// Births are going out.
    Birthing,
    /// Births are out.
    Born,
    /// DISCONNECT is out.
    Leaving,
    /// At its end.
    Stopped,
}

#[derive(Debug)]
struct Device {
    entity: Entity,
    /// DBIRTH of this session is out, and no DDEATH since.
    born: bool,
    /// Its DBIRTH is in a queue and will take the values of its time.
    queued: bool,
    /// When its values were last sent again on command.
    resent: Option<Duration>,
}

/// Births that are going out.
#[derive(Debug, Default)]
struct BirthRun {
    /// Devices still to be born; one that is gone or born by then is skipped.
    queue: VecDeque<DeviceId>,
    rebirth: bool,
    /// Devices whose DDEATH was folded away: to the outside they are still alive and not to be born before the next NBIRTH.
    lingering: BTreeSet<DeviceId>,
}

/// The Edge Node machine.
#[derive(Debug)]
pub struct EdgeNode {
    config: EdgeNodeConfig,
    sizing: Sizing,
    node: Entity,
    devices: BTreeMap<DeviceId, Device>,
    alias_next: u64,

    phase: Phase,
    stopping: bool,
    /// CONNACK of the present session arrived.
    open: bool,
    server: usize,
    bd_seq: BdSeq,
    backoff: Backoff,
    primary_host: PrimaryHost,
    /// Why the machine itself left the session.
    leave_reason: Option<Leave>,

    outputs: OutputQueue,
    waiting: Waiting,
    history: Option<History>,
    /// Before this time no history is sent.
    history_pause_until: Duration,
    /// More changes waited than allowed: they are in the births of one further rebirth.
    folded: bool,
    births: BirthRun,
    /// Before this time neither births nor waiting messages go on.
    pause_until: Duration,
    rebirth: RebirthPacer,
    /// Devices whose values are to be sent again, and when.
    resend: BTreeMap<DeviceId, Duration>,
    /// Messages sent when it was looked last, and when the quiet time that began then ends.
    heartbeat: Option<(u64, Duration)>,
    speaker: Option<OwnClaim>,
    held: HeldCommands,
}

impl EdgeNode {
    /// A machine that wants to connect at once; `metrics` are the node's own, without those that the machine adds.
    ///
    /// # Errors
    /// As [`EdgeNode::update`].
    pub fn new(config: EdgeNodeConfig, metrics: Vec<Metric>, now: Now) -> Result<Self, UpdateError> {
        let sizing = Sizing {
            aliases: config.aliases,
            dialect: config.dialect,
            uuid_bytes: config.payload_uuid.as_deref().map_or(0, str::len),
            speaker_bytes: config.speaker.as_ref().map_or(0, speaker::birth_bytes),
            message_bytes_max: config.message_bytes_max,
        };
        let mut machine = Self {
            sizing,
            node: Entity::default(),
            devices: BTreeMap::new(),
            alias_next: 1,
            phase: Phase::Away { until: now.mono },
            stopping: false,
            open: false,
            server: 0,
            bd_seq: config.bd_seq,
            backoff: Backoff::new(config.reconnect, config.seed),
            primary_host: PrimaryHost::new(config.servers),
            leave_reason: None,
            outputs: OutputQueue::new(&config),
            waiting: Waiting::default(),
            history: config.store.clone().map(History::new),
            history_pause_until: Duration::ZERO,
            folded: false,
            births: BirthRun::default(),
            pause_until: Duration::ZERO,
            rebirth: RebirthPacer::new(config.rebirth_interval_min),
            resend: BTreeMap::new(),
            heartbeat: None,
            speaker: config.speaker.clone().map(|speaker| OwnClaim::new(speaker, now)),
            held: HeldCommands::default(),
            config,
        };
        machine.replace(None, metrics, now)?;
        machine.connect(now);
        Ok(machine)
    }

    /// Takes what the application has to say.
    ///
    /// # Errors
    /// [`UpdateError`]; nothing has changed then.
    pub fn update(&mut self, update: NodeUpdate, now: Now) -> Result<(), UpdateError> {
        if self.stopping {
            return if update == NodeUpdate::Stop { Ok(()) } else { Err(UpdateError::Stopped) };
        }
        match update {
            NodeUpdate::Set { device, metrics } => self.set(device, metrics, now)?,
            NodeUpdate::Replace { device, metrics } => self.replace(device, metrics, now)?,
            NodeUpdate::DeviceBirth { device, metrics } => self.device_birth(device, metrics, now)?,
            NodeUpdate::DeviceDeath { device } => self.device_death(&device, now)?,
            NodeUpdate::Resend { device } => self.request_resend(&device, now),
            NodeUpdate::Historical { device, metrics } => self.historical(device, metrics, now)?,
            NodeUpdate::Rebirth => self.request_rebirth(),
            NodeUpdate::Stop => self.stop(now),
        }
        self.advance(now);
        Ok(())
    }

    /// Takes what the driver has to say.
    pub fn on_transport(&mut self, event: TransportEvent, now: Now) {
        match event {
            TransportEvent::Connected => self.connected(),
            TransportEvent::Subscribed => self.subscribed(now),
            TransportEvent::Message { topic, payload, retain, .. } => self.message(topic, &payload, retain, now),
            // A lost command is repeated by its sender; a lost STATE is retained and comes again with the next session.
            TransportEvent::Lost { .. } => {}
            TransportEvent::Oversized { topic, bytes, max, .. } => {
                let reason = oversized(bytes, max);
                self.outputs.event(NodeEvent::Rejected { topic, reason });
            }
            TransportEvent::Received { publishes } => self.received(publishes, now),
            TransportEvent::Outdated => self.outdated(now),
            TransportEvent::Disconnected { reason, reached } => self.disconnected(reason, reached, now),
        }
        self.advance(now);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now) {
        match self.phase {
            Phase::Away { until } if now.mono >= until => self.connect(now),
            Phase::AwaitingPrimaryHost { since } if self.patience_ends(since).is_some_and(|end| now.mono >= end) => {
                self.leave(Leave::Away("no STATE of the primary host arrived on this server"), now);
            }
            _ => {}
        }
        self.advance(now);
    }

    /// `Now::mono` at which [`EdgeNode::handle_timeout`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Away { until } => Some(until),
            Phase::AwaitingPrimaryHost { since } => self.patience_ends(since),
            Phase::Birthing => self.held_until().into_iter().chain(self.echo_due()).chain([self.pause_until]).min(),
            Phase::Born => {
                let drain = (!self.waiting_is_blocked()).then_some(self.pause_until);
                let heartbeat = self.heartbeat.map(|(_, due)| due);
                let resend = self.resend.values().min().copied();
                let (held, echo) = (self.held_until(), self.echo_due());
                [drain, self.rebirth.due(), resend, heartbeat, self.history_due(), held, echo]
                    .into_iter()
                    .flatten()
                    .min()
            }
            Phase::Connecting | Phase::Subscribing | Phase::Leaving | Phase::Stopped => None,
        }
    }

    /// The next thing to do or to report, in order.
    pub fn poll_output(&mut self) -> Option<NodeOutput> {
        self.outputs.pop()
    }

    /// Size in bytes of the DBIRTH that a device with these metrics would have; for applications that must refuse what does not fit.
    #[must_use]
    pub fn device_birth_bytes(&self, metrics: &[Metric]) -> usize {
        let mut metrics = metrics.to_vec();
        self.leave_out_descriptions(&mut metrics);
        self.sizing.device_birth(&metrics)
    }

    /// Whether the births of the current session are out.
    #[must_use]
    pub fn is_born(&self) -> bool {
        self.phase == Phase::Born
    }

    /// Current metrics of the node or of a device, as the next birth would carry them, without those that the machine adds.
    #[must_use]
    pub fn metrics(&self, device: Option<&DeviceId>) -> Option<Vec<Metric>> {
        let entity = match device {
            None => &self.node,
            Some(device) => &self.devices.get(device)?.entity,
        };
        Some(entity.slots.iter().map(|slot| slot.metric.clone()).collect())
    }

    /// Ids of the devices that exist.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceId> {
        self.devices.keys()
    }
}
