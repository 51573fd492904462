//! Nodes and their leases.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

/// The field manager of a kubelet's writes.
pub const MANAGER: &str = "kubelet";

/// How long a lease holds without being renewed, as real kubelets say it.
const LEASE_SECONDS: u32 = 40;

/// Registers a host that is ready, or says again that it is.
///
/// # Panics
/// The API refuses it.
pub async fn register(client: &Client, hostname: &str, address: IpAddr, control_plane: bool) {
    let nodes = Api::<Node>::all(client.clone());
    let mut labels = json!({
        "kubernetes.io/hostname": hostname, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"
    });
    if control_plane {
        // Empty, as kubeadm sets it.
        labels["node-role.kubernetes.io/control-plane"] = json!("");
    }
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": hostname, "labels": labels } });
    let params = PatchParams::apply(MANAGER).force();
    nodes.patch(hostname, &params, &Patch::Apply(&node)).await.unwrap_or_else(|error| panic!("{hostname}: {error}"));
    let status = json!({ "status": status(hostname, address) });
    let patched = nodes.patch_status(hostname, &PatchParams::default(), &Patch::Strategic(&status)).await;
    patched.unwrap_or_else(|error| panic!("status of {hostname}: {error}"));
    renew(client, hostname).await.unwrap_or_else(|error| panic!("lease of {hostname}: {error}"));
}

/// Renews the lease of a host.
///
/// # Errors
/// What the API says.
pub async fn renew(client: &Client, hostname: &str) -> Result<(), kube::Error> {
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-node-lease");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": hostname },
        "spec": {
            "holderIdentity": hostname, "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
        }
    });
    leases.patch(hostname, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&lease)).await.map(drop)
}

fn status(hostname: &str, address: IpAddr) -> Value {
    let resources = json!({ "cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi" });
    let time = now();
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "Process", "message": "pods run as processes",
            "lastHeartbeatTime": time, "lastTransitionTime": time
        })
    };
    json!({
        "capacity": resources, "allocatable": resources,
        "addresses": [{ "type": "InternalIP", "address": address }, { "type": "Hostname", "address": hostname }],
        "conditions": [
            condition("Ready", "True"), condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
            condition("PIDPressure", "False")
        ],
        "nodeInfo": {
            "architecture": "amd64", "bootID": hostname, "containerRuntimeVersion": "processes://1", "kernelVersion": "linux",
            "kubeProxyVersion": "", "kubeletVersion": "v1.36.3", "machineID": hostname, "operatingSystem": "linux",
            "osImage": "Debian GNU/Linux 12 (bookworm)", "systemUUID": hostname
        }
    })
}

/// This second, as Kubernetes writes it.
#[must_use]
pub fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
