//! The charts of `helm/`, rendered by Go's template engine: objects that Kubernetes' types can hold, in which everything that is named is there, and configuration files that the services
//! take.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use manifests::merge::combine;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use service_runtime::config::load_with;

const CLUSTER: &str = "6f6ee2b1-5f6c-4f0e-9b5c-0f2a4e7d9c11";
const NAMESPACE: &str = "fplus-edge";
const SERVERS: [&str; 1] = ["mqtts://broker.acme.example:8883"];

fn helm(chart: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../helm").join(chart).canonicalize().unwrap()
}

/// The values of a chart, changed as by `-f`.
fn values(chart: &str, changes: &Value) -> Value {
    let text = fs::read_to_string(helm(chart).join("values.yaml")).unwrap();
    combine(serde_saphyr::from_str(&text).unwrap(), changes)
}

/// The objects of a chart.
struct Rendered {
    objects: Vec<Value>,
    directory: tempfile::TempDir,
}

impl Rendered {
    fn new(chart: &str, changes: &Value) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let render = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/render.go");
        let mut go = Command::new("go");
        let cache = std::env::temp_dir().join("sparkfleet-go-cache");
        go.args(["run"]).arg(render).env("GO111MODULE", "off").env("GOCACHE", cache).env("HOME", directory.path());
        let child = go.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("go is installed");
        let release = json!({ "Name": chart, "Namespace": NAMESPACE });
        let request = json!({ "chart": helm(chart), "release": release, "values": values(chart, changes) });
        child.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{chart}: {}", String::from_utf8_lossy(&output.stderr));
        let files: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut objects = Vec::new();
        for (file, text) in files.as_object().unwrap() {
            let documents: Vec<Value> = serde_saphyr::from_multiple(text.as_str().unwrap())
                .unwrap_or_else(|error| panic!("{chart}/{file} is not YAML: {error}\n{text}"));
            objects.extend(documents.into_iter().filter(|document| !document.is_null()));
        }
        Self { objects, directory }
    }

    fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    fn names(&self, kind: &str) -> BTreeSet<&str> {
        self.of_kind(kind).map(|object| object["metadata"]["name"].as_str().unwrap()).collect()
    }

    /// Everything that is named is there, once, and of the type that Kubernetes knows.
    fn is_whole(&self) {
        let mut seen = BTreeSet::new();
        for object in &self.objects {
            let key = ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"];
            let key = key.map(|at| object.pointer(at).and_then(Value::as_str).unwrap_or_default());
            assert!(!key[0].is_empty() && !key[1].is_empty() && !key[3].is_empty(), "{object}");
            assert!(seen.insert(key), "{key:?} is there twice");
        }
        for object in self.of_kind("Deployment") {
            let deployment: Deployment = typed(object);
            let (name, spec) = (deployment.metadata.name.unwrap(), deployment.spec.unwrap());
            let labels = spec.template.metadata.unwrap().labels.unwrap();
            assert_eq!(spec.selector.match_labels.unwrap(), labels, "{name}");
            let pod = spec.template.spec.unwrap();
            if let Some(account) = &pod.service_account_name {
                assert!(self.names("ServiceAccount").contains(account.as_str()), "{name}: {account}");
            }
            let volumes = pod.volumes.unwrap_or_default();
            for map in volumes.iter().filter_map(|volume| volume.config_map.as_ref()) {
                assert!(self.names("ConfigMap").contains(map.name.as_str()), "{name}: {}", map.name);
            }
            let mut mounted = BTreeSet::new();
            for mount in pod.containers[0].volume_mounts.iter().flatten() {
                assert!(volumes.iter().any(|volume| volume.name == mount.name), "{name}: {}", mount.name);
                mounted.insert(mount.name.as_str());
            }
            assert_eq!(mounted.len(), volumes.len(), "{name}: every volume is mounted");
            if !self.names("ConfigMap").contains(name.as_str()) {
                continue;
            }
            let configured = &self.configuration(&name).1;
            let paths = configured.split('"').filter(|text| text.starts_with('/'));
            for path in paths {
                let is_there = |at: &str| Path::new(path).starts_with(at);
                let mounts = pod.containers[0].volume_mounts.iter().flatten();
                let from_image = is_there("/usr/share/sparkfleet");
                let within = mounts.map(|mount| mount.mount_path.as_str()).any(is_there);
                assert!(from_image || within, "{name}: nothing is mounted at {path}");
            }
        }
        for kind in ["Role", "ClusterRole"] {
            for object in self.of_kind(&format!("{kind}Binding")) {
                let role = object["roleRef"]["name"].as_str().unwrap();
                assert!(self.names(object["roleRef"]["kind"].as_str().unwrap()).contains(role), "{object}");
                for subject in object["subjects"].as_array().unwrap() {
                    assert!(self.names("ServiceAccount").contains(subject["name"].as_str().unwrap()), "{object}");
                }
            }
        }
        self.of_kind("Role").for_each(|object| drop(typed::<Role>(object)));
        self.of_kind("ClusterRole").for_each(|object| drop(typed::<ClusterRole>(object)));
        self.of_kind("RoleBinding").for_each(|object| drop(typed::<RoleBinding>(object)));
        self.of_kind("ClusterRoleBinding").for_each(|object| drop(typed::<ClusterRoleBinding>(object)));
    }

    /// Every object lies in the namespace of the release, in one that the chart makes, or in one that every cluster has. What lies in none is named for the release.
    fn needs_no_other_namespace(&self) {
        let made = self.names("Namespace");
        for object in &self.objects {
            let name = object["metadata"]["name"].as_str().unwrap();
            match object["metadata"]["namespace"].as_str() {
                Some(namespace) => {
                    let is_there = namespace == NAMESPACE || namespace == "kube-system" || made.contains(namespace);
                    assert!(is_there, "the chart does not make namespace {namespace}: {object}");
                }
                None => {
                    let is_shared =
                        ["sealed-secrets", "sealed-secrets-unsealer", "sealedsecrets.bitnami.com"].contains(&name);
                    assert!(is_shared || name.contains(NAMESPACE), "two installations would both have {name}");
                }
            }
        }
    }

    /// Name and text of the configuration file in the ConfigMap of that name.
    fn configuration(&self, map: &str) -> (String, String) {
        let map = self.of_kind("ConfigMap").find(|object| object["metadata"]["name"] == map).unwrap();
        let data = map["data"].as_object().unwrap();
        let (file, text) = data.iter().find(|(file, _)| file.ends_with(".toml")).unwrap();
        (file.clone(), text.as_str().unwrap().to_owned())
    }

    /// The configuration file of a pod, with the files that it names, in a directory instead of at the root.
    fn file(&self, map: &str) -> PathBuf {
        let (name, text) = self.configuration(map);
        let root = self.directory.path().join(map);
        let (etc, var) = (root.join("etc"), root.join("var"));
        for folder in ["mqtt", "enrolment"] {
            fs::create_dir_all(etc.join(folder)).unwrap();
            fs::write(etc.join(folder).join("password"), "hunter2\n").unwrap();
            let (certificate, key) = certificate();
            for (name, text) in [("ca.crt", &certificate), ("tls.crt", &certificate), ("tls.key", &key)] {
                fs::write(etc.join(folder).join(name), text).unwrap();
            }
        }
        fs::create_dir_all(&var).unwrap();
        let text = text.replace("/etc/sparkfleet", &etc.display().to_string());
        let text = text.replace("/var/lib/sparkfleet", &var.display().to_string());
        let file = etc.join(name);
        fs::write(&file, text).unwrap();
        file
    }

    fn load<T: DeserializeOwned + Default + Serialize>(&self, service: &str, map: &str) -> T {
        let file = self.file(map);
        let environment: [(OsString, OsString); 0] = [];
        load_with(service, &[], Some(&file), environment)
            .unwrap_or_else(|error| panic!("{map}: {error}\n{}", fs::read_to_string(&file).unwrap()))
    }
}

