//! The credential of a user who pushes, sealed on its way to the program that decides over the push. HPKE (RFC 9180) with X-Wing, as in enrolment.
//!
//! It is bound to one push into one repository: sealed again for another push, or looked at on the way, it is of no use.
//!
//! ```text
//! version (1 byte) | length of the encapsulated key (2 bytes, big-endian) | encapsulated key | ciphertext
//! ```

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use join_protocol::seal::{Binding, KeyPair, is_public_key, seal};
use join_protocol::secret::Secret;
use join_protocol::terms::Suite;
use join_protocol::transcript::{Hash, hash};
use uuid::Uuid;
use zeroize::Zeroizing;

const SUITE: Suite = Suite::XWing;
const VERSION: u8 = 1;

/// Largest credential. A token of an identity provider has some kilobytes.
const CREDENTIAL_BYTES_MAX: usize = 12 * 1024;

/// A sealed credential cannot be made, or cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// A text is not a public key.
    #[error("the key for credentials must be an X-Wing public key in base64url")]
    Key,
    /// It is longer than a credential can be.
    #[error("the credential has more than 12288 bytes")]
    TooLong,
    /// It is malformed, or sealed to another key or for another push.
    #[error("the credential cannot be opened: it was sealed to another key, or for another push")]
    Sealed,
}

/// The public key that credentials are sealed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialKey(Vec<u8>);

impl fmt::Display for CredentialKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_URL_SAFE_NO_PAD.encode(&self.0))
    }
}

impl FromStr for CredentialKey {
    type Err = CredentialError;

    fn from_str(text: &str) -> Result<Self, CredentialError> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.trim()).map_err(|_| CredentialError::Key)?;
        if is_public_key(SUITE, &bytes) { Ok(Self(bytes)) } else { Err(CredentialError::Key) }
    }
}

impl CredentialKey {
    /// Seals a credential for one push. `randomness`: 32 bytes from a cryptographic source, for this call alone.
    ///
    /// # Errors
    /// The credential is too long.
    pub fn seal(
        &self,
        (repository, push): (Uuid, Uuid),
        credential: &str,
        randomness: [u8; 32],
    ) -> Result<Vec<u8>, CredentialError> {
        if credential.len() > CREDENTIAL_BYTES_MAX {
            return Err(CredentialError::TooLong);
        }
        let info = info(repository, push, &self.0);
        let randomness = Secret::new(randomness).derive("git1 seal", &hash("git1/s", &[&info, credential.as_bytes()]));
        let sealed = seal(SUITE, &self.0, credential.as_bytes(), &binding(&info), randomness);
        let sealed = sealed.map_err(|_| CredentialError::Key)?;
        let length = u16::try_from(sealed.encapsulated_key.len()).map_err(|_| CredentialError::Key)?;
        Ok([&[VERSION][..], &length.to_be_bytes(), &sealed.encapsulated_key, &sealed.ciphertext].concat())
    }
}

/// The private key to it.
pub struct CredentialKeyPair(KeyPair);

impl fmt::Debug for CredentialKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialKeyPair(..)")
    }
}

impl CredentialKeyPair {
    /// Derived from `seed` alone: 32 bytes from a cryptographic source.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self(KeyPair::derive(SUITE, &Secret::new(seed)))
    }

    /// The public key to it.
    #[must_use]
    pub fn public(&self) -> CredentialKey {
        CredentialKey(self.0.public.clone())
    }

    /// Opens the credential of one push.
    ///
    /// # Errors
    /// [`CredentialError::Sealed`]
    pub fn open(&self, (repository, push): (Uuid, Uuid), sealed: &[u8]) -> Result<Zeroizing<String>, CredentialError> {
        let ([version, high, low], rest) = sealed.split_first_chunk().ok_or(CredentialError::Sealed)?;
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (encapsulated_key, ciphertext) = rest.split_at_checked(length).ok_or(CredentialError::Sealed)?;
        let info = info(repository, push, &self.0.public);
        let opened = self.0.open(encapsulated_key, ciphertext, &binding(&info));
        let opened = opened.ok().filter(|_| *version == VERSION).ok_or(CredentialError::Sealed)?;
        let text = str::from_utf8(&opened).map_err(|_| CredentialError::Sealed)?;
        Ok(Zeroizing::new(text.to_owned()))
    }
}

fn info(repository: Uuid, push: Uuid, key: &[u8]) -> Hash {
    hash("git1/c", &[repository.as_bytes(), push.as_bytes(), key])
}

const fn binding(info: &Hash) -> Binding<'_> {
    Binding { info: *info, additional_data: *info, psk: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPOSITORY: Uuid = Uuid::from_u128(7);
    const PUSH: Uuid = Uuid::from_u128(8);

    #[test]
    fn it_opens_for_the_holder_of_the_key_and_for_its_push_alone() {
        let (pair, other) = (CredentialKeyPair::new([1; 32]), CredentialKeyPair::new([2; 32]));
        let key: CredentialKey = pair.public().to_string().parse().unwrap();
        let sealed = key.seal((REPOSITORY, PUSH), "hush", [9; 32]).unwrap();
        assert_eq!(pair.open((REPOSITORY, PUSH), &sealed).unwrap().as_str(), "hush");
        assert!(!sealed.windows(4).any(|bytes| bytes == b"hush"));
        assert_eq!(other.open((REPOSITORY, PUSH), &sealed), Err(CredentialError::Sealed));
        assert_eq!(pair.open((REPOSITORY, REPOSITORY), &sealed), Err(CredentialError::Sealed));
        assert_eq!(pair.open((PUSH, PUSH), &sealed), Err(CredentialError::Sealed));
        assert_eq!(key.seal((REPOSITORY, PUSH), &"x".repeat(20_000), [9; 32]), Err(CredentialError::TooLong));
        assert_eq!("x".parse::<CredentialKey>(), Err(CredentialError::Key));
    }

    #[test]
    fn whatever_is_changed_or_cut_off_it_does_not_open() {
        let pair = CredentialKeyPair::new([1; 32]);
        let sealed = pair.public().seal((REPOSITORY, PUSH), "hush", [9; 32]).unwrap();
        for end in 0..sealed.len() {
            assert!(pair.open((REPOSITORY, PUSH), &sealed[..end]).is_err(), "{end}");
        }
        for at in (0..sealed.len()).step_by(7) {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(pair.open((REPOSITORY, PUSH), &changed).is_err(), "{at}");
        }
    }
}
