//! A TPM 2.0 by the C library tpm2-tss (feature `tpm`): variant `tpm2` of the join protocol, in the forms that `join-attestation` reads.
//!
//! Both keys are primary keys of the endorsement hierarchy, made of the TPM's own seed. The endorsement key follows the standard template (RSA-2048, so that the manufacturer's
//! certificate fits); the attestation key is a restricted P-256 signing key. So they are the same after every boot, nothing is kept, and nothing is made persistent in the TPM.
//!
//! Commands are authorised in one session, which is salted with the endorsement key. Its HMACs keep an attacker between processor and TPM from changing a command or an answer. The
//! first parameter of each is encrypted, so a secret that the TPM gives out cannot be read on the wires. The salt uses the very key that is shown to the join service, so one
//! that an attacker puts in between is refused there.

mod device;
mod sealed;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use aws_lc_rs::digest;
use join_protocol::limits::{
    ENDORSEMENT_CERTIFICATE_BYTES_MAX, ENDORSEMENT_CERTIFICATES_MAX, EVENT_LOG_BYTES_MAX, ID_BYTES,
    PUBLIC_KEY_BYTES_MAX,
};
use join_protocol::message::local_unlock::LocalUnlock;
use join_protocol::secret::Secret;
use join_protocol::selection::{Bank, Selection};
use join_protocol::terms::Variant;
use join_protocol::transcript::Hash;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tss_esapi::Context;
use tss_esapi::abstraction::{AsymmetricAlgorithmSelection, ek, nv};
use tss_esapi::attributes::{ObjectAttributesBuilder, SessionAttributesBuilder};
use tss_esapi::constants::{CapabilityType, SessionType};
use tss_esapi::handles::{AuthHandle, KeyHandle, NvIndexTpmHandle, PcrHandle, SessionHandle, TpmHandle};
use tss_esapi::interface_types::algorithm::{HashingAlgorithm, PublicAlgorithm};
use tss_esapi::interface_types::ecc::EccCurve;
use tss_esapi::interface_types::key_bits::RsaKeyBits;
use tss_esapi::interface_types::resource_handles::{Hierarchy, NvAuth};
use tss_esapi::interface_types::session_handles::{AuthSession, PolicySession};
use tss_esapi::structures::{
    CapabilityData, Data, Digest, DigestValues, EccPoint, EccScheme, EncryptedSecret, HashScheme, IdObject,
    KeyDerivationFunctionScheme, PcrSelectionList, PcrSlot, Public, PublicBuilder, PublicEccParametersBuilder,
    SignatureScheme, SymmetricDefinition, SymmetricDefinitionObject,
};
use tss_esapi::tcti_ldr::TctiNameConf;
use tss_esapi::traits::Marshall as _;

use crate::config::AttestationConfig;
use crate::platform::{Attester, AttesterKeys, Outcome, PlatformError, SealedKey};

const ENDORSEMENT: AsymmetricAlgorithmSelection = AsymmetricAlgorithmSelection::Rsa(RsaKeyBits::Rsa2048);

/// A TPM gives at most so many PCRs at once.
const PCRS_AT_ONCE: usize = 8;

/// Where the certificates lie that lead from that of the endorsement key to its manufacturer (TCG EK Credential Profile, 2.2.1.4).
const CHAIN_FIRST: u32 = 0x01C0_0100;
const CHAIN_PLACES: u32 = 0x100;

/// PCR by number, as it is extended.
const HANDLES: [PcrHandle; 16] = [
    PcrHandle::Pcr0,
    PcrHandle::Pcr1,
    PcrHandle::Pcr2,
    PcrHandle::Pcr3,
    PcrHandle::Pcr4,
    PcrHandle::Pcr5,
    PcrHandle::Pcr6,
    PcrHandle::Pcr7,
    PcrHandle::Pcr8,
    PcrHandle::Pcr9,
    PcrHandle::Pcr10,
    PcrHandle::Pcr11,
    PcrHandle::Pcr12,
    PcrHandle::Pcr13,
    PcrHandle::Pcr14,
    PcrHandle::Pcr15,
];

