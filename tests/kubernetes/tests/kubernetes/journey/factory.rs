//! Central services on a broker with the shipped ACL, a Kubernetes control plane whose pods are processes, and the operator who pastes the bootstrap command there.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use e2e::program;
use e2e::secured_site::{Site, mqtt};
use e2e::shell::Shell;
use kube::api::{Api, DynamicObject, ListParams};
use kubernetes_tests::audit::{Account, Audit};
use kubernetes_tests::control_plane::{ControlPlane, Options};
use kubernetes_tests::kubelet::Kubelet;
use kubernetes_tests::kubelet::images::{self, Ours};
use kubernetes_tests::programs::Programs;
use kubernetes_tests::sources::Sources;
use kubernetes_tests::{definitions, flux_export};
use serde_json::Value;
use sparkplug::session::QoS;
use sparkplug_mqtt::{Clock, ListenerEvent, spawn_listener};

use super::NAMESPACE;

/// Far above what anything takes: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);

/// The charts that are shipped, which the cluster manager serves.
pub const CHARTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../helm");

/// See the module.
pub struct Factory {
    pub plane: ControlPlane,
    pub site: Site,
    pub shell: Shell,
    pub audit: Audit,
    pub kubelet: Kubelet,
    received: Arc<Mutex<Vec<String>>>,
    _sources: Sources,
}

impl Factory {
    /// Starts all of it; there is no Flux, no cluster in ConfigDB, and nothing of this project on the Kubernetes cluster. Certificates live for `lifetime_s` seconds.
    pub async fn start(hosts: &[&str], lifetime_s: u32) -> Self {
        Self::start_with(hosts, lifetime_s, &format!("charts_dir = \"{CHARTS}\"\n")).await
    }

    /// The same, with the rest of the cluster manager's table `git`, such as where it has charts from.
    pub async fn start_with(hosts: &[&str], lifetime_s: u32, git: &str) -> Self {
        let programs = Programs::find().unwrap_or_else(|missing| panic!("{missing}"));
        let site = Site::start_with(lifetime_s, |site| configuration(site, &programs, git)).await;
        let received = listen(&site);
        let edge = Account { namespace: NAMESPACE.to_owned(), name: "sparkfleet-edge".to_owned() };
        let audit = Audit::begin(edge);
        let options = Options { scheduler: true, api_server: audit.flags() };
        let plane = ControlPlane::with(options).await;
        let ours = Ours {
            sparkfleet: program::sparkfleet(),
            edge: program::named("sparkfleet-edge"),
            edge_agent: program::edge_agent(),
        };
        let kubelet = Kubelet::start(&plane, hosts, false, images::of(&programs, ours)).await;
        let sources = Sources::start(&plane).await;
        let kube_config = std::fs::read_to_string(plane.kubeconfig()).unwrap();
        let shell = Shell::with_kubectl(&kube_config, &programs.program("kubectl"));
        Self { plane, site, shell, audit, kubelet, received, _sources: sources }
    }

    /// Waits until a message has been received on a topic of a group, the first `from` messages left out.
    pub async fn receives(&self, topic: &str, from: usize) {
        let topic = format!("spBv1.0/{topic}");
        let found = async || if self.received()[from..].contains(&topic) { Ok(()) } else { Err(Value::Null) };
        self.until(&format!("a message on {topic}"), found).await;
    }

