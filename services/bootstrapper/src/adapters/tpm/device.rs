//! The initial attestation key (IAK), and what it says of the attestation key. The maker of a machine has put the IAK into the TPM (TCG, "TPM 2.0 Keys for Device Identity and Attestation").
//!
//! It is found by its place, one of those that the TCG has reserved, and by what it is: a restricted signing key. Its own attributes and certificate are the verifier's to judge.

use tss_esapi::Context;
use tss_esapi::constants::CapabilityType;
use tss_esapi::handles::{KeyHandle, ObjectHandle, TpmHandle};
use tss_esapi::interface_types::session_handles::AuthSession;
use tss_esapi::structures::{CapabilityData, Data, Public, SignatureScheme};
use tss_esapi::traits::Marshall as _;

use super::{certificates_in, contents, sized};

/// Where keys of makers lie, and their certificates (TCG, "Registry of Reserved TPM 2.0 Handles and Localities").
const KEYS_FIRST: u32 = 0x8102_0000;
const CERTIFICATES_FIRST: u32 = 0x01C9_0000;
const PLACES: u32 = 0x100;
/// Bytes of a coordinate of a point on P-256.
const COORDINATE_BYTES: usize = 32;

/// What an IAK says.
#[derive(Debug)]
pub(super) struct IakStatement {
    /// The IAK as `TPM2B_PUBLIC`, then `TPM2B_ATTEST` and `TPMT_SIGNATURE` about the attestation key.
    pub statement: Vec<u8>,
    /// Certificates of makers, that of the IAK first; none if the TPM holds none.
    pub certificates: Vec<Vec<u8>>,
}

/// What the IAK of this TPM says of its attestation key; None: there is no IAK.
///
/// # Errors
/// The TPM does not let it be used.
pub(super) fn statement(
    context: &mut Context,
    session: AuthSession,
    attestation: KeyHandle,
) -> tss_esapi::Result<Option<IakStatement>> {
    let mut certificates: Vec<Vec<u8>> =
        contents(context, CERTIFICATES_FIRST, PLACES).iter().flat_map(|content| certificates_in(content)).collect();
    let mut chosen = None;
    for handle in persistent_keys(context)? {
        let (public, _, _) = context.execute_without_session(|context| context.read_public(handle.into()))?;
        let Some(key) = iak_bytes(&public) else { continue };
        let of_key = certificates.iter().position(|certificate| contains(certificate, &key));
        // One that has a certificate here is more useful than one that has none.
        if chosen.is_none() || of_key.is_some() {
            chosen = Some((KeyHandle::from(handle), public, of_key));
        }
        if of_key.is_some() {
            break;
        }
    }
    let Some((iak, public, of_key)) = chosen else { return Ok(None) };
    if let Some(place) = of_key {
        certificates[..=place].rotate_right(1);
    }
    let sessions = (Some(session), Some(AuthSession::Password), None);
    let (attest, signature) = context.execute_with_sessions(sessions, |context| {
        context.certify(attestation.into(), iak, Data::default(), SignatureScheme::Null)
    })?;
    let parts = [sized(&public.marshall()?), sized(&attest.marshall()?), signature.marshall()?];
    Ok(Some(IakStatement { statement: parts.concat(), certificates }))
}

fn persistent_keys(context: &mut Context) -> tss_esapi::Result<Vec<ObjectHandle>> {
    let (capability, _) = context
        .execute_without_session(|context| context.get_capability(CapabilityType::Handles, KEYS_FIRST, PLACES))?;
    let CapabilityData::Handles(handles) = capability else { return Ok(Vec::new()) };
    let is_of_maker = |handle: &&TpmHandle| matches!(handle, TpmHandle::Persistent(_)) && place_of(**handle) < PLACES;
    let handles: Vec<TpmHandle> = handles.as_ref().iter().filter(is_of_maker).copied().collect();
    let open = |handle| context.execute_without_session(|context| context.tr_from_tpm_public(handle));
    handles.into_iter().map(open).collect()
}

fn place_of(handle: TpmHandle) -> u32 {
    u32::from(handle).saturating_sub(KEYS_FIRST)
}

/// The key of a public area as a certificate contains it, if it is one that signs what the TPM made, and nothing else.
fn iak_bytes(public: &Public) -> Option<Vec<u8>> {
    let attributes = public.object_attributes();
    if !(attributes.restricted() && attributes.sign_encrypt() && !attributes.decrypt()) {
        return None;
    }
    match public {
        Public::Ecc { unique, .. } => Some([padded(unique.x().value()), padded(unique.y().value())].concat()),
        Public::Rsa { unique, .. } => Some(unique.value().to_vec()),
        _ => None,
    }
}

/// Some TPMs leave the leading zeros of a number away.
fn padded(number: &[u8]) -> Vec<u8> {
    [vec![0; COORDINATE_BYTES.saturating_sub(number.len())], number.to_vec()].concat()
}

fn contains(certificate: &[u8], key: &[u8]) -> bool {
    !key.is_empty() && certificate.windows(key.len()).any(|part| part == key)
}
