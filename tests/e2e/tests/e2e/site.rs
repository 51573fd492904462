//! A control plane of separate processes and one edge cluster whose services are separate processes too, on a Mosquitto, with everything that is said recorded.

use std::sync::Mutex;

use e2e::central_services::{CentralServices, free_port};
use e2e::cli::Cli;
use e2e::edge::Edge;
use e2e::mosquitto::Mosquitto;
use e2e::recorder::Recorder;
use e2e::wait;
use e2e::wire::{Metrics, Reader};
use uuid::Uuid;

use crate::factory::uuid;

/// Name of its cluster.
pub const NAME: &str = "Paint_Shop";
/// Group of its cluster.
pub const GROUP: &str = "ACME-Paint_Shop";
/// Group of the control plane.
pub const CENTRAL: &str = "ACME-Central";

/// See the module.
pub struct Site {
    pub cli: Cli,
    pub recorder: Recorder,
    reader: Mutex<Reader>,
    pub central: CentralServices,
    pub edge: Edge,
    pub cluster: Uuid,
    pub server: Mosquitto,
}

impl Site {
    /// Starts all of it; the cluster is alive when this returns.
    pub async fn start() -> Self {
        let server = Mosquitto::start();
        let recorder = Recorder::start(server.address()).await;
        let central = CentralServices::start(server.address(), free_port());
        let cli = Cli::new(&server.url());
        let cluster = uuid(&cli.json(&["cluster", "create", NAME]).await);
        let ready = move |message: &e2e::recorder::Message| {
            let is_ready = e2e::wire::text(message, "Status/State").as_deref() == Some("ready");
            (is_ready && message.topic.ends_with(&format!("/Cluster-Manager/{NAME}"))).then_some(())
        };
        recorder.wait_for("the cluster to be set up", 0, ready).await;
        let setup = cli.json(&["config", "get", &cluster.to_string(), "EdgeClusterSetup"]).await;
        let password = central.git_password(cluster).await;
        let edge = Edge::start(NAME, 2, setup["self_link"].as_str().unwrap(), &password, server.address()).await;
        let site = Self { cli, recorder, reader: Mutex::default(), central, edge, cluster, server };
        site.until("the edge to agree", |reader| site.agrees(reader)).await;
        site
    }

    /// Whether the manager sees the cluster alive and in agreement.
    pub fn agrees(&self, reader: &Reader) -> bool {
        let device = self.manager_device(reader);
        let is = |name: &str| device.and_then(|device| device.get(name)) == Some(&Some(true.into()));
        is("Sync/Alive") && is("Desired/Agreed") && reader.node(GROUP, "Monitor").is_some_and(|node| node.is_alive)
    }

    /// The cluster as the manager reports it.
    pub fn manager_device<'a>(&self, reader: &'a Reader) -> Option<&'a Metrics> {
        reader.node(CENTRAL, "Cluster-Manager")?.devices.get(NAME)
    }

    /// Waits until the recording says so.
    pub async fn until(&self, what: &str, says: impl Fn(&Reader) -> bool) {
        self.find(what, |reader| says(reader).then_some(())).await;
    }

    /// Waits until something is found in what the recording says.
    pub async fn find<T>(&self, what: &str, find: impl Fn(&Reader) -> Option<T>) -> T {
        let found = || {
            let mut reader = self.reader.lock().unwrap();
            reader.follow(&self.recorder);
            find(&reader)
        };
        let tails = || format!("{}\n{}", self.central.processes.tails(), self.edge.processes.tails());
        wait::until(what, found, tails).await
    }

    /// The ids of all processes, by name; a service that was restarted has another one.
    pub fn process_ids(&self) -> Vec<u32> {
        let central = e2e::central_services::SERVICES.map(|name| (&self.central.processes, name));
        let edge = e2e::edge::SERVICES.map(|name| (&self.edge.processes, name));
        let all = central.into_iter().chain(edge);
        all.map(|(processes, name)| {
            assert!(processes.runs(name), "{name} has ended\n{}", processes.tails());
            processes.id(name)
        })
        .collect()
    }
}
