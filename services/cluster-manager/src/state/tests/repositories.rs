//! Waves: what a changed template makes of clusters' own repositories goes from cluster to cluster.

use super::*;

const CANARY: Uuid = Uuid::from_u128(0xCA);
const SECOND: Uuid = Uuid::from_u128(0x5E);

const NAMES: [(Uuid, &str); 3] = [(CANARY, "Canary"), (SECOND, "Second"), (CLUSTER, "Paint_Shop")];

fn chart(word: &str) -> Value {
    json!({"chart": "edge-cluster", "values": {"cluster": {"name": "{{name}}", "uuid": "{{uuid}}"}, "word": word}})
}

fn put_chart(world: &mut World, word: &str) {
    world.put(known::chart::CLUSTER, "HelmChartTemplate", chart(word));
}

/// Three clusters in three waves, whose Flux follows them.
fn fleet(kill: Kill) -> World {
    let mut world = World::new(kill);
    put_chart(&mut world, "first");
    for (cluster, name) in NAMES {
        world.put_cluster(cluster, name);
    }
    world.put(CANARY, "EdgeClusterRollout", json!({"wave": 1}));
    world.put(SECOND, "EdgeClusterRollout", json!({"wave": 2}));
    world.settle();
    for (cluster, name) in NAMES {
        world.follow_sources(cluster, name);
    }
    world.settle();
    assert_eq!((words(&world), waits(&world)), (["first"; 3].map(str::to_owned), [false; 3]));
    assert_eq!(NAMES.map(|(cluster, _)| world.devices[&cluster].rollout.unsettled.clone()), [None, None, None]);
    world
}

/// What the repositories of the clusters hold.
fn words(world: &World) -> [String; 3] {
    NAMES.map(|(cluster, _)| {
        let files = &world.disk.repositories[&cluster].owned;
        let release = String::from_utf8(files["edge-cluster.yaml"].clone()).unwrap();
        let word =
            release.lines().find_map(|line| line.trim().strip_prefix("word:").map(|word| word.trim().to_owned()));
        word.unwrap()
    })
}

fn waits(world: &World) -> [bool; 3] {
    NAMES.map(|(cluster, _)| world.devices[&cluster].rollout.repository.is_some())
}

fn unsettled<'a>(world: &'a World, cluster: &Uuid) -> &'a str {
    world.devices[cluster].rollout.unsettled.as_deref().unwrap_or_default()
}

fn flux_fails(world: &mut World, name: &str, fails: bool) {
    let edge = world.edges.get_mut(name).unwrap();
    edge.flux_fails = fails;
    if edge.node.source_applied.is_some() && !fails {
        (edge.node.source_ready, edge.node.source_message) = (Some(true), None);
    }
    let births = edge.birth();
    world.feed(births);
}

fn dies(world: &mut World, name: &str) {
    let edge = world.edges.get_mut(name).unwrap();
    edge.deaf = true;
    let node = edge.address();
    world.feed(vec![HostEvent::NodeDeath { node, timestamp: 0 }]);
}

#[test]
fn a_change_continues_when_the_earlier_wave_is_well_on_it_and_stops_where_it_is_not() {
    let mut world = fleet(Kill::Never);
    world.edges.get_mut("Canary").unwrap().flux_fails = true;
    put_chart(&mut world, "bad");
    world.settle();
    let stopped = (["bad", "first", "first"].map(str::to_owned), [false, true, true]);
    assert_eq!((words(&world), waits(&world)), stopped);
    let device = &world.devices[&CLUSTER];
    let reason = "waits for cluster Canary of wave 1, whose own repository has not settled";
    assert_eq!(device.rollout.repository.as_deref(), Some(reason));
    assert_eq!((device.setup.state, device.rollout.waiting), (SetupState::Ready, 0));
    assert_eq!(unsettled(&world, &CANARY), "HelmRelease edge: no");
    // Neither time nor a restart of the manager lets a cluster overtake.
    world.run(Duration::from_secs(6_000));
    world.start();
    world.run(Duration::from_secs(6_000));
    assert_eq!((words(&world), waits(&world)), stopped);
    // A better template goes the same way, through all waves.
    world.edges.get_mut("Canary").unwrap().flux_fails = false;
    world.edges.get_mut("Second").unwrap().flux_fails = true;
    put_chart(&mut world, "good");
    world.settle();
    let second = (["good", "good", "first"].map(str::to_owned), [false, false, true]);
    assert_eq!((words(&world), waits(&world)), second);
    flux_fails(&mut world, "Second", false);
    world.settle();
    assert_eq!((words(&world), waits(&world)), (["good"; 3].map(str::to_owned), [false; 3]));
}

