//! One process for each Edge Node id.
//!
//! Two processes that publish as the same Edge Node make every host swing between two states, and of two stores each acknowledges what the other never sees. The standard has no
//! means against that: a server lets both in. So a node with a [`Speaker`] names its process in each NBIRTH and subscribes to the NBIRTH and NDEATH of its own id. Who receives the
//! birth of another process compares the claims of both, which both sides see alike. The lower one says NDEATH and ends ([`NodeEvent::Displaced`]). The higher one is born again, so
//! that the other one learns of it and every host is left with the births of the one that continues.
//!
//! No clock decides between a process that has spoken for a while and one that has just come. A process is established when [`OBJECTION_TIME`] has passed since its first births of
//! a session and no process objected. A process that lost its session, for however long it was paused, begins again as one that has just come.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::{EdgeNode, NodeEvent, Phase};
use crate::metric::{Metric, Value};
use crate::name::EdgeNodeDescriptor;
use crate::payload::{self, Inflated, Limits, ValueRef};
use crate::seq::BdSeq;
use crate::session::RETAINED;
use crate::time::Now;
use crate::topic::{MessageKind, Topic};

/// Time in which a process that was born can learn that another one speaks for the node. A birth is repeated after [`super::EdgeNodeConfig::rebirth_interval_min`] at the latest.
pub const OBJECTION_TIME: Duration = Duration::from_secs(3);

/// Time in which the server delivers the own NBIRTH. Births that it does not deliver are repeated after this time, and then after twice as long, up to ten minutes.
pub const ECHO_TIME: Duration = Duration::from_secs(30);
const ECHO_TIME_MAX: Duration = Duration::from_secs(600);

/// End of the year 9999 in ms: what RFC 3339 can write.
const LAST_TIMESTAMP: u64 = 253_402_300_799_999;

/// Names of the metrics of NBIRTH.
pub(super) const PREFIX: &str = "Speaker/";
/// Bytes of commands that wait, as they were received.
const HELD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Names, types, timestamps and the values of fixed size.
const METRICS_BYTES: usize = 320 + CONTESTED_TEXT_MAX;
const INSTANCE: &str = "Speaker/Instance";
const HOST: &str = "Speaker/Host";
const SINCE: &str = "Speaker/Since";
const ESTABLISHED: &str = "Speaker/Established";
const TAKES_OVER: &str = "Speaker/Takes_Over";
/// The same under the only name that other versions of this library know. It is read, and written while it is true, so that a process of such a version gives way to one that takes over.
const TAKES_OVER_OLD: &str = "Speaker/Takes Over";
/// Metric of NBIRTH, String: another process was born under this id, and gave way or was asked to; its timestamp is the moment. There is none when no one was for [`CONTESTED_TIME`].
pub const CONTESTED: &str = "Speaker/Contested";

/// So long births say that another process was born under the id.
pub const CONTESTED_TIME: Duration = Duration::from_secs(3600);
/// Bytes of that text at most: who forges a birth chooses the names in it.
const CONTESTED_TEXT_MAX: usize = 400;

/// Who a process says that it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Speaker {
    /// Different in each process, and which no other process can have: a random UUID.
    pub instance: Arc<str>,
    /// Name of the machine, for people.
    pub host: Arc<str>,
    /// Displace a process that is established, once: until this one is established itself.
    pub takes_over: bool,
}

/// Another process that speaks for this Edge Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherSpeaker {
    /// The node.
    pub node: EdgeNodeDescriptor,
    /// Its process; empty if it names none.
    pub instance: Arc<str>,
    /// Its machine; empty if it names none.
    pub host: Arc<str>,
    /// When it was started, by its own clock: ms since 1970 (UTC).
    pub since: Option<u64>,
}

impl fmt::Display for OtherSpeaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "another {} of {} is on this MQTT server", self.node.edge_node, self.node.group)?;
        if !self.instance.is_empty() {
            write!(f, ": instance {}", self.instance)?;
        }
        if !self.host.is_empty() {
            write!(f, " on host {}", self.host)?;
        }
        match self.since.filter(|since| *since <= LAST_TIMESTAMP) {
            Some(since) => {
                write!(f, " since {}", humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(since)))
            }
            None => Ok(()),
        }
    }
}

impl std::error::Error for OtherSpeaker {}

/// The server has not delivered the NBIRTH that this node published. A server that refuses a message of QoS 0 does so without a word, in MQTT 5 as well: this is how a node learns of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BirthNotReceived {
    /// Topic of the NBIRTH.
    pub topic: String,
}

impl fmt::Display for BirthNotReceived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the MQTT server does not deliver {}, which this node has published; its access rules must let the node's user publish and receive that topic",
            self.topic
        )
    }
}

/// The wait for the own NBIRTH.
#[derive(Debug, Clone, Copy)]
struct Echo {
    due: Duration,
    wait: Duration,
}

/// Another process was born under the id.
#[derive(Debug)]
struct Contest {
    text: String,
    /// Since when, UTC ms.
    at: u64,
    until: Duration,
}

