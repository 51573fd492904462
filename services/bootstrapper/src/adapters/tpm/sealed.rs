//! A second key of the disk: an object of the TPM's storage hierarchy, which is given out only in a session whose policy is the digest of registers (`TPM2_PolicyPCR`).
//!
//! The lock register is one of them, with its value before a lock. So the TPM gives the key out once in a boot, before anything of the disk runs, and no longer once the host is locked. The
//! storage key is made of the TPM's own seed; clearing the TPM makes another, and the sealed key is of no use any more.

use aws_lc_rs::digest;
use join_protocol::secret::Secret;
use join_protocol::selection::{Bank, Selection};
use tss_esapi::Context;
use tss_esapi::attributes::{ObjectAttributesBuilder, SessionAttributesBuilder};
use tss_esapi::constants::SessionType;
use tss_esapi::handles::{KeyHandle, SessionHandle};
use tss_esapi::interface_types::algorithm::{HashingAlgorithm, PublicAlgorithm};
use tss_esapi::interface_types::ecc::EccCurve;
use tss_esapi::interface_types::resource_handles::Hierarchy;
use tss_esapi::interface_types::session_handles::{AuthSession, PolicySession};
use tss_esapi::structures::{
    Digest, EccPoint, EccScheme, KeyDerivationFunctionScheme, KeyedHashScheme, PcrSelectionList, Private, Public,
    PublicBuilder, PublicEccParametersBuilder, PublicKeyedHashParameters, SensitiveData, SymmetricDefinitionObject,
};
use tss_esapi::traits::{Marshall as _, UnMarshall as _};

use super::{Open, TpmAttester, attestation_key, failed, session};
use crate::platform::{Outcome, PlatformError, SealedKey};

/// What a key is sealed to.
struct Policy {
    selection: Selection,
    registers: PcrSelectionList,
    /// Of the values.
    values: Digest,
}

impl TpmAttester {
    pub(super) fn sealed(&mut self, secret: &Secret, selection: &Selection) -> Outcome<SealedKey> {
        let policy = self.policy(selection)?;
        let content = SensitiveData::try_from(secret.expose().to_vec()).map_err(failed("second key"))?;
        self.with_storage_key("sealing the second key", |context, parent, session| {
            let digest = policy_digest(context, &policy)?;
            let made = context.execute_with_session(Some(session), |context| {
                context.create(parent, sealed_template(digest)?, None, Some(content), None, None)
            })?;
            Ok(SealedKey {
                selection: policy.selection,
                public: made.out_public.marshall()?,
                private: made.out_private.value().to_vec(),
            })
        })
    }

    pub(super) fn is_sealed_as_now(&mut self, sealed: &SealedKey, selection: &Selection) -> Outcome<bool> {
        let policy = self.policy(selection)?;
        let public = Public::unmarshall(&sealed.public).map_err(failed("second key"))?;
        let context = &mut self.open()?.context;
        let digest = policy_digest(context, &policy).map_err(failed("second key"))?;
        Ok(policy.selection == sealed.selection && *public.auth_policy() == digest)
    }

    pub(super) fn unsealed(&mut self, sealed: &SealedKey) -> Outcome<Secret> {
        let public = Public::unmarshall(&sealed.public).map_err(failed("second key"))?;
        let private = Private::try_from(sealed.private.clone()).map_err(failed("second key"))?;
        let registers = Self::selection(hash_of(sealed.selection.bank()), sealed.selection.registers())?;
        let what = "the second key is not given out: it is another TPM's, or registers are not as they were";
        let content = self.with_storage_key(what, |context, parent, encrypting| {
            let loaded =
                context.execute_with_session(Some(encrypting), |context| context.load(parent, private, public))?;
            context.execute_with_temporary_object(loaded.into(), |context, object| {
                let session = session(context, None, SessionType::Policy)?;
                context.execute_with_temporary_object(SessionHandle::from(session).into(), |context, _| {
                    let (attributes, mask) = SessionAttributesBuilder::new().build();
                    context.tr_sess_set_attributes(session, attributes, mask)?;
                    let policy = PolicySession::try_from(session)?;
                    context
                        .execute_without_session(|context| context.policy_pcr(policy, Digest::default(), registers))?;
                    // What the answer holds is encrypted by the salted session.
                    let sessions = (Some(session), Some(encrypting), None);
                    context.execute_with_sessions(sessions, |context| context.unseal(object))
                })
            })
        })?;
        Secret::from_slice(content.value()).ok_or_else(|| PlatformError("TPM: the second key is malformed".to_owned()))
    }

    /// The registers with the lock register, and the digest of their values: the values that an issuer judged, or the present ones if it did not ask for them. The lock register has its value before a lock.
    fn policy(&mut self, selection: &Selection) -> Outcome<Policy> {
        let bank = hash_of(selection.bank());
        if bank != self.bank {
            let text = "TPM: the policy's bank is not attestation.bank, so the lock register cannot be sealed to";
            return Err(PlatformError(text.to_owned()));
        }
        let indices = selection.registers().iter().copied().chain([self.lock_register]);
        let selection = Selection::new(selection.bank(), indices)
            .ok_or_else(|| PlatformError("TPM: there is no register to seal to".to_owned()))?;
        let values = self.values(bank, selection.registers())?;
        let judged = self.quoted.as_ref().filter(|(quoted, _)| *quoted == bank).map(|(_, values)| values);
        let mut context = digest::Context::new(&digest::SHA256);
        for (register, now) in selection.registers().iter().zip(&values) {
            let is_lock = *register == self.lock_register;
            let judged = judged.and_then(|judged| judged.get(register)).unwrap_or(now);
            context.update(if is_lock { &self.lock_before } else { judged });
        }
        let registers = Self::selection(bank, selection.registers())?;
        let values = Digest::try_from(context.finish().as_ref()).map_err(failed("registers"))?;
        Ok(Policy { selection, registers, values })
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

/// What a session with these registers has for its policy, as the TPM computes it.
fn policy_digest(context: &mut Context, policy: &Policy) -> tss_esapi::Result<Digest> {
    let trial = session(context, None, SessionType::Trial)?;
    context.execute_with_temporary_object(SessionHandle::from(trial).into(), |context, _| {
        let trial = PolicySession::try_from(trial)?;
        context.execute_without_session(|context| {
            context.policy_pcr(trial, policy.values.clone(), policy.registers.clone())?;
            context.policy_get_digest(trial)
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
