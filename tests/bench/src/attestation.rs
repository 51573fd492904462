//! What one processor core judges: TPM evidence of one host, recorded from a software TPM, over and over; and credentials for it.
//!
//! Processor time of the whole process, not time on the clock: other programs on the machine do not count.

use std::time::Duration;

use anyhow::Context;
use configdb_schema::document::AttestationPolicy;
use join_attestation::{KeyEvidence, Phase, Policy, QuoteEvidence, Seed, judge, judge_keys, pcr};
use serde_json::json;

use crate::central_services::cpu_seconds;
use crate::figures::{Table, profile};

macro_rules! recorded {
    ($name:literal) => {
        concat!("../../../services/libs/join-attestation/tests/recorded/", $name)
    };
}

/// PCRs that the recorded quote is of; the last is the lock.
const INDICES: [u8; 9] = [0, 2, 4, 7, 8, 9, 11, 14, 15];
/// Some time at which the recorded certificates are valid.
const NOW: Duration = Duration::from_secs(1_800_000_000);

const KEYS: KeyEvidence<'static> = KeyEvidence {
    endorsement: include_bytes!(recorded!("endorsement.public")),
    certificate: Some(include_bytes!(recorded!("endorsement.der"))),
    intermediates: &[include_bytes!(recorded!("issuer.der"))],
    attestation: include_bytes!(recorded!("attestation.public")),
};

const QUOTE: QuoteEvidence<'static> = QuoteEvidence {
    attest: include_bytes!(recorded!("quote.attest")),
    signature: include_bytes!(recorded!("quote.signature")),
    pcr_values: include_bytes!(recorded!("quote.values")),
    event_log: None,
};

/// Judges `count` times each.
///
/// # Errors
/// The recorded evidence is not admitted.
pub fn run(count: u32) -> anyhow::Result<()> {
    let about = format!(
        "One core, {count} of each, {}. Endorsement key RSA-2048 with a chain of two certificates (RSA-3072), attestation key P-256, {} PCRs.",
        profile(),
        INDICES.len()
    );
    let table = Table::begin("Attestation", &about, &["what", "each, processor time", "a second and core"]);
    let process = std::process::id();
    let measure = |what: &str, once: &mut dyn FnMut() -> anyhow::Result<()>| -> anyhow::Result<()> {
        once()?;
        let before = cpu_seconds(process)?;
        for _ in 0..count {
            once()?;
        }
        let each = (cpu_seconds(process)? - before) / f64::from(count);
        // Processor time is counted in hundredths of a second: too few rounds have none.
        let a_second = if each > 0.0 { format!("{:.0}", 1.0 / each) } else { "-".to_owned() };
        table.row(&[what.to_owned(), format!("{:.0} us", each * 1e6), a_second]);
        Ok(())
    };
    let certified = policy("certificate")?;
    let enrolled = policy("enrolment")?;
    measure("whole evidence, key vouched for by its certificate", &mut || judged(&certified, &KEYS))?;
    let without = KeyEvidence { certificate: None, intermediates: &[], ..KEYS };
    measure("whole evidence, key vouched for by its enrolment", &mut || judged(&enrolled, &without))?;
    let keys = judge_keys(&enrolled, &without, NOW).context("the recorded keys")?;
    measure("credential for an RSA-2048 endorsement key", &mut || {
        keys.credential(&[7; 32], &Seed::new([1; 32]))?;
        Ok(())
    })?;
    Ok(())
}

fn judged(policy: &Policy, keys: &KeyEvidence<'_>) -> anyhow::Result<()> {
    judge(policy, keys, Some(&QUOTE), b"recorded", Phase::Joining, NOW).outcome.context("the recorded evidence")?;
    Ok(())
}

fn policy(require: &str) -> anyhow::Result<Policy> {
    let values = pcr::parse_digests(QUOTE.pcr_values)?;
    let pcrs = INDICES.iter().zip(values).filter(|(index, _)| **index < 15);
    let pcrs: serde_json::Map<String, serde_json::Value> =
        pcrs.map(|(index, value)| (index.to_string(), json!({"expected": [hex::encode(value)]}))).collect();
    let key = join_attestation::Public::parse(KEYS.endorsement)?.key;
    let ek = join_attestation::Hash::Sha256.digest(&[&key.subject_public_key_info()?]);
    let root = include_str!(recorded!("root.pem"));
    let entry: AttestationPolicy = serde_json::from_value(json!({"bank": "sha256", "pcrs": pcrs,
        "lock": {"pcr": 15}, "endorsement": {"require": require, "manufacturers": [root],
            "enrolled": [{"ek": hex::encode(ek)}]}}))?;
    Ok(Policy::new(&entry, 1))
}
