//! The metrics of a host device: a host whose evidence passed the proof that it owns its TPM. Nothing of it is secret.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use sparkplug::edge_node::NodeUpdate;
use sparkplug::typed::{TypedMetrics, form};
use uuid::Uuid;

use crate::names::{host, host_device};

/// How far a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum HostState {
    /// A person has to approve it: its endorsement key is not enrolled.
    Pending,
    /// Refused; the verdict says why.
    #[default]
    Refused,
    /// It has a ticket and has not locked itself to the cluster yet.
    Admitted,
    /// It is locked to the cluster and not a member yet.
    Locked,
    /// A member of the cluster.
    Member,
    /// It was a member, asked for its keys again and was refused: its state disk stays closed. The verdict says why.
    LockedOut,
    /// It had a ticket and did not become a member.
    Failed,
    /// Its endorsement key is revoked.
    Revoked,
}

impl HostState {
    /// Every state.
    pub const ALL: &'static [Self] = &[
        Self::Pending,
        Self::Refused,
        Self::Admitted,
        Self::Locked,
        Self::Member,
        Self::LockedOut,
        Self::Failed,
        Self::Revoked,
    ];

    /// As on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Refused => "refused",
            Self::Admitted => "admitted",
            Self::Locked => "locked",
            Self::Member => "member",
            Self::LockedOut => "locked-out",
            Self::Failed => "failed",
            Self::Revoked => "revoked",
        }
    }
}

impl fmt::Display for HostState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not one of the states.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be pending, refused, admitted, locked, member, locked-out, failed or revoked")]
pub struct UnknownHostState;

impl FromStr for HostState {
    type Err = UnknownHostState;

    fn from_str(text: &str) -> Result<Self, UnknownHostState> {
        Self::ALL.iter().copied().find(|state| state.as_str() == text).ok_or(UnknownHostState)
    }
}

/// A host as the Join node reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JoinHost {
    /// Name of the Kubernetes node that it is or wants to be; empty if the service is to name it.
    pub name: String,
    /// `worker` or `control-plane`.
    pub role: String,
    /// `tpm2` or `simulated`.
    pub variant: String,
    /// Endorsement key in the form of the policy's `enrolled[].ek` and `revoked[]`: 64 hex digits.
    pub endorsement_key: String,
    /// How far it is.
    pub state: HostState,
    /// Stable name of the reason of the last refusal.
    pub verdict: Option<String>,
    /// For people.
    pub detail: Option<String>,
    /// Since when it is in that state, UTC ms, as far as the replica has seen it; 0: never reported.
    pub since: u64,
    /// What it asked for last.
    pub kind: String,
    /// Stage of its last progress.
    pub stage: Option<String>,
    /// Revision of the policy by which it was judged last.
    pub policy_revision: u64,
    /// PCRs of its last quote: hexadecimal values by index.
    pub pcrs: Option<BTreeMap<u8, String>>,
    /// Deviations that the policy lets pass, for people.
    pub warnings: Option<String>,
    /// The state disk that it names, if that is another host's; its device id is then its own ([`crate::names::keyed_host`]).
    pub foreign_disk: Option<Uuid>,
    /// When it was first seen, UTC ms.
    pub first_seen: u64,
    /// When it was last judged, UTC ms.
    pub last_seen: u64,
}

/// Columns of [`JoinHost::pcrs`].
struct Pcrs;

impl form::Columns for Pcrs {
    const KEY: &'static str = "Register";
    const VALUE: &'static str = "Value";
}

sparkplug::typed_metrics! {
    JoinHost {
        /// pending, refused, admitted, locked, member, locked-out, failed or revoked.
        state as form::Parsed => host::STATE,
        /// Why it is in that state: the refusal for people, or what the host last reported; null: nothing to say.
        detail => host::REASON,
        /// Since when it is in that state, as far as the replica has seen it.
        #[optional]
        since as form::DateTime => host::SINCE,
        /// Stable name of the last refusal; null: it was not refused.
        verdict => host::REFUSAL,
        /// PCRs that differ where the policy only warns, and other remarks; null: none.
        warnings => host::WARNINGS,
        /// Name of the Kubernetes node that it is or wants to be; empty: the service names it.
        name => host::NAME,
        /// worker or control-plane.
        role => host::ROLE,
        /// Form of its keys: tpm2, tpm2-event-log or simulated.
        variant => host::VARIANT,
        /// Endorsement key in the form in which a policy enrols and revokes it: 64 hex digits.
        endorsement_key => host::ENDORSEMENT_KEY,
        /// What it asked for last: join, rejoin or renew.
        kind => host::KIND,
        /// Stage of its last progress; null: none.
        stage => host::STAGE,
        /// Revision of the policy by which it was judged last.
        policy_revision => host::POLICY_REVISION,
        /// PCRs of its last quote, hexadecimal by decimal index; absent: no quote could be read.
        #[omit_null]
        pcrs as form::Nullable<form::Table<Pcrs>> => host::PCRS,
        /// The state disk that it names, if that is another host's; null: it is its own.
        #[optional]
        foreign_disk as form::Nullable<form::Uuid> => host::FOREIGN_DISK,
        /// When it was first seen.
        first_seen as form::DateTime => host::FIRST_SEEN,
        /// When it was last judged.
        last_seen as form::DateTime => host::LAST_SEEN,
    }
}

impl JoinHost {
    /// What makes the device with this id known, or brings it up to date: see [`host_device`] and [`crate::names::keyed_host`].
    #[must_use]
    pub fn to_update(&self, id: Uuid) -> NodeUpdate {
        NodeUpdate::DeviceBirth { device: host_device(id), metrics: self.to_metrics() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_survive_the_trip_as_metrics_and_names_are_fixed() {
        let host = JoinHost {
            name: "press-1".to_owned(),
            role: "worker".to_owned(),
            state: HostState::Pending,
            verdict: Some("approval-pending".to_owned()),
            since: 5,
            pcrs: Some([(4, "00".to_owned())].into()),
            foreign_disk: Some(Uuid::from_u128(7)),
            first_seen: 1,
            ..JoinHost::default()
        };
        for host in [host, JoinHost::default()] {
            let metrics = host.to_metrics();
            let listed: Vec<String> = metrics.iter().map(|m| format!("{} {:?}", m.name, m.datatype)).collect();
            let expected = [
                "Status/State String",
                "Status/Reason String",
                "Status/Since DateTime",
                "Status/Refusal String",
                "Status/Warnings String",
                "Host/Name String",
                "Host/Role String",
                "Host/Variant String",
                "Host/Endorsement_Key String",
                "Host/Kind String",
                "Host/Stage String",
                "Policy/Revision UInt64",
                "Host/Registers DataSet",
                "Host/Foreign_Disk Uuid",
                "Host/First_Seen DateTime",
                "Host/Last_Seen DateTime",
            ];
            // A birth omits a table without rows.
            let is_there = |name: &&&str| !name.ends_with("DataSet") || host.pcrs.is_some();
            assert_eq!(listed, expected.iter().filter(is_there).copied().collect::<Vec<_>>());
            assert_eq!(JoinHost::from_metrics(&metrics), Ok(host));
        }
    }

    #[test]
    fn states_go_both_ways() {
        for state in HostState::ALL {
            assert_eq!(state.to_string().parse(), Ok(*state));
        }
        assert!("in".parse::<HostState>().is_err());
    }
}
