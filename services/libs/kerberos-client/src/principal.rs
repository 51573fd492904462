//! Names of principals. Only such characters are allowed as no program, shell or file of Kerberos gives a meaning to.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longest name in characters, with its realm.
const CHARACTERS_MAX: usize = 255;
/// What the names of trusts between realms begin with.
const TRUST: &str = "krbtgt/";

/// A principal with its realm, such as `nd1/Paint_Shop/Robot@ACME.EXAMPLE`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Principal(Arc<str>);

/// The rule that a name breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a principal: {rule}")]
pub struct PrincipalError {
    /// As given, cut if it is long.
    pub name: String,
    /// The rule.
    pub rule: &'static str,
}

impl Principal {
    /// The whole name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part after `@`.
    #[must_use]
    pub fn realm(&self) -> &str {
        self.0.rsplit_once('@').map_or("", |(_, realm)| realm)
    }

    /// Whether it stands for the trust between two realms (RFC 4120, 1.2). With the key of `krbtgt/B@A` the KDC of A makes tickets that the KDC of B takes. Both know the key.
    #[must_use]
    pub fn is_trust(&self) -> bool {
        self.0.starts_with(TRUST)
    }
}

impl FromStr for Principal {
    type Err = PrincipalError;

    fn from_str(name: &str) -> Result<Self, PrincipalError> {
        let broken = |rule| Err(PrincipalError { name: name.chars().take(CHARACTERS_MAX).collect(), rule });
        if name.len() > CHARACTERS_MAX {
            return broken("it has more than 255 characters");
        }
        let Some((path, realm)) = name.split_once('@') else {
            return broken("it must have the form name/cluster@REALM, with the realm");
        };
        if !is_word(realm) {
            return broken("its realm must consist of letters, digits, `_`, `.` and `-`, with a letter or digit first");
        }
        if !path.split('/').all(is_word) {
            return broken(
                "each part between `/` must consist of letters, digits, `_`, `.` and `-`, with a letter, digit or `_` first",
            );
        }
        // Another realm's name after `krbtgt/` is a trust; the own one is the key of all tickets.
        let is_trust = path.strip_prefix(TRUST).is_some_and(|other| other != realm && !other.contains('/'));
        if !is_trust && matches!(path.split('/').next(), Some("krbtgt" | "kadmin")) || path == "K/M" {
            return broken("it belongs to the KDC itself");
        }
        Ok(Self(Arc::from(name)))
    }
}

fn is_word(part: &str) -> bool {
    let first = part.chars().next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    first && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Principal {
    type Error = PrincipalError;

    fn try_from(name: String) -> Result<Self, PrincipalError> {
        name.parse()
    }
}

impl From<Principal> for String {
    fn from(principal: Principal) -> Self {
        principal.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_field_are_principals() {
        for name in ["op1flux/Paint_Shop@ACME.EXAMPLE", "nd1/Paint/Cell-3.a@A", "sv1warehouse@A.B"] {
            let principal: Principal = name.parse().unwrap();
            assert_eq!(principal.as_str(), name);
            assert_eq!(principal.realm(), name.split('@').nth(1).unwrap());
        }
    }

    #[test]
    fn a_trust_has_two_realms() {
        let is_trust = |name: &str| name.parse::<Principal>().map(|principal| principal.is_trust());
        assert_eq!(is_trust("krbtgt/B.EXAMPLE@A.EXAMPLE"), Ok(true));
        assert_eq!(is_trust("nd1/krbtgt@A"), Ok(false));
        for name in ["krbtgt@A", "krbtgt/A@A", "krbtgt/B/C@A", "krbtgt/-b@A"] {
            assert!(is_trust(name).is_err(), "{name}");
        }
    }

    #[test]
    fn what_a_program_could_read_as_something_else_is_refused() {
        for name in [
            "a",
            "@A",
            "a@",
            "a@b@c",
            "-randkey@A",
            "a/-x@A",
            "a//b@A",
            "a b@A",
            "a\"@A",
            "a\\@A",
            "a\n@A",
            "a;@A",
            "ä@A",
            "krbtgt/A@A",
            "kadmin/admin@A",
            "K/M@A",
        ] {
            assert!(name.parse::<Principal>().is_err(), "{name:?}");
        }
        assert!(format!("{}@A", "a".repeat(255)).parse::<Principal>().is_err());
    }
}
