//! What the state needs of the configuration.

use core::net::IpAddr;
use std::time::Duration;

use join_protocol::message::grant::Component;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What runs the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// kubeadm.
    #[default]
    Kubeadm,
    /// k3s.
    K3s,
}

/// Of one cluster and one replica.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Object of the cluster.
    pub cluster_uuid: Uuid,
    /// Name of the cluster.
    pub cluster_name: String,
    /// Quarantine group.
    pub join_group: String,
    /// Version of the software.
    pub version: String,
    /// The cluster is simulated.
    pub simulated: bool,
    /// Name of this replica.
    pub replica: String,
    /// What runs the cluster.
    pub distribution: Distribution,
    /// URLs of the API servers.
    pub servers: Vec<String>,
    /// Version of Kubernetes.
    pub kubernetes_version: String,
    /// What hosts install, by hash.
    pub components: Vec<Component>,
    /// Labels of nodes.
    pub labels: Vec<String>,
    /// Taints of nodes.
    pub taints: Vec<String>,
    /// Where hosts may have addresses.
    pub networks: Vec<Network>,
    /// How long a token is valid.
    pub token_lifetime: Duration,
    /// How long one host may take to join the control plane.
    pub control_plane_lifetime: Duration,
    /// How long certificates are valid.
    pub certificate_lifetime: Duration,
    /// Hosts that are remembered.
    pub hosts_max: usize,
    /// Hellos that are answered in one second.
    pub hellos_per_second_max: u32,
    /// Evidence that is judged in one second.
    pub evidence_per_second_max: u32,
}

/// A network of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    /// None: the prefix is longer than an address.
    #[must_use]
    pub const fn new(address: IpAddr, prefix: u32) -> Option<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if prefix <= bits { Some(Self { address, prefix }) } else { None }
    }

    /// True if the address lies in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - self.prefix).unwrap_or(0);
                ours.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - self.prefix).unwrap_or(0);
                ours.to_bits() & mask == other.to_bits() & mask
            }
            _ => false,
        }
    }
}
