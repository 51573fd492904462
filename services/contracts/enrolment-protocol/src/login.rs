//! The login of a cluster's repository, on its way from the service that hosts the repository to Identity, which gives it to the cluster that it enrols.
//!
//! It is sealed to the enrolment key, for one cluster: every subscriber sees it, and only Identity can open it. Who sealed it is not proven here; only the control plane may publish where
//! Identity reads it.
//!
//! ```text
//! version (1 byte) | length of the encapsulated key (2 bytes, big-endian) | encapsulated key | ciphertext of: length of the user (1 byte) | user | password
//! ```

use join_protocol::secret::{Secret, SecretBytes};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::VERSION;
use crate::identity::{IdentityKey, IdentityKeyPair};
use crate::message::{BYTES_MAX, MessageError};
use crate::seal::{Sealed, login_info, open, seal};

const NAME: &str = "login";

/// User and password with which a cluster reads its repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// User at the git server.
    pub username: String,
    /// Its password.
    pub password: SecretBytes,
}

const fn version() -> u8 {
    VERSION.to_be_bytes()[3]
}

impl Login {
    /// Seals it to the enrolment key. `randomness`: 32 bytes from a cryptographic source, for this call alone.
    ///
    /// # Errors
    /// The user has more than 255 bytes, or all of it is larger than a message may be.
    pub fn seal(&self, key: &IdentityKey, cluster: Uuid, randomness: [u8; 32]) -> Result<Vec<u8>, MessageError> {
        let field = |field, rule| MessageError::Field { message: NAME, field, rule };
        let length = u8::try_from(self.username.len()).map_err(|_| field("username", "has more than 255 bytes"))?;
        let parts = [&[length], self.username.as_bytes(), self.password.expose()];
        let plaintext = Zeroizing::new(parts.concat());
        let info = login_info(cluster, key.as_bytes());
        let sealed = seal(key.as_bytes(), &plaintext, &info, None, &Secret::new(randomness));
        let Sealed { encapsulated_key, ciphertext } = sealed.map_err(|_| MessageError::Sealed(NAME))?;
        let length = u16::try_from(encapsulated_key.len()).map_err(|_| MessageError::TooLarge(NAME))?;
        let bytes = [&[version()][..], &length.to_be_bytes(), &encapsulated_key, &ciphertext].concat();
        if bytes.len() > BYTES_MAX { Err(MessageError::TooLarge(NAME)) } else { Ok(bytes) }
    }
}

impl IdentityKeyPair {
    /// Opens the sealed login of a cluster's repository.
    ///
    /// # Errors
    /// It is malformed, or sealed to another key or for another cluster.
    pub fn open_login(&self, cluster: Uuid, sealed: &[u8]) -> Result<Login, MessageError> {
        let malformed = || MessageError::Malformed(NAME);
        if sealed.len() > BYTES_MAX {
            return Err(MessageError::TooLarge(NAME));
        }
        let (head, rest) = sealed.split_at_checked(3).ok_or_else(malformed)?;
        if head[0] != version() {
            return Err(MessageError::Version { message: NAME, version: head[0].into() });
        }
        let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
        let (encapsulated_key, ciphertext) = rest.split_at_checked(length).ok_or_else(malformed)?;
        let info = login_info(cluster, &self.key.public);
        let opened = open(&self.key, encapsulated_key, ciphertext, &info, None);
        let opened = opened.map_err(|_| MessageError::Sealed(NAME))?;
        let (length, rest) = opened.split_first().ok_or_else(malformed)?;
        let (username, password) = rest.split_at_checked((*length).into()).ok_or_else(malformed)?;
        let username = str::from_utf8(username).map_err(|_| malformed())?.to_owned();
        Ok(Login { username, password: SecretBytes::new(password.to_vec()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: Uuid = Uuid::from_u128(7);

    fn sealed(key_pair: &IdentityKeyPair) -> Vec<u8> {
        let login = Login { username: "flux".to_owned(), password: "hush".into() };
        login.seal(&key_pair.public(), CLUSTER, [9; 32]).unwrap()
    }

    #[test]
    fn it_opens_for_the_holder_of_the_key_and_for_its_cluster_alone() {
        let (identity, other) = (IdentityKeyPair::new([1; 32]), IdentityKeyPair::new([2; 32]));
        let sealed = sealed(&identity);
        let login = identity.open_login(CLUSTER, &sealed).unwrap();
        assert_eq!((login.username.as_str(), login.password.expose()), ("flux", &b"hush"[..]));
        assert!(!format!("{login:?}").contains("hush") && !sealed.windows(4).any(|bytes| bytes == b"hush"));
        assert_eq!(other.open_login(CLUSTER, &sealed), Err(MessageError::Sealed(NAME)));
        assert_eq!(identity.open_login(Uuid::from_u128(8), &sealed), Err(MessageError::Sealed(NAME)));
    }

    #[test]
    fn whatever_is_changed_or_cut_off_it_does_not_open() {
        let identity = IdentityKeyPair::new([1; 32]);
        let sealed = sealed(&identity);
        for end in 0..sealed.len() {
            assert!(identity.open_login(CLUSTER, &sealed[..end]).is_err(), "{end}");
        }
        for at in (0..sealed.len()).step_by(7) {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(identity.open_login(CLUSTER, &changed).is_err(), "{at}");
        }
        assert_eq!(identity.open_login(CLUSTER, &vec![1; BYTES_MAX + 1]), Err(MessageError::TooLarge(NAME)));
        let long = Login { username: "u".repeat(256), password: "p".into() };
        assert!(long.seal(&identity.public(), CLUSTER, [9; 32]).is_err());
    }
}
