//! An operator who writes into ConfigDB and watches the effect: one Host Application session with the replicas of ConfigDB, the cluster manager and every Sync.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use cluster_manager_contract::ManagerReplica;
use configdb_contract::{
    ConfigReplica, RequestResult, WriteRequest, Writer, WriterConfig, WriterOutput, configdb_node,
};
use configdb_schema::document::{EdgeCluster, EdgeDeployment, Info};
use configdb_schema::{ClusterName, Organisation, address, known};
use edge_sync_contract::{DeploymentState, Digest, SyncReplica};
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::session::QoS;
use sparkplug::{EdgeNodeDescriptor, HostId};
use sparkplug_mqtt::{Clock, HostHandle, MqttConfig};
use uuid::Uuid;

use crate::light_edge::{NAMESPACE, sync_address};

/// Longest wait for anything; beyond it there is nothing to measure.
const PATIENCE: Duration = Duration::from_secs(600);

/// A cluster with its one deployment.
#[derive(Debug, Clone)]
pub struct Plant {
    /// Object of the cluster.
    pub cluster: Uuid,
    /// Name of the cluster.
    pub name: String,
    /// Its Sync.
    pub sync: EdgeNodeDescriptor,
    /// Object of the deployment.
    pub deployment: Uuid,
}

/// `count` clusters.
///
/// # Errors
/// A name is not allowed.
pub fn plants(organisation: &Organisation, count: usize) -> anyhow::Result<Vec<Plant>> {
    let plant = |number: usize| {
        let name = format!("Plant_{number}");
        let sync = sync_address(organisation, &ClusterName::new(name.clone())?)?;
        let cluster = address::v5(&["Bench", "Cluster", &name]);
        Ok(Plant { cluster, sync, deployment: address::v5(&["Bench", "Deployment", &name]), name })
    };
    (0..count).map(plant).collect()
}

/// See the module.
#[derive(Debug)]
pub struct Operator {
    host: HostHandle,
    clock: Clock,
    writer: Writer,
    requests: u64,
    answers: Vec<RequestResult>,
    /// ConfigDB.
    pub config: ConfigReplica,
    /// Cluster manager.
    pub manager: ManagerReplica,
    syncs: BTreeMap<EdgeNodeDescriptor, SyncReplica>,
}

impl Operator {
    /// Connects, and waits until ConfigDB is replicated.
    ///
    /// # Errors
    /// It is not within ten minutes.
    pub async fn open(organisation: &Organisation, mqtt: &MqttConfig) -> anyhow::Result<Self> {
        let clock = Clock::new();
        let configdb = configdb_node(organisation);
        let manager = cluster_manager_contract::names::node(organisation.as_str())?;
        let sync = address::SYNC_NODE;
        let filters = [
            format!("spBv1.0/{}/+/{}/#", configdb.group, configdb.edge_node),
            format!("spBv1.0/{}/+/{}/#", manager.group, manager.edge_node),
            format!("spBv1.0/+/+/{sync}/#"),
        ];
        let filters = filters.map(|filter| (filter, QoS::AtLeastOnce)).into();
        let config = HostConfig { filters, ..HostConfig::of_contracts(Some(HostId::new("bench.operator")?)) };
        let host = sparkplug_mqtt::spawn_host(config, mqtt, clock)?;
        for node in [configdb.clone(), manager.clone()] {
            host.request(HostRequest::Expect { node }).await?;
        }
        // A measurement of many writes at once must not count repetitions.
        let config = WriterConfig {
            repeat: (Duration::from_secs(60), PATIENCE),
            deadline: PATIENCE,
            ..WriterConfig::new(configdb.clone())
        };
        let mut operator = Self {
            host,
            clock,
            writer: Writer::new(config, 1),
            requests: 0,
            answers: Vec::new(),
            config: ConfigReplica::new(configdb),
            manager: ManagerReplica::new(manager),
            syncs: BTreeMap::new(),
        };
        operator
            .until("ConfigDB and the cluster manager", |seen| {
                (seen.config.is_complete() && seen.manager.is_complete()).then_some(())
            })
            .await?;
        Ok(operator)
    }

    /// Makes clusters, each with a deployment, and waits until the entries are written.
    ///
    /// # Errors
    /// ConfigDB refuses one.
    pub async fn create(&mut self, plants: &[Plant]) -> anyhow::Result<()> {
        for plant in plants {
            let info = Info { name: plant.name.clone(), ..Info::default() };
            let entry =
                EdgeCluster { name: plant.name.clone(), namespace: NAMESPACE.to_owned(), ..EdgeCluster::default() };
            let cluster = self.put(plant.cluster).create_object(known::class::EDGE_CLUSTER, None);
            self.submit(cluster.document(&info)?.document(&entry)?)?;
        }
        self.written(plants.len()).await?;
        for plant in plants {
            let deployment = self.put(plant.deployment).create_object(known::class::EDGE_AGENT, None);
            let info = Info { name: format!("Agent_{}", plant.name), ..Info::default() };
            self.submit(deployment.document(&info)?.document(&deployment_entry(plant, 0))?)?;
        }
        self.written(plants.len()).await
    }

