//! Things that are wrong on purpose, one for each check: a check that cannot fail proves nothing.

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
    /// Files of secrets do not say when their keys were decided.
    ForgetsTimes,
    /// The cluster manager takes all that it has written for served before it has received the git server.
    SendsBeforeItKnows,
    /// The git server's disk says of some commits that they are there, and forgets them.
    CopiesLoseCommits,
    /// The cluster manager's disk says of pushes that they are taken, and forgets them.
    ForgetsPushes,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 23] = [
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
        Self::ForgetsTimes,
        Self::SendsBeforeItKnows,
        Self::CopiesLoseCommits,
        Self::ForgetsPushes,
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

    /// It is about sealed secrets.
    #[must_use]
    pub const fn needs_secrets(self) -> bool {
        matches!(self, Self::ForgetsTimes)
    }

    /// It is about the git server.
    #[must_use]
    pub const fn needs_git(self) -> bool {
        matches!(self, Self::SendsBeforeItKnows | Self::CopiesLoseCommits | Self::ForgetsPushes)
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
            Self::ForgetsTimes => "no-value-goes-back",
            Self::SendsBeforeItKnows => "served-before-sent",
            Self::CopiesLoseCommits => "copy-equals-repository",
            Self::ForgetsPushes => "pushed-is-kept",
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
