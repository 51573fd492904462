//! `docs/metrics.md` is what the contracts' births say of themselves: names, types, units and documentation. It is compared here, and written with `UPDATE_METRICS=1`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use bootstrapper_contract::HostNode;
use cluster_manager_contract::{
    ClusterDevice, NodeMetrics, PulledBranch, RefusedDeployments, RepositoryDevice, SecretsReport, StoredSecret,
    StoredSecrets,
};
use configdb_contract::ConfigNode;
use configdb_schema::document::SealingScope;
use edge_monitor_contract::{MonitorNode, MonitoredNodeDevice};
use edge_sync_contract::{DeploymentDevice, HostDevice, OtherCommits, SyncNode};
use git_server_contract::push::RefChange;
use git_server_contract::{GitNode, PushDevice, RepositoryCopy};
use identity_contract::IdentityNode;
use join_service_contract::counters::JoinCounters;
use join_service_contract::host::JoinHost;
use join_service_contract::node::JoinNode;
use krb_keys_contract::{AccountDevice, KeysNode};
use sparkplug::edge_node::{EdgeNode, EdgeNodeConfig};
use sparkplug::{DataType, EdgeNodeDescriptor, Metric, Now, TypedMetrics, Value};
use uuid::Uuid;

const INTRODUCTION: &str = "\
# Metrics of the services

This page is made from the contracts by `UPDATE_METRICS=1 cargo test -p fleet-view --test integration metrics_page`; do not edit it.
Births carry the meaning of each metric as property `documentation`, its unit as `engUnit`, and `readOnly`, which is false only where it says so below.
Data carry none of them.
What every node has besides, and the commands, are in the [reference](reference.md).
";

/// Of the nodes that no service replicates and that have no contract. Tests of their packages hold each section against the births: these rows, and no other.
const OTHERS: &str = "
## `ORG-Central/Console`

| Metric | Type | Unit | Meaning |
|---|---|---|---|
| `Properties/Service` | String |  | Which service the node is. |
| `Properties/Version` | String |  | Version of the software. |
| `Sessions/Viewers` | UInt64 |  | Clients that follow tables. |
| `Replica/Complete` | Boolean |  | Everything that the tables are made of has arrived. |

## `ORG-<cluster>/<deployment>`: the edge agent that watches its host

| Metric | Type | Unit | Meaning |
|---|---|---|---|
| `Schema_UUID` | Uuid |  | Schema of an edge agent, as Factory+ knows it. |
| `Node Properties/Type` | String |  | Kind of edge agent. |
| `Node Properties/Version` | String |  | Version of the software. |
| `Instance_UUID` | Uuid |  | Object of the deployment in ConfigDB. |
| `Node Properties/Host` | String |  | Host that the deployment is set to. |

## Device `host` of that edge agent

| Metric | Type | Unit | Meaning |
|---|---|---|---|
| `Status/State` | String |  | measured or not-measured: whether the agent can read the host. |
| `Status/Reason` | String |  | Why the host cannot be read, and its values are old; null: it can. |
| `Status/Since` | DateTime |  | Since when it is in that state. |
| `Load/1_min` | Double |  | Processes that ran or waited, on average over 1 minute. |
| `Load/5_min` | Double |  | The same over 5 minutes. |
| `Load/15_min` | Double |  | The same over 15 minutes. |
| `Memory/Total` | UInt64 | B | Memory of the host. |
| `Memory/Available` | UInt64 | B | Memory that programs can still get. |
| `Host/Uptime` | UInt64 | s | Time since the host started. |
| `Disk/Total` | UInt64 | B | Size of the disk that has the state directory. |
| `Disk/Available` | UInt64 | B | Room that is left on it. |
| `Host/Temperature` | Double | °C | Hottest sensor of the host. |

## `ORG-<cluster>/<deployment>`: an edge agent that `sparkfleet up` simulates

