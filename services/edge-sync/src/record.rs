//! The accepted index as it is kept in the cluster: what makes versions grow across restarts.

use std::collections::BTreeMap;

use edge_sync_contract::{DesiredDeployment, DesiredIndex};
use serde_json::{Value, json};
use uuid::Uuid;

/// Name of the ConfigMap.
pub const RECORD_NAME: &str = "edge-sync-desired";
/// Key of its data.
pub const RECORD_KEY: &str = "index.json";

/// The accepted index, and the entries in it that cannot be followed because their version fell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexRecord {
    /// As it was accepted.
    pub index: DesiredIndex,
    /// For these deployments the entry that was followed before stays in force.
    pub kept: BTreeMap<Uuid, DesiredDeployment>,
}

/// What was found in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredRecord {
    /// The record; None: there is none.
    pub record: Option<IndexRecord>,
    /// Version of the ConfigMap, to be replaced by the next save; None: there is none.
    pub resource_version: Option<String>,
    /// There is a ConfigMap, but its content is not a record.
    pub unreadable: Option<String>,
}

impl IndexRecord {
    /// What `index` becomes when it follows `previous`: no deployment's version falls, and none changes its digest without growing.
    #[must_use]
    pub fn following(previous: Option<&Self>, index: DesiredIndex) -> Self {
        // What its sender knew of this receiver matters to no one once it is accepted.
        let mut index = DesiredIndex { follows: None, decided_for: None, ..index };
        // Its sender names only what has no name here yet.
        for (uuid, name) in previous.iter().flat_map(|previous| &previous.index.names) {
            if index.deployments.contains_key(uuid) {
                index.names.entry(*uuid).or_insert_with(|| name.clone());
            }
        }
        let falls = |uuid: &Uuid, wanted: &DesiredDeployment| {
            let known = previous?.entry(*uuid)?;
            let grows = wanted.version > known.version || *wanted == known;
            (!grows).then_some((*uuid, known))
        };
        let kept = index.deployments.iter().filter_map(|(uuid, wanted)| falls(uuid, wanted)).collect();
        Self { index, kept }
    }

    /// The entry that is followed; None: the deployment is not desired.
    #[must_use]
    pub fn entry(&self, deployment: Uuid) -> Option<DesiredDeployment> {
        self.kept.get(&deployment).or_else(|| self.index.deployments.get(&deployment)).copied()
    }

    /// What the deployment is called, as far as an index has said so.
    #[must_use]
    pub fn name(&self, deployment: Uuid) -> Option<&str> {
        self.index.names.get(&deployment).map(String::as_str)
    }

    /// The entry of the index that cannot be followed, if there is one.
    #[must_use]
    pub fn fallen(&self, deployment: Uuid) -> Option<DesiredDeployment> {
        self.kept.get(&deployment).and_then(|_| self.index.deployments.get(&deployment)).copied()
    }

    /// Text of the record.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Written as an index of its own, so that reading checks it in the same way.
        let deployments = self.kept.clone();
        let kept = DesiredIndex {
            version: self.index.version,
            deployments,
            origin: None,
            follows: None,
            decided_for: None,
            entries: None,
            names: BTreeMap::new(),
        };
        json!({"index": self.index.to_json(), "kept": kept.to_json()}).to_string()
    }

    /// Reads the record.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
        let part = |name: &str| {
            let part = value.get(name).ok_or_else(|| format!("has no {name}"))?;
            DesiredIndex::from_json(&part.to_string()).map_err(|error| format!("{name}: {error}"))
        };
        Ok(Self { index: part("index")?, kept: part("kept")?.deployments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edge_sync_contract::Digest;

    fn entry(version: u64, content: u64) -> DesiredDeployment {
        DesiredDeployment { version, digest: Digest::of(&json!(content)) }
    }

    fn index(version: u64, entries: &[(u128, DesiredDeployment)]) -> DesiredIndex {
        let deployments = entries.iter().map(|(n, entry)| (Uuid::from_u128(*n), *entry)).collect();
        let origin = "00000000-0000-0000-0000-000000000007/2/00000000000000ab/12".parse().ok();
        DesiredIndex {
            version,
            deployments,
            origin,
            follows: None,
            decided_for: None,
            entries: None,
            names: BTreeMap::new(),
        }
    }

    #[test]
    fn a_record_is_read_back_and_damage_is_named() {
        let first = IndexRecord::following(None, index(1, &[(1, entry(5, 5)), (2, entry(1, 1))]));
        let record = IndexRecord::following(Some(&first), index(2, &[(1, entry(4, 4)), (3, entry(1, 1))]));
        assert_eq!(record.kept.len(), 1);
        assert_eq!(IndexRecord::from_text(&record.to_text()), Ok(record.clone()));
        let damaged = record.to_text().replace("\"version\":4", "\"version\":3");
        assert!(IndexRecord::from_text(&damaged).unwrap_err().starts_with("index: Desired/Index digest is not"));
        assert_eq!(IndexRecord::from_text("{}").unwrap_err(), "has no index");
    }

    #[test]
    fn an_entry_whose_version_falls_or_whose_digest_changes_without_it_is_not_followed() {
        let first = IndexRecord::following(
            None,
            index(1, &[(1, entry(5, 5)), (2, entry(5, 5)), (3, entry(5, 5)), (4, entry(5, 5))]),
        );
        let next = index(2, &[(1, entry(4, 4)), (2, entry(5, 6)), (3, entry(6, 6)), (4, entry(5, 5))]);
        let record = IndexRecord::following(Some(&first), next);
        let of = |n: u128| (record.entry(Uuid::from_u128(n)), record.fallen(Uuid::from_u128(n)));
        assert_eq!(of(1), (Some(entry(5, 5)), Some(entry(4, 4))));
        assert_eq!(of(2), (Some(entry(5, 5)), Some(entry(5, 6))));
        assert_eq!(of(3), (Some(entry(6, 6)), None));
        assert_eq!(of(4), (Some(entry(5, 5)), None));
        assert_eq!(of(9), (None, None));
        // Left out and listed again is another instance: the versions begin again.
        let without = IndexRecord::following(Some(&record), index(3, &[]));
        let again = IndexRecord::following(Some(&without), index(4, &[(1, entry(1, 1))]));
        assert_eq!((again.entry(Uuid::from_u128(1)), again.kept.len()), (Some(entry(1, 1)), 0));
    }
}
