//! One Device per edge cluster: how far its set-up is, where its repository is, whether its Sync is alive and agrees.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sparkplug::typed::{Form as _, MetricValue, form};
use sparkplug::{DataType, Value};
use uuid::Uuid;

use crate::names;
use crate::secrets::{SecretTable, SecretsReport};

/// State of the set-up of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum SetupState {
    /// Seen, nothing done yet.
    #[default]
    Pending,
    /// Steps are under way.
    SettingUp,
    /// All steps are done and still true.
    Ready,
    /// The configuration cannot be followed; the reason says why, and its end ends this state.
    Refused,
    /// The configuration is gone; the tear-down is under way.
    Deleting,
    /// Configured again while the tear-down is under way; the set-up begins when that has ended.
    Waiting,
}

/// The last recorded step of a set-up or tear-down, in the order in which they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum SetupStep {
    /// Nothing is recorded.
    #[default]
    None,
    /// The configuration was accepted and copied.
    Spec,
    /// The cluster has its Sparkplug address.
    Address,
    /// The account for Flux exists.
    FluxAccount,
    /// The account for Kerberos keys exists.
    KrbkeysAccount,
    /// The repository is configured.
    GitConfig,
    /// The repository holds the manifests.
    Repository,
    /// Ready for the bootstrap.
    Ready,
    /// Tear-down: started; the edge has the command to remove its deployments.
    TearDown,
    /// Tear-down: the edge reports nothing left, or is not there.
    EdgeEmptied,
    /// Tear-down: both accounts are marked deleted.
    AccountsRemoved,
    /// Tear-down: address and repository configuration are gone.
    ConfigRemoved,
    /// Tear-down: the repository is served no longer; its storage stays.
    RepositoryClosed,
}

/// A text is not one of the allowed ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{rule}")]
pub struct TextError {
    /// The rule that it breaks.
    pub rule: &'static str,
}

macro_rules! text {
    ($type:ident, { $($variant:ident => $text:literal),* $(,)? }) => {
        impl $type {
            /// The text on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),*
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $type {
            type Err = TextError;

            fn from_str(text: &str) -> Result<Self, TextError> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(TextError { rule: concat!("must be one of", $(" ", $text),*) }),
                }
            }
        }
    };
}

text!(SetupState, {
    Pending => "pending",
    SettingUp => "setting-up",
    Ready => "ready",
    Refused => "refused",
    Deleting => "deleting",
    Waiting => "waiting",
});

text!(SetupStep, {
    None => "none",
    Spec => "spec",
    Address => "address",
    FluxAccount => "flux-account",
    KrbkeysAccount => "krbkeys-account",
    GitConfig => "git-config",
    Repository => "repository",
    Ready => "ready",
    TearDown => "tear-down",
    EdgeEmptied => "edge-emptied",
    AccountsRemoved => "accounts-removed",
    ConfigRemoved => "config-removed",
    RepositoryClosed => "repository-closed",
});

/// The set-up of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Setup {
    /// Its state.
    pub state: SetupState,
    /// Last recorded step.
    pub step: SetupStep,
    /// Why it does not go on, or what it waits for.
    pub reason: Option<String>,
    /// UTC ms since when `state` has its value.
    pub since: u64,
}

/// What the cluster's Sync shall have, and whether it says that it has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DesiredState {
    /// Version of the index, 0 before the first.
    pub version: u64,
    /// Digest of the index.
    pub digest: Option<String>,
    /// Sync reports this digest, from this store.
    pub agreed: bool,
    /// Why the edge holds what it is sent, until an operator decides; None: it does not.
    pub held: Option<String>,
    /// UTC ms since when the edge or its Join holds something.
    pub held_since: Option<u64>,
}

/// The attestation policy at the cluster's Join node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JoinReport {
    /// The Join node is alive.
    pub alive: bool,
    /// It has taken over the cluster's policy that ConfigDB stores.
    pub policy_agreed: bool,
    /// Revision of the policy that it has; 0: none.
    pub policy_revision: u64,
    /// What that policy does, in the words of Join: `unknown`, `none`, `in-force`, `invalid`; None: nothing was ever received from Join.
    pub policy_state: Option<String>,
    /// Why the policy admits no host.
    pub policy_error: Option<String>,
    /// Why Join holds what it is sent, until an operator decides; None: it does not.
    pub policy_held: Option<String>,
}

