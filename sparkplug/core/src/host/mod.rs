//! The Host Application machine: STATE, replicas of edge nodes and devices, ordering, rebirth requests, commands (Sparkplug 3.0, 5.16-5.18, 6.4.23).
//!
//! A replica is alive only between a birth and the death of the same bdSeq; nothing but a birth revives it. A gap in `seq`, data before birth, an unknown alias or an
//! unreadable payload make it stale and lead to one rebirth request at a time, jittered and bounded.
//!
//! A limit of the standard: every NBIRTH has `seq` 0.
//! So the loss of a whole set of births goes unnoticed if as many messages were lost as the host would need to have missed for its count to fit.
//! An example is a node without devices that is reborn before it sent any data.
//! The host notices it when a message names something unknown, when the count differs, or by the next heartbeat of an Edge Node of this library, which names its birth.
//! An application that depends on the completeness of another node's data counts what it received.

mod asking;
mod due;
mod follow;
mod groups;
mod inbound;
mod interest;
mod merge;
mod new_hosts;
mod node_table;
mod rebirth;
mod replica;
mod request;
mod resequencer;
mod session;
mod shape;
mod share;
mod state;
#[cfg(test)]
mod tests;
mod view;
mod weight;
mod work;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use follow::Followed;
use groups::Groups;
pub use interest::Interest;
pub use merge::{HostMerge, MergeOutput};
use new_hosts::NewHosts;
pub use new_hosts::RebirthsForHosts;
use node_table::{Node, NodeIndex, NodeTable};
use rebirth::RebirthQueue;
use replica::{Change, Replica};
use shape::Shapes;
use state::OwnState;
pub use view::{DeviceView, MetricView, NodeView};

use crate::backoff::Backoff;
use crate::heartbeat::NODE_REBIRTH;
use crate::metric::Metric;
use crate::name::{DeviceId, EdgeNodeDescriptor, HostId};
use crate::payload::{Dialect, Limits};
use crate::seq::BdSeq;
use crate::session::{QoS, TransportAction, TransportEvent, oversized};
use crate::time::Now;
use crate::topic::MessageKind;

