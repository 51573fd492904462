//! kubeadm's configuration, API version `kubeadm.k8s.io/v1beta4` (Kubernetes 1.31 and later), as JSON documents, which are YAML.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bootstrapper_contract::InitParameters;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::is_control_plane;
use crate::adapters::audit;
use crate::adapters::files::{KUBELET_CERTIFICATE, KUBELET_KEY, PKI};
use crate::platform::{JoinPlan, Outcome, PlatformError};

const KUBEADM: &str = "kubeadm.k8s.io/v1beta4";
const KUBELET: &str = "kubelet.config.k8s.io/v1beta1";
const API_PORT: u16 = 6443;
/// Into how many such waits the time to become a member is divided. With the default each has about as long as kubeadm gives it by itself.
const STEPS: u32 = 3;
/// kubeadm does not read a time of centuries.
const STEP_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Cipher suites with forward secrecy and authenticated encryption, as the CIS benchmark asks for.
const CIPHERS: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// What a configuration needs to know of the host.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its addresses, that of the node first.
    pub addresses: Vec<IpAddr>,
    /// Socket of its container runtime.
    pub socket: String,
    /// Where its state disk is mounted.
    pub state: PathBuf,
    /// How long it may take to become a member.
    pub member_within: Duration,
}

/// Configuration of a join. It holds the token.
///
/// # Errors
/// There is no `https://` server, or a text is not a taint.
pub fn join(plan: &JoinPlan, server: Option<&str>, host: &Host) -> Outcome<Zeroizing<Vec<u8>>> {
    let membership = &plan.membership;
    let server = server.and_then(|server| server.strip_prefix("https://"));
    let server = server.ok_or_else(|| PlatformError("the ticket names no https:// server".to_owned()))?;
    let token = String::from_utf8_lossy(membership.token.expose());
    let mut arguments = kubelet_arguments(host, &membership.labels);
    if !membership.kubelet_certificate.is_empty() {
        arguments.extend(serving_arguments(host));
    }
    let mut configuration = json!({
        "apiVersion": KUBEADM,
        "kind": "JoinConfiguration",
        "nodeRegistration": registration(&membership.node_name, host, arguments, &membership.taints)?,
        "timeouts": timeouts(host),
        "discovery": {"bootstrapToken": {
            "apiServerEndpoint": server,
            "token": token,
            "caCertHashes": [membership.authority_pin],
        }},
    });
    if is_control_plane(plan.role) {
        configuration["controlPlane"] = json!({"localAPIEndpoint": local_endpoint(host)});
        // The certificates came with the ticket.
        configuration["skipPhases"] = json!(["control-plane-prepare/download-certs"]);
    }
    documents(&[configuration])
}

/// Configuration of an init.
///
/// # Errors
/// A text is not a taint.
pub fn init(parameters: &InitParameters, host: &Host) -> Outcome<Zeroizing<Vec<u8>>> {
    let mut arguments = kubelet_arguments(host, &parameters.labels);
    arguments.extend(serving_arguments(host));
    let initial = json!({
        "apiVersion": KUBEADM,
        "kind": "InitConfiguration",
        "nodeRegistration": registration(&parameters.node_name, host, arguments, &parameters.taints)?,
        "localAPIEndpoint": local_endpoint(host),
        // kubeadm always makes one, by itself for a day. Hosts get theirs from the join service.
        "bootstrapTokens": [{"ttl": "1m0s"}],
        "timeouts": timeouts(host),
    });
    let mut cluster = json!({
        "apiVersion": KUBEADM,
        "kind": "ClusterConfiguration",
        "clusterName": parameters.cluster_name,
        "networking": networking(parameters),
        "apiServer": {
            "certSANs": names(parameters, host),
            "extraArgs": api_server_arguments(),
            "extraVolumes": [
                {"name": "audit-log", "hostPath": "/var/log/kubernetes/audit", "mountPath": "/var/log/kubernetes/audit",
                    "readOnly": false, "pathType": "DirectoryOrCreate"},
                {"name": "audit-policy", "hostPath": super::AUDIT_POLICY, "mountPath": super::AUDIT_POLICY,
                    "readOnly": true, "pathType": "File"},
            ],
        },
        "controllerManager": {"extraArgs": [argument("profiling", false), argument("terminated-pod-gc-threshold", 1000)]},
        "scheduler": {"extraArgs": [argument("profiling", false)]},
    });
    // Certificates that name no address would be refused: the API server reaches kubelets by address.
    if let (Some(arguments), false) = (cluster["apiServer"]["extraArgs"].as_array_mut(), host.addresses.is_empty()) {
        arguments.push(argument("kubelet-certificate-authority", Path::new(PKI).join("ca.crt").display()));
    }
    if !parameters.kubernetes_version.is_empty() {
        cluster["kubernetesVersion"] = json!(parameters.kubernetes_version);
    }
    if let Some(endpoint) = endpoint(parameters, host) {
        cluster["controlPlaneEndpoint"] = json!(endpoint);
    }
    let kubelet = json!({
        "apiVersion": KUBELET,
        "kind": "KubeletConfiguration",
        "protectKernelDefaults": true,
        "rotateCertificates": true,
        "staticPodPath": super::MANIFESTS,
        "tlsCipherSuites": CIPHERS,
        "tlsMinVersion": "VersionTLS12",
    });
    documents(&[initial, cluster, kubelet])
}

