//! Things that are wrong on purpose, one for each check: a check that cannot fail proves nothing.

use bytes::Bytes;
use edge_sync_contract::{DesiredIndex, SyncCommand};
use sparkplug::Metric;
use sparkplug::edge_node::NodeEvent;
use sparkplug::payload::Limits;
use sparkplug::replication::Origin;

use crate::endpoint::Side;
use crate::fleet::Role;
use crate::world::{ProcessId, World};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// The desired state never reaches any Sync.
    LosesCommands,
    /// A cluster's record of the accepted index falls back.
    RecordRollsBack,
    /// Sync receives that nothing is wanted, though it is.
    PrunesFromIgnorance,
    /// The broker swallows deaths.
    SwallowsDeaths,
    /// Data arrive with other values than were sent.
    SpoilsData,
    /// Every command goes out three times.
    AsksWithoutEnd,
    /// ConfigDB publishes what it did not store.
    PublishesBeforeItStores,
    /// Something panics at a payload that cannot be read.
    PanicsAtGarbage,
    /// Sync follows whatever store it is sent something from.
    BelievesEveryStore,
    /// Requests for births do not reach clusters.
    NeverAsks,
    /// Processes do not name themselves, so that no one notices a second one.
    NobodyObjects,
    /// An operator enrols a machine that is not to be admitted.
    EnrolsStrangers,
    /// Join tokens are not revoked.
    KeepsTokens,
    /// The disk of repositories says of some writes that they are done, and forgets them.
    GitLosesWrites,
    /// The console does not receive that devices are gone.
    ConsoleMissesDeaths,
    /// The console's history does not store that a row went.
    HistoryLosesChanges,
    /// krb-keys receives of good keys that they are wrong.
    DoubtsGoodKeys,
    /// A program publishes the disk keys that hosts have got.
    SaysDiskKeys,
    /// The deadline of edge agents does not move.
    StandsStill,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::LosesCommands,
        Self::RecordRollsBack,
        Self::PrunesFromIgnorance,
        Self::SwallowsDeaths,
        Self::SpoilsData,
        Self::AsksWithoutEnd,
        Self::PublishesBeforeItStores,
        Self::PanicsAtGarbage,
        Self::BelievesEveryStore,
        Self::NeverAsks,
        Self::NobodyObjects,
        Self::EnrolsStrangers,
        Self::KeepsTokens,
        Self::GitLosesWrites,
        Self::ConsoleMissesDeaths,
        Self::HistoryLosesChanges,
        Self::DoubtsGoodKeys,
        Self::SaysDiskKeys,
        Self::StandsStill,
    ];

    /// It is about hosts that join.
    #[must_use]
    pub const fn needs_joins(self) -> bool {
        matches!(self, Self::EnrolsStrangers | Self::KeepsTokens | Self::SaysDiskKeys)
    }

    /// It is about the console.
    #[must_use]
    pub const fn needs_console(self) -> bool {
        matches!(self, Self::ConsoleMissesDeaths | Self::HistoryLosesChanges)
    }

    /// It is about Kerberos keys.
    #[must_use]
    pub const fn needs_keys(self) -> bool {
        matches!(self, Self::DoubtsGoodKeys)
    }

    /// The check that must notice.
    #[must_use]
    pub const fn noticed_by(self) -> &'static str {
        match self {
            Self::LosesCommands => "applied-or-visible",
            Self::RecordRollsBack => "version-never-falls",
            Self::PrunesFromIgnorance => "no-prune-from-ignorance",
            Self::SwallowsDeaths => "alive-means-born",
            Self::SpoilsData => "replica-equals-source",
            Self::AsksWithoutEnd => "one-storm-one-rebirth",
            Self::PublishesBeforeItStores => "resume-anywhere",
            Self::PanicsAtGarbage => "input-is-hostile",
            Self::BelievesEveryStore => "acknowledged-is-kept",
            Self::NeverAsks => "fair-share",
            Self::NobodyObjects => "one-speaker",
            Self::EnrolsStrangers => "no-ticket-without-verdict",
            Self::KeepsTokens => "token-once",
            Self::GitLosesWrites => "written-is-kept",
            Self::ConsoleMissesDeaths => "console-shows-what-is",
            Self::HistoryLosesChanges => "past-is-what-was-shown",
            Self::DoubtsGoodKeys => "rotate-only-on-proof",
            Self::SaysDiskKeys => "ciphertext-only",
            Self::StandsStill => "time-advances",
        }
    }
}