/// How the edge of a cluster is bootstrapped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BootstrapReport {
    /// Where the script is fetched with a token.
    pub url: Option<String>,
    /// ETag of the `EdgeClusterEnrolment` entry whose tokens open it.
    pub enrolment: Option<String>,
}

/// The identities of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdentityReport {
    /// Serial number of its newest certificate that counts; None: it has none.
    pub serial: Option<String>,
    /// UTC ms at which that ends.
    pub expires: Option<u64>,
    /// What an operator should look at, such as a token that was used twice.
    pub alert: Option<String>,
}

/// A login that only Identity can open. It says nothing to anyone else, and is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedLogin(pub Arc<[u8]>);

impl fmt::Debug for SealedLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedLogin({} bytes)", self.0.len())
    }
}

impl MetricValue for SealedLogin {
    const DATATYPE: DataType = DataType::Bytes;

    fn to_value(&self) -> Option<Value> {
        Some(Value::Bytes(Arc::clone(&self.0)))
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::Bytes(bytes) => Ok(Self(Arc::clone(bytes))),
            _ => Err("must be Bytes".to_owned()),
        }
    }
}

/// Refused deployments of one cluster with their reasons, bounded on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RefusedDeployments(pub BTreeMap<Uuid, String>);

impl RefusedDeployments {
    /// Largest table, in bytes of its texts, so that a Device fits into a message whatever is refused.
    pub const BYTES_MAX: usize = 64 * 1024;
    /// Largest reason, in bytes; a longer one is cut.
    pub const REASON_BYTES_MAX: usize = 1024;

    /// What is published. Where not all fit, the nil UUID says how many are left out.
    fn bounded(&self) -> BTreeMap<Uuid, String> {
        let mut bounded = BTreeMap::new();
        let mut bytes = 0;
        for (index, (uuid, reason)) in self.0.iter().enumerate() {
            let reason = &reason[..reason.floor_char_boundary(Self::REASON_BYTES_MAX)];
            // 48: the UUID, and what the encoding of a row adds.
            bytes += 48 + reason.len();
            if bytes > Self::BYTES_MAX - 128 {
                bounded.insert(Uuid::nil(), format!("{} more refused deployments", self.0.len() - index));
                break;
            }
            bounded.insert(*uuid, reason.to_owned());
        }
        bounded
    }
}

impl form::Columns for RefusedDeployments {
    const KEY: &'static str = "Deployment";
    const VALUE: &'static str = "Reason";
}

impl MetricValue for RefusedDeployments {
    const DATATYPE: DataType = DataType::DataSet;

    fn to_value(&self) -> Option<Value> {
        form::Table::<Self>::write(&self.bounded())
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        form::Table::<Self>::read(Some(value)).map(Self)
    }

    fn of_null() -> Option<Self> {
        Some(Self::default())
    }
}

/// Whether a cluster waits for other clusters, and others for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RolloutReport {
    /// Its wave.
    pub wave: u32,
    /// Deployments that wait until every earlier wave has settled.
    pub waiting: u32,
    /// What the first of them waits for.
    pub reason: Option<String>,
    /// Why its own repository keeps what it holds although a template has changed.
    pub repository: Option<String>,
    /// Why its own repository has not settled, so that those of later waves wait; None also in the last wave.
    pub unsettled: Option<String>,
}

/// The Device of one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterDevice {
    /// Its object in ConfigDB.
    pub uuid: Uuid,
    /// Name of the cluster.
    pub name: String,
    /// Its Sparkplug group.
    pub group: String,
    /// Its Kubernetes namespace.
    pub namespace: String,
    /// Its set-up.
    pub setup: Setup,
    /// URL of its repository.
    pub git_url: Option<String>,
    /// Commit of branch `main`.
    pub git_commit: Option<String>,
    /// The login of its repository, sealed to Identity.
    pub login: Option<SealedLogin>,
    /// Its Sync is alive.
    pub sync_alive: bool,
    /// UTC ms since when `sync_alive` has its value.
    pub sync_since: Option<u64>,
    /// What its Sync shall have.
    pub desired: DesiredState,
    /// Its refused deployments.
    pub deployments_refused: RefusedDeployments,
    /// Its Join node, and the policy there.
    pub join: JoinReport,
    /// Its bootstrap.
    pub bootstrap: BootstrapReport,
    /// Its identities.
    pub identity: IdentityReport,
    /// Its part in staged rollouts.
    pub rollout: RolloutReport,
    /// The secrets in its repository.
    pub secrets: SecretsReport,
}

