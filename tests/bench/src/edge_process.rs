//! The edge process as it is shipped (profile `edge`): its size, how soon it is born, what it takes when nothing happens. Measured only if it is there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use e2e::process::Process;
use simulator::cluster::{ClusterSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use sparkplug::session::QoS;
use sparkplug_mqtt::{Clock, ListenerEvent, MqttConfig};

use crate::central_services::{cpu_seconds, resident_mib};
use crate::figures::{self, Distribution, Table, ms};
use crate::latency::start_broker;

/// Starts that are measured.
const STARTS: usize = 5;
/// How long the process is idle before its memory is read.
const IDLE: Duration = Duration::from_secs(5);
/// Longest wait for a birth.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the measurement, or says why not.
///
/// # Errors
/// Something does not run.
pub async fn run() -> anyhow::Result<()> {
    let program = program();
    let Ok(file) = fs::metadata(&program) else {
        figures::say(&format!(
            "\n## edge\n\nNot measured: there is no {}; build it with `cargo build --profile edge -p sparkfleet-edge`.",
            program.display()
        ));
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let broker = start_broker().await?;
    let mqtt = MqttConfig { servers: vec![broker.url()], ..MqttConfig::default() };
    let spec = ClusterSpec { flux: false, sealed_secrets: false, ..ClusterSpec::new("Bench") };
    let cluster = SimulatedCluster::start(spec, Charts::default()).await?;
    let config = configuration(directory.path(), &broker.url(), &cluster.url())?;
    let filter = vec![("spBv1.0/ACME-Bench/NBIRTH/Sync".to_owned(), QoS::AtMostOnce)];
    let mut listener = sparkplug_mqtt::spawn_listener(filter, &mqtt, Clock::new())?;
    let ended = "the listener's session has ended";
    while !matches!(listener.recv().await.context(ended)?, ListenerEvent::Online) {}
    let mut births = Distribution::default();
    let mut running = None;
    for _ in 0..STARTS {
        drop(running.take());
        let start = Instant::now();
        let arguments = ["--config", &config];
        running = Some(Process::start("sparkfleet-edge", &program, &arguments, directory.path()));
        let birth = async {
            while !matches!(listener.recv().await.context(ended)?, ListenerEvent::Message { .. }) {}
            anyhow::Ok(start.elapsed())
        };
        births.push(tokio::time::timeout(PATIENCE, birth).await.context("the NBIRTH of the edge process")??);
    }
    let process = running.context("the edge process was started")?;
    let before = cpu_seconds(process.id())?;
    tokio::time::sleep(IDLE).await;
    let (memory, busy) = (resident_mib(process.id())?, cpu_seconds(process.id())? - before);
    let about = format!(
        "{} ({STARTS} starts; edge sync and edge monitor in one process, simulated Kubernetes with one host, embedded broker).",
        program.display()
    );
    let table = Table::begin("edge", &about, &["what", "value"]);
    let row = |what: &str, value: String| table.row(&[what.to_owned(), value]);
    row("size of the executable", format!("{} bytes", file.len()));
    row("resident memory, idle", format!("{memory:.1} MiB"));
    row(&format!("CPU in {} idle seconds", IDLE.as_secs()), format!("{busy:.2} s"));
    row("start to NBIRTH, p50", ms(births.quantile(50)));
    row("start to NBIRTH, max", ms(births.quantile(100)));
    drop(process);
    listener.stop().await;
    cluster.stop().await;
    broker.stop().await;
    Ok(())
}

/// Where cargo puts it: beside the directory of this executable's profile.
fn program() -> PathBuf {
    let target = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.parent()?.to_owned()));
    target.unwrap_or_default().join("edge/sparkfleet-edge")
}

fn configuration(directory: &Path, broker: &str, kubernetes: &str) -> anyhow::Result<String> {
    let file = directory.join("edge.toml");
    let text = format!(
        "organisation = \"ACME\"\nsimulated = true\nstate_dir = \"{}\"\n[cluster]\nname = \"Bench\"\nuuid = \"{}\"\n[kubernetes]\nurl = \"{kubernetes}\"\n[mqtt]\nservers = [\"{broker}\"]\n",
        directory.display(),
        uuid::Uuid::from_u128(1),
    );
    fs::write(&file, text)?;
    Ok(file.display().to_string())
}
