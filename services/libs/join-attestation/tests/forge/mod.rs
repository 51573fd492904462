//! TPM structures made in software, as an attacker could make them: everything in them can be chosen, and the signature fits.
#![allow(dead_code, reason = "each test file uses its part")]

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use configdb_schema::document::AttestationPolicy;
use join_attestation::{Hash, Policy, Public};
use serde_json::{Value, json};

/// fixedTPM, fixedParent, sensitiveDataOrigin, adminWithPolicy, restricted, decrypt.
pub const EK_ATTRIBUTES: u32 = 0x0003_00b2;
/// fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth, restricted, sign.
pub const AK_ATTRIBUTES: u32 = 0x0005_0072;

pub const SHA1: u16 = 0x0004;
pub const SHA256: u16 = 0x000b;
const NULL: u16 = 0x0010;

/// A sized buffer.
pub fn sized(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes(), bytes].concat()
}

/// A public area of a P-256 key, every field of which can be changed.
#[derive(Debug, Clone)]
pub struct Area {
    pub kind: u16,
    pub name_hash: u16,
    pub attributes: u32,
    pub symmetric: Vec<u16>,
    pub scheme: Vec<u16>,
    pub curve: u16,
    pub kdf: u16,
    pub point: Vec<u8>,
    pub trailing: Vec<u8>,
}

impl Area {
    /// An endorsement key.
    pub fn endorsement(key: &EcdsaKeyPair) -> Self {
        let symmetric = vec![0x0006, 128, 0x0043];
        Self { attributes: EK_ATTRIBUTES, symmetric, scheme: vec![NULL], ..Self::attestation(key) }
    }

    /// An attestation key.
    pub fn attestation(key: &EcdsaKeyPair) -> Self {
        Self {
            kind: 0x0023,
            name_hash: SHA256,
            attributes: AK_ATTRIBUTES,
            symmetric: vec![NULL],
            scheme: vec![0x0018, SHA256],
            curve: 0x0003,
            kdf: NULL,
            point: key.public_key().as_ref()[1..].to_vec(),
            trailing: Vec::new(),
        }
    }

    /// `TPM2B_PUBLIC`.
    pub fn bytes(&self) -> Vec<u8> {
        let words = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
        let (x, y) = self.point.split_at(self.point.len() / 2);
        sized(
            &[
                words(&[self.kind, self.name_hash]),
                self.attributes.to_be_bytes().to_vec(),
                sized(&[]),
                words(&self.symmetric),
                words(&self.scheme),
                words(&[self.curve, self.kdf]),
                sized(x),
                sized(y),
                self.trailing.clone(),
            ]
            .concat(),
        )
    }
}

/// What a quote says; every field can be changed before it is signed.
#[derive(Debug, Clone)]
pub struct Statement {
    pub magic: u32,
    pub kind: u16,
    pub signer: Vec<u8>,
    pub extra_data: Vec<u8>,
    pub clock: u64,
    pub reset_count: u32,
    pub restart_count: u32,
    pub safe: u8,
    pub selections: Vec<(u16, Vec<u8>)>,
    pub values: Vec<Vec<u8>>,
    pub digest: Option<Vec<u8>>,
}

impl Statement {
    /// `TPMS_ATTEST`.
    pub fn bytes(&self) -> Vec<u8> {
        let values: Vec<&[u8]> = self.values.iter().map(Vec::as_slice).collect();
        let digest = self.digest.clone().unwrap_or_else(|| Hash::Sha256.digest(&values));
        let mut bytes = [self.magic.to_be_bytes().as_slice(), &self.kind.to_be_bytes()].concat();
        bytes.extend(sized(&self.signer));
        bytes.extend(sized(&self.extra_data));
        bytes.extend(self.clock.to_be_bytes());
        bytes.extend(self.reset_count.to_be_bytes());
        bytes.extend(self.restart_count.to_be_bytes());
        bytes.push(self.safe);
        bytes.extend(0x2020_0312_0000_0001_u64.to_be_bytes());
        bytes.extend((self.selections.len() as u32).to_be_bytes());
        for (bank, indices) in &self.selections {
            let mut bits = [0_u8; 3];
            indices.iter().for_each(|index| bits[usize::from(index / 8)] |= 1 << (index % 8));
            bytes.extend(bank.to_be_bytes());
            bytes.push(3);
            bytes.extend(bits);
        }
        bytes.extend(sized(&digest));
        bytes
    }

