//! A configuration value that is never shown.
//!
//! In `Debug` and serialised it is `[redacted]`, `Display` is absent; only [`ExposeSecret::expose_secret`] yields the text, so that a
//! search for that word finds every use. The memory is wiped on drop.

use secrecy::SecretString;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

pub use secrecy::ExposeSecret;

/// What a secret looks like wherever it is printed or serialised.
pub(crate) const REDACTED: &str = "[redacted]";

/// A password, token or key. The default is empty, which means "not set".
#[derive(Clone, Default)]
pub struct Secret(SecretString);

impl Secret {
    /// True if there is a secret.
    #[must_use]
    pub fn is_set(&self) -> bool {
        !self.0.expose_secret().is_empty()
    }
}

impl ExposeSecret<str> for Secret {
    fn expose_secret(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_set() { "Secret([redacted])" } else { "Secret(not set)" })
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = SecretString::deserialize(deserializer)?;
        if text.expose_secret() == REDACTED {
            return Err(D::Error::custom("is the placeholder [redacted]: set the secret itself"));
        }
        Ok(Self(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_redacted_in_debug_and_in_json() {
        let secret = Secret::from("hunter2");
        assert_eq!(format!("{secret:?} {:?}", Secret::default()), "Secret([redacted]) Secret(not set)");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"[redacted]\"");
        assert_eq!(secret.expose_secret(), "hunter2");
    }

    #[test]
    fn the_placeholder_is_refused_as_a_value() {
        assert_eq!(serde_json::from_str::<Secret>("\"x\"").unwrap().expose_secret(), "x");
        assert!(serde_json::from_str::<Secret>("\"[redacted]\"").is_err());
    }
}
