//! Sealed secrets in a cluster's repository: one file for each Secret, `edo/secrets/<namespace>/<name>.yaml`, with a SealedSecret object of one or more keys.
//!
//! What ConfigDB has of a Secret is brought into its file key by key; keys of the file that ConfigDB does not name stay. A key is written only over an older one: annotations say when
//! each was decided, and for which certificate it was sealed. So a ConfigDB that was restored from a backup takes nothing back.
//! Pure; this module must not know git, nor any value.

use std::collections::BTreeMap;

use cluster_manager_contract::{StoredKey, StoredSecret};
use configdb_schema::document::{SealedSecret, SealedValue, SealingScope};
use sealed_secrets::{ManifestError, Request, annotation, check_key, check_names, sealed_object};
use serde_json::{Map, Value};

/// Directory in the repository of a cluster.
pub const DIRECTORY: &str = "edo/secrets";

/// Annotation of a SealedSecret: JSON, from each key to the SHA-256 fingerprint of the certificate that it was sealed for.
const SEALED_FOR: &str = "sparkfleet.io/sealed-for";

/// Annotation of a SealedSecret: JSON, from each key to when it was decided.
const SEALED_AT: &str = "sparkfleet.io/sealed-at";

/// Largest file; Kubernetes takes objects of some 1.5 MiB.
pub const FILE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Why what ConfigDB has of a Secret is not in the repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretFault {
    /// A name cannot be part of a path or manifest.
    #[error(transparent)]
    Name(#[from] ManifestError),
    /// The Secret is there with another scope or type, which all its keys share.
    #[error(
        "{secret} is in the repository with {field} {stored}, not {wanted}, and has keys that ConfigDB does not have; all its keys share it: delete them first"
    )]
    Differs {
        /// `namespace/name`.
        secret: String,
        /// `scope` or `type`.
        field: &'static str,
        /// As it is.
        stored: String,
        /// As it is wanted.
        wanted: String,
    },
    /// The file is not one of ours.
    #[error("{path} in the repository is not a SealedSecret of that name: {reason}")]
    Foreign {
        /// The file.
        path: String,
        /// Why not.
        reason: String,
    },
    /// A Secret cannot hold so much.
    #[error("{path} would be larger than {FILE_BYTES_MAX} bytes")]
    TooLarge {
        /// The file.
        path: String,
    },
    /// The repository has later values.
    #[error(
        "the repository has later values of {secret} ({}) than ConfigDB, which comes from a backup: put them again to replace them",
        keys.join(", ")
    )]
    Later {
        /// `namespace/name`.
        secret: String,
        /// The keys.
        keys: Vec<String>,
    },
}

/// A file as it shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedFile {
    /// Its content; None: it shall not be there.
    pub content: Option<Vec<u8>>,
    /// What of the Secret is not in it.
    pub fault: Option<SecretFault>,
}

/// The file of a Secret, below [`DIRECTORY`].
///
/// # Errors
/// A name cannot be part of a path.
pub fn path(secret: &SealedSecret) -> Result<String, SecretFault> {
    check_names(&secret.namespace, &secret.name)?;
    Ok(format!("{}/{}.yaml", secret.namespace, secret.name))
}

/// Commit message; it names what is changed.
#[must_use]
pub fn message(secret: &SealedSecret) -> String {
    format!("Secret {}/{}", secret.namespace, secret.name)
}

/// The file of a Secret after what ConfigDB has of it was brought into it, given the file before.
///
/// # Errors
/// Nothing is to be changed then.
pub fn bring(secret: &SealedSecret, before: Option<&[u8]>) -> Result<WantedFile, SecretFault> {
    let path = path(secret)?;
    secret.keys.keys().try_for_each(|key| check_key(key))?;
    let name = || format!("{}/{}", secret.namespace, secret.name);
    let object = before.map(|bytes| object(&path, (&secret.namespace, &secret.name), bytes)).transpose()?;
    let mut keys = object.as_ref().map(Keys::read).unwrap_or_default();
    let is_later = |(key, value): &(&String, &SealedValue)| keys.at.get(*key).is_some_and(|at| *at > value.at);
    let (later, wanted): (Vec<_>, Vec<_>) = secret.keys.iter().partition(is_later);
    let later: Vec<String> = later.into_iter().map(|(key, _)| key.clone()).collect();
    let fault = (!later.is_empty()).then(|| SecretFault::Later { secret: name(), keys: later });
    let puts = wanted.iter().any(|(_, value)| value.value.is_some());
    for (key, value) in &wanted {
        keys.bring(key, value);
    }
    let left = keys.data.keys().any(|key| !wanted.iter().any(|(wanted, _)| *wanted == key));
    let (mut scope, mut secret_type) = (secret.scope, secret.secret_type.clone());
    if let Some(object) = object.as_ref().filter(|_| left || !puts) {
        let (stored_scope, stored_type) = (self::scope(object), self::secret_type(object));
        if puts {
            let differs = |field, stored: String, wanted: String| {
                if stored == wanted {
                    Ok(())
                } else {
                    Err(SecretFault::Differs { secret: name(), field, stored, wanted })
                }
            };
            differs("scope", stored_scope.to_string(), scope.to_string())?;
            differs("type", stored_type.clone(), secret_type.clone())?;
        }
        (scope, secret_type) = (stored_scope, stored_type);
    }
    if keys.data.is_empty() {
        return Ok(WantedFile { content: None, fault });
    }
    let request = Request { namespace: &secret.namespace, name: &secret.name, scope, secret_type: &secret_type };
    let mut after = sealed_object(request, keys.data)?;
    record(&mut after, SEALED_FOR, &keys.sealed_for);
    record(&mut after, SEALED_AT, &keys.at);
    if object.is_some_and(|object| object == after) {
        return Ok(WantedFile { content: before.map(<[u8]>::to_vec), fault });
    }
    let foreign = |reason: String| SecretFault::Foreign { path: path.clone(), reason };
    let text = serde_saphyr::to_string(&after).map_err(|error| foreign(error.to_string()))?;
    if text.len() > FILE_BYTES_MAX {
        return Err(SecretFault::TooLarge { path });
    }
    Ok(WantedFile { content: Some(text.into_bytes()), fault })
}