| Metric | Type | Unit | Meaning |
|---|---|---|---|
| `Schema_UUID` | Uuid |  | Schema of an edge agent, as Factory+ knows it. |
| `Instance_UUID` | Uuid |  | Object of the deployment in ConfigDB. |
| `Node Control/Reload Edge Agent Config` | Boolean |  | True as a command: the agent reads its configuration again. Writable. |
| `Properties/Simulated` | Boolean |  | The edge agent is simulated. |
| `Node Properties/Type` | String |  | Kind of edge agent. |
| `Node Properties/Version` | String |  | Version of the software. |
| `Alerts/Config_Unavailable/Schema_UUID` | Uuid |  | Schema of the alert. |
| `Alerts/Config_Unavailable/Instance_UUID` | Uuid |  | Identity of the alert. |
| `Alerts/Config_Unavailable/Type` | Uuid |  | Type of the alert. |
| `Alerts/Config_Invalid/Schema_UUID` | Uuid |  | Schema of the alert. |
| `Alerts/Config_Invalid/Instance_UUID` | Uuid |  | Identity of the alert. |
| `Alerts/Config_Invalid/Type` | Uuid |  | Type of the alert. |
| `Config_Revision` | Uuid |  | Revision of the configuration in force; null: none is. |
| `Alerts/Config_Unavailable/Active` | Boolean |  | The edge agent has no configuration yet. |
| `Alerts/Config_Invalid/Active` | Boolean |  | The edge agent does not understand its configuration. |

## Device of a machine, below a simulated edge agent

With tags in its configuration it has those instead of the last seven.

| Metric | Type | Unit | Meaning |
|---|---|---|---|
| `Instance_UUID` | Uuid |  | Identity of the machine. |
| `Simulated` | Boolean |  | The machine is simulated. |
| `Status/State` | String |  | What the machine does: idle, running, blocked or fault. |
| `Status/Reason` | String |  | Why it does not work; null: it does, or has nothing to do. |
| `Status/Since` | DateTime |  | Since when it is in that state. |
| `State` | String |  | What the machine does: idle, running, blocked or fault. |
| `Process/Temperature` | Float | °C | Temperature of the tool. |
| `Process/Force` | Float | kN | Force of the stroke at the moment. |
| `Process/Power` | Float | kW | Electrical power. |
| `Cycle/Count` | UInt64 |  | Cycles since the machine was switched on. |
| `Cycle/Time` | Float | s | Duration of the last cycle. |
| `Fault` | Boolean |  | The machine has a fault. |
";

const TEXT: &str = "a text takes what is written";