/// A TPM and its keys.
#[derive(Debug)]
pub struct TpmAttester {
    tcti: String,
    /// Bank in which the lock PCR is looked at.
    bank: HashingAlgorithm,
    lock_pcr: u8,
    lock_before: Vec<u8>,
    intermediates: Option<String>,
    /// The key of the machine's maker is looked for.
    has_iak: bool,
    event_log: PathBuf,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    context: Context,
    endorsement: KeyHandle,
    attestation: KeyHandle,
    session: AuthSession,
    keys: AttesterKeys,
}

fn failed(what: &str) -> impl FnOnce(tss_esapi::Error) -> PlatformError + '_ {
    move |error| PlatformError::new(format_args!("TPM: {what}"), error)
}

impl TpmAttester {
    /// The TPM of this configuration; nothing is asked of it yet. `lock_before`: value of the lock PCR before a lock; None: zeros.
    #[must_use]
    pub fn new(config: &AttestationConfig, lock_before: Option<Vec<u8>>) -> Self {
        let (bank, bytes) = match &*config.bank {
            "sha384" => (HashingAlgorithm::Sha384, 48),
            _ => (HashingAlgorithm::Sha256, 32),
        };
        Self {
            tcti: config.tcti.clone(),
            bank,
            lock_pcr: config.lock_pcr,
            lock_before: lock_before.unwrap_or_else(|| vec![0; bytes]),
            intermediates: config.intermediates.clone(),
            has_iak: config.iak,
            event_log: config.event_log.clone(),
            open: None,
        }
    }

    fn open(&mut self) -> Outcome<&mut Open> {
        if self.open.is_none() {
            let mut open = Open::new(&self.tcti)?;
            open.keys.lock_pcr = self.lock_pcr;
            if self.has_iak {
                open.ask_iak();
            }
            if let Some(text) = &self.intermediates {
                open.keys.certificates.extend(certificates_of(text)?);
            }
            chosen(&mut open.keys.certificates);
            self.open = Some(open);
        }
        self.open.as_mut().ok_or_else(|| PlatformError("TPM: it is not open".to_owned()))
    }

    fn selection(bank: HashingAlgorithm, pcrs: &[u8]) -> Outcome<PcrSelectionList> {
        let slots = pcrs.iter().map(|pcr| PcrSlot::try_from(1_u32 << pcr));
        let slots = slots.collect::<Result<Vec<_>, _>>().map_err(failed("registers"))?;
        PcrSelectionList::builder().with_selection(bank, &slots).build().map_err(failed("registers"))
    }

    /// The values of PCRs as the TPM gives them, a `TPML_DIGEST` for some of them at a time.
    fn values(&mut self, bank: HashingAlgorithm, pcrs: &[u8]) -> Outcome<Vec<Vec<u8>>> {
        let mut values = Vec::new();
        for some in pcrs.chunks(PCRS_AT_ONCE) {
            let selection = Self::selection(bank, some)?;
            let context = &mut self.open()?.context;
            let (_, _, digests) = context
                .execute_without_session(|context| context.pcr_read(selection))
                .map_err(failed("reading PCRs"))?;
            if digests.len() != some.len() {
                return Err(PlatformError(format!("TPM: it does not have the bank {bank:?} of PCRs")));
            }
            values.extend(digests.value().iter().map(|digest| digest.value().to_vec()));
        }
        Ok(values)
    }
}

impl Open {
    fn new(tcti: &str) -> Outcome<Self> {
        let name = TctiNameConf::from_str(tcti).map_err(failed("attestation.tcti"))?;
        let mut context = Context::new(name).map_err(failed("it cannot be reached"))?;
        let endorsement = ek::create_ek_object_2(&mut context, ENDORSEMENT, None).map_err(failed("endorsement key"))?;
        let session = salted_session(&mut context, endorsement).map_err(failed("session"))?;
        let attestation = attestation_key(&mut context, session).map_err(failed("attestation key"))?;
        let mut public = |key, what| -> Outcome<Vec<u8>> {
            let (public, _, _) =
                context.execute_without_session(|context| context.read_public(key)).map_err(failed(what))?;
            let public = public.marshall().map_err(failed(what))?;
            // What the library encrypts for is the key that it was given first.
            if context.tr_get_name(key.into()).map_err(failed(what))?.value() != name_of(&public) {
                return Err(PlatformError(format!("TPM: {what}: it shows two different keys")));
            }
            Ok(sized(&public))
        };
        let keys = AttesterKeys {
            variant: Variant::Tpm2,
            endorsement: public(endorsement, "endorsement key")?,
            attestation: public(attestation, "attestation key")?,
            certificates: Vec::new(),
            lock_pcr: 0,
            seals: true,
        };
        // Some TPMs have none; whether that is enough is the policy's to say.
        let certificates = match ek::retrieve_ek_pubcert(&mut context, ENDORSEMENT) {
            Ok(certificate) => [vec![trimmed(certificate)], chain(&mut context)].concat(),
            Err(error) => {
                tracing::warn!(%error, "the TPM has no certificate of its endorsement key");
                Vec::new()
            }
        };
        Ok(Self { context, endorsement, attestation, session, keys: AttesterKeys { certificates, ..keys } })
    }

