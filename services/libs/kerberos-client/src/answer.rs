//! What `kadmin` and `kinit` say, read. `kadmin` ends with code 0 whatever happened, so the words count; they are those of its error table, untranslated.
//!
//! A key is invalid only if the KDC said so in words that are known. All else, an outage first, says nothing about a key.

use crate::program::Said;
use crate::{KdcError, KeyInfo, Presence};

/// Characters of an error that are kept.
const CHARACTERS_MAX: usize = 300;
/// `DISALLOW_ALL_TIX` among the attributes of a principal.
const DISALLOW_ALL_TIX: u32 = 0x40;

/// No one answered.
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
pub(crate) fn error(said: &Said) -> KdcError {
    // `No policy specified` and the like are not errors.
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
pub(crate) fn presence(said: &Said) -> Result<Presence, KdcError> {
    if said.err.contains("Principal does not exist") {
        return Ok(Presence::Absent);
    }
    match fields(said).and_then(|fields| fields.get(7)?.parse::<u32>().ok()) {
        Some(attributes) if attributes & DISALLOW_ALL_TIX != 0 => Ok(Presence::Disabled),
        Some(_) => Ok(Presence::Enabled),
        None => Err(error(said)),
    }
}

/// Fields of the line in the answer to `getprinc -terse`. There are sixteen of the principal, and then four of each key.
///
/// 1. name, expiry, last change of the keys, password expiry
/// 2. longest life, modified by, modified at, attributes
/// 3. key version, version of the master key, policy, longest renewable life
/// 4. last success, last failure, failures, number of keys
/// 5. of each key: form, version, encryption type, kind of salt
fn fields(said: &Said) -> Option<Vec<&str>> {
    Some(said.out.lines().find(|line| line.starts_with('"'))?.split('\t').collect())
}

/// Answer to `getprinc -terse`.
pub(crate) fn key_info(said: &Said) -> Result<KeyInfo, KdcError> {
    let fields = fields(said).ok_or_else(|| error(said))?;
    let info = |fields: &[&str]| {
        let number: usize = fields.get(15)?.parse().ok()?;
        let keys = fields
            .get(16..)?
            .chunks_exact(4)
            .map(|key| Some((key[1].parse::<u32>().ok()?, key[2].parse::<i32>().ok()?, key[3] == "0")));
        let keys = keys.collect::<Option<Vec<_>>>().filter(|keys| keys.len() == number)?;
        Some(KeyInfo { version: fields.get(8)?.parse().ok()?, changed_s: fields.get(2)?.parse().ok()?, keys })
    };
    info(&fields).ok_or_else(|| KdcError::Refused("what it says of the keys of a principal is not readable".to_owned()))
}

/// Answer to a command that says how it succeeded.
pub(crate) fn done(said: &Said, words: &str) -> Result<(), KdcError> {
    if said.out.contains(words) { Ok(()) } else { Err(error(said)) }
}

/// Answer to `addprinc`: someone else may have been faster.
pub(crate) fn created(said: &Said) -> Result<(), KdcError> {
    if said.err.contains("already exists") { Ok(()) } else { done(said, "\" created.") }
}

/// Answer to `kinit`: whether the key is that of the KDC.
pub(crate) fn validity(said: &Said) -> Result<bool, KdcError> {
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
    fn the_keys_of_a_principal_are_read() {
        let line = |keys: &str| {
            said(
                &format!(
                    "Authenticating\n\"krbtgt/B@A\"\t0\t99\t0\t86400\t\"b@A\"\t98\t0\t7\t1\t\"[none]\"\t0\t0\t0\t0\t{keys}\n"
                ),
                "",
            )
        };
        let info = key_info(&line("2\t1\t7\t18\t0\t1\t7\t23\t0")).unwrap();
        assert_eq!(info, KeyInfo { version: 7, changed_s: 99, keys: vec![(7, 18, true), (7, 23, true)] });
        let types = ["aes256-cts", "aes128-cts"].map(|name| name.parse().unwrap());
        assert_eq!(info.types(), [types[0]], "the other one is deprecated");
        assert!(!info.is_exactly(7, &types[..1]), "there is one more");
        let info = key_info(&line("2\t1\t7\t18\t0\t1\t7\t17\t0")).unwrap();
        assert!(info.is_exactly(7, &types) && !info.is_exactly(6, &types) && !info.is_exactly(7, &types[..1]));
        let info = key_info(&line("3\t1\t7\t18\t0\t1\t7\t17\t0\t1\t6\t17\t0")).unwrap();
        assert!(!info.is_exactly(7, &types), "an old key is there, too");
        let info = key_info(&line("1\t2\t7\t18\t4")).unwrap();
        assert!(!info.is_exactly(7, &types[..1]), "with a salt of its own");
        for keys in ["2\t1\t7\t18\t0", "x", ""] {
            assert!(matches!(key_info(&line(keys)), Err(KdcError::Refused(_))), "{keys}");
        }
        let absent = said("", "get_principal: Principal does not exist while retrieving \"a@A\".\n");
        assert!(matches!(key_info(&absent), Err(KdcError::Refused(text)) if text.contains("does not exist")));
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
            "Something unheard of",
        ] {
            assert!(matches!(kinit(text), Err(KdcError::Refused(_))), "{text}");
        }
        assert_eq!(validity(&Said { ok: true, ..Said::default() }), Ok(true));
    }

    #[test]
    fn the_reason_is_reported_and_not_what_stands_beside_it() {
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