fn documents(documents: &[Value]) -> Outcome<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(Vec::with_capacity(16 * 1024));
    for document in documents {
        text.extend_from_slice(b"---\n");
        serde_json::to_writer_pretty(&mut *text, document)
            .map_err(|error| PlatformError::new("kubeadm configuration", error))?;
        text.push(b'\n');
    }
    Ok(text)
}

fn argument(name: &str, value: impl std::fmt::Display) -> Value {
    json!({"name": name, "value": value.to_string()})
}

fn api_server_arguments() -> Vec<Value> {
    let limits = audit::LIMITS.map(|(name, limit)| argument(name, limit));
    let others = [
        argument("audit-log-path", "/var/log/kubernetes/audit/audit.log"),
        argument("audit-policy-file", super::AUDIT_POLICY),
        argument("profiling", false),
    ];
    limits.into_iter().chain(others).collect()
}

fn kubelet_arguments(host: &Host, labels: &[String]) -> Vec<Value> {
    let address = host.addresses.first().map(|address| argument("node-ip", address));
    let labels = (!labels.is_empty()).then(|| argument("node-labels", labels.join(",")));
    address.into_iter().chain(labels).collect()
}

/// The kubelet's serving certificate, on the state disk.
fn serving_arguments(host: &Host) -> [Value; 2] {
    [("tls-cert-file", KUBELET_CERTIFICATE), ("tls-private-key-file", KUBELET_KEY)]
        .map(|(name, path)| argument(name, host.state.join(path).display()))
}

fn registration(name: &str, host: &Host, arguments: Vec<Value>, taints: &[String]) -> Outcome<Value> {
    let mut registration = json!({"name": name, "criSocket": host.socket, "kubeletExtraArgs": arguments});
    if !taints.is_empty() {
        let taints = taints.iter().map(|text| taint(text)).collect::<Outcome<Vec<_>>>()?;
        registration["taints"] = json!(taints);
    }
    Ok(registration)
}

/// `key=value:effect` or `key:effect`.
fn taint(text: &str) -> Outcome<Value> {
    let Some((key, effect)) = text.rsplit_once(':').filter(|(key, effect)| !key.is_empty() && !effect.is_empty())
    else {
        return Err(PlatformError(format!("the taint {text:?} is not key=value:effect")));
    };
    let mut taint = Map::new();
    match key.split_once('=') {
        Some((key, value)) => taint.extend([("key".to_owned(), json!(key)), ("value".to_owned(), json!(value))]),
        None => taint.extend([("key".to_owned(), json!(key))]),
    }
    taint.insert("effect".to_owned(), json!(effect));
    Ok(Value::Object(taint))
}

/// How long kubeadm waits for what it has started. Its own minutes are not enough for a slow board, whatever the bootstrapper would wait.
fn timeouts(host: &Host) -> Value {
    let each = format!("{}s", (host.member_within / STEPS).min(STEP_MAX).as_secs().max(1));
    let names =
        ["controlPlaneComponentHealthCheck", "etcdAPICall", "kubeletHealthCheck", "kubernetesAPICall", "tlsBootstrap"];
    names.into_iter().map(|name| (name, each.clone())).collect()
}

fn local_endpoint(host: &Host) -> Value {
    match host.addresses.first() {
        Some(address) => json!({"advertiseAddress": address.to_string(), "bindPort": API_PORT}),
        None => json!({"bindPort": API_PORT}),
    }
}

/// kubeadm refuses a further control plane in a cluster that has none.
fn endpoint(parameters: &InitParameters, host: &Host) -> Option<String> {
    let given = Some(&parameters.endpoint).filter(|endpoint| !endpoint.is_empty()).cloned();
    given.or_else(|| host.addresses.first().map(|&address| SocketAddr::new(address, API_PORT).to_string()))
}

fn networking(parameters: &InitParameters) -> Value {
    let given = [("podSubnet", &parameters.pod_subnet), ("serviceSubnet", &parameters.service_subnet)];
    let given = given.into_iter().filter(|(_, subnet)| !subnet.is_empty());
    Value::Object(given.map(|(key, subnet)| (key.to_owned(), json!(subnet))).collect())
}

fn names(parameters: &InitParameters, host: &Host) -> Vec<String> {
    let own = host.addresses.iter().map(IpAddr::to_string);
    ["127.0.0.1".to_owned()].into_iter().chain(own).chain(parameters.certificate_names.iter().cloned()).collect()
}
