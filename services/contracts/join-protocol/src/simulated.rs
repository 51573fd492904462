//! The variant `simulated`: a software stand-in for a TPM and the verifier for it, for simulated hosts and for tests.
//!
//! **It proves nothing about a machine**: a program that has the seed is the TPM. On the wire it is called `simulated`, and an issuer answers it only if its policy names it.
//! It keeps the promises that the protocol builds on, so that attacks on the protocol can be tried. A credential opens only in the TPM that has the endorsement key, and only
//! if that TPM holds the attestation key that the credential names. A quote is signed by that key and is about what was asked. Its PCRs can only be extended.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use proto::join as wire;

use crate::attestation::{Claims, Expected, HostKeys, KeyError, Lock, Verifier};
use crate::certificate::{PublicKey, Signature, SigningKey, is_signed};
use crate::limits::QUOTE_BYTES_MAX;
use crate::message::decode;
use crate::refusal::{Refusal, RefusalCode};
use crate::seal::{Binding, KeyPair, seal};
use crate::secret::Secret;
use crate::selection::{Bank, Selection};
use crate::terms::{Kind, Role, Suite, Variant};
use crate::transcript::{Hash, hash};

/// PCR that the lock extends.
pub const LOCK_PCR: u32 = 15;
/// The only bank whose quotes are accepted.
pub const BANK: &str = "sha256";

/// A TPM in software.
pub struct SimulatedTpm {
    endorsement: KeyPair,
    attestation: SigningKey,
    pcrs: BTreeMap<u32, Hash>,
}

impl SimulatedTpm {
    /// The TPM of this seed, freshly booted: every PCR is zero.
    #[must_use]
    pub fn new(seed: &Secret) -> Option<Self> {
        let attestation = SigningKey::from_seed(&seed.derive("simulated attestation key", &[]))?;
        let endorsement = KeyPair::derive(Suite::X25519, &seed.derive("simulated endorsement key", &[]));
        let pcrs = (0..24).map(|index| (index, [0; 32])).collect();
        Some(Self { endorsement, attestation, pcrs })
    }

    /// As after a clear of the attestation hierarchy: the endorsement key of `self` with the attestation key of another seed.
    #[must_use]
    pub fn with_attestation_key_of(mut self, other: Self) -> Self {
        self.attestation = other.attestation;
        self
    }

    /// Public endorsement key.
    #[must_use]
    pub fn endorsement_key(&self) -> Vec<u8> {
        self.endorsement.public.clone()
    }

    /// Public attestation key.
    #[must_use]
    pub fn attestation_key(&self) -> Vec<u8> {
        self.attestation.public_key().to_vec()
    }

    /// Extends a PCR: its value becomes the hash of value and `digest`.
    pub fn extend(&mut self, pcr: u32, digest: &Hash) {
        let value = self.pcrs.entry(pcr).or_default();
        *value = extended(value, digest);
    }

    /// Locks the host to a cluster.
    pub fn lock(&mut self, cluster_id: &Hash) {
        self.extend(LOCK_PCR, cluster_id);
    }

    /// Every PCR is zero again.
    pub fn reboot(&mut self) {
        self.pcrs.values_mut().for_each(|value| *value = [0; 32]);
    }

    /// ActivateCredential. None: the credential is for another TPM or another attestation key.
    #[must_use]
    pub fn activate_credential(&self, credential: &[u8]) -> Option<Secret> {
        let credential: wire::SimulatedCredential = decode("credential", credential, QUOTE_BYTES_MAX).ok()?;
        let binding = credential_binding(&self.attestation.public_key());
        let secret = self.endorsement.open(&credential.encapsulated_key, &credential.ciphertext, &binding).ok()?;
        Secret::from_slice(&secret)
    }

    /// A quote over all PCRs.
    #[must_use]
    pub fn quote(&self, qualifying_data: &Hash) -> Vec<u8> {
        self.quote_of(qualifying_data, &Selection::all(Bank::Sha256))
    }

    /// A quote over these PCRs.
    #[must_use]
    pub fn quote_of(&self, qualifying_data: &Hash, selection: &Selection) -> Vec<u8> {
        self.quote_of_bank(qualifying_data, selection.bank().name(), selection.pcrs())
    }