/// Settings of a [`HostApplication`].
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Who it is. None: a listener without STATE (no will), for tools that only look.
    pub host_id: Option<HostId>,
    /// Number of servers in the driver's list; at least 1. One machine speaks to one server at a time; [`HostMerge`] joins the machines of several.
    pub servers: usize,
    /// Subscriptions of data; own STATE comes on top. Default `spBv1.0/#` at QoS 1. Births and data are published at QoS 0 and arrive so. But the will, that
    /// is, the death, is published at QoS 1, and at QoS 0 a server may drop it.
    pub filters: Vec<(String, QoS)>,
    /// How long a gap in `seq` may stay open (tck-id-operational-behavior-host-reordering-param). Default 2 s; 0 is allowed.
    pub reorder_timeout: Duration,
    /// Messages of one node held back while a gap is open.
    pub reorder_messages_max: usize,
    /// Bytes of messages held back while gaps are open, over all nodes. Beyond it a gap in the group that holds most is a loss at once.
    pub held_bytes_max: usize,
    /// Ask stale or unknown nodes for rebirth at all (a pure listener does not).
    pub rebirth_requests: bool,
    /// Random delay before a rebirth request, at most.
    pub rebirth_jitter: Duration,
    /// First and longest wait between two rebirth requests to the same node; between them it doubles.
    pub rebirth_interval: (Duration, Duration),
    /// Rebirth requests per second over all nodes, at most. Groups take turns. A request that is up to 10 ms late does not delay the next one.
    pub rebirths_per_second_max: u32,
    /// Nodes, devices per node and metrics per node or device that are kept; what is beyond is refused with [`HostEvent::Rejected`]. Where there is no room for another node,
    /// the group with the most nodes gives one up for a group with fewer, or for an expected node.
    /// It gives up one that was never born, else one that is not alive, else any that the application does not expect. An application that had it alive receives [`HostEvent::NodeStale`].
    pub nodes_max: usize,
    /// How long a node is kept that was never born and that the application does not expect. A node that sends again later is new.
    pub unborn_kept: Duration,
    /// See [`Self::nodes_max`].
    pub devices_max: usize,
    /// See [`Self::nodes_max`].
    pub metrics_max: usize,
    /// Nodes and devices that the application's contracts know; the first that fits a node counts, and what fits none is not kept. Empty: all are kept.
    pub interests: Vec<Interest>,
    /// Ask nodes for rebirth when another host comes online that may not do so itself. The session then subscribes to STATE of all hosts. None: each host asks for what it needs.
    pub rebirths_for_hosts: Option<RebirthsForHosts>,
    /// Memory that the replicas of all nodes may take, in bytes, counted by what births and data say. Beyond it the group that takes most loses its largest node
    /// ([`HostEvent::NodeStale`]), which is not asked for rebirth any more; one that is not expected goes before one that is.
    pub replica_bytes_max: usize,
    /// Send commands for metrics and devices that the birth of a living node does not have, for receivers whose contract takes requests beyond their births. Off: such a command is
    /// refused with [`HostEvent::Rejected`]. One that gives a metric of the birth another datatype is refused either way; one to a node that is not alive is sent as it is.
    pub commands_beyond_births: bool,
    /// Names of metrics that are messages, each of which vouches for itself, by a signature for instance. What an NBIRTH or NDATA has of them is reported as it arrives
    /// ([`HostEvent::NodeMessages`]), in whatever condition the node is. Births and deaths that another client sends in its name keep none back. They carry their names, and are
    /// Bytes where the message has no datatype. With such metrics no birth decides which commands are sent.
    pub messages: BTreeSet<&'static str>,
    /// Report the aliases of births ([`HostEvent::Aliases`]), for tools that show them. Values have their names either way.
    pub report_aliases: bool,
    /// For which readers commands are written: [`Dialect::Tahu`] for nodes that look for UInt32 where Tahu's JavaScript does.
    pub dialect: Dialect,
    /// Larger payloads are refused unread, and compressed ones that carry more.
    pub message_bytes_max: usize,
    /// First and longest wait before a new CONNECT; between them it doubles, with jitter.
    pub reconnect: (Duration, Duration),
    /// Seed of the jitter.
    pub seed: u64,
}

impl HostConfig {
    /// Defaults for everything but the name.
    #[must_use]
    pub fn new(host_id: Option<HostId>) -> Self {
        Self {
            host_id,
            servers: 1,
            filters: vec![("spBv1.0/#".to_owned(), QoS::AtLeastOnce)],
            reorder_timeout: Duration::from_secs(2),
            reorder_messages_max: 1_000,
            held_bytes_max: 32 * 1024 * 1024,
            rebirth_requests: true,
            rebirth_jitter: Duration::from_millis(200),
            rebirth_interval: (Duration::from_secs(2), Duration::from_secs(60)),
            rebirths_per_second_max: 200,
            nodes_max: 100_000,
            unborn_kept: Duration::from_secs(300),
            devices_max: 100_000,
            metrics_max: 100_000,
            interests: Vec::new(),
            rebirths_for_hosts: None,
            replica_bytes_max: 4 * 1024 * 1024 * 1024,
            commands_beyond_births: false,
            messages: BTreeSet::new(),
            report_aliases: false,
            dialect: Dialect::Strict,
            message_bytes_max: 1024 * 1024,
            reconnect: (Duration::from_millis(500), Duration::from_secs(30)),
            seed: 0,
        }
    }

    /// What is reported of the aliases of a birth, of which this is the replica.
    fn aliases_of(&self, birth: &Replica, node: &EdgeNodeDescriptor, device: Option<&DeviceId>) -> Option<HostEvent> {
        let aliases = if self.report_aliases { birth.aliases() } else { Vec::new() };
        (!aliases.is_empty()).then(|| HostEvent::Aliases { node: node.clone(), device: device.cloned(), aliases })
    }