/// What decides between two processes; the greater one continues.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    takes_over: bool,
    established: bool,
    since: Reverse<u64>,
    instance: Reverse<Arc<str>>,
}

/// Bytes that the metrics of a process take in an NBIRTH, at most.
pub(super) fn birth_bytes(speaker: &Speaker) -> usize {
    METRICS_BYTES + speaker.instance.len() + speaker.host.len()
}

/// The own claim in the course of time.
#[derive(Debug)]
pub(super) struct OwnClaim {
    speaker: Speaker,
    since: u64,
    /// When no process can object any more to the births of this session.
    established_at: Option<Duration>,
    /// It was established once; from then on it takes nothing over.
    was_established: bool,
    /// None: the last NBIRTH of this session was received.
    echo: Option<Echo>,
    /// The application knows that births are not received.
    is_undelivered: bool,
    contest: Option<Contest>,
}

impl OwnClaim {
    pub(super) const fn new(speaker: Speaker, now: Now) -> Self {
        Self {
            speaker,
            since: now.wall,
            established_at: None,
            was_established: false,
            echo: None,
            is_undelivered: false,
            contest: None,
        }
    }

    fn contested(&mut self, other: &OtherSpeaker, now: Now) {
        let mut text = other.to_string();
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        text.truncate(ends.take_while(|end| *end <= CONTESTED_TEXT_MAX).last().unwrap_or_default());
        let at = self.contest.take().map_or(now.wall, |contest| contest.at);
        self.contest = Some(Contest { text, at, until: now.mono + CONTESTED_TIME });
    }

    /// True: births no longer say that another process was born.
    fn contest_is_over(&mut self, mono: Duration) -> bool {
        self.contest.take_if(|contest| contest.until <= mono).is_some()
    }

    pub(super) fn session_ended(&mut self, mono: Duration) {
        self.was_established |= self.is_established(mono);
        self.established_at = None;
        self.echo = None;
        self.is_undelivered = false;
    }

    /// The own NBIRTH was received. True: the application had a report that it is not.
    const fn birth_received(&mut self) -> bool {
        self.echo = None;
        std::mem::replace(&mut self.is_undelivered, false)
    }

    fn is_established(&self, mono: Duration) -> bool {
        self.established_at.is_some_and(|at| mono >= at)
    }

    /// Whether this process answers commands.
    fn answers(&self, mono: Duration) -> bool {
        self.is_established(mono) || self.claim(mono).takes_over
    }

    fn claim(&self, mono: Duration) -> Claim {
        Claim {
            takes_over: self.speaker.takes_over && !self.was_established && !self.is_established(mono),
            established: self.is_established(mono),
            since: Reverse(self.since),
            instance: Reverse(self.speaker.instance.clone()),
        }
    }

    /// What an NBIRTH says of it. The first one of a session begins the time for objections.
    pub(super) fn metrics(&mut self, now: Now) -> Vec<Metric> {
        self.established_at.get_or_insert(now.mono + OBJECTION_TIME);
        self.echo.get_or_insert(Echo { due: now.mono + ECHO_TIME, wait: ECHO_TIME });
        let claim = self.claim(now.mono);
        let metrics = [
            Metric::new(INSTANCE, &*self.speaker.instance),
            Metric::new(HOST, &*self.speaker.host),
            Metric::new(SINCE, Value::DateTime(self.since)),
            Metric::new(ESTABLISHED, claim.established),
            Metric::new(TAKES_OVER, claim.takes_over),
        ];
        let old_name = claim.takes_over.then(|| Metric::new(TAKES_OVER_OLD, true).at(now.wall));
        let contest = self.contest.iter().map(|contest| Metric::new(CONTESTED, &*contest.text).at(contest.at));
        metrics.map(|metric| metric.at(now.wall)).into_iter().chain(old_name).chain(contest).collect()
    }
}

/// Commands that came while another process could still object.
#[derive(Debug, Default)]
pub(super) struct HeldCommands {
    commands: Vec<NodeEvent>,
    bytes: usize,
}

/// What an NBIRTH of another process says.
#[derive(Debug, Default)]
struct ReadClaim {
    instance: Arc<str>,
    host: Arc<str>,
    since: Option<u64>,
    established: bool,
    takes_over: bool,
}

impl ReadClaim {
    fn read(bytes: &[u8], limits: &Limits) -> Result<Self, String> {
        let mut inflated = Inflated::default();
        let payload = payload::decode_ref(bytes, limits, &mut inflated).map_err(|error| error.to_string())?;
        let mut claim = Self::default();
        for metric in &payload.metrics {
            match (metric.name, metric.value) {
                (Some(INSTANCE), Some(ValueRef::String(text))) => claim.instance = text.into(),
                (Some(HOST), Some(ValueRef::String(text))) => claim.host = text.into(),
                (Some(SINCE), Some(ValueRef::Long(since))) => claim.since = Some(since),
                (Some(ESTABLISHED), Some(ValueRef::Boolean(is))) => claim.established = is,
                (Some(TAKES_OVER | TAKES_OVER_OLD), Some(ValueRef::Boolean(is))) => claim.takes_over |= is,
                _ => {}
            }
        }
        Ok(claim)
    }