/// Title, metrics of a birth.
fn births() -> Vec<(&'static str, Vec<Metric>)> {
    // Tables without rows are not in a birth.
    let reasons = || [(String::new(), String::new())].into();
    let monitor = MonitorNode { cluster: Some(Uuid::nil()), problems: reasons(), ..MonitorNode::default() };
    let keys = KeysNode { problems: reasons(), ..KeysNode::default() };
    let deployments_refused = RefusedDeployments([(Uuid::nil(), String::new())].into());
    let stored = Some(StoredSecrets(vec![StoredSecret {
        namespace: String::new(),
        name: String::new(),
        scope: SealingScope::Strict,
        secret_type: String::new(),
        keys: BTreeMap::new(),
    }]));
    let secrets = SecretsReport { stored, ..SecretsReport::default() };
    let cluster = ClusterDevice { deployments_refused, secrets, ..ClusterDevice::default() };
    let commit = "0123456789abcdef0123456789abcdef01234567".parse().expect("a commit");
    let sync = SyncNode { source_others: OtherCommits([(String::new(), commit)].into()), ..SyncNode::default() };
    let unknown = [("<cluster>".to_owned(), Uuid::nil())].into();
    let not_served = [("<repository>".to_owned(), String::new())].into();
    let manager =
        NodeMetrics { clusters_unknown: unknown, repositories_not_served: not_served, ..NodeMetrics::default() };
    let refs = [("<ref>".to_owned(), String::new())].into();
    let copy = RepositoryCopy { refs, ..RepositoryCopy::default() };
    let change = RefChange { before: None, after: None };
    let push = PushDevice { refs: [("<ref>".to_owned(), change)].into(), ..PushDevice::default() };
    let host = JoinHost { pcrs: Some([(4, String::new())].into()), ..JoinHost::default() };
    let config = ConfigNode { message_bytes_max: Some(1), objects: Some(1), ..ConfigNode::default() };
    let repository =
        RepositoryDevice { pulled: [("<branch>".to_owned(), PulledBranch::default())].into(), ..Default::default() };
    let counters = JoinCounters::zero(["<kind>"], ["<reason>"], ["<reason>"]);
    vec![
        ("`ORG-Central/ConfigDB`", config.to_metrics()),
        ("`ORG-Central/Cluster-Manager`", manager.to_metrics()),
        ("Device of a cluster, below `ORG-Central/Cluster-Manager`", cluster.to_metrics()),
        ("Device of a shared repository, below `ORG-Central/Cluster-Manager`", repository.to_metrics()),
        ("`ORG-Central/Identity`", IdentityNode::default().to_metrics()),
        ("`ORG-Central/Git`", GitNode::default().to_metrics()),
        ("Device of a repository, below `ORG-Central/Git`", copy.to_metrics()),
        ("Device of a push, below `ORG-Central/Git`", push.to_metrics()),
        ("`ORG-<cluster>/Sync`", sync.to_metrics()),
        ("Device of a host, below `ORG-<cluster>/Sync`", HostDevice::default().to_metrics()),
        ("Device of a deployment, below `ORG-<cluster>/Sync`", DeploymentDevice::default().to_metrics()),
        ("`ORG-Central/Monitor` and `ORG-<cluster>/Monitor`", monitor.to_metrics()),
        ("Device of a monitored node, below a `Monitor`", MonitoredNodeDevice::default().to_metrics()),
        ("`ORG-<cluster>/Keys`", keys.to_metrics()),
        ("Device of an account, below `ORG-<cluster>/Keys`", AccountDevice::default().to_metrics()),
        ("`ORG-<cluster>/Join`", [JoinNode::default().to_metrics(), counters.to_metrics()].concat()),
        ("Device of a joining host, below `ORG-<cluster>/Join`", host.to_metrics()),
        ("`ORG-<cluster>-Join/<disk uuid>`", HostNode::default().to_metrics()),
    ]
}

/// What descriptions take in the births of these Devices, as the page of figures has it.
fn descriptions() -> Vec<String> {
    let bytes = |metrics: &[Metric], descriptions: bool| {
        let node = EdgeNodeDescriptor::parse("ACME-Central", "Any").expect("ids");
        let config = EdgeNodeConfig { descriptions, ..EdgeNodeConfig::for_any_reader(node) };
        let machine = EdgeNode::new(config, Vec::new(), Now::new(Duration::ZERO, 1_700_000_000_000)).expect("a node");
        machine.device_birth_bytes(metrics)
    };
    let devices = [
        ("cluster, at the cluster manager", ClusterDevice::default().to_metrics()),
        ("monitored node, at a monitor", MonitoredNodeDevice::default().to_metrics()),
        ("joining host, at a join service", JoinHost::default().to_metrics()),
        ("deployment, at edge sync", DeploymentDevice::default().to_metrics()),
        ("host, at edge sync", HostDevice::default().to_metrics()),
    ];
    let row = |(device, metrics): (&str, Vec<Metric>)| {
        let (with, without) = (bytes(&metrics, true), bytes(&metrics, false));
        // Of 10,000, in tenths of a megabyte.
        let tenths = (with - without + 5) / 10;
        format!("| {device} | {with} | {without} | {}.{} MB |", tenths / 10, tenths % 10)
    };
    devices.into_iter().map(row).collect()
}