    /// The same for a service that commands others by their contracts ([`Self::commands_beyond_births`]), in the dialect that every client reads ([`Dialect::Tahu`]).
    #[must_use]
    pub fn of_contracts(host_id: Option<HostId>) -> Self {
        Self { commands_beyond_births: true, dialect: Dialect::Tahu, ..Self::new(host_id) }
    }
}

/// What an application asks of its Host Application.
#[derive(Debug, Clone, PartialEq)]
pub enum HostRequest {
    /// Publish an NCMD (`device` None) or DCMD.
    Command {
        /// To which edge node.
        node: EdgeNodeDescriptor,
        /// To which device of it.
        device: Option<DeviceId>,
        /// Wanted values; names always, types too, aliases never. A living node has to have been born with them, see [`HostConfig::commands_beyond_births`].
        metrics: Vec<Metric>,
    },
    /// This node should exist: ask it for birth until it is born, again whenever it turns stale or unknown. Without this only nodes that send are asked.
    Expect {
        /// Which.
        node: EdgeNodeDescriptor,
    },
    /// This node may be kept where [`Interest::allowed_only`] asks for that. It is asked for birth once, as it may have been born before; it never expires, and has its place
    /// beside those that are expected.
    Allow {
        /// Which.
        node: EdgeNodeDescriptor,
    },
    /// Take [`HostRequest::Expect`] and [`HostRequest::Allow`] back and drop the replica.
    Forget {
        /// Which.
        node: EdgeNodeDescriptor,
    },
    /// Ask for rebirth once, subject to the limits.
    Rebirth {
        /// Which.
        node: EdgeNodeDescriptor,
    },
    /// Report every message of this node as it arrived, too ([`HostEvent::Message`]), until [`HostRequest::Unfollow`]; for tools that show messages.
    Follow {
        /// Which.
        node: EdgeNodeDescriptor,
    },
    /// Take [`HostRequest::Follow`] back.
    Unfollow {
        /// Which.
        node: EdgeNodeDescriptor,
    },
    /// STATE offline with the present time, then disconnect.
    Stop,
}

