//! All that the broker of a world carries, to look for secrets in it.

use std::collections::{BTreeMap, BTreeSet};

use sparkplug::{Metric, Value};

/// So many bytes of a secret are looked for first.
const PREFIX: usize = 8;

/// Contents of metrics, each once.
#[derive(Debug, Default)]
pub struct Wire(BTreeSet<Vec<u8>>);

impl Wire {
    /// The broker carries these metrics.
    pub fn carry<'a>(&mut self, metrics: impl IntoIterator<Item = &'a Metric>) {
        for metric in metrics {
            match &metric.value {
                Some(Value::Bytes(bytes)) => drop(self.0.insert(bytes.to_vec())),
                Some(Value::String(text) | Value::Text(text)) => drop(self.0.insert(text.as_bytes().to_vec())),
                _ => {}
            }
        }
    }

    /// How much was carried, each content once.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Names of the secrets that are in what was carried, as they are or as hexadecimal text.
    pub fn found(&self, secrets: &[(String, Vec<u8>)]) -> BTreeSet<String> {
        let mut wanted: BTreeMap<[u8; PREFIX], Vec<(&str, Vec<u8>)>> = BTreeMap::new();
        for (name, secret) in secrets {
            for form in [secret.clone(), hex::encode(secret).into_bytes(), hex::encode_upper(secret).into_bytes()] {
                let prefix = form[..PREFIX].try_into().unwrap();
                wanted.entry(prefix).or_default().push((name, form));
            }
        }
        let mut found = BTreeSet::new();
        for content in &self.0 {
            for at in 0..content.len().saturating_sub(PREFIX - 1) {
                let prefix: &[u8; PREFIX] = content[at..at + PREFIX].try_into().unwrap();
                let Some(candidates) = wanted.get(prefix) else { continue };
                let is_there = |form: &Vec<u8>| content[at..].starts_with(form);
                found.extend(candidates.iter().filter(|(_, form)| is_there(form)).map(|(name, _)| (*name).to_owned()));
            }
        }
        found
    }
}
