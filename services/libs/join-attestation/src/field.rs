//! Values of a policy's fields, and what is wrong with them.

use crate::hash::Hash;

/// The most values that one PCR, or one list of events, may have.
pub(crate) const VALUES_MAX: usize = 64;

/// Why an entry is not a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct PolicyError {
    /// The field of the entry.
    pub field: String,
    /// The rule that it breaks.
    pub rule: String,
}

pub(crate) fn error<T>(field: impl Into<String>, rule: impl Into<String>) -> Result<T, PolicyError> {
    Err(PolicyError { field: field.into(), rule: rule.into() })
}

pub(crate) fn digest(field: &str, text: &str, bank: Hash) -> Result<Vec<u8>, PolicyError> {
    match hex::decode(text) {
        Ok(value) if value.len() == bank.size() => Ok(value),
        Ok(value) => {
            error(field, format!("has {} bytes, and a digest of {} has {}", value.len(), bank.name(), bank.size()))
        }
        Err(_) => error(field, "is not hexadecimal"),
    }
}

/// A digest that can have been measured: no placeholder, which repeats one, two, four or eight bytes over and over.
pub(crate) fn measured(field: &str, text: &str, bank: Hash) -> Result<Vec<u8>, PolicyError> {
    let value = digest(field, text, bank)?;
    if is_placeholder(&value) {
        error(field, "repeats the same bytes: a placeholder, not a measurement")
    } else {
        Ok(value)
    }
}

fn is_placeholder(value: &[u8]) -> bool {
    [1, 2, 4, 8].iter().any(|period| value.iter().zip(&value[*period..]).all(|(one, next)| one == next))
}