impl ClusterDevice {
    /// Why the edge holds something of what it is sent, until an operator decides; None: it does not.
    #[must_use]
    pub fn held(&self) -> Option<&str> {
        self.desired.held.as_deref().or(self.join.policy_held.as_deref())
    }
}

// A reader of the Device of a manager of another version needs its UUID, name, group and state only.
sparkplug::typed_metrics! {
    ClusterDevice {
        /// Set-up of the cluster: pending, setting-up, ready, refused, deleting or waiting.
        setup.state as form::Parsed => names::STATUS_STATE,
        /// Why the set-up does not go on, or what it waits for; null: nothing.
        #[optional]
        setup.reason => names::STATUS_REASON,
        /// Since when the set-up is in that state.
        #[optional]
        setup.since as form::DateTime => names::STATUS_SINCE,
        /// Last step of the set-up, or of the tear-down, that is recorded.
        setup.step as form::Parsed => names::SETUP_STEP,
        /// Object of the cluster in ConfigDB.
        uuid as form::Uuid => names::CLUSTER_UUID,
        /// Name of the cluster.
        name => names::CLUSTER_NAME,
        /// Sparkplug group of the cluster.
        group => names::CLUSTER_GROUP,
        /// Kubernetes namespace on the cluster.
        #[optional]
        namespace => names::CLUSTER_NAMESPACE,
        /// URL of the cluster's repository; null before there is one.
        #[optional]
        git_url => names::GIT_URL,
        /// Commit of branch main of that repository.
        #[optional]
        git_commit => names::GIT_COMMIT,
        /// Login of that repository, sealed to Identity's enrolment key, for the cluster when it enrols or renews; null while there is none, or the key is not known.
        #[optional]
        login as form::Nullable<form::Plain> => names::GIT_LOGIN,
        /// The cluster's Sync is alive.
        #[optional]
        sync_alive => names::SYNC_ALIVE,
        /// Since when it is alive, or not; null: it was never seen.
        #[optional]
        sync_since as form::Nullable<form::DateTime> => names::SYNC_SINCE,
        /// Version of the index of deployments that the cluster shall have; 0 before the first.
        #[optional]
        desired.version => names::DESIRED_VERSION,
        /// Digest of that index.
        #[optional]
        desired.digest => names::DESIRED_DIGEST,
        /// Sync reports that very index, from the store of this control plane.
        #[optional]
        desired.agreed => names::DESIRED_AGREED,
        /// Why the edge holds what it is sent, until an operator decides; null: it does not.
        #[optional]
        desired.held => names::DESIRED_HELD,
        /// Since when the edge or its Join holds something; null: nothing is held.
        #[optional]
        desired.held_since as form::Nullable<form::DateTime> => names::HELD_SINCE,
        /// Deployments that cannot be rendered or that the edge refuses, and why; absent: none. The nil UUID says how many are left out.
        #[omit_null]
        deployments_refused => names::DEPLOYMENTS_REFUSED,
        /// The cluster's Join node is alive.
        #[optional]
        join.alive => names::JOIN_ALIVE,
        /// Join has taken over the cluster's attestation policy that ConfigDB stores.
        #[optional]
        join.policy_agreed => names::POLICY_AGREED,
        /// Revision of the policy that Join has; 0: none.
        #[optional]
        join.policy_revision => names::POLICY_REVISION,
        /// What that policy does: unknown, none, in-force or invalid; null: Join was never seen.
        #[optional]
        join.policy_state => names::POLICY_STATE,
        /// Why the policy admits no host, or why another policy is refused; null: nothing is wrong.
        #[optional]
        join.policy_error => names::POLICY_REASON,
        /// Why Join holds the policy that it is sent, until an operator decides; null: it does not.
        #[optional]
        join.policy_held => names::POLICY_HELD,
        /// Where the script that bootstraps the cluster is fetched with a token; null while it is not set up.
        #[optional]
        bootstrap.url => names::BOOTSTRAP_URL,
        /// ETag of the EdgeClusterEnrolment entry whose tokens open it.
        #[optional]
        bootstrap.enrolment => names::BOOTSTRAP_ENROLMENT,
        /// Serial number of the cluster's newest certificate that counts; null: it has none.
        #[optional]
        identity.serial => names::IDENTITY_SERIAL,
        /// When that certificate ends.
        #[optional]
        identity.expires as form::Nullable<form::DateTime> => names::IDENTITY_EXPIRES,
        /// What an operator should look at about the cluster's identities; null: nothing.
        #[optional]
        identity.alert => names::IDENTITY_ALERT,
        /// In which wave a changed template reaches the cluster, 1 to 9.
        #[optional]
        rollout.wave as form::Count => names::ROLLOUT_WAVE,
        /// Deployments that wait until every earlier wave has settled.
        #[optional]
        rollout.waiting as form::Count => names::ROLLOUT_WAITING,
        /// What the first of them waits for; null: none waits.
        #[optional]
        rollout.reason => names::ROLLOUT_REASON,
        /// Why the cluster's repository keeps what it holds although a template has changed; null: it does not.
        #[optional]
        rollout.repository => names::ROLLOUT_REPOSITORY,
        /// Why the cluster's repository has not settled, so that those of later waves wait; null also in the last wave.
        #[optional]
        rollout.unsettled => names::ROLLOUT_UNSETTLED,
        /// Keys of the sealed secrets in the cluster's repository, with the certificate that each is sealed for; absent: it has none.
        #[omit_null]
        secrets.stored as SecretTable => names::SECRETS_STORED,
        /// What of the secrets that ConfigDB has is not in the repository, and why; null: nothing.
        #[optional]
        secrets.reason => names::SECRETS_REASON,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::{StoredKey, StoredSecret, StoredSecrets};
    use configdb_schema::document::SealingScope;
    use sparkplug::{Metric, TypedMetrics};

    fn device() -> ClusterDevice {
        ClusterDevice {
            uuid: Uuid::from_u128(7),
            name: "Paint_Shop".to_owned(),
            group: "ACME-Paint_Shop".to_owned(),
            namespace: "fplus-edge".to_owned(),
            setup: Setup {
                state: SetupState::Refused,
                step: SetupStep::Address,
                reason: Some("no chart".to_owned()),
                since: 12,
            },
            git_url: Some("http://127.0.0.1:1/git/cluster/Paint_Shop".to_owned()),
            git_commit: None,
            login: Some(SealedLogin([1, 2].as_slice().into())),
            sync_alive: true,
            sync_since: Some(77),
            desired: DesiredState {
                version: 9,
                digest: Some("ab".to_owned()),
                agreed: false,
                held: Some("older".to_owned()),
                held_since: Some(5),
            },
            deployments_refused: RefusedDeployments([(Uuid::from_u128(1), "why \"so\"".to_owned())].into()),
            join: JoinReport {
                alive: true,
                policy_agreed: true,
                policy_revision: 4,
                policy_state: Some("invalid".to_owned()),
                policy_error: Some("pcrs: no PCR is enforced".to_owned()),
                policy_held: Some("another store".to_owned()),
            },
            bootstrap: BootstrapReport {
                url: Some("http://127.0.0.1:1/bootstrap/x".to_owned()),
                enrolment: Some("e".to_owned()),
            },
            identity: IdentityReport {
                serial: Some("4a01".to_owned()),
                expires: Some(99),
                alert: Some("a token was used again".to_owned()),
            },
            rollout: RolloutReport {
                wave: 2,
                waiting: 1,
                reason: Some("waits".to_owned()),
                repository: Some("waits as well".to_owned()),
                unsettled: Some("not ready".to_owned()),
            },
            secrets: SecretsReport {
                stored: Some(StoredSecrets(vec![StoredSecret {
                    namespace: "fplus-edge".to_owned(),
                    name: "login".to_owned(),
                    scope: SealingScope::Strict,
                    secret_type: "Opaque".to_owned(),
                    keys: [("password".to_owned(), StoredKey::default())].into(),
                }])),
                reason: Some("not a SealedSecret".to_owned()),
            },
        }
    }

    #[test]
    fn a_device_survives_the_wire() {
        assert_eq!(ClusterDevice::from_metrics(&device().to_metrics()).unwrap(), device());
        let empty = ClusterDevice::default();
        assert_eq!(ClusterDevice::from_metrics(&empty.to_metrics()).unwrap(), empty);
    }

    #[test]
    fn names_and_types_on_the_wire_are_fixed() {
        let expected = [
            "Status/State String",
            "Status/Reason String",
            "Status/Since DateTime",
            "Setup/Step String",
            "Cluster/UUID Uuid",
            "Cluster/Name String",
            "Cluster/Group String",
            "Cluster/Namespace String",
            "Git/Url String",
            "Git/Commit String",
            "Git/Login Bytes",
            "Sync/Alive Boolean",
            "Sync/Since DateTime",
            "Desired/Version UInt64",
            "Desired/Digest String",
            "Desired/Agreed Boolean",
            "Desired/Held String",
            "Desired/Held_Since DateTime",
            "Deployments/Refused DataSet",
            "Join/Alive Boolean",
            "Policy/Agreed Boolean",
            "Policy/Revision UInt64",
            "Policy/State String",
            "Policy/Reason String",
            "Policy/Held String",
            "Bootstrap/Url String",
            "Bootstrap/Enrolment String",
            "Identity/Serial String",
            "Identity/Expires DateTime",
            "Identity/Alert String",
            "Rollout/Wave UInt64",
            "Rollout/Waiting UInt64",
            "Rollout/Reason String",
            "Rollout/Repository String",
            "Rollout/Unsettled String",
            "Secrets/Stored DataSet",
            "Secrets/Reason String",
        ];
        for device in [device(), ClusterDevice::default()] {
            let metrics = device.to_metrics();
            let listed: Vec<String> = metrics.iter().map(|m| format!("{} {:?}", m.name, m.datatype)).collect();
            // A birth omits a table without rows: both are empty, or none.
            let is_there = |name: &&&str| !name.ends_with("DataSet") || !device.deployments_refused.0.is_empty();
            assert_eq!(listed, expected.iter().filter(is_there).copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_bad_value_is_named_and_changes_nothing() {
        let mut changed = device();
        let update = [Metric::new(names::CLUSTER_NAME, "Other"), Metric::new(names::STATUS_STATE, "done")];
        let error = changed.merge(&update).unwrap_err();
        assert_eq!(error.metric, names::STATUS_STATE);
        assert!(error.to_string().contains("setting-up"), "{error}");
        assert_eq!(changed, device());
        for (name, bad) in [
            (names::STATUS_SINCE, Metric::new(names::STATUS_SINCE, "now")),
            (names::SYNC_ALIVE, Metric::new(names::SYNC_ALIVE, 1_u32)),
            (names::DEPLOYMENTS_REFUSED, Metric::new(names::DEPLOYMENTS_REFUSED, "[]")),
            (names::CLUSTER_GROUP, Metric::null(names::CLUSTER_GROUP, DataType::String)),
        ] {
            assert_eq!(changed.merge(&[bad]).unwrap_err().metric, name);
        }
    }

    #[test]
    fn a_birth_without_its_state_is_refused() {
        let metrics: Vec<_> =
            device().to_metrics().into_iter().filter(|metric| &*metric.name != names::STATUS_STATE).collect();
        assert_eq!(ClusterDevice::from_metrics(&metrics).unwrap_err().metric, names::STATUS_STATE);
    }

    #[test]
    fn states_and_steps_are_read_as_they_are_written() {
        use SetupState as S;
        for state in [S::Pending, S::SettingUp, S::Ready, S::Refused, S::Deleting, S::Waiting] {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        use SetupStep as T;
        for step in [T::None, T::Spec, T::Address, T::FluxAccount, T::KrbkeysAccount, T::GitConfig, T::Repository]
            .into_iter()
            .chain([T::Ready, T::TearDown, T::EdgeEmptied, T::AccountsRemoved, T::ConfigRemoved, T::RepositoryClosed])
        {
            assert_eq!(step.as_str().parse(), Ok(step));
        }
    }

    #[test]
    fn refused_deployments_are_bounded_and_say_how_many_are_left_out() {
        let refused: BTreeMap<_, _> = (1..5_000).map(|n| (Uuid::from_u128(n), "\u{1}é".repeat(2_000))).collect();
        let value = RefusedDeployments(refused).to_value().unwrap();
        let read = RefusedDeployments::from_value(&value).unwrap();
        let bytes: usize = read.0.values().map(|reason| 36 + reason.len()).sum();
        assert!(bytes <= RefusedDeployments::BYTES_MAX, "{bytes}");
        let kept = read.0.len() - 1;
        assert_eq!(read.0[&Uuid::nil()], format!("{} more refused deployments", 4_999 - kept));
        assert!(kept >= 10, "{kept}");
    }
}
