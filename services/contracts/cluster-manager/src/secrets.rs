//! The sealed secrets that are in a cluster's repository: names only.

use std::collections::BTreeMap;

use configdb_schema::document::SealingScope;
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::Error as ValueError;
use sparkplug::metric::DataSet;
use sparkplug::typed::Form;
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSecret {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// What its values are bound to.
    pub scope: SealingScope,
    /// Type of the Secret, such as `Opaque`.
    pub secret_type: String,
    /// Its keys.
    pub keys: BTreeMap<String, StoredKey>,
}

/// A key of a secret in a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredKey {
    /// SHA-256 fingerprint of the certificate that it is sealed for, hexadecimal; None: not recorded.
    pub sealed_for: Option<String>,
    /// As in [`configdb_schema::document::SealedValue::at`]; None: it did not come from ConfigDB.
    pub at: Option<String>,
}

/// The secrets in a repository, by namespace and name, bounded on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSecrets(pub Vec<StoredSecret>);

impl StoredSecrets {
    /// Largest table, in bytes of its texts, so that a Device fits into a message whatever is in the repository.
    pub const BYTES_MAX: usize = 64 * 1024;

    /// As many of these as fit, and how many do not. None: there are none.
    #[must_use]
    pub fn bounded(secrets: Vec<StoredSecret>) -> (Option<Self>, usize) {
        let mut bytes = 0;
        let fits = |secret: &&StoredSecret| {
            bytes += secret
                .rows()
                .iter()
                .flatten()
                .map(|cell| CELL_BYTES + cell.as_ref().map_or(0, String::len))
                .sum::<usize>();
            bytes < Self::BYTES_MAX
        };
        let fitting = secrets.iter().take_while(fits).count();
        let left_out = secrets.len() - fitting;
        let mut secrets = secrets;
        secrets.truncate(fitting);
        ((!secrets.is_empty()).then_some(Self(secrets)), left_out)
    }
}

/// What the encoding adds to the text of a cell, at most.
const CELL_BYTES: usize = 6;

/// Columns of the table, all of them Strings: a row for each key, and one with a null key for a secret without keys.
const COLUMNS: [&str; 7] = ["Namespace", "Secret", "Scope", "Type", "Key", "Sealed_For", "Written_At"];

type Row = [Option<String>; COLUMNS.len()];

impl StoredSecret {
    fn rows(&self) -> Vec<Row> {
        let row = |key: Option<&String>, stored: &StoredKey| {
            let [namespace, name, secret_type] =
                [&self.namespace, &self.name, &self.secret_type].map(|text| Some(text.clone()));
            let scope = Some(self.scope.to_string());
            [namespace, name, scope, secret_type, key.cloned(), stored.sealed_for.clone(), stored.at.clone()]
        };
        if self.keys.is_empty() {
            return vec![row(None, &StoredKey::default())];
        }
        self.keys.iter().map(|(key, stored)| row(Some(key), stored)).collect()
    }
}

/// The secrets as a DataSet; None is one without rows.
#[derive(Debug)]
pub(crate) struct SecretTable;

impl Form<Option<StoredSecrets>> for SecretTable {
    const DATATYPE: DataType = DataType::DataSet;

    fn write(field: &Option<StoredSecrets>) -> Option<Value> {
        let rows = field.iter().flat_map(|stored| &stored.0).flat_map(StoredSecret::rows);
        let empty = DataSet::new(COLUMNS.map(|column| (column, DataType::String)));
        let table = rows.fold(empty, |table, row| table.with_row(row.map(|cell| cell.map(Value::from))));
        Some(table.into())
    }

