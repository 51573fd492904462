//! Encryption types of keys, by the names that MIT Kerberos has for them. Those that RFC 8429 and MIT Kerberos call deprecated are left out: no key is made of them.

use std::fmt;
use std::str::FromStr;

/// Number in the registry of Kerberos (RFC 3961, 8009, 6803), name, and the short names that `kadmin` takes, too.
const TYPES: [(i32, &str, &[&str]); 6] = [
    (17, "aes128-cts-hmac-sha1-96", &["aes128-cts", "aes128-sha1"]),
    (18, "aes256-cts-hmac-sha1-96", &["aes256-cts", "aes256-sha1"]),
    (19, "aes128-cts-hmac-sha256-128", &["aes128-sha2"]),
    (20, "aes256-cts-hmac-sha384-192", &["aes256-sha2"]),
    (25, "camellia128-cts-cmac", &["camellia128-cts"]),
    (26, "camellia256-cts-cmac", &["camellia256-cts"]),
];

/// How a key encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EncryptionType(usize);

/// No name of an encryption type that is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be one of aes256-cts-hmac-sha1-96, aes128-cts-hmac-sha1-96, aes256-cts-hmac-sha384-192, aes128-cts-hmac-sha256-128, camellia256-cts-cmac and camellia128-cts-cmac"
)]
pub struct EncryptionTypeError;

impl EncryptionType {
    /// By its number. None: there is no such type, or it is deprecated.
    #[must_use]
    pub fn of_number(number: i32) -> Option<Self> {
        TYPES.iter().position(|(known, ..)| *known == number).map(Self)
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> i32 {
        TYPES[self.0].0
    }
}

impl FromStr for EncryptionType {
    type Err = EncryptionTypeError;

    fn from_str(name: &str) -> Result<Self, EncryptionTypeError> {
        let position = TYPES.iter().position(|(_, long, short)| *long == name || short.contains(&name));
        position.map(Self).ok_or(EncryptionTypeError)
    }
}

impl fmt::Display for EncryptionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TYPES[self.0].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_known_by_number_and_names() {
        for (number, long, short) in TYPES {
            let known = EncryptionType::of_number(number).unwrap();
            assert_eq!((known.number(), known.to_string()), (number, long.to_owned()));
            assert!(short.iter().chain(&[long]).all(|name| name.parse() == Ok(known)), "{long}");
        }
    }

    #[test]
    fn what_is_deprecated_or_unknown_is_not_a_type() {
        for name in ["arcfour-hmac", "des3-cbc-sha1", "AES256-CTS", "aes256-cts:normal", ""] {
            let error = name.parse::<EncryptionType>().unwrap_err().to_string();
            assert!(TYPES.iter().all(|(_, long, _)| error.contains(long)), "{error}");
        }
        assert_eq!([0, 16, 23].map(EncryptionType::of_number), [None; 3]);
    }
}
