//! Jobs (`batch/v1`): no container runs, but what the composition gives as hook does the work of the container, and the Job's status says how it ended, as its controller would.

pub mod program;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::kubernetes::{Kubernetes, ObjectRef, store, wall_ms};

const MANAGER: &str = "kube-controller-manager";

/// Pause before a container that failed is started again; the real one grows from 10 s.
const RESTART: Duration = Duration::from_millis(200);

/// Attempts after the first one, where the Job does not say.
const BACKOFF_LIMIT: u64 = 6;

/// A Job whose container is to be run.
#[derive(Debug, Clone)]
pub struct Job {
    pub kubernetes: Kubernetes,
    pub namespace: String,
    pub name: String,
    pub object: Arc<Value>,
}

impl Job {
    fn place(&self) -> ObjectRef<'_> {
        ObjectRef::of(&self.object)
    }

    fn container(&self) -> &Value {
        &self.object["spec"]["template"]["spec"]["containers"][0]
    }

    /// Arguments of its container.
    pub fn arguments(&self) -> Vec<String> {
        let arguments = self.container()["args"].as_array().into_iter().flatten();
        arguments.filter_map(|argument| argument.as_str().map(str::to_owned)).collect()
    }

    /// Environment of its container, as far as it has values.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let variables = self.container()["env"].as_array().into_iter().flatten();
        let variable = |variable: &Value| Some((variable["name"].as_str()?.into(), variable["value"].as_str()?.into()));
        variables.filter_map(variable).collect()
    }

    fn report(&self, status: Value) {
        match self.kubernetes.merge_status(MANAGER, &self.place(), status) {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => tracing::warn!(job = self.name, %error, "simulated Job could not report"),
        }
    }
}

/// Does the work of a Job's container: Ok for exit code 0, or why it failed.
pub type Hook = Arc<dyn Fn(Job) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The controller of all Jobs of one cluster.
pub struct Jobs {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
}

impl Jobs {
    /// Starts it. A Job that is deleted while its hook runs has it dropped.
    pub fn start(kubernetes: Kubernetes, hook: Hook) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(control(kubernetes, hook, stop.clone()));
        Self { stop, task }
    }

    /// Stops it and what runs.
    pub async fn stop(self) {
        self.stop.cancel();
        // A panic of the controller has been reported by the panic hook.
        let _ = self.task.await;
    }
}

async fn control(kubernetes: Kubernetes, hook: Hook, stop: CancellationToken) {
    let mut changes = kubernetes.changes();
    let mut running = JoinSet::new();
    let mut known: BTreeMap<String, AbortHandle> = BTreeMap::new();
    loop {
        changes.mark_unchanged();
        let jobs = kubernetes.list("batch/v1", "Job", None);
        let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        known.retain(|known, handle| {
            let is_there = jobs.iter().any(|job| uid(job) == *known);
            if !is_there {
                handle.abort();
            }
            is_there
        });
        for object in jobs {
            if known.contains_key(&uid(&object)) || is_finished(&object) {
                continue;
            }
            let (namespace, name) = store::key_of(&object);
            let job = Job { kubernetes: kubernetes.clone(), namespace, name, object };
            let key = uid(&job.object);
            known.insert(key, running.spawn(run(job, Arc::clone(&hook))));
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = kubernetes.stopped() => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

fn is_finished(job: &Value) -> bool {
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|c| matches!(c["type"].as_str(), Some("Complete" | "Failed")) && c["status"] == "True")
}

async fn run(job: Job, hook: Hook) {
    let limit = job.object["spec"]["backoffLimit"].as_u64().unwrap_or(BACKOFF_LIMIT);
    job.report(json!({ "active": 1, "startTime": now() }));
    let mut failed = 0;
    loop {
        match hook(job.clone()).await {
            Ok(()) => {
                let condition =
                    condition("Complete", "CompletionsReached", "Reached expected number of succeeded pods");
                let status =
                    json!({ "active": null, "succeeded": 1, "completionTime": now(), "conditions": [condition] });
                return job.report(status);
            }
            Err(reason) => {
                failed += 1;
                if failed > limit {
                    let message = format!("Job has reached the specified backoff limit; the container said: {reason}");
                    let condition = condition("Failed", "BackoffLimitExceeded", &message);
                    return job.report(json!({ "active": null, "failed": failed, "conditions": [condition] }));
                }
                job.report(json!({ "failed": failed }));
            }
        }
        tokio::time::sleep(RESTART).await;
    }
}

fn now() -> String {
    store::timestamp(wall_ms())
}

fn condition(kind: &str, reason: &str, message: &str) -> Value {
    let time = now();
    json!({ "type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": time, "lastTransitionTime": time })
}
