//! Three things hold, whatever comes in whatever order, with crashes at any point. Nothing that is listed or not owned is deleted.
//! Versions never fall. When the faults end, the cluster becomes what the last index says.

use std::collections::BTreeMap;

use edge_sync_contract::{DesiredIndex, DesiredManifests};
use proptest::prelude::*;
use proptest::sample::Index;

use super::world::*;
use crate::event::{Effect, Event, Observation};
use crate::state::State;

/// Deployments 1 to 4; each has its own object names, but for one that two of them want.
const NAMES: [&[&str]; 6] = [&["x"], &["x", "y"], &["y"], &["y", "z"], &["shared"], &["x", "shared"]];

#[derive(Debug, Clone)]
enum Step {
    /// The sender wants these manifests for a deployment (None: not at all) and sends the index.
    Want {
        deployment: u128,
        names: Option<Index>,
    },
    /// The sender sends the index again, or one from earlier.
    SendIndex(Index),
    /// The sender sends manifests again, of now or from earlier.
    SendManifests(Index),
    /// One pending effect is executed and answered.
    Execute(Index),
    /// One pending effect is executed, and the answer is lost with the process.
    ExecuteAndCrash(Index),
    /// The next event of the watches is delivered.
    Watch,
    /// The watches list again.
    List,
    /// Someone deletes an object.
    Meddle(Index),
    /// Flux takes finalizers away.
    Finish,
    /// The API server goes or comes back.
    Away(bool),
    Pass(u64),
    /// The process is killed and started again.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let index = || any::<Index>();
    prop_oneof![
        4 => (1..5_u128, proptest::option::weighted(0.7, index())).prop_map(|(deployment, names)| Step::Want { deployment, names }),
        2 => index().prop_map(Step::SendIndex),
        4 => index().prop_map(Step::SendManifests),
        12 => index().prop_map(Step::Execute),
        1 => index().prop_map(Step::ExecuteAndCrash),
        8 => Just(Step::Watch),
        2 => Just(Step::List),
        1 => index().prop_map(Step::Meddle),
        2 => Just(Step::Finish),
        1 => any::<bool>().prop_map(Step::Away),
        3 => (1..100_u64).prop_map(Step::Pass),
        1 => Just(Step::Crash),
    ]
}

/// A sender that remembers everything that it ever sent, and a Sync whose effects are executed in any order.
#[derive(Debug)]
struct Run {
    bench: Bench,
    pending: Vec<Effect>,
    indexes: Vec<DesiredIndex>,
    manifests: Vec<(u128, DesiredManifests)>,
    wanted: BTreeMap<u128, DesiredManifests>,
    version: u64,
    meddled: usize,
    desired_version: u64,
}

impl Run {
    fn new(finalizers: bool) -> Self {
        let mut bench = Bench::new(settings(), Cluster::default());
        bench.cluster.finalizers = finalizers;
        bench.cluster.make_foreign("foreign");
        bench.start();
        Self {
            bench,
            pending: Vec::new(),
            indexes: Vec::new(),
            manifests: Vec::new(),
            wanted: BTreeMap::new(),
            version: 0,
            meddled: 0,
            desired_version: 0,
        }
    }

    fn on(&mut self, event: Event) {
        let effects = self.bench.effects(event);
        self.pending.extend(effects);
        let reported = self.bench.published.node.as_ref().map_or(0, |node| node.desired_version);
        assert!(reported >= self.desired_version, "the version fell from {} to {reported}", self.desired_version);
        self.desired_version = reported;
        let stored = self.bench.cluster.record().map_or(0, |record| record.index.version);
        assert!(stored >= reported, "version {reported} was reported, but only {stored} is stored");
        assert_eq!(
            self.bench.published.deployments(),
            self.bench.published.node.as_ref().map_or(0, |n| n.deployments_total as usize)
        );
    }

    fn execute(&mut self, effect: Effect) -> Option<Event> {
        if let Effect::Delete { key, uid, resource_version } = &effect {
            let observed = self.bench.cluster.observed(key);
            if observed.is_some_and(|object| object.uid == *uid && object.resource_version == *resource_version) {
                self.check_delete(&key.name);
            }
        }
        self.bench.cluster.execute(effect)
    }

    /// At the moment at which an object is deleted it is ours, and no index that was accepted last wants it as it is.
    fn check_delete(&self, name: &str) {
        let Some(object) = self.bench.cluster.observed(&key(name)) else { return };
        let owner = object.deployment.expect("only what belongs to a deployment is deleted");
        let record = self.bench.cluster.record().expect("nothing is deleted before an index is stored");
        if let Some(entry) = record.entry(owner) {
            assert_ne!(object.digest, Some(entry.digest), "{name} is listed as it is");
        }
    }

    fn pick<T: Clone>(from: &[T], at: &Index) -> Option<T> {
        (!from.is_empty()).then(|| from[at.index(from.len())].clone())
    }

    fn crash(&mut self) {
        self.pending.clear();
        self.bench.cluster.watch.clear();
        self.bench.state = State::new(settings(), self.bench.now);
        self.bench.published = Published::default();
        let effects = self.bench.take();
        self.pending.extend(effects);
        for event in self.bench.cluster.list() {
            // What the last process said does not bind before this one is born.
            self.desired_version = 0;
            self.on(event);
        }
    }

