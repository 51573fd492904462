//! Takes what a host was in etcd before out of it, before the host joins as a control plane again.
//!
//! A host that lost its disk, by a reset or because its power failed during a join, may still be a member of etcd. `kubeadm join` takes that membership over, because the address is the
//! same. But the log of that member is gone: etcd counts a member for its quorum that does not come up. So the host removes it, with a certificate that it issues itself: the ticket of a
//! control plane brings etcd's authority. A member is this host's own if it has its name or its address; names are bound to endorsement keys, and a host that joins has no data of etcd.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Method, Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use join_tickets::certificate::{Authority, Purpose};
use join_tickets::request::{Allowed, KubeletRequest};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use serde_json::{Value, json};

use super::read_secret;
use crate::adapters::certificate_request::certificate_request;
use crate::adapters::files::{PKI, below};
use crate::platform::{Outcome, PlatformError};

/// Where etcd keeps what it has.
const DATA: &str = "/var/lib/etcd/member";
/// Port on which members of etcd answer clients, as kubeadm sets it up.
pub(super) const CLIENT_PORT: u16 = 2379;
/// Port on which they reach each other.
const PEER_PORT: u16 = 2380;
/// Largest certificate or key of an authority.
const AUTHORITY_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Longest time for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long the certificate is valid: it is needed for some requests.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(600);

/// A member of etcd; numbers are texts in its JSON.
#[derive(Debug, Deserialize)]
struct Member {
    #[serde(rename = "ID")]
    id: String,
    /// Empty until it was started.
    #[serde(default)]
    name: String,
    #[serde(default, rename = "peerURLs")]
    peer_urls: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Members {
    members: Vec<Member>,
}

/// The etcd of the cluster that a host joins.
#[derive(Debug)]
pub(super) struct Etcd<'a> {
    /// Root directory of the host.
    pub root: &'a Path,
    /// Name of its node.
    pub node_name: &'a str,
    /// Its addresses, that of the node first.
    pub addresses: &'a [IpAddr],
    /// API servers (`https://HOST:PORT`); etcd answers on the same hosts.
    pub servers: &'a [String],
    /// [`CLIENT_PORT`].
    pub port: u16,
}

impl Etcd<'_> {
    /// Removes what this host was in etcd before; the names or addresses of what was removed. Nothing is asked where etcd has data here, or is not what kubeadm sets up. Where no server
    /// answers, such as behind a load balancer for the API alone, that is logged, and kubeadm is left to it.
    ///
    /// # Errors
    /// etcd does not remove a member, which it refuses where the others have no quorum.
    pub(super) async fn remove_own(&self) -> Outcome<Vec<String>> {
        let authority = ["ca.crt", "ca.key"].map(|name| below(self.root, Path::new(PKI)).join("etcd").join(name));
        if below(self.root, Path::new(DATA)).exists() || authority.iter().any(|path| !path.exists()) {
            return Ok(Vec::new());
        }
        let [certificate, key] = authority.map(|path| read_secret(&path, AUTHORITY_BYTES_MAX));
        let client = self.client(certificate?.expose(), key?.expose())?;
        for server in self.servers.iter().filter_map(|server| endpoint(server, self.port)) {
            match self.remove_by(&client, &server).await {
                Err(Failed::Unreachable(reason)) => tracing::warn!(server, reason, "etcd does not answer"),
                Err(Failed::Refused(reason)) => return Err(PlatformError(format!("etcd {server}: {reason}"))),
                Ok(removed) => return Ok(removed),
            }
        }
        Ok(Vec::new())
    }

    async fn remove_by(&self, client: &EtcdClient, server: &str) -> Result<Vec<String>, Failed> {
        let listed = call(client, server, "list", &json!({})).await?;
        let listed: Members = serde_json::from_value(listed).map_err(|error| Failed::Refused(error.to_string()))?;
        let mut removed = Vec::new();
        for member in listed.members.into_iter().filter(|member| self.is_own(member)) {
            call(client, server, "remove", &json!({ "ID": member.id })).await?;
            removed.push(if member.name.is_empty() { member.peer_urls.join(", ") } else { member.name });
        }
        Ok(removed)
    }

    fn is_own(&self, member: &Member) -> bool {
        let own = self.addresses.first().map(|address| std::net::SocketAddr::new(*address, PEER_PORT));
        let is_address = |url: &String| own.is_some_and(|own| *url == format!("https://{own}"));
        member.name == self.node_name || member.peer_urls.iter().any(is_address)
    }

    /// A client that etcd believes: every client that its authority signed may do everything.
    fn client(&self, certificate: &[u8], key: &[u8]) -> Outcome<EtcdClient> {
        let failed = |error: &dyn std::fmt::Display| PlatformError::new("a certificate for etcd", error);
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(certificate).filter_map(Result::ok));
        let authority = Authority::from_pem(certificate, key).map_err(|error| failed(&error))?;
        let (request, own_key) = certificate_request(self.node_name, &[], None)?;
        let allowed = Allowed { node_name: self.node_name, addresses: &BTreeSet::new() };
        let request = KubeletRequest::check(&request, &allowed).map_err(|error| failed(&error))?;
        let mut serial = [0; 16];
        SystemRandom::new().fill(&mut serial).map_err(|_| failed(&"the system has no randomness"))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| failed(&error))?;
        let issued = authority.issue(&request, Purpose::ServingAndClient, serial, now, CERTIFICATE_LIFETIME);
        let chain = vec![CertificateDer::from(issued.map_err(|error| failed(&error))?)];
        let own_key = PrivateKeyDer::from_pem_slice(own_key.as_bytes()).map_err(|error| failed(&error))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_root_certificates(roots).with_client_auth_cert(chain, own_key))
            .map_err(|error| failed(&error))?;
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
        Ok(Client::builder(TokioExecutor::new()).build(connector))
    }
}

type EtcdClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

enum Failed {
    /// Another server may answer.
    Unreachable(String),
    /// Another server would say the same.
    Refused(String),
}

/// Where etcd answers on the host of an API server.
fn endpoint(server: &str, port: u16) -> Option<String> {
    let uri: Uri = server.parse().ok()?;
    Some(format!("https://{}:{port}", uri.host()?))
}

/// Calls a method of etcd's API for clusters by its JSON gateway.
async fn call(client: &EtcdClient, server: &str, method: &str, body: &Value) -> Result<Value, Failed> {
    let unreachable = |error: &dyn std::fmt::Display| Failed::Unreachable(error.to_string());
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{server}/v3/cluster/member/{method}"))
        .body(Full::from(body.to_string()))
        .map_err(|error| unreachable(&error))?;
    let answer = tokio::time::timeout(ANSWER_WITHIN, client.request(request)).await;
    let answer = answer.map_err(|error| unreachable(&error))?.map_err(|error| unreachable(&error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
    let body = tokio::time::timeout(ANSWER_WITHIN, body).await.map_err(|error| unreachable(&error))?;
    let body = body.map_err(|error| unreachable(&error))?.to_bytes();
    if !status.is_success() {
        return Err(Failed::Refused(format!("{status}: {}", String::from_utf8_lossy(&body))));
    }
    serde_json::from_slice(&body).map_err(|error| Failed::Refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_the_hosts_own_by_its_name_or_by_its_address() {
        let root = Path::new("/");
        let addresses: Vec<IpAddr> = ["10.0.0.7", "10.0.0.8"].iter().map(|text| text.parse().unwrap()).collect();
        let etcd = Etcd { root, node_name: "edge-1", addresses: &addresses, servers: &[], port: CLIENT_PORT };
        let is_own = |name: &str, url: &str| {
            etcd.is_own(&Member { id: "1".to_owned(), name: name.to_owned(), peer_urls: vec![url.to_owned()] })
        };
        // One that was never started has no name.
        assert!(is_own("", "https://10.0.0.7:2380") && is_own("edge-1", "https://10.0.0.1:2380"));
        assert!(!is_own("", "https://10.0.0.8:2380"), "kubeadm announces the first address");
        assert!(!is_own("", "https://10.0.0.70:2380") && !is_own("edge-10", "https://10.0.0.1:2380"));
        let six: Vec<IpAddr> = vec!["fd00::7".parse().unwrap()];
        let etcd = Etcd { addresses: &six, ..etcd };
        let member =
            Member { id: "1".to_owned(), name: String::new(), peer_urls: vec!["https://[fd00::7]:2380".to_owned()] };
        assert!(etcd.is_own(&member));
        let nameless = Etcd { addresses: &[], ..etcd };
        assert!(!nameless.is_own(&member));
    }

    #[test]
    fn etcd_answers_on_the_hosts_of_the_api() {
        assert_eq!(endpoint("https://10.0.0.1:6443", 2379).unwrap(), "https://10.0.0.1:2379");
        assert_eq!(endpoint("https://[fd00::1]:6443", 2379).unwrap(), "https://[fd00::1]:2379");
        assert_eq!(endpoint("no address", 2379), None);
    }
}
