//! The SealedSecret object.

use std::collections::BTreeSet;

use configdb_schema::document::SealingScope;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::SealingCertificate;
use crate::seal::{SESSION_KEY_BYTES, SealError, SealedError, annotation, check_sealed, seal};

/// Most bytes that the values of one Secret may have together (Kubernetes: 1 MiB for the object).
const VALUES_BYTES_MAX: usize = 1024 * 1024;
const SUBDOMAIN_CHARACTERS_MAX: usize = 253;
const LABEL_CHARACTERS_MAX: usize = 63;

/// A value to seal.
#[derive(Debug)]
pub struct Plain {
    /// Its key in the Secret: letters, digits, `-`, `_` and `.`.
    pub key: String,
    /// The value.
    pub value: Zeroizing<Vec<u8>>,
    /// A fresh random key, used for nothing else.
    pub session_key: Zeroizing<[u8; SESSION_KEY_BYTES]>,
}

/// What is sealed, and for whom.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Namespace of the Secret.
    pub namespace: &'a str,
    /// Name of the Secret.
    pub name: &'a str,
    /// What the values are bound to.
    pub scope: SealingScope,
    /// Type of the Secret, such as `Opaque`.
    pub secret_type: &'a str,
}

/// Why there is no SealedSecret. Shows no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// A name breaks Kubernetes' rule for it.
    #[error("{field} {text:?} {rule}")]
    Name {
        /// Which name.
        field: &'static str,
        /// The name.
        text: String,
        /// The rule.
        rule: &'static str,
    },
    /// There is nothing to seal.
    #[error("there is no value to seal")]
    Empty,
    /// A key is there twice.
    #[error("key {key:?} is given twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// A Secret cannot hold so much.
    #[error("the values have {bytes} bytes; a Secret holds at most {VALUES_BYTES_MAX}")]
    TooLarge {
        /// Their size.
        bytes: usize,
    },
    /// A value that should be sealed is not, or for another certificate.
    #[error("the sealed value of key {key:?} cannot be taken: {reason}")]
    Sealed {
        /// The key.
        key: String,
        /// Why not.
        reason: SealedError,
    },
    /// See [`SealError`].
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// Seals values into a SealedSecret (`bitnami.com/v1alpha1`), ready to be written to a repository or applied.
///
/// # Errors
/// The [`ManifestError`] that prevents it; then nothing was sealed.
pub fn sealed_secret(
    certificate: &SealingCertificate,
    request: Request<'_>,
    values: &[Plain],
) -> Result<Value, ManifestError> {
    let Request { namespace, name, scope, .. } = request;
    check(request, values)?;
    let sealed = |plain: &Plain| {
        let text = seal(certificate, &plain.session_key, &plain.value, (scope, namespace, name))?;
        Ok((plain.key.clone(), Value::String(text)))
    };
    let data = values.iter().map(sealed).collect::<Result<Map<_, _>, SealError>>()?;
    Ok(object(request, data))
}

/// The SealedSecret of one value that is sealed already: `sealed` is base64, as [`sealed_secret`] has it in `spec.encryptedData`, and as `kubeseal --raw` prints it.
///
/// # Errors
/// A name breaks its rule, or the text cannot be sealed for this certificate. What is sealed for another of the same size is not noticed.
pub fn of_sealed(
    certificate: &SealingCertificate,
    request: Request<'_>,
    key: &str,
    sealed: &str,
) -> Result<Value, ManifestError> {
    check_request(request)?;
    check_key(key)?;
    check_sealed(certificate, sealed, VALUES_BYTES_MAX)
        .map_err(|reason| ManifestError::Sealed { key: key.to_owned(), reason })?;
    Ok(object(request, Map::from_iter([(key.to_owned(), Value::from(sealed))])))
}

/// The SealedSecret of values that are sealed already, each base64; nothing of it is looked at but the names.
///
/// # Errors
/// A name breaks its rule.
pub fn sealed_object(request: Request<'_>, data: Map<String, Value>) -> Result<Value, ManifestError> {
    check_request(request)?;
    Ok(object(request, data))
}

fn object(request: Request<'_>, data: Map<String, Value>) -> Value {
    let Request { namespace, name, scope, secret_type } = request;
    let mut metadata = json!({ "name": name, "namespace": namespace });
    if let Some(annotation) = annotation(scope) {
        metadata["annotations"] = json!({ annotation: "true" });
    }
    json!({
        "apiVersion": "bitnami.com/v1alpha1",
        "kind": "SealedSecret",
        "metadata": metadata,
        "spec": {
            "encryptedData": data,
            "template": { "metadata": metadata, "type": secret_type },
        },
    })
}

fn check_request(request: Request<'_>) -> Result<(), ManifestError> {
    let Request { namespace, name, secret_type, .. } = request;
    check_names(namespace, name)?;
    if secret_type.is_empty() || !secret_type.chars().all(|c| c.is_ascii_alphanumeric() || "-./".contains(c)) {
        return Err(wrong("type", secret_type, "must consist of letters, digits, `-`, `.` and `/`"));
    }
    Ok(())
}

fn check(request: Request<'_>, values: &[Plain]) -> Result<(), ManifestError> {
    check_request(request)?;
    if values.is_empty() {
        return Err(ManifestError::Empty);
    }
    let mut keys = BTreeSet::new();
    for Plain { key, .. } in values {
        check_key(key)?;
        if !keys.insert(key) {
            return Err(ManifestError::Twice { key: key.clone() });
        }
    }
    let bytes = values.iter().map(|plain| plain.value.len()).sum();
    if bytes > VALUES_BYTES_MAX { Err(ManifestError::TooLarge { bytes }) } else { Ok(()) }
}

fn wrong(field: &'static str, text: &str, rule: &'static str) -> ManifestError {
    ManifestError::Name { field, text: text.to_owned(), rule }
}

/// Checks the key of a value.
///
/// # Errors
/// [`ManifestError::Name`]: Kubernetes would refuse it.
pub fn check_key(key: &str) -> Result<(), ManifestError> {
    let allowed = key.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if key.is_empty() || key.len() > SUBDOMAIN_CHARACTERS_MAX || !allowed || key == "." || key == ".." {
        return Err(wrong("key", key, "must be 1 to 253 letters, digits, `-`, `_` and `.`"));
    }
    Ok(())
}

/// Checks namespace and name of a Secret. None that passes has a `/` or is `..`, so both can be parts of a path.
///
/// # Errors
/// [`ManifestError::Name`]: Kubernetes would refuse it.
pub fn check_names(namespace: &str, name: &str) -> Result<(), ManifestError> {
    let lower = |text: &str, extra: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || extra.contains(c);
        let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        text.chars().all(inner) && end(text.chars().next()) && end(text.chars().last())
    };
    if !lower(namespace, "-") || namespace.len() > LABEL_CHARACTERS_MAX {
        let rule = "must be 1 to 63 of a-z, 0-9 and `-`, beginning and ending with a letter or digit";
        return Err(wrong("namespace", namespace, rule));
    }
    if !lower(name, "-.") || name.len() > SUBDOMAIN_CHARACTERS_MAX {
        let rule = "must be 1 to 253 of a-z, 0-9, `-` and `.`, beginning and ending with a letter or digit";
        return Err(wrong("name", name, rule));
    }
    Ok(())
}