    /// Lets the key of the machine's maker say that it is in the same TPM. Without it a host is judged by its endorsement key alone, and the policy says whether that is enough.
    fn ask_iak(&mut self) {
        let found = match device::statement(&mut self.context, self.session, self.attestation) {
            Ok(Some(found)) => found,
            Ok(None) => return tracing::warn!("the TPM has no initial attestation key of the machine's maker"),
            Err(error) => {
                return tracing::warn!(%error, "the initial attestation key of the machine's maker cannot be used");
            }
        };
        let bytes = self.keys.attestation.len() + found.statement.len();
        if bytes > PUBLIC_KEY_BYTES_MAX {
            return tracing::warn!(bytes, "the statement of the initial attestation key does not fit into a hello");
        }
        self.keys.attestation.extend(found.statement);
        // Behind the certificate of the endorsement key, which is the first.
        let behind = self.keys.certificates.len().min(1);
        self.keys.certificates.splice(behind..behind, found.certificates);
    }

    /// What only this TPM gives out, and only if it holds the attestation key that the credential names.
    fn activate(&mut self, id_object: IdObject, encrypted: EncryptedSecret) -> tss_esapi::Result<Digest> {
        let (endorsement, attestation, encrypting) = (self.endorsement, self.attestation, self.session);
        let session = session(&mut self.context, None, SessionType::Policy)?;
        self.context.execute_with_temporary_object(SessionHandle::from(session).into(), |context, _| {
            let (attributes, mask) = SessionAttributesBuilder::new().build();
            context.tr_sess_set_attributes(session, attributes, mask)?;
            let policy = PolicySession::try_from(session)?;
            // The policy of endorsement keys by the standard templates: authorisation of the endorsement hierarchy.
            context.execute_with_session(Some(encrypting), |context| {
                context.policy_secret(
                    policy,
                    AuthHandle::Endorsement,
                    Default::default(),
                    Default::default(),
                    Default::default(),
                    None,
                )
            })?;
            let sessions = (Some(AuthSession::Password), Some(session), Some(encrypting));
            context.execute_with_sessions(sessions, |context| {
                context.activate_credential(attestation, endorsement, id_object, encrypted)
            })
        })
    }

    /// The banks that have PCRs: an event is extended into each of them.
    fn banks(&mut self) -> Outcome<Vec<HashingAlgorithm>> {
        let (capability, _) = self
            .context
            .execute_without_session(|context| context.get_capability(CapabilityType::AssignedPcr, 0, 16))
            .map_err(failed("banks"))?;
        let CapabilityData::AssignedPcr(list) = capability else {
            return Err(PlatformError("TPM: it does not list its banks".to_owned()));
        };
        let used = list.get_selections().iter().filter(|selection| !selection.is_empty());
        Ok(used.map(|selection| selection.hashing_algorithm()).collect())
    }
}

fn session(context: &mut Context, salt: Option<KeyHandle>, kind: SessionType) -> tss_esapi::Result<AuthSession> {
    let (symmetric, hash) = (SymmetricDefinition::AES_128_CFB, HashingAlgorithm::Sha256);
    let session = context.start_auth_session(salt, None, None, kind, symmetric, hash)?;
    session.ok_or(tss_esapi::Error::WrapperError(tss_esapi::WrapperErrorKind::WrongValueFromTpm))
}

/// A session that encrypts, with a secret that only the holder of the key can read. It ends with the context.
fn salted_session(context: &mut Context, salt: KeyHandle) -> tss_esapi::Result<AuthSession> {
    let session = session(context, Some(salt), SessionType::Hmac)?;
    let (attributes, mask) = SessionAttributesBuilder::new().with_decrypt(true).with_encrypt(true).build();
    context.tr_sess_set_attributes(session, attributes, mask)?;
    Ok(session)
}

