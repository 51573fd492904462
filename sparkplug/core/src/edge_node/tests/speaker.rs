//! Two processes with one Edge Node id: whatever the order, exactly one of them continues, and every host is left with its births.

use proptest::prelude::*;

use super::*;

const BIRTH: &str = "spBv1.0/G/NBIRTH/E";
const DEATH: &str = "spBv1.0/G/NDEATH/E";

fn speaker(instance: &str, takes_over: bool) -> EdgeNodeConfig {
    let speaker = Speaker { instance: instance.into(), host: "plant-1".into(), takes_over };
    EdgeNodeConfig { speaker: Some(speaker), ..config() }
}

/// A server with the processes of one id: it passes births and deaths on to all of them, the sender included.
struct Server {
    processes: Vec<(Bench, bool)>,
    /// Whose births every host holds at last: the index of the process, None after a death with its bdSeq.
    alive: Option<(usize, i64)>,
    displaced: Vec<String>,
    contested: usize,
}

impl Server {
    fn new() -> Self {
        Self { processes: Vec::new(), alive: None, displaced: Vec::new(), contested: 0 }
    }

    fn start(&mut self, config: EdgeNodeConfig) -> usize {
        let mut bench = Bench::new(config, node_metrics());
        if let Some((first, _)) = self.processes.first() {
            bench.now = first.now;
            bench.machine = EdgeNode::new(bench.machine.config.clone(), node_metrics(), bench.now).expect("valid");
        }
        self.processes.push((bench, true));
        self.connect(self.processes.len() - 1);
        self.processes.len() - 1
    }

    fn connect(&mut self, index: usize) {
        self.processes[index].0.go_online();
        self.processes[index].1 = true;
        self.carry();
    }

    /// Loses the session of a process; the server publishes its will.
    fn cut(&mut self, index: usize) {
        let bd_seq = self.processes[index].0.machine.bd_seq.get();
        self.processes[index].1 = false;
        self.processes[index].0.lose(true);
        self.died(bd_seq);
        self.carry();
    }

    fn died(&mut self, bd_seq: i64) {
        if self.alive.is_some_and(|(_, alive)| alive == bd_seq) {
            self.alive = None;
        }
        let payload = Payload { metrics: vec![Metric::new("bdSeq", bd_seq)], ..Payload::default() };
        let bytes = encode(&payload, &EncodeOptions::new(Form::Birth));
        for (bench, is_on) in &mut self.processes {
            if *is_on {
                bench.receive(DEATH, bytes.clone());
            }
        }
    }

    fn pass(&mut self, by: Duration) {
        let step = Duration::from_millis(100);
        for _ in 0..by.as_millis() / step.as_millis() {
            for (bench, _) in &mut self.processes {
                bench.pass(step);
            }
            self.carry();
        }
    }

    /// Carries messages until there are none.
    fn carry(&mut self) {
        loop {
            let mut sent = Vec::new();
            for (index, (bench, is_on)) in self.processes.iter_mut().enumerate() {
                for output in bench.outputs() {
                    match output {
                        NodeOutput::Transport(TransportAction::Publish(publish)) if *is_on => {
                            sent.push((index, publish))
                        }
                        NodeOutput::Transport(TransportAction::Disconnect) => {
                            *is_on = false;
                            bench.on(TransportEvent::Disconnected { reason: "left".to_owned(), reached: true });
                        }
                        NodeOutput::Event(NodeEvent::Displaced(other)) => self.displaced.push(other.to_string()),
                        NodeOutput::Event(NodeEvent::Contested(_)) => self.contested += 1,
                        _ => {}
                    }
                }
            }
            if sent.is_empty() {
                return;
            }
            for (index, publish) in sent {
                let payload = read(&publish);
                let bd_seq = payload.metrics.iter().find(|m| m.name.as_deref() == Some("bdSeq"));
                let bd_seq = bd_seq.and_then(|m| m.value.clone());
                if publish.topic == DEATH {
                    let Some(Value::Int64(bd_seq)) = bd_seq else { panic!("a death has a bdSeq") };
                    self.died(bd_seq);
                } else if publish.topic == BIRTH {
                    let Some(Value::Int64(bd_seq)) = bd_seq else { panic!("a birth has a bdSeq") };
                    self.alive = Some((index, bd_seq));
                    for (bench, is_on) in &mut self.processes {
                        if *is_on {
                            bench.receive(BIRTH, publish.payload.clone());
                        }
                    }
                }
            }
        }
    }

