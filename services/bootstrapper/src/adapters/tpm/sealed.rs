//! A second key of the disk: an object of the TPM's storage hierarchy. It is given out only in a session whose policy is that of the key which signs values of PCRs ([`join_tickets::unlock`]).
//!
//! The lock PCR is one of them, with its value before a lock. So the TPM gives the key out once in a boot, before anything of the disk runs, and no longer once the host is locked. The
//! storage key is made of the TPM's own seed; clearing the TPM makes another, and the sealed key is of no use any more.

use aws_lc_rs::digest;
use join_protocol::limits::{ID_BYTES, SIGNATURE_BYTES};
use join_protocol::message::local_unlock::{LocalUnlock, UnlockValue};
use join_protocol::secret::Secret;
use join_protocol::selection::Bank;
use join_tickets::unlock;
use tss_esapi::Context;
use tss_esapi::attributes::{ObjectAttributesBuilder, SessionAttributesBuilder};
use tss_esapi::constants::SessionType;
use tss_esapi::handles::{KeyHandle, SessionHandle};
use tss_esapi::interface_types::algorithm::{HashingAlgorithm, PublicAlgorithm};
use tss_esapi::interface_types::ecc::EccCurve;
use tss_esapi::interface_types::resource_handles::Hierarchy;
use tss_esapi::interface_types::session_handles::{AuthSession, PolicySession};
use tss_esapi::structures::{
    Digest, EccParameter, EccPoint, EccScheme, EccSignature, KeyDerivationFunctionScheme, KeyedHashScheme, Nonce,
    PcrSelectionList, Private, Public, PublicBuilder, PublicEccParametersBuilder, PublicKeyedHashParameters,
    SensitiveData, Signature, SymmetricDefinitionObject,
};
use tss_esapi::traits::{Marshall as _, UnMarshall as _};

use super::{Open, TpmAttester, attestation_key, failed, session};
use crate::platform::{Outcome, PlatformError, SealedKey};

/// A PCR whose present value is signed.
struct Link {
    reference: [u8; 4],
    selection: PcrSelectionList,
    signature: [u8; SIGNATURE_BYTES],
}

impl TpmAttester {
    pub(super) fn sealed(&mut self, secret: &Secret, id: [u8; ID_BYTES], wanted: &LocalUnlock) -> Outcome<SealedKey> {
        self.check_lock(wanted)?;
        let last = wanted.pcrs.keys().next_back().copied().unwrap_or_default();
        let chain = unlock::selected(wanted.pcrs.keys().copied());
        let policy = Digest::try_from(unlock::authorized(&wanted.key, last, chain).as_slice());
        let policy = policy.map_err(failed("second key"))?;
        let content = SensitiveData::try_from(secret.expose().to_vec()).map_err(failed("second key"))?;
        self.with_storage_key("sealing the second key", |context, parent, session| {
            let made = context.execute_with_session(Some(session), |context| {
                context.create(parent, sealed_template(policy)?, None, Some(content), None, None)
            })?;
            Ok(SealedKey {
                id,
                unlock: wanted.clone(),
                public: made.out_public.marshall()?,
                private: made.out_private.value().to_vec(),
            })
        })
    }

    /// A key that is not tied to the lock PCR would be given out to whatever runs on a host that is locked.
    fn check_lock(&self, wanted: &LocalUnlock) -> Outcome<()> {
        if hash_of(wanted.bank) != self.bank {
            let text = "TPM: the policy's bank is not attestation.bank, so the lock PCR cannot be sealed to";
            return Err(PlatformError(text.to_owned()));
        }
        let values = wanted.pcrs.get(&self.lock_pcr).map_or(&[][..], Vec::as_slice);
        if values.len() == 1 && values.iter().all(|one| one.value == self.lock_before) {
            return Ok(());
        }
        let pcr = self.lock_pcr;
        Err(PlatformError(format!("TPM: PCR {pcr} is not sealed to with its value before a lock, and nothing else")))
    }

    pub(super) fn unsealed(&mut self, sealed: &SealedKey) -> Outcome<Secret> {
        let public = Public::unmarshall(&sealed.public).map_err(failed("second key"))?;
        let private = Private::try_from(sealed.private.clone()).map_err(failed("second key"))?;
        let signer = unlock::public_area(&sealed.unlock.key);
        let signer = Public::unmarshall(&signer).map_err(failed("key of the signatures"))?;
        let links = self.links(&sealed.unlock)?;
        let what = "the second key is not given out: it is another TPM's, or what is signed is not for it";
        let content = self.with_storage_key(what, |context, parent, encrypting| {
            let session = session(context, None, SessionType::Policy)?;
            context.execute_with_temporary_object(SessionHandle::from(session).into(), |context, _| {
                let (attributes, mask) = SessionAttributesBuilder::new().build();
                context.tr_sess_set_attributes(session, attributes, mask)?;
                authorize(context, PolicySession::try_from(session)?, signer, &links)?;
                let loaded =
                    context.execute_with_session(Some(encrypting), |context| context.load(parent, private, public))?;
                // What the answer holds is encrypted by the salted session.
                let sessions = (Some(session), Some(encrypting), None);
                context.execute_with_temporary_object(loaded.into(), |context, object| {
                    context.execute_with_sessions(sessions, |context| context.unseal(object))
                })
            })
        })?;
        Secret::from_slice(content.value()).ok_or_else(|| PlatformError("TPM: the second key is malformed".to_owned()))
    }

