//! The keys that a replica begins with, read from named files: its identity as an issuer, the cluster's master secret, the authority of Kubernetes.
//!
//! | file | form | needed |
//! |---|---|---|
//! | `issuer.key` | Ed25519 seed, 64 hexadecimal digits | always |
//! | `issuer.certificates` | its chain, one certificate a line, hexadecimal; the root left out | always |
//! | `root.pub` | public key of the organisation's root, 64 hexadecimal digits: by it the signature of the attestation policy is believed | always |
//! | `master.key` | the cluster's master secret, at least 32 hexadecimal digits | always |
//! | `master.salt` | its salt, at least 64 hexadecimal digits | no: without it the salt follows from the cluster's UUID |
//! | `ca.crt` | authority of Kubernetes, PEM | always, for the pin |
//! | `ca.key` | its key, PEM | to certify kubelets (kubeadm) |
//! | those of [`CONTROL_PLANE_FILES`], `/` written as `-` | | for further control planes (kubeadm) |
//! | `k3s-server-token` | `K10...` | for further servers (k3s) |

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use join_protocol::certificate::{IssuerCertificate, PublicKey, SigningKey, TrustAnchor};
use join_protocol::limits::ISSUER_CERTIFICATES_MAX;
use join_protocol::secret::{Secret, SecretBytes};
use join_protocol::terms::Purpose;
use join_tickets::certificate::Authority;
use join_tickets::keys::MasterSecret;
use join_tickets::kubeadm::{CONTROL_PLANE_FILES, discovery_pins};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::keys::{DerivedKeys, KeyProvider};

/// Files by name.
pub type Files = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// Every file that is read.
pub const FILES: &[&str] = &[
    "issuer.key",
    "issuer.certificates",
    "root.pub",
    "master.key",
    "master.salt",
    "ca.crt",
    "ca.key",
    "sa.key",
    "sa.pub",
    "front-proxy-ca.key",
    "front-proxy-ca.crt",
    "etcd-ca.key",
    "etcd-ca.crt",
    "k3s-server-token",
];

/// A file is missing or not what it must be. Holds nothing of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file} {rule}")]
pub struct TrustError {
    /// Which file.
    pub file: String,
    /// The rule that it breaks.
    pub rule: String,
}

fn fault<T>(file: &str, rule: impl Into<String>) -> Result<T, TrustError> {
    Err(TrustError { file: file.to_owned(), rule: rule.into() })
}

/// What a replica begins with.
pub struct Trust {
    /// Signs challenges and tickets.
    pub signing_key: SigningKey,
    /// Its chain.
    pub certificates: Vec<Vec<u8>>,
    /// Until when the first of them is valid, UTC ms.
    pub not_after_ms: u64,
    /// Keys of the cluster.
    pub keys: Arc<dyn KeyProvider>,
    /// Kubernetes.
    pub kubernetes: KubernetesTrust,
    /// The keys whose signatures of a policy count.
    pub policy_anchor: TrustAnchor,
}

/// What is known of the authority of Kubernetes.
#[derive(Debug, Default)]
pub struct KubernetesTrust {
    /// Pins of it, in kubeadm's form; the first is that of the authority.
    pub pins: Vec<String>,
    /// SHA-256 of its file, which is what k3s pins.
    pub file_hash: [u8; 32],
    /// Certifies kubelets.
    pub authority: Option<Authority>,
    /// Files of a further control plane; None: not all of them are there.
    pub control_plane_files: Option<Vec<(String, SecretBytes)>>,
    /// Token of further k3s servers.
    pub server_token: Option<SecretBytes>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").field("kubernetes", &self.kubernetes).finish_non_exhaustive()
    }
}

impl Trust {
    /// Reads the files of the cluster's join service.
    ///
    /// # Errors
    /// The first file that is missing or wrong.
    pub fn read(files: &Files, cluster: Uuid) -> Result<Self, TrustError> {
        let (signing_key, certificates, first) = issuer(files, cluster)?;
        let root = PublicKey::try_from(hexadecimal(files, "root.pub")?.as_slice());
        let root = root.or_else(|_| fault("root.pub", "must be 64 hexadecimal digits"))?;
        // With the epoch of its own key an organisation ends those of its signers, too.
        let policy_anchor = TrustAnchor { root, cluster, epoch_min: first.epoch };
        let keys = Arc::new(cluster_keys(files, cluster)?);
        let not_after_ms = first.not_after_ms;
        Ok(Self { signing_key, certificates, not_after_ms, keys, kubernetes: kubernetes(files)?, policy_anchor })
    }
}