    /// Changes the entry of a deployment; does not wait.
    ///
    /// # Errors
    /// Too many changes wait.
    pub async fn change(&mut self, plant: &Plant, number: u64) -> anyhow::Result<()> {
        let request = self.put(plant.deployment).document(&deployment_entry(plant, number))?;
        self.submit(request)?;
        self.send().await
    }

    /// Waits until that many changes are answered, all of them favourably.
    ///
    /// # Errors
    /// ConfigDB refuses one.
    pub async fn written(&mut self, count: usize) -> anyhow::Result<()> {
        self.until("ConfigDB to answer", |seen| (seen.answers.len() >= count).then_some(())).await?;
        for answer in self.answers.drain(..) {
            if !answer.is_applied() {
                bail!("ConfigDB refuses {}: {:?}", answer.object, answer.reason);
            }
        }
        Ok(())
    }

    /// Digest that an edge reports as applied, if nothing is under way there.
    #[must_use]
    pub fn applied(&self, plant: &Plant) -> Option<Digest> {
        let device = self.syncs.get(&plant.sync)?.devices().deployments.get(&plant.deployment)?;
        device.digest.filter(|_| device.state == DeploymentState::Applied)
    }

    /// The edge has reported all that is wanted of it, and the control plane has received that.
    #[must_use]
    pub fn is_agreed(&self, plant: &Plant) -> bool {
        self.applied(plant).is_some() && self.manager.cluster(plant.cluster).is_some_and(|c| c.desired.agreed)
    }

    /// Waits until all are agreed.
    ///
    /// # Errors
    /// They are not within ten minutes.
    pub async fn all_agreed(&mut self, plants: &[Plant]) -> anyhow::Result<()> {
        // The first that is not is looked at first: what was agreed stays so, because nothing is changed meanwhile.
        let mut first = 0;
        self.until("all clusters to agree", |seen| {
            while first < plants.len() && seen.is_agreed(&plants[first]) {
                first += 1;
            }
            (first == plants.len()).then_some(())
        })
        .await
    }

    /// Waits until `found` yields something; it is asked after every event.
    ///
    /// # Errors
    /// Nothing within ten minutes.
    pub async fn until<T>(&mut self, what: &str, mut found: impl FnMut(&Self) -> Option<T>) -> anyhow::Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.send().await?;
            if let Some(found) = found(self) {
                return Ok(found);
            }
            tokio::select! {
                event = self.host.recv() => self.take(&event.context("the session has ended")?),
                () = self.clock.sleep_until(self.writer.next_deadline()) => self.writer.handle_timeout(self.clock.now()),
                () = tokio::time::sleep_until(deadline.into()) => bail!("waited {PATIENCE:?} for {what}"),
            }
        }
    }

    /// Says goodbye.
    pub async fn close(self) {
        self.host.stop().await;
    }

    fn put(&mut self, object: Uuid) -> WriteRequest {
        self.requests += 1;
        WriteRequest::put(format!("bench-{}", self.requests), object).by("bench")
    }

    fn submit(&mut self, request: WriteRequest) -> anyhow::Result<()> {
        Ok(self.writer.submit(request, self.clock.now())?)
    }

    async fn send(&mut self) -> anyhow::Result<()> {
        while let Some(output) = self.writer.poll_output() {
            match output {
                WriterOutput::Send(request) => self.host.request(request).await?,
                WriterOutput::Answered(answer) => self.answers.push(answer),
                WriterOutput::GaveUp { object, .. } => bail!("ConfigDB does not answer the change of {object}"),
            }
        }
        Ok(())
    }

    fn take(&mut self, event: &HostEvent) {
        if let HostEvent::NodeBirth { node, .. } = event
            && node.edge_node.as_str() == address::SYNC_NODE
        {
            self.syncs.entry(node.clone()).or_insert_with(|| SyncReplica::new(node.clone()));
        }
        // One look-up, not one question to each of a thousand replicas.
        match event.node().and_then(|node| self.syncs.get_mut(node)) {
            Some(sync) => {
                sync.on_event(event);
            }
            None => {
                self.manager.on_event(event);
                self.config.on_event(event);
            }
        }
        while let Some(change) = self.config.poll_change() {
            self.writer.on_change(&change, self.clock.now());
        }
    }
}

fn deployment_entry(plant: &Plant, number: u64) -> EdgeDeployment {
    let values = serde_json::Map::from_iter([("change".to_owned(), number.into())]);
    EdgeDeployment {
        cluster: plant.cluster,
        name: format!("Agent_{}", plant.name),
        chart: Some(known::chart::EDGE_AGENT),
        values: Some(values),
        ..EdgeDeployment::default()
    }
}
