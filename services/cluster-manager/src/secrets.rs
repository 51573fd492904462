//! Sealed secrets in a cluster's repository: one file for each Secret, `edo/secrets/<namespace>/<name>.yaml`, with a SealedSecret object of one or more keys.
//!
//! An annotation says for which certificate each key was sealed, so that the keys that have to be sealed again can be found. Pure; this module must not know git, nor any value.

use std::collections::BTreeMap;
use std::fmt;

use sealed_secrets::{ManifestError, Scope, check_key, check_names};
use serde_json::{Map, Value};

/// Directory in the repository of a cluster.
pub const DIRECTORY: &str = "edo/secrets";

/// Annotation of a SealedSecret: JSON, from each key to the SHA-256 fingerprint of the certificate that it was sealed for.
const SEALED_FOR: &str = "sparkfleet.io/sealed-for";

/// Largest file; Kubernetes takes objects of some 1.5 MiB.
pub const FILE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// One key of one Secret, by names that Kubernetes allows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretKey {
    namespace: String,
    name: String,
    key: String,
}

impl SecretKey {
    /// Checks the names, so that they can stand in paths and manifests.
    ///
    /// # Errors
    /// Which name breaks which rule.
    pub fn new(namespace: &str, name: &str, key: &str) -> Result<Self, ManifestError> {
        check_names(namespace, name)?;
        check_key(key)?;
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), key: key.to_owned() })
    }

    /// Namespace of the Secret.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Name of the Secret.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Key in it.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The file in the repository.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{DIRECTORY}/{}/{}.yaml", self.namespace, self.name)
    }
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.name, self.key)
    }
}

/// What to do with the secrets of a repository.
#[derive(Debug, Clone, PartialEq)]
pub enum SecretChange {
    /// Write one key; the others stay.
    Put {
        /// Which.
        key: SecretKey,
        /// The SealedSecret with this key alone.
        sealed: Box<Value>,
        /// Of the certificate that it is sealed for.
        fingerprint: String,
    },
    /// Remove one key, and with the last one the Secret.
    Delete {
        /// Which.
        key: SecretKey,
    },
}

/// A secret as the repository has it: names only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSecret {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// `strict`, `namespace-wide` or `cluster-wide`.
    pub scope: &'static str,
    /// Type of the Secret, such as `Opaque`.
    pub secret_type: String,
    /// Each key with the fingerprint of the certificate that it was sealed for, if that is recorded.
    pub keys: BTreeMap<String, Option<String>>,
}

/// Why a repository cannot be changed like that, or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretFault {
    /// There is no such key.
    #[error("there is no secret {0}")]
    Missing(String),
    /// The Secret is there with another scope or type, which all its keys share.
    #[error(
        "{secret} is there with {field} {stored}, not {wanted}; all its keys share it: delete them first, or ask for that"
    )]
    Differs {
        /// `namespace/name`.
        secret: String,
        /// `scope` or `type`.
        field: &'static str,
        /// As it is.
        stored: String,
        /// As it was asked for.
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
    /// The disk.
    #[error("the repository cannot be used: {0}")]
    Repository(String),
}

impl SecretChange {
    /// The key that it changes.
    #[must_use]
    pub const fn key(&self) -> &SecretKey {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    /// Commit message; it names what is changed.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Put { key, .. } => format!("Secret {key} sealed"),
            Self::Delete { key } => format!("Secret {key} deleted"),
        }
    }

    /// The file after the change, given the one before. None: there is none (any more).
    ///
    /// # Errors
    /// Nothing is to be changed then.
    pub fn apply(&self, before: Option<&[u8]>) -> Result<Option<Vec<u8>>, SecretFault> {
        let path = self.key().path();
        let before = before.map(|bytes| object(&path, self.key(), bytes)).transpose()?;
        let after = match self {
            Self::Put { key, sealed, fingerprint } => Some(put(key, before, sealed, fingerprint)?),
            Self::Delete { key } => remove(key, before)?,
        };
        let Some(after) = after else { return Ok(None) };
        let foreign = |reason: String| SecretFault::Foreign { path: path.clone(), reason };
        let text = serde_saphyr::to_string(&after).map_err(|error| foreign(error.to_string()))?;
        if text.len() > FILE_BYTES_MAX {
            return Err(SecretFault::TooLarge { path });
        }
        Ok(Some(text.into_bytes()))
    }
}