    /// A quote over PCRs that says it is of this bank.
    #[must_use]
    pub fn quote_of_bank(&self, qualifying_data: &Hash, bank: &str, pcrs: &[u8]) -> Vec<u8> {
        let quoted = self.pcrs.iter().filter(|(index, _)| pcrs.iter().any(|at| u32::from(*at) == **index));
        let pcr = |(&index, value): (&u32, &Hash)| wire::SimulatedPcr { index, value: value.to_vec() };
        let body = wire::SimulatedQuoteBody {
            qualifying_data: qualifying_data.to_vec(),
            bank: bank.to_owned(),
            pcrs: quoted.map(pcr).collect(),
        };
        let body = body.encode_to_vec();
        let signature = self.attestation.sign(&quote_signed(&body)).to_vec();
        wire::SimulatedQuote { body, signature }.encode_to_vec()
    }
}

impl std::fmt::Debug for SimulatedTpm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedTpm").field("pcrs", &self.pcrs).finish_non_exhaustive()
    }
}

fn extended(value: &Hash, digest: &Hash) -> Hash {
    hash("simulated register", &[value, digest])
}

fn quote_signed(body: &[u8]) -> Hash {
    hash("simulated quote", &[body])
}

fn credential_binding(attestation_key: &[u8]) -> Binding<'static> {
    let info = hash("simulated credential", &[attestation_key]);
    Binding { info, additional_data: info, psk: None }
}

/// Verifies the variant `simulated` and no other.
#[derive(Debug, Clone, Default)]
pub struct SimulatedVerifier {
    /// Ids of the endorsement keys that are accepted. None: all that are not revoked.
    pub enrolled: Option<BTreeSet<Hash>>,
    /// Ids of those that are no longer accepted.
    pub revoked: BTreeSet<Hash>,
    /// Ids of those that may be control planes. None: all.
    pub control_planes: Option<BTreeSet<Hash>>,
    /// PCRs and the values that they must have.
    pub reference_values: BTreeMap<u32, Hash>,
}

impl SimulatedVerifier {
    fn keys<'a>(keys: &HostKeys<'a>) -> Result<(&'a [u8], PublicKey), KeyError> {
        let attestation = keys.attestation_key.try_into();
        match (keys.variant, attestation, keys.endorsement_key.len()) {
            (Variant::Simulated, Ok(attestation), 32) => Ok((keys.endorsement_key, attestation)),
            (Variant::Simulated, ..) => Err(KeyError("keys of the variant simulated have 32 bytes".to_owned())),
            (other, ..) => Err(KeyError(format!("the variant {other} is not simulated"))),
        }
    }

    /// Everything about a quote but the values of its PCRs.
    fn pcrs(keys: &HostKeys<'_>, quote: &[u8], qualifying_data: &Hash) -> Result<Vec<(u32, Hash)>, Refusal> {
        let malformed = |detail: String| Refusal::new(RefusalCode::QuoteMalformed, detail);
        let (_, attestation_key) = Self::keys(keys).map_err(|error| malformed(error.0))?;
        let quote: wire::SimulatedQuote =
            decode("quote", quote, QUOTE_BYTES_MAX).map_err(|error| malformed(error.to_string()))?;
        let signature: Signature = quote
            .signature
            .as_slice()
            .try_into()
            .map_err(|_| malformed("the signature of the quote must have 64 bytes".to_owned()))?;
        let body: wire::SimulatedQuoteBody =
            decode("quote body", &quote.body, QUOTE_BYTES_MAX).map_err(|error| malformed(error.to_string()))?;
        if !is_signed(&attestation_key, &quote_signed(&quote.body), &signature) {
            return Err(Refusal::new(RefusalCode::QuoteSignature, "the quote is not signed by the attestation key"));
        }
        if body.qualifying_data != qualifying_data {
            let detail = "the quote is about something else than this request";
            return Err(Refusal::new(RefusalCode::QuoteQualifyingData, detail));
        }
        if body.bank != BANK {
            let detail = format!("the quote is of bank {:?}, not of {BANK}", body.bank);
            return Err(Refusal::new(RefusalCode::QuoteSelection, detail));
        }
        let pcr = |pcr: wire::SimulatedPcr| {
            let value = pcr.value.as_slice().try_into().ok()?;
            Some((pcr.index, value))
        };
        let pcrs: Option<Vec<(u32, Hash)>> = body.pcrs.into_iter().map(pcr).collect();
        pcrs.ok_or_else(|| malformed("a PCR must have 32 bytes".to_owned()))
    }

    fn check_pcrs(&self, pcrs: &[(u32, Hash)], lock: Lock) -> Result<(), Refusal> {
        let value = |index: u32| pcrs.iter().find(|(at, _)| *at == index).map(|(_, value)| value);
        let required = self.reference_values.keys().copied().chain([LOCK_PCR]);
        let absent: Vec<String> = required.filter(|index| value(*index).is_none()).map(|at| at.to_string()).collect();
        if !absent.is_empty() {
            let detail = format!("the quote lacks the PCRs {}", absent.join(", "));
            return Err(Refusal::new(RefusalCode::QuoteSelection, detail));
        }
        let others = self.reference_values.iter().filter(|(index, wanted)| value(**index) != Some(*wanted));
        let others: Vec<String> = others.map(|(index, _)| index.to_string()).collect();
        if !others.is_empty() {
            let detail = format!("PCRs {} have other values than the policy", others.join(", "));
            return Err(Refusal::new(RefusalCode::Measurement, detail));
        }
        let wanted = match lock {
            Lock::Open => [0; 32],
            Lock::Extended(cluster_id) => extended(&[0; 32], &cluster_id),
        };
        if value(LOCK_PCR) != Some(&wanted) {
            let detail = format!("the lock PCR {LOCK_PCR} is not as it must be");
            return Err(Refusal::new(RefusalCode::Lock, detail));
        }
        Ok(())
    }
}

