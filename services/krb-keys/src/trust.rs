//! Keys of trusts between realms, as a Secret has them: JSON `{"password", "kvno", "etypes"}`, the form of Factory+. Both realms make the same keys of it.

use kerberos_client::{EncryptionType, KdcError, check_password};
use serde_json::{Value, json};
use zeroize::Zeroizing;

/// Encryption types of one key; a bound for what a Secret can make us ask for.
const TYPES_MAX: usize = 16;
/// Kind of salt that may follow an encryption type: principal and realm.
const NORMAL_SALT: &str = ":normal";

/// What both realms make their keys of.
#[derive(Clone)]
pub struct TrustKey {
    pub password: Zeroizing<String>,
    /// Version of the keys (`kvno`).
    pub version: u16,
    /// Encryption types (`etypes`), in the order in which the KDC gets them.
    pub types: Vec<EncryptionType>,
}

impl std::fmt::Debug for TrustKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("TrustKey");
        shown.field("version", &self.version).field("types", &self.types).finish_non_exhaustive()
    }
}

/// The rule that a Secret's value breaks. Nothing of the value is shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustKeyError {
    #[error("the value must be JSON {{\"password\", \"kvno\", \"etypes\"}}")]
    Form,
    /// `password`
    #[error("password must be a text that can be sent to the KDC: 1 to 512 bytes, one line")]
    Password,
    /// `kvno`
    #[error("kvno must be a number from 1 to 65535")]
    Version,
    /// `etypes`
    #[error("etypes must be a list of 1 to {TYPES_MAX} encryption types")]
    Types,
    /// One of `etypes`
    #[error("etypes[{position}] {rule}, alone or with {NORMAL_SALT} behind it")]
    Type { position: usize, rule: kerberos_client::EncryptionTypeError },
}

impl TrustKey {
    /// Reads the value of a Secret. Fields that it does not know are left alone.
    ///
    /// # Errors
    /// [`TrustKeyError`]
    pub fn parse(value: &[u8]) -> Result<Self, TrustKeyError> {
        let Ok(Value::Object(mut fields)) = serde_json::from_slice(value) else { return Err(TrustKeyError::Form) };
        let Some(Value::String(password)) = fields.remove("password") else { return Err(TrustKeyError::Password) };
        let password = Zeroizing::new(password);
        check_password(password.as_bytes()).map_err(|_: KdcError| TrustKeyError::Password)?;
        let version = fields.get("kvno").and_then(Value::as_u64).and_then(|version| u16::try_from(version).ok());
        let version = version.filter(|version| *version > 0).ok_or(TrustKeyError::Version)?;
        let names = fields.get("etypes").and_then(Value::as_array).ok_or(TrustKeyError::Types)?;
        if names.is_empty() || names.len() > TYPES_MAX {
            return Err(TrustKeyError::Types);
        }
        let mut types = Vec::new();
        for (position, name) in names.iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            let name = name.strip_suffix(NORMAL_SALT).unwrap_or(name);
            let one = name.parse().map_err(|rule| TrustKeyError::Type { position, rule })?;
            if !types.contains(&one) {
                types.push(one);
            }
        }
        Ok(Self { password, version, types })
    }

    /// The value of a Secret.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let types: Vec<String> = self.types.iter().map(|one| format!("{one}{NORMAL_SALT}")).collect();
        let value = json!({ "password": *self.password, "kvno": self.version, "etypes": types });
        Zeroizing::new(value.to_string().into_bytes())
    }
}

/// The version that follows; after the last there is the first again.
#[must_use]
pub(crate) fn next_version(version: u32) -> u16 {
    u16::try_from(version).ok().and_then(|version| version.checked_add(1)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_is_read_and_written() {
        let text = br#"{"password":"pw \"x\"","kvno":3,"etypes":["aes256-cts-hmac-sha1-96:normal","aes128-cts","aes128-cts"],"more":1}"#;
        let key = TrustKey::parse(text).unwrap();
        assert_eq!((key.password.as_str(), key.version), ("pw \"x\"", 3));
        let types = ["aes256-cts-hmac-sha1-96", "aes128-cts-hmac-sha1-96"].map(|name| name.parse().unwrap());
        assert_eq!(key.types, types, "each once");
        let again = TrustKey::parse(&key.to_bytes()).unwrap();
        assert_eq!((again.password, again.version, again.types), (key.password.clone(), 3, key.types.clone()));
        assert!(!format!("{key:?}").contains("pw"), "{key:?}");
    }

    #[test]
    fn a_value_that_breaks_a_rule_is_refused_by_field_and_not_shown() {
        let key = |password: Value, kvno: Value, etypes: Value| {
            json!({ "password": password, "kvno": kvno, "etypes": etypes }).to_string()
        };
        let aes = json!(["aes256-cts"]);
        let table = [
            ("hunter2".to_owned(), "must be JSON"),
            ("[\"hunter2\"]".to_owned(), "must be JSON"),
            (r#"{"kvno":1,"etypes":["aes256-cts"],"pw":"hunter2"}"#.to_owned(), "password must"),
            (key(json!(""), json!(1), aes.clone()), "password must"),
            (key(json!("hunter2\n"), json!(1), aes.clone()), "password must"),
            (key(json!("hunter2".repeat(74)), json!(1), aes.clone()), "password must"),
            (key(json!("hunter2"), json!(0), aes.clone()), "kvno must"),
            (key(json!("hunter2"), json!(65_536), aes.clone()), "kvno must"),
            (key(json!("hunter2"), json!("1"), aes.clone()), "kvno must"),
            (key(json!("hunter2"), Value::Null, aes), "kvno must"),
            (key(json!("hunter2"), json!(1), json!([])), "etypes must"),
            (key(json!("hunter2"), json!(1), json!(vec!["aes256-cts"; 17])), "etypes must"),
            (key(json!("hunter2"), json!(1), json!("aes256-cts")), "etypes must"),
            (key(json!("hunter2"), json!(1), json!(["aes256-cts", "hunter2"])), "etypes[1] must be one of aes256-cts"),
            (key(json!("hunter2"), json!(1), json!(["aes256-cts:afs3"])), "etypes[0] must"),
            (key(json!("hunter2"), json!(1), json!([18])), "etypes[0] must"),
        ];
        for (text, part) in table {
            let error = TrustKey::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("hunter2"), "{error} should say {part}");
        }
    }

    #[test]
    fn the_next_version_is_one_that_a_kdc_has() {
        assert_eq!([0, 1, 65_534, 65_535, u32::MAX].map(next_version), [1, 2, 65_535, 1, 1]);
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = TrustKey::parse(&bytes);
        }
    }
}
