//! What the control plane costs as the fleet grows: its services as processes of their own, the broker, the edges and the observer in this one.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use configdb_schema::Organisation;
use e2e::central_services::{ORGANISATION, service_process_with};
use e2e::process::Process;
use sparkfleet_up::broker::Broker;
use sparkplug::session::QoS;
use sparkplug_mqtt::{Clock, ListenerEvent, ListenerHandle, MqttConfig};
use tempfile::TempDir;

use crate::figures::{self, Table, ratio};
use crate::fleet::Fleet;
use crate::latency::{change, start_broker};
use crate::operator::{Operator, Plant, plants};

/// Processor time in `/proc` is counted in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;
/// A fleet in which no message has come for so long is quiet.
const QUIET: Duration = Duration::from_millis(500);

/// Runs the measurement at each of `sizes`, with `changes` changes of one cluster at each.
///
/// # Errors
/// Something does not run.
pub async fn run(sizes: &[usize], changes: usize) -> anyhow::Result<()> {
    let about = format!(
        "ConfigDB (SQLite), cluster manager, Identity and git server as processes, of which the first two are measured; clusters with one deployment each, light edges with an instant Kubernetes and without heartbeats; {}. Memory is VmRSS \
         and CPU is user + system time when all clusters are set up and agreed. To linear: the growth since the smallest size, by the growth of the number of clusters; 1 is linear, \
         less is better. One change: the mean of {changes} changes of one and the same cluster, one after another; messages as one subscriber of everything counts them, from the \
         request to the last report. Both must not grow with the number of clusters.",
        figures::profile(),
    );
    let heads = [
        "clusters",
        "ConfigDB MiB",
        "manager MiB",
        "set up after",
        "ConfigDB CPU s",
        "manager CPU s",
        "memory to linear",
        "CPU to linear",
        "messages of one change",
        "CPU ms of one change",
    ];
    let table = Table::begin("central", &about, &heads);
    let mut first: Option<Sample> = None;
    for &clusters in sizes {
        let sample = measure(clusters, changes).await.with_context(|| format!("with {clusters} clusters"))?;
        let first = first.get_or_insert(sample);
        let to_linear = |value: fn(&Sample) -> f64| {
            let growth = sample.clusters / first.clusters;
            if growth > 1.0 { ratio(value(&sample) / value(first), growth) } else { "1".to_owned() }
        };
        table.row(&[
            format!("{clusters}"),
            format!("{:.1}", sample.memory[0]),
            format!("{:.1}", sample.memory[1]),
            format!("{:.1} s", sample.set_up.as_secs_f64()),
            format!("{:.2}", sample.cpu[0]),
            format!("{:.2}", sample.cpu[1]),
            to_linear(|sample| sample.memory.iter().sum()),
            to_linear(|sample| sample.cpu.iter().sum()),
            format!("{:.1}", sample.change_messages),
            format!("{:.1}", sample.change_cpu_ms),
        ]);
    }
    Ok(())
}

/// What was measured at one size; pairs are ConfigDB and cluster manager.
#[derive(Debug, Clone, Copy)]
struct Sample {
    clusters: f64,
    set_up: Duration,
    memory: [f64; 2],
    cpu: [f64; 2],
    change_messages: f64,
    change_cpu_ms: f64,
}

/// The control plane with a fleet that is set up and agreed: the central services as processes, the broker and light edges in this one.
#[derive(Debug)]
pub struct ControlPlane {
    /// ConfigDB and cluster manager.
    pub services: [Process; 2],
    /// The clusters, each with one deployment.
    pub plants: Vec<Plant>,
    /// Who has made them.
    pub operator: Operator,
    /// How long that took.
    pub set_up: Duration,
    /// How one comes to the broker.
    pub mqtt: MqttConfig,
    /// Without them no cluster is set up.
    beside: [Process; 2],
    fleet: Fleet,
    /// The embedded one, if no other was named.
    broker: Option<Broker>,
    _directory: TempDir,
}

