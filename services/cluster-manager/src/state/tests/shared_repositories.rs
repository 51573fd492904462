//! Shared repositories against a disk and other git servers that live in this file.

use super::*;
use crate::event::{SharedAction, SharedOutcome, SharedResult, SharedWork};
use cluster_manager_contract::names::PULL_NOW;

const REPOSITORY: Uuid = Uuid::from_u128(0x51);
const SECOND: Uuid = Uuid::from_u128(0x52);

/// What is open, and what pulls bring.
#[derive(Debug, Default)]
pub(super) struct SharedDisk {
    pub open: BTreeMap<Uuid, String>,
    wanted_by: BTreeMap<Uuid, WantedBy>,
    pub devices: BTreeMap<Uuid, Vec<Metric>>,
    /// The commit of every remote; None: it is away.
    remote: Option<String>,
    /// Answers are withheld.
    hangs: bool,
    pulls: Vec<(u64, Uuid, String)>,
}

impl SharedDisk {
    pub(super) fn left(&self) -> Vec<(Uuid, WantedBy)> {
        self.open.keys().map(|uuid| (*uuid, self.wanted_by[uuid])).collect()
    }

    pub(super) fn carry_out(&mut self, work: SharedWork, now: Now) -> Option<SharedResult> {
        let SharedWork { repository, action } = work;
        let mut branch = None;
        let outcome = match action {
            SharedAction::Open { path, origin } => {
                assert_eq!(origin.store, STORE);
                self.open.insert(repository, path);
                self.wanted_by.insert(repository, origin.into());
                Ok(SharedOutcome::default())
            }
            SharedAction::Close => {
                self.open.remove(&repository).expect("it is open");
                Ok(SharedOutcome::default())
            }
            SharedAction::Pull { branch: name, .. } => {
                assert!(repository == known::repository::HELM_CHARTS || self.open.contains_key(&repository));
                self.pulls.push((now.mono.as_secs(), repository, name.clone()));
                branch = Some(name);
                let commit = self.remote.clone().ok_or_else(|| "the remote is away".to_owned());
                commit.map(|commit| SharedOutcome { main: Some(commit.clone()), pulled: Some(commit), diverged: false })
            }
        };
        (!self.hangs).then_some(SharedResult { repository, branch, outcome })
    }
}

fn commit(n: u32) -> String {
    format!("{n:040x}")
}

impl World {
    pub(super) fn put_repository(&mut self, uuid: Uuid, config: Value) {
        let request = WriteRequest::put("", uuid).create_object(known::class::REPO_GROUP_SHARED, None);
        let events = self.db.write(&request.entry("GitConfig", config));
        self.feed(events);
    }

    pub(super) fn shared_metric(&self, uuid: Uuid, name: &str) -> Option<String> {
        let metric = self.shared.devices[&uuid].iter().find(|metric| &*metric.name == name);
        let value = metric.unwrap_or_else(|| panic!("{name}")).value.clone();
        value.map(|value| value.as_str().map_or_else(|| format!("{value:?}"), str::to_owned))
    }
}

fn mirror(interval: &str) -> Value {
    json!({"path": "shared/charts", "pull": {"main": {"url": "https://code.example/x", "ref": "release", "interval": interval}}})
}

#[test]
fn a_chart_that_the_repository_of_charts_does_not_have_is_reported_until_there_is_another_commit() {
    let mut world = World::new(Kill::Never);
    let template = json!({"chart": "edge-other", "values": {"cluster": {"name": "{{name}}", "uuid": "{{uuid}}"}}});
    let events = world.db.put(known::chart::CLUSTER, "HelmChartTemplate", template);
    world.feed(events);
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.settle();
    assert_eq!(world.state(), SetupState::Ready);
    let reason = world.device().setup.reason.clone().unwrap();
    assert!(reason.starts_with("http://git/git/shared/helm has no chart edge-other, so Flux cannot"), "{reason}");
    assert!(reason.contains("git clone http://git/git/shared/helm charts && "), "{reason}");

    world.shared.remote = Some(commit(1));
    let pull = json!({"path": "shared/helm", "pull": {"main": {"url": "https://code.example/x", "ref": "main"}}});
    world.put_repository(known::repository::HELM_CHARTS, pull);
    world.settle();
    assert_eq!(world.device().setup.reason, None, "what is in that one is not known");
}

