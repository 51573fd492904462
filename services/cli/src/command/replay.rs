//! `sparkfleet replay`: publishes the births, data and deaths of a recording, in their order and at their pace. No Edge Node: it has no will and obeys no command.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{anyhow, bail};
use bytes::Bytes;
use futures::FutureExt as _;
use service_runtime::exit;
use service_runtime::shutdown::Shutdown;
use sparkplug::payload::{EncodeOptions, Form, Limits, Payload, decode, encode};
use sparkplug::session::QoS;
use sparkplug::{EdgeNodeDescriptor, GroupId, MessageKind, Metric, Topic};
use sparkplug_mqtt::{Clock, ListenerEvent, ListenerHandle, spawn_listener};
use tokio::time::Instant;

use crate::arguments::replay::ReplayArguments;
use crate::client::unreachable;
use crate::output::remark;
use crate::watch::rebirth_command;
use crate::watch::recording::{Recorded, Recording};
use fleet_view::explorer::births::bd_seq;

/// After this time without a word it is said how far it has come.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Nodes for which a replay speaks, at most.
const NODES_MAX: usize = 100_000;

/// How long a living node has to answer. It repeats its birth within a second.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Publishes a recording.
///
/// # Errors
/// With [`exit::CONFIG`]: the recording cannot be read. With [`exit::REFUSED`]: a node of it lives on the broker. With [`exit::UNAVAILABLE`]: there is no broker, or the connection
/// was lost. With [`exit::INTERRUPTED`]: a signal came first.
pub async fn run(arguments: ReplayArguments) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals()?;
    play_until(arguments, &shutdown).await
}

/// The same until `shutdown`.
///
/// # Errors
/// As [`run`].
pub async fn play_until(arguments: ReplayArguments, shutdown: &Shutdown) -> anyhow::Result<()> {
    if arguments.filter.kind.contains(&MessageKind::State) {
        let error = anyhow!("--kind STATE: a STATE message speaks for a living Host Application; it is not replayed");
        return Err(exit::with_code(exit::USAGE, error));
    }
    let nodes = born_in(&arguments, Recording::open(&arguments.file)?)?;
    let mqtt = crate::client::mqtt_config(&arguments.connection)?;
    let clock = Clock::new();
    let groups: BTreeSet<String> = nodes.iter().map(|node| format!("spBv1.0/{}/NBIRTH/+", node.group)).collect();
    // A listener has to listen to something, also where no node is born: STATE is little.
    let births = if groups.is_empty() { BTreeSet::from(["spBv1.0/STATE/+".to_owned()]) } else { groups };
    let filters = births.into_iter().map(|filter| (filter, QoS::AtMostOnce)).collect();
    let listener = spawn_listener(filters, &mqtt, clock)
        .map_err(|error| exit::with_code(exit::CONFIG, anyhow::Error::new(error)))?;
    let mut replay = Replay { arguments, clock, listener, born: BTreeMap::new(), published: 0, left_out: 0 };
    let ended = tokio::select! {
        ended = replay.run(&nodes) => ended,
        () = shutdown.wait() => Err(exit::with_code(exit::INTERRUPTED, anyhow!("interrupted"))),
    };
    let deaths = replay.bury().await;
    let Replay { listener, published, left_out, .. } = replay;
    listener.stop().await;
    remark(&format!(
        "{published} messages replayed, {left_out} left out; {deaths} nodes that were still alive were declared dead"
    ));
    ended
}

struct Replay {
    arguments: ReplayArguments,
    clock: Clock,
    listener: ListenerHandle,
    /// Nodes that others take for alive because of this replay, with the `bdSeq` of their birth.
    born: BTreeMap<EdgeNodeDescriptor, Option<u64>>,
    published: u64,
    left_out: u64,
}

impl Replay {
    async fn run(&mut self, nodes: &BTreeSet<EdgeNodeDescriptor>) -> anyhow::Result<()> {
        match self.listener.recv().await {
            Some(ListenerEvent::Online) => {}
            Some(ListenerEvent::Offline { reason }) => {
                return Err(unreachable(&self.arguments.connection.broker, &reason));
            }
            _ => bail!("the session ended"),
        }
        self.refuse_living(nodes).await?;
        loop {
            let before = self.published;
            self.play(Recording::open(&self.arguments.file)?).await?;
            // A recording of which nothing is published would begin again at once, for ever.
            if !self.arguments.repeat || self.published == before {
                return Ok(());
            }
            self.bury().await;
            remark("the recording begins again");
        }
    }

    /// Publishes a recording once.
    async fn play(&mut self, mut recording: Recording<impl std::io::BufRead>) -> anyhow::Result<()> {
        let mut pace = Pace { speed: self.arguments.speed, first: None };
        let mut reported = Instant::now();
        while let Some(message) = recording.next_message() {
            let message = match message {
                Ok(message) => message,
                Err(error) => {
                    remark(&error.to_string());
                    continue;
                }
            };
            let Some((topic, kind)) = target(&self.arguments, &message) else {
                self.left_out += 1;
                continue;
            };
            self.wait(pace.due(message.time)).await?;
            self.learn(&topic, kind, &message.payload);
            self.listener.publish(topic.to_string(), message.payload).await?;
            self.published += 1;
            if reported.elapsed() >= PROGRESS_EVERY {
                reported = Instant::now();
                remark(&format!("{} messages replayed", self.published));
            }
        }
        Ok(())
    }