/// The name of a `TPMT_PUBLIC` whose name algorithm is SHA-256, as both keys have it (TPM 2.0 Library, part 1, 16).
fn name_of(public: &[u8]) -> Vec<u8> {
    [&0x000B_u16.to_be_bytes(), digest::digest(&digest::SHA256, public).as_ref()].concat()
}

/// Made of the TPM's own seed: the same each time.
fn attestation_key(context: &mut Context, session: AuthSession) -> tss_esapi::Result<KeyHandle> {
    let template = attestation_template()?;
    let made = context.execute_with_session(Some(session), |context| {
        context.create_primary(Hierarchy::Endorsement, template, None, None, None, None)
    })?;
    Ok(made.key_handle)
}

/// A restricted signing key: it signs only what the TPM made.
fn attestation_template() -> tss_esapi::Result<Public> {
    let attributes = ObjectAttributesBuilder::new()
        .with_restricted(true)
        .with_user_with_auth(true)
        .with_sign_encrypt(true)
        .with_fixed_tpm(true)
        .with_fixed_parent(true)
        .with_sensitive_data_origin(true)
        .build()?;
    let parameters = PublicEccParametersBuilder::new()
        .with_symmetric(SymmetricDefinitionObject::Null)
        .with_ecc_scheme(EccScheme::EcDsa(HashScheme::new(HashingAlgorithm::Sha256)))
        .with_curve(EccCurve::NistP256)
        .with_key_derivation_function_scheme(KeyDerivationFunctionScheme::Null)
        .build()?;
    PublicBuilder::new()
        .with_public_algorithm(PublicAlgorithm::Ecc)
        .with_name_hashing_algorithm(HashingAlgorithm::Sha256)
        .with_object_attributes(attributes)
        .with_ecc_parameters(parameters)
        .with_ecc_unique_identifier(EccPoint::default())
        .build()
}

/// A `TPM2B_...`: two bytes of size, then the bytes.
fn sized(bytes: &[u8]) -> Vec<u8> {
    let size = u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&size, bytes].concat()
}

/// Takes a `TPM2B_...` from the front.
fn take_sized<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (size, rest) = bytes.split_at_checked(2)?;
    let (taken, left) = rest.split_at_checked(usize::from(u16::from_be_bytes([size[0], size[1]])))?;
    *bytes = left;
    Some(taken)
}

/// The certificate alone: the NV index that it lies in may be longer.
fn trimmed(mut certificate: Vec<u8>) -> Vec<u8> {
    if let [0x30, 0x82, high, low, ..] = certificate[..] {
        certificate.truncate(4 + usize::from(u16::from_be_bytes([high, low])));
    }
    certificate
}

/// Certificates one behind the other, as they lie in a TPM; what follows the last is left out.
fn certificates_in(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let [0x30, 0x82, high, low, ..] = *bytes {
        let Some((certificate, rest)) = bytes.split_at_checked(4 + usize::from(u16::from_be_bytes([high, low]))) else {
            break;
        };
        found.push(certificate.to_vec());
        bytes = rest;
    }
    found
}

/// What the manufacturer has put between the certificate of the endorsement key and its own root. A certificate may begin in one place and end in the next.
fn chain(context: &mut Context) -> Vec<Vec<u8>> {
    certificates_in(&contents(context, CHAIN_FIRST, CHAIN_PLACES).concat())
}

/// What lies in the places from `first` on.
fn contents(context: &mut Context, first: u32, places: u32) -> Vec<Vec<u8>> {
    let handles =
        context.execute_without_session(|context| context.get_capability(CapabilityType::Handles, first, places));
    let Ok((CapabilityData::Handles(handles), _)) = handles else { return Vec::new() };
    let mut found = Vec::new();
    for handle in handles.as_ref() {
        let TpmHandle::NvIndex(index) = *handle else { continue };
        if u32::from(index) >= first + places {
            break;
        }
        match nv_content(context, index) {
            Ok(content) => found.push(content),
            Err(error) => tracing::warn!(%error, "a certificate cannot be read from the TPM"),
        }
    }
    found
}