    fn born(&self) -> Vec<usize> {
        (0..self.processes.len()).filter(|&index| self.processes[index].0.machine.is_born()).collect()
    }
}

#[test]
fn a_birth_names_the_process_and_the_own_one_disturbs_no_process() {
    let mut bench = Bench::new(speaker("a", false), vec![Metric::new("Temperature", 20.0f64)]);
    bench.go_online();
    let outputs = bench.outputs();
    let lines: Vec<_> = outputs.iter().map(line).collect();
    assert_eq!(
        lines[1..],
        [
            "subscribe spBv1.0/G/NCMD/E 1, spBv1.0/G/DCMD/E/+ 1, spBv1.0/G/NBIRTH/E 1, spBv1.0/G/NDEATH/E 1",
            "NBIRTH E 0 bdSeq=Int64(0) Node Control/Rebirth=Boolean(false) Speaker/Instance=String(\"a\") \
             Speaker/Host=String(\"plant-1\") Speaker/Since=DateTime(1700000000000) Speaker/Established=Boolean(false) \
             Speaker/Takes_Over=Boolean(false) Temperature=Double(20.0)",
            "born 0 false",
        ]
    );
    let Some(NodeOutput::Transport(TransportAction::Publish(birth))) = outputs.get(2) else { panic!("no birth") };
    bench.receive(BIRTH, birth.payload.clone());
    bench.pass(Duration::from_secs(20));
    bench.expect(&[]);
}

#[test]
fn a_node_whose_births_are_not_delivered_says_so_once_and_repeats_them_until_they_are() {
    let mut bench = Bench::new(speaker("a", false), node_metrics());
    bench.go_online();
    bench.outputs();
    bench.pass(ECHO_TIME - Duration::from_secs(1));
    bench.expect(&[]);
    bench.pass(Duration::from_secs(2));
    let lines = bench.lines();
    let said = "not received: the MQTT server does not deliver spBv1.0/G/NBIRTH/E, which this node has published; its access rules must let the node's user publish and receive that topic";
    assert_eq!(lines[0], said);
    assert!(lines[1].starts_with("NBIRTH E 0"), "{lines:?}");
    // Twice the time until the next ones, and no word again.
    bench.pass(ECHO_TIME);
    bench.expect(&[]);
    bench.pass(ECHO_TIME);
    let outputs = bench.outputs();
    let Some(NodeOutput::Transport(TransportAction::Publish(birth))) = outputs.first() else { panic!("{outputs:?}") };
    assert_eq!(birth.topic, BIRTH);
    bench.receive(BIRTH, birth.payload.clone());
    bench.expect(&["received"]);
    bench.pass(3 * ECHO_TIME);
    bench.expect(&[]);
}

#[test]
fn who_comes_second_ends_and_names_the_first() {
    let mut server = Server::new();
    let first = server.start(speaker("b", false));
    server.pass(OBJECTION_TIME);
    // Neither its name nor its clock helps the one that comes second.
    server.start(speaker("a", false));
    server.pass(OBJECTION_TIME);
    assert_eq!(server.born(), [first]);
    assert_eq!(server.alive.map(|(index, _)| index), Some(first));
    let reason = "another E of G is on this MQTT server: instance b on host plant-1 since 2023-11-14T22:13:20Z";
    assert_eq!(server.displaced, [reason]);
    assert_eq!(server.contested, 1);
}

#[test]
fn who_takes_over_displaces_the_first_and_is_then_as_any_other() {
    let mut server = Server::new();
    server.start(speaker("a", false));
    server.pass(OBJECTION_TIME);
    let second = server.start(speaker("b", true));
    server.pass(OBJECTION_TIME);
    assert_eq!(server.born(), [second]);
    assert_eq!(server.alive.map(|(index, _)| index), Some(second));
    server.start(speaker("c", false));
    server.pass(OBJECTION_TIME);
    assert_eq!(server.born(), [second]);
    let fourth = server.start(speaker("d", true));
    server.pass(OBJECTION_TIME);
    assert_eq!(server.born(), [fourth]);
}

