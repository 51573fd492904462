//! The sealed secrets that are in a cluster's repository: names only.

use std::collections::BTreeMap;

use configdb_schema::document::SealingScope;
use serde::{Deserialize, Serialize};
use sparkplug::typed::MetricValue;
use sparkplug::{DataType, Value};

/// What a Device says of a cluster's secrets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecretsReport {
    /// The secrets in the repository; None: it has none, or is not read yet.
    pub stored: Option<StoredSecrets>,
    /// What of the secrets that ConfigDB has is not in the repository, and why; None: nothing.
    pub reason: Option<String>,
}

/// A secret in a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSecret {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// What its values are bound to.
    pub scope: SealingScope,
    /// Type of the Secret, such as `Opaque`.
    #[serde(rename = "type")]
    pub secret_type: String,
    /// Its keys.
    pub keys: BTreeMap<String, StoredKey>,
}

/// A key of a secret in a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StoredKey {
    /// SHA-256 fingerprint of the certificate that it is sealed for, hexadecimal; None: not recorded.
    #[serde(default, rename = "sealedFor", skip_serializing_if = "Option::is_none")]
    pub sealed_for: Option<String>,
    /// As in [`configdb_schema::document::SealedValue::at`]; None: it did not come from ConfigDB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// The secrets in a repository, by namespace and name, bounded on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSecrets(pub Vec<StoredSecret>);

impl StoredSecrets {
    /// Largest text, so that a Device fits into a message whatever is in the repository.
    pub const BYTES_MAX: usize = 64 * 1024;

    /// As many of these as fit, and how many do not. None: there are none.
    #[must_use]
    pub fn bounded(secrets: Vec<StoredSecret>) -> (Option<Self>, usize) {
        let mut bytes = 0;
        let fits = |secret: &&StoredSecret| {
            // 1: the comma.
            bytes += 1 + serde_json::to_string(secret).map_or(0, |text| text.len());
            bytes < Self::BYTES_MAX
        };
        let fitting = secrets.iter().take_while(fits).count();
        let left_out = secrets.len() - fitting;
        let mut secrets = secrets;
        secrets.truncate(fitting);
        ((!secrets.is_empty()).then_some(Self(secrets)), left_out)
    }
}

impl MetricValue for StoredSecrets {
    const DATATYPE: DataType = DataType::String;

    fn to_value(&self) -> Option<Value> {
        serde_json::to_string(&self.0).ok().map(|text| Value::String(text.into()))
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        let text = value.as_str().ok_or("must be a String")?;
        serde_json::from_str(text).map(Self).map_err(|error| format!("must be JSON of secrets: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: String) -> StoredSecret {
        let key = StoredKey { sealed_for: Some("ab".repeat(32)), at: Some("2027-01-15T08:00:00.000Z".to_owned()) };
        StoredSecret {
            namespace: "fplus-edge".to_owned(),
            name,
            scope: SealingScope::NamespaceWide,
            secret_type: "Opaque".to_owned(),
            keys: [("password".to_owned(), key)].into(),
        }
    }

    #[test]
    fn what_does_not_fit_into_a_message_is_counted() {
        let all: Vec<_> = (0..1_000).map(|n| secret(format!("login-{n:04}"))).collect();
        let (stored, left_out) = StoredSecrets::bounded(all.clone());
        let stored = stored.unwrap();
        let Some(Value::String(text)) = stored.to_value() else { panic!("a text") };
        assert!(text.len() <= StoredSecrets::BYTES_MAX && stored.0.len() > 200, "{}", stored.0.len());
        assert_eq!((stored.0.len() + left_out, &stored.0[..]), (1_000, &all[..stored.0.len()]));
        assert_eq!(StoredSecrets::from_value(&stored.to_value().unwrap()), Ok(stored));
        assert_eq!(StoredSecrets::bounded(Vec::new()), (None, 0));
    }

    #[test]
    fn what_is_not_a_list_of_secrets_is_refused() {
        for bad in ["", "{}", "[{}]", r#"[{"namespace":"a"}]"#] {
            assert!(StoredSecrets::from_value(&Value::String(bad.into())).is_err(), "{bad}");
        }
    }
}
