//! Certificates that are valid for minutes, with the shipped ACL: they are renewed, running services use the new ones, and a cluster whose certificate has expired waits for an operator.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::mosquitto::Mosquitto;
use e2e::secured_site::{LIMIT, Site, mqtt};
use enrolment_protocol::token::Token;
use jiff::Timestamp;
use serde_json::Value;
use simulator::cluster::SimulatedCluster;
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::session::QoS;
use sparkplug::{BdSeq, EdgeNodeDescriptor};
use sparkplug_mqtt::{Clock, HostHandle, spawn_host};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::enrolment::{kubernetes, secret, secrets};

/// A cluster that is enrolled, with its certificate in files as in a pod.
struct Edge {
    cluster: Uuid,
    kubernetes: SimulatedCluster,
    files: PathBuf,
    kubelet: JoinHandle<()>,
}

impl Edge {
    async fn enrolled(site: &Site) -> Self {
        let token = Token::new([1; 32]);
        let (cluster, key) = site.cluster("Paint_Shop", &token, "2099-01-01T00:00:00Z").await;
        let kubernetes = kubernetes("Paint_Shop").await;
        let outcome = site.enrol(cluster, &key, &token, &kubernetes.url()).await;
        assert_eq!(outcome.code, 0, "{outcome:#?}\n{}", site.processes.tails());
        let files = site.directory.path().join("mounted");
        fs::create_dir_all(&files).unwrap();
        mount(&secret(&kubernetes, "sparkfleet-identity").await, &files);
        let kubelet = tokio::spawn(kubelet(secrets(&kubernetes), files.clone()));
        Self { cluster, kubernetes, files, kubelet }
    }

    fn run(&self, site: &Site, service: &str, tables: &str) {
        let tables = format!(
            "{tables}[cluster]\nname = \"Paint_Shop\"\nuuid = \"{}\"\n[kubernetes]\nnamespace = \"fplus-edge\"\nurl = \"{}\"\n",
            self.cluster,
            self.kubernetes.url()
        );
        site.run(service, "edge", &tables, &self.files);
    }

    async fn certificates(&self, site: &Site) -> Vec<Value> {
        let identity = site.entry(self.cluster, "EdgeClusterIdentity").await.unwrap();
        identity["certificates"].as_array().unwrap().clone()
    }

    async fn stop(self) {
        self.kubelet.abort();
        self.kubernetes.stop().await;
    }
}

