//! The whole program on a Mosquitto, received and commanded by a Host Application; the host that it reads is a directory of the test.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]
#![allow(dead_code, reason = "the Mosquitto of all services' tests can do more")]

#[path = "../../../sparkplug/mqtt/tests/support/mosquitto.rs"]
mod mosquitto;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mosquitto::Mosquitto;
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::{BdSeq, EdgeNodeDescriptor, Metric};
use sparkplug_mqtt::{Clock, HostHandle};
use tempfile::TempDir;

const NODE: &str = "ACME-Paint/Oven_1";
/// Longer than any step takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A host as Linux shows it, a place for the agent's state, and a broker.
struct Scene {
    broker: Mosquitto,
    directory: TempDir,
    host: HostHandle,
}

/// The program, killed when the test ends.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Scene {
    fn start() -> Self {
        let broker = Mosquitto::start();
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("proc")).unwrap();
        for (zone, temperature) in [("thermal_zone0", "31000\n"), ("thermal_zone1", "48250\n"), ("cooling_device0", "")]
        {
            let zone = directory.path().join("sys/class/thermal").join(zone);
            std::fs::create_dir_all(&zone).unwrap();
            std::fs::write(zone.join("temp"), temperature).unwrap();
        }
        let config = HostConfig { rebirth_jitter: Duration::from_millis(10), ..HostConfig::of_contracts(None) };
        let host = sparkplug_mqtt::spawn_host(config, &broker.config(), Clock::new()).unwrap();
        let scene = Self { broker, directory, host };
        scene.has_load("0.25");
        scene.write("meminfo", "MemTotal: 2048 kB\nMemAvailable: 1024 kB\n");
        scene.write("uptime", "77.5 1.0\n");
        scene
    }

    fn write(&self, file: &str, text: &str) {
        let proc_dir = self.directory.path().join("proc");
        // Never half of it.
        std::fs::write(proc_dir.join("new"), text).unwrap();
        std::fs::rename(proc_dir.join("new"), proc_dir.join(file)).unwrap();
    }

    fn has_load(&self, load: &str) {
        self.write("loadavg", &format!("{load} 0.5 0.75 1/2 3\n"));
    }

    fn state_dir(&self) -> std::path::PathBuf {
        self.directory.path().join("state")
    }

    /// The program with the state directory named relative to where it works.
    fn agent(&self) -> Agent {
        let configuration = format!(
            "cluster = \"Paint\"\nname = \"Oven_1\"\nhostname = \"oven\"\nuuid = \"{}\"\ninterval_ms = 100\nstate_dir = \"state\"\nproc_dir = \"proc\"\nsys_dir = \"sys\"\n[mqtt]\nservers = [\"{}\"]\n",
            uuid::Uuid::from_u128(7),
            self.broker.url()
        );
        let file = self.directory.path().join("agent.toml");
        std::fs::write(&file, configuration).unwrap();
        Agent(program(self.directory.path()).arg("--config").arg(file).spawn().unwrap())
    }

    /// The first event of the node for which there is an answer.
    async fn until<T>(&mut self, what: &str, answer: impl Fn(&HostEvent) -> Option<T>) -> T {
        let received = async {
            loop {
                let event = self.host.recv().await.expect("the host application runs");
                if let Some(found) = answer(&event) {
                    return found;
                }
            }
        };
        let Ok(found) = tokio::time::timeout(PATIENCE, received).await else { panic!("waited too long for {what}") };
        found
    }

    /// The next births of node and device.
    async fn births(&mut self) -> (BdSeq, Vec<Metric>, Vec<Metric>) {
        let (bd_seq, node) = self
            .until("NBIRTH", |event| match event {
                HostEvent::NodeBirth { bd_seq, metrics, .. } => Some((*bd_seq, metrics.to_vec())),
                _ => None,
            })
            .await;
        let device = self
            .until("DBIRTH", |event| match event {
                HostEvent::DeviceBirth { device, metrics, .. } if device.as_str() == "host" => Some(metrics.to_vec()),
                _ => None,
            })
            .await;
        (bd_seq, node, device)
    }

    /// The next data with another status.
    async fn status(&mut self) -> Vec<Metric> {
        self.until("DDATA with a status", |event| match event {
            HostEvent::DeviceData { metrics, .. } if metrics.iter().any(|metric| &*metric.name == "Status/State") => {
                Some(metrics.to_vec())
            }
            _ => None,
        })
        .await
    }

    async fn death(&mut self) {
        self.until("NDEATH", |event| matches!(event, HostEvent::NodeDeath { .. }).then_some(())).await;
    }
}