    /// The values as `TPML_DIGEST`s.
    pub fn value_bytes(&self) -> Vec<u8> {
        let list = |values: &[Vec<u8>]| {
            let digests: Vec<u8> = values.iter().flat_map(|value| sized(value)).collect();
            [(values.len() as u32).to_be_bytes().as_slice(), &digests].concat()
        };
        self.values.chunks(8).flat_map(list).collect()
    }
}

/// A machine: keys and what its PCRs hold.
pub struct Machine {
    pub endorsement_key: EcdsaKeyPair,
    pub attestation_key: EcdsaKeyPair,
}

/// The PCRs of the policy, and the lock behind them.
pub const INDICES: [u8; 5] = [4, 7, 9, 11, 15];

pub fn key() -> EcdsaKeyPair {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()
}

/// What a PCR holds on a good machine.
pub fn measured(index: u8) -> Vec<u8> {
    Hash::Sha256.digest(&[b"what is measured into", &[index]])
}

impl Machine {
    pub fn new() -> Self {
        Self { endorsement_key: key(), attestation_key: key() }
    }

    pub fn endorsement(&self) -> Area {
        Area::endorsement(&self.endorsement_key)
    }

    pub fn attestation(&self) -> Area {
        Area::attestation(&self.attestation_key)
    }

    /// The hash by which the machine is enrolled.
    pub fn ek_hash(&self) -> String {
        let public = Public::parse(&self.endorsement().bytes()).unwrap();
        hex::encode(Hash::Sha256.digest(&[&public.key.subject_public_key_info().unwrap()]))
    }

    /// What a good machine would say.
    pub fn statement(&self, extra_data: &[u8]) -> Statement {
        let endorsement = Public::parse(&self.endorsement().bytes()).unwrap();
        let attestation = Public::parse(&self.attestation().bytes()).unwrap();
        let parent = endorsement.qualified_name(&[0x40, 0, 0, 0x0b]);
        let zero = vec![0; 32];
        Statement {
            magic: 0xff54_4347,
            kind: 0x8018,
            signer: attestation.qualified_name(&parent),
            extra_data: extra_data.to_vec(),
            clock: 1_000_000,
            reset_count: 12,
            restart_count: 0,
            safe: 1,
            selections: vec![(SHA256, INDICES.to_vec())],
            values: INDICES.iter().map(|index| if *index == 15 { zero.clone() } else { measured(*index) }).collect(),
            digest: None,
        }
    }

    /// `TPMT_SIGNATURE` with the attestation key.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        let signature = self.attestation_key.sign(&SystemRandom::new(), message).unwrap();
        let (r, s) = signature.as_ref().split_at(32);
        [&[0, 0x18, 0, 0x0b], sized(r).as_slice(), &sized(s)].concat()
    }

    /// An entry that admits this machine by its enrolment. PCR 7 only warns.
    pub fn policy(&self) -> Value {
        let value = |index| hex::encode(measured(index));
        json!({"bank": "sha256", "lock": {"pcr": 15}, "endorsement": {"require": "enrolment",
                "enrolled": [{"ek": self.ek_hash(), "host": "press-shop-2"}]},
            "pcrs": {"4": {"expected": [value(4)]}, "7": {"expected": [value(7)], "warnOnly": true},
                "9": {"expected": [value(9)]}, "11": {"expected": [value(200), value(11)]}}})
    }
}

/// The policy of an entry, at revision 41.
pub fn in_force(entry: &Value) -> Policy {
    let entry: AttestationPolicy = serde_json::from_value(entry.clone()).unwrap();
    Policy::new(&entry, 41)
}