#[test]
fn taking_a_bad_change_back_needs_only_the_clusters_that_have_it() {
    let mut world = fleet(Kill::Never);
    world.edges.get_mut("Canary").unwrap().flux_fails = true;
    put_chart(&mut world, "bad");
    world.settle();
    let before = [SECOND, CLUSTER].map(|cluster| world.disk.commit(cluster));
    put_chart(&mut world, "first");
    world.settle();
    assert_eq!((words(&world), waits(&world)), (["first"; 3].map(str::to_owned), [false; 3]));
    assert_eq!([SECOND, CLUSTER].map(|cluster| world.disk.commit(cluster)), before);
}

#[test]
fn templates_of_flux_and_of_kinds_go_the_same_way() {
    let mut world = fleet(Kill::Never);
    world.edges.get_mut("Canary").unwrap().flux_fails = true;
    let changes = [
        (
            known::application::FLUX_TEMPLATE,
            "FluxTemplate",
            "/edge-cluster.yaml/1",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}),
        ),
        (known::class::KIND_HELM_RELEASE, "K8sTemplate", "/template/metadata/labels", json!({"a": "b"})),
    ];
    for (object, slug, pointer, value) in changes {
        let before = [SECOND, CLUSTER].map(|cluster| world.disk.commit(cluster));
        let canary = world.disk.commit(CANARY);
        let mut template = world.db.json(object, slug).unwrap();
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        match template.pointer_mut(parent).unwrap() {
            Value::Array(items) => items.push(value),
            other => other[member] = value,
        }
        world.put(object, slug, template);
        world.settle();
        assert_ne!(world.disk.commit(CANARY), canary, "{slug}");
        assert_eq!([SECOND, CLUSTER].map(|cluster| world.disk.commit(cluster)), before, "{slug}");
        assert_eq!(waits(&world), [false, true, true], "{slug}");
    }
}

#[test]
fn an_offline_cluster_blocks_no_other_but_one_whose_flux_asks_is_not_offline() {
    let mut world = fleet(Kill::Never);
    dies(&mut world, "Canary");
    put_chart(&mut world, "one");
    let serves = |world: &mut World, polled_at: u64| {
        let charts = (known::repository::HELM_CHARTS, CHARTS.to_owned());
        let commits = [CANARY, SECOND, CLUSTER].map(|cluster| (cluster, world.disk.commit(cluster)));
        let births = git_copies::polled(CANARY, polled_at, commits.into_iter().chain([charts]));
        world.feed(births);
    };
    let polls = |world: &mut World| {
        for _ in 0..10 {
            world.run(Duration::from_secs(180));
            let now = world.now.wall;
            serves(world, now);
        }
    };
    polls(&mut world);
    // Its Flux lives, its Sync does not: the change may be what has killed it.
    assert_eq!((words(&world), waits(&world)), (["one", "first", "first"].map(str::to_owned), [false, true, true]));
    assert_eq!(unsettled(&world, &CANARY), "its edge sync is offline");
    world.edges.remove("Canary");
    world.start();
    polls(&mut world);
    assert_eq!(waits(&world), [false, true, true]);
    let last = world.now.wall;
    for _ in 0..20 {
        world.run(settings().flux_away / 5);
        serves(&mut world, last);
    }
    assert_eq!((words(&world), waits(&world)), (["one"; 3].map(str::to_owned), [false; 3]));
}

#[test]
fn a_cluster_that_was_never_bootstrapped_blocks_no_other() {
    let mut world = fleet(Kill::Never);
    world.put_cluster(OTHER, "Other");
    world.put(OTHER, "EdgeClusterRollout", json!({"wave": 1}));
    put_chart(&mut world, "one");
    world.settle();
    assert_eq!((words(&world), waits(&world)), (["one"; 3].map(str::to_owned), [false; 3]));
}

#[test]
fn what_an_operator_wants_on_a_waiting_cluster_does_not_wait() {
    let values = json!({"name": "Paint_Shop", "namespace": "fplus-edge", "values": {"own": 1}});
    let pins = json!({"pins": {known::repository::HELM_CHARTS.to_string(): {"tag": "v1"}}});
    for (slug, own) in [("EdgeCluster", values), ("EdgeClusterRollout", pins)] {
        let mut world = fleet(Kill::Never);
        world.edges.get_mut("Canary").unwrap().flux_fails = true;
        put_chart(&mut world, "one");
        world.settle();
        assert_eq!(waits(&world), [false, true, true]);
        world.kill = Kill::AfterEach;
        world.put(CLUSTER, slug, own);
        world.put_cluster(OTHER, "Other");
        world.settle();
        assert_eq!(
            (words(&world), waits(&world)),
            (["one", "first", "one"].map(str::to_owned), [false, true, false]),
            "{slug}"
        );
        assert_eq!(world.devices[&OTHER].setup.state, SetupState::Ready, "nor does a cluster that is new");
        // The next change waits again.
        world.kill = Kill::Never;
        put_chart(&mut world, "two");
        world.settle();
        assert_eq!(words(&world), ["two", "first", "one"].map(str::to_owned), "{slug}");
    }
}