impl ControlPlane {
    /// Starts it, and makes `clusters` clusters. `server`: an MQTT server that runs already; None: the embedded one is started.
    ///
    /// # Errors
    /// Something does not run.
    pub async fn set_up(clusters: usize, server: Option<SocketAddr>) -> anyhow::Result<Self> {
        let organisation = Organisation::new(ORGANISATION)?;
        let directory = tempfile::tempdir()?;
        let (broker, address) = match server {
            Some(address) => (None, address),
            None => {
                let broker = start_broker().await?;
                let address = broker.local_addr();
                (Some(broker), address)
            }
        };
        let mqtt = MqttConfig { servers: vec![format!("mqtt://{address}")], ..MqttConfig::default() };
        let start = |name: &str, head: &str| {
            let quiet = [("SPARKFLEET_LOG", "warn")];
            service_process_with(name, head, "", address, directory.path(), &quiet)
        };
        let services = [start("configdb", ""), start("cluster-manager", "")];
        let beside = [start("identity", ""), start("git-server", "listen = \"127.0.0.1:0\"\n")];
        let plants = plants(&organisation, clusters)?;
        let fleet = Fleet::start(&plants, &mqtt);
        let mut operator = Operator::open(&organisation, &mqtt).await?;
        let started = Instant::now();
        operator.create(&plants).await?;
        operator.all_agreed(&plants).await?;
        let set_up = started.elapsed();
        Ok(Self { services, plants, operator, set_up, mqtt, beside, fleet, broker, _directory: directory })
    }

    /// Stops all.
    ///
    /// # Errors
    /// An edge had failed.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.operator.close().await;
        self.fleet.stop().await?;
        drop((self.services, self.beside));
        if let Some(broker) = self.broker {
            broker.stop().await;
        }
        Ok(())
    }
}

async fn measure(clusters: usize, changes: usize) -> anyhow::Result<Sample> {
    let mut plane = ControlPlane::set_up(clusters, None).await?;
    let mut listener =
        sparkplug_mqtt::spawn_listener(vec![("spBv1.0/#".to_owned(), QoS::AtMostOnce)], &plane.mqtt, Clock::new())?;
    messages_until_quiet(&mut listener).await?;
    let (memory, cpu) = (each(&plane.services, resident_mib)?, each(&plane.services, cpu_seconds)?);
    for number in 1..=changes {
        change(&mut plane.operator, &plane.plants[0], u64::try_from(number)?).await?;
    }
    let messages = messages_until_quiet(&mut listener).await?;
    let after = each(&plane.services, cpu_seconds)?;
    listener.stop().await;
    let set_up = plane.set_up;
    plane.stop().await?;
    let per_change = 1.0 / as_f64(changes);
    let spent: f64 = after.iter().zip(cpu).map(|(after, before)| after - before).sum();
    Ok(Sample {
        clusters: as_f64(clusters),
        set_up,
        memory,
        cpu,
        change_messages: as_f64(messages) * per_change,
        change_cpu_ms: spent * 1000.0 * per_change,
    })
}

/// Messages that have come, and come until the fleet is quiet.
async fn messages_until_quiet(listener: &mut ListenerHandle) -> anyhow::Result<usize> {
    let mut messages = 0;
    while let Ok(event) = tokio::time::timeout(QUIET, listener.recv()).await {
        match event.context("the listener's session has ended")? {
            ListenerEvent::Message { .. } => messages += 1,
            ListenerEvent::Lost { topic } => anyhow::bail!("messages of {topic} were not counted"),
            ListenerEvent::Online | ListenerEvent::Offline { .. } | ListenerEvent::Stopped => {}
        }
    }
    Ok(messages)
}

fn each(services: &[Process; 2], of: fn(u32) -> anyhow::Result<f64>) -> anyhow::Result<[f64; 2]> {
    Ok([of(services[0].id())?, of(services[1].id())?])
}

/// Resident memory of a process.
///
/// # Errors
/// It does not run.
pub fn resident_mib(process: u32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}

/// User and system time of a process.
///
/// # Errors
/// It does not run.
pub fn cpu_seconds(process: u32) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may hold spaces; user and system time are the 12th and 13th field after it.
    let (_, fields) = stat.rsplit_once(')').context("the name in stat")?;
    let mut ticks = 0.0;
    for field in fields.split_whitespace().skip(11).take(2) {
        ticks += field.parse::<f64>()?;
    }
    Ok(ticks / TICKS_PER_SECOND)
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^53")]
const fn as_f64(count: usize) -> f64 {
    count as f64
}
