//! Random lives of one node against a reference that keeps plain lists of values and writes down what a server should see. This is every message with its `seq`, its metrics and
//! their order, every event, and nothing else. It shares no code with the machine. `PROPTEST_RNG_SEED` repeats a run.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Names and values of an update; names are distinct. No value is null.
type Values = BTreeMap<u8, Option<u8>>;

#[derive(Debug, Clone)]
enum Step {
    Set {
        device: Option<u8>,
        values: Values,
    },
    DeviceBirth {
        device: u8,
        values: Values,
    },
    DeviceDeath {
        device: u8,
    },
    /// NCMD with `Node Control/Rebirth`.
    Rebirth,
    /// NCMD or DCMD with a new value for one of the metrics.
    Write {
        device: Option<u8>,
        metric: usize,
        value: u8,
    },
    /// The link breaks, and comes back after a CONNECT that fails so many times, `reached` or not.
    Loss {
        failures: u8,
        reached: bool,
    },
    /// Nothing happens for a while.
    Pause,
}

fn values() -> impl Strategy<Value = Values> {
    proptest::collection::btree_map(0..6_u8, proptest::option::weighted(0.8, 0..3_u8), 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    let entity = || proptest::option::of(0..3_u8);
    prop_oneof![
        8 => (entity(), values()).prop_map(|(device, values)| Step::Set { device, values }),
        4 => (0..3_u8, values()).prop_map(|(device, values)| Step::DeviceBirth { device, values }),
        2 => (0..3_u8).prop_map(|device| Step::DeviceDeath { device }),
        1 => Just(Step::Rebirth),
        1 => (entity(), any::<usize>(), any::<u8>())
            .prop_map(|(device, metric, value)| Step::Write { device, metric, value }),
        1 => (0..3_u8, any::<bool>()).prop_map(|(failures, reached)| Step::Loss { failures, reached }),
        1 => Just(Step::Pause),
    ]
}

fn name(metric: u8) -> String {
    format!("m{metric}")
}

fn text(value: Option<u8>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn shown(value: Option<u8>, null: &str) -> String {
    text(value).map_or_else(|| format!("null:{null}"), |text| format!("String({text:?})"))
}

fn metrics(values: &Values) -> Vec<Metric> {
    values.iter().map(|(metric, value)| Metric::string(name(*metric), text(*value).as_deref())).collect()
}

/// A metric that was published: name, value, alias.
type Published = (u8, Option<u8>, u64);

/// What is true, and what the server has received.
struct Reference {
    aliases: bool,
    bd_seq: i64,
    seq: u64,
    next_alias: u64,
    node: Vec<Published>,
    devices: BTreeMap<u8, Vec<Published>>,
    lines: Vec<String>,
}

impl Reference {
    fn line(&mut self, kind: &str, device: Option<u8>, metrics: &[String]) {
        let device = device.map_or_else(String::new, |device| format!("/d{device}"));
        let kind = format!("{}{kind}", if device.is_empty() { "N" } else { "D" });
        let mut line = format!("{kind} E{device} {}", self.seq);
        metrics.iter().for_each(|metric| line.push_str(&format!(" {metric}")));
        self.lines.push(line);
        self.seq = (self.seq + 1) % 256;
    }

    fn birth_of(&mut self, device: Option<u8>) {
        let published = device.map_or(&self.node, |device| &self.devices[&device]);
        let metric = |(metric, value, alias): &Published| {
            let alias = if self.aliases { format!("#{alias}") } else { String::new() };
            format!("{}{alias}={}", name(*metric), shown(*value, "Some(String)"))
        };
        let mut metrics: Vec<String> = published.iter().map(metric).collect();
        if device.is_none() {
            self.seq = 0;
            let own = [format!("bdSeq=Int64({})", self.bd_seq), "Node Control/Rebirth=Boolean(false)".to_owned()];
            metrics.splice(0..0, own);
        }
        self.line("BIRTH", device, &metrics);
    }

    fn births(&mut self, rebirth: bool) {
        self.birth_of(None);
        for device in self.devices.keys().copied().collect::<Vec<_>>() {
            self.birth_of(Some(device));
        }
        self.lines.push(format!("born {} {rebirth}", self.bd_seq));
    }

    /// What becomes of values: the metrics that were known and differ are published, those that were not need a birth.
    fn take(&mut self, device: Option<u8>, values: &Values) -> bool {
        let published = match device {
            None => &mut self.node,
            Some(device) => self.devices.get_mut(&device).expect("it exists"),
        };
        let (mut changed, mut is_larger) = (Vec::new(), false);
        for (metric, value) in values {
            match published.iter_mut().find(|(known, ..)| known == metric) {
                Some((_, known, _)) if known == value => {}
                Some((_, known, alias)) => {
                    *known = *value;
                    let name = if self.aliases { format!("#{alias}") } else { name(*metric) };
                    changed.push(format!("{name}={}", shown(*value, "None")));
                }
                None => {
                    is_larger = true;
                    published.push((*metric, *value, self.next_alias));
                    self.next_alias += 1;
                }
            }
        }
        // A device is born again with its new values; of a node the old metrics are published before.
        if !changed.is_empty() && (!is_larger || device.is_none()) {
            self.line("DATA", device, &changed);
        }
        is_larger
    }

    fn renew(&mut self, device: u8) {
        self.line("DEATH", Some(device), &[]);
        self.birth_of(Some(device));
    }

    fn device_birth(&mut self, device: u8, values: &Values) {
        let known = self.devices.get(&device);
        let names: Option<Vec<u8>> = known.map(|published| {
            let mut names: Vec<u8> = published.iter().map(|(metric, ..)| *metric).collect();
            names.sort_unstable();
            names
        });
        if names.as_ref().is_some_and(|names| names.iter().eq(values.keys())) {
            self.take(Some(device), values);
            return;
        }
        let alias_of = |metric: &u8| {
            known.and_then(|published| published.iter().find(|(known, ..)| known == metric)).map(|(_, _, alias)| *alias)
        };
        let mut next_alias = self.next_alias;
        let mut published = Vec::new();
        for (metric, value) in values {
            let alias = alias_of(metric).unwrap_or_else(|| {
                next_alias += 1;
                next_alias - 1
            });
            published.push((*metric, *value, alias));
        }
        self.next_alias = next_alias;
        let was_born = self.devices.insert(device, published).is_some();
        if was_born {
            self.renew(device);
        } else {
            self.birth_of(Some(device));
        }
    }
}

struct World {
    bench: Bench,
    reference: Reference,
}

impl World {
    fn new(aliases: bool) -> Self {
        let mut world = Self {
            bench: Bench::new(EdgeNodeConfig { aliases, ..config() }, metrics(&Values::from([(0, Some(0))]))),
            reference: Reference {
                aliases,
                bd_seq: 0,
                seq: 0,
                next_alias: 2,
                node: vec![(0, Some(0), 1)],
                devices: BTreeMap::new(),
                lines: Vec::new(),
            },
        };
        world.connect();
        world
    }

    fn connect(&mut self) {
        self.reference.lines.push(format!("connect 0 will [NDEATH E - qos1 bdSeq=Int64({})]", self.reference.bd_seq));
        self.bench.go_online();
        self.reference.births(false);
        self.compare();
    }

    /// Whatever waits for its time has had it.
    fn rest(&mut self) {
        self.bench.pass(Duration::from_secs(60));
    }

    fn compare(&mut self) {
        self.rest();
        let lines = self.bench.lines().into_iter().filter(|line| !line.starts_with("subscribe "));
        assert_eq!(lines.collect::<Vec<_>>(), std::mem::take(&mut self.reference.lines));
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Set { device: of, values } => {
                let update =
                    NodeUpdate::Set { device: of.map(|of| device(&format!("d{of}"))), metrics: metrics(values) };
                let taken = self.bench.machine.update(update, self.bench.now);
                let is_known = of.is_none_or(|of| self.reference.devices.contains_key(&of));
                assert_eq!(taken.is_ok(), is_known, "{taken:?}");
                if is_known && self.reference.take(*of, values) {
                    match of {
                        None => self.reference.births(true),
                        Some(of) => self.reference.renew(*of),
                    }
                }
            }
            Step::DeviceBirth { device, values } => {
                self.bench.birth(&format!("d{device}"), metrics(values));
                self.reference.device_birth(*device, values);
            }
            Step::DeviceDeath { device: of } => {
                let update = NodeUpdate::DeviceDeath { device: device(&format!("d{of}")) };
                let taken = self.bench.machine.update(update, self.bench.now);
                let was_known = self.reference.devices.remove(of).is_some();
                assert_eq!(taken.is_ok(), was_known, "{taken:?}");
                if was_known {
                    self.reference.line("DEATH", Some(*of), &[]);
                }
            }
            Step::Rebirth => {
                self.bench.command("spBv1.0/G/NCMD/E", vec![Metric::new("Node Control/Rebirth", true)]);
                self.reference.births(true);
            }
            Step::Write { device, metric, value } => {
                let published = match device {
                    None => Some(&self.reference.node),
                    Some(device) => self.reference.devices.get(device),
                };
                let Some(published) = published.filter(|published| !published.is_empty()) else { return };
                let name = name(published[metric % published.len()].0);
                let (topic, whose) = match device {
                    None => ("spBv1.0/G/NCMD/E".to_owned(), "-".to_owned()),
                    Some(device) => (format!("spBv1.0/G/DCMD/E/d{device}"), format!("d{device}")),
                };
                self.bench.command(&topic, vec![Metric::new(&*name, value.to_string())]);
                let line = format!("command {whose} {name}=String(\"{value}\") at Some(7)");
                self.reference.lines.push(line);
            }
            Step::Loss { failures, reached } => self.lose(*failures, *reached),
            Step::Pause => {}
        }
        self.compare();
    }

    fn lose(&mut self, failures: u8, reached: bool) {
        self.bench.lose(true);
        self.reference.lines.push("offline cut".to_owned());
        self.reference.bd_seq = (self.reference.bd_seq + 1) % 256;
        for _ in 0..failures {
            self.reference
                .lines
                .push(format!("connect 0 will [NDEATH E - qos1 bdSeq=Int64({})]", self.reference.bd_seq));
            self.compare();
            self.bench.lose(reached);
            self.reference.lines.push("offline cut".to_owned());
            // tck-id-topics-nbirth-bdseq-increment
            self.reference.bd_seq = (self.reference.bd_seq + i64::from(reached)) % 256;
        }
        self.rest();
        self.connect();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_goes_out_is_what_the_reference_writes_down(
        aliases in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new(aliases);
        for step in &steps {
            world.take(step);
        }
    }

    /// So many messages that `seq` goes round, and so many sessions that `bdSeq` does.
    #[test]
    fn numbers_go_round_as_the_reference_counts_them(sessions in 257..300_usize, messages in 257..600_usize) {
        let mut world = World::new(false);
        for _ in 0..sessions {
            world.take(&Step::Loss { failures: 0, reached: false });
        }
        for message in 0..messages {
            let value = u8::try_from(message % 2).ok();
            world.take(&Step::Set { device: None, values: Values::from([(0, value.map(|value| value + 1))]) });
        }
    }
}
