//! The receiver: edge sync's keeper of the accepted index, and the disk that it stores the record on.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use edge_sync::event::Effect;
use edge_sync::record::{IndexRecord, StoredRecord};
use edge_sync::state::index::AcceptedIndex;
use edge_sync_contract::{DeploymentDevice, DeploymentState, DesiredIndex, Digest};
use sparkplug::backoff::Backoff;
use sparkplug::replication::{Origin, Outcome};
use uuid::Uuid;

use crate::fault::Fault;

/// What the receiver publishes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Version of the accepted index; 0 without one.
    pub version: u64,
    /// Its digest.
    pub digest: Option<Digest>,
    /// Where it comes from.
    pub origin: Option<Origin>,
    /// What is sent since is held.
    pub held: bool,
    /// Digests and versions of what runs.
    pub deployments: BTreeMap<Uuid, (u64, Digest)>,
}

impl Report {
    /// What runs, as the cluster manager reads it. Manifests are applied at once: the model is about the index.
    #[must_use]
    pub fn devices(&self) -> BTreeMap<Uuid, DeploymentDevice> {
        let device = |(version, digest): (u64, Digest)| DeploymentDevice {
            state: DeploymentState::Applied,
            version,
            digest: Some(digest),
            ..DeploymentDevice::default()
        };
        self.deployments.iter().map(|(uuid, applied)| (*uuid, device(*applied))).collect()
    }
}

/// The receiver and its disk.
#[derive(Debug, Clone)]
pub struct Edge {
    keeper: AcceptedIndex,
    disk: Option<String>,
    /// What is stored as far as the receiver knows, and will be on the disk later: only with [`Fault::ReportedBeforeStored`].
    unwritten: Option<String>,
    fault: Option<Fault>,
}

impl PartialEq for Edge {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Hash for Edge {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl Edge {
    /// A receiver that has accepted nothing.
    #[must_use]
    pub fn new(fault: Option<Fault>) -> Self {
        let keeper = AcceptedIndex::new(Backoff::new((Duration::from_secs(1), Duration::from_secs(60)), 1));
        let mut edge = Self { keeper, disk: None, unwritten: None, fault };
        edge.restart();
        edge
    }

    /// The keeper is compared by what it shows of itself, which is all that it has.
    fn key(&self) -> (String, &Option<String>, &Option<String>) {
        (format!("{:?}", self.keeper), &self.disk, &self.unwritten)
    }

    /// The process is killed and starts again: what is not on the disk is lost.
    pub fn restart(&mut self) {
        self.unwritten = None;
        self.keeper = AcceptedIndex::new(Backoff::new((Duration::from_secs(1), Duration::from_secs(60)), 1));
        let Some(Effect::LoadIndex) = self.keeper.next_effect(Duration::ZERO, true) else { return };
        let mut record = self.disk.as_ref().and_then(|text| IndexRecord::from_text(text).ok());
        if let Some(record) = record.as_mut().filter(|_| self.fault == Some(Fault::HoldNotPersisted)) {
            record.index.origin = None;
        }
        let resource_version = self.disk.as_ref().map(|_| "1".to_owned());
        self.keeper.on_loaded(StoredRecord { record, resource_version, unreadable: None });
    }

    /// A message arrives.
    pub fn receive(&mut self, index: DesiredIndex) -> Outcome {
        self.keeper.on_command(index)
    }

    /// What waits is stored; yields it, and what was accepted before.
    pub fn save(&mut self) -> Option<(Option<IndexRecord>, IndexRecord)> {
        let Some(Effect::SaveIndex { record, then, .. }) = self.keeper.next_effect(Duration::ZERO, true) else {
            return None;
        };
        let before = self.keeper.accepted().cloned();
        let (text, fault) = (record.to_text(), self.fault);
        let written = then.commit(|| {
            if fault == Some(Fault::ReportedBeforeStored) {
                self.disk = self.unwritten.replace(text).or(self.disk.take());
            } else {
                self.disk = Some(text);
            }
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(((), saved)) = written;
        self.keeper.on_saved("1".to_owned(), saved);
        Some((before, record))
    }

    /// Whether something waits to be stored.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.keeper.clone().next_effect(Duration::ZERO, true).is_some()
    }

    /// What is accepted.
    #[must_use]
    pub fn accepted(&self) -> Option<&IndexRecord> {
        self.keeper.accepted()
    }

    /// What is published.
    #[must_use]
    pub fn report(&self) -> Report {
        let held = self.keeper.held().is_some();
        let Some(record) = self.keeper.accepted() else { return Report { held, ..Report::default() } };
        let runs = |uuid: &Uuid| Some((*uuid, record.entry(*uuid)?));
        let deployments = record.index.deployments.keys().filter_map(runs);
        Report {
            version: record.index.version,
            digest: Some(record.index.digest()),
            origin: record.index.origin,
            held,
            deployments: deployments.map(|(uuid, entry)| (uuid, (entry.version, entry.digest))).collect(),
        }
    }
}
