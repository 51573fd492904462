//! The access rules from the other side: what no user may do, written without the table.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use broker_acl::filter::{covers, overlap};
use broker_acl::{Action, Principal, Site, allows, grants};
use configdb_schema::address::{ClusterName, OperatorName, Organisation};
use proptest::prelude::*;
use sparkplug::HostId;
use uuid::{Uuid, uuid};

const CLUSTERS: [&str; 3] = ["Paint", "Paint_Shop", "Join"];
const OTHER_GROUPS: [&str; 4] = ["ACME", "ACME-Unknown", "OTHER-Paint", "Line1"];
const HOST: Uuid = uuid!("6ba7b810-9dad-11d1-80b4-00c04fd430c8");
const OTHER_HOST: &str = "6ba7b811-9dad-11d1-80b4-00c04fd430c8";
const KINDS: [&str; 8] = ["NBIRTH", "NDATA", "NDEATH", "NCMD", "DBIRTH", "DDATA", "DDEATH", "DCMD"];

fn name(text: &str) -> ClusterName {
    ClusterName::new(text).unwrap()
}

fn site() -> Site {
    let hosts = |ids: &[&str]| ids.iter().map(|id| HostId::new(*id).unwrap()).collect::<Vec<_>>();
    let clusters = CLUSTERS.map(name);
    Site::new(Organisation::new("ACME").unwrap(), clusters, hosts(&["sparkfleet-cli"]), hosts(&["ignition"])).unwrap()
}

fn groups(site: &Site) -> Vec<String> {
    let people = [Principal::Operator, Principal::Console, Principal::Viewer, Principal::Identity, Principal::Git];
    let people = people.map(|of| site.user(&of));
    let own = site.principals().into_iter().map(|principal| site.user(&principal));
    own.filter(|group| !people.contains(group)).chain(OTHER_GROUPS.map(str::to_owned)).collect()
}

/// Topics and filters about every group, every kind, any node; deeper and shallower ones, and STATE.
fn topics() -> impl Strategy<Value = String> {
    let site = site();
    let level = |names: Vec<String>| prop_oneof![9 => prop::sample::select(names), 1 => Just("+".to_owned())];
    let group = level(groups(&site));
    let kind = level(KINDS.map(str::to_owned).to_vec());
    let nodes = [
        "Sync",
        "Monitor",
        "Join",
        "Console",
        "Identity",
        "Git",
        "ConfigDB",
        "Press",
        "ACME-Paint",
        "ACME-Central-Operator-ada",
        "ACME-Central-Operator-bob",
        &HOST.to_string(),
        OTHER_HOST,
    ];
    let id = level(nodes.map(str::to_owned).to_vec());
    let below_group =
        (group, kind, prop::collection::vec(id, 0..4), any::<bool>()).prop_map(|(group, kind, ids, all)| {
            let levels: Vec<String> = ["spBv1.0".to_owned(), group, kind].into_iter().chain(ids).collect();
            if all { format!("{}/#", levels.join("/")) } else { levels.join("/") }
        });
    let state = prop::sample::select(vec![
        "spBv1.0/STATE/ACME-Paint-Monitor",
        "spBv1.0/STATE/ACME-Paint_Shop-Monitor",
        "spBv1.0/STATE/ACME-Paint_Shop.Monitor",
        "spBv1.0/STATE/ACME-Central-Cluster-Manager",
        "spBv1.0/STATE/sparkfleet-cli",
        "spBv1.0/STATE/ignition",
        "spBv1.0/STATE/+",
        "spBv1.0/#",
        "spBv1.0/+/#",
        "$sparkplug/certificates/spBv1.0/ACME-Paint/NBIRTH/Press",
        "$sparkplug/certificates/spBv1.0/ACME-Paint-Join/#",
        "$sparkplug/certificates/spBv1.0/ACME-Paint_Shop/DBIRTH/Press/+",
        "$sparkplug/certificates/spBv1.0/#",
        "$sparkplug/certificates/#",
        "$sparkplug/#",
        "#",
        "$SYS/#",
        "$CONTROL/dynamic-security/v1",
    ]);
    prop_oneof![8 => below_group, 2 => state.prop_map(str::to_owned)]
}