/// A certificate and its key, PEM.
fn certificate() -> (String, String) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=test", "-keyout", "-", "-out", "-"])
        .output()
        .expect("openssl is installed");
    let text = String::from_utf8(made.stdout).unwrap();
    let (key, certificate) = text.split_at(text.find("-----BEGIN CERTIFICATE").unwrap());
    (certificate.to_owned(), key.to_owned())
}

fn typed<T: DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"))
}

/// Ways to log in at the MQTT server.
fn logins() -> [Value; 3] {
    [
        json!({ "servers": ["mqtt://broker.acme.example:1883"] }),
        json!({ "servers": SERVERS, "secretName": "sparkfleet-identity" }),
        json!({ "servers": SERVERS, "secretName": "broker", "username": "paint" }),
    ]
}

#[test]
fn the_chart_of_an_edge_cluster_is_whole_and_its_services_take_what_it_configures() {
    let ways_back = [
        json!({}),
        json!({ "enrolmentSecret": "sparkfleet-enrolment", "certificate": true }),
        json!({ "enrolmentSecret": "sparkfleet-enrolment", "certificate": false, "username": "ACME-Enrol" }),
    ];
    for (login, identity) in logins().into_iter().zip(ways_back) {
        let cluster = json!({ "name": "Paint_Shop", "uuid": CLUSTER });
        let join = json!({ "enabled": true, "servers": ["https://10.1.0.1:6443"], "networks": ["10.1.0.0/16"] });
        let kerberos =
            json!({ "enabled": true, "realm": "ACME.EXAMPLE", "krb5Conf": "[libdefaults]\n default_realm = X\n" });
        let all =
            json!({ "cluster": cluster, "mqtt": login, "identity": identity, "join": join, "kerberos": kerberos });
        let rendered = Rendered::new("edge-cluster", &all);
        rendered.is_whole();
        rendered.needs_no_other_namespace();

        let edge: edge_sync::Config = rendered.load("edge", "sparkfleet-edge");
        let (checked, with_tls) = (edge.validate(1).unwrap(), login["username"].is_null());
        assert_eq!(checked.node.to_string(), "ACME-Paint_Shop/Sync");
        let has_secret = !login["secretName"].is_null();
        let can_ask = edge.identity.cert_file.is_some() || edge.identity.username.is_some();
        assert_eq!(can_ask, !identity["enrolmentSecret"].is_null(), "{identity}");
        let join: join_service::Config = rendered.load("join-service", "sparkfleet-join");
        join.validate("replica-1").unwrap();
        let keys: krb_keys::Config = rendered.load("krb-keys", "sparkfleet-krb-keys");
        keys.validate().unwrap();
        for mqtt in [&edge.mqtt, &join.mqtt, &keys.mqtt] {
            assert_eq!(json!(mqtt.servers), login["servers"]);
            assert_eq!(
                (mqtt.ca_file.is_some(), mqtt.cert_file.is_some()),
                (has_secret, has_secret && with_tls),
                "{login}"
            );
            assert_eq!((mqtt.username.is_some(), mqtt.password.is_set()), (!with_tls, !with_tls));
        }
    }
    let least = Rendered::new("edge-cluster", &json!({ "cluster": { "name": "Paint_Shop", "uuid": CLUSTER } }));
    least.is_whole();
    let named = BTreeSet::from(["sealed-secrets", "sparkfleet-edge"]);
    assert_eq!(least.names("Deployment"), named, "what is not enabled is not there");
    let without =
        json!({ "cluster": { "name": "Paint_Shop", "uuid": CLUSTER }, "sealedSecrets": { "install": false } });
    let without = Rendered::new("edge-cluster", &without);
    assert_eq!(without.names("Deployment"), BTreeSet::from(["sparkfleet-edge"]));
    assert!(
        without.names("Namespace").iter().all(|name| name.starts_with(NAMESPACE)),
        "{:?}",
        without.names("Namespace")
    );
}

