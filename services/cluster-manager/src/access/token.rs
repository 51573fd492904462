//! Bearer tokens: 32 random bytes that their holder shows. Here only hashes are known, from the `ApiToken` entries of ConfigDB.
//!
//! A token is found by comparing its hash with every known one in constant time, so that the time of a refusal says nothing about any token.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use configdb_schema::address::{self, Organisation};
use configdb_schema::document::ApiToken;
use service_runtime::config::Secret;
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use uuid::Uuid;

use super::{Grant, Principal};

/// What every token begins with, so that scanners of leaked secrets know it.
pub const PREFIX: &str = "sfp_";

/// Random bytes of a token.
pub const RANDOM_BYTES: usize = 32;

/// Bytes of its text: the prefix and base64url without padding.
const TEXT_BYTES: usize = PREFIX.len() + 43;

/// Longest name, bytes; as in the schema of `ApiToken`.
const NAME_BYTES_MAX: usize = 64;

/// Why a token cannot have a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_` and `-`, beginning with a letter or digit")]
pub struct NameError;

/// The object of a token: the same name is the same token, so that a name is never given twice.
///
/// # Errors
/// The name breaks the rule.
pub fn object(organisation: &Organisation, name: &str) -> Result<Uuid, NameError> {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let allowed = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if !first || !allowed || name.len() > NAME_BYTES_MAX {
        return Err(NameError);
    }
    Ok(address::v5(&["ApiToken", organisation.as_str(), name]))
}

/// SHA-256 of a token's text. Random tokens need no slow hash: there is nothing to guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenHash([u8; 32]);

/// The text of a token. Only whoever makes one has it.
#[must_use]
pub fn text(random: &[u8; RANDOM_BYTES]) -> Secret {
    Secret::from(format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(random)))
}

impl TokenHash {
    /// Of a text that has the form of a token; None: it has another.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let alphabet = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_token = text.len() == TEXT_BYTES && text.starts_with(PREFIX) && text.bytes().all(alphabet);
        let hash = is_token.then(|| digest(&SHA256, text.as_bytes()))?;
        hash.as_ref().try_into().ok().map(Self)
    }

    /// As it stands in ConfigDB: hexadecimal in lower case.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }

    fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

/// Why a token is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// There is none with that hash, or no longer.
    #[error("the token is unknown or revoked")]
    Unknown,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
}

#[derive(Debug, Clone)]
struct Known {
    hash: TokenHash,
    /// UTC, ms.
    expires: u64,
    principal: Principal,
}

/// Every token, as ConfigDB has it.
#[derive(Debug, Clone, Default)]
pub struct Tokens {
    by_object: BTreeMap<Uuid, Known>,
}

impl Tokens {
    /// Takes the entry of an object over; None: there is none (any more).
    ///
    /// # Errors
    /// What is wrong with the entry; the token counts as revoked then.
    pub fn set(&mut self, object: Uuid, json: Option<&str>) -> Result<(), String> {
        self.by_object.remove(&object);
        let Some(json) = json else { return Ok(()) };
        let token: ApiToken = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let hash = TokenHash::from_hex(&token.hash).ok_or("hash is no SHA-256 in hexadecimal")?;
        let expires: jiff::Timestamp = token.expires.parse().map_err(|error| format!("expires: {error}"))?;
        let expires = u64::try_from(expires.as_millisecond()).unwrap_or(0);
        let clusters = token.clusters.map(|clusters| clusters.into_iter().collect());
        let grants = vec![Grant { scope: token.scope, clusters }];
        let principal = Principal { name: format!("token:{}", token.name), grants };
        self.by_object.insert(object, Known { hash, expires, principal });
        Ok(())
    }

    /// Whose token has this hash. `wall`: UTC, ms.
    ///
    /// # Errors
    /// Nobody's, or its time is over.
    pub fn authenticate(&self, hash: &TokenHash, wall: u64) -> Result<&Principal, TokenError> {
        let mut found = u64::MAX;
        for (index, known) in (0_u64..).zip(self.by_object.values()) {
            let equal: Choice = known.hash.0.ct_eq(&hash.0);
            found.conditional_assign(&index, equal);
        }
        let index = usize::try_from(found).map_err(|_| TokenError::Unknown)?;
        let known = self.by_object.values().nth(index).ok_or(TokenError::Unknown)?;
        if known.expires <= wall { Err(TokenError::Expired) } else { Ok(&known.principal) }
    }

