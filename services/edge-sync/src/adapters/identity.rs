//! Who the cluster is known by: the Secrets that say it, the exchange by which they come ([`exchange`]), and their renewal ([`renewal`]).
//! `sparkfleet enrol` uses the same.

pub mod exchange;
pub mod keys;
pub mod renewal;
pub mod secrets;

pub use exchange::Exchange;
pub use keys::{HeldCertificate, Keys};
pub use renewal::Renewal;
pub use secrets::{Identity, KeyPurpose, Secrets};

use anyhow::anyhow;
use enrolment_protocol::cluster::Grant;

/// The identity that was granted, as it is written. `known`: PEM of the authorities that are trusted already, those of the MQTT server.
///
/// # Errors
/// The certificate is for another key. The answer that it came in is authentic; this only finds a mix-up.
pub fn granted(keys: &Keys, grant: &Grant, known: &str, identity_key: String) -> anyhow::Result<Identity> {
    if !keys.are_certified_by(&grant.certificate) {
        return Err(anyhow!("the certificate that came is not for this cluster's key"));
    }
    let pem = |der: &Vec<u8>| keys::to_pem("CERTIFICATE", der);
    let certificates = std::iter::once(&grant.certificate).chain(&grant.authorities).map(pem).collect();
    let mut authorities = known.to_owned();
    for authority in grant.authorities.iter().map(pem).filter(|authority| !known.contains(authority.as_str())) {
        authorities.push_str(&authority);
    }
    Ok(Identity {
        certificates,
        key: keys.pem(),
        authorities,
        enrolment_key: Some(identity_key),
        token: None,
        version: None,
    })
}