/// The keys of a SealedSecret, and what its annotations say of them.
#[derive(Default)]
struct Keys {
    data: Map<String, Value>,
    sealed_for: BTreeMap<String, String>,
    at: BTreeMap<String, String>,
}

impl Keys {
    fn read(object: &Value) -> Self {
        let data = object.pointer("/spec/encryptedData").and_then(Value::as_object).cloned().unwrap_or_default();
        let (mut sealed_for, mut at) = (recorded(object, SEALED_FOR), recorded(object, SEALED_AT));
        sealed_for.retain(|key, _| data.contains_key(key));
        at.retain(|key, _| data.contains_key(key));
        Self { data, sealed_for, at }
    }

    fn bring(&mut self, key: &str, SealedValue { value, sealed_for, at }: &SealedValue) {
        self.data.remove(key);
        self.sealed_for.remove(key);
        self.at.remove(key);
        let Some(value) = value else { return };
        self.data.insert(key.to_owned(), Value::from(value.as_str()));
        self.sealed_for.extend(sealed_for.clone().map(|sealed_for| (key.to_owned(), sealed_for)));
        self.at.insert(key.to_owned(), at.clone());
    }
}

/// The SealedSecret in a file, if it is the one that belongs there.
fn object(path: &str, (namespace, name): (&str, &str), bytes: &[u8]) -> Result<Value, SecretFault> {
    let foreign = |reason: &str| SecretFault::Foreign { path: path.to_owned(), reason: reason.to_owned() };
    let text = std::str::from_utf8(bytes).map_err(|_| foreign("it is not UTF-8"))?;
    let object: Value = serde_saphyr::from_str(text).map_err(|_| foreign("it is not YAML"))?;
    let is = |pointer: &str, value: &str| object.pointer(pointer).and_then(Value::as_str) == Some(value);
    if !is("/kind", "SealedSecret") {
        return Err(foreign("it is of another kind"));
    }
    if !is("/metadata/name", name) || !is("/metadata/namespace", namespace) {
        return Err(foreign("it has another name or namespace"));
    }
    if !object.pointer("/spec/encryptedData").is_some_and(Value::is_object) {
        return Err(foreign("it has no encryptedData"));
    }
    Ok(object)
}

/// Writes an annotation, unless there is nothing to say.
fn record(object: &mut Value, name: &str, of_keys: &BTreeMap<String, String>) {
    if of_keys.is_empty() {
        return;
    }
    let text = serde_json::to_string(of_keys).unwrap_or_default();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(name.to_owned(), Value::from(text));
    }
}

fn annotated<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(name)?.as_str()
}

fn recorded(object: &Value, name: &str) -> BTreeMap<String, String> {
    annotated(object, name).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// As the controller decides it.
fn scope(object: &Value) -> SealingScope {
    let is_set = |scope: SealingScope| annotation(scope).and_then(|name| annotated(object, name)) == Some("true");
    match (is_set(SealingScope::ClusterWide), is_set(SealingScope::NamespaceWide)) {
        (true, _) => SealingScope::ClusterWide,
        (_, true) => SealingScope::NamespaceWide,
        _ => SealingScope::Strict,
    }
}

fn secret_type(object: &Value) -> String {
    object.pointer("/spec/template/type").and_then(Value::as_str).unwrap_or("Opaque").to_owned()
}

/// What is in the files of [`DIRECTORY`], by path below it. Files that are not SealedSecrets are not ours and are left out.
#[must_use]
pub fn stored(files: &BTreeMap<String, Vec<u8>>) -> Vec<StoredSecret> {
    let read = |(path, bytes): (&String, &Vec<u8>)| {
        let (namespace, file) = path.split_once('/')?;
        let name = file.strip_suffix(".yaml")?;
        check_names(namespace, name).ok()?;
        let object = object(path, (namespace, name), bytes).ok()?;
        let Keys { data, sealed_for, at } = Keys::read(&object);
        let key = |key: &String| StoredKey { sealed_for: sealed_for.get(key).cloned(), at: at.get(key).cloned() };
        Some(StoredSecret {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            scope: scope(&object),
            secret_type: secret_type(&object),
            keys: data.keys().map(|name| (name.clone(), key(name))).collect(),
        })
    };
    files.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests;