/// Other versions know the claim under a name with a space: each side takes over from the other.
#[test]
fn a_claim_to_take_over_is_read_and_written_under_both_names() {
    let mut bench = Bench::new(speaker("a", true), node_metrics());
    bench.go_online();
    let lines = bench.lines();
    let birth = lines.iter().find(|line| line.starts_with("NBIRTH")).unwrap();
    let both = "Speaker/Takes_Over=Boolean(true) Speaker/Takes Over=Boolean(true)";
    assert!(birth.contains(both), "{birth}");
    bench.pass(OBJECTION_TIME);
    for name in ["Speaker/Takes_Over", "Speaker/Takes Over"] {
        let mut bench = Bench::new(speaker("b", false), node_metrics());
        bench.go_online();
        bench.pass(2 * OBJECTION_TIME);
        bench.outputs();
        let claims = [Metric::new("Speaker/Instance", "z"), Metric::new(name, true)];
        let metrics = [Metric::new("bdSeq", 0_i64)].into_iter().chain(claims).collect();
        bench.receive(BIRTH, encode(&Payload { metrics, ..Payload::default() }, &EncodeOptions::new(Form::Birth)));
        assert_eq!(bench.lines()[0], "displaced: another E of G is on this MQTT server: instance z", "{name}");
    }
}

#[test]
fn who_was_away_finds_another_one_and_ends() {
    let mut server = Server::new();
    let first = server.start(speaker("a", false));
    server.pass(OBJECTION_TIME);
    server.cut(first);
    let second = server.start(speaker("b", false));
    server.pass(OBJECTION_TIME);
    server.connect(first);
    server.pass(OBJECTION_TIME);
    assert_eq!(server.born(), [second]);
    assert_eq!(server.alive.map(|(index, _)| index), Some(second));
}

#[test]
fn a_death_that_hosts_take_for_the_own_one_is_answered_by_births_and_no_other() {
    let mut bench = Bench::new(speaker("a", false), node_metrics());
    bench.go_online();
    bench.outputs();
    let death = |bd_seq: i64| {
        let payload = Payload { metrics: vec![Metric::new("bdSeq", bd_seq)], ..Payload::default() };
        encode(&payload, &EncodeOptions::new(Form::Birth))
    };
    bench.receive(DEATH, death(7));
    bench.pass(Duration::from_secs(5));
    bench.expect(&[]);
    bench.receive(DEATH, death(0));
    bench.pass(Duration::from_secs(5));
    let lines = bench.lines();
    assert!(lines[0].starts_with("NBIRTH E 0 bdSeq=Int64(0)"), "{lines:?}");
    assert_eq!(lines[1..], ["born 0 true"]);
}

#[test]
fn births_without_a_process_are_answered_and_end_no_process() {
    let mut bench = Bench::new(speaker("a", false), node_metrics());
    bench.go_online();
    bench.outputs();
    let payload = Payload { metrics: vec![Metric::new("bdSeq", 0_i64)], ..Payload::default() };
    bench.receive(BIRTH, encode(&payload, &EncodeOptions::new(Form::Birth)));
    bench.pass(Duration::from_secs(5));
    let lines = bench.lines();
    assert_eq!(lines[0], "contested: another E of G is on this MQTT server");
    assert!(lines[1].starts_with("NBIRTH E 0"), "{lines:?}");
    bench.receive(BIRTH, &b"\x0a\xff"[..]);
    let lines = bench.lines();
    assert!(lines[0].starts_with("rejected spBv1.0/G/NBIRTH/E: "), "{lines:?}");
}

#[test]
fn who_was_established_once_takes_nothing_over_after_it_lost_its_session() {
    let mut server = Server::new();
    let first = server.start(speaker("a", true));
    // Established without another birth, which would say so.
    server.pass(OBJECTION_TIME);
    server.cut(first);
    let second = server.start(speaker("b", false));
    server.pass(OBJECTION_TIME);
    server.connect(first);
    server.pass(OBJECTION_TIME);
    assert_eq!(server.born(), [second]);
}

#[test]
fn what_is_retained_displaces_no_process_and_is_not_answered() {
    let mut bench = Bench::new(speaker("a", false), node_metrics());
    bench.go_online();
    bench.outputs();
    let claims = [Metric::new("Speaker/Instance", "b"), Metric::new("Speaker/Takes_Over", true)];
    let metrics = [Metric::new("bdSeq", 0_i64)].into_iter().chain(claims).collect();
    let payload = encode(&Payload { metrics, ..Payload::default() }, &EncodeOptions::new(Form::Birth));
    for topic in [BIRTH, DEATH] {
        bench.on(TransportEvent::Message {
            topic: topic.to_owned(),
            payload: payload.clone(),
            qos: QoS::AtMostOnce,
            retain: true,
        });
    }
    bench.pass(Duration::from_secs(5));
    let lines = bench.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.starts_with("rejected ") && line.contains("it is retained")), "{lines:?}");
}

