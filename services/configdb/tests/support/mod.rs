//! A Mosquitto, a ConfigDB on it and a reader with a replica: each test has its own.

#![allow(dead_code, reason = "the Mosquitto of all services' tests can do more")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::time::Duration;

use configdb_contract::{Change, ConfigReplica, RequestResult, Writer, WriterConfig, WriterOutput, configdb_node};
use configdb_schema::Organisation;
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use sparkplug::host::{HostConfig, HostRequest};
use sparkplug_mqtt::{Clock, HostHandle, MqttConfig, spawn_host};
use tempfile::TempDir;
use tokio::task::JoinHandle;

#[path = "../../../../sparkplug/mqtt/tests/support/mosquitto.rs"]
pub mod mosquitto;

/// Longest wait for anything; a slow machine is not a fault.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server, and where a ConfigDB on it keeps its state.
pub struct Broker {
    server: mosquitto::Mosquitto,
    directory: TempDir,
}

impl Broker {
    pub fn start() -> Self {
        Self { server: mosquitto::Mosquitto::start(), directory: tempfile::tempdir().unwrap() }
    }

    pub fn mqtt(&self) -> MqttConfig {
        self.server.config()
    }

    /// It ends without a word and comes back with nothing remembered.
    pub fn restart(&mut self) {
        self.server.kill();
        self.server.restart();
    }

    pub fn config(&self) -> configdb::Config {
        configdb::Config {
            mqtt: self.mqtt(),
            state_dir: self.directory.path().join("state").into(),
            ..configdb::Config::default()
        }
    }
}

pub struct Service {
    shutdown: Shutdown,
    pub health: Health,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Service {
    pub fn start(config: configdb::Config) -> Self {
        let (shutdown, health) = (Shutdown::new(), Health::new());
        let task = tokio::spawn(configdb::run(config, shutdown.clone(), health.clone()));
        Self { shutdown, health, task }
    }

    /// A clean stop.
    pub async fn stop(self) {
        self.shutdown.trigger();
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap().unwrap();
    }

    /// The loop ends wherever it is; nothing is finished.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// A Host Application with a replica and a writer.
pub struct Reader {
    pub host: HostHandle,
    pub replica: ConfigReplica,
    writer: Writer,
    clock: Clock,
    pub changes: Vec<Change>,
    pub answers: Vec<RequestResult>,
}

impl Reader {
    pub async fn start(broker: &Broker) -> Self {
        let node = configdb_node(&Organisation::new("ACME").unwrap());
        let clock = Clock::new();
        let host = spawn_host(HostConfig::of_contracts(None), &broker.mqtt(), clock).unwrap();
        host.request(HostRequest::Expect { node: node.clone() }).await.unwrap();
        let writer = Writer::new(WriterConfig::new(node.clone()), 1);
        Self { host, replica: ConfigReplica::new(node), writer, clock, changes: Vec::new(), answers: Vec::new() }
    }

    pub fn submit(&mut self, request: configdb_contract::WriteRequest) {
        self.writer.submit(request, self.clock.now()).unwrap();
    }

    pub fn replay(&mut self, request: configdb_contract::ReplayRequest) {
        self.writer.submit_replay(request, self.clock.now()).unwrap();
    }

    /// Submits and waits for the answer.
    pub async fn write(&mut self, request: configdb_contract::WriteRequest) -> RequestResult {
        let id = request.id.clone();
        self.submit(request);
        self.until("an answer", |reader| reader.answers.iter().any(|answer| answer.id == id)).await;
        let at = self.answers.iter().position(|answer| answer.id == id).unwrap();
        self.answers.remove(at)
    }

    /// Lets things happen until the condition holds.
    pub async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            while let Some(output) = self.writer.poll_output() {
                match output {
                    WriterOutput::Send(request) => self.host.request(request).await.unwrap(),
                    WriterOutput::Answered(result) => self.answers.push(result),
                    WriterOutput::GaveUp { id, attempts, .. } => panic!("no answer to {id} after {attempts} attempts"),
                }
            }
            if holds(self) {
                return;
            }
            let deadline = self.writer.next_deadline();
            let clock = self.clock;
            tokio::select! {
                event = self.host.recv() => self.replica.on_event(&event.unwrap()),
                () = clock.sleep_until(deadline) => self.writer.handle_timeout(clock.now()),
                () = tokio::time::sleep_until(end) => panic!("waited in vain for {what}; {} objects born, not ready: {:?}",
                    self.replica.objects().count(), self.replica.is_complete()),
            }
            while let Some(change) = self.replica.poll_change() {
                self.writer.on_change(&change, clock.now());
                self.changes.push(change);
            }
        }
    }

    pub async fn complete(&mut self) {
        self.until("a complete replica", |reader| reader.replica.is_complete()).await;
    }
}