    /// Two speakers for one node confuse every host, and may end a service: nodes that live on the broker are not spoken for. They are asked for their births.
    async fn refuse_living(&mut self, nodes: &BTreeSet<EdgeNodeDescriptor>) -> anyhow::Result<()> {
        for node in nodes {
            let (topic, payload) = rebirth_command(node, self.clock.now().wall);
            self.listener.publish(topic, payload).await?;
        }
        let until = Instant::now() + if nodes.is_empty() { Duration::ZERO } else { ANSWER_WITHIN };
        while let Ok(event) = tokio::time::timeout_at(until, self.listener.recv()).await {
            match event {
                Some(ListenerEvent::Message { topic, .. }) => {
                    if let Ok(Topic::Node { node, kind: MessageKind::NBirth }) = Topic::parse(&topic)
                        && nodes.contains(&node)
                    {
                        let error = anyhow!(
                            "{node} lives on this broker, and a replay would speak for it: use another broker, or --group-prefix Replay-"
                        );
                        return Err(exit::with_code(exit::REFUSED, error));
                    }
                }
                Some(ListenerEvent::Offline { reason }) => {
                    return Err(unreachable(&self.arguments.connection.broker, &reason));
                }
                Some(_) => {}
                None => bail!("the session ended"),
            }
        }
        Ok(())
    }

    /// Waits until `due`, and notices if the connection is lost meanwhile.
    async fn wait(&mut self, due: Option<Instant>) -> anyhow::Result<()> {
        loop {
            let event = match due.filter(|due| *due > Instant::now()) {
                Some(due) => tokio::select! {
                    event = self.listener.recv() => event,
                    () = tokio::time::sleep_until(due) => return Ok(()),
                },
                None => match self.listener.recv().now_or_never() {
                    Some(event) => event,
                    None => return Ok(()),
                },
            };
            match event {
                Some(ListenerEvent::Offline { reason }) => {
                    let error = anyhow!("{reason}; {} messages were replayed until then", self.published);
                    return Err(exit::with_code(exit::UNAVAILABLE, error));
                }
                None | Some(ListenerEvent::Stopped) => bail!("the session ended"),
                Some(_) => {}
            }
        }
    }

    /// Remembers whom others take for alive.
    fn learn(&mut self, topic: &Topic, kind: MessageKind, payload: &Bytes) {
        let Topic::Node { node, .. } = topic else { return };
        match kind {
            MessageKind::NBirth => {
                let payload = decode(payload, &Limits { bytes_max: usize::MAX, ..Limits::default() }).ok();
                self.born.insert(node.clone(), payload.as_ref().and_then(bd_seq));
            }
            MessageKind::NDeath => {
                self.born.remove(node);
            }
            _ => {}
        }
    }

    /// No will speaks for the nodes of a replay: without these deaths hosts would show them as alive for ever. Returns how many.
    async fn bury(&mut self) -> usize {
        let born = std::mem::take(&mut self.born);
        for (node, bd_seq) in &born {
            let metrics = bd_seq.map(|bd_seq| Metric::new("bdSeq", bd_seq)).into_iter().collect();
            let payload = Payload { timestamp: Some(self.clock.now().wall), metrics, ..Payload::default() };
            let payload = encode(&payload, &EncodeOptions::new(Form::Birth));
            let topic = Topic::of(node.clone(), MessageKind::NDeath, None);
            if self.listener.publish(topic.to_string(), payload).await.is_err() {
                return 0;
            }
        }
        born.len()
    }
}

/// Where a message goes; None if it is left out: what was stored by the server when the recording began, STATE, commands that were not asked for, other topics.
fn target(arguments: &ReplayArguments, message: &Recorded) -> Option<(Topic, MessageKind)> {
    let topic = Topic::parse(&message.topic).ok().filter(|_| !message.retain)?;
    let kind = match &topic {
        Topic::Node { kind, .. } | Topic::Device { kind, .. } => *kind,
        Topic::State { .. } => return None,
    };
    let is_command = matches!(kind, MessageKind::NCmd | MessageKind::DCmd);
    if !arguments.filter.takes(&topic, kind) || (is_command && arguments.filter.kind.is_empty()) {
        return None;
    }
    let moved = |node: EdgeNodeDescriptor| -> Option<EdgeNodeDescriptor> {
        let group = format!("{}{}", arguments.group_prefix, node.group.as_str());
        Some(EdgeNodeDescriptor::new(GroupId::new(group).ok()?, node.edge_node))
    };
    let topic = match topic {
        Topic::Node { node, kind } => Topic::of(moved(node)?, kind, None),
        Topic::Device { node, kind, device } => Topic::of(moved(node)?, kind, Some(device)),
        Topic::State { .. } => return None,
    };
    Some((topic, kind))
}