/// What a Host Application reports to its application. Within a node the order is that of the node's `seq`.
#[derive(Debug, Clone, PartialEq)]
pub enum HostEvent {
    /// Own session is up: subscribed, STATE online published.
    Online,
    /// Own session is down: every replica is stale until its next birth.
    Offline {
        /// For people.
        reason: String,
    },
    /// NBIRTH: the node is alive, its metrics are these, all its devices are gone until their DBIRTH.
    NodeBirth {
        /// Who.
        node: EdgeNodeDescriptor,
        /// Of its session.
        bd_seq: BdSeq,
        /// Payload timestamp, UTC ms.
        timestamp: u64,
        /// Payload `uuid`.
        uuid: Option<Arc<str>>,
        /// All metrics of the node, `bdSeq` and `Node Control/Rebirth` included.
        metrics: Arc<[Metric]>,
    },
    /// Aliases that the NBIRTH or DBIRTH just reported gave to its metrics; only with [`HostConfig::report_aliases`], and not of a birth without aliases.
    Aliases {
        /// Of whom.
        node: EdgeNodeDescriptor,
        /// None: of the node's own metrics.
        device: Option<DeviceId>,
        /// By the names of the metrics, in the order of the aliases.
        aliases: Vec<(Arc<str>, u64)>,
    },
    /// NDEATH with the bdSeq of the birth: the node and all its devices are dead. `timestamp` is the host's own receive time.
    NodeDeath {
        /// Who.
        node: EdgeNodeDescriptor,
        /// UTC ms.
        timestamp: u64,
    },
    /// The replica is stale (gap, unknown alias, unreadable message, own session lost); values are kept but may be old. A birth ends it.
    NodeStale {
        /// Who.
        node: EdgeNodeDescriptor,
        /// Why, for people.
        reason: String,
    },
    /// NDATA.
    NodeData {
        /// Who.
        node: EdgeNodeDescriptor,
        /// Payload timestamp, UTC ms.
        timestamp: u64,
        /// Changed metrics, names and types resolved.
        metrics: Vec<Metric>,
    },
    /// A message from or to a node that the application follows ([`HostRequest::Follow`]), before anything else of it is reported. Retained messages are among them, those that
    /// cannot be read or are out of order, and commands of other hosts as far as the subscription has them. A message larger than [`HostConfig::message_bytes_max`] is not reported.
    Message {
        /// Whose topic.
        node: EdgeNodeDescriptor,
        /// None: of the node itself.
        device: Option<DeviceId>,
        /// Which message.
        kind: MessageKind,
        /// As the server delivers it: the lower one of the publish and the subscription ([`HostConfig::filters`]).
        qos: QoS,
        /// Sent by the server from its memory, not by the node now.
        retain: bool,
        /// As it came, not decoded.
        payload: Bytes,
    },
    /// Metrics of [`HostConfig::messages`] that an NBIRTH or NDATA has, before anything else of it is reported.
    NodeMessages {
        /// In whose name; the messages say who sent them.
        node: EdgeNodeDescriptor,
        /// Those that are not null.
        metrics: Vec<Metric>,
    },
    /// DBIRTH.
    DeviceBirth {
        /// Of whom.
        node: EdgeNodeDescriptor,
        /// Which device.
        device: DeviceId,
        /// Payload timestamp, UTC ms.
        timestamp: u64,
        /// All its metrics.
        metrics: Arc<[Metric]>,
    },
    /// DDATA.
    DeviceData {
        /// Of whom.
        node: EdgeNodeDescriptor,
        /// Which device.
        device: DeviceId,
        /// Payload timestamp, UTC ms.
        timestamp: u64,
        /// Changed metrics, names and types resolved.
        metrics: Vec<Metric>,
    },
    /// DDEATH. `timestamp` is the payload's.
    DeviceDeath {
        /// Of whom.
        node: EdgeNodeDescriptor,
        /// Which device.
        device: DeviceId,
        /// UTC ms.
        timestamp: u64,
    },
    /// A rebirth request went out.
    RebirthRequested {
        /// To whom.
        node: EdgeNodeDescriptor,
        /// Why, for people.
        reason: String,
    },
    /// STATE of another (or the own) Host Application.
    HostState {
        /// Who.
        host: HostId,
        /// Online or not.
        state: crate::state::HostState,
    },
    /// Living nodes are being asked for rebirth because this host came online ([`HostConfig::rebirths_for_hosts`]). An application that is an Edge Node itself has to be reborn, too.
    HostServed {
        /// Who.
        host: HostId,
    },
    /// A message was not usable and was dropped; or a command that the application asked for, and was not sent.
    Rejected {
        /// Its topic.
        topic: String,
        /// What is wrong with it.
        reason: String,
    },
    /// STATE offline and DISCONNECT are out; the machine is at its end.
    Stopped,
}

impl HostEvent {
    /// The Edge Node that it is about.
    #[must_use]
    pub const fn node(&self) -> Option<&EdgeNodeDescriptor> {
        match self {
            Self::NodeBirth { node, .. }
            | Self::Aliases { node, .. }
            | Self::NodeDeath { node, .. }
            | Self::NodeStale { node, .. }
            | Self::NodeData { node, .. }
            | Self::Message { node, .. }
            | Self::NodeMessages { node, .. }
            | Self::DeviceBirth { node, .. }
            | Self::DeviceData { node, .. }
            | Self::DeviceDeath { node, .. }
            | Self::RebirthRequested { node, .. } => Some(node),
            Self::Online
            | Self::Offline { .. }
            | Self::HostState { .. }
            | Self::HostServed { .. }
            | Self::Rejected { .. }
            | Self::Stopped => None,
        }
    }