    /// The hash of the token that stands in an object; None: there is none that lets anybody in.
    #[must_use]
    pub fn hash(&self, object: Uuid) -> Option<TokenHash> {
        self.by_object.get(&object).map(|known| known.hash)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_object.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_object.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use configdb_schema::document::TokenScope;
    use serde_json::json;
    use service_runtime::config::ExposeSecret as _;

    const OBJECT: Uuid = Uuid::from_u128(1);
    const CLUSTER: Uuid = Uuid::from_u128(0xA);
    const EXPIRES: u64 = 1_800_000_000_000;

    fn entry(hash: &TokenHash) -> String {
        let expires = jiff::Timestamp::from_millisecond(EXPIRES.cast_signed()).unwrap().to_string();
        json!({"name": "ci", "hash": hash.to_hex(), "scope": "operator", "clusters": [CLUSTER],
            "issued": "2026-11-22T00:00:00Z", "expires": expires, "by": "ada"})
        .to_string()
    }

    fn hash(seed: u8) -> TokenHash {
        TokenHash::of(text(&[seed; RANDOM_BYTES]).expose_secret()).unwrap()
    }

    #[test]
    fn a_token_is_known_by_its_hash_until_it_ends_or_is_revoked() {
        let mut tokens = Tokens::default();
        for seed in 2..20 {
            tokens.set(Uuid::from_u128(seed.into()), Some(&entry(&hash(seed)))).unwrap();
        }
        tokens.set(OBJECT, Some(&entry(&hash(1)))).unwrap();
        let principal = tokens.authenticate(&hash(1), EXPIRES - 1).unwrap();
        assert_eq!((principal.name.as_str(), principal.grants[0].scope), ("token:ci", TokenScope::Operator));
        assert!(principal.sees(CLUSTER) && !principal.sees(OBJECT));
        assert_eq!(tokens.authenticate(&hash(1), EXPIRES), Err(TokenError::Expired));
        assert_eq!(tokens.authenticate(&hash(99), 0), Err(TokenError::Unknown));
        tokens.set(OBJECT, None).unwrap();
        assert_eq!(tokens.authenticate(&hash(1), 0), Err(TokenError::Unknown));
        assert_eq!(tokens.len(), 18);
    }

    #[test]
    fn an_entry_that_cannot_be_read_lets_nobody_in() {
        let mut tokens = Tokens::default();
        tokens.set(OBJECT, Some(&entry(&hash(1)))).unwrap();
        let bad = entry(&hash(1)).replace("2027", "next year");
        assert!(tokens.set(OBJECT, Some(&bad)).unwrap_err().starts_with("expires: "));
        assert!(tokens.is_empty());
        assert_eq!(tokens.authenticate(&hash(1), 0), Err(TokenError::Unknown));
        let bad = entry(&hash(1)).replace(&hash(1).to_hex(), "zz");
        assert_eq!(tokens.set(OBJECT, Some(&bad)).unwrap_err(), "hash is no SHA-256 in hexadecimal");
    }

    #[test]
    fn names_that_the_schema_refuses_are_none() {
        let organisation: Organisation = "ACME".parse().unwrap();
        for good in ["ci", "press-shop.2", "A_b"] {
            assert_eq!(object(&organisation, good), object(&organisation, good));
        }
        assert_ne!(object(&organisation, "ci"), object(&organisation, "CI"));
        for bad in ["", "-a", ".a", "a b", "a/b", &"a".repeat(65)] {
            assert!(object(&organisation, bad).unwrap_err().to_string().starts_with("must be 1 to 64"), "{bad:?}");
        }
    }

    #[test]
    fn a_token_shows_in_no_debug_and_only_its_own_form_is_hashed() {
        let token = text(&[7; RANDOM_BYTES]);
        let plain = token.expose_secret().to_owned();
        assert!(plain.starts_with("sfp_") && plain.len() == TEXT_BYTES);
        assert!(!format!("{token:?}").contains(&plain[4..]));
        for other in [&plain[..TEXT_BYTES - 1], &plain.replace("sfp_", "sft_"), &plain.replace("Bw", " w"), ""] {
            assert_eq!(TokenHash::of(other), None, "{other:?}");
        }
        assert_eq!(TokenHash::from_hex(&hash(1).to_hex()), Some(hash(1)));
    }
}
