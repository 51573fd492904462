//! The serving certificate of the first member's kubelet. There is no join service yet, so the cluster's authority, which kubeadm has just made on this host, signs it here.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use join_tickets::certificate::{Authority, LIFETIME_MAX, Purpose};
use join_tickets::request::{Allowed, KubeletRequest};

use crate::adapters::certificate_request::certificate_request;
use crate::adapters::files::{Files, PKI, below};
use crate::adapters::kubeadm::read_secret;
use crate::platform::{Outcome, PlatformError};

/// Largest certificate or key of an authority.
const AUTHORITY_BYTES_MAX: u64 = 64 * 1024;

/// Issues it for this name and these addresses, and writes it with its key to the state disk. It is valid for a year, as kubeadm's certificates are; `renewal` renews it.
///
/// # Errors
/// The authority cannot be read, or does not sign.
pub(super) fn issue(root: &Path, files: &Files, node_name: &str, addresses: &[IpAddr]) -> Outcome<()> {
    let failed = |error: &dyn std::fmt::Display| {
        PlatformError::new("the serving certificate of the kubelet cannot be issued", error)
    };
    let pki = below(root, Path::new(PKI));
    let [certificate, key] = ["ca.crt", "ca.key"].map(|name| read_secret(&pki.join(name), AUTHORITY_BYTES_MAX));
    let authority = Authority::from_pem(certificate?.expose(), key?.expose()).map_err(|error| failed(&error))?;
    let (request, key) = certificate_request(node_name, addresses, files.kubelet_key().as_ref())?;
    let addresses: BTreeSet<IpAddr> = addresses.iter().copied().collect();
    let request = KubeletRequest::check(&request, &Allowed { node_name, addresses: &addresses });
    let request = request.map_err(|error| failed(&error))?;
    let mut serial = [0; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| failed(&"the system has no randomness"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| failed(&error))?;
    let issued = authority.issue(&request, Purpose::Serving, serial, now, LIFETIME_MAX);
    files.write_kubelet_pair(&issued.map_err(|error| failed(&error))?, &key)
}