    /// The topics of all messages so far.
    pub fn received(&self) -> Vec<String> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for what `found` yields; its error is the last state that was seen.
    pub async fn until<T>(&self, what: &str, mut found: impl AsyncFnMut() -> Result<T, Value>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match found().await {
                Ok(found) => return found,
                Err(last) if Instant::now() > deadline => {
                    panic!("waited {PATIENCE:?} for {what}; last seen: {last:#}\n{}", self.diagnosis().await)
                }
                Err(_) => {}
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until what a command of the command line prints is as wanted, and returns it.
    pub async fn says(&self, what: &str, arguments: &[&str], is: impl Fn(&Value) -> bool) -> Value {
        let arguments = [arguments, &["--output", "json"]].concat();
        self.until(what, async || {
            let outcome = self.site.cli.run(&arguments).await;
            let said = serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| Value::String(outcome.stderr));
            if outcome.code == 0 && is(&said) { Ok(said) } else { Err(said) }
        })
        .await
    }

    /// Runs a command of the command line that must succeed; what it printed.
    pub async fn does(&self, arguments: &[&str]) -> String {
        let outcome = self.site.cli.run(arguments).await;
        if outcome.code != 0 {
            panic!("{outcome:#?}\n{}", self.diagnosis().await);
        }
        outcome.stdout
    }

    /// Waits until an object is as wanted; a namespace of no name: all of the cluster.
    pub async fn object(&self, place: (&str, &str, &str), name: &str, is: impl Fn(&Value) -> bool) -> Value {
        let api = self.api(place);
        let what = format!("{} {name}", place.1);
        self.until(&what, async || match api.get_opt(name).await {
            Ok(Some(found)) => {
                let found = serde_json::to_value(found).unwrap();
                if is(&found) { Ok(found) } else { Err(found) }
            }
            Ok(None) => Err(Value::String("it is not there".to_owned())),
            Err(error) => Err(Value::String(error.to_string())),
        })
        .await
    }

    /// Objects of a kind (`apiVersion`, `kind`, namespace).
    pub fn api(&self, (version, kind, namespace): (&str, &str, &str)) -> Api<DynamicObject> {
        match namespace {
            "" => definitions::api_everywhere(self.plane.client(), version, kind),
            namespace => definitions::api(self.plane.client(), version, kind, namespace),
        }
    }

    /// The ids of the processes of pods of this control plane that run a program.
    pub fn processes(&self, program: &Path) -> Vec<u32> {
        let program = std::fs::metadata(program).unwrap();
        let address = format!("KUBERNETES_SERVICE_HOST={}\0", self.plane.api_address().ip());
        let is_it = |process: &Path| {
            let environment = std::fs::read(process.join("environ")).unwrap_or_default();
            let executable = std::fs::metadata(process.join("exe"));
            executable.is_ok_and(|found| (found.dev(), found.ino()) == (program.dev(), program.ino()))
                && environment.windows(address.len()).any(|part| part == address.as_bytes())
        };
        let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        all.filter_map(|path| Some((path.file_name()?.to_str()?.parse().ok()?, path)))
            .filter(|(_, path)| is_it(path))
            .map(|(id, _)| id)
            .collect()
    }

    /// For the message of a test that fails: what Flux' objects say, and the ends of all logs.
    pub async fn diagnosis(&self) -> String {
        let source = "source.toolkit.fluxcd.io/v1";
        let kinds = [
            (source, "GitRepository"),
            (source, "HelmChart"),
            ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
            ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
        ];
        let mut said = String::new();
        for (version, kind) in kinds {
            let Ok(found) = self.api((version, kind, "")).list(&ListParams::default()).await else { continue };
            for object in found.items {
                let name = object.metadata.name.unwrap_or_default();
                said.push_str(&format!("{kind} {name}: {}\n", object.data["status"]["conditions"]));
            }
        }
        format!("{said}\n{}\n{}", self.site.processes.tails(), self.pods())
    }

    /// The ends of the logs of all pods.
    fn pods(&self) -> String {
        let logs = std::fs::read_dir(self.plane.directory()).unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        let mut logs: Vec<PathBuf> = logs.filter(|path| path.to_string_lossy().contains("/pod-")).collect();
        logs.sort();
        logs.iter().map(|path| format!("--- {}\n{}\n", path.display(), tail(path))).collect()
    }
}

fn tail(log: &Path) -> String {
    let text = String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

/// Resident memory of a process, in MiB.
pub fn memory_mib(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib / 1024.0
}

/// Prints how long something took, as a measurement.
pub fn took(what: &str, since: Instant) {
    eprintln!("journey: {what}: {:.2} s", since.elapsed().as_secs_f64());
}

/// Of the cluster manager, after its table `git` has begun: where the edge finds the MQTT server, and what the script brings.
fn configuration(site: &Site, programs: &Programs, git: &str) -> String {
    let at = |name: &str| site.server.directory().join(name).display().to_string();
    let flux = at("flux.yaml");
    std::fs::write(&flux, flux_export::manifests(programs)).unwrap();
    let port = site.server.address().port();
    format!(
        "{git}[edge]\nmqtt_servers = [\"mqtts://127.0.0.1:{port}\"]\nmqtt_secret = \"sparkfleet-identity\"\n\
         [bootstrap]\nflux = \"{flux}\"\nimage = \"sparkfleet:test\"\nmqtt_ca_file = \"{}\"\nmqtt_cert_file = \"{}\"\nmqtt_key_file = \"{}\"\n",
        at("sparkfleet-ca.pem"),
        at("ACME-Enrol.pem"),
        at("ACME-Enrol.key")
    )
}

/// Subscribes to everything, as the operator.
fn listen(site: &Site) -> Arc<Mutex<Vec<String>>> {
    let received = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&received);
    let filters = vec![("spBv1.0/#".to_owned(), QoS::AtMostOnce)];
    let mut listener = spawn_listener(filters, &mqtt(&site.server, "ACME-Central-Operator"), Clock::new()).unwrap();
    tokio::spawn(async move {
        while let Some(event) = listener.recv().await {
            if let ListenerEvent::Message { topic, .. } = event {
                all.lock().unwrap_or_else(PoisonError::into_inner).push(topic);
            }
        }
    });
    received
}