    fn read(value: Option<&Value>) -> Result<Option<StoredSecrets>, String> {
        let table = match value {
            None => return Ok(None),
            Some(Value::DataSet(table)) => table,
            Some(_) => return Err("must be a DataSet".to_owned()),
        };
        let mut places = [0; COLUMNS.len()];
        for (place, name) in places.iter_mut().zip(COLUMNS) {
            let found = table.columns.iter().position(|(column, _)| &**column == name);
            *place = found.ok_or_else(|| format!("has no column {name}"))?;
        }
        let mut secrets: Vec<StoredSecret> = Vec::new();
        for cells in &table.rows {
            let row = places.map(|place| cells.get(place).and_then(Option::as_ref).and_then(Value::as_str));
            let [Some(namespace), Some(name), Some(scope), Some(secret_type), key, sealed_for, at] = row else {
                return Err(format!("has a row without {}", COLUMNS[..4].join(", ")));
            };
            let [sealed_for, at] = [sealed_for, at].map(|text| text.map(str::to_owned));
            let key = key.map(|key| (key.to_owned(), StoredKey { sealed_for, at }));
            match secrets.last_mut().filter(|last| last.namespace == namespace && last.name == name) {
                Some(last) => last.keys.extend(key),
                None => secrets.push(StoredSecret {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    scope: SealingScope::deserialize(scope.into_deserializer())
                        .map_err(|error: ValueError| format!("column Scope: {error}"))?,
                    secret_type: secret_type.to_owned(),
                    keys: key.into_iter().collect(),
                }),
            }
        }
        Ok((!secrets.is_empty()).then_some(StoredSecrets(secrets)))
    }
}

#[cfg(test)]
mod tests {
    use sparkplug::Metric;
    use sparkplug::payload::{EncodeOptions, Payload, encode};

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
        let written = SecretTable::write(&Some(stored.clone()));
        let birth = Payload { metrics: vec![Metric::new("t", written.clone().unwrap())], ..Payload::default() };
        let bytes = encode(&birth, &EncodeOptions::new(sparkplug::payload::Form::Birth)).len();
        assert!(bytes <= StoredSecrets::BYTES_MAX && stored.0.len() > 200, "{} in {bytes} bytes", stored.0.len());
        assert_eq!((stored.0.len() + left_out, &stored.0[..]), (1_000, &all[..stored.0.len()]));
        assert_eq!(SecretTable::read(written.as_ref()), Ok(Some(stored)));
        assert_eq!(StoredSecrets::bounded(Vec::new()), (None, 0));
    }

    #[test]
    fn secrets_of_one_name_in_two_namespaces_and_without_keys_survive_the_wire() {
        let mut all = vec![secret("a".to_owned()), secret("b".to_owned()), secret("b".to_owned())];
        all[0].keys.insert("user".to_owned(), StoredKey::default());
        all[1].keys.clear();
        all[2].namespace = "other".to_owned();
        let stored = Some(StoredSecrets(all));
        assert_eq!(SecretTable::read(SecretTable::write(&stored).as_ref()), Ok(stored));
        assert_eq!(SecretTable::read(SecretTable::write(&None).as_ref()), Ok(None));
        assert_eq!(SecretTable::read(None), Ok(None));
    }

    #[test]
    fn what_is_not_a_table_of_secrets_is_refused() {
        let table = |columns: &[&str], row: &[Option<&str>]| {
            let empty = DataSet::new(columns.iter().map(|column| (*column, DataType::String)));
            Value::from(empty.with_row(row.iter().map(|cell| cell.map(Value::from))))
        };
        let row = [Some("n"), Some("s"), Some("strict"), Some("Opaque"), None, None, None];
        assert!(SecretTable::read(Some(&table(&COLUMNS, &row))).is_ok());
        let [mut without_name, mut of_no_scope] = [row, row];
        (without_name[1], of_no_scope[2]) = (None, Some("wide"));
        let wrong = [
            ("must be a DataSet", Value::from("[]")),
            ("has no column Secret", table(&["Namespace"], &[Some("n")])),
            ("has a row without Namespace, Secret, Scope, Type", table(&COLUMNS, &without_name)),
            ("column Scope: unknown variant", table(&COLUMNS, &of_no_scope)),
        ];
        for (rule, value) in wrong {
            let refused = SecretTable::read(Some(&value)).unwrap_err();
            assert!(refused.starts_with(rule), "{refused}");
        }
    }
}
