//! Jobs: the hook does the work, the status says how it went.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use simulator::jobs::{Hook, Job, Jobs};
use simulator::kubernetes::{Kubernetes, KubernetesOptions, ObjectRef};

const PLACE: ObjectRef<'_> = ObjectRef { api_version: "batch/v1", kind: "Job", namespace: "default", name: "enrol" };

fn job(backoff_limit: u32) -> Value {
    let environment = json!([{ "name": "NAME", "value": "Paint_Shop" }, { "name": "FROM", "valueFrom": {} }]);
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "enrol", "namespace": "default" },
        "spec": {
            "backoffLimit": backoff_limit,
            "template": { "spec": { "containers": [{ "name": "x", "image": "x", "args": ["enrol"], "env": environment }] } }
        }
    })
}

/// Waits until the Job's status says so.
async fn until(kubernetes: &Kubernetes, says: impl Fn(&Value) -> bool) -> Value {
    let mut changes = kubernetes.changes();
    let found = async {
        loop {
            changes.mark_unchanged();
            if let Ok(job) = kubernetes.get(PLACE.api_version, PLACE.kind, PLACE.namespace, PLACE.name)
                && says(&job["status"])
            {
                return job["status"].clone();
            }
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found).await.expect("in time")
}

fn condition(status: &Value) -> &str {
    status.pointer("/conditions/0/type").and_then(Value::as_str).unwrap_or_default()
}

#[tokio::test]
async fn a_job_is_repeated_up_to_its_limit_and_says_how_it_ended() {
    let kubernetes = Kubernetes::new(KubernetesOptions::default());
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let hook: Hook = Arc::new(move |job: Job| {
        let run = counted.fetch_add(1, Ordering::SeqCst);
        let is_as_set =
            job.arguments() == ["enrol"] && job.environment()["NAME"] == "Paint_Shop" && job.environment().len() == 1;
        Box::pin(async move {
            match run {
                0..=2 => Err(format!("attempt {run}")),
                _ if is_as_set => Ok(()),
                _ => Err("it got something else".to_owned()),
            }
        })
    });
    let jobs = Jobs::start(kubernetes.clone(), hook);
    kubernetes.apply("kubectl", job(1)).unwrap();
    let failed = until(&kubernetes, |status| condition(status) == "Failed").await;
    assert_eq!((&failed["failed"], failed.get("active")), (&json!(2), None), "{failed}");
    assert!(failed["conditions"][0]["message"].as_str().unwrap().contains("attempt 1"), "{failed}");

    kubernetes.delete(&PLACE).unwrap();
    kubernetes.apply("kubectl", job(3)).unwrap();
    let done = until(&kubernetes, |status| condition(status) == "Complete").await;
    assert_eq!((&done["failed"], &done["succeeded"]), (&json!(1), &json!(1)), "{done}");
    assert_eq!(runs.load(Ordering::SeqCst), 4);
    jobs.stop().await;
}

#[tokio::test]
async fn a_job_that_is_deleted_is_stopped() {
    struct Running(tokio::sync::watch::Sender<bool>);
    impl Drop for Running {
        fn drop(&mut self) {
            self.0.send_replace(false);
        }
    }
    let kubernetes = Kubernetes::new(KubernetesOptions::default());
    let (runs, mut seen) = tokio::sync::watch::channel(false);
    let hook: Hook = Arc::new(move |_| {
        let running = Running(runs.clone());
        running.0.send_replace(true);
        Box::pin(async move {
            let _running = running;
            std::future::pending::<Result<(), String>>().await
        })
    });
    let jobs = Jobs::start(kubernetes.clone(), hook);
    kubernetes.apply("kubectl", job(1)).unwrap();
    let wait = |wanted: bool| move |running: &bool| *running == wanted;
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, seen.wait_for(wait(true))).await.expect("in time").unwrap();
    kubernetes.delete(&PLACE).unwrap();
    tokio::time::timeout(limit, seen.wait_for(wait(false))).await.expect("in time").unwrap();
    jobs.stop().await;
}
