//! A namespace of its own for each test, on a simulated API server or on the one that KUBECONFIG names.

use edge_sync::adapters::kubernetes::{Kubernetes, SealingService};
use edge_sync::object::Kind;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use simulator::cluster::{ClusterSpec, SEALED_SECRETS, SimulatedCluster};
use simulator::flux::chart::Charts;
use uuid::Uuid;

/// A cluster and the namespace of one test.
pub struct TestCluster {
    /// None on a real API server.
    pub simulated: Option<SimulatedCluster>,
    /// Of the API.
    pub client: Client,
    /// Of the test.
    pub namespace: String,
}

impl TestCluster {
    /// The cluster that KUBECONFIG names, else a simulated one.
    pub async fn start() -> Self {
        if std::env::var_os("KUBECONFIG").is_none() {
            return Self::simulated().await;
        }
        let client = kubernetes_client::connect(None).await.unwrap();
        let namespace = format!("edge-sync-test-{}", Uuid::new_v4());
        let api: Api<Namespace> = Api::all(client.clone());
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
        Self { simulated: None, client, namespace }
    }

    /// A simulated one, for what a bare API server lacks: Flux and Sealed Secrets.
    pub async fn simulated() -> Self {
        let simulated = SimulatedCluster::start(ClusterSpec::new("Test"), Charts::new()).await.unwrap();
        let client = kubernetes_client::connect(Some(&simulated.url())).await.unwrap();
        let namespace = simulated.namespace().to_owned();
        Self { simulated: Some(simulated), client, namespace }
    }

    pub fn kubernetes(&self, kinds: &[&str]) -> Kubernetes {
        let kinds: Vec<Kind> = kinds.iter().map(|kind| kind.parse().unwrap()).collect();
        let (namespace, service) = SEALED_SECRETS;
        let sealing = SealingService { namespace: namespace.to_owned(), service: service.to_owned() };
        Kubernetes::new(self.client.clone(), &self.namespace, &kinds, sealing)
    }

    pub fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Somebody makes a ConfigMap.
    pub async fn make(&self, name: &str, metadata: Value) {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        object["metadata"]["name"] = json!(name);
        let object = serde_json::from_value(object).unwrap();
        self.config_maps().create(&PostParams::default(), &object).await.unwrap();
    }

    /// Somebody gives an object a finalizer, or takes all away.
    pub async fn set_finalizers(&self, name: &str, finalizers: &[&str]) -> ConfigMap {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        self.config_maps().patch(name, &PatchParams::default(), &patch).await.unwrap()
    }

    pub async fn stop(self) {
        match self.simulated {
            Some(simulated) => simulated.stop().await,
            None => {
                let api: Api<Namespace> = Api::all(self.client);
                api.delete(&self.namespace, &DeleteParams::default()).await.unwrap();
            }
        }
    }
}