/// The nodes for which births would be published.
///
/// # Errors
/// With [`exit::CONFIG`]: they are more than a replay keeps in mind.
fn born_in(
    arguments: &ReplayArguments,
    mut recording: Recording<impl std::io::BufRead>,
) -> anyhow::Result<BTreeSet<EdgeNodeDescriptor>> {
    let mut nodes = BTreeSet::new();
    while let Some(message) = recording.next_message() {
        // What cannot be read is named when it is its turn.
        let target = message.ok().and_then(|message| target(arguments, &message));
        if let Some((Topic::Node { node, kind: MessageKind::NBirth }, _)) = target {
            nodes.insert(node);
        }
        if nodes.len() > NODES_MAX {
            let file = arguments.file.display();
            let error =
                anyhow!("{file} holds births of more than {NODES_MAX} nodes; choose some with --group or --node");
            return Err(exit::with_code(exit::CONFIG, error));
        }
    }
    Ok(nodes)
}

/// When a message is due.
struct Pace {
    /// How many times as fast as it was; None: as fast as it goes.
    speed: Option<f64>,
    /// When the first message was published, and when it was recorded.
    first: Option<(Instant, u64)>,
}

impl Pace {
    /// None: at once.
    fn due(&mut self, recorded_ms: u64) -> Option<Instant> {
        let speed = self.speed?;
        let (began, first_ms) = *self.first.get_or_insert_with(|| (Instant::now(), recorded_ms));
        let since = Duration::from_millis(recorded_ms.saturating_sub(first_ms));
        // A recording whose clock jumped far ahead waits for a day at most.
        Some(began + Duration::try_from_secs_f64(since.as_secs_f64() / speed).unwrap_or(DAY).min(DAY))
    }
}

const DAY: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_pace_is_that_of_the_recording_times_the_speed() {
        let mut pace = Pace { speed: Some(2.0), first: None };
        let began = pace.due(1_000).unwrap();
        assert_eq!(pace.due(3_000).unwrap() - began, Duration::from_secs(1));
        assert_eq!(pace.due(0).unwrap(), began, "a clock that was set back");
        assert_eq!(pace.due(u64::MAX).unwrap() - began, DAY);
        assert_eq!(Pace { speed: None, first: None }.due(5), None);
    }

    fn arguments(more: &str) -> ReplayArguments {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            replay: ReplayArguments,
        }
        let words = ["replay", "night.jsonl"].into_iter().chain(more.split(' ').filter(|word| !word.is_empty()));
        <Line as clap::Parser>::parse_from(words).replay
    }

    fn recorded(topic: &str) -> Recorded {
        Recorded { time: 1, topic: topic.to_owned(), retain: false, payload: Bytes::new() }
    }

    #[test]
    fn what_speaks_for_the_living_and_commands_that_were_not_asked_for_are_left_out() {
        let of =
            |more: &str, topic: &str| target(&arguments(more), &recorded(topic)).map(|(topic, _)| topic.to_string());
        for topic in ["spBv1.0/Plant/NBIRTH/Press", "spBv1.0/Plant/DDATA/Press/Arm", "spBv1.0/Plant/NDEATH/Press"] {
            assert_eq!(of("", topic).as_deref(), Some(topic));
        }
        for topic in ["spBv1.0/STATE/host", "STATE/host", "plant/press", "spBv1.0/Plant/NCMD/Press", ""] {
            assert_eq!(of("", topic), None, "{topic}");
        }
        assert_eq!(of("--kind NCMD", "spBv1.0/Plant/NCMD/Press").as_deref(), Some("spBv1.0/Plant/NCMD/Press"));
        assert_eq!(of("--kind NCMD", "spBv1.0/Plant/NBIRTH/Press"), None);
        assert_eq!(of("--group Other", "spBv1.0/Plant/NBIRTH/Press"), None);
        let stored = Recorded { retain: true, ..recorded("spBv1.0/Plant/NBIRTH/Press") };
        assert!(target(&arguments(""), &stored).is_none(), "the server had stored it before the recording began");
    }

    #[test]
    fn a_prefix_moves_nodes_and_devices_to_groups_of_their_own() {
        let of = |prefix: &str, topic: &str| {
            let arguments = ReplayArguments { group_prefix: prefix.to_owned(), ..arguments("") };
            target(&arguments, &recorded(topic)).map(|(topic, _)| topic.to_string())
        };
        let moved = of("Replay-", "spBv1.0/Plant/DBIRTH/Press/Arm");
        assert_eq!(moved.as_deref(), Some("spBv1.0/Replay-Plant/DBIRTH/Press/Arm"));
        assert_eq!(of("a/b", "spBv1.0/Plant/NBIRTH/Press"), None, "that would be another topic");
    }
}
