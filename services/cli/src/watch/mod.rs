//! `sparkfleet watch`: prints every Sparkplug message as it passes, decoded. A pure listener: no will, no STATE, no other client notices it (unless it is asked to ask for rebirths).
//!
//! ```text
//! listener, or recording -> births (names, places in the session) -> filters -> format, or tree -> standard output
//!                  \-> recording
//! ```

pub mod filter;
mod format;
pub mod recording;
mod tree;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use service_runtime::exit;
use service_runtime::shutdown::Shutdown;
use sparkplug::payload::{EncodeOptions, Form, Limits, Payload, decode, encode};
use sparkplug::session::QoS;
use sparkplug::state::HostState;
use sparkplug::{DeviceId, EdgeNodeDescriptor, MessageKind, Metric, Topic};
use sparkplug_mqtt::{Clock, ListenerEvent, ListenerHandle, spawn_listener};

use crate::client::unreachable;
use crate::options::Connection;
use crate::output::{remark, say};
pub use filter::FilterArguments;
use fleet_view::explorer::births::{self, Births};
use format::{Body, Shown, ShownMetric};
use recording::{Recorded, Recorder, Recording};
use tree::Tree;

/// Nodes asked for rebirth at most; each is asked once.
const REBIRTHS_MAX: usize = 1_000;

/// How often the tree is drawn again on a terminal.
const DRAW_EVERY: Duration = Duration::from_secs(1);

/// `sparkfleet watch`.
#[derive(Debug, Clone, Args)]
pub struct WatchArguments {
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub filter: FilterArguments,
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = WatchForm::Text)]
    pub output: WatchForm,
    /// Show long values whole
    #[arg(long)]
    pub full: bool,
    /// End after this many messages
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End after this time, for example 90s or 8h
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub lasting: Option<Duration>,
    /// Ask nodes whose birth was not seen for a rebirth, once each: named ones (--group with --node) at once, others when a message of theirs is first received
    #[arg(long)]
    pub rebirth: bool,
    /// Add every message that --group and --node let pass to this file, undecoded; --read and `sparkfleet replay` take it
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Read the messages of a recording, not those of a server
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "rebirth", "lasting"])]
    pub read: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub connection: Connection,
}

/// Forms of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WatchForm {
    /// For people
    Text,
    /// For programs: one object a line
    Json,
    /// Nodes and devices with state, age, rate and gaps: each second on a terminal, else once at the end
    Tree,
}

/// Prints until the count is reached, the time is over, the reader of standard output has gone, or a signal comes.
///
/// # Errors
/// With [`exit::UNAVAILABLE`] when the broker cannot be reached at the start; with [`exit::CONFIG`] or [`exit::USAGE`] when the options cannot be used.
pub async fn run(arguments: WatchArguments) -> anyhow::Result<()> {
    let filters = arguments.filter.subscriptions().map_err(|error| exit::with_code(exit::USAGE, error))?;
    if let Some(file) = &arguments.read {
        let recording = Recording::open(file)?;
        return Watch::new(arguments, None).read(recording);
    }
    let mqtt = crate::client::mqtt_config(&arguments.connection)?;
    let filters = filters.into_iter().map(|filter| (filter, QoS::AtMostOnce)).collect();
    let recorder = arguments.record.as_deref().map(Recorder::open).transpose()?;
    let clock = Clock::new();
    let listener = spawn_listener(filters, &mqtt, clock)
        .map_err(|error| exit::with_code(exit::CONFIG, anyhow::Error::new(error)))?;
    let shutdown = Shutdown::on_signals()?;
    let lasting = arguments.lasting;
    let mut live = Live { watch: Watch::new(arguments, recorder), clock, listener, asked: BTreeSet::new() };
    let ended = tokio::select! {
        ended = live.run() => ended,
        () = shutdown.wait() => Ok(()),
        () = async { tokio::time::sleep(lasting.unwrap_or_default()).await }, if lasting.is_some() => Ok(()),
    };
    live.listener.stop().await;
    ended?;
    live.watch.end(clock.now().wall)
}

/// What is watched on a server.
struct Live {
    watch: Watch,
    clock: Clock,
    listener: ListenerHandle,
    asked: BTreeSet<EdgeNodeDescriptor>,
}

