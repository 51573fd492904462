//! `sparkfleet watch`: prints every Sparkplug message as it passes, decoded. A pure listener: no will, no STATE, nobody notices it (unless it is asked to ask for rebirths).
//!
//! ```text
//! listener -> births (names, places in the session) -> filters -> format -> standard output
//! ```

mod births;
mod filter;
mod format;

use std::collections::BTreeSet;
use std::io::{self, Write as _};

use anyhow::anyhow;
use bytes::Bytes;
use clap::{Args, ValueEnum};
use service_runtime::exit;
use service_runtime::shutdown::Shutdown;
use sparkplug::payload::{EncodeOptions, Form, Limits, Payload, decode, encode};
use sparkplug::session::QoS;
use sparkplug::state::HostState;
use sparkplug::{DeviceId, EdgeNodeDescriptor, MessageKind, Metric, Topic};
use sparkplug_mqtt::{Clock, ListenerEvent, ListenerHandle, spawn_listener};

use crate::cli::Connection;
use births::Births;
pub use filter::FilterArguments;
use format::{Body, Shown, ShownMetric};

/// Nodes asked for rebirth at most; each is asked once.
const REBIRTHS_MAX: usize = 1_000;

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
    /// Ask nodes whose birth was not seen for a rebirth, once each: named ones (--group with --node) at once, others when they are first heard
    #[arg(long)]
    pub rebirth: bool,
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
}

/// Prints until the count is reached, the reader of standard output has gone, or a signal comes.
///
/// # Errors
/// With [`exit::UNAVAILABLE`] when the broker cannot be reached at the start; with [`exit::CONFIG`] or [`exit::USAGE`] when the options cannot be used.
pub async fn run(arguments: WatchArguments) -> anyhow::Result<()> {
    let mqtt = crate::client::mqtt_config(&arguments.connection)?;
    let filters = arguments.filter.subscriptions().map_err(|error| exit::with_code(exit::USAGE, error))?;
    let filters = filters.into_iter().map(|filter| (filter, QoS::AtMostOnce)).collect();
    let clock = Clock::new();
    let listener = spawn_listener(filters, &mqtt, clock)
        .map_err(|error| exit::with_code(exit::CONFIG, anyhow::Error::new(error)))?;
    let shutdown = Shutdown::on_signals()?;
    let mut watch = Watch {
        arguments,
        clock,
        listener,
        births: Births::default(),
        asked: BTreeSet::new(),
        printed: 0,
        was_online: false,
    };
    let ended = tokio::select! {
        ended = watch.run() => ended,
        () = shutdown.wait() => Ok(()),
    };
    watch.listener.stop().await;
    ended
}

struct Watch {
    arguments: WatchArguments,
    clock: Clock,
    listener: ListenerHandle,
    births: Births,
    asked: BTreeSet<EdgeNodeDescriptor>,
    printed: u64,
    was_online: bool,
}

impl Watch {
    async fn run(&mut self) -> anyhow::Result<()> {
        while let Some(event) = self.listener.recv().await {
            match event {
                ListenerEvent::Online => self.on_online().await?,
                ListenerEvent::Offline { reason } if !self.was_online => {
                    return Err(exit::with_code(exit::UNAVAILABLE, anyhow!(reason)));
                }
                ListenerEvent::Offline { reason } => remark(&format!("offline: {reason}; trying again")),
                ListenerEvent::Lost { topic } => {
                    remark(&format!("not keeping up: messages are missing, for example on {topic}"));
                }
                ListenerEvent::Message { topic, payload, retain } => {
                    if self.on_message(topic, payload, retain).await? {
                        return Ok(());
                    }
                }
                ListenerEvent::Stopped => return Ok(()),
            }
        }
        Ok(())
    }

    async fn on_online(&mut self) -> anyhow::Result<()> {
        if self.was_online {
            remark("online again; messages of the meantime are missing");
        }
        self.was_online = true;
        // Its session is another one now, and births of the meantime were missed.
        self.births = Births::default();
        self.asked.clear();
        if self.arguments.rebirth {
            for node in self.arguments.filter.named_nodes() {
                self.ask_for_rebirth(&node).await?;
            }
        }
        Ok(())
    }