#[test]
fn an_application_cannot_speak_of_the_process() {
    let mut bench = Bench::born(config());
    let metrics = vec![Metric::new("Speaker/Instance", "x")];
    let refused = bench.machine.update(NodeUpdate::Set { device: None, metrics }, bench.now);
    assert_eq!(refused.unwrap_err().to_string(), "metric name \"Speaker/Instance\": the edge node itself owns it");
}

#[derive(Debug, Clone)]
enum Step {
    Start { takes_over: bool },
    Cut(prop::sample::Index),
    Connect(prop::sample::Index),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => prop::bool::weighted(0.2).prop_map(|takes_over| Step::Start { takes_over }),
        2 => any::<prop::sample::Index>().prop_map(Step::Cut),
        2 => any::<prop::sample::Index>().prop_map(Step::Connect),
        3 => (100u64..5000).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..12)
}

proptest! {
    /// However processes come, are cut off and come back: when no more happens, at most one is born, and it is the one that hosts see.
    #[test]
    fn at_most_one_process_speaks_at_last(steps in steps()) {
        let mut server = Server::new();
        for step in steps {
            match step {
                Step::Start { takes_over } if server.processes.len() < 4 => {
                    let instance = format!("{}", server.processes.len());
                    server.start(speaker(&instance, takes_over));
                }
                Step::Cut(index) if !server.processes.is_empty() => {
                    let index = index.index(server.processes.len());
                    if server.processes[index].0.machine.is_born() {
                        server.cut(index);
                    }
                }
                Step::Connect(index) if !server.processes.is_empty() => {
                    let index = index.index(server.processes.len());
                    if server.processes[index].0.machine.phase == Phase::Connecting {
                        server.connect(index);
                    }
                }
                Step::Pass(ms) => server.pass(Duration::from_millis(ms)),
                _ => {}
            }
        }
        server.pass(Duration::from_secs(10));
        for index in 0..server.processes.len() {
            if server.processes[index].0.machine.phase == Phase::Connecting {
                server.connect(index);
                server.pass(Duration::from_secs(10));
            }
        }
        let born = server.born();
        prop_assert!(born.len() <= 1, "born: {born:?}");
        prop_assert_eq!(server.alive.map(|(index, _)| index), born.first().copied());
        // One that is displaced gives way to one that continues.
        prop_assert!(server.processes.is_empty() || born.len() == 1);
    }
}

fn waiting(instance: &str, takes_over: bool) -> EdgeNodeConfig {
    EdgeNodeConfig { commands_wait: true, ..speaker(instance, takes_over) }
}

fn commands(outputs: &[NodeOutput]) -> Vec<String> {
    outputs.iter().filter(|o| matches!(o, NodeOutput::Event(NodeEvent::Command { .. }))).map(line).collect()
}

fn ask(bench: &mut Bench, value: f64) {
    bench.command("spBv1.0/G/NCMD/E", vec![Metric::new("Temperature", value)]);
}

#[test]
fn commands_wait_until_no_process_can_object_and_come_in_order() {
    let mut bench = Bench::new(waiting("a", false), vec![Metric::new("Temperature", 20.0f64)]);
    bench.on(TransportEvent::Connected);
    ask(&mut bench, 1.0);
    bench.on(TransportEvent::Subscribed);
    bench.pass(OBJECTION_TIME - Duration::from_millis(1));
    ask(&mut bench, 2.0);
    assert_eq!(commands(&bench.outputs()), [""; 0]);
    bench.pass(Duration::from_millis(1));
    let released = commands(&bench.outputs());
    assert!(released.len() == 2 && released[0].contains("1.0") && released[1].contains("2.0"), "{released:?}");
    ask(&mut bench, 3.0);
    assert_eq!(commands(&bench.outputs()).len(), 1);
    // Another session may have found another process: what came in the last one is not carried out in it.
    bench.lose(true);
    bench.pass(Duration::from_secs(30));
    bench.go_online();
    ask(&mut bench, 4.0);
    bench.lose(true);
    bench.pass(Duration::from_secs(30));
    bench.go_online();
    bench.pass(OBJECTION_TIME * 2);
    assert_eq!(commands(&bench.outputs()), [""; 0]);
}