/// Whether the rules keep every user of this kind from the action.
// long: one table, an arm for each kind of principal and each action.
fn is_walled_off(site: &Site, principal: &Principal, action: Action, topic: &str) -> bool {
    let group = |name: &str| format!("spBv1.0/{name}/#");
    let own = site.user(principal);
    let touches_only = |allowed: &[String]| allowed.iter().any(|filter| covers(filter, topic));
    match (principal, action) {
        (_, Action::Publish) if topic.contains(['+', '#']) || !topic.starts_with("spBv1.0/") => true,
        (Principal::Cluster(_), Action::Publish) => {
            let answers = [format!("spBv1.0/{own}-Join/NCMD/+"), format!("spBv1.0/{own}-Join/DCMD/+/+")];
            let states = ["-Monitor", "-Join", ".Monitor", ".Join"].map(|node| format!("spBv1.0/STATE/{own}{node}"));
            let keepers = ["Sync", "Join", "Monitor"]
                .iter()
                .any(|node| topic.contains(&format!("CMD/{node}/")) || topic.ends_with(&format!("CMD/{node}")));
            keepers && touches_only(&[group(&own)])
                || !touches_only(&[&[group(&own)], &answers[..], &states[..]].concat())
        }
        (Principal::Cluster(_), Action::Subscribe) => {
            let groups = [group(&own), group(&format!("{own}-Join"))];
            let certificates = groups.each_ref().map(|group| format!("$sparkplug/certificates/{group}"));
            !touches_only(&[&groups[..], &certificates, &["spBv1.0/STATE/+".to_owned()]].concat())
        }
        (Principal::JoiningHosts(_) | Principal::EnrollingClusters, Action::Publish) => {
            !touches_only(&["NBIRTH", "NDATA", "NDEATH"].map(|kind| format!("spBv1.0/{own}/{kind}/+")))
        }
        (Principal::JoiningHosts(_) | Principal::EnrollingClusters, Action::Subscribe) => {
            let commands = [format!("spBv1.0/{own}/NCMD/+"), format!("spBv1.0/{own}/DCMD/+/+")];
            !touches_only(&[&commands[..], &["spBv1.0/STATE/+".to_owned()]].concat())
        }
        (Principal::JoiningHost(_), _) => {
            let kinds = match action {
                Action::Publish => &["NBIRTH", "NDATA", "NDEATH"][..],
                Action::Subscribe => &["NCMD", "DCMD"][..],
            };
            let mine = |level: &str| kinds.iter().any(|kind| topic.contains(&format!("-Join/{kind}/{level}")));
            !mine(&own) || topic.contains(OTHER_HOST) && !topic.contains("DCMD")
        }
        (Principal::Viewer, Action::Publish) => topic != "spBv1.0/STATE/ignition",
        (Principal::Operator, Action::Publish) => {
            topic != "spBv1.0/STATE/sparkfleet-cli" && !topic.contains("/NCMD/") && !topic.contains("/DCMD/")
        }
        (Principal::OneOperator(_), Action::Publish) => {
            let of_configdb = topic.strip_prefix("spBv1.0/ACME-Central/DCMD/ConfigDB/");
            of_configdb.is_some_and(|device| device != own)
                || topic != "spBv1.0/STATE/sparkfleet-cli" && !topic.contains("/NCMD/") && !topic.contains("/DCMD/")
        }
        (Principal::Console, Action::Publish) => {
            let own = ["NBIRTH", "NDATA", "NDEATH"].map(|kind| format!("spBv1.0/ACME-Central/{kind}/Console"));
            topic != "spBv1.0/STATE/ACME-Central-Console"
                && !touches_only(&own)
                && !topic.contains("/NCMD/")
                && !topic.contains("/DCMD/")
        }
        (Principal::ControlPlane, Action::Publish) => {
            let reports = overlap(&group(&own), topic) || topic.starts_with("spBv1.0/STATE/ACME-Central-");
            // It is none of Identity, console and git server, and in the quarantine group no one is answered by it.
            let of_others = ["NBIRTH", "NDATA", "NDEATH", "DBIRTH", "DDATA", "DDEATH"].iter().any(|kind| {
                touches_only(&["Identity", "Console", "Git"].map(|node| format!("spBv1.0/{own}/{kind}/{node}/#")))
            });
            of_others
                || touches_only(&[group("ACME-Enrol")])
                || !reports && !topic.contains("/NCMD/") && !topic.contains("/DCMD/")
        }
        (Principal::Identity, Action::Publish) => {
            let own = ["NBIRTH", "NDATA", "NDEATH"].map(|kind| format!("spBv1.0/ACME-Central/{kind}/Identity"));
            let answers = CLUSTERS.map(|cluster| format!("spBv1.0/ACME-{cluster}/NCMD/Identity"));
            let others = [
                "spBv1.0/STATE/ACME-Central-Identity",
                "spBv1.0/ACME-Enrol/NCMD/+",
                "spBv1.0/ACME-Central/NCMD/ConfigDB",
                "spBv1.0/ACME-Central/NCMD/Cluster-Manager",
                "spBv1.0/ACME-Central/DCMD/ConfigDB/+",
            ];
            !touches_only(&[&own[..], &answers, &others.map(str::to_owned)].concat())
        }
        (Principal::Identity, Action::Subscribe) => {
            let filters = [
                "spBv1.0/ACME-Central/+/ConfigDB/#",
                "spBv1.0/ACME-Central/+/Cluster-Manager/#",
                "spBv1.0/ACME-Enrol/+/+/#",
                "spBv1.0/+/+/Identity/#",
            ];
            let certificates = filters.map(|filter| format!("$sparkplug/certificates/{filter}"));
            !touches_only(&[&filters.map(str::to_owned)[..], &certificates, &["spBv1.0/STATE/+".to_owned()]].concat())
        }
        (Principal::Git, Action::Publish) => {
            let node = ["NBIRTH", "NDATA", "NDEATH"].map(|kind| format!("spBv1.0/ACME-Central/{kind}/Git"));
            let devices = ["DBIRTH", "DDATA", "DDEATH"].map(|kind| format!("spBv1.0/ACME-Central/{kind}/Git/+"));
            let others = [
                "spBv1.0/STATE/ACME-Central-Git",
                "spBv1.0/ACME-Central/NCMD/ConfigDB",
                "spBv1.0/ACME-Central/NCMD/Cluster-Manager",
            ];
            !touches_only(&[&node[..], &devices, &others.map(str::to_owned)].concat())
        }
        (Principal::Git, Action::Subscribe) => {
            let filters = ["ConfigDB", "Cluster-Manager", "Git"].map(|node| format!("spBv1.0/ACME-Central/+/{node}/#"));
            let certificates = filters.clone().map(|filter| format!("$sparkplug/certificates/{filter}"));
            !touches_only(&[&filters[..], &certificates, &["spBv1.0/STATE/+".to_owned()]].concat())
        }
        (
            Principal::ControlPlane
            | Principal::Operator
            | Principal::OneOperator(_)
            | Principal::Console
            | Principal::Viewer,
            Action::Subscribe,
        ) => !covers("spBv1.0/#", topic) && !covers("$sparkplug/certificates/spBv1.0/#", topic),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Invariant `group-is-a-wall`.
    #[test]
    fn no_user_reaches_beyond_its_groups(topic in topics(), publishes in any::<bool>()) {
        let site = site();
        let action = if publishes { Action::Publish } else { Action::Subscribe };
        let own = site.clone().with_own_hosts();
        prop_assert!(
            !(is_walled_off(&own, &Principal::JoiningHost(HOST), action, &topic) && allows(&own, &HOST.to_string(), action, &topic)),
            "a host may {action:?} {topic}"
        );
        for site in [site.clone(), site.with_operators(["ada", "bob"].map(|name| OperatorName::new(name).unwrap()))] {
            for principal in site.principals() {
                let user = site.user(&principal);
                let walled_off = is_walled_off(&site, &principal, action, &topic);
                prop_assert!(!(walled_off && allows(&site, &user, action, &topic)), "{user} may {action:?} {topic}");
            }
        }
    }

    #[test]
    fn strangers_may_do_nothing(topic in topics(), user in "[A-Za-z0-9_-]{0,20}") {
        let site = site();
        prop_assume!(site.principals().iter().all(|principal| site.user(principal) != user));
        prop_assert!(!allows(&site, &user, Action::Publish, &topic) && !allows(&site, &user, Action::Subscribe, &topic));
    }
}

#[test]
fn two_clusters_share_no_topic_but_the_states_of_hosts() {
    let site = site();
    for one in CLUSTERS {
        for other in CLUSTERS.into_iter().filter(|other| *other != one) {
            let of = |name: &str| {
                [Principal::Cluster(self::name(name)), Principal::JoiningHosts(self::name(name))]
                    .iter()
                    .flat_map(|principal| grants(&site, principal))
                    .collect::<Vec<_>>()
            };
            for (a, b) in of(one).iter().flat_map(|a| of(other).into_iter().map(move |b| (a.clone(), b))) {
                let is_state = |filter: &str| filter.starts_with("spBv1.0/STATE/");
                let shared = overlap(&a.filter, &b.filter);
                assert!(!shared || (is_state(&a.filter) && is_state(&b.filter)), "{one} {a:?}, {other} {b:?}");
                assert!(!shared || (a.action, b.action) != (Action::Publish, Action::Publish), "{a:?} {b:?}");
            }
        }
    }
}

/// What the services, the command line and other people's hosts subscribe to and publish.
#[test]
fn every_user_can_do_its_work() {
    use Action::{Publish, Subscribe};
    let site = site();
    let disk = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    for (user, action, topic) in [
        ("ACME-Central", Publish, "spBv1.0/ACME-Central/NBIRTH/ConfigDB"),
        ("ACME-Central", Publish, "spBv1.0/ACME-Central/DDEATH/ConfigDB/d"),
        ("ACME-Central", Publish, "spBv1.0/STATE/ACME-Central-Cluster-Manager"),
        ("ACME-Central", Publish, "spBv1.0/ACME-Paint/DCMD/Sync/d"),
        ("ACME-Central", Publish, "spBv1.0/ACME-Central/NCMD/ConfigDB"),
        ("ACME-Central-Identity", Publish, "spBv1.0/ACME-Enrol/NCMD/c"),
        ("ACME-Central-Identity", Publish, "spBv1.0/ACME-Central/NBIRTH/Identity"),
        ("ACME-Central-Identity", Publish, "spBv1.0/ACME-Central/DCMD/ConfigDB/d"),
        ("ACME-Central-Identity", Publish, "spBv1.0/ACME-Paint/NCMD/Identity"),
        ("ACME-Central-Identity", Publish, "spBv1.0/STATE/ACME-Central-Identity"),
        ("ACME-Central-Identity", Subscribe, "spBv1.0/ACME-Central/+/Cluster-Manager/#"),
        ("ACME-Central-Identity", Subscribe, "spBv1.0/ACME-Enrol/+/+/#"),
        ("ACME-Central-Identity", Subscribe, "spBv1.0/+/+/Identity/#"),
        ("ACME-Central-Identity", Subscribe, "spBv1.0/ACME-Central/NCMD/Identity"),
        ("ACME-Central-Git", Publish, "spBv1.0/ACME-Central/NBIRTH/Git"),
        ("ACME-Central-Git", Publish, "spBv1.0/ACME-Central/DDATA/Git/d"),
        ("ACME-Central-Git", Publish, "spBv1.0/ACME-Central/NCMD/Cluster-Manager"),
        ("ACME-Central-Git", Publish, "spBv1.0/STATE/ACME-Central-Git"),
        ("ACME-Central-Git", Subscribe, "spBv1.0/ACME-Central/NCMD/Git"),
        ("ACME-Central-Git", Subscribe, "spBv1.0/ACME-Central/DCMD/Git/#"),
        ("ACME-Central", Publish, "spBv1.0/ACME-Central/DCMD/Git/d"),
        ("ACME-Central", Subscribe, "spBv1.0/ACME-Central/+/ConfigDB/#"),
        ("ACME-Central", Subscribe, "spBv1.0/+/+/Sync/#"),
        ("ACME-Central", Subscribe, "spBv1.0/STATE/ACME-Central-Cluster-Manager"),
        ("ACME-Paint", Publish, "spBv1.0/ACME-Paint/NDEATH/Sync"),
        ("ACME-Paint", Publish, "spBv1.0/ACME-Paint/NCMD/Press"),
        ("ACME-Paint", Publish, "spBv1.0/STATE/ACME-Paint-Monitor"),
        ("ACME-Paint", Publish, "spBv1.0/STATE/ACME-Paint-Join"),
        // An edge that is not updated yet.
        ("ACME-Paint", Publish, "spBv1.0/STATE/ACME-Paint.Monitor"),
        ("ACME-Paint", Publish, "spBv1.0/ACME-Paint-Join/NCMD/d"),
        ("ACME-Paint", Subscribe, "spBv1.0/ACME-Paint/#"),
        ("ACME-Paint", Subscribe, "spBv1.0/ACME-Paint-Join/#"),
        ("ACME-Paint", Subscribe, "spBv1.0/STATE/Ignition"),
        ("ACME-Paint", Subscribe, "$sparkplug/certificates/spBv1.0/ACME-Paint/#"),
        ("ACME-Central-Viewer", Subscribe, "$sparkplug/certificates/spBv1.0/#"),
        ("ACME-Paint-Join", Publish, "spBv1.0/ACME-Paint-Join/NBIRTH/d"),
        ("ACME-Paint-Join", Subscribe, "spBv1.0/ACME-Paint-Join/NCMD/d"),
        ("ACME-Enrol", Publish, "spBv1.0/ACME-Enrol/NDATA/c"),
        ("ACME-Central-Operator", Publish, "spBv1.0/ACME-Central/DCMD/ConfigDB/d"),
        ("ACME-Central-Operator", Publish, "spBv1.0/STATE/sparkfleet-cli"),
        ("ACME-Central-Operator", Publish, "spBv1.0/ACME-Paint-Join/NCMD/d"),
        ("ACME-Central-Operator", Subscribe, "spBv1.0/#"),
        ("ACME-Central-Viewer", Subscribe, "spBv1.0/#"),
        ("ACME-Central-Viewer", Publish, "spBv1.0/STATE/ignition"),
    ] {
        let topic = topic.replace("/d", &format!("/{disk}"));
        assert!(allows(&site, user, action, &topic), "{user} {action:?} {topic}");
    }
}

#[test]
fn a_host_with_credentials_of_its_own_is_that_edge_node_and_no_other() {
    use Action::{Publish, Subscribe};
    let (shared, own) = (site(), HOST.to_string());
    let site = shared.clone().with_own_hosts();
    for group in CLUSTERS.map(|cluster| format!("ACME-{cluster}-Join")) {
        for (node, is_own) in [(&*own, true), (OTHER_HOST, false), ("+", false)] {
            for (action, rest) in
                [(Publish, "NBIRTH"), (Publish, "NDATA"), (Publish, "NDEATH"), (Subscribe, "NCMD"), (Subscribe, "DCMD")]
            {
                let below = if rest == "DCMD" { "/+" } else { "" };
                let topic = format!("spBv1.0/{group}/{rest}/{node}{below}");
                assert_eq!(allows(&site, &own, action, &topic), is_own, "{action:?} {topic}");
            }
        }
        for topic in [format!("spBv1.0/{group}/NCMD/{own}"), format!("spBv1.0/{group}/DBIRTH/{own}/d")] {
            assert!(!allows(&site, &own, Publish, &topic), "{topic}");
        }
    }
    let birth = format!("spBv1.0/ACME-Paint-Join/NBIRTH/{own}");
    assert!(allows(&shared, "ACME-Paint-Join", Publish, &birth), "who shares credentials is every host of the cluster");
    assert!(!allows(&site, "ACME-Paint-Join", Publish, &birth) && !allows(&shared, &own, Publish, &birth));
    assert!(!allows(&site, &own.to_uppercase(), Publish, &birth), "a name is written in one way");
    assert!(!allows(&site, &own.replace('-', ""), Publish, &birth), "a name is written in one way");
}

/// An edge agent has the certificate of its cluster, and so has an attacker who took it over.
#[test]
fn the_services_that_keep_a_cluster_are_not_commanded_from_inside_it() {
    let site = site();
    for topic in ["NCMD/Sync", "NCMD/Join", "NCMD/Monitor", "DCMD/Sync/x", "DCMD/Join/x", "DCMD/Monitor/x"] {
        let topic = format!("spBv1.0/ACME-Paint/{topic}");
        for (user, may) in [("ACME-Central", true), ("ACME-Central-Operator", true), ("ACME-Paint", false)] {
            assert_eq!(allows(&site, user, Action::Publish, &topic), may, "{user} {topic}");
        }
        assert!(allows(&site, "ACME-Paint", Action::Subscribe, &topic), "they receive it themselves: {topic}");
    }
    assert!(allows(&site, "ACME-Paint", Action::Publish, "spBv1.0/ACME-Paint/DCMD/Press/Sync"));
}

#[test]
fn a_host_id_that_means_something_in_a_file_is_refused_by_name() {
    let organisation = Organisation::new("ACME").unwrap();
    let odd = HostId::new("Ignition 1").unwrap();
    let error = Site::new(organisation, [], [odd], []).unwrap_err();
    assert_eq!(
        error.to_string(),
        "host id \"Ignition 1\" contains ' '; with access control only A-Z, a-z, 0-9, `_`, `-` and `.` are allowed in a host id"
    );
}

#[test]
fn an_operator_with_a_user_of_their_own_writes_in_that_name_alone_and_does_all_else_that_operators_do() {
    let [shared, site] = [site(), site().with_operators(["ada", "bob"].map(|name| OperatorName::new(name).unwrap()))];
    let may = |topic: &str| allows(&site, "ACME-Central-Operator-ada", Action::Publish, topic);
    assert!(may("spBv1.0/ACME-Central/DCMD/ConfigDB/ACME-Central-Operator-ada"));
    for device in ["ACME-Central-Operator-bob", "ACME-Central-Operator", OTHER_HOST] {
        assert!(!may(&format!("spBv1.0/ACME-Central/DCMD/ConfigDB/{device}")), "{device}");
    }
    for topic in [
        "spBv1.0/ACME-Central/NCMD/ConfigDB",
        "spBv1.0/ACME-Central/DCMD/Cluster-Manager/Paint",
        "spBv1.0/ACME-Central/DCMD/Monitor/x",
        "spBv1.0/ACME-Paint/DCMD/Sync/x",
        "spBv1.0/ACME-Paint-Join/NCMD/x",
        "spBv1.0/STATE/sparkfleet-cli",
    ] {
        assert!(may(topic) && allows(&shared, "ACME-Central-Operator", Action::Publish, topic), "{topic}");
    }
    let none = |topic| allows(&site, "ACME-Central-Operator", Action::Publish, topic);
    assert!(!none("spBv1.0/ACME-Central/NCMD/ConfigDB"), "the shared user is refused");
}

#[test]
fn operators_and_the_console_command_foreign_groups_that_are_named_and_no_others() {
    let foreign = site().with_foreign_groups(["Line_7".to_owned()]).unwrap();
    for user in ["ACME-Central-Console", "ACME-Central-Operator"] {
        let may = |site: &Site, topic: &str| allows(site, user, Action::Publish, topic);
        for topic in ["spBv1.0/Line_7/NCMD/Mixer", "spBv1.0/Line_7/DCMD/Mixer/Motor"] {
            assert!(may(&foreign, topic) && !may(&site(), topic), "{user} {topic}");
        }
        for topic in ["spBv1.0/Line_7/NDATA/Mixer", "spBv1.0/Line_8/NCMD/Mixer"] {
            assert!(!may(&foreign, topic), "{user} {topic}");
        }
    }
    for user in ["ACME-Central", "ACME-Central-Viewer", "ACME-Paint"] {
        assert!(!allows(&foreign, user, Action::Publish, "spBv1.0/Line_7/NCMD/Mixer"), "{user}");
    }
    for (name, rule) in [("Line/7", "has only"), ("", "has only"), ("ACME-Paint", "not a foreign one")] {
        let error = site().with_foreign_groups([name.to_owned()]).unwrap_err().to_string();
        assert!(error.contains(rule) && error.contains(&format!("{name:?}")), "{error}");
    }
    let read_only = foreign.with_read_only_console();
    let may = |topic: &str| allows(&read_only, "ACME-Central-Console", Action::Publish, topic);
    assert!(may("spBv1.0/Line_7/NCMD/Mixer") && !may("spBv1.0/Line_7/DCMD/Mixer/Motor"));
}

#[test]
fn a_read_only_console_asks_for_births_and_writes_nothing() {
    let site = site().with_read_only_console();
    let may = |topic: &str| allows(&site, "ACME-Central-Console", Action::Publish, topic);
    assert!(may("spBv1.0/ACME-Central/NCMD/ConfigDB") && may("spBv1.0/ACME-Paint/NCMD/Sync"));
    for topic in ["spBv1.0/ACME-Central/DCMD/ConfigDB/x", "spBv1.0/ACME-Paint/DCMD/Press/x", "spBv1.0/OTHER/NCMD/Press"]
    {
        assert!(!may(topic), "{topic}");
    }
}