fn nv_content(context: &mut Context, index: NvIndexTpmHandle) -> tss_esapi::Result<Vec<u8>> {
    let handle = context.execute_without_session(|context| context.tr_from_tpm_public(TpmHandle::NvIndex(index)))?;
    context.execute_with_nullauth_session(|context| nv::read_full(context, NvAuth::NvIndex(handle.into()), index))
}

/// The certificates of a PEM text.
fn certificates_of(text: &str) -> Outcome<Vec<Vec<u8>>> {
    let certificates = CertificateDer::pem_slice_iter(text.as_bytes());
    let certificates = certificates.map(|certificate| certificate.map(|certificate| certificate.to_vec()));
    certificates.collect::<Result<_, _>>().map_err(|error| PlatformError::new("attestation.intermediates", error))
}

/// Those that a hello has room for: the first ones, each once.
fn chosen(certificates: &mut Vec<Vec<u8>>) {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for certificate in std::mem::take(certificates) {
        let fits = certificate.len() <= ENDORSEMENT_CERTIFICATE_BYTES_MAX && kept.len() < ENDORSEMENT_CERTIFICATES_MAX;
        if kept.contains(&certificate) {
            continue;
        }
        if fits {
            kept.push(certificate);
        } else {
            tracing::warn!(
                bytes = certificate.len(),
                "a certificate of the endorsement key's chain does not fit into a hello"
            );
        }
    }
    *certificates = kept;
}

/// Reads an event log. Its size shows as 0, so it is read to its end.
fn read_event_log(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut log = Vec::new();
    File::open(path)?.take(EVENT_LOG_BYTES_MAX as u64 + 1).read_to_end(&mut log)?;
    if log.len() > EVENT_LOG_BYTES_MAX {
        return Err(std::io::Error::other(format!("it has more than {EVENT_LOG_BYTES_MAX} bytes")));
    }
    Ok(log)
}

/// The digest of an event in a bank, as `TPM2_PCR_Event` makes it.
fn event_digest(bank: HashingAlgorithm, event: &[u8]) -> Outcome<Digest> {
    let algorithm = match bank {
        HashingAlgorithm::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        HashingAlgorithm::Sha256 => &digest::SHA256,
        HashingAlgorithm::Sha384 => &digest::SHA384,
        HashingAlgorithm::Sha512 => &digest::SHA512,
        other => return Err(PlatformError(format!("TPM: events of its bank {other:?} cannot be made"))),
    };
    Digest::try_from(digest::digest(algorithm, event).as_ref()).map_err(failed("event"))
}

impl Attester for TpmAttester {
    fn keys(&mut self) -> Outcome<AttesterKeys> {
        Ok(self.open()?.keys.clone())
    }

    fn is_locked(&mut self) -> Outcome<bool> {
        let values = self.values(self.bank, &[self.lock_pcr])?;
        Ok(values.first() != Some(&self.lock_before))
    }

    fn activate_credential(&mut self, credential: &[u8]) -> Outcome<Secret> {
        let malformed = || PlatformError("TPM: the credential is malformed".to_owned());
        let mut rest = credential;
        let (id_object, encrypted) = (take_sized(&mut rest), take_sized(&mut rest));
        let (Some(id_object), Some(encrypted), []) = (id_object, encrypted, rest) else { return Err(malformed()) };
        let id_object = IdObject::try_from(id_object).map_err(failed("credential"))?;
        let encrypted = EncryptedSecret::try_from(encrypted).map_err(failed("credential"))?;
        let secret =
            self.open()?.activate(id_object, encrypted).map_err(failed("the credential is not for this TPM"))?;
        Secret::from_slice(secret.value()).ok_or_else(malformed)
    }

    fn quote(&mut self, qualifying_data: &Hash, wanted: &Selection) -> Outcome<Vec<u8>> {
        let bank = match wanted.bank() {
            Bank::Sha256 => HashingAlgorithm::Sha256,
            Bank::Sha384 => HashingAlgorithm::Sha384,
        };
        let selection = Self::selection(bank, wanted.pcrs())?;
        let data = Data::try_from(qualifying_data.as_slice()).map_err(failed("quote"))?;
        let open = self.open()?;
        let (attestation, session) = (open.attestation, open.session);
        let (attest, signature) = open
            .context
            .execute_with_session(Some(session), |context| {
                context.quote(attestation, data, SignatureScheme::Null, selection)
            })
            .map_err(failed("quote"))?;
        let mut quote = sized(&attest.marshall().map_err(failed("quote"))?);
        quote.extend(signature.marshall().map_err(failed("quote"))?);
        for some in wanted.pcrs().chunks(PCRS_AT_ONCE) {
            let values = self.values(bank, some)?;
            quote.extend(u32::try_from(values.len()).unwrap_or(u32::MAX).to_be_bytes());
            values.iter().for_each(|value| quote.extend(sized(value)));
        }
        Ok(quote)
    }