/// Brings the Secret to the files, one after the other, as a mount does in the end.
async fn kubelet(api: kube::Api<k8s_openapi::api::core::v1::Secret>, files: PathBuf) {
    loop {
        if let Ok(secret) = api.get("sparkfleet-identity").await {
            let text = |bytes: k8s_openapi::ByteString| String::from_utf8(bytes.0).unwrap();
            mount(&secret.data.unwrap().into_iter().map(|(key, value)| (key, text(value))).collect(), &files);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

fn mount(secret: &std::collections::BTreeMap<String, String>, files: &Path) {
    for (key, file) in [("tls.crt", "edge.pem"), ("tls.key", "edge.key"), ("ca.crt", "sparkfleet-ca.pem")] {
        let path = files.join(file);
        if fs::read_to_string(&path).ok().as_ref() != Some(&secret[key]) {
            let beside = files.join("beside");
            fs::write(&beside, &secret[key]).unwrap();
            fs::rename(&beside, &path).unwrap();
        }
    }
}

fn node(id: &str) -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse("ACME-Paint_Shop", id).unwrap()
}

/// An operator's host that asks these nodes for their births.
async fn host(server: &Mosquitto, nodes: &[&str]) -> HostHandle {
    let filters = vec![("spBv1.0/ACME-Paint_Shop/#".to_owned(), QoS::AtLeastOnce)];
    let config = HostConfig { filters, ..HostConfig::of_contracts(None) };
    let host = spawn_host(config, &mqtt(server, "ACME-Central-Operator"), Clock::new()).unwrap();
    for id in nodes {
        host.request(HostRequest::Expect { node: node(id) }).await.unwrap();
    }
    host
}

/// Waits for a birth of each of these nodes that satisfies `is_it`.
async fn births(site: &Site, host: &mut HostHandle, what: &str, nodes: &[&str], is_it: impl Fn(BdSeq) -> bool) {
    let mut missing: BTreeSet<EdgeNodeDescriptor> = nodes.iter().map(|id| node(id)).collect();
    while !missing.is_empty() {
        let event = tokio::time::timeout(LIMIT, host.recv()).await;
        let event = event.unwrap_or_else(|_| panic!("not in time: {what}: {missing:?}\n{}", site.processes.tails()));
        if let HostEvent::NodeBirth { node, bd_seq, .. } = event.unwrap()
            && is_it(bd_seq)
        {
            missing.remove(&node);
        }
    }
}

/// Waits until a certificate has ended.
async fn until_ended(certificate: &Value) {
    let end: Timestamp = certificate["expires"].as_str().unwrap().parse().unwrap();
    while Timestamp::now() <= end {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_and_taken_up_by_services_that_run() {
    let mut site = Site::start_for(120).await;
    let edge = Edge::enrolled(&site).await;
    let services = ["edge-sync", "edge-monitor"];
    for service in services {
        edge.run(&site, service, "");
    }
    let nodes = ["Sync", "Monitor"];
    let mut watching = host(&site.server, &nodes).await;
    births(&site, &mut watching, "the first births", &nodes, |_| true).await;
    let processes = services.map(|service| site.processes.id(service));

    // Each service ends its session itself and is born again in another.
    births(&site, &mut watching, "births in another session", &nodes, |bd_seq| bd_seq != BdSeq::ZERO).await;
    watching.stop().await;
    let certificates = edge.certificates(&site).await;
    assert!(certificates.len() > 1 && certificates[0]["state"] == "renewed", "{certificates:?}");
    assert_ne!(certificates[0]["key"], certificates[1]["key"]);

    // A server that starts after the first certificate has expired accepts only clients with a newer one.
    until_ended(&certificates[0]).await;
    site.server.kill();
    site.server.restart();
    let mut watching = host(&site.server, &nodes).await;
    births(&site, &mut watching, "births under another certificate", &nodes, |_| true).await;
    watching.stop().await;
    assert_eq!(services.map(|service| site.processes.id(service)), processes);
    assert!(services.iter().all(|service| site.processes.runs(service)), "{}", site.processes.tails());
    assert!(!site.processes.logs().contains("PRIVATE KEY"));
    site.processes.stop().await;
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_renewed_when_an_operator_approves_it() {
    let site = Site::start_for(60).await;
    let edge = Edge::enrolled(&site).await;
    let approve = ["cluster", "identity", "approve", "Paint_Shop"];
    site.cli.run(&approve).await.refused(5, "no certificate of the cluster waits for approval");
    let first = edge.certificates(&site).await.remove(0);
    until_ended(&first).await;

    let quarantine = |kind: &str| site.server.directory().join(format!("ACME-Enrol.{kind}")).display().to_string();
    let tables = format!("[identity]\ncert_file = \"{}\"\nkey_file = \"{}\"\n", quarantine("pem"), quarantine("key"));
    edge.run(&site, "edge-sync", &tables);
    let identity = site.until("the alert", async || {
        let identity = site.entry(edge.cluster, "EdgeClusterIdentity").await.unwrap();
        identity["alerts"][0].is_object().then_some(identity)
    });
    let identity = identity.await;
    assert_eq!(identity["alerts"][0]["kind"], "renewal-waits", "{identity}");
    let shown = site.cli.run(&["cluster", "identity", "show", "Paint_Shop"]).await;
    assert!(shown.stdout.contains("asks for renewal"), "{shown:#?}");
    assert_eq!(edge.certificates(&site).await.len(), 1, "nothing is certified before");

    let approved = site.cli.run(&approve).await;
    assert_eq!(approved.code, 0, "{approved:#?}");
    let mut watching = host(&site.server, &["Sync"]).await;
    births(&site, &mut watching, "a birth of Sync", &["Sync"], |_| true).await;
    watching.stop().await;
    let certificates = edge.certificates(&site).await;
    assert_eq!(certificates[0]["state"], "renewed", "{certificates:?}");
    site.processes.stop().await;
    edge.stop().await;
}
