//! What a key is made from: random texts and bytes, and what the KDC says of the keys that it has.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kerberos_client::{Kdc, KdcError, KeyInfo, Principal};
use zeroize::Zeroizing;

use crate::event::KeyError;
use crate::reconcile::KeyStamp;
use crate::trust::{TrustKey, next_version};

/// Random bytes of a made value; as text it has 43 characters.
const VALUE_BYTES: usize = 32;

/// A random password for the keys that follow those of `principal`, of the types that the KDC has given it.
pub(super) async fn fresh_trust(kdc: &Kdc, principal: &Principal) -> Result<TrustKey, KeyError> {
    let info = kdc.key_info(principal).await?;
    let types = info.types();
    if types.is_empty() {
        let reason = format!("{principal} has no key but of deprecated encryption types; see supported_enctypes");
        return Err(KdcError::Refused(reason).into());
    }
    Ok(TrustKey { password: random_text()?, version: next_version(info.version), types })
}

/// The keys that the KDC has of principals.
pub(super) async fn stamps(kdc: &Kdc, principals: &[Principal]) -> Result<BTreeMap<Principal, KeyStamp>, KdcError> {
    let mut stamps = BTreeMap::new();
    for principal in principals {
        stamps.insert(principal.clone(), stamp(&kdc.key_info(principal).await?));
    }
    Ok(stamps)
}

pub(super) fn stamp(info: &KeyInfo) -> KeyStamp {
    KeyStamp { version: info.version, changed_s: info.changed_s }
}

pub(super) fn random_text() -> Result<Zeroizing<String>, KeyError> {
    Ok(Zeroizing::new(URL_SAFE_NO_PAD.encode(&random::<VALUE_BYTES>()?[..])))
}

/// Bytes that no one can guess.
pub(super) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, KeyError> {
    let mut bytes = Zeroizing::new([0; N]);
    let filled = aws_lc_rs::rand::fill(&mut bytes[..]);
    filled.map_err(|_| KdcError::Local("the operating system gives no random numbers".to_owned()))?;
    Ok(bytes)
}