#[test]
fn a_shared_repository_is_opened_pulled_in_time_and_closed() {
    let mut world = World::new(Kill::Never);
    world.shared.remote = Some(commit(1));
    world.put_repository(REPOSITORY, mirror("1m"));
    world.settle();
    assert_eq!(world.shared.open, [(REPOSITORY, "shared/charts".to_owned())].into());
    assert_eq!(world.shared_metric(REPOSITORY, "Git/Url").as_deref(), Some("http://git/git/shared/charts"));
    assert_eq!(world.shared_metric(REPOSITORY, "Git/Commit"), Some(commit(1)));
    assert_eq!(world.shared_metric(REPOSITORY, "Pull/main/Commit"), Some(commit(1)));
    assert_eq!(world.shared.pulls.len(), 1);
    world.shared.remote = Some(commit(2));
    world.run(Duration::from_secs(300));
    let times: Vec<u64> = world.shared.pulls.iter().map(|(at, ..)| *at).collect();
    assert!((5..=6).contains(&times.len()), "{times:?}");
    assert!(times.windows(2).all(|pair| (60..=65).contains(&(pair[1] - pair[0]))), "{times:?}");
    assert_eq!(world.shared_metric(REPOSITORY, "Git/Commit"), Some(commit(2)));
    world.delete(REPOSITORY, "GitConfig");
    world.settle();
    assert!(world.shared.open.is_empty() && !world.shared.devices.contains_key(&REPOSITORY));
    let pulls = world.shared.pulls.len();
    world.run(Duration::from_secs(300));
    assert_eq!(world.shared.pulls.len(), pulls);
}

#[test]
fn never_is_on_a_change_alone_or_when_a_user_asks() {
    let mut world = World::new(Kill::Never);
    world.shared.remote = Some(commit(1));
    world.put_repository(REPOSITORY, mirror("never"));
    world.run(Duration::from_secs(100_000));
    assert_eq!(world.shared.pulls.len(), 1);
    let device = Some(repository::device(REPOSITORY));
    let metrics = vec![Metric::new(PULL_NOW, true)];
    let command = NodeEvent::Command { device, metrics, timestamp: None };
    world.manager.on_event(Event::Node(command), world.now);
    world.settle();
    assert_eq!(world.shared.pulls.len(), 2);
    let mut other = mirror("never");
    other["pull"]["main"]["ref"] = json!("main");
    world.put_repository(REPOSITORY, other.clone());
    world.settle();
    assert_eq!(world.shared.pulls.len(), 3);
    world.put_repository(REPOSITORY, other);
    world.run(Duration::from_secs(100_000));
    assert_eq!(world.shared.pulls.len(), 3, "nothing has changed");
}