#[test]
fn the_chart_of_the_central_services_is_whole_and_its_services_take_what_it_configures() {
    for login in logins() {
        let manager = "[edge]\nmqtt_servers = [\"mqtts://edge:8883\"]\n";
        let git = json!({ "publicUrl": "https://git.acme.example" });
        let settings = "lifetime_s = 3600\n";
        let changes = json!({ "mqtt": login, "git": git, "identity": { "settings": settings }, "config": { "cluster-manager": manager },
            "secrets": { "cluster-manager": [{ "name": "enrol-login", "mountPath": "/etc/sparkfleet/enrol-login" }] } });
        let rendered = Rendered::new("sparkfleet", &changes);
        rendered.is_whole();
        let configdb: configdb::Config = rendered.load("configdb", "sparkfleet-configdb");
        configdb.validate().unwrap();
        let manager: cluster_manager::Config = rendered.load("cluster-manager", "sparkfleet-cluster-manager");
        manager.validate().unwrap();
        assert_eq!(manager.edge.mqtt_servers, ["mqtts://edge:8883"]);
        assert_eq!(manager.git.public_url.as_deref(), Some("https://git.acme.example"));
        let git: git_server::Config = rendered.load("git-server", "sparkfleet-git-server");
        git.validate().unwrap();
        assert!(!git.listen.ip().is_loopback());
        let identity: identity::Config = rendered.load("identity", "sparkfleet-identity");
        identity.validate().unwrap();
        assert_eq!(identity.lifetime_s, 3600);
        let monitor: edge_monitor::Config = rendered.load("edge-monitor", "sparkfleet-edge-monitor");
        monitor.validate(1).unwrap();
        let (has_secret, with_tls) = (!login["secretName"].is_null(), login["username"].is_null());
        let console: console::Config = rendered.load("console", "sparkfleet-console");
        console.validate(1).unwrap();
        assert!(!console.web.listen.ip().is_loopback());
        assert!(rendered.names("Service").contains("sparkfleet-console") && rendered.names("Ingress").is_empty());
        for mqtt in [&configdb.mqtt, &manager.mqtt, &identity.mqtt, &git.mqtt, &monitor.mqtt, &console.mqtt] {
            assert_eq!(
                (mqtt.ca_file.is_some(), mqtt.cert_file.is_some()),
                (has_secret, has_secret && with_tls),
                "{login}"
            );
            assert_eq!(mqtt.password.is_set(), !with_tls);
        }
    }
}