    // long: flat dispatch over the steps
    fn step(&mut self, step: &Step) {
        match step {
            Step::Want { deployment, names } => {
                self.version += 1;
                match names {
                    None => {
                        self.wanted.remove(deployment);
                    }
                    Some(at) => {
                        let names: Vec<_> = NAMES[at.index(NAMES.len())]
                            .iter()
                            .map(
                                |name| {
                                    if *name == "shared" { (*name).to_owned() } else { format!("{name}{deployment}") }
                                },
                            )
                            .collect();
                        let names: Vec<_> = names.iter().map(String::as_str).collect();
                        let set = manifests(self.version, self.version, &names);
                        self.manifests.push((*deployment, set.clone()));
                        self.wanted.insert(*deployment, set);
                    }
                }
                let listed: Vec<_> = self.wanted.iter().map(|(n, set)| (*n, set)).collect();
                self.indexes.push(index(self.version, &listed));
                let newest = self.indexes.len() - 1;
                self.on(index_command(&self.indexes[newest].clone()));
            }
            Step::SendIndex(at) => {
                if let Some(index) = Self::pick(&self.indexes, at) {
                    self.on(index_command(&index));
                }
            }
            Step::SendManifests(at) => {
                if let Some((n, set)) = Self::pick(&self.manifests, at) {
                    self.on(manifests_command(n, &set));
                }
            }
            Step::Execute(at) => {
                if !self.pending.is_empty() {
                    let effect = self.pending.remove(at.index(self.pending.len()));
                    if let Some(answer) = self.execute(effect) {
                        self.on(answer);
                    }
                }
            }
            Step::ExecuteAndCrash(at) => {
                if !self.pending.is_empty() {
                    let effect = self.pending.remove(at.index(self.pending.len()));
                    self.execute(effect);
                    self.crash();
                }
            }
            Step::Watch => {
                if let Some(event) = self.bench.cluster.watch.pop_front() {
                    self.on(event);
                }
            }
            Step::List => {
                self.bench.cluster.watch.clear();
                for event in self.bench.cluster.list() {
                    self.on(event);
                }
            }
            Step::Meddle(at) => {
                if let Some(name) = Self::pick(&self.bench.cluster.keys(), at) {
                    let before = self.bench.cluster.deleted.len();
                    self.bench.cluster.delete(&key(&name));
                    self.meddled += self.bench.cluster.deleted.len() - before;
                }
            }
            Step::Finish => self.bench.cluster.finish_deletions(),
            Step::Away(is_away) => self.bench.cluster.is_away = *is_away,
            Step::Pass(seconds) => {
                let end = self.bench.now.mono + SECOND * u32::try_from(*seconds).unwrap();
                while let Some(at) = self.bench.state.next_deadline().filter(|at| *at <= end) {
                    assert!(at > self.bench.now.mono, "a deadline that has passed would be a busy loop");
                    self.bench.now.mono = at;
                    self.on(Event::DeadlineReached);
                }
                self.bench.now.mono = end;
            }
            Step::Crash => self.crash(),
        }
    }

    /// The faults end; the sender repeats until the reports agree.
    fn heal(&mut self) {
        self.bench.cluster.is_away = false;
        self.bench.cluster.finalizers = false;
        self.on(Event::Nodes(Observation::Listed(vec![host("a", true)])));
        for _ in 0..40 {
            self.step(&Step::Finish);
            while !self.pending.is_empty() || !self.bench.cluster.watch.is_empty() {
                while !self.pending.is_empty() {
                    let effect = self.pending.remove(0);
                    if let Some(answer) = self.execute(effect) {
                        self.on(answer);
                    }
                }
                self.step(&Step::Watch);
            }
            if let Some(index) = self.indexes.last().cloned() {
                self.on(index_command(&index));
            }
            for (n, set) in self.wanted.clone() {
                if !self.bench.published.deployment(n).is_some_and(|device| device.is_applied(set.digest())) {
                    self.on(manifests_command(n, &set));
                }
            }
            self.step(&Step::Pass(70));
        }
    }

    fn check_converged(&self) {
        let (published, cluster) = (&self.bench.published, &self.bench.cluster);
        let wanted = index(self.version, &self.wanted.iter().map(|(n, set)| (*n, set)).collect::<Vec<_>>());
        if self.version > 0 {
            assert_eq!(cluster.record().unwrap().index, wanted);
            assert_eq!(published.node.as_ref().unwrap().desired_digest, Some(wanted.digest()));
        }
        // Of deployments that want the same object one has it; the others are refused visibly.
        let holder = |name: &str| cluster.owner(&key(name));
        let mut expected = vec!["foreign".to_owned()];
        for (n, set) in &self.wanted {
            let device = published.deployment(*n).unwrap();
            let names: Vec<_> =
                set.manifests.iter().map(|m| m["metadata"]["name"].as_str().unwrap().to_owned()).collect();
            if device.is_applied(set.digest()) {
                for name in &names {
                    assert_eq!(
                        (holder(name), cluster.digest(&key(name))),
                        (Some(uuid(*n)), Some(set.digest())),
                        "{name}"
                    );
                }
                expected.extend(names);
            } else {
                assert!(names.contains(&"shared".to_owned()), "{device:?}");
                assert_eq!(device.refused_digest, Some(set.digest()));
                assert!(device.reason.unwrap().starts_with("ConfigMap shared belongs to deployment"));
                // What it had before still runs.
                expected.extend(cluster.keys().into_iter().filter(|name| holder(name) == Some(uuid(*n))));
            }
        }
        expected.sort();
        assert_eq!(cluster.keys(), expected);
        assert_eq!(published.deployments(), self.wanted.len());
        assert_eq!(published.node.as_ref().unwrap().desired_error, None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn nothing_listed_or_foreign_is_deleted_and_the_cluster_converges(
        steps in proptest::collection::vec(step(), 0..120),
        finalizers in any::<bool>(),
    ) {
        let mut run = Run::new(finalizers);
        for step in &steps {
            run.step(step);
        }
        run.heal();
        run.check_converged();
    }
}