#[test]
fn who_takes_over_answers_at_once_and_who_gives_way_never() {
    let mut bench = Bench::new(waiting("a", true), vec![Metric::new("Temperature", 20.0f64)]);
    bench.go_online();
    ask(&mut bench, 1.0);
    assert_eq!(commands(&bench.outputs()).len(), 1);
    let mut first = Bench::born(waiting("a", false));
    first.pass(OBJECTION_TIME);
    first.update(NodeUpdate::Rebirth);
    first.pass(OBJECTION_TIME);
    let birth = first.outputs().into_iter().find_map(|output| match output {
        NodeOutput::Transport(TransportAction::Publish(publish)) if publish.topic == BIRTH => Some(publish.payload),
        _ => None,
    });
    let mut second = Bench::new(waiting("b", false), vec![Metric::new("Temperature", 20.0f64)]);
    second.go_online();
    ask(&mut second, 1.0);
    second.receive(BIRTH, birth.expect("it is born again"));
    second.pass(OBJECTION_TIME * 2);
    let outputs = second.outputs();
    assert!(outputs.iter().any(|o| matches!(o, NodeOutput::Event(NodeEvent::Displaced(_)))));
    assert_eq!(commands(&outputs), [""; 0]);
}

#[test]
fn what_waits_has_a_bound_and_beyond_it_is_refused_visibly() {
    let mut bench = Bench::new(waiting("a", false), vec![Metric::new("Text", "")]);
    bench.go_online();
    let text = "x".repeat(200 * 1024);
    for _ in 0..100 {
        bench.command("spBv1.0/G/NCMD/E", vec![Metric::new("Text", text.as_str())]);
    }
    let refused = bench.outputs().iter().filter(|o| matches!(o, NodeOutput::Event(NodeEvent::Rejected { .. }))).count();
    bench.pass(OBJECTION_TIME);
    let released = commands(&bench.outputs()).len();
    assert!(refused > 0 && released > 50 && refused + released == 100, "{refused} {released}");
}

#[test]
fn births_say_for_an_hour_that_any_other_process_was_born() {
    let mut bench = Bench::new(speaker("a", false), node_metrics());
    bench.go_online();
    bench.outputs();
    let published = |bench: &mut Bench| -> Vec<Option<Metric>> {
        let publishes = bench.outputs().into_iter().filter_map(|output| match output {
            NodeOutput::Transport(TransportAction::Publish(publish)) if publish.topic == BIRTH => Some(publish),
            _ => None,
        });
        publishes
            .map(|publish| {
                let metrics = read(&publish).metrics;
                let contested = metrics.into_iter().find(|m| m.name.as_deref() == Some(CONTESTED))?;
                let Some(Value::String(text)) = contested.value else { panic!("a text") };
                Some(Metric::new(CONTESTED, &*text).at(contested.timestamp.unwrap()))
            })
            .collect()
    };
    // A forged birth that names no process, and one with a name that is much too long.
    let forged = |host: &str| {
        let metrics =
            vec![Metric::new("bdSeq", 0_i64), Metric::new("Speaker/Instance", "z"), Metric::new("Speaker/Host", host)];
        let metrics = if host.is_empty() { vec![Metric::new("bdSeq", 0_i64)] } else { metrics };
        encode(&Payload { metrics, ..Payload::default() }, &EncodeOptions::new(Form::Birth))
    };
    bench.pass(Duration::from_secs(10));
    bench.outputs();
    let at = bench.now.wall;
    bench.receive(BIRTH, forged(""));
    bench.pass(Duration::from_secs(30));
    let text = "another E of G is on this MQTT server";
    assert_eq!(published(&mut bench).pop().unwrap(), Some(Metric::new(CONTESTED, text).at(at)));
    bench.receive(BIRTH, forged(&"ä".repeat(5_000)));
    bench.pass(Duration::from_secs(30));
    let long = published(&mut bench).pop().unwrap().unwrap();
    assert_eq!((long.timestamp, long.as_str().unwrap().len()), (Some(at), 400));
    bench.pass(CONTESTED_TIME);
    assert_eq!(published(&mut bench).pop().unwrap(), None, "the last births do not say it");
}
