//! SSH certificates of hosts, signed by an authority whose key follows from the master secret.
//!
//! Form: RFC 4251 (strings, numbers), RFC 8709 (Ed25519), and OpenSSH's `PROTOCOL.certkeys`. Written here: the libraries that build such certificates bring signature
//! implementations beside the workspace's one.

use std::fmt;
use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::keys::Secret;

/// The longest validity of a host's certificate.
pub const LIFETIME_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// The most principals of a certificate, and the most bytes of each.
pub const PRINCIPALS_MAX: usize = 32;
const PRINCIPAL_BYTES_MAX: usize = 253;

/// How long before now a certificate begins to be valid: clocks are not alike.
const BACKDATED: Duration = Duration::from_secs(3600);

const KEY: &str = "ssh-ed25519";
const CERTIFICATE: &str = "ssh-ed25519-cert-v01@openssh.com";
/// `SSH_CERT_TYPE_HOST`.
const HOST: u32 = 2;

/// Why there is no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    /// The host's key is not accepted.
    #[error("SSH host key: must be an Ed25519 key in the form of RFC 8709")]
    HostKey,
    /// There is no principal: such a certificate would be good for every host.
    #[error("SSH principals: must be 1 to {PRINCIPALS_MAX}")]
    Principals,
    /// A principal is neither a name nor an address, or not this host's.
    #[error("SSH principals: {0:?} is not a name or address of this host")]
    Principal(String),
    /// The authority cannot be made of its seed.
    #[error("the SSH authority cannot be made")]
    Authority,
}

/// A host's certificate and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCertificate {
    /// One line, as `sshd` reads it (`HostCertificate`).
    pub line: String,
    /// When it ends, since the Unix epoch.
    pub valid_before: Duration,
}

/// What is to be certified.
#[derive(Debug, Clone, Copy)]
pub struct HostRequest<'a> {
    /// The host's public key, in the form of RFC 8709.
    pub key: &'a [u8],
    /// Names and addresses that the host is reached by.
    pub principals: &'a [String],
    /// Those that it may have.
    pub allowed: &'a [String],
}

/// The authority that certifies hosts' keys.
pub struct SshAuthority(Ed25519KeyPair);

impl fmt::Debug for SshAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SshAuthority(..)")
    }
}

impl SshAuthority {
    /// From its seed: see [`crate::keys::MasterSecret::ssh_authority_seed`].
    ///
    /// # Errors
    /// None for 32 bytes; the library has an error type.
    pub fn from_seed(seed: &Secret) -> Result<Self, SshError> {
        Ed25519KeyPair::from_seed_unchecked(seed.expose()).map(Self).map_err(|_| SshError::Authority)
    }

    /// Its public key as one line, for `known_hosts` and `authorized_keys`.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{KEY} {}", STANDARD.encode(self.public_key()))
    }

    fn public_key(&self) -> Vec<u8> {
        [string(KEY.as_bytes()), string(self.0.public_key().as_ref())].concat()
    }

    /// Certifies a host's key for `lifetime`, at most [`LIFETIME_MAX`]. `nonce`: random. `now`: since the Unix epoch. `serial`: chosen by the caller, to revoke by.
    ///
    /// # Errors
    /// A key or principals that are not accepted.
    pub fn certify(
        &self,
        request: &HostRequest<'_>,
        serial: u64,
        nonce: &[u8; 32],
        now: Duration,
        lifetime: Duration,
    ) -> Result<HostCertificate, SshError> {
        let key = host_key(request.key)?;
        check_principals(request)?;
        let valid_before = now.saturating_add(lifetime.min(LIFETIME_MAX));
        let principals: Vec<u8> = request.principals.iter().flat_map(|name| string(name.as_bytes())).collect();
        let mut certificate = [
            string(CERTIFICATE.as_bytes()),
            string(nonce),
            string(key),
            serial.to_be_bytes().to_vec(),
            HOST.to_be_bytes().to_vec(),
            string(request.principals[0].as_bytes()),
            string(&principals),
            now.saturating_sub(BACKDATED).as_secs().to_be_bytes().to_vec(),
            valid_before.as_secs().to_be_bytes().to_vec(),
            // Critical options, extensions, reserved: none.
            string(&[]),
            string(&[]),
            string(&[]),
            string(&self.public_key()),
        ]
        .concat();
        let signature = self.0.sign(&certificate);
        certificate.extend(string(&[string(KEY.as_bytes()), string(signature.as_ref())].concat()));
        let line = format!("{CERTIFICATE} {} {}", STANDARD.encode(certificate), request.principals[0]);
        Ok(HostCertificate { line, valid_before })
    }
}

/// The validity of a host's certificate, from and until, seconds since the Unix epoch. `line`: as [`HostCertificate::line`]. None: it is not such a line.
#[must_use]
pub fn validity(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let bytes = fields.next().filter(|kind| *kind == CERTIFICATE).and(STANDARD.decode(fields.next()?).ok())?;
    let mut rest = bytes.as_slice();
    // Its kind, a nonce, the key.
    for _ in 0..3 {
        next_string(&mut rest)?;
    }
    let (_serial, _type) = (next_number(&mut rest, 8)?, next_number(&mut rest, 4)?);
    // The id of the key, its principals.
    for _ in 0..2 {
        next_string(&mut rest)?;
    }
    Some((next_number(&mut rest, 8)?, next_number(&mut rest, 8)?))
}

fn next_number(rest: &mut &[u8], bytes: usize) -> Option<u64> {
    let (number, after) = rest.split_at_checked(bytes)?;
    *rest = after;
    Some(number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn next_string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(next_number(rest, 4)?).ok()?;
    let (string, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(string)
}

/// The 32 bytes of an Ed25519 key.
fn host_key(blob: &[u8]) -> Result<&[u8], SshError> {
    let start = [string(KEY.as_bytes()).as_slice(), &32_u32.to_be_bytes()].concat();
    blob.strip_prefix(start.as_slice()).filter(|key| key.len() == 32).ok_or(SshError::HostKey)
}

fn check_principals(request: &HostRequest<'_>) -> Result<(), SshError> {
    if request.principals.is_empty() || request.principals.len() > PRINCIPALS_MAX {
        return Err(SshError::Principals);
    }
    let is_name = |name: &str| {
        let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b':');
        let rest = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte));
        first && rest && name.len() <= PRINCIPAL_BYTES_MAX
    };
    match request.principals.iter().find(|name| !is_name(name) || !request.allowed.contains(name)) {
        Some(bad) => Err(SshError::Principal(bad.chars().take(64).collect())),
        None => Ok(()),
    }
}

/// A string of RFC 4251: four bytes of length, then the bytes.
fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}