/// The keys of a cluster from `master.key` and, if it is there, `master.salt` alone. They are for the administrator who sets the first host up, so that the join service opens the same disk later.
///
/// # Errors
/// One of the two is missing or wrong.
pub fn cluster_keys(files: &Files, cluster: Uuid) -> Result<DerivedKeys, TrustError> {
    let salt = match files.get("master.salt") {
        Some(_) => hexadecimal(files, "master.salt")?.to_vec(),
        None => digest(&SHA256, format!("sparkfleet master salt {cluster}").as_bytes()).as_ref().to_vec(),
    };
    let master = MasterSecret::new(hexadecimal(files, "master.key")?.to_vec(), salt);
    let master = master.or_else(|error| fault("master.key", format!("is too short: {error}")))?;
    Ok(DerivedKeys::new(master))
}

fn needed<'a>(files: &'a Files, file: &str) -> Result<&'a Zeroizing<Vec<u8>>, TrustError> {
    files.get(file).map_or_else(|| fault(file, "is missing"), Ok)
}

fn hexadecimal(files: &Files, file: &str) -> Result<Zeroizing<Vec<u8>>, TrustError> {
    let text = needed(files, file)?;
    let decoded = hex::decode(text.trim_ascii()).map(Zeroizing::new);
    decoded.or_else(|_| fault(file, "must be hexadecimal digits and a newline"))
}

fn issuer(files: &Files, cluster: Uuid) -> Result<(SigningKey, Vec<Vec<u8>>, IssuerCertificate), TrustError> {
    let seed = Secret::from_slice(&hexadecimal(files, "issuer.key")?);
    let key = seed.and_then(|seed| SigningKey::from_seed(&seed));
    let Some(key) = key else { return fault("issuer.key", "must be 64 hexadecimal digits") };
    let file = "issuer.certificates";
    let text = std::str::from_utf8(needed(files, file)?).or_else(|_| fault(file, "must be text"))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let certificates: Result<Vec<Vec<u8>>, _> = lines.map(hex::decode).collect();
    let certificates = certificates.or_else(|_| fault(file, "must be lines of hexadecimal digits"))?;
    if certificates.len() > ISSUER_CERTIFICATES_MAX {
        return fault(file, format!("holds more than {ISSUER_CERTIFICATES_MAX} certificates"));
    }
    let Some(first) = certificates.first() else { return fault(file, "holds no certificate") };
    let first = IssuerCertificate::read_unverified(first).or_else(|error| fault(file, error.to_string()))?;
    let rules = [
        (first.public_key == key.public_key(), "begins with the certificate of another key than issuer.key"),
        (first.cluster == cluster, "begins with the certificate of another cluster's issuer"),
        (first.purpose == Purpose::JoinIssuer, "begins with a certificate that is not for a join issuer"),
    ];
    match rules.into_iter().find(|(is_met, _)| !is_met) {
        Some((_, rule)) => fault(file, rule),
        None => Ok((key, certificates, first)),
    }
}

fn kubernetes(files: &Files) -> Result<KubernetesTrust, TrustError> {
    let bundle = needed(files, "ca.crt")?;
    let pins = discovery_pins(bundle).or_else(|error| fault("ca.crt", error.to_string()))?;
    let mut file_hash = [0; 32];
    file_hash.copy_from_slice(digest(&SHA256, bundle).as_ref());
    let authority = match files.get("ca.key") {
        Some(key) => Some(Authority::from_pem(bundle, key).or_else(|error| fault("ca.key", error.to_string()))?),
        None => None,
    };
    let file = |path: &&str| {
        let content = files.get(&path.replace('/', "-"))?;
        Some(((*path).to_owned(), SecretBytes::new(content.to_vec())))
    };
    let control_plane_files: Option<Vec<_>> = CONTROL_PLANE_FILES.iter().map(file).collect();
    let server_token = match files.get("k3s-server-token") {
        // A short token pins no authority: a machine in between could pose as the server.
        Some(token) if token.starts_with(b"K10") => Some(SecretBytes::new(token.trim_ascii().to_vec())),
        Some(_) => return fault("k3s-server-token", "must be a secure token, which begins with K10"),
        None => None,
    };
    Ok(KubernetesTrust { pins, file_hash, authority, control_plane_files, server_token })
}