    /// True when it was the last message wanted.
    async fn on_message(&mut self, topic: String, payload: Bytes, retained: bool) -> anyhow::Result<bool> {
        let time = self.clock.now().wall;
        let of = match Topic::parse(&topic) {
            Ok(of) => of,
            Err(error) => {
                let body = Body::Undecodable { reason: error.to_string(), payload };
                return self.print(&Shown {
                    time,
                    topic,
                    kind: "",
                    ids: Vec::new(),
                    retained,
                    notes: Vec::new(),
                    body,
                });
            }
        };
        // Also what is not printed is learned from: it explains what is.
        let (kind, ids, (body, notes)) = match &of {
            Topic::State { host } => {
                (MessageKind::State, vec![("host", host.to_string())], (state(payload), Vec::new()))
            }
            Topic::Node { node, kind } => (*kind, ids(node, None), self.payload(node, *kind, None, payload).await?),
            Topic::Device { node, kind, device } => {
                (*kind, ids(node, Some(device)), self.payload(node, *kind, Some(device), payload).await?)
            }
        };
        if !self.arguments.filter.takes(&of, kind) {
            return Ok(false);
        }
        let message = Shown { time, topic, kind: kind.as_str(), ids, retained, notes, body };
        let nothing_left = matches!(&message.body, Body::Payload { metrics, .. } if metrics.is_empty());
        if nothing_left && self.arguments.filter.wants_metrics() { Ok(false) } else { self.print(&message) }
    }

    /// Reads a payload, learns from it, and leaves the metrics that are wanted.
    async fn payload(
        &mut self,
        node: &EdgeNodeDescriptor,
        kind: MessageKind,
        device: Option<&DeviceId>,
        payload_bytes: Bytes,
    ) -> anyhow::Result<(Body, Vec<String>)> {
        let payload = match decode(&payload_bytes, &Limits { bytes_max: usize::MAX, ..Limits::default() }) {
            Ok(payload) => payload,
            Err(error) => return Ok((format::undecodable(&error, payload_bytes), Vec::new())),
        };
        let notes = self.births.learn(node, kind, device, &payload);
        let is_report = !matches!(kind, MessageKind::NCmd | MessageKind::DCmd | MessageKind::NDeath);
        if self.arguments.rebirth && is_report && !self.births.is_born(node) && self.arguments.filter.takes_node(node) {
            self.ask_for_rebirth(node).await?;
        }
        let bd_seq = births::bd_seq(&payload);
        let metrics = payload.metrics.into_iter().filter_map(|raw| {
            let (name, datatype) = self.births.name_and_type(node, device, &raw);
            let metric = ShownMetric::new(raw, name, datatype);
            self.arguments.filter.takes_metric(&metric.label()).then_some(metric)
        });
        let body = Body::Payload {
            seq: payload.seq,
            bd_seq,
            timestamp: payload.timestamp,
            uuid: payload.uuid,
            body_bytes: payload.body.map(|body| body.len()),
            metrics: metrics.collect(),
        };
        Ok((body, notes))
    }

    async fn ask_for_rebirth(&mut self, node: &EdgeNodeDescriptor) -> anyhow::Result<()> {
        if self.asked.len() >= REBIRTHS_MAX || !self.asked.insert(node.clone()) {
            return Ok(());
        }
        let payload = Payload {
            timestamp: Some(self.clock.now().wall),
            metrics: vec![Metric::new("Node Control/Rebirth", true)],
            ..Payload::default()
        };
        let topic = Topic::of(node.clone(), MessageKind::NCmd, None);
        let payload = encode(&payload, &EncodeOptions::new(Form::Command));
        Ok(self.listener.publish(topic.to_string(), payload).await?)
    }

    fn print(&mut self, message: &Shown) -> anyhow::Result<bool> {
        let text = match self.arguments.output {
            WatchForm::Text => format::text(message, self.arguments.full),
            WatchForm::Json => format::json(message),
        };
        let mut out = io::stdout().lock();
        match writeln!(out, "{text}").and_then(|()| out.flush()) {
            // `sparkfleet watch | head` closes the pipe when it has enough; that is no failure.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(true),
            written => written?,
        }
        self.printed += 1;
        Ok(self.arguments.count.is_some_and(|count| self.printed >= count))
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

/// Standard output belongs to the messages.
fn remark(text: &str) {
    let _ = writeln!(io::stderr(), "sparkfleet: {}", format::visible(text));
}
