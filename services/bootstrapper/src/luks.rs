//! What the header of a state disk must be (LUKS2 On-Disk Format Specification, section 3). It is read strictly, so that an attacker who can write to the disk does not choose how it is opened.
//!
//! A header that asks for no encryption, or for a weak one, would make a host write its secrets in clear. So every field is known, and has one of the values that are made here.

use std::collections::BTreeMap;

use join_protocol::limits::{ID_BYTES, UNLOCK_VALUES_MAX};
use join_protocol::message::local_unlock::{LocalUnlock, UNLOCK_KEY_BYTES, UnlockValue};
use join_protocol::selection::{Bank, PCRS_MAX};
use serde::Deserialize;
use uuid::Uuid;

use crate::platform::{Mark, SealedKey};

/// Type of our token.
pub(crate) const TOKEN_TYPE: &str = "sparkfleet";
/// Its slot.
pub(crate) const TOKEN_SLOT: &str = "0";
/// Type of the token with a second key, which is sealed to values that are signed.
pub(crate) const SEALED_TYPE: &str = "sparkfleet-tpm2-signed";
/// Type of the token with a second key that is sealed to values themselves. It is not used, and the next ticket replaces it.
const UNSIGNED_TYPE: &str = "sparkfleet-tpm2";
/// Its slot.
pub(crate) const SEALED_SLOT: &str = "1";
/// The key slot that only the cluster opens.
pub(crate) const CLUSTER_KEY_SLOT: &str = "0";
/// The key slot of the second key.
pub(crate) const SEALED_KEY_SLOT: &str = "1";
/// Bytes of either part of a sealed key, at most; those of known TPMs have some 200.
const SEALED_BYTES_MAX: usize = 2048;
/// The cipher.
pub(crate) const CIPHER: &str = "aes-xts-plain64";

/// Largest header JSON that is read: the most that the format allows is 4 MiB; ours has some KiB.
pub(crate) const JSON_BYTES_MAX: usize = 256 * 1024;

/// Why a header is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("LUKS2 header: {0}")]
pub(crate) struct HeaderFault(pub String);

