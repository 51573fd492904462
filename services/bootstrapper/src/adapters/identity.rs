//! What a host asks to be certified: its name, its addresses, a fresh kubelet key, and its SSH host key.

use std::fs;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::certificate_request::certificate_request;
use super::files::below;
use crate::config::{Config, Distribution};
use crate::event::Identity;
use crate::platform::{Outcome, PlatformError};

/// Largest SSH host key file.
const SSH_KEY_BYTES_MAX: u64 = 16 * 1024;

/// The identity that a host asks for, and the private key that belongs to it.
#[derive(Debug)]
pub struct IdentityRequest {
    /// What goes into the evidence.
    pub identity: Identity,
    /// Private key of the certificate request, PEM; None without a request.
    pub kubelet_key: Option<Zeroizing<String>>,
}

/// Collects it. `addresses`: those of the configuration. `member`: name and kubelet key of a host that is one.
///
/// # Errors
/// The SSH host key cannot be read, or no key can be made.
pub fn ask(
    config: &Config,
    addresses: &[IpAddr],
    root: &Path,
    boot: [u8; 16],
    member: Option<(String, Option<Zeroizing<String>>)>,
) -> Outcome<IdentityRequest> {
    let (known_name, known_key) = member.map_or((None, None), |(name, key)| (Some(name), key));
    let node_name = known_name.or_else(|| config.node_name.clone()).unwrap_or_else(|| host_name(root));
    let ssh_host_key = ssh_host_key(&below(root, &config.paths.ssh_host_key))?;
    // k3s certifies its kubelets itself.
    let wants_certificate = config.kubernetes.distribution == Distribution::Kubeadm && !node_name.is_empty();
    let (certificate_request, kubelet_key) = match wants_certificate {
        // Only addresses of the configuration: an issuer refuses an address that the site does not allow.
        true => {
            certificate_request(&node_name, addresses, known_key.as_ref()).map(|(request, key)| (request, Some(key)))?
        }
        false => (Vec::new(), None),
    };
    let addresses = if addresses.is_empty() { own_addresses(&config.mqtt.servers) } else { addresses.to_vec() };
    let names = Some(node_name.clone()).filter(|name| !name.is_empty());
    let principals = names.into_iter().chain(addresses.iter().map(IpAddr::to_string)).collect();
    let identity = Identity { boot, node_name, certificate_request, ssh_host_key, principals };
    Ok(IdentityRequest { identity, kubelet_key })
}

/// The name of the host in the form of a node's name; empty if there is none.
fn host_name(root: &Path) -> String {
    let text = fs::read_to_string(below(root, Path::new("/etc/hostname"))).unwrap_or_default();
    let name = text.trim().to_lowercase().replace('_', "-");
    if join_protocol::message::evidence::is_node_name(&name) { name } else { String::new() }
}

/// The address by which the first broker that can be resolved is reached. Nothing is sent.
fn own_addresses(servers: &[String]) -> Vec<IpAddr> {
    let own = |server: &String| {
        let address = server.split_once("://")?.1.split('/').next()?;
        let address = if address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            address.to_owned()
        } else {
            format!("{address}:1883")
        };
        let broker = address.to_socket_addrs().ok()?.next()?;
        let socket = UdpSocket::bind(if broker.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).ok()?;
        socket.connect(broker).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    servers.iter().find_map(own).into_iter().collect()
}

/// The public SSH host key in wire format; empty if there is none. Only an Ed25519 key is certified.
fn ssh_host_key(path: &Path) -> Outcome<Vec<u8>> {
    let wrong = |why: &str| PlatformError::new(path.display(), why);
    let length = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(_) => return Ok(Vec::new()),
    };
    if length > SSH_KEY_BYTES_MAX {
        return Err(wrong("is too large for a public key"));
    }
    let text = fs::read_to_string(path).map_err(|error| PlatformError::new(path.display(), error))?;
    let mut fields = text.split_whitespace();
    match (fields.next(), fields.next().map(|key| STANDARD.decode(key))) {
        (Some("ssh-ed25519"), Some(Ok(key))) => Ok(key),
        _ => Err(wrong("is not a line of an ssh-ed25519 key")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_addresses_and_keys_are_taken_from_the_host() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/ssh")).unwrap();
        fs::write(root.path().join("etc/hostname"), "Press_Shop-2\n").unwrap();
        fs::write(root.path().join("etc/ssh/ssh_host_ed25519_key.pub"), "ssh-ed25519 AAAAC3Nz root@edge\n").unwrap();
        let mut config = Config::default();
        config.kubernetes.distribution = Distribution::Kubeadm;
        let asked = ask(&config, &[], root.path(), [7; 16], None).unwrap();
        assert_eq!((asked.identity.node_name.as_str(), asked.identity.boot), ("press-shop-2", [7; 16]));
        assert_eq!(asked.identity.principals, ["press-shop-2", "127.0.0.1"], "the address towards the broker");
        assert_eq!(asked.identity.ssh_host_key, STANDARD.decode("AAAAC3Nz").unwrap());
        assert!(!asked.identity.certificate_request.is_empty() && asked.kubelet_key.is_some());
        config.kubernetes.distribution = Distribution::K3s;
        let asked = ask(&config, &[], root.path(), [7; 16], None).unwrap();
        assert!(asked.identity.certificate_request.is_empty() && asked.kubelet_key.is_none());
        let key = root.path().join("etc/ssh/ssh_host_ed25519_key.pub");
        fs::remove_file(&key).unwrap();
        let asked = ask(&config, &[], root.path(), [7; 16], None).unwrap();
        assert!(asked.identity.ssh_host_key.is_empty());
        fs::write(&key, "ssh-rsa AAAA").unwrap();
        assert!(
            ask(&config, &[], root.path(), [7; 16], None)
                .unwrap_err()
                .0
                .ends_with("is not a line of an ssh-ed25519 key")
        );
    }
}
