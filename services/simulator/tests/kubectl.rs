//! The simulated API as kubectl sees it. Skipped, with a line that says so, where there is no kubectl.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use simulator::jobs::{Hook, Jobs};
use simulator::kubernetes::access::Denied;
use simulator::kubernetes::{Kubernetes, KubernetesOptions};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

struct Kubectl<'a> {
    server: String,
    home: &'a Path,
}

impl Kubectl<'_> {
    async fn run(&self, arguments: &str, stdin: &str) -> Result<String, String> {
        let mut child = Command::new("kubectl")
            .args(["--server", &self.server, "--kubeconfig", "/dev/null"])
            .args(arguments.split(' '))
            .env("HOME", self.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).await.unwrap();
        let output = tokio::time::timeout(std::time::Duration::from_secs(60), child.wait_with_output())
            .await
            .expect("in time")
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }
}

const MANIFESTS: &str = "
apiVersion: v1
kind: Namespace
metadata: { name: fplus-edge }
---
apiVersion: factoryplus.app.amrc.co.uk/v1
kind: SparkplugNode
metadata: { name: cell-3, namespace: fplus-edge }
spec: { address: ACME-Paint_Shop/Robot_Cell_3 }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: settings, namespace: fplus-edge }
data: { mode: slow }
";

const JOB: &str = "
apiVersion: batch/v1
kind: Job
metadata: { name: enrol, namespace: fplus-edge }
spec: { template: { spec: { restartPolicy: Never, containers: [{ name: x, image: x }] } } }
";

#[tokio::test]
async fn kubectl_gets_applies_and_deletes() {
    if Command::new("kubectl").args(["version", "--client"]).output().await.is_err() {
        println!("skipped: no kubectl on this machine");
        return;
    }
    let kubernetes = Kubernetes::new(KubernetesOptions::default());
    let address = kubernetes.serve(0).await.unwrap();
    let home = tempfile::tempdir().unwrap();
    let kubectl = Kubectl { server: format!("http://{address}"), home: home.path() };

    let version = kubectl.run("version", "").await.unwrap();
    assert!(version.contains("sparkfleet-simulated"), "{version}");
    let created = kubectl.run("apply -f -", MANIFESTS).await.unwrap();
    assert!(created.contains("sparkplugnode.factoryplus.app.amrc.co.uk/cell-3 created"), "{created}");
    let again = kubectl.run("apply -f -", MANIFESTS).await.unwrap();
    assert!(again.contains("cell-3 unchanged"), "{again}");
    let changed = kubectl.run("apply -f -", &MANIFESTS.replace("slow", "fast")).await.unwrap();
    assert!(changed.contains("configmap/settings configured"), "{changed}");
    let server_side = kubectl.run("apply --server-side --force-conflicts -f -", MANIFESTS).await.unwrap();
    assert!(server_side.contains("serverside-applied"), "{server_side}");

    let table = kubectl.run("get spnode -n fplus-edge", "").await.unwrap();
    assert!(table.starts_with("NAME") && table.contains("cell-3"), "{table}");
    let value = kubectl.run("get configmap settings -n fplus-edge -o jsonpath={.data.mode}", "").await.unwrap();
    assert_eq!(value, "slow");
    let refused = kubectl.run("apply -f -", &MANIFESTS.replace("address:", "adress:")).await.unwrap_err();
    assert!(refused.contains("is invalid"), "{refused}");

    kubectl.run("auth can-i create secrets -n fplus-edge --quiet", "").await.unwrap();
    kubernetes.deny(vec![Denied { verb: "create".to_owned(), resource: "secrets".to_owned() }]);
    kubectl.run("auth can-i create secrets -n fplus-edge --quiet", "").await.unwrap_err();
    kubectl.run("auth can-i get secrets -n fplus-edge --quiet", "").await.unwrap();

    let hook: Hook = Arc::new(|_| Box::pin(std::future::ready(Ok(()))));
    let jobs = Jobs::start(kubernetes.clone(), hook);
    kubectl.run("apply -f -", JOB).await.unwrap();
    let waited = kubectl.run("wait --for=condition=complete job/enrol -n fplus-edge --timeout=60s", "").await.unwrap();
    assert!(waited.contains("condition met"), "{waited}");
    jobs.stop().await;

    let deleted = kubectl.run("delete configmap settings -n fplus-edge", "").await.unwrap();
    assert!(deleted.contains("deleted"), "{deleted}");
    let gone = kubectl.run("get configmap settings -n fplus-edge", "").await.unwrap_err();
    assert!(gone.contains("NotFound"), "{gone}");
}