    /// Whether this is an NDATA that says nothing but that its Edge Node is there: no metric beside `Node Control/Rebirth`.
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        matches!(self, Self::NodeData { metrics, .. } if metrics.iter().all(|metric| &*metric.name == NODE_REBIRTH))
    }
}

/// What [`HostApplication::poll_output`] yields.
#[derive(Debug, Clone, PartialEq)]
pub enum HostOutput {
    /// For the driver.
    Transport(TransportAction),
    /// For the application.
    Event(HostEvent),
}

/// Condition of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// Between a birth and its death, in order.
    Alive,
    /// Stale; waits for a birth.
    Stale,
    /// Died, or was never born.
    Dead,
}

/// Unanswered requests to a node that the application does not expect; then it is asked again only when it sends.
const UNANSWERED_MAX: u32 = 8;
/// A node whose messages exceeded the limits so often is asked no more: its births are as large as they are.
const EXCESSES_MAX: u32 = 3;
/// Why a gap is a loss before its time is over.
const TOO_MANY_HELD: &str = "too many messages wait for a missing one";

/// Where the session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No session; the next CONNECT is at this time.
    Away { until: Duration },
    /// CONNECT is out.
    Connecting,
    /// SUBSCRIBE is out.
    Subscribing,
    /// Subscribed, STATE online is out.
    Online,
    /// DISCONNECT is out.
    Leaving,
    /// At its end.
    Stopped,
}

/// The Host Application machine.
#[derive(Debug)]
pub struct HostApplication {
    config: HostConfig,
    limits: Limits,
    outputs: VecDeque<HostOutput>,

    phase: Phase,
    stopping: bool,
    /// CONNACK of the present session arrived.
    open: bool,
    server: usize,
    backoff: Backoff,
    own_state: Option<OwnState>,

    nodes: NodeTable,
    shapes: Shapes,
    /// Places of the metrics of a message; kept for its memory.
    found: Vec<Option<usize>>,
    /// What a plain data message changes; kept for its memory.
    changes: Vec<Change>,
    /// It was reported that there are more nodes than are kept.
    nodes_refused: bool,
    /// Gaps by the time at which they become losses.
    gaps: BTreeSet<(Duration, NodeIndex)>,
    /// What each group holds.
    groups: Groups,
    /// Nodes that were never born and that are not expected, by the time at which they are forgotten.
    unborn: BTreeSet<(Duration, NodeIndex)>,
    rebirths: RebirthQueue,
    new_hosts: NewHosts,
    followed: Followed,
}

impl HostApplication {
    /// A machine that wants to connect at once.
    #[must_use]
    pub fn new(config: HostConfig, now: Now) -> Self {
        let limits = Limits {
            bytes_max: config.message_bytes_max,
            inflated_bytes_max: config.message_bytes_max,
            metrics_max: config.metrics_max,
            ..Limits::default()
        };
        let rebirths = RebirthQueue::new(
            config.rebirths_per_second_max,
            config.rebirth_interval,
            config.rebirth_jitter,
            config.seed,
        );
        let mut machine = Self {
            limits,
            outputs: VecDeque::new(),
            phase: Phase::Away { until: now.mono },
            stopping: false,
            open: false,
            server: 0,
            backoff: Backoff::new(config.reconnect, config.seed.wrapping_add(1)),
            own_state: config.host_id.clone().map(|host| OwnState::new(host, config.servers)),
            nodes: NodeTable::new(config.seed),
            shapes: Shapes::new(config.seed),
            found: Vec::new(),
            changes: Vec::new(),
            nodes_refused: false,
            gaps: BTreeSet::new(),
            groups: Groups::new(config.seed),
            unborn: BTreeSet::new(),
            rebirths,
            new_hosts: NewHosts::default(),
            followed: Followed::default(),
            config,
        };
        machine.connect(now);
        machine
    }