    /// The signatures of the values that the PCRs have now.
    fn links(&mut self, unlock: &LocalUnlock) -> Outcome<Vec<Link>> {
        let bank = hash_of(unlock.bank);
        let pcrs: Vec<u8> = unlock.pcrs.keys().copied().collect();
        let values = self.values(bank, &pcrs)?;
        let chain = unlock::selected(pcrs);
        let link = |((pcr, signed), value): ((&u8, &Vec<UnlockValue>), Vec<u8>)| {
            let one = signed.iter().find(|one| one.value == value);
            let one = one.ok_or_else(|| {
                let (value, count) = (hex::encode(&value), signed.len());
                PlatformError(format!(
                    "TPM: the second key is not given out: PCR {pcr} holds {value}, and {count} other values are signed"
                ))
            })?;
            let (reference, selection) = (unlock::reference(*pcr, chain), Self::selection(bank, &[*pcr])?);
            Ok(Link { reference, selection, signature: one.signature })
        };
        unlock.pcrs.iter().zip(values).map(link).collect()
    }

    /// Does something with the storage key. A TPM has room for three keys, so the attestation key makes way meanwhile; it is the same when it is made again.
    fn with_storage_key<T>(
        &mut self,
        what: &str,
        work: impl FnOnce(&mut Context, KeyHandle, AuthSession) -> tss_esapi::Result<T>,
    ) -> Outcome<T> {
        let open = self.open()?;
        let done = open.with_storage_key(work);
        if done.is_err() {
            // What is left in it of keys is not known.
            self.open = None;
        }
        done.map_err(failed(what))
    }
}

impl Open {
    fn with_storage_key<T>(
        &mut self,
        work: impl FnOnce(&mut Context, KeyHandle, AuthSession) -> tss_esapi::Result<T>,
    ) -> tss_esapi::Result<T> {
        let session = self.session;
        self.context.execute_without_session(|context| context.flush_context(self.attestation.into()))?;
        let template = storage_template()?;
        let storage = self.context.execute_with_session(Some(session), |context| {
            context.create_primary(Hierarchy::Owner, template, None, None, None, None)
        })?;
        let parent = storage.key_handle;
        let done =
            self.context.execute_with_temporary_object(parent.into(), |context, _| work(context, parent, session))?;
        self.attestation = attestation_key(&mut self.context, session)?;
        Ok(done)
    }
}

const fn hash_of(bank: Bank) -> HashingAlgorithm {
    match bank {
        Bank::Sha256 => HashingAlgorithm::Sha256,
        Bank::Sha384 => HashingAlgorithm::Sha384,
    }
}

/// Takes the session through the chain: each PCR has a value that is signed.
fn authorize(context: &mut Context, policy: PolicySession, signer: Public, links: &[Link]) -> tss_esapi::Result<()> {
    // A ticket of the null hierarchy is none.
    let signer = context.execute_without_session(|context| context.load_external_public(signer, Hierarchy::Owner))?;
    context.execute_with_temporary_object(signer.into(), |context, _| {
        let name = context.tr_get_name(signer.into())?;
        context.execute_without_session(|context| {
            for Link { reference, selection, signature } in links {
                context.policy_pcr(policy, Digest::default(), selection.clone())?;
                let approved = context.policy_get_digest(policy)?;
                let signed = digest::digest(&digest::SHA256, &[approved.value(), reference].concat());
                let (r, s) = signature.split_at(signature.len() / 2);
                let (r, s) = (EccParameter::try_from(r)?, EccParameter::try_from(s)?);
                let signature = Signature::EcDsa(EccSignature::create(HashingAlgorithm::Sha256, r, s)?);
                let ticket = context.verify_signature(signer, Digest::try_from(signed.as_ref())?, signature)?;
                context.policy_authorize(policy, approved, Nonce::try_from(reference.as_slice())?, &name, ticket)?;
            }
            Ok(())
        })
    })
}

/// The storage key that every TPM can make (TCG TPM v2.0 Provisioning Guidance, 7.5.1), P-256.
fn storage_template() -> tss_esapi::Result<Public> {
    let attributes = ObjectAttributesBuilder::new()
        .with_restricted(true)
        .with_decrypt(true)
        .with_user_with_auth(true)
        .with_fixed_tpm(true)
        .with_fixed_parent(true)
        .with_sensitive_data_origin(true)
        .with_no_da(true)
        .build()?;
    let parameters = PublicEccParametersBuilder::new()
        .with_symmetric(SymmetricDefinitionObject::AES_128_CFB)
        .with_ecc_scheme(EccScheme::Null)
        .with_curve(EccCurve::NistP256)
        .with_key_derivation_function_scheme(KeyDerivationFunctionScheme::Null)
        .with_is_decryption_key(true)
        .with_restricted(true)
        .build()?;
    PublicBuilder::new()
        .with_public_algorithm(PublicAlgorithm::Ecc)
        .with_name_hashing_algorithm(HashingAlgorithm::Sha256)
        .with_object_attributes(attributes)
        .with_ecc_parameters(parameters)
        .with_ecc_unique_identifier(EccPoint::default())
        .build()
}

/// Sealed data that nothing opens but the policy.
fn sealed_template(policy: Digest) -> tss_esapi::Result<Public> {
    let attributes = ObjectAttributesBuilder::new()
        .with_fixed_tpm(true)
        .with_fixed_parent(true)
        .with_admin_with_policy(true)
        .with_no_da(true)
        .build()?;
    PublicBuilder::new()
        .with_public_algorithm(PublicAlgorithm::KeyedHash)
        .with_name_hashing_algorithm(HashingAlgorithm::Sha256)
        .with_object_attributes(attributes)
        .with_auth_policy(policy)
        .with_keyed_hash_parameters(PublicKeyedHashParameters::new(KeyedHashScheme::Null))
        .with_keyed_hash_unique_identifier(Digest::default())
        .build()
}
