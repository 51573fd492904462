//! Which labels a row must have: `site=Graz,line!=2,pilot,!retired`, all of it, as kubectl takes it.

use std::collections::BTreeMap;
use std::str::FromStr;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    Is(String, String),
    IsNot(String, String),
    Has(String),
    Lacks(String),
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Is(key, value) => labels.get(key) == Some(value),
            // What has no such label has another value.
            Self::IsNot(key, value) => labels.get(key) != Some(value),
            Self::Has(key) => labels.contains_key(key),
            Self::Lacks(key) => !labels.contains_key(key),
        }
    }
}

impl Selector {
    /// Whether these labels are as they must be.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels))
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let requirement = |part: &str| {
            let pair = |key: &str, value: &str| (key.trim().to_owned(), value.trim().to_owned());
            let requirement = if let Some((key, value)) = part.split_once("!=") {
                let (key, value) = pair(key, value);
                Requirement::IsNot(key, value)
            } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                let (key, value) = pair(key, value);
                Requirement::Is(key, value)
            } else if let Some(key) = part.trim().strip_prefix('!') {
                Requirement::Lacks(key.trim().to_owned())
            } else {
                Requirement::Has(part.trim().to_owned())
            };
            let (Requirement::Is(key, _)
            | Requirement::IsNot(key, _)
            | Requirement::Has(key)
            | Requirement::Lacks(key)) = &requirement;
            if key.is_empty() {
                return Err(format!("{part:?} names no label; write KEY=VALUE, KEY!=VALUE, KEY or !KEY"));
            }
            Ok(requirement)
        };
        text.split(',').map(requirement).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_selected_as_kubectl_selects_them() {
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let graz = labels(&[("site", "Graz"), ("line", "2")]);
        for (text, selects) in [
            ("site=Graz", true),
            ("site==Graz", true),
            ("site = Graz , line=2", true),
            ("site=Wien", false),
            ("site!=Wien", true),
            ("site!=Graz", false),
            ("hall!=3", true),
            ("line", true),
            ("hall", false),
            ("!hall", true),
            ("!line", false),
            ("site=Graz,!line", false),
            ("site=", false),
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.selects(&graz), selects, "{text}");
        }
        for bad in ["", ",", "=Graz", "!", "site=Graz,"] {
            assert!(bad.parse::<Selector>().unwrap_err().contains("KEY=VALUE"), "{bad}");
        }
    }
}