    /// A birth that names no process is of software without claims: it gives way to any.
    fn claim(&self) -> Option<Claim> {
        (!self.instance.is_empty()).then(|| Claim {
            takes_over: self.takes_over,
            established: self.established,
            since: Reverse(self.since.unwrap_or(u64::MAX)),
            instance: Reverse(self.instance.clone()),
        })
    }
}

impl EdgeNode {
    /// Hands a command to the application, at once or when this process is established.
    pub(super) fn take_command(&mut self, command: NodeEvent, bytes: usize, now: Now) -> Result<(), String> {
        self.release_commands(now);
        let waits = self.speaker.as_ref().filter(|_| self.config.commands_wait);
        if waits.is_none_or(|own| own.answers(now.mono)) {
            self.outputs.event(command);
            return Ok(());
        }
        if self.held.bytes + bytes > HELD_BYTES_MAX {
            return Err("too many commands wait until the node is established".to_owned());
        }
        self.held.bytes += bytes;
        self.held.commands.push(command);
        Ok(())
    }

    /// When commands that wait are due.
    pub(super) fn held_until(&self) -> Option<Duration> {
        self.speaker.as_ref().filter(|_| !self.held.commands.is_empty())?.established_at
    }

    /// When the own NBIRTH has to be received, or need no longer say that another process was born.
    pub(super) fn echo_due(&self) -> Option<Duration> {
        let own = self.speaker.as_ref()?;
        let contest = own.contest.as_ref().map(|contest| contest.until);
        own.echo.map(|echo| echo.due).into_iter().chain(contest).min()
    }

    /// Says once in a session that births are not received, and repeats them: access rules change while a session lasts.
    pub(super) fn look_for_echo(&mut self, now: Now) {
        let Some(own) = self.speaker.as_mut().filter(|_| matches!(self.phase, Phase::Birthing | Phase::Born)) else {
            return;
        };
        if own.contest_is_over(now.mono) {
            self.request_rebirth();
            return;
        }
        let Some(echo) = own.echo.filter(|echo| now.mono >= echo.due) else { return };
        let wait = (echo.wait * 2).min(ECHO_TIME_MAX);
        own.echo = Some(Echo { due: now.mono + wait, wait });
        if !std::mem::replace(&mut own.is_undelivered, true) {
            let topic = Topic::of(self.config.descriptor.clone(), MessageKind::NBirth, None).to_string();
            self.outputs.event(NodeEvent::BirthNotReceived(BirthNotReceived { topic }));
        }
        self.request_rebirth();
    }

    pub(super) fn release_commands(&mut self, now: Now) {
        let speaks = matches!(self.phase, Phase::Birthing | Phase::Born);
        if speaks && self.held_until().is_some_and(|at| now.mono >= at) {
            for command in std::mem::take(&mut self.held).commands {
                self.outputs.event(command);
            }
        }
    }

    /// Their senders repeat them, to this process or to the one that continues.
    pub(super) fn drop_commands(&mut self) {
        self.held = HeldCommands::default();
    }

    /// An NBIRTH of this id, which may be the own one.
    pub(super) fn own_birth(&mut self, bytes: &[u8], retain: bool, now: Now) -> Result<(), String> {
        let limits = self.limits();
        let Some(own) = &mut self.speaker else { return Ok(()) };
        if retain {
            return Err(RETAINED.to_owned());
        }
        let other = ReadClaim::read(bytes, &limits)?;
        if other.instance == own.speaker.instance {
            if own.birth_received() {
                self.outputs.event(NodeEvent::BirthReceived);
            }
            return Ok(());
        }
        let gives_way = other.claim().is_some_and(|claim| claim > own.claim(now.mono));
        let ReadClaim { instance, host, since, .. } = other;
        let other = OtherSpeaker { node: self.config.descriptor.clone(), instance, host, since };
        if gives_way {
            self.outputs.event(NodeEvent::Displaced(other));
            self.stop(now);
        } else {
            own.contested(&other, now);
            self.outputs.event(NodeEvent::Contested(other));
            self.request_rebirth();
        }
        Ok(())
    }

    /// An NDEATH of this id: with the bdSeq of the own births, hosts take it for the own one
    /// (tck-id-payloads-ndeath-bdseq).
    pub(super) fn own_death(&mut self, bytes: &[u8], retain: bool) -> Result<(), String> {
        if retain {
            return Err(RETAINED.to_owned());
        }
        let mut inflated = Inflated::default();
        let payload = payload::decode_ref(bytes, &self.limits(), &mut inflated).map_err(|error| error.to_string())?;
        if BdSeq::of(&payload) == Ok(self.bd_seq) {
            self.request_rebirth();
        }
        Ok(())
    }
}