#[test]
fn a_cluster_that_is_deleted_or_put_into_the_last_wave_blocks_no_other() {
    for act in [
        |world: &mut World| world.put(CANARY, "EdgeClusterRollout", json!({})),
        |world: &mut World| world.delete(CANARY, "EdgeClusterRollout"),
        |world: &mut World| world.delete(CANARY, "EdgeCluster"),
    ] {
        let mut world = fleet(Kill::Never);
        world.edges.get_mut("Canary").unwrap().flux_fails = true;
        put_chart(&mut world, "one");
        world.settle();
        assert_eq!(words(&world)[1..], ["first", "first"]);
        act(&mut world);
        world.settle();
        assert_eq!(words(&world)[1..], ["one", "one"]);
    }
}

#[test]
fn a_commit_of_another_user_is_looked_for_and_settles() {
    let mut world = fleet(Kill::Never);
    world.edges.get_mut("Canary").unwrap().flux_fails = true;
    put_chart(&mut world, "one");
    world.settle();
    // An operator mends it by hand, on the disk; Flux applies that.
    world.disk.push(CANARY);
    let commit = world.disk.commit(CANARY).parse().ok();
    world.edges.get_mut("Canary").unwrap().node.source_applied = commit;
    flux_fails(&mut world, "Canary", false);
    world.settle();
    assert_eq!((words(&world), waits(&world)), (["one"; 3].map(str::to_owned), [false; 3]));
    // A change that was never committed is looked for once, and does not settle.
    let git = world.effects;
    world.edges.get_mut("Canary").unwrap().node.source_applied = "ff".repeat(20).parse().ok();
    flux_fails(&mut world, "Canary", false);
    world.settle();
    assert_eq!(unsettled(&world, &CANARY), "Flux has not applied its repository yet");
    assert!(world.effects < git + 20, "{}", world.effects - git);
}

#[test]
fn a_repository_that_cannot_be_rendered_or_written_has_not_settled() {
    let mut world = fleet(Kill::Never);
    world.disk.broken = true;
    put_chart(&mut world, "one");
    world.run(Duration::from_secs(5));
    assert_eq!(unsettled(&world, &CANARY), "disk full");
    world.disk.broken = false;
    world.run(Duration::from_secs(120));
    assert_eq!(words(&world), ["one"; 3].map(str::to_owned));
    world.put(CANARY, "EdgeCluster", json!({"name": "Renamed", "namespace": "fplus-edge"}));
    put_chart(&mut world, "two");
    world.settle();
    assert_eq!(words(&world), ["one"; 3].map(str::to_owned));
    assert!(unsettled(&world, &CANARY).contains("cannot be renamed"), "{}", unsettled(&world, &CANARY));
}

#[test]
fn a_manager_that_is_killed_at_every_step_lets_no_cluster_overtake() {
    let mut world = fleet(Kill::Never);
    world.edges.get_mut("Canary").unwrap().flux_fails = true;
    world.kill = Kill::AfterEach;
    put_chart(&mut world, "bad");
    world.settle();
    assert_eq!((words(&world), waits(&world)), (["bad", "first", "first"].map(str::to_owned), [false, true, true]));
    world.edges.get_mut("Canary").unwrap().flux_fails = false;
    world.kills = 0;
    put_chart(&mut world, "good");
    world.settle();
    assert_eq!((words(&world), waits(&world)), (["good"; 3].map(str::to_owned), [false; 3]));
}

#[test]
fn wherever_the_manager_is_killed_once_the_end_is_the_same() {
    let run = |kill: Kill| {
        let mut world = fleet(Kill::Never);
        world.edges.get_mut("Second").unwrap().flux_fails = true;
        world.kill = match kill {
            Kill::After(effects) => Kill::After(world.effects + effects),
            other => other,
        };
        let before = world.effects;
        put_chart(&mut world, "one");
        world.settle();
        (words(&world), waits(&world), world.effects - before)
    };
    let (words, waits, effects) = run(Kill::Never);
    assert_eq!((&words, waits), (&["one", "one", "first"].map(str::to_owned), [false, false, true]));
    assert!(effects > 3, "{effects}");
    for after in 1..=effects {
        let (other_words, other_waits, _) = run(Kill::After(after));
        assert_eq!((&other_words, other_waits), (&words, waits), "killed after {after}");
    }
}