impl Live {
    async fn run(&mut self) -> anyhow::Result<()> {
        let mut was_online = false;
        let mut draw = tokio::time::interval(DRAW_EVERY);
        let draws = self.watch.arguments.output == WatchForm::Tree && io::stdout().is_terminal();
        loop {
            let event = tokio::select! {
                event = self.listener.recv() => event,
                _ = draw.tick(), if draws => {
                    self.watch.draw(self.clock.now().wall)?;
                    continue;
                }
            };
            match event {
                Some(ListenerEvent::Online) => {
                    if was_online {
                        remark("online again; messages of the meantime are missing");
                    }
                    was_online = true;
                    self.on_online().await?;
                }
                Some(ListenerEvent::Offline { reason }) if !was_online => {
                    return Err(unreachable(&self.watch.arguments.connection.broker, &reason));
                }
                Some(ListenerEvent::Offline { reason }) => remark(&format!("offline: {reason}; trying again")),
                Some(ListenerEvent::Lost { topic }) => {
                    remark(&format!("not keeping up: messages are missing, for example on {topic}"));
                }
                Some(ListenerEvent::Message { topic, payload, retain }) => {
                    let time = self.clock.now().wall;
                    let outcome = self.watch.on_message(Recorded { time, topic, retain, payload })?;
                    if let Some(node) = outcome.unborn {
                        self.ask_for_rebirth(&node).await?;
                    }
                    if outcome.is_last {
                        return Ok(());
                    }
                }
                Some(ListenerEvent::Stopped) | None => return Ok(()),
            }
        }
    }

    async fn on_online(&mut self) -> anyhow::Result<()> {
        // Its session is another one now, and births of the meantime were missed.
        self.watch.births = Births::default();
        self.asked.clear();
        for node in self.watch.arguments.filter.named_nodes() {
            self.ask_for_rebirth(&node).await?;
        }
        Ok(())
    }

    /// Asks if it is allowed to, and has not before.
    async fn ask_for_rebirth(&mut self, node: &EdgeNodeDescriptor) -> anyhow::Result<()> {
        let may = self.watch.arguments.rebirth && self.asked.len() < REBIRTHS_MAX;
        if !may || !self.asked.insert(node.clone()) {
            return Ok(());
        }
        let (topic, payload) = rebirth_command(node, self.clock.now().wall);
        Ok(self.listener.publish(topic, payload).await?)
    }
}

/// Topic and payload of the command that asks a node for its births (tck-id-operational-behavior-data-commands-ncmd-rebirth-verb).
#[must_use]
pub fn rebirth_command(node: &EdgeNodeDescriptor, now_ms: u64) -> (String, Bytes) {
    let payload = Payload {
        timestamp: Some(now_ms),
        metrics: vec![Metric::new("Node Control/Rebirth", true)],
        ..Payload::default()
    };
    let topic = Topic::of(node.clone(), MessageKind::NCmd, None);
    (topic.to_string(), encode(&payload, &EncodeOptions::new(Form::Command)))
}

/// What is done with a message, wherever it comes from.
struct Watch {
    arguments: WatchArguments,
    births: Births,
    tree: Tree,
    recorder: Option<Recorder>,
    printed: u64,
    hinted: bool,
    drawn: bool,
}

/// What follows from a message.
#[derive(Debug, Default)]
struct MessageOutcome {
    /// No more are wanted.
    is_last: bool,
    /// A node that is wanted and whose birth was not seen.
    unborn: Option<EdgeNodeDescriptor>,
}

impl Watch {
    fn new(arguments: WatchArguments, recorder: Option<Recorder>) -> Self {
        let (births, tree) = (Births::default(), Tree::default());
        Self { arguments, births, tree, recorder, printed: 0, hinted: false, drawn: false }
    }

    /// Reads a recording to its end.
    fn read(mut self, mut recording: Recording<impl io::BufRead>) -> anyhow::Result<()> {
        let mut last_ms = 0;
        while let Some(message) = recording.next_message() {
            match message {
                Ok(message) => {
                    last_ms = message.time;
                    if self.on_message(message)?.is_last {
                        break;
                    }
                }
                Err(error) => remark(&error.to_string()),
            }
        }
        self.end(last_ms)
    }

