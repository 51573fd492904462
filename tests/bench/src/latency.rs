//! From the change of a deployment's entry to the report that it is applied, through real services and a real MQTT server in one process.
//!
//! ```text
//! operator -DCMD-> ConfigDB (SQLite, synced) -DDATA-> cluster manager (renders) -NCMD index-> edge sync (saves it) -NDATA-> cluster manager
//!          cluster manager -DCMD manifests-> edge sync (instant Kubernetes) -DDATA-> operator
//! ```
//!
//! Six messages in a row each pass the server once, as three raw round trips do: that is the limit which the figures are compared with. What the cluster manager waits
//! between two comparisons of one cluster is in the figures.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use configdb_contract::configdb_node;
use configdb_schema::Organisation;
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use sparkfleet_up::broker::{Broker, BrokerConfig};
use sparkplug::session::QoS;
use sparkplug_mqtt::{BdSeqStore, Clock, ListenerEvent, MqttConfig};
use tokio::task::JoinSet;

use crate::figures::{self, Distribution, HEADS, Table, ms, ratio};
use crate::fleet::Fleet;
use crate::operator::{Operator, Plant, plants};
use crate::raw;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Edge clusters, each with one deployment.
    pub clusters: usize,
    /// Changes, one after another.
    pub changes: usize,
}

/// Runs the measurement.
///
/// # Errors
/// Something does not run.
pub async fn run(plan: Plan) -> anyhow::Result<()> {
    let organisation = Organisation::new("ACME")?;
    let directory = tempfile::tempdir()?;
    let broker = start_broker().await?;
    let mqtt = MqttConfig { servers: vec![broker.url()], ..MqttConfig::default() };
    let shutdown = Shutdown::new();
    let services = start_central_services(&organisation, directory.path(), &mqtt, &shutdown).await?;
    let plants = plants(&organisation, plan.clusters)?;
    let mut fleet = Fleet::start(&plants, &mqtt);
    let mut operator = Operator::open(&organisation, &mqtt).await?;
    let started = Instant::now();
    operator.create(&plants).await?;
    operator.all_agreed(&plants).await?;
    let set_up = started.elapsed();
    let bytes = command_bytes(&mut operator, &plants[0], &mqtt).await?;
    fleet.applied();
    let measured = change_all(&mut operator, &mut fleet, &plants, plan.changes).await?;
    let limit = raw::round_trips(broker.local_addr(), bytes, plan.changes.max(100)).await?;
    show(plan, set_up, bytes, &measured, &limit);
    operator.close().await;
    fleet.stop().await?;
    stop(services, &shutdown).await?;
    broker.stop().await;
    Ok(())
}

/// The embedded broker on a free port.
///
/// # Errors
/// It does not start.
pub async fn start_broker() -> anyhow::Result<Broker> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Ok(Broker::start(BrokerConfig { listen, ..BrokerConfig::default() }).await?)
}

/// ConfigDB on SQLite, the cluster manager, Identity and the git server, in this process. A cluster that no one certifies, or whose repository no one serves, is not set up.
async fn start_central_services(
    organisation: &Organisation,
    directory: &Path,
    mqtt: &MqttConfig,
    shutdown: &Shutdown,
) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
    let store = configdb::store::SqliteStore::open(&directory.join("configdb.sqlite")).await?;
    let manager = cluster_manager::Config {
        organisation: organisation.as_str().to_owned(),
        state_dir: directory.join("cluster-manager").into(),
        mqtt: mqtt.clone(),
        ..cluster_manager::Config::default()
    };
    manager.state_dir.create()?;
    let bd_seq = BdSeqStore::in_directory(directory, &configdb_node(organisation));
    let stop = shutdown.child();
    let config = configdb::Config {
        organisation: organisation.as_str().to_owned(),
        state_dir: directory.join("configdb").into(),
        mqtt: mqtt.clone(),
        ..configdb::Config::default()
    };
    config.state_dir.create()?;
    let identity = identity::Config {
        organisation: organisation.as_str().to_owned(),
        state_dir: directory.join("identity").into(),
        mqtt: mqtt.clone(),
        ..identity::Config::default()
    };
    let git_server = git_server::Config {
        organisation: organisation.as_str().to_owned(),
        state_dir: directory.join("git-server").into(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        mqtt: mqtt.clone(),
        ..git_server::Config::default()
    };
    let mut services = JoinSet::new();
    services.spawn(identity::run(identity, shutdown.child(), Health::new()));
    services.spawn(git_server::run(git_server, shutdown.child(), Health::new()));
    services.spawn(async move { configdb::run_on(store, &config, bd_seq, stop, Health::new()).await });
    services.spawn(cluster_manager::run(manager, shutdown.child(), Health::new()));
    Ok(services)
}