#[test]
fn the_page_of_figures_says_what_descriptions_take() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/benchmarks.md");
    let written = std::fs::read_to_string(&path).unwrap();
    let rows = format!("{}\n", descriptions().join("\n"));
    let head = "| birth of a device | bytes | with `mqtt.descriptions = false` | less for 10,000 devices |\n|---|---|---|---|\n";
    let (before, after) = written.split_once(head).expect("the table of docs/benchmarks.md");
    let (table, after) = after.split_once("\n\n").expect("the end of the table");
    if std::env::var_os("UPDATE_METRICS").is_some() {
        std::fs::write(&path, format!("{before}{head}{rows}\n{after}")).unwrap();
        return;
    }
    assert_eq!(
        format!("{table}\n"),
        rows,
        "docs/benchmarks.md is old; UPDATE_METRICS=1 cargo test -p fleet-view --test integration metrics_page"
    );
}

fn property<'a>(metric: &'a Metric, key: &str) -> Option<&'a str> {
    metric.properties.get(key).and_then(Value::as_str)
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for (title, metrics) in births() {
        write!(page, "\n## {title}\n\n| Metric | Type | Unit | Meaning |\n|---|---|---|---|\n").expect(TEXT);
        for metric in metrics {
            let unit = property(&metric, "engUnit").unwrap_or_default();
            let meaning = property(&metric, "documentation").unwrap_or_default();
            let writable = if metric.properties.get("readOnly") == Some(&false.into()) { " Writable." } else { "" };
            let (name, datatype) = (&metric.name, metric.datatype);
            writeln!(page, "| `{name}` | {datatype:?} | {unit} | {meaning}{writable} |").expect(TEXT);
        }
    }
    page + OTHERS
}

#[test]
fn the_page_of_metrics_is_what_the_births_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/metrics.md");
    if std::env::var_os("UPDATE_METRICS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let page = page();
    let differing = page.lines().zip(written.lines()).find(|(made, written)| made != written);
    assert!(
        page == written,
        "docs/metrics.md is old: {differing:?}; UPDATE_METRICS=1 cargo test -p fleet-view --test integration metrics_page"
    );
}

/// Names that are not ours: the standard's, or those that clients of Factory+ know.
fn is_given(name: &str) -> bool {
    ["Node Control/", "Device Control/", "Alerts/", "Links/"].iter().any(|folder| name.starts_with(folder))
        || ["Schema_UUID", "Instance_UUID"].contains(&name)
}

#[test]
fn names_have_a_folder_and_title_case_counts_are_wide_and_everything_is_documented() {
    for (title, metrics) in births() {
        for metric in metrics {
            let name = &*metric.name;
            let place = format!("{title}: {name}");
            let meaning = property(&metric, "documentation").unwrap_or_else(|| panic!("{place} has no documentation"));
            assert!(meaning.ends_with('.') && meaning.len() < 160, "{place}: {meaning}");
            assert!(metric.properties.get("readOnly").is_some(), "{place}");
            assert_ne!(metric.datatype, DataType::UInt32, "{place} is not read by all clients");
            if is_given(name) {
                continue;
            }
            let (folder, last) = name.split_once('/').unwrap_or_else(|| panic!("{place} has no folder"));
            // What stands for a branch, a kind or a reason is not ours either.
            let words = last.split(['/', '_']).chain(folder.split('_')).filter(|word| !word.starts_with('<'));
            let is_title = |word: &str| word.starts_with(|first: char| first.is_ascii_uppercase());
            assert!(words.clone().all(|word| is_title(word) && !word.contains(' ')), "{place}");
        }
    }
}

#[test]
fn every_device_has_a_state_a_reason_and_since_when() {
    for (title, metrics) in births().into_iter().filter(|(title, _)| title.starts_with("Device")) {
        let datatype = |name: &str| metrics.iter().find(|metric| &*metric.name == name).map(|metric| metric.datatype);
        let status = ["Status/State", "Status/Reason", "Status/Since"].map(datatype);
        assert_eq!(status, [DataType::String, DataType::String, DataType::DateTime].map(Some), "{title}");
    }
}
