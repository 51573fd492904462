//! One pod: its containers as processes, started, probed, restarted, and reported in its status.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::node::{self, now};
use super::volumes::{self, Volumes};
use super::{Program, Surroundings, name_of, probe};
use crate::process::{Launch, Process};

/// Longest pause before a program that ended is started again. Real kubelets wait up to five minutes.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// How often files are compared with what they come from.
const FILES: Duration = Duration::from_secs(2);

/// How long a program has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

/// Enters a root of its own: $1 is the root, $2 the program, the rest its arguments. The last step gives up all rights, and says once more that the program ends
/// with the test, because the kernel forgets that when the user changes.
const ENTER: &str = r#"set -e
root=$1 program=$2
shift 2
for directory in usr lib lib64 dev proc; do
    if [ -e "/$directory" ]; then
        mkdir -p "$root/$directory"
        mount --rbind "/$directory" "$root/$directory"
    fi
done
touch "$root/program"
mount --bind "$program" "$root/program"
PATH="$PATH:/usr/sbin:/sbin"
exec chroot "$root" /usr/bin/setpriv --reuid 65532 --regid 65532 --clear-groups --pdeathsig KILL -- /program "$@"
"#;

/// How a container stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Waiting(&'static str),
    Running,
    Ended(i32),
}

/// A container and what runs for it.
#[derive(Debug)]
struct Running {
    container: Container,
    /// None: nothing is known for the image, and it is said to run.
    program: Option<Program>,
    root: PathBuf,
    volumes: Volumes,
    files_due: Option<Instant>,
    process: Option<Process>,
    restarts: u32,
    next_start: Option<Instant>,
    alive: Instant,
}

/// A pod that is bound to one of the hosts.
#[derive(Debug)]
pub struct PodProcess {
    pod: Pod,
    address: IpAddr,
    containers: Vec<Running>,
    logs: PathBuf,
    since: String,
    reported: Option<Value>,
}

impl PodProcess {
    pub fn new(pod: Pod, address: IpAddr, surroundings: &Surroundings) -> Self {
        let directory = surroundings.directory.join(pod.metadata.uid.as_deref().unwrap_or_default());
        let containers = pod.spec.as_ref().map(|spec| spec.containers.clone()).unwrap_or_default();
        let containers = containers.into_iter().map(|container| {
            let root = directory.join(&container.name);
            let image = container.image.as_deref().unwrap_or_default();
            let program = (surroundings.images)(image, address);
            let volumes = Volumes::new(root.clone());
            Running {
                container,
                program,
                root,
                volumes,
                files_due: None,
                process: None,
                restarts: 0,
                next_start: None,
                alive: Instant::now(),
            }
        });
        let containers = containers.collect();
        let logs = surroundings.directory.parent().unwrap_or(&surroundings.directory).to_owned();
        Self { pod, address, containers, logs, since: now(), reported: None }
    }

    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Brings it one step on, and reports what has changed.
    pub async fn step(&mut self, surroundings: &Surroundings) {
        let mut statuses = Vec::new();
        let mut states = Vec::new();
        let once = self.pod.spec.as_ref().and_then(|spec| spec.restart_policy.clone());
        for running in &mut self.containers {
            let state = running.step(&self.pod, self.address, once.as_deref(), &self.logs, surroundings).await;
            let readiness = running.container.readiness_probe.as_ref();
            let ready = state == State::Running
                && probe_if(&running.program, readiness, &running.container, self.address).await;
            let details = match &state {
                State::Waiting(reason) => json!({ "waiting": { "reason": reason } }),
                State::Running => json!({ "running": { "startedAt": self.since } }),
                State::Ended(code) => json!({ "terminated": { "exitCode": code, "reason": "Completed" } }),
            };
            statuses.push(json!({
                "name": running.container.name, "image": running.container.image, "imageID": "", "ready": ready,
                "started": ready, "restartCount": running.restarts, "state": details
            }));
            states.push((state, ready));
        }
        let status = self.status(statuses, &states, surroundings.host_address);
        self.report(&surroundings.client, status).await;
    }

    fn status(&self, containers: Vec<Value>, states: &[(State, bool)], host: IpAddr) -> Value {
        let ready = states.iter().all(|(_, ready)| *ready);
        let ended = states.iter().all(|(state, _)| matches!(state, State::Ended(_)));
        let creating = states.iter().any(|(state, _)| *state == State::Waiting("ContainerCreating"));
        let phase = match (ended, creating) {
            (true, _) if states.iter().all(|(state, _)| *state == State::Ended(0)) => "Succeeded",
            (true, _) => "Failed",
            (false, true) => "Pending",
            (false, false) => "Running",
        };
        let said = |is: bool| if is { "True" } else { "False" };
        let conditions = [("Initialized", true), ("PodScheduled", true), ("ContainersReady", ready), ("Ready", ready)];
        let conditions = conditions.map(|(kind, is)| json!({ "type": kind, "status": said(is) }));
        json!({
            "phase": phase, "hostIP": host, "podIP": self.address, "podIPs": [{ "ip": self.address }],
            "startTime": self.since, "conditions": conditions, "containerStatuses": containers
        })
    }