/// A record with a smaller version.
pub(crate) fn older_record(text: &str) -> String {
    match edge_sync::record::IndexRecord::from_text(text) {
        Ok(mut record) => {
            record.index.version = record.index.version.saturating_sub(1);
            record.to_text()
        }
        Err(_) => text.to_owned(),
    }
}

impl World {
    /// The payload as it arrives.
    pub(crate) fn spoil(&mut self, _: ProcessId, side: Side, topic: &str, payload: Bytes) -> Bytes {
        match (self.mutation, side) {
            (Some(Mutation::SpoilsData), Side::Host) if topic.contains("/DDATA/") && self.random.chance(300) => {
                let mut bytes = payload.to_vec();
                if let Some(last) = bytes.iter_mut().rev().find(|byte| byte.is_ascii_digit()) {
                    *last = if *last == b'1' { b'2' } else { b'1' };
                }
                bytes.into()
            }
            (Some(Mutation::PanicsAtGarbage), Side::Host) => {
                let is_readable =
                    topic.contains("/STATE/") || sparkplug::payload::decode(&payload, &Limits::default()).is_ok();
                assert!(is_readable, "a payload on {topic} cannot be read");
                payload
            }
            _ => payload,
        }
    }

    /// How often a message is sent.
    pub(crate) fn repetitions(&self, topic: &str) -> u32 {
        match self.mutation {
            Some(Mutation::AsksWithoutEnd) if topic.contains("/NCMD/") => 3,
            Some(Mutation::NeverAsks) if topic.contains("/NCMD/") && !topic.contains("-Central/") => 0,
            _ => 1,
        }
    }

    /// What a Sync receives instead of an event; None: the event is lost.
    pub(crate) fn mislead(&mut self, role: &Role, event: NodeEvent) -> Option<NodeEvent> {
        let NodeEvent::Command { device, metrics, timestamp } = event else { return Some(event) };
        if !matches!(role, Role::Sync(_)) {
            return Some(NodeEvent::Command { device, metrics, timestamp });
        }
        match self.mutation {
            Some(Mutation::LosesCommands) => None,
            Some(Mutation::BelievesEveryStore) => {
                let accepted = role.cluster().and_then(|site| self.clusters.get(&site)?.accepted()?.index.origin);
                let index = SyncCommand::from_event(device.as_ref(), &metrics);
                let (Some(accepted), Ok(Some(SyncCommand::Index(index)))) = (accepted, index) else {
                    return Some(NodeEvent::Command { device, metrics, timestamp });
                };
                let origin = index.origin.map(|origin| Origin { point: origin.point, ..accepted });
                let believed = DesiredIndex { origin, follows: Some(accepted.point), ..index };
                let metric = Metric::new(edge_sync_contract::names::DESIRED_INDEX, believed.to_json().to_string());
                Some(NodeEvent::Command { device: None, metrics: vec![metric], timestamp })
            }
            Some(Mutation::PrunesFromIgnorance) if self.random.chance(100) => {
                let Ok(Some(SyncCommand::Index(index))) = SyncCommand::from_event(device.as_ref(), &metrics) else {
                    return Some(NodeEvent::Command { device, metrics, timestamp });
                };
                let empty = DesiredIndex {
                    version: index.version + 1,
                    deployments: std::collections::BTreeMap::new(),
                    ..index
                };
                let metric = Metric::new(edge_sync_contract::names::DESIRED_INDEX, empty.to_json().to_string());
                Some(NodeEvent::Command { device: None, metrics: vec![metric], timestamp })
            }
            _ => Some(NodeEvent::Command { device, metrics, timestamp }),
        }
    }
}
