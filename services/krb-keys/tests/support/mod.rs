//! What the tests use: a KDC, a simulated Kubernetes API with both definitions, a Mosquitto, and the service between them.
#![allow(dead_code, reason = "the KDC and Mosquitto of all tests can do more")]
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

#[path = "../../../libs/kerberos-client/tests/support/kdc.rs"]
pub mod kdc;
#[path = "../../../../sparkplug/mqtt/tests/support/mosquitto.rs"]
pub mod mosquitto;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kdc::{REALM, TestKdc};
use kerberos_client::{Kdc, Principal};
use krb_keys::Config;
use krb_keys::adapters::resources::custom_resource_definitions;
use krb_keys::config::{ClusterConfig, KubernetesConfig};
use mosquitto::Mosquitto;
use serde_json::{Value, json};
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use simulator::cluster::{ClusterSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use simulator::kubernetes::ObjectRef;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use uuid::Uuid;

pub const API: &str = "factoryplus.app.amrc.co.uk/v1";
/// Longer than any step takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(120);

pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited too long for {what}"),
    }
}

pub struct Site {
    pub kdc: TestKdc,
    pub broker: Mosquitto,
    pub cluster: SimulatedCluster,
    directory: TempDir,
}

impl Site {
    pub async fn start() -> Self {
        Self::start_with(TestKdc::start()).await
    }

    pub async fn start_with(kdc: TestKdc) -> Self {
        let spec = ClusterSpec { sealed_secrets: false, flux: false, ..ClusterSpec::new("Test") };
        let cluster = SimulatedCluster::start(spec, Charts::new()).await.unwrap();
        for definition in custom_resource_definitions() {
            let mut definition = serde_json::to_value(definition).unwrap();
            definition["apiVersion"] = json!("apiextensions.k8s.io/v1");
            definition["kind"] = json!("CustomResourceDefinition");
            cluster.kubernetes().apply("test", definition).unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        Self { kdc, broker: Mosquitto::start(), cluster, directory }
    }

    pub fn config(&self) -> Config {
        Config {
            state_dir: self.directory.path().join("state").into(),
            cluster: ClusterConfig { name: "Test".to_owned(), uuid: Some(Uuid::from_u128(0xC)) },
            kubernetes: KubernetesConfig {
                namespace: self.cluster.namespace().to_owned(),
                url: Some(self.cluster.url()),
            },
            kerberos: self.kdc.config(),
            retry_first_ms: 50,
            retry_max_ms: 200,
            mqtt: self.broker.config(),
            ..Config::default()
        }
    }

    pub fn run(&self) -> Running {
        Running::start(self.config())
    }

    pub fn apply(&self, kind: &str, name: &str, spec: Value) {
        let metadata = json!({ "name": name, "namespace": self.cluster.namespace() });
        let object = json!({ "apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec });
        self.cluster.kubernetes().apply("test", object).unwrap();
    }

    pub fn apply_key(&self, name: &str, spec: Value) {
        self.apply("KerberosKey", name, spec);
    }

    pub fn annotate(&self, name: &str, annotation: &str, value: Value) {
        let annotation = format!("krbkeys.factoryplus.app.amrc.co.uk/{annotation}");
        let patch = json!({ "metadata": { "annotations": { annotation: value } } });
        self.cluster.kubernetes().merge("test", &self.place("KerberosKey", name), patch).unwrap();
    }

    pub fn delete(&self, kind: &'static str, name: &str) {
        self.cluster.kubernetes().delete(&self.place(kind, name)).unwrap();
    }

    pub fn delete_sealed(&self, name: &str) {
        let place = ObjectRef { api_version: "bitnami.com/v1alpha1", ..self.place("SealedSecret", name) };
        self.cluster.kubernetes().delete(&place).unwrap();
    }

    /// Writes a ConfigMap.
    pub fn write_config_map(&self, name: &str, key: &str, value: &str) {
        let metadata = json!({ "name": name, "namespace": self.cluster.namespace() });
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { key: value } });
        self.cluster.kubernetes().apply("test", map).unwrap();
    }

    fn place<'a>(&'a self, kind: &'static str, name: &'a str) -> ObjectRef<'a> {
        ObjectRef { api_version: API, kind, namespace: self.cluster.namespace(), name }
    }

    pub fn get(&self, kind: &str, name: &str) -> Option<Arc<Value>> {
        let api_version = match kind {
            "Secret" => "v1",
            "SealedSecret" => "bitnami.com/v1alpha1",
            _ => API,
        };
        self.cluster.kubernetes().get(api_version, kind, self.cluster.namespace(), name).ok()
    }

    /// The value in a Secret.
    pub fn secret(&self, name: &str, key: &str) -> Option<Vec<u8>> {
        let secret = self.get("Secret", name)?;
        Some(STANDARD.decode(secret["data"][key].as_str()?).unwrap())
    }

    /// Writes a Secret as someone else.
    pub fn write_secret(&self, name: &str, key: &str, value: &str) {
        let metadata = json!({ "name": name, "namespace": self.cluster.namespace() });
        let secret =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": { key: value } });
        self.cluster.kubernetes().apply("test", secret).unwrap();
    }

    /// Waits until what Kubernetes has is as it should be.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let mut changes = self.cluster.kubernetes().changes();
        let so = async {
            loop {
                changes.mark_unchanged();
                if is_so(self) {
                    return;
                }
                changes.changed().await.unwrap();
            }
        };
        in_time(what, so).await;
    }

    /// Waits until the condition of a resource has that reason; its message.
    pub async fn until_is(&self, kind: &str, name: &str, reason: &str) -> String {
        let condition = |site: &Self| {
            let resource = site.get(kind, name)?;
            let condition = resource.pointer("/status/conditions/0")?;
            let is_now = condition["observedGeneration"] == resource["metadata"]["generation"];
            (is_now && condition["reason"] == reason).then(|| condition["message"].as_str().unwrap().to_owned())
        };
        self.until(&format!("{kind} {name} to be {reason}"), |site| condition(site).is_some()).await;
        condition(self).unwrap_or_default()
    }

    pub async fn until_in_step(&self, name: &str) {
        self.until_is("KerberosKey", name, "InStep").await;
    }

    /// Whether a keytab gets tickets for a principal.
    pub async fn works(&self, principal: &str, keytab: &[u8]) -> bool {
        self.client().is_keytab_valid(&self::principal(principal), keytab).await.unwrap()
    }

    pub async fn password_works(&self, principal: &str, password: &[u8]) -> bool {
        self.client().is_password_valid(&self::principal(principal), password).await.unwrap()
    }

    fn client(&self) -> Kdc {
        Kdc::open(self.kdc.config(), &self.directory.path().join("test")).unwrap()
    }

    pub fn keys_directory(&self) -> std::path::PathBuf {
        Path::new(&self.directory.path().join("state")).join("keys")
    }

    pub async fn stop(self) {
        self.cluster.stop().await;
    }
}

pub fn principal(name: &str) -> Principal {
    format!("{name}@{REALM}").parse().unwrap()
}

pub struct Running {
    shutdown: Shutdown,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub fn start(config: Config) -> Self {
        let shutdown = Shutdown::new();
        let task = tokio::spawn(krb_keys::run(config, shutdown.clone(), Health::new()));
        Self { shutdown, task }
    }

    pub async fn stop(self) {
        self.shutdown.trigger();
        in_time("a clean stop", self.task).await.unwrap().unwrap();
    }

    /// As if the process was killed.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}