#[test]
fn console_identity_and_git_server_have_logins_of_their_own_and_an_ingress_is_where_the_site_says_so() {
    let mqtt = json!({ "servers": SERVERS, "secretName": "central", "username": "ACME-Central" });
    let host = "console.acme.example";
    let own = json!({ "mqtt": { "secretName": "console", "username": "ACME-Central-Console" },
        "ingress": { "host": host, "className": "nginx", "tlsSecretName": "console-tls", "annotations": { "a/b": "c" } } });
    let rendered = Rendered::new(
        "sparkfleet",
        &json!({ "mqtt": mqtt, "console": own,
        "identity": { "mqtt": { "secretName": "authority", "username": "ACME-Central-Identity" } },
        "git": { "mqtt": { "secretName": "copies", "username": "ACME-Central-Git" } } }),
    );
    rendered.is_whole();
    let console: console::Config = rendered.load("console", "sparkfleet-console");
    console.validate(1).unwrap();
    assert_eq!(console.mqtt.username.as_deref(), Some("ACME-Central-Console"));
    assert!(console.web.allowed_hosts.iter().any(|allowed| allowed == host), "{:?}", console.web.allowed_hosts);
    let manager: cluster_manager::Config = rendered.load("cluster-manager", "sparkfleet-cluster-manager");
    assert_eq!(manager.mqtt.username.as_deref(), Some("ACME-Central"));
    let identity: identity::Config = rendered.load("identity", "sparkfleet-identity");
    assert_eq!(identity.mqtt.username.as_deref(), Some("ACME-Central-Identity"));
    let git: git_server::Config = rendered.load("git-server", "sparkfleet-git-server");
    assert_eq!(git.mqtt.username.as_deref(), Some("ACME-Central-Git"));
    let logins =
        [("console", "console"), ("identity", "authority"), ("git-server", "copies"), ("cluster-manager", "central")];
    for (name, secret) in logins {
        let mut pods = rendered.of_kind("Deployment");
        let pod = pods.find(|pod| pod["metadata"]["name"] == format!("sparkfleet-{name}")).unwrap();
        let volumes = pod["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
        assert!(volumes.iter().any(|volume| volume["secret"]["secretName"] == secret), "{name}: {volumes:?}");
        let container = &pod["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz", "{name}");
    }
    let ingress: Ingress = typed(rendered.of_kind("Ingress").next().unwrap());
    let (annotations, spec) = (ingress.metadata.annotations.unwrap(), ingress.spec.unwrap());
    assert_eq!((annotations["a/b"].as_str(), spec.ingress_class_name.as_deref()), ("c", Some("nginx")));
    let rule = &spec.rules.unwrap()[0];
    let path = &rule.http.as_ref().unwrap().paths[0];
    let backend = path.backend.service.as_ref().unwrap();
    assert_eq!((rule.host.as_deref(), backend.name.as_str()), (Some(host), "sparkfleet-console"));
    let service = rendered.of_kind("Service").find(|service| service["metadata"]["name"] == backend.name).unwrap();
    assert_eq!(service["spec"]["ports"][0]["name"].as_str(), backend.port.as_ref().unwrap().name.as_deref());
    assert_eq!(spec.tls.unwrap()[0].secret_name.as_deref(), Some("console-tls"));
}

#[test]
fn the_console_has_a_certificate_and_a_network_policy_where_the_site_says_so() {
    let mqtt = json!({ "servers": SERVERS, "secretName": "broker", "username": "paint" });
    let plain = Rendered::new("sparkfleet", &json!({ "mqtt": mqtt }));
    let console: console::Config = plain.load("console", "sparkfleet-console");
    assert!(console.web.cert_file.is_none() && plain.names("NetworkPolicy").is_empty());
    let namespace =
        |name: &str| json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } } });
    let policy = json!({ "enabled": true, "from": [namespace("ingress")], "metricsFrom": [namespace("prometheus")] });
    let own = json!({ "tlsSecretName": "console-tls", "networkPolicy": policy });
    let rendered = Rendered::new("sparkfleet", &json!({ "mqtt": mqtt, "console": own }));
    rendered.is_whole();
    let console: console::Config = rendered.load("console", "sparkfleet-console");
    console.validate(1).unwrap();
    let pod = rendered.of_kind("Deployment").find(|pod| pod["metadata"]["name"] == "sparkfleet-console").unwrap();
    let template = &pod["spec"]["template"];
    let mounts = template["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["name"] == "console-tls").unwrap();
    // Files of /etc/sparkfleet are in a folder of the test here.
    let folder = Path::new(mount["mountPath"].as_str().unwrap()).strip_prefix("/etc/sparkfleet").unwrap();
    for (file, name) in [(&console.web.cert_file, "tls.crt"), (&console.web.key_file, "tls.key")] {
        let file = file.as_deref().unwrap();
        assert!(file.ends_with(Path::new("etc").join(folder).join(name)), "{}", file.display());
    }
    let policy: NetworkPolicy = typed(rendered.of_kind("NetworkPolicy").next().unwrap());
    let spec = policy.spec.unwrap();
    let labels = spec.pod_selector.unwrap().match_labels.unwrap();
    assert!(labels.iter().all(|(name, value)| template["metadata"]["labels"][name] == **value), "{labels:?}");
    let rules = spec.ingress.unwrap();
    let of = |rule: usize, namespace: &str| {
        let (peer, port) = (&rules[rule].from.as_ref().unwrap()[0], &rules[rule].ports.as_ref().unwrap()[0]);
        let labels = peer.namespace_selector.as_ref().unwrap().match_labels.as_ref().unwrap();
        assert_eq!(labels["kubernetes.io/metadata.name"], namespace);
        serde_json::to_value(port.port.as_ref().unwrap()).unwrap()
    };
    let ports = template["spec"]["containers"][0]["ports"].as_array().unwrap();
    for (rule, namespace) in [(0, "ingress"), (1, "prometheus")] {
        let port = of(rule, namespace);
        assert!(ports.iter().any(|one| one["name"] == port), "{port}");
    }
    assert_eq!((rules.len(), of(0, "ingress"), of(1, "prometheus")), (2, json!("web"), json!("http")));
    // Without peers the page is for the pods of its namespace, and the metrics are for none.
    let closed = json!({ "networkPolicy": { "enabled": true } });
    let closed = Rendered::new("sparkfleet", &json!({ "mqtt": mqtt, "console": closed }));
    let policy: NetworkPolicy = typed(closed.of_kind("NetworkPolicy").next().unwrap());
    let rules = policy.spec.unwrap().ingress.unwrap();
    let peer = &rules[0].from.as_ref().unwrap()[0];
    assert!(rules.len() == 1 && peer.pod_selector.is_some() && peer.namespace_selector.is_none(), "{rules:?}");
}