    async fn report(&mut self, client: &Client, status: Value) {
        if self.reported.as_ref() == Some(&status) {
            return;
        }
        let mut patch = status.clone();
        for condition in patch["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"] = json!(now());
        }
        let (name, namespace) = name_of(&self.pod);
        let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
        let params = PatchParams { field_manager: Some(node::MANAGER.to_owned()), ..PatchParams::default() };
        if pods.patch_status(&name, &params, &Patch::Strategic(json!({ "status": patch }))).await.is_ok() {
            self.reported = Some(status);
        }
    }

    /// Ends its programs.
    pub async fn stop(&mut self) {
        for running in &mut self.containers {
            if let Some(process) = &mut running.process {
                process.stop(GRACE).await;
            }
        }
    }
}

/// What is only said to run answers no probes.
async fn probe_if(
    program: &Option<Program>,
    probe: Option<&k8s_openapi::api::core::v1::Probe>,
    container: &Container,
    address: IpAddr,
) -> bool {
    program.is_none() || probe::passes(probe, container, address).await
}

impl Running {
    async fn step(
        &mut self,
        pod: &Pod,
        address: IpAddr,
        restart_policy: Option<&str>,
        logs: &Path,
        surroundings: &Surroundings,
    ) -> State {
        let Some(program) = self.program.clone() else { return State::Running };
        if self.files_due.is_none_or(|due| Instant::now() >= due) {
            if !self.volumes.update(surroundings, pod, &self.container).await {
                // A pod that runs keeps the files that it has.
                if self.process.is_none() {
                    return State::Waiting("ContainerCreating");
                }
            }
            self.files_due = Some(Instant::now() + FILES);
        }
        if let Some(process) = &mut self.process {
            if process.is_running() {
                self.check_liveness(address).await;
                return State::Running;
            }
            let status = process.exit_status();
            let code = status.and_then(|status| status.code()).unwrap_or(137);
            match restart_policy {
                Some("Never") => return State::Ended(code),
                Some("OnFailure") if code == 0 => return State::Ended(code),
                _ => {}
            }
            let pause = Duration::from_secs(1 << self.restarts.min(5)).min(BACK_OFF_MAX);
            let start = *self.next_start.get_or_insert_with(|| Instant::now() + pause);
            if Instant::now() < start {
                return State::Waiting("CrashLoopBackOff");
            }
            self.restarts += 1;
            self.next_start = None;
        }
        self.alive = Instant::now();
        let launch = self.launch(pod, address, &program, surroundings).await;
        self.process = launch.and_then(|launch| Process::start(launch, logs).ok());
        if self.process.is_some() { State::Running } else { State::Waiting("CreateContainerError") }
    }

    /// Kills the program when its liveness probe has failed for as long as the pod allows; the next step starts it again.
    async fn check_liveness(&mut self, address: IpAddr) {
        let Some(probe) = self.container.liveness_probe.clone() else { return };
        if probe::passes(Some(&probe), &self.container, address).await {
            self.alive = Instant::now();
            return;
        }
        let seconds = probe.initial_delay_seconds.unwrap_or(0)
            + probe.period_seconds.unwrap_or(10) * probe.failure_threshold.unwrap_or(3);
        if self.alive.elapsed() > Duration::from_secs(u64::from(seconds.unsigned_abs()))
            && let Some(process) = &mut self.process
        {
            process.stop(GRACE).await;
        }
    }

    async fn launch(
        &self,
        pod: &Pod,
        address: IpAddr,
        program: &Program,
        surroundings: &Surroundings,
    ) -> Option<Launch> {
        let (name, namespace) = name_of(pod);
        volumes::make(&self.root).ok()?;
        volumes::make(&self.root.join("tmp")).ok()?;
        let arguments = ["--mount", "sh", "-c", ENTER, "sh"].map(str::to_owned).into_iter();
        let arguments = arguments.chain([self.root.display().to_string(), program.path.display().to_string()]);
        let arguments = arguments.chain(self.container.args.clone().unwrap_or_default());
        let arguments = arguments.chain(program.arguments.iter().cloned());
        let log = format!("pod-{namespace}-{name}-{}", self.container.name);
        let mut launch = Launch::new(&log, Path::new("unshare"), arguments)
            .with_env("KUBERNETES_SERVICE_HOST", surroundings.api.ip().to_string())
            .with_env("KUBERNETES_SERVICE_PORT", surroundings.api.port().to_string());
        launch.environment.extend(program.environment.iter().cloned());
        for variable in self.container.env.as_deref().unwrap_or_default() {
            let value = match &variable.value_from {
                None => variable.value.clone().unwrap_or_default(),
                Some(from) => from_elsewhere(&surroundings.client, pod, address, from).await?,
            };
            launch.environment.push((variable.name.clone(), value));
        }
        Some(launch)
    }
}

/// The value of a variable that names where it is; None: it is not there yet, or this kubelet does not know the place.
async fn from_elsewhere(
    client: &Client,
    pod: &Pod,
    address: IpAddr,
    from: &k8s_openapi::api::core::v1::EnvVarSource,
) -> Option<String> {
    let (name, namespace) = name_of(pod);
    if let Some(field) = &from.field_ref {
        return match field.field_path.as_str() {
            "metadata.name" => Some(name),
            "metadata.namespace" => Some(namespace),
            "status.podIP" => Some(address.to_string()),
            "spec.nodeName" => pod.spec.as_ref()?.node_name.clone(),
            _ => None,
        };
    }
    let bytes = if let Some(key) = &from.secret_key_ref {
        volumes::secret(client, &namespace, &key.name).await?.remove(&key.key)
    } else if let Some(key) = &from.config_map_key_ref {
        volumes::config_map(client, &namespace, &key.name).await?.remove(&key.key)
    } else {
        None
    };
    String::from_utf8(bytes?).ok()
}