    fn seal(&mut self, secret: &Secret, id: [u8; ID_BYTES], unlock: &LocalUnlock) -> Outcome<SealedKey> {
        self.sealed(secret, id, unlock)
    }

    fn unseal(&mut self, sealed: &SealedKey) -> Outcome<Secret> {
        self.unsealed(sealed)
    }

    fn event_log(&mut self) -> Vec<u8> {
        read_event_log(&self.event_log).unwrap_or_else(|error| {
            // Whether it is needed is the policy's to say, and its refusal names it.
            tracing::warn!(file = %self.event_log.display(), %error, "the event log of firmware cannot be read");
            Vec::new()
        })
    }

    fn lock(&mut self, cluster_id: &Hash) -> Outcome<()> {
        let handle = HANDLES.get(usize::from(self.lock_pcr)).copied();
        let handle = handle.ok_or_else(|| PlatformError("TPM: the lock PCR is none of 0 to 15".to_owned()))?;
        let open = self.open()?;
        // All of them are known before any is extended.
        let mut digests = DigestValues::new();
        for bank in open.banks()? {
            digests.set(bank, event_digest(bank, cluster_id)?);
        }
        let session = open.session;
        open.context
            .execute_with_session(Some(session), |context| context.pcr_extend(handle, digests))
            .map_err(failed("lock"))?;
        // A PCR that was not extended would let the host take another ticket.
        if self.is_locked()? { Ok(()) } else { Err(PlatformError("TPM: the lock PCR did not change".to_owned())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sized_buffers_are_taken_as_they_were_written() {
        let bytes = [sized(b"ab"), sized(b"")].concat();
        let mut rest = bytes.as_slice();
        assert_eq!((take_sized(&mut rest), take_sized(&mut rest), rest), (Some(&b"ab"[..]), Some(&b""[..]), &[][..]));
        assert_eq!((take_sized(&mut &[0_u8][..]), take_sized(&mut &[0_u8, 9, 1][..])), (None, None));
    }

    #[test]
    fn certificates_lie_one_behind_the_other_and_as_many_are_taken_as_a_hello_has_room_for() {
        let certificate =
            |byte: u8, length: u16| [&[0x30, 0x82][..], &length.to_be_bytes(), &vec![byte; length.into()]].concat();
        let (one, two) = (certificate(1, 3), certificate(2, 300));
        assert_eq!(certificates_in(&[&one[..], &two, &[0xff; 9]].concat()), [one.clone(), two.clone()]);
        assert_eq!(certificates_in(&two[..200]), Vec::<Vec<u8>>::new());
        let mut all = vec![
            one.clone(),
            two.clone(),
            one.clone(),
            certificate(3, 5_000),
            certificate(4, 4),
            certificate(5, 5),
            certificate(6, 6),
        ];
        chosen(&mut all);
        assert_eq!(all, [one, two, certificate(4, 4), certificate(5, 5)]);
    }

    #[test]
    fn an_event_log_is_read_to_its_end_and_no_further_than_its_bound() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (bytes, fits) in [(0, true), (EVENT_LOG_BYTES_MAX, true), (EVENT_LOG_BYTES_MAX + 1, false)] {
            std::fs::write(file.path(), vec![7; bytes]).unwrap();
            assert_eq!(read_event_log(file.path()).ok(), fits.then(|| vec![7; bytes]));
        }
        assert!(read_event_log(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn what_follows_a_certificate_in_its_place_is_cut_off() {
        assert_eq!(trimmed(vec![0x30, 0x82, 0, 2, 7, 7, 0, 0]), [0x30, 0x82, 0, 2, 7, 7]);
        assert_eq!(trimmed(vec![0x30, 0x82, 0, 9, 7]), [0x30, 0x82, 0, 9, 7]);
    }
}
