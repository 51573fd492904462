//! What `kadmin` and `kinit` say, read. `kadmin` ends with code 0 whatever happened, so the words count; they are those of its error table, untranslated.
//!
//! A key is invalid only if the KDC said so in words that are known. All else, an outage first, says nothing about a key.

use crate::program::Said;
use crate::{KdcError, Presence};

/// Characters of an error that are kept.
const CHARACTERS_MAX: usize = 300;
/// `DISALLOW_ALL_TIX` among the attributes of a principal.
const DISALLOW_ALL_TIX: u32 = 0x40;

/// Nobody answered.
const UNREACHABLE: &[&str] = &[
    "Cannot contact any KDC",
    "Communication failure with server",
    "Cannot find KDC",
    "Cannot resolve",
    "Connection refused",
    "Connection timed out",
    "Connection reset",
    "Network is unreachable",
    "A service is not available",
];
/// The key is not that of the KDC.
const INVALID: &[&str] = &[
    "Password incorrect",
    "Preauthentication failed",
    "Decrypt integrity check failed",
    "Keytab contains no suitable keys",
];

/// The error in what a program said.
pub fn error(said: &Said) -> KdcError {
    // `No policy specified` and the like are no errors.
    let line = said.err.lines().rev().find(|line| line.contains(" while ") || line.contains(": "));
    let line = line.or_else(|| said.err.lines().next_back()).unwrap_or("it gave no reason").trim();
    let text: String = line.chars().filter(|c| !c.is_control()).take(CHARACTERS_MAX).collect();
    if UNREACHABLE.iter().any(|words| text.contains(words)) {
        KdcError::Unreachable(text)
    } else {
        KdcError::Refused(text)
    }
}

/// Answer to `getprinc -terse`.
pub fn presence(said: &Said) -> Result<Presence, KdcError> {
    if said.err.contains("Principal does not exist") {
        return Ok(Presence::Absent);
    }
    // Name, expiry, last password change, password expiry, longest life, modified by, modified at, attributes, key version.
    let line = said.out.lines().find(|line| line.starts_with('"'));
    let attributes = line.and_then(|line| line.split('\t').nth(7)?.parse::<u32>().ok());
    match attributes {
        Some(attributes) if attributes & DISALLOW_ALL_TIX != 0 => Ok(Presence::Disabled),
        Some(_) => Ok(Presence::Enabled),
        None => Err(error(said)),
    }
}

/// Answer to a command that says how it succeeded.
pub fn done(said: &Said, words: &str) -> Result<(), KdcError> {
    if said.out.contains(words) { Ok(()) } else { Err(error(said)) }
}

/// Answer to `addprinc`: somebody else may have been faster.
pub fn created(said: &Said) -> Result<(), KdcError> {
    if said.err.contains("already exists") { Ok(()) } else { done(said, "\" created.") }
}

/// Answer to `kinit`: whether the key is that of the KDC.
pub fn validity(said: &Said) -> Result<bool, KdcError> {
    if said.ok {
        Ok(true)
    } else if INVALID.iter().any(|words| said.err.contains(words)) {
        Ok(false)
    } else {
        Err(error(said))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(out: &str, err: &str) -> Said {
        Said { ok: false, out: out.to_owned(), err: err.to_owned() }
    }

    #[test]
    fn a_principal_is_absent_disabled_or_enabled() {
        let line = |attributes| {
            format!("Authenticating\n\"a@A\"\t0\t1\t0\t3600\t\"b@A\"\t1\t{attributes}\t4\t1\t\"[none]\"\t0\n")
        };
        assert_eq!(presence(&said(&line(0), "")), Ok(Presence::Enabled));
        assert_eq!(presence(&said(&line(64 + 128), "")), Ok(Presence::Disabled));
        let absent = "get_principal: Principal does not exist while retrieving \"a@A\".\n";
        assert_eq!(presence(&said("", absent)), Ok(Presence::Absent));
        let refused = "get_principal: Operation requires ``get'' privilege while retrieving \"a@A\".\n";
        assert!(matches!(presence(&said("", refused)), Err(KdcError::Refused(text)) if text.contains("privilege")));
    }

    #[test]
    fn only_a_kdc_that_says_so_makes_a_key_invalid() {
        let kinit = |text: &str| validity(&said("", &format!("kinit: {text} while getting initial credentials\n")));
        for text in ["Password incorrect", "Preauthentication failed", "Keytab contains no suitable keys for a@A"] {
            assert_eq!(kinit(text), Ok(false), "{text}");
        }
        for text in ["Cannot contact any KDC for realm 'A'", "Cannot find KDC for realm \"A\""] {
            assert!(matches!(kinit(text), Err(KdcError::Unreachable(_))), "{text}");
        }
        for text in [
            "Clock skew too great",
            "Client's credentials have been revoked",
            "Client 'a@A' not found in Kerberos database",
            "Password has expired",
            "KDC has no support for encryption type",
            "Something that nobody has heard of",
        ] {
            assert!(matches!(kinit(text), Err(KdcError::Refused(_))), "{text}");
        }
        assert_eq!(validity(&Said { ok: true, ..Said::default() }), Ok(true));
    }

    #[test]
    fn the_reason_is_told_and_not_what_stands_beside_it() {
        let err = "No policy specified for a@A; defaulting to no policy\nadd_principal: Operation requires ``add'' privilege while creating \"a@A\".\n";
        assert_eq!(
            created(&said("", err)),
            Err(KdcError::Refused(
                "add_principal: Operation requires ``add'' privilege while creating \"a@A\".".to_owned()
            ))
        );
        assert_eq!(
            created(&said("", "add_principal: Principal or policy already exists while creating \"a@A\".")),
            Ok(())
        );
        assert_eq!(created(&said("Principal \"a@A\" created.\n", "")), Ok(()));
    }
}