#[test]
fn a_remote_that_is_away_is_tried_again_with_growing_pauses_and_seen() {
    let mut world = World::new(Kill::Never);
    world.put_repository(REPOSITORY, mirror("1h"));
    world.run(Duration::from_secs(7200));
    assert_eq!(world.shared_metric(REPOSITORY, "Pull/main/Reason").as_deref(), Some("the remote is away"));
    assert_eq!(world.shared_metric(REPOSITORY, "Pull/main/At"), None);
    let times: Vec<u64> = world.shared.pulls.iter().map(|(at, ..)| *at).collect();
    assert!(times.len() > 8 && times[1] - times[0] <= 10, "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 601), "{times:?}");
    world.shared.remote = Some(commit(1));
    world.run(Duration::from_secs(700));
    assert_eq!(
        (world.shared_metric(REPOSITORY, "Pull/main/Reason"), world.shared_metric(REPOSITORY, "Git/Commit")),
        (None, Some(commit(1)))
    );
    assert!(world.shared_metric(REPOSITORY, "Pull/main/At").is_some());
}

#[test]
fn a_pull_that_hangs_holds_up_neither_clusters_nor_other_repositories() {
    let mut world = World::new(Kill::Never);
    world.shared.remote = Some(commit(1));
    world.put_repository(REPOSITORY, mirror("1m"));
    world.settle();
    world.shared.hangs = true;
    world.run(Duration::from_secs(70));
    world.shared.hangs = false;
    world.put_repository(SECOND, json!({"path": "shared/second"}));
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.run(Duration::from_secs(300));
    assert_eq!(world.state(), SetupState::Ready);
    assert!(world.shared.open.contains_key(&SECOND));
    assert_eq!(world.shared.pulls.len(), 2, "one at a time");
}

#[test]
fn what_cannot_be_followed_is_reported_and_a_path_has_one_owner() {
    let mut world = World::new(Kill::Never);
    world.put_repository(
        REPOSITORY,
        json!({"path": "shared/x", "pull": {"main": {"url": "file:///etc", "ref": "main"}}}),
    );
    world.settle();
    let error = world.shared_metric(REPOSITORY, "Pull/main/Reason");
    assert_eq!(error.as_deref(), Some("pull.main.url must begin with https:// or http://"));
    world.put_repository(SECOND, json!({"path": "shared/x"}));
    world.settle();
    assert_eq!(world.shared.open, [(REPOSITORY, "shared/x".to_owned())].into());
    let reason = world.shared_metric(SECOND, "Status/Reason").unwrap();
    assert!(reason.contains(&REPOSITORY.to_string()), "{reason}");
    world.put_repository(REPOSITORY, json!({"path": "shared/y"}));
    world.settle();
    let both = [(REPOSITORY, "shared/y".to_owned()), (SECOND, "shared/x".to_owned())];
    assert_eq!(world.shared.open, both.into());
    assert_eq!(world.shared_metric(SECOND, "Status/Reason"), None);
    world.put_repository(SECOND, json!({"path": "cluster/Paint_Shop"}));
    world.settle();
    assert!(!world.shared.open.contains_key(&SECOND));
    let reason = world.shared_metric(SECOND, "Status/Reason").unwrap();
    assert!(reason.starts_with("path must not begin with cluster/"), "{reason}");
    assert!(world.shared.pulls.is_empty());
}

#[test]
fn a_manager_that_is_killed_anywhere_comes_to_the_same_end() {
    let end = |kill: Kill| {
        let mut world = World::new(kill);
        world.shared.remote = Some(commit(1));
        world.put_repository(REPOSITORY, mirror("1m"));
        world.put_repository(SECOND, json!({"path": "shared/second"}));
        world.run(Duration::from_secs(100));
        world.delete(SECOND, "GitConfig");
        world.run(Duration::from_secs(100));
        assert_eq!(world.shared_metric(REPOSITORY, "Git/Commit"), Some(commit(1)));
        (world.shared.open.clone(), world.shared.devices.keys().copied().collect::<Vec<_>>())
    };
    let expected = end(Kill::Never);
    assert_eq!(expected.0.len(), 1);
    for n in 1..25 {
        assert_eq!(end(Kill::After(n)), expected, "killed after {n}");
    }
    // What was not wanted any more while the manager was away is closed when it comes back.
    let mut world = World::new(Kill::Never);
    world.put_repository(SECOND, json!({"path": "shared/second"}));
    world.settle();
    world.db.delete(SECOND, "GitConfig");
    world.start();
    world.settle();
    assert!(world.shared.open.is_empty());
}

#[test]
fn what_is_pulled_into_the_shared_charts_is_sent_to_every_edge() {
    let mut world = running();
    world.follow_sources(CLUSTER, "Paint_Shop");
    world.shared.remote = Some(commit(7));
    let mut config = mirror("1h");
    config["path"] = json!("shared/helm");
    world.put_repository(known::repository::HELM_CHARTS, config);
    world.settle();
    let edge = &world.edges["Paint_Shop"];
    assert_eq!(edge.node.source_charts.map(|commit| commit.to_string()), Some(commit(7)));
}

#[test]
fn what_is_pulled_into_another_repository_is_sent_to_the_edges_that_take_charts_from_it() {
    let mut world = running();
    for (cluster, name) in [(CLUSTER, "Paint_Shop"), (OTHER, "Weld_Shop")] {
        world.put_cluster(cluster, name);
        world.settle();
        world.follow_sources(cluster, name);
    }
    let kind = json!({"resources": [], "template": {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": {"name": "{{name}}"}, "spec": {"url": "{{url}}"}}});
    world.put(known::class::KIND_GIT_REPOSITORY, "K8sTemplate", kind);
    world.shared.remote = Some(commit(8));
    world.put_repository(REPOSITORY, mirror("1m"));
    let deployment = json!({"cluster": CLUSTER, "name": "Robot_Cell_3", "chart": known::chart::EDGE_AGENT,
        "source": REPOSITORY, "createdAt": "2026-01-01"});
    world.put(DEPLOYMENT, "EdgeDeployment", deployment);
    world.settle();
    let reported = |world: &World, name: &str| {
        let others = world.edges[name].node.source_others.0.iter();
        others.map(|(url, commit)| (url.clone(), commit.to_string())).collect::<Vec<_>>()
    };
    let url = format!("http://git/uuid/{REPOSITORY}");
    assert_eq!(reported(&world, "Paint_Shop"), [(url.clone(), commit(8))]);
    assert!(reported(&world, "Weld_Shop").is_empty());
    world.shared.remote = Some(commit(9));
    world.run(Duration::from_secs(70));
    assert_eq!(reported(&world, "Paint_Shop"), [(url, commit(9))]);
}
