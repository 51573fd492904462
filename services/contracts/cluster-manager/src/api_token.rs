//! Bearer tokens of the HTTP API: their text, which their holder alone has, and the hash of it that an `ApiToken` entry holds.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use configdb_schema::address::{self, Organisation};
use secrecy::SecretString;
use uuid::Uuid;

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

/// The text of a token. Only the caller that makes it has the text; the store has its hash.
#[must_use]
pub fn text(random: &[u8; RANDOM_BYTES]) -> SecretString {
    SecretString::from(format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(random)))
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

    /// The hash itself, to compare in constant time.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// As it is stored in ConfigDB: hexadecimal in lower case.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }

    /// As [`TokenHash::to_hex`] writes it; None: the text is something else.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

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
        let hash = TokenHash::of(&plain).unwrap();
        assert_eq!(TokenHash::from_hex(&hash.to_hex()), Some(hash));
    }
}