fn fault<T>(text: impl Into<String>) -> Result<T, HeaderFault> {
    Err(HeaderFault(text.into()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    keyslots: BTreeMap<String, Keyslot>,
    tokens: BTreeMap<String, serde_json::Value>,
    segments: BTreeMap<String, Segment>,
    digests: BTreeMap<String, Digest>,
    #[serde(rename = "config")]
    _config: HeaderConfig,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keyslot {
    #[serde(rename = "type")]
    kind: String,
    key_size: u32,
    af: AntiForensic,
    area: Area,
    kdf: Kdf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AntiForensic {
    #[serde(rename = "type")]
    kind: String,
    stripes: u32,
    hash: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Area {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "offset")]
    _offset: String,
    #[serde(rename = "size")]
    _size: String,
    encryption: String,
    key_size: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kdf {
    #[serde(rename = "type")]
    kind: String,
    time: u32,
    memory: u32,
    cpus: u32,
    salt: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Segment {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "offset")]
    _offset: String,
    #[serde(rename = "size")]
    _size: String,
    iv_tweak: String,
    encryption: String,
    sector_size: u32,
    integrity: Option<Integrity>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Integrity {
    #[serde(rename = "type")]
    kind: String,
    journal_encryption: String,
    journal_integrity: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Digest {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "keyslots")]
    _keyslots: Vec<String>,
    #[serde(rename = "segments")]
    _segments: Vec<String>,
    hash: String,
    #[serde(rename = "iterations")]
    _iterations: u32,
    salt: String,
    digest: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderConfig {
    #[serde(rename = "json_size")]
    _json_size: String,
    #[serde(rename = "keyslots_size")]
    _keyslots_size: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    #[serde(rename = "type")]
    kind: String,
    keyslots: Vec<String>,
    state: String,
    generation: Option<Uuid>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedToken {
    #[serde(rename = "type")]
    kind: String,
    keyslots: Vec<String>,
    id: String,
    bank: String,
    key: String,
    /// By index in decimal: value and signature, `value:signature`.
    #[serde(rename = "registers")]
    pcrs: BTreeMap<String, Vec<String>>,
    public: String,
    private: String,
}

/// What the header of a state disk says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateHeader {
    /// Mark of our token.
    pub mark: Mark,
    /// Drawn when the disk was made.
    pub generation: Option<Uuid>,
    /// The second key.
    pub sealed: Option<SealedKey>,
    /// There is a token for one, of either type.
    pub has_second_token: bool,
    /// There is a key slot for one.
    pub has_second_slot: bool,
}

/// Reads the metadata of a header (`cryptsetup luksDump --dump-json-metadata`), checks every field of it, and gives what our tokens say.
///
/// # Errors
/// The first field that is unknown, missing or has another value than ours; or there is no token of ours.
pub(crate) fn check_header(json: &[u8]) -> Result<StateHeader, HeaderFault> {
    if json.len() > JSON_BYTES_MAX {
        return fault(format!("has {} bytes; at most {JSON_BYTES_MAX} are read", json.len()));
    }
    let header: Header = serde_json::from_slice(json).map_err(|error| HeaderFault(error.to_string()))?;
    if header.keyslots.is_empty() || header.segments.is_empty() || header.digests.is_empty() {
        return fault("has no key slot, no segment or no digest");
    }
    for (slot, keyslot) in &header.keyslots {
        check(&format!("keyslots.{slot}"), &keyslot_rules(keyslot))?;
    }
    for (at, segment) in &header.segments {
        check(&format!("segments.{at}"), &segment_rules(segment))?;
    }
    for (at, digest) in &header.digests {
        let rules = [
            (digest.kind == "pbkdf2", "type must be pbkdf2"),
            (digest.hash == "sha256", "hash must be sha256"),
            (!digest.salt.is_empty() && !digest.digest.is_empty(), "salt or digest is missing"),
        ];
        check(&format!("digests.{at}"), &rules)?;
    }
    let (mark, generation) = state_token(&header.tokens)?;
    let second = header.tokens.get(SEALED_SLOT);
    let is_signed = |token: &&serde_json::Value| token["type"] != UNSIGNED_TYPE;
    let sealed = second.filter(is_signed).map(sealed_token).transpose()?;
    let has_second_token = second.is_some();
    let has_second_slot = header.keyslots.contains_key(SEALED_KEY_SLOT);
    Ok(StateHeader { mark, generation, sealed, has_second_token, has_second_slot })
}

fn check(place: &str, rules: &[(bool, &str)]) -> Result<(), HeaderFault> {
    match rules.iter().find(|(holds, _)| !holds) {
        Some((_, rule)) => fault(format!("{place}: {rule}")),
        None => Ok(()),
    }
}

fn keyslot_rules(keyslot: &Keyslot) -> Vec<(bool, &'static str)> {
    let Keyslot { kind, key_size, af, area, kdf } = keyslot;
    vec![
        (kind == "luks2", "type must be luks2"),
        // With authenticated sectors 32 bytes more.
        (matches!(key_size, 64 | 96), "key_size must be 64 or 96"),
        (
            af.kind == "luks1" && af.stripes == 4000 && af.hash == "sha256",
            "af must be luks1 with 4000 stripes and sha256",
        ),
        (
            area.kind == "raw" && area.encryption == CIPHER && area.key_size == 64,
            "area must be encrypted with aes-xts-plain64",
        ),
        (kdf.kind == "argon2id", "kdf must be argon2id"),
        (
            kdf.memory > 0 && kdf.time > 0 && kdf.cpus > 0 && !kdf.salt.is_empty(),
            "kdf lacks time, memory, cpus or salt",
        ),
    ]
}

fn segment_rules(segment: &Segment) -> Vec<(bool, &'static str)> {
    let is_ours = |integrity: &Integrity| {
        let journal = integrity.journal_encryption == "none" && integrity.journal_integrity == "none";
        integrity.kind == "hmac(sha256)" && journal
    };
    vec![
        (segment.kind == "crypt", "type must be crypt"),
        (segment.encryption == CIPHER, "encryption must be aes-xts-plain64"),
        (segment.sector_size == 4096 && segment.iv_tweak == "0", "sector_size must be 4096 and iv_tweak 0"),
        (segment.integrity.as_ref().is_none_or(is_ours), "integrity must be hmac(sha256) without a journal of its own"),
    ]
}

fn state_token(tokens: &BTreeMap<String, serde_json::Value>) -> Result<(Mark, Option<Uuid>), HeaderFault> {
    if let Some(slot) = tokens.keys().find(|slot| *slot != TOKEN_SLOT && *slot != SEALED_SLOT) {
        return fault(format!("tokens.{slot}: is none of a state disk, which has {TOKEN_TYPE} and {SEALED_TYPE}"));
    }
    let Some(token) = tokens.get(TOKEN_SLOT) else {
        return fault(format!("has no token {TOKEN_SLOT} of type {TOKEN_TYPE}"));
    };
    let at = format!("tokens.{TOKEN_SLOT}");
    let token: Token = Token::deserialize(token).map_err(|error| HeaderFault(format!("{at}: {error}")))?;
    if token.kind != TOKEN_TYPE || !token.keyslots.is_empty() {
        return fault(format!("{at}: is not the token {TOKEN_TYPE} without a key slot"));
    }
    match [Mark::New, Mark::Initialised, Mark::Reset].into_iter().find(|mark| state_of(*mark) == token.state) {
        Some(mark) => Ok((mark, token.generation)),
        None => fault(format!("{at}: state {:?} is not known", token.state)),
    }
}

fn sealed_token(token: &serde_json::Value) -> Result<SealedKey, HeaderFault> {
    let at = format!("tokens.{SEALED_SLOT}");
    let token: SealedToken = SealedToken::deserialize(token).map_err(|error| HeaderFault(format!("{at}: {error}")))?;
    if token.kind != SEALED_TYPE || token.keyslots != [SEALED_KEY_SLOT] {
        return fault(format!("{at}: is not the token {SEALED_TYPE} of key slot {SEALED_KEY_SLOT}"));
    }
    let bank = Bank::from_name(&token.bank).ok_or_else(|| HeaderFault(format!("{at}: bank is not known")))?;
    let part = |name: &str, text: &str| match hex::decode(text) {
        Ok(bytes) if (1..=SEALED_BYTES_MAX).contains(&bytes.len()) => Ok(bytes),
        _ => fault(format!("{at}: {name} must be hexadecimal, 1 to {SEALED_BYTES_MAX} bytes")),
    };
    let fixed = |name: &str, rule| HeaderFault(format!("{at}: {name} must be hexadecimal, {rule} bytes"));
    let value = |text: &String| {
        let (value, signature) = text.split_once(':')?;
        let value = hex::decode(value).ok().filter(|value| value.len() == bank.digest_bytes())?;
        Some(UnlockValue { value, signature: array(signature)? })
    };
    let mut pcrs = BTreeMap::new();
    for (index, values) in &token.pcrs {
        let number = index.parse::<u8>().ok().filter(|number| number.to_string() == *index);
        let number = number.filter(|number| usize::from(*number) < PCRS_MAX);
        let values: Option<Vec<UnlockValue>> = values.iter().map(value).collect();
        let pcr = number.zip(values.filter(|values| !values.is_empty()));
        let (number, values) = pcr.ok_or_else(|| {
            HeaderFault(format!("{at}: registers.{index}: is not a PCR with its values and signatures"))
        })?;
        pcrs.insert(number, values);
    }
    if pcrs.is_empty() || pcrs.values().map(Vec::len).sum::<usize>() > UNLOCK_VALUES_MAX {
        return fault(format!("{at}: registers must have 1 to {UNLOCK_VALUES_MAX} values"));
    }
    let key = array(&token.key).ok_or_else(|| fixed("key", UNLOCK_KEY_BYTES))?;
    Ok(SealedKey {
        id: array(&token.id).ok_or_else(|| fixed("id", ID_BYTES))?,
        unlock: LocalUnlock { bank, key, pcrs },
        public: part("public", &token.public)?,
        private: part("private", &token.private)?,
    })
}

fn array<const N: usize>(text: &str) -> Option<[u8; N]> {
    hex::decode(text).ok()?.try_into().ok()
}

const fn state_of(mark: Mark) -> &'static str {
    match mark {
        Mark::New => "new",
        Mark::Initialised => "initialised",
        Mark::Reset => "reset",
    }
}

/// Our token, as it is imported.
#[must_use]
pub(crate) fn token(mark: Mark, generation: Option<Uuid>) -> String {
    let mut token = serde_json::json!({"type": TOKEN_TYPE, "keyslots": [], "state": state_of(mark)});
    if let Some(generation) = generation {
        token["generation"] = serde_json::json!(generation);
    }
    token.to_string()
}

/// The token of a second key, as it is imported.
#[must_use]
pub(crate) fn token_of_sealed(sealed: &SealedKey) -> String {
    let SealedKey { id, unlock: LocalUnlock { bank, key, pcrs }, .. } = sealed;
    let value = |one: &UnlockValue| format!("{}:{}", hex::encode(&one.value), hex::encode(one.signature));
    let values = |values: &Vec<UnlockValue>| values.iter().map(value).collect::<Vec<_>>();
    let pcrs: BTreeMap<_, _> = pcrs.iter().map(|(index, all)| (index.to_string(), values(all))).collect();
    serde_json::json!({
        "type": SEALED_TYPE,
        "keyslots": [SEALED_KEY_SLOT],
        "id": hex::encode(id),
        "bank": bank.name(),
        "key": hex::encode(key),
        "registers": pcrs,
        "public": hex::encode(&sealed.public),
        "private": hex::encode(&sealed.private),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn header() -> Value {
        json!({
            "keyslots": {"0": {"type": "luks2", "key_size": 64,
                "af": {"type": "luks1", "stripes": 4000, "hash": "sha256"},
                "area": {"type": "raw", "offset": "32768", "size": "258048", "encryption": "aes-xts-plain64", "key_size": 64},
                "kdf": {"type": "argon2id", "time": 4, "memory": 65536, "cpus": 2, "salt": "AAAA"}}},
            "tokens": {"0": {"type": "sparkfleet", "keyslots": [], "state": "new"}},
            "segments": {"0": {"type": "crypt", "offset": "16777216", "size": "dynamic", "iv_tweak": "0",
                "encryption": "aes-xts-plain64", "sector_size": 4096,
                "integrity": {"type": "hmac(sha256)", "journal_encryption": "none", "journal_integrity": "none"}}},
            "digests": {"0": {"type": "pbkdf2", "keyslots": ["0"], "segments": ["0"], "hash": "sha256", "iterations": 1000,
                "salt": "AAAA", "digest": "BBBB"}},
            "config": {"json_size": "12288", "keyslots_size": "16744448"}
        })
    }

    fn checked(header: &Value) -> Result<StateHeader, HeaderFault> {
        check_header(header.to_string().as_bytes())
    }

    fn sealed() -> SealedKey {
        let value = |byte| UnlockValue { value: vec![byte; 32], signature: [byte; 64] };
        let pcrs = BTreeMap::from([(4, vec![value(1), value(2)]), (15, vec![value(0)])]);
        let unlock = LocalUnlock { bank: Bank::Sha256, key: [7; 64], pcrs };
        SealedKey { id: [9; 16], unlock, public: vec![1, 2], private: vec![3] }
    }

    /// A header with a second key.
    fn with_second_key() -> Value {
        let mut header = header();
        header["keyslots"]["1"] = header["keyslots"]["0"].clone();
        header["tokens"]["1"] = serde_json::from_str(&token_of_sealed(&sealed())).unwrap();
        header
    }

    #[test]
    fn our_header_is_read_with_its_mark() {
        for (mark, state) in [(Mark::New, "new"), (Mark::Initialised, "initialised"), (Mark::Reset, "reset")] {
            for generation in [None, Some(Uuid::from_u128(7))] {
                let mut header = header();
                header["tokens"]["0"] = serde_json::from_str(&token(mark, generation)).unwrap();
                assert_eq!(header["tokens"]["0"]["state"], state);
                let (has_second_token, has_second_slot) = (false, false);
                let wanted = StateHeader { mark, generation, sealed: None, has_second_token, has_second_slot };
                assert_eq!(checked(&header), Ok(wanted));
            }
        }
        let mut plain = header();
        plain["segments"]["0"].as_object_mut().unwrap().remove("integrity");
        assert_eq!(checked(&plain).map(|header| header.mark), Ok(Mark::New));
    }

    #[test]
    fn a_second_key_is_read_as_it_was_written_and_no_other_is_believed() {
        let read = checked(&with_second_key()).unwrap();
        assert_eq!((read.sealed, read.has_second_token, read.has_second_slot), (Some(sealed()), true, true));
        let value = format!("{}:{}", "01".repeat(32), "01".repeat(64));
        for (place, value, message) in [
            ("type", json!("systemd-tpm2"), "is not the token sparkfleet-tpm2-signed of key slot 1"),
            ("keyslots", json!(["0"]), "is not the token sparkfleet-tpm2-signed of key slot 1"),
            ("id", json!("09"), "id must be hexadecimal, 16 bytes"),
            ("bank", json!("sha1"), "bank is not known"),
            ("key", json!("zz"), "key must be hexadecimal, 64 bytes"),
            ("registers", json!({}), "registers must have 1 to 32 values"),
            ("registers", json!({"04": ["00"]}), "registers.04: is not a PCR with its values and signatures"),
            ("registers", json!({"24": [&value]}), "registers.24: is not a PCR"),
            ("registers", json!({"4": []}), "registers.4: is not a PCR"),
            ("registers", json!({"4": [&value[1..]]}), "registers.4: is not a PCR"),
            ("registers", json!({"4": vec![&value; 33]}), "registers must have 1 to 32 values"),
            ("public", json!(""), "public must be hexadecimal, 1 to 2048 bytes"),
            ("private", json!("00".repeat(2049)), "private must be hexadecimal, 1 to 2048 bytes"),
            ("pin", json!(false), "unknown field `pin`"),
        ] {
            let mut changed = with_second_key();
            changed["tokens"]["1"][place] = value;
            let error = checked(&changed).unwrap_err().to_string();
            assert!(error.starts_with(&format!("LUKS2 header: tokens.1: {message}")), "{place}: {error}");
        }
        let mut interrupted = with_second_key();
        interrupted["tokens"].as_object_mut().unwrap().remove("1");
        let read = checked(&interrupted).unwrap();
        let found = (read.sealed, read.has_second_token, read.has_second_slot);
        assert_eq!(found, (None, false, true), "a slot without its token is of no use");
        let mut unsigned = with_second_key();
        unsigned["tokens"]["1"] = json!({"type": "sparkfleet-tpm2", "keyslots": ["1"], "bank": "sha256"});
        let read = checked(&unsigned).unwrap();
        assert_eq!((read.sealed, read.has_second_token), (None, true), "it is not used, and can be taken away");
    }

    #[test]
    fn every_other_header_is_refused_and_says_where() {
        let table = [
            ("/segments/0/encryption", json!("cipher_null-ecb"), "segments.0: encryption must be aes-xts-plain64"),
            ("/keyslots/0/area/encryption", json!("cipher_null-ecb"), "keyslots.0: area must be encrypted"),
            ("/keyslots/0/key_size", json!(16), "keyslots.0: key_size must be"),
            ("/keyslots/0/kdf/type", json!("pbkdf2"), "keyslots.0: kdf must be argon2id"),
            ("/keyslots/0/kdf/memory", json!(0), "keyslots.0: kdf lacks"),
            ("/keyslots/0/af/stripes", json!(1), "keyslots.0: af must be"),
            ("/segments/0/type", json!("linear"), "segments.0: type must be crypt"),
            ("/segments/0/sector_size", json!(512), "segments.0: sector_size must be"),
            ("/segments/0/iv_tweak", json!("1"), "segments.0: sector_size must be 4096 and iv_tweak"),
            ("/segments/0/integrity/type", json!("none"), "segments.0: integrity must be"),
            ("/digests/0/type", json!("none"), "digests.0: type must be"),
            ("/tokens/0/type", json!("systemd-tpm2"), "tokens.0: is not the token sparkfleet"),
            ("/tokens/0/state", json!("blank"), "tokens.0: state \"blank\" is not known"),
            ("/tokens/0/keyslots", json!(["0"]), "tokens.0: is not the token"),
            ("/tokens", json!({}), "has no token 0"),
            ("/tokens", json!({"2": {"type": "clevis"}}), "tokens.2: is none of a state disk"),
            ("/segments", json!({}), "has no key slot, no segment"),
            (
                "/config",
                json!({"json_size": "1", "keyslots_size": "1", "requirements": {}}),
                "unknown field `requirements`",
            ),
        ];
        for (place, value, message) in table {
            let mut changed = header();
            *changed.pointer_mut(place).unwrap() = value;
            let error = checked(&changed).unwrap_err().to_string();
            assert!(error.starts_with(&format!("LUKS2 header: {message}")), "{place}: {error}");
        }
        for (place, key) in
            [("/keyslots/0", "priority"), ("/segments/0", "flags"), ("/digests/0", "x"), ("/tokens/0", "tpm")]
        {
            let mut changed = header();
            changed.pointer_mut(place).unwrap()[key] = json!(1);
            assert!(checked(&changed).unwrap_err().0.contains("unknown field"), "{place}");
        }
        assert!(check_header(b"{\"keyslots\"").is_err() && check_header(&vec![b' '; JSON_BYTES_MAX + 1]).is_err());
    }
}