/// The SealedSecret in a file, if it is the one that belongs there.
fn object(path: &str, key: &SecretKey, bytes: &[u8]) -> Result<Value, SecretFault> {
    let foreign = |reason: &str| SecretFault::Foreign { path: path.to_owned(), reason: reason.to_owned() };
    let text = std::str::from_utf8(bytes).map_err(|_| foreign("it is not UTF-8"))?;
    let object: Value = serde_saphyr::from_str(text).map_err(|_| foreign("it is not YAML"))?;
    let is = |pointer: &str, value: &str| object.pointer(pointer).and_then(Value::as_str) == Some(value);
    if !is("/kind", "SealedSecret") {
        return Err(foreign("it is of another kind"));
    }
    if !is("/metadata/name", key.name()) || !is("/metadata/namespace", key.namespace()) {
        return Err(foreign("it has another name or namespace"));
    }
    if !object.pointer("/spec/encryptedData").is_some_and(Value::is_object) {
        return Err(foreign("it has no encryptedData"));
    }
    Ok(object)
}

fn put(key: &SecretKey, before: Option<Value>, sealed: &Value, fingerprint: &str) -> Result<Value, SecretFault> {
    let mut object = match before {
        None => sealed.clone(),
        Some(mut before) => {
            let secret = format!("{}/{}", key.namespace, key.name);
            for (field, of) in [("scope", scope as fn(&Value) -> String), ("type", secret_type)] {
                let (stored, wanted) = (of(&before), of(sealed));
                if stored != wanted {
                    return Err(SecretFault::Differs { secret, field, stored, wanted });
                }
            }
            before["spec"]["encryptedData"][&key.key] = sealed["spec"]["encryptedData"][&key.key].clone();
            before
        }
    };
    let mut fingerprints = sealed_for(&object);
    fingerprints.insert(key.key.clone(), fingerprint.to_owned());
    record(&mut object, &fingerprints);
    Ok(object)
}

fn remove(key: &SecretKey, before: Option<Value>) -> Result<Option<Value>, SecretFault> {
    let missing = || SecretFault::Missing(key.to_string());
    let mut object = before.ok_or_else(missing)?;
    let data = object.pointer_mut("/spec/encryptedData").and_then(Value::as_object_mut).ok_or_else(missing)?;
    data.remove(&key.key).ok_or_else(missing)?;
    if data.is_empty() {
        return Ok(None);
    }
    let mut fingerprints = sealed_for(&object);
    fingerprints.remove(&key.key);
    record(&mut object, &fingerprints);
    Ok(Some(object))
}

/// Writes the annotation, whatever stood there.
fn record(object: &mut Value, fingerprints: &BTreeMap<String, String>) {
    let text = serde_json::to_string(fingerprints).unwrap_or_default();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(SEALED_FOR.to_owned(), Value::from(text));
    }
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(name)?.as_str()
}

fn sealed_for(object: &Value) -> BTreeMap<String, String> {
    annotation(object, SEALED_FOR).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn stored_scope(object: &Value) -> &'static str {
    // As the controller decides it.
    let wide = [Scope::ClusterWide, Scope::NamespaceWide].into_iter();
    let mut set = wide.filter(|scope| scope.annotation().and_then(|name| annotation(object, name)) == Some("true"));
    set.next().unwrap_or(Scope::Strict).name()
}

fn scope(object: &Value) -> String {
    stored_scope(object).to_owned()
}

fn secret_type(object: &Value) -> String {
    object.pointer("/spec/template/type").and_then(Value::as_str).unwrap_or("Opaque").to_owned()
}

/// What is in the files of [`DIRECTORY`], by path below it. Files that are not SealedSecrets are not ours and are left out.
#[must_use]
pub fn stored(files: &BTreeMap<String, Vec<u8>>) -> Vec<StoredSecret> {
    let read = |(path, bytes): (&String, &Vec<u8>)| {
        let (namespace, file) = path.split_once('/')?;
        let key = SecretKey::new(namespace, file.strip_suffix(".yaml")?, "any").ok()?;
        let object = object(path, &key, bytes).ok()?;
        let fingerprints = sealed_for(&object);
        let data = object.pointer("/spec/encryptedData")?.as_object()?;
        let keys = data.keys().map(|key| (key.clone(), fingerprints.get(key).cloned())).collect();
        Some(StoredSecret {
            namespace: key.namespace,
            name: key.name,
            scope: stored_scope(&object),
            secret_type: secret_type(&object),
            keys,
        })
    };
    files.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests;