#[test]
fn git_and_the_bootstrap_scripts_have_services_of_their_own() {
    let scripts = json!({ "publicUrl": "https://start.acme.example", "service": { "port": 443 } });
    let rendered = Rendered::new("sparkfleet", &json!({ "mqtt": { "servers": SERVERS }, "bootstrap": scripts }));
    rendered.is_whole();
    assert!(!rendered.names("Service").contains("sparkfleet-api"));
    let target = |service: &str, pod: &str| {
        let service = rendered.of_kind("Service").find(|one| one["metadata"]["name"] == service).unwrap();
        let pod = rendered.of_kind("Deployment").find(|one| one["metadata"]["name"] == pod).unwrap();
        let (port, template) = (&service["spec"]["ports"][0], &pod["spec"]["template"]);
        assert_eq!(service["spec"]["selector"], template["metadata"]["labels"]);
        let container = &template["spec"]["containers"][0];
        let target = container["ports"].as_array().unwrap().iter().find(|at| at["name"] == port["targetPort"]).unwrap();
        (port["port"].clone(), target["containerPort"].clone(), container.clone())
    };
    let (port, at, container) = target("sparkfleet-bootstrap", "sparkfleet-cluster-manager");
    let environment: Vec<(OsString, OsString)> = container["env"].as_array().unwrap().iter().map(variable).collect();
    let file = rendered.file("sparkfleet-cluster-manager");
    let manager: cluster_manager::Config = load_with("cluster-manager", &[], Some(&file), environment).unwrap();
    manager.validate().unwrap();
    assert_eq!((port, at), (json!(443), json!(manager.bootstrap.listen.port())));
    assert!(!manager.bootstrap.listen.ip().is_loopback());
    assert_eq!(manager.bootstrap.public_url.as_deref(), Some("https://start.acme.example"));
    let git: git_server::Config = rendered.load("git-server", "sparkfleet-git-server");
    assert_eq!(target("sparkfleet-git", "sparkfleet-git-server").1, git.listen.port());
}

/// A variable of a container's environment.
fn variable(variable: &Value) -> (OsString, OsString) {
    (variable["name"].as_str().unwrap().into(), variable["value"].as_str().unwrap().into())
}
