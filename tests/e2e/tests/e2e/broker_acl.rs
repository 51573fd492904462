//! The ACL that `sparkfleet acl generate` writes, on a Mosquitto that asks for certificates, and that of the embedded broker. The tests check which messages it passes and which it refuses, and
//! that the whole factory works with it.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use broker_acl::{Action, Site, allows, grants};
use bytes::Bytes;
use configdb_schema::address::{ClusterName, Organisation};
use e2e::central_services::service_process_with;
use e2e::cli::Cli;
use e2e::mosquitto::Mosquitto;
use e2e::process::Processes;
use e2e::secured_site::{USERS, VIEWER, VIEWER_HOST, files, mqtt, with_shipped_acl};
use simulator::cluster::{ClusterSpec, HostSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use sparkfleet_up::broker::{Broker, BrokerConfig, Guard};
use sparkfleet_up::gate::Gate;
use sparkplug::host::{HostConfig, HostEvent};
use sparkplug::session::QoS;
use sparkplug::{EdgeNodeDescriptor, HostId, Metric};
use sparkplug_mqtt::{Clock, ListenerEvent, ListenerHandle, MqttConfig, spawn_host, spawn_listener};

use crate::factory::uuid;

async fn next(listener: &mut ListenerHandle, what: &str) -> ListenerEvent {
    let event = tokio::time::timeout(Duration::from_secs(120), listener.recv()).await;
    event.unwrap_or_else(|_| panic!("not in time: {what}")).unwrap_or_else(|| panic!("ended: {what}"))
}

/// How a user reaches a server.
type Reach<'a> = &'a (dyn Fn(&str) -> MqttConfig + Sync);

async fn connected(reach: Reach<'_>, user: &str, filters: &[String]) -> ListenerHandle {
    let filters = filters.iter().map(|filter| (filter.clone(), QoS::AtMostOnce)).collect();
    let mut listener = spawn_listener(filters, &reach(user), Clock::new()).unwrap();
    assert_eq!(next(&mut listener, user).await, ListenerEvent::Online, "{user}");
    listener
}

fn site() -> Site {
    let clusters = ["Paint_Shop", "Weld_Shop"].map(|name| ClusterName::new(name).unwrap());
    Site::new(Organisation::new("ACME").unwrap(), clusters, [HostId::new("sparkfleet-cli").unwrap()], []).unwrap()
}

fn topics() -> Vec<String> {
    let groups =
        ["ACME-Central", "ACME-Paint_Shop", "ACME-Weld_Shop", "ACME-Paint_Shop-Join", "ACME-Enrol", "OTHER-Line"];
    let node = ["NBIRTH/Sync", "NDATA/Sync", "NDEATH/Sync", "NCMD/Sync", "NCMD/Press"];
    let device = ["DBIRTH/Sync/d", "DDATA/Sync/d", "DDEATH/Sync/d", "DCMD/Sync/d", "DCMD/Press/d"];
    let of_group = |group| node.iter().chain(&device).map(move |rest| format!("spBv1.0/{group}/{rest}"));
    let hosts = ["ACME-Central-Cluster-Manager", "ACME-Paint_Shop-Monitor", "ACME-Weld_Shop-Monitor", "Ignition"];
    let states = hosts.map(|host| format!("spBv1.0/STATE/{host}"));
    groups.into_iter().flat_map(of_group).chain(states).collect()
}

const OPERATOR: &str = "ACME-Central-Operator";
const LAST: &str = "spBv1.0/STATE/sparkfleet-cli";

/// The user that sent a message: its payload.
fn sender(payload: &[u8]) -> String {
    String::from_utf8(payload.to_vec()).unwrap()
}

/// A message that a user may send, after which nothing of it is on the way any more.
fn end_of(user: &str) -> String {
    match user {
        OPERATOR => LAST.to_owned(),
        // Both speak for nodes of one group.
        "ACME-Central" => "spBv1.0/ACME-Central/NDATA/ConfigDB".to_owned(),
        "ACME-Central-Identity" => "spBv1.0/ACME-Central/NDATA/Identity".to_owned(),
        "ACME-Central-Git" => "spBv1.0/ACME-Central/NDATA/Git".to_owned(),
        user => format!("spBv1.0/{user}/NDATA/end"),
    }
}

/// Publishes to a topic that is not allowed, on a connection of its own, because some versions of Mosquitto close it then. Returns when the server has dealt with it; what the witness received
/// meanwhile is added to `received`.
async fn probe(
    reach: Reach<'_>,
    user: &str,
    topic: &str,
    witness: &mut ListenerHandle,
    received: &mut BTreeSet<(String, String)>,
) {
    let mut client = connected(reach, user, &["spBv1.0/STATE/+".to_owned()]).await;
    for topic in [topic.to_owned(), end_of(user)] {
        client.publish(topic, Bytes::copy_from_slice(user.as_bytes())).await.unwrap();
    }
    loop {
        let event = tokio::select! {
            event = next(&mut client, topic) => event,
            event = next(witness, topic) => event,
        };
        match event {
            ListenerEvent::Message { topic, .. } if topic == end_of(user) => break,
            ListenerEvent::Message { topic, payload, .. } => drop(received.insert((sender(&payload), topic))),
            ListenerEvent::Offline { .. } => break,
            other => panic!("{user}, {topic}: {other:?}"),
        }
    }
    client.stop().await;
}

/// Every user publishes to every topic and receives what it may. Each message must arrive at exactly the users that the table of the ACL names.
async fn what_arrives_is_what_the_table_says(reach: Reach<'_>, filters: impl Fn(&str) -> Vec<String>) {
    let (site, topics) = (site(), topics());
    let mut clients = Vec::new();
    for user in USERS {
        clients.push((user, connected(reach, user, &filters(user)).await, BTreeSet::new()));
    }
    let mut witness = connected(reach, OPERATOR, &["spBv1.0/#".to_owned()]).await;
    let mut witnessed = BTreeSet::new();
    for (user, client, _) in &clients {
        for topic in &topics {
            if allows(&site, user, Action::Publish, topic) {
                client.publish(topic.clone(), Bytes::from_static(user.as_bytes())).await.unwrap();
            } else {
                probe(reach, user, topic, &mut witness, &mut witnessed).await;
            }
        }
        client.publish(end_of(user), Bytes::from_static(b"end")).await.unwrap();
        loop {
            match next(&mut witness, user).await {
                ListenerEvent::Message { payload, .. } if &payload[..] == b"end" => break,
                ListenerEvent::Message { topic, payload, .. } => drop(witnessed.insert((sender(&payload), topic))),
                other => panic!("the witness: {other:?}"),
            }
        }
    }
    // The operator's message is the last one, and all clients receive it: the messages before it have been delivered.
    let (_, operator, _) = clients.iter().find(|(user, ..)| *user == OPERATOR).unwrap();
    operator.publish(LAST.to_owned(), Bytes::from_static(b"last")).await.unwrap();
    for (user, client, received) in &mut clients {
        loop {
            match next(client, user).await {
                ListenerEvent::Message { payload, .. } if &payload[..] == b"last" => break,
                ListenerEvent::Message { topic, payload, .. } => drop(received.insert((sender(&payload), topic))),
                other => panic!("{user}: {other:?}"),
            }
        }
    }
    let asked: BTreeSet<String> = topics.into_iter().collect();
    clients.push((OPERATOR, witness, witnessed));
    for (user, client, mut received) in clients {
        client.stop().await;
        received.retain(|(_, topic)| asked.contains(topic));
        let pairs = USERS.into_iter().flat_map(|from| asked.iter().map(move |topic| (from.to_owned(), topic.clone())));
        let expected: BTreeSet<(String, String)> = pairs
            .filter(|(from, topic)| {
                allows(&site, from, Action::Publish, topic) && allows(&site, user, Action::Subscribe, topic)
            })
            .collect();
        assert!(!expected.is_empty(), "{user} receives something, so that this test can fail");
        assert_eq!(received, expected, "{user}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn static_files_keep_clusters_apart() {
    let server = with_shipped_acl("mosquitto", "sparkfleet.acl", "/etc/mosquitto/sparkfleet.acl").await;
    let reach = |user: &str| mqtt(&server, user);
    what_arrives_is_what_the_table_says(&reach, |_| vec!["spBv1.0/#".to_owned()]).await;
    // A client with a certificate of the fleet whose name has no entry may connect but publish nothing; a client without a certificate may not connect.
    let stranger = connected(&reach, "stranger", &["#".to_owned()]).await;
    let mut operator = connected(&reach, OPERATOR, &["spBv1.0/#".to_owned()]).await;
    stranger.publish("spBv1.0/ACME-Paint_Shop/NCMD/Sync".to_owned(), Bytes::from_static(b"stranger")).await.unwrap();
    operator.publish(LAST.to_owned(), Bytes::from_static(b"end")).await.unwrap();
    let first = next(&mut operator, "its own message").await;
    assert!(matches!(&first, ListenerEvent::Message { payload, .. } if &payload[..] == b"end"), "{first:?}");
    stranger.stop().await;
    operator.stop().await;
    let no_certificate = MqttConfig { cert_file: None, key_file: None, ..mqtt(&server, "stranger") };
    let mut refused = spawn_listener(vec![("#".to_owned(), QoS::AtMostOnce)], &no_certificate, Clock::new()).unwrap();
    assert!(matches!(next(&mut refused, "a refusal").await, ListenerEvent::Offline { .. }));
    refused.stop().await;
    the_command_that_tries_it_finds_the_same(&server).await;
}

/// `sparkfleet acl check` agrees with the server, and says what the server's files lack.
async fn the_command_that_tries_it_finds_the_same(server: &Mosquitto) {
    let url = format!("mqtts://localhost:{}", server.address().port());
    let cli = Cli::new(&url).with_environment(files("SPARKFLEET_", server.directory(), OPERATOR));
    let directory = server.directory().display().to_string();
    let check = ["acl", "check", "--credentials", &directory, "--cluster", "Paint_Shop", "--cluster", "Weld_Shop"];
    let rows = cli.json(&check).await;
    let row = |user: &str| rows.as_array().unwrap().iter().find(|row| row["user"] == user).unwrap().clone();
    assert!(USERS.iter().all(|user| row(user)["tried"].as_u64().unwrap() > 30), "{rows:#}");
    assert!(row("ACME-Central-Console")["tried"].is_null(), "{rows:#}");
    // A cluster that was created since, and a certificate that the server should refuse.
    let revoked = server.directory().join("revoked");
    fs::create_dir_all(&revoked).unwrap();
    // The second may not subscribe to what a stranger is tried with.
    for name in ["stranger", "ACME-Weld_Shop"].iter().flat_map(|name| [format!("{name}.pem"), format!("{name}.key")]) {
        fs::copy(server.directory().join(&name), revoked.join(&name)).unwrap();
    }
    let outcome = cli.run(&[&check[..], &["--cluster", "Body_Shop"]].concat()).await;
    assert_eq!(outcome.code, 1, "{outcome:#?}");
    for message in [
        "publish spBv1.0/ACME-Body_Shop/NCMD/acl-check: it may, and cannot",
        "connect stranger: it is revoked, and can",
        "connect ACME-Weld_Shop: it is revoked, and can connect and subscribe to spBv1.0/",
        "write its files again (sparkfleet acl generate)",
    ] {
        assert!(outcome.stdout.contains(message) || outcome.stderr.contains(message), "{message}: {outcome:#?}");
    }
}

/// The filters that a user is granted.
fn granted_filters(user: &str) -> Vec<String> {
    let site = site();
    let principal = site.principals().into_iter().find(|principal| site.user(principal) == user).unwrap();
    let subscribes = grants(&site, &principal).into_iter().filter(|grant| grant.action == Action::Subscribe);
    subscribes.map(|grant| grant.filter).collect()
}

/// The broker of `sparkfleet up`, where each service logs in with its own name.
#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_broker_keeps_clusters_apart() {
    let site = site();
    let gate = Arc::new(Gate::new(site.organisation().clone(), HostId::new("sparkfleet-cli").unwrap()));
    for cluster in site.clusters() {
        gate.add_cluster(cluster.clone()).unwrap();
    }
    let guard: Arc<dyn Guard> = gate.clone();
    let listen = "127.0.0.1:0".parse().unwrap();
    let broker = Broker::start(BrokerConfig { listen, guard: Some(guard), ..BrokerConfig::default() }).await.unwrap();
    let anonymous = MqttConfig { servers: vec![broker.url()], ..MqttConfig::default() };
    let reach = |user: &str| {
        let principal = site.principals().into_iter().find(|principal| site.user(principal) == user).unwrap();
        gate.login(&principal, &anonymous).unwrap()
    };
    what_arrives_is_what_the_table_says(&reach, granted_filters).await;
    let everything = || vec![("spBv1.0/#".to_owned(), QoS::AtMostOnce)];
    let paint = reach("ACME-Paint_Shop");
    let pretender = MqttConfig { username: Some("ACME-Weld_Shop".to_owned()), ..paint.clone() };
    for (refused, why) in [(&paint, "more than its own"), (&pretender, "the password of another")] {
        let mut curious = spawn_listener(everything(), refused, Clock::new()).unwrap();
        let event = next(&mut curious, why).await;
        assert!(matches!(&event, ListenerEvent::Offline { .. }), "{why}: {event:?}");
        curious.stop().await;
    }
    let mut local = spawn_listener(everything(), &anonymous, Clock::new()).unwrap();
    assert_eq!(next(&mut local, "a client on this machine").await, ListenerEvent::Online);
    local.stop().await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dynamic_security_plugin_keeps_clusters_apart() {
    let file = "sparkfleet-dynamic-security.json";
    let server = with_shipped_acl("mosquitto-dynsec", file, &format!("/var/lib/mosquitto/{file}")).await;
    // The plugin looks at subscriptions, too: each asks for what it may have.
    what_arrives_is_what_the_table_says(&|user| mqtt(&server, user), granted_filters).await;
    let filters = vec![("spBv1.0/ACME-Weld_Shop/#".to_owned(), QoS::AtMostOnce)];
    let mut curious = spawn_listener(filters, &mqtt(&server, "ACME-Paint_Shop"), Clock::new()).unwrap();
    let refused = next(&mut curious, "a refused subscription").await;
    assert!(matches!(&refused, ListenerEvent::Offline { .. }), "{refused:?}");
    curious.stop().await;
}

/// Every service with the certificate of its group, and an operator who creates a cluster: the ACL allows what they need to publish and receive.
#[tokio::test(flavor = "multi_thread")]
async fn the_whole_factory_works_with_the_shipped_acl() {
    let server = with_shipped_acl("mosquitto", "sparkfleet.acl", "/etc/mosquitto/sparkfleet.acl").await;
    let directory = tempfile::tempdir().unwrap();
    let at = |name: String| server.directory().join(name).display().to_string();
    let url = format!("mqtts://localhost:{}", server.address().port());
    let variables = |prefix: &str, user: &str| {
        let files = [
            ("CA_FILE", "sparkfleet-ca.pem".to_owned()),
            ("CERT_FILE", format!("{user}.pem")),
            ("KEY_FILE", format!("{user}.key")),
        ];
        files.map(|(key, file)| (format!("{prefix}{key}"), at(file)))
    };
    let (central, edge) = (Processes::default(), Processes::default());
    let start = |processes: &Processes, service: &str, user: &str, head: &str, tables: &str| {
        let folder = directory.path().join(user);
        fs::create_dir_all(&folder).unwrap();
        let mut environment = vec![("SPARKFLEET__MQTT__SERVERS".to_owned(), url.clone())];
        environment.extend(variables("SPARKFLEET__MQTT__", user));
        let environment: Vec<(&str, &str)> = environment.iter().map(|(key, value)| (&**key, &**value)).collect();
        processes.insert(service_process_with(service, head, tables, server.address(), &folder, &environment));
    };
    start(&central, "configdb", "ACME-Central", "", "");
    start(&central, "edge-monitor", "ACME-Central", "mode = \"central\"\n", "");
    start(&central, "cluster-manager", "ACME-Central", "", "");
    start(&central, "git-server", "ACME-Central-Git", "", "");
    let spec =
        ClusterSpec { hosts: vec![HostSpec::control_plane("paint-1")], flux: false, ..ClusterSpec::new("Paint_Shop") };
    let cluster = SimulatedCluster::start(spec, Charts::new()).await.unwrap();
    let cli = Cli::new(&url).with_environment(variables("SPARKFLEET_", "ACME-Central-Operator"));
    let created = uuid(&cli.json(&["cluster", "create", "Paint_Shop"]).await);
    let tables = format!(
        "[cluster]\nname = \"Paint_Shop\"\nuuid = \"{created}\"\n[kubernetes]\nnamespace = \"fplus-edge\"\nurl = \"{}\"\n",
        cluster.url()
    );
    for service in ["edge-sync", "edge-monitor"] {
        start(&edge, service, "ACME-Paint_Shop", "simulated = true\n", &tables);
    }
    let listed = cli.json(&["cluster", "create", "Paint_Shop", "--wait", "--timeout", "2m"]).await;
    assert_eq!(uuid(&listed), created, "{listed}\n{}\n{}", central.tails(), edge.tails());
    let seen = async || cli.json(&["cluster", "list"]).await[0].clone();
    let limit = tokio::time::Instant::now() + Duration::from_secs(120);
    loop {
        let row = seen().await;
        if row["alive"] == true && row["monitored"] == true && row["hosts"]["ready"] == 1 {
            break;
        }
        assert!(tokio::time::Instant::now() < limit, "{row}\n{}\n{}", central.tails(), edge.tails());
    }
    a_viewer_knows_the_factory_without_a_command(&mqtt(&server, VIEWER)).await;
    edge.stop().await;
    central.stop().await;
    cluster.stop().await;
}

/// A round of births begins within a minute of the STATE of a new host; a busy machine needs its time for them.
const COMPLETE_WITHIN: Duration = Duration::from_secs(90);

fn number(metrics: &[Metric], name: &str) -> Option<u64> {
    metrics.iter().find(|metric| &*metric.name == name).and_then(Metric::as_u64)
}

/// It comes when every node was born long ago, and asks for nothing. Within a minute it has every object of ConfigDB, too.
async fn a_viewer_knows_the_factory_without_a_command(mqtt: &MqttConfig) {
    let mut unknown = BTreeSet::from([
        "ACME-Central/ConfigDB",
        "ACME-Central/Cluster-Manager",
        "ACME-Central/Monitor",
        "ACME-Paint_Shop/Sync",
        "ACME-Paint_Shop/Monitor",
    ]);
    let config = HostConfig {
        filters: vec![("spBv1.0/#".to_owned(), QoS::AtLeastOnce)],
        rebirth_requests: false,
        ..HostConfig::of_contracts(Some(HostId::new(VIEWER_HOST).unwrap()))
    };
    let mut viewer = spawn_host(config, mqtt, Clock::new()).unwrap();
    // How many objects ConfigDB says there are, and those that were born.
    let (mut announced, mut objects) = (None, BTreeSet::new());
    let is_configdb = |node: &EdgeNodeDescriptor| node.to_string() == "ACME-Central/ConfigDB";
    let mut begun = tokio::time::Instant::now();
    while !unknown.is_empty() || announced != Some(objects.len() as u64) {
        let event = tokio::time::timeout_at(begun + COMPLETE_WITHIN, viewer.recv()).await;
        let missing = || format!("births of {unknown:?}, {} of {announced:?} objects", objects.len());
        let event = event.unwrap_or_else(|_| panic!("not in time: {}", missing())).unwrap();
        match event {
            HostEvent::Online => begun = tokio::time::Instant::now(),
            HostEvent::NodeBirth { node, metrics, .. } => {
                unknown.remove(node.to_string().as_str());
                if is_configdb(&node) {
                    objects.clear();
                    announced = number(&metrics, "Config/Objects");
                }
            }
            HostEvent::NodeData { node, metrics, .. } if is_configdb(&node) => {
                announced = number(&metrics, "Config/Objects").or(announced);
            }
            HostEvent::DeviceBirth { node, device, .. } if is_configdb(&node) => drop(objects.insert(device)),
            HostEvent::DeviceDeath { node, device, .. } if is_configdb(&node) => drop(objects.remove(&device)),
            HostEvent::RebirthRequested { .. } => panic!("a viewer may not command"),
            _ => {}
        }
    }
    viewer.stop().await;
}
