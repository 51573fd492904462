//! Entries of ConfigDB that something at the edge was made from. The edge keeps them and gives them back, so that a control plane that lost them can have them again.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};
use sparkplug::typed::MetricValue;
use sparkplug::{DataType, Value};

/// Most bytes of them as JSON: they are kept in the annotation of an object, of which Kubernetes takes 256 KiB in all.
pub const ENTRIES_BYTES_MAX: usize = 64 * 1024;

/// Entries by the slug of their application. As JSON an object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Entries(pub BTreeMap<String, Json>);

impl Eq for Entries {}

impl Entries {
    /// As JSON; None if that has more than [`ENTRIES_BYTES_MAX`] bytes.
    #[must_use]
    pub fn to_text(&self) -> Option<String> {
        let members: Map<String, Json> = self.0.iter().map(|(slug, entry)| (slug.clone(), entry.clone())).collect();
        let text = Json::Object(members).to_string();
        (text.len() <= ENTRIES_BYTES_MAX).then_some(text)
    }

    /// From JSON.
    ///
    /// # Errors
    /// The rule that the text breaks.
    pub fn from_text(text: &str) -> Result<Self, String> {
        if text.len() > ENTRIES_BYTES_MAX {
            return Err(format!("has {} bytes; at most {ENTRIES_BYTES_MAX} are allowed", text.len()));
        }
        match serde_json::from_str(text) {
            Ok(Json::Object(members)) => Ok(Self(members.into_iter().collect())),
            _ => Err("must be a JSON object of entries by slug".to_owned()),
        }
    }
}

impl MetricValue for Entries {
    const DATATYPE: DataType = DataType::String;

    fn to_value(&self) -> Option<Value> {
        self.to_text().map(Into::into)
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        Self::from_text(value.as_str().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_are_read_back_and_bounded() {
        let entries = Entries([("Info".to_owned(), json!({"name": "x"}))].into());
        assert_eq!(Entries::from_text(&entries.to_text().unwrap()), Ok(entries));
        let large = Entries([("Info".to_owned(), json!("x".repeat(ENTRIES_BYTES_MAX)))].into());
        assert_eq!((large.to_text(), large.to_value()), (None, None));
        assert_eq!(Entries::from_text("[]").unwrap_err(), "must be a JSON object of entries by slug");
        assert!(Entries::from_text(&"x".repeat(ENTRIES_BYTES_MAX + 1)).unwrap_err().starts_with("has 65537 bytes"));
    }
}
