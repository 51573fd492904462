//! One-time tokens: `sft_` and 32 random bytes in base64url. Only their hash is ever stored.

use std::fmt;

use aws_lc_rs::constant_time;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

/// What every token begins with, so that people and scanners know one when they see it.
pub const PREFIX: &str = "sft_";

/// Random bytes of a token.
pub const RANDOM_BYTES: usize = 32;

const CHARACTERS: usize = PREFIX.len() + 43;

/// A text is not a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token must be {PREFIX} and 43 characters of base64url")]
pub struct TokenError;

/// A one-time token. Never shown.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// Of 32 bytes from a cryptographic source of randomness.
    #[must_use]
    pub fn new(random: [u8; RANDOM_BYTES]) -> Self {
        let random = Zeroizing::new(random);
        Self(Zeroizing::new(format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(*random))))
    }

    /// Reads a token; white space around it is not its.
    ///
    /// # Errors
    /// [`TokenError`] holds nothing of the text.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        Self::exact(text.trim())
    }

    /// Reads a token that is the whole text.
    ///
    /// # Errors
    /// [`TokenError`] holds nothing of the text.
    pub fn exact(text: &str) -> Result<Self, TokenError> {
        let body = text.strip_prefix(PREFIX).filter(|_| text.len() == CHARACTERS).ok_or(TokenError)?;
        let bytes = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(body).map_err(|_| TokenError)?);
        if bytes.len() == RANDOM_BYTES { Ok(Self(Zeroizing::new(text.to_owned()))) } else { Err(TokenError) }
    }

    /// Its text, to be handed to the cluster.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What is stored of it.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash(hex::encode(digest(&SHA256, self.0.as_bytes()).as_ref()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// SHA-256 of a token's text, hexadecimal in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenHash(String);

impl TokenHash {
    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a stored hash is this one; takes the same time wherever they differ.
    #[must_use]
    pub fn is(&self, stored: &str) -> bool {
        constant_time::verify_slices_are_equal(self.0.as_bytes(), stored.as_bytes()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written_and_never_shown() {
        let token = Token::new([7; 32]);
        assert_eq!(token.expose().len(), 47);
        let read = Token::parse(&format!(" {}\n", token.expose())).unwrap();
        assert_eq!(read.expose(), token.expose());
        assert!(read.hash().is(token.hash().as_str()) && !read.hash().is(Token::new([8; 32]).hash().as_str()));
        assert_eq!(format!("{token:?}"), "Token(..)");
        let short = &token.expose()[..46];
        let other = token.expose().replace("sft_", "sfx_");
        for bad in ["", "sft_", short, &other, &format!("{}A", token.expose()), &format!("{short}*")] {
            assert_eq!(Token::parse(bad).unwrap_err(), TokenError, "{bad}");
        }
    }

    #[test]
    fn the_whole_text_is_the_token_where_nothing_may_stand_around_it() {
        let token = Token::new([7; RANDOM_BYTES]);
        let text = token.expose();
        assert_eq!((text.len(), &text[..4]), (47, "sft_"));
        assert_eq!(Token::exact(text).unwrap().hash(), token.hash());
        assert_eq!(token.hash().as_str().len(), 64);
        assert!(!format!("{token:?}").contains(text));
        for bad in
            ["", "sft_", &text[4..], &text[..46], "sft_ab'; reboot; '", &format!("{text}A"), &format!("{text}\n")]
        {
            assert!(Token::exact(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_hash_is_that_of_the_text() {
        // Computed with sha256sum.
        let token = Token::parse("sft_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA").unwrap();
        assert_eq!(token.hash().as_str(), "33733acec750f3a32da39548a84b3f1150a32a777cd5711694ad3b904a126e2a");
    }
}