async fn stop(mut services: JoinSet<anyhow::Result<()>>, shutdown: &Shutdown) -> anyhow::Result<()> {
    shutdown.trigger();
    while let Some(ended) = services.join_next().await {
        ended.context("a service panicked")??;
    }
    Ok(())
}

/// Size of the command that carries the manifests of one deployment.
async fn command_bytes(operator: &mut Operator, plant: &Plant, mqtt: &MqttConfig) -> anyhow::Result<usize> {
    let filter = format!("spBv1.0/{}/DCMD/{}/#", plant.sync.group, plant.sync.edge_node);
    let mut listener = sparkplug_mqtt::spawn_listener(vec![(filter, QoS::AtMostOnce)], mqtt, Clock::new())?;
    let ended = "the listener's session has ended";
    while !matches!(listener.recv().await.context(ended)?, ListenerEvent::Online) {}
    change(operator, plant, u64::MAX).await?;
    let bytes = loop {
        if let ListenerEvent::Message { payload, .. } = listener.recv().await.context(ended)? {
            break payload.len();
        }
    };
    listener.stop().await;
    Ok(bytes)
}

/// Changes a deployment; yields when the change was asked for, answered by ConfigDB, and reported by the edge.
///
/// # Errors
/// It is refused, or no report comes.
pub async fn change(operator: &mut Operator, plant: &Plant, number: u64) -> anyhow::Result<[Instant; 3]> {
    let before = operator.applied(plant).context("what is changed has been applied")?;
    let asked = Instant::now();
    operator.change(plant, number).await?;
    operator.written(1).await?;
    let answered = Instant::now();
    let done = |seen: &Operator| seen.applied(plant).filter(|digest| *digest != before).map(|_| ());
    operator.until("the report of a change", done).await?;
    Ok([asked, answered, Instant::now()])
}

/// Times since a change was asked for.
#[derive(Debug, Default)]
struct Measured {
    answered: Distribution,
    applied: Distribution,
    reported: Distribution,
}

async fn change_all(
    operator: &mut Operator,
    fleet: &mut Fleet,
    plants: &[Plant],
    changes: usize,
) -> anyhow::Result<Measured> {
    let mut measured = Measured::default();
    for number in 0..changes {
        // A prime stride: neighbours in the model are not changed one after another.
        let plant = &plants[number * 7919 % plants.len()];
        let [asked, answered, reported] = change(operator, plant, number as u64 + 1).await?;
        let applied = fleet.applied().get(&plant.deployment).copied().context("what is reported was applied")?;
        measured.answered.push(answered - asked);
        measured.applied.push(applied - asked);
        measured.reported.push(reported - asked);
    }
    Ok(measured)
}

fn show(plan: Plan, set_up: Duration, bytes: usize, measured: &Measured, limit: &Distribution) {
    let about = format!(
        "{} clusters with one deployment each, {} changes one after another; {}. ConfigDB on SQLite, cluster manager, Identity, git server, the embedded broker, {} edges (real edge sync state and \
         Edge Node session) and the observer share one process. Kubernetes is instant: an in-process model that answers at once, without Flux. All clusters were created, set up \
         and agreed in {:.1} s. Raw: {bytes} bytes, the size of the command with the manifests, there and back through the same broker after the changes, all sessions open. A \
         change passes the broker six times in a row (write, replica, index, report, manifests, report), as three raw round trips do; the cluster manager compares a cluster at \
         most every 50 ms, for which a single change does not wait.",
        plan.clusters,
        measured.reported.len(),
        figures::profile(),
        plan.clusters,
        set_up.as_secs_f64(),
    );
    let heads: Vec<&str> = ["since the change was asked for"].into_iter().chain(HEADS).collect();
    let table = Table::begin("latency", &about, &heads);
    let row = |name: &str, times: &Distribution| {
        let cells = times.quantiles().map(ms);
        table.row(&[vec![name.to_owned()], cells.to_vec()].concat());
    };
    row("answered by ConfigDB, committed", &measured.answered);
    row("applied at the edge", &measured.applied);
    row("reported back to a replica", &measured.reported);
    row("raw MQTT round trip", limit);
    let pairs = measured.reported.quantiles().into_iter().zip(limit.quantiles());
    let ratios = pairs.map(|(own, raw)| ratio(own.as_secs_f64(), 3.0 * raw.as_secs_f64()));
    table.row(&["reported / three raw round trips".to_owned()].into_iter().chain(ratios).collect::<Vec<_>>());
}