    fn on_message(&mut self, message: Recorded) -> anyhow::Result<MessageOutcome> {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(&message)?;
        }
        let Recorded { time, topic, retain: retained, payload } = message;
        let of = match Topic::parse(&topic) {
            Ok(of) => of,
            Err(error) => {
                let body = Body::Undecodable { reason: error.to_string(), payload };
                let (kind, ids, notes) = ("", Vec::new(), Vec::new());
                let is_last = self.print(&Shown { time, topic, kind, ids, retained, notes, body })?;
                return Ok(MessageOutcome { is_last, unborn: None });
            }
        };
        let mut unborn = None;
        // Also what is not printed is learned from: it explains what is.
        let (kind, ids, (body, notes)) = match &of {
            Topic::State { host } => {
                let body = state(payload);
                if let Body::State(state) = &body {
                    self.tree.take_state(host, state.online, state.timestamp);
                }
                (MessageKind::State, vec![("host", host.to_string())], (body, Vec::new()))
            }
            Topic::Node { node, kind } => {
                (*kind, ids(node, None), self.payload(node, *kind, None, payload, time, &mut unborn))
            }
            Topic::Device { node, kind, device } => {
                let payload = self.payload(node, *kind, Some(device), payload, time, &mut unborn);
                (*kind, ids(node, Some(device)), payload)
            }
        };
        if !self.arguments.filter.takes(&of, kind) {
            return Ok(MessageOutcome { is_last: false, unborn });
        }
        let message = Shown { time, topic, kind: kind.as_str(), ids, retained, notes, body };
        let nothing_left = matches!(&message.body, Body::Payload { metrics, .. } if metrics.is_empty());
        let is_last = if nothing_left && self.arguments.filter.wants_metrics() { false } else { self.print(&message)? };
        Ok(MessageOutcome { is_last, unborn })
    }

    /// Reads a payload, learns from it, and leaves the metrics that are wanted.
    fn payload(
        &mut self,
        node: &EdgeNodeDescriptor,
        kind: MessageKind,
        device: Option<&DeviceId>,
        payload_bytes: Bytes,
        now_ms: u64,
        unborn: &mut Option<EdgeNodeDescriptor>,
    ) -> (Body, Vec<String>) {
        let payload = match decode(&payload_bytes, &Limits { bytes_max: usize::MAX, ..Limits::default() }) {
            Ok(payload) => payload,
            Err(error) => return (format::undecodable(&error, payload_bytes), Vec::new()),
        };
        let notes = self.births.learn(node, kind, device, &payload);
        let filter = &self.arguments.filter;
        if filter.takes_place(node, device) {
            self.tree.take(node, kind, device, &notes, payload.metrics.len(), now_ms);
        }
        let is_report = !matches!(kind, MessageKind::NCmd | MessageKind::DCmd | MessageKind::NDeath);
        if is_report && !self.births.is_born(node) && filter.takes_node(node) {
            *unborn = Some(node.clone());
        }
        let bd_seq = births::bd_seq(&payload);
        let metrics = payload.metrics.into_iter().filter_map(|raw| {
            let (name, datatype) = self.births.name_and_type(node, device, &raw);
            let metric = ShownMetric::new(raw, name, datatype);
            filter.takes_metric(&metric.label()).then_some(metric)
        });
        let body = Body::Payload {
            seq: payload.seq,
            bd_seq,
            timestamp: payload.timestamp,
            uuid: payload.uuid,
            body_bytes: payload.body.map(|body| body.len()),
            metrics: metrics.collect(),
        };
        (body, notes.iter().map(ToString::to_string).collect())
    }

    /// True when it was the last message wanted.
    fn print(&mut self, message: &Shown) -> anyhow::Result<bool> {
        let text = match self.arguments.output {
            WatchForm::Text => format::text(message, self.arguments.full),
            WatchForm::Json => format::json(message),
            WatchForm::Tree => String::new(),
        };
        if !text.is_empty() && !say(&format!("{text}\n"))? {
            return Ok(true);
        }
        self.hint(message);
        self.printed += 1;
        Ok(self.arguments.count.is_some_and(|count| self.printed >= count))
    }

    /// Says once how the names behind aliases become known.
    fn hint(&mut self, message: &Shown) {
        let asked = self.arguments.rebirth || self.arguments.read.is_some() || self.hinted;
        if !asked && self.arguments.output != WatchForm::Tree && message.has_nameless_metrics() {
            self.hinted = true;
            remark("only a birth has the names behind aliases: --rebirth asks the nodes for theirs");
        }
    }

    fn draw(&mut self, now_ms: u64) -> anyhow::Result<()> {
        let rows = terminal_size::terminal_size().map(|(_, rows)| usize::from(rows.0));
        let text = self.tree.text(now_ms, rows.map(|rows| rows.saturating_sub(1)));
        // ECMA-48: cursor to the first place (CUP), each line erased behind its text (EL), the page below (ED).
        let clear = if self.drawn { "" } else { "\x1b[2J" };
        self.drawn = true;
        say(&format!("{clear}\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n")))?;
        Ok(())
    }

    /// The tree as it is in the end.
    fn end(&mut self, now_ms: u64) -> anyhow::Result<()> {
        if self.arguments.output == WatchForm::Tree {
            if self.drawn {
                say("\x1b[2J\x1b[H")?;
            }
            say(&self.tree.text(now_ms, None))?;
        }
        Ok(())
    }
}

fn ids(node: &EdgeNodeDescriptor, device: Option<&DeviceId>) -> Vec<(&'static str, String)> {
    let mut ids = vec![("group", node.group.to_string()), ("node", node.edge_node.to_string())];
    ids.extend(device.map(|device| ("device", device.to_string())));
    ids
}

fn state(payload: Bytes) -> Body {
    match HostState::decode(&payload) {
        Ok(state) => Body::State(state),
        Err(error) => Body::Undecodable { reason: error.to_string(), payload },
    }
}

#[cfg(test)]
mod tests;