fn program(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sparkfleet-edge-agent"));
    command.current_dir(directory).stdin(Stdio::null());
    command
}

fn metric<'a>(metrics: &'a [Metric], name: &str) -> &'a Metric {
    metrics.iter().find(|metric| &*metric.name == name).unwrap_or_else(|| panic!("{name} is not in {metrics:?}"))
}

#[tokio::test]
async fn a_host_is_born_with_units_publishes_its_changes_and_is_born_again_when_asked() {
    let mut scene = Scene::start();
    let _agent = scene.agent();
    let (_, node, device) = scene.births().await;
    assert_eq!(metric(&node, "Node Properties/Host").as_str(), Some("oven"));
    assert!(node.iter().any(|metric| &*metric.name == "Instance_UUID"), "{node:?}");
    assert_eq!(metric(&device, "Load/1_min").value, Some(0.25.into()));
    for (name, value, unit) in
        [("Memory/Total", 2_097_152, "B"), ("Memory/Available", 1_048_576, "B"), ("Host/Uptime", 77, "s")]
    {
        let born = metric(&device, name);
        let has = born.properties.get("engUnit").and_then(|unit| unit.as_str());
        assert_eq!((born.as_u64(), has), (Some(value), Some(unit)), "{name}");
    }
    let temperature = metric(&device, "Host/Temperature");
    let unit = temperature.properties.get("engUnit").and_then(|unit| unit.as_str());
    assert_eq!((temperature.value.clone(), unit), (Some(48.25.into()), Some("°C")));
    let disk = ["Disk/Total", "Disk/Available"].map(|name| metric(&device, name).as_u64().unwrap());
    assert!(disk[0] >= disk[1] && disk[1] > 0, "the disk that the tests write on: {disk:?}");

    scene.has_load("4.5");
    let changed = scene
        .until("DDATA", |event| match event {
            HostEvent::DeviceData { metrics, .. } => {
                // Others write on the same disk.
                let others = metrics.iter().filter(|metric| &*metric.name != "Disk/Available");
                Some(others.cloned().collect::<Vec<_>>()).filter(|metrics| !metrics.is_empty())
            }
            _ => None,
        })
        .await;
    assert_eq!(changed.len(), 1, "what has not changed is published: {changed:?}");
    assert_eq!(metric(&changed, "Load/1_min").value, Some(4.5.into()));

    let state = |metrics: &[Metric]| metric(metrics, "Status/State").as_str().map(str::to_owned);
    assert_eq!(state(&device).as_deref(), Some("measured"));
    let since = metric(&device, "Status/Since").as_u64().unwrap();
    scene.write("meminfo", "nothing\n");
    let failed = scene.status().await;
    assert_eq!(state(&failed).as_deref(), Some("not-measured"));
    assert_eq!(metric(&failed, "Status/Reason").as_str(), Some("meminfo has no MemTotal"));
    assert!(metric(&failed, "Status/Since").as_u64().unwrap() > since);
    scene.write("meminfo", "MemTotal: 2048 kB\nMemAvailable: 1024 kB\n");
    let again = scene.status().await;
    assert_eq!((state(&again).as_deref(), &metric(&again, "Status/Reason").value), (Some("measured"), &None));

    let node = EdgeNodeDescriptor::parse("ACME-Paint", "Oven_1").unwrap();
    assert_eq!(node.to_string(), NODE);
    scene.host.request(HostRequest::Rebirth { node }).await.unwrap();
    let (_, _, device) = scene.births().await;
    assert_eq!(metric(&device, "Load/1_min").value, Some(4.5.into()));
    assert_eq!(metric(&device, "Host/Uptime").properties.get("engUnit").and_then(|unit| unit.as_str()), Some("s"));
}

#[tokio::test]
async fn a_killed_agent_dies_by_its_will_and_the_next_one_continues_counting_its_sessions() {
    let mut scene = Scene::start();
    let agent = scene.agent();
    let (first, ..) = scene.births().await;
    drop(agent);
    scene.death().await;
    let _agent = scene.agent();
    let (second, ..) = scene.births().await;
    assert_eq!(second, first.next(), "the count of sessions is kept in {}", scene.state_dir().display());
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(scene.state_dir()).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_wrong_configuration_ends_the_start_and_names_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let output = program(directory.path()).env("SPARKFLEET__CLUSTER", "a b").stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(service_runtime::exit::CONFIG.into()), "{said}");
    assert!(said.contains("cluster: "), "{said}");
}
