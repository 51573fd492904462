//! The manager against a git server that speaks the contract over a real broker and keeps its copy with real git.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cluster_manager::config::GitConfig;
use cluster_manager::{Config, run};
use configdb_schema::known::repository::HELM_CHARTS;
use git_server_contract::pack::{PART_BYTES_MAX, Received};
use git_server_contract::push::RefChange;
use git_server_contract::{
    DesiredRepository, GitNode, PackPart, PackReceiver, PushAnswer, PushDevice, RepositoryCopy, names,
};
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use sparkplug::TypedMetrics as _;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, spawn_edge_node};
use uuid::Uuid;

use crate::mosquitto::Mosquitto;

const LIMIT: Duration = Duration::from_secs(60);
const PUSH: Uuid = Uuid::from_u128(0x9A);
const MAIN: &str = "refs/heads/main";

fn git(directory: &Path, arguments: &[&str], input: &[u8]) -> Option<String> {
    use std::io::Write as _;
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*", "--git-dir"]).arg(directory).args(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// The git server.
struct Git {
    node: EdgeNodeHandle,
    directory: std::path::PathBuf,
    metrics: GitNode,
    desired: Option<DesiredRepository>,
    shown: RepositoryCopy,
    receiver: PackReceiver,
    parts: usize,
}

impl Git {
    fn start(broker: &Mosquitto, state_dir: &Path) -> Self {
        let directory = state_dir.join("copy.git");
        assert!(git(&directory, &["init", "--quiet", "--bare"], b"").is_some());
        let metrics = GitNode { url: "http://git".to_owned(), ..GitNode::default() };
        let config = EdgeNodeConfig::for_any_reader(names::node("ACME").unwrap());
        let (mqtt, born) = (broker.config(), metrics.to_metrics());
        let node = spawn_edge_node(config, born, &mqtt, BdSeqStore::Memory, Clock::new()).unwrap();
        let (desired, shown, receiver) = (None, RepositoryCopy::default(), PackReceiver::default());
        Self { node, directory, metrics, desired, shown, receiver, parts: 0 }
    }

    async fn count(&self) {
        let metrics = self.metrics.to_metrics();
        self.node.update(NodeUpdate::Set { device: None, metrics }).await.unwrap();
    }

    async fn show(&self) {
        let device = Some(names::repository_device(HELM_CHARTS));
        self.node.update(NodeUpdate::Set { device, metrics: self.shown.to_metrics() }).await.unwrap();
    }

    fn apply(&mut self) {
        let Some(desired) = &self.desired else { return };
        let is_there = |id: &String| git(&self.directory, &["cat-file", "-e", id], b"").is_some();
        self.shown.missing = !desired.refs.values().all(is_there);
        if !self.shown.missing {
            for (name, id) in &desired.refs {
                git(&self.directory, &["update-ref", name, id], b"").unwrap();
            }
            self.shown.refs.clone_from(&desired.refs);
            self.shown.applied = Some(desired.digest());
        }
    }

    /// Takes commands until the copy is as wanted, or a push is answered for good.
    async fn serve(&mut self) -> Option<PushAnswer> {
        loop {
            let event = tokio::time::timeout(LIMIT, self.node.recv()).await.expect("a command in time").unwrap();
            let NodeEvent::Command { device, metrics, .. } = event else { continue };
            if let Some(desired) = DesiredRepository::from_metrics(&metrics) {
                let desired = desired.unwrap();
                assert_eq!(desired.repository, HELM_CHARTS);
                let is_new = self.desired.is_none();
                self.shown.version = desired.version;
                self.desired = Some(desired);
                self.apply();
                if is_new {
                    self.metrics.repositories = 1;
                    self.count().await;
                    let device = names::repository_device(HELM_CHARTS);
                    let metrics = self.shown.to_metrics();
                    self.node.update(NodeUpdate::DeviceBirth { device, metrics }).await.unwrap();
                } else {
                    self.show().await;
                }
            } else if let Some(part) = PackPart::from_metrics(&metrics) {
                self.parts += 1;
                if self.parts == 2 {
                    // It is lost on the way.
                    continue;
                }
                if let Received::Whole(pack) = self.receiver.receive(&part.unwrap()) {
                    let index = ["index-pack", "--strict", "--stdin", "--fix-thin"];
                    assert!(git(&self.directory, &index, pack.bytes()).is_some());
                    self.apply();
                }
                let progress = self.receiver.progress();
                self.shown.pack = progress.map(|(digest, _)| digest.to_owned());
                self.shown.received = progress.map_or(0, |(_, received)| received);
                self.show().await;
            } else if let Some(answer) = PushAnswer::from_metrics(&metrics) {
                assert_eq!(device, Some(names::push_device(PUSH)));
                let answer = answer.unwrap();
                if answer.outcome.is_some() {
                    return Some(answer);
                }
            }
            if self.shown.applied.is_some() && self.metrics.pushes == 0 {
                return None;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_reach_the_git_server_in_parts_and_a_push_is_answered() {
    let broker = Mosquitto::start();
    let state_dir = tempfile::tempdir().unwrap();
    let charts = tempfile::tempdir().unwrap();
    let mut noise = vec![0; 3 * PART_BYTES_MAX];
    aws_lc_rs::rand::fill(&mut noise).unwrap();
    std::fs::write(charts.path().join("noise"), noise).unwrap();
    let config = Config {
        state_dir: state_dir.path().into(),
        mqtt: broker.config(),
        git: GitConfig { charts_dir: Some(charts.path().to_owned()), ..GitConfig::default() },
        ..Config::default()
    };
    let shutdown = Shutdown::new();
    let running = tokio::spawn(run(config, shutdown.clone(), Health::new()));
    let mut server = Git::start(&broker, state_dir.path());
    assert_eq!(server.serve().await, None);
    let original = state_dir.path().join("git").join(format!("{HELM_CHARTS}.git"));
    let main = git(&original, &["rev-parse", MAIN], b"").unwrap();
    assert_eq!(git(&server.directory, &["rev-parse", MAIN], b"").as_ref(), Some(&main));
    assert!(git(&server.directory, &["fsck", "--strict"], b"").is_some());
    assert!((4..12).contains(&server.parts), "{}", server.parts);
    let desired = server.desired.clone().unwrap();
    assert!(desired.no_push.unwrap().contains("git.charts_dir") && desired.password.is_none());
    assert_eq!(desired.place.unwrap().path, "shared/helm");

    let change = RefChange { before: Some(main), after: None };
    let push = PushDevice {
        repository: HELM_CHARTS,
        from: "10.0.0.7".to_owned(),
        credential: Arc::from([1, 2, 3]),
        refs: [(MAIN.to_owned(), change)].into(),
        ..PushDevice::default()
    };
    server.metrics.pushes = 1;
    server.count().await;
    let device = names::push_device(PUSH);
    server.node.update(NodeUpdate::DeviceBirth { device, metrics: push.to_metrics() }).await.unwrap();
    let outcome = server.serve().await.unwrap().outcome.unwrap();
    assert!(outcome.unwrap_err().contains("cannot open the credential"));

    server.node.stop().await;
    shutdown.trigger();
    running.await.unwrap().unwrap();
}