impl Verifier for SimulatedVerifier {
    fn make_credential(&self, keys: &HostKeys<'_>, secret: &Secret, randomness: &Secret) -> Result<Vec<u8>, KeyError> {
        let (endorsement_key, attestation_key) = Self::keys(keys)?;
        let binding = credential_binding(&attestation_key);
        let sealed = seal(Suite::X25519, endorsement_key, secret.expose(), &binding, randomness.clone())
            .map_err(|_| KeyError("the endorsement key is not an X25519 key".to_owned()))?;
        let (encapsulated_key, ciphertext) = (sealed.encapsulated_key, sealed.ciphertext);
        Ok(wire::SimulatedCredential { encapsulated_key, ciphertext }.encode_to_vec())
    }

    fn selection(&self, _: Variant) -> Selection {
        let pcrs = self.reference_values.keys().copied().chain([LOCK_PCR]);
        let selection = Selection::new(Bank::Sha256, pcrs.filter_map(|at| u8::try_from(at).ok()));
        // Without reference values nothing that is measured would be asked for.
        selection.filter(|_| !self.reference_values.is_empty()).unwrap_or_else(|| Selection::all(Bank::Sha256))
    }

    fn check_endorsement(&self, keys: &HostKeys<'_>, _: Kind, role: Role, _: u64) -> Result<(), Refusal> {
        let id = keys.endorsement_key_id();
        let refused = |code, detail| Err(Refusal::new(code, detail));
        if self.revoked.contains(&id) {
            return refused(RefusalCode::EndorsementRevoked, "the endorsement key is revoked");
        }
        if self.enrolled.as_ref().is_some_and(|enrolled| !enrolled.contains(&id)) {
            return refused(RefusalCode::EndorsementUnknown, "the endorsement key is not enrolled");
        }
        let may_be = role == Role::Worker || self.control_planes.as_ref().is_none_or(|planes| planes.contains(&id));
        if !may_be {
            return refused(RefusalCode::RoleNotAllowed, "the host is not enrolled as a control plane");
        }
        Ok(())
    }

    fn check_attestation_key(&self, keys: &HostKeys<'_>) -> Result<(), Refusal> {
        Self::keys(keys).map(drop).map_err(|error| Refusal::new(RefusalCode::AttestationKey, error.0))
    }

    fn check_quote(&self, keys: &HostKeys<'_>, quote: &[u8], expected: &Expected) -> Result<Claims, Refusal> {
        let pcrs = Self::pcrs(keys, quote, &expected.qualifying_data)?;
        self.check_pcrs(&pcrs, expected.lock)?;
        Ok(Claims { pcrs, ..Claims::default() })
    }

    fn read_pcrs(&self, keys: &HostKeys<'_>, quote: &[u8], qualifying_data: &Hash) -> Option<Vec<(u32, Hash)>> {
        Self::pcrs(keys, quote, qualifying_data).ok()
    }
}