    /// Takes what the application has to say. Commands and rebirths asked for while offline are dropped (the sender repeats until the replica agrees); Expect, Forget and Follow are kept.
    pub fn request(&mut self, request: HostRequest, now: Now) {
        if self.stopping {
            return;
        }
        match request {
            HostRequest::Command { node, device, metrics } => {
                if self.phase == Phase::Online {
                    self.command(node, device, metrics, now);
                }
            }
            HostRequest::Expect { node } => self.expect(&node, now),
            HostRequest::Allow { node } => self.allow(&node, now),
            HostRequest::Forget { node } => self.forget(&node),
            HostRequest::Rebirth { node } => {
                if self.phase == Phase::Online
                    && let Some(at) = self.admit(&node, "rebirth request", false, now)
                {
                    self.schedule_rebirth(at, "the application asked for it", now);
                }
            }
            HostRequest::Follow { node } => self.followed.insert(&node),
            HostRequest::Unfollow { node } => self.followed.remove(&node),
            HostRequest::Stop => self.stop(now),
        }
        self.run_due(now);
    }

    /// Takes what the driver has to say.
    pub fn on_transport(&mut self, event: TransportEvent, now: Now) {
        match event {
            TransportEvent::Connected => self.connected(),
            TransportEvent::Subscribed => self.subscribed(now),
            TransportEvent::Message { topic, payload, qos, retain } => {
                if let Some(seen) = self.followed.seen(&topic, &payload, (qos, retain)).filter(|_| self.receives()) {
                    self.event(seen);
                }
                self.message(&topic, &payload, retain, now);
            }
            TransportEvent::Lost { topic } => self.lost(&topic, now),
            TransportEvent::Oversized { topic, bytes, max, retain } => {
                self.oversized(&topic, oversized(bytes, max), retain, now);
            }
            TransportEvent::Received { .. } => {}
            TransportEvent::Outdated => self.outdated(now),
            TransportEvent::Disconnected { reason, .. } => self.disconnected(reason, now),
        }
        self.run_due(now);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now) {
        match self.phase {
            Phase::Away { until } if now.mono >= until => self.connect(now),
            _ => {}
        }
        self.run_due(now);
    }

    /// `Now::mono` at which [`HostApplication::handle_timeout`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Away { until } => Some(until),
            Phase::Online => {
                let unborn = self.unborn.first().map(|(due, _)| *due);
                let gap = self.gaps.first().map(|(due, _)| *due);
                [gap, unborn, self.rebirths.next_deadline(), self.round_due()].into_iter().flatten().min()
            }
            Phase::Subscribing => [&self.gaps, &self.unborn].into_iter().filter_map(|all| Some(all.first()?.0)).min(),
            Phase::Connecting | Phase::Leaving | Phase::Stopped => None,
        }
    }

    /// The next thing to do or to report, in order.
    pub fn poll_output(&mut self) -> Option<HostOutput> {
        self.outputs.pop_front()
    }

    /// Condition of a node's replica; None if no message of it arrived.
    #[must_use]
    pub fn liveness(&self, node: &EdgeNodeDescriptor) -> Option<Liveness> {
        self.seen(node).map(|known| known.liveness)
    }

    /// The replica of a node, if a message of it arrived.
    #[must_use]
    pub fn node(&self, node: &EdgeNodeDescriptor) -> Option<NodeView<'_>> {
        self.seen(node).map(NodeView::new)
    }

    /// The replicas of all nodes that have sent a message, in the order of their names. Sorts them: meant for a look, not for every message.
    pub fn nodes(&self) -> impl Iterator<Item = (&EdgeNodeDescriptor, NodeView<'_>)> {
        let mut seen: Vec<_> = self.nodes.iter().filter(|(_, known)| known.is_seen).collect();
        seen.sort_unstable_by_key(|(name, _)| *name);
        seen.into_iter().map(|(name, known)| (name, NodeView::new(known)))
    }

    fn seen(&self, node: &EdgeNodeDescriptor) -> Option<&Node> {
        self.nodes.find(node).and_then(|at| self.nodes.get(at)).filter(|known| known.is_seen)
    }
}
