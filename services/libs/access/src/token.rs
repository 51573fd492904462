//! Bearer tokens: 32 random bytes that their holder shows. Here only hashes are known, from the `ApiToken` entries of ConfigDB.
//!
//! A token is found by comparing its hash with every known one in constant time, so that the time of a refusal says nothing about any token.

use std::collections::BTreeMap;

use cluster_manager_contract::api_token::TokenHash;
use configdb_schema::document::ApiToken;
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use uuid::Uuid;

use super::{Grant, Principal};

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
        let hash = TokenHash::from_hex(&token.hash).ok_or("hash is not a SHA-256 in hexadecimal")?;
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
    /// No token has it, or its time is over.
    pub fn authenticate(&self, hash: &TokenHash, wall: u64) -> Result<&Principal, TokenError> {
        let mut found = u64::MAX;
        for (index, known) in (0_u64..).zip(self.by_object.values()) {
            let equal: Choice = known.hash.as_bytes().ct_eq(hash.as_bytes());
            found.conditional_assign(&index, equal);
        }
        let index = usize::try_from(found).map_err(|_| TokenError::Unknown)?;
        let known = self.by_object.values().nth(index).ok_or(TokenError::Unknown)?;
        if known.expires <= wall { Err(TokenError::Expired) } else { Ok(&known.principal) }
    }

    /// The hash of the token in an object; None: it has no usable token.
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
    use cluster_manager_contract::api_token::{RANDOM_BYTES, text};
    use configdb_schema::document::TokenScope;
    use secrecy::ExposeSecret as _;
    use serde_json::json;

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
    fn an_entry_that_cannot_be_read_admits_no_one() {
        let mut tokens = Tokens::default();
        tokens.set(OBJECT, Some(&entry(&hash(1)))).unwrap();
        let bad = entry(&hash(1)).replace("2027", "next year");
        assert!(tokens.set(OBJECT, Some(&bad)).unwrap_err().starts_with("expires: "));
        assert!(tokens.is_empty());
        assert_eq!(tokens.authenticate(&hash(1), 0), Err(TokenError::Unknown));
        let bad = entry(&hash(1)).replace(&hash(1).to_hex(), "zz");
        assert_eq!(tokens.set(OBJECT, Some(&bad)).unwrap_err(), "hash is not a SHA-256 in hexadecimal");
    }
}
