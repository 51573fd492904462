//! A password that can be configured and used, but not printed.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A password that is never shown: `[redacted]` in `Debug` and when serialised, empty means not set.
#[derive(Clone, Default)]
pub struct Password(SecretString);

/// What a password looks like wherever it is printed or serialised; the configuration loader of the services knows secrets by it.
pub(crate) const REDACTED: &str = "[redacted]";

impl Password {
    /// Whether there is one.
    #[must_use]
    pub fn is_set(&self) -> bool {
        !self.0.expose_secret().is_empty()
    }

    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<&str> for Password {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_set() { "Password([redacted])" } else { "Password(not set)" })
    }
}

impl Serialize for Password {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

impl<'de> Deserialize<'de> for Password {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = SecretString::deserialize(deserializer)?;
        if text.expose_secret() == REDACTED {
            return Err(serde::de::Error::custom("is the placeholder [redacted]: set the password itself"));
        }
        Ok(Self(text))
    }
}
