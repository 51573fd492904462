//! One Device per edge cluster: how far its set-up is, where its repository is, whether its Sync is alive and agrees.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::Value as Json;
use sparkplug::typed::{MetricValue, form};
use sparkplug::{DataType, Value};
use uuid::Uuid;

use crate::names;

/// Where the set-up of a cluster stands.
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
    /// Tear-down: begun; the edge is told to remove its deployments.
    TearDown,
    /// Tear-down: the edge reports nothing left, or is not there.
    EdgeEmptied,
    /// Tear-down: both accounts are marked deleted.
    AccountsRemoved,
    /// Tear-down: address and repository configuration are gone.
    ConfigRemoved,
    /// Tear-down: the repository is served no more; its storage stays.
    RepositoryClosed,
}

/// A text is none of those that are allowed, or not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{rule}")]
pub struct TextError {
    /// The rule that it breaks.
    pub rule: &'static str,
}

macro_rules! text {
    ($type:ident, { $($variant:ident => $text:literal),* $(,)? }) => {
        impl $type {
            /// As it stands on the wire.
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
    /// Where it stands.
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
    /// It has taken the cluster's policy over, as it stands in ConfigDB.
    pub policy_agreed: bool,
    /// Revision of the policy that it has; 0: none.
    pub policy_revision: u64,
    /// What that policy does, in the words of Join: `unknown`, `none`, `in-force`, `invalid`; None: Join was never heard.
    pub policy_state: Option<String>,
    /// Why nobody is admitted by it.
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

/// Refused deployments of one cluster with their reasons, bounded on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RefusedDeployments(pub BTreeMap<Uuid, String>);

impl RefusedDeployments {
    /// Largest JSON text, in bytes, so that a Device fits into a message whatever is refused.
    pub const BYTES_MAX: usize = 64 * 1024;
    /// Largest reason, in bytes; a longer one is cut.
    pub const REASON_BYTES_MAX: usize = 1024;

    /// JSON `{deployment uuid: reason}`. Where not all fit, the nil UUID says how many are left out.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut object = serde_json::Map::new();
        let mut bytes = 0;
        for (index, (uuid, reason)) in self.0.iter().enumerate() {
            let reason = cut(reason, Self::REASON_BYTES_MAX);
            // 48: the key, its quotes, the colon and the comma.
            bytes += 48 + Json::from(reason).to_string().len();
            if bytes > Self::BYTES_MAX - 128 {
                let left_out = self.0.len() - index;
                object.insert(Uuid::nil().to_string(), Json::from(format!("{left_out} more refused deployments")));
                break;
            }
            object.insert(uuid.to_string(), Json::from(reason));
        }
        Json::Object(object).to_string()
    }

    /// Reads what [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// It is not a JSON object from UUIDs to texts.
    pub fn from_json(text: &str) -> Result<Self, TextError> {
        let rule = "must be a JSON object from deployment UUIDs to reasons";
        serde_json::from_str(text).map(Self).map_err(|_| TextError { rule })
    }
}

impl MetricValue for RefusedDeployments {
    const DATATYPE: DataType = DataType::String;

    fn to_value(&self) -> Option<Value> {
        Some(self.to_json().into())
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        Self::from_json(value.as_str().unwrap_or_default()).map_err(|error| error.to_string())
    }
}

fn cut(text: &str, bytes_max: usize) -> &str {
    match text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= bytes_max).last() {
        Some(end) => &text[..end],
        None => "",
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
}

impl ClusterDevice {
    /// Why the edge holds something of what it is sent, until an operator decides; None: it does not.
    #[must_use]
    pub fn held(&self) -> Option<&str> {
        self.desired.held.as_deref().or(self.join.policy_held.as_deref())
    }
}

// Who reads the Device of a manager of another version needs its name, group and state only.
sparkplug::typed_metrics! {
    ClusterDevice {
        name => names::CLUSTER_NAME,
        group => names::CLUSTER_GROUP,
        #[optional]
        namespace => names::CLUSTER_NAMESPACE,
        setup.state as form::Parsed => names::SETUP_STATE,
        setup.step as form::Parsed => names::SETUP_STEP,
        #[optional]
        setup.reason => names::SETUP_REASON,
        #[optional]
        setup.since as form::DateTime => names::SETUP_SINCE,
        #[optional]
        git_url => names::GIT_URL,
        #[optional]
        git_commit => names::GIT_COMMIT,
        #[optional]
        sync_alive => names::SYNC_ALIVE,
        #[optional]
        sync_since as form::Nullable<form::DateTime> => names::SYNC_SINCE,
        #[optional]
        desired.version => names::DESIRED_VERSION,
        #[optional]
        desired.digest => names::DESIRED_DIGEST,
        #[optional]
        desired.agreed => names::DESIRED_AGREED,
        #[optional]
        desired.held => names::DESIRED_HELD,
        #[optional]
        desired.held_since as form::Nullable<form::DateTime> => names::HELD_SINCE,
        #[optional]
        deployments_refused => names::DEPLOYMENTS_REFUSED,
        #[optional]
        join.alive => names::JOIN_ALIVE,
        #[optional]
        join.policy_agreed => names::POLICY_AGREED,
        #[optional]
        join.policy_revision => names::POLICY_REVISION,
        #[optional]
        join.policy_state => names::POLICY_STATE,
        #[optional]
        join.policy_error => names::POLICY_ERROR,
        #[optional]
        join.policy_held => names::POLICY_HELD,
        #[optional]
        bootstrap.url => names::BOOTSTRAP_URL,
        #[optional]
        bootstrap.enrolment => names::BOOTSTRAP_ENROLMENT,
        #[optional]
        identity.serial => names::IDENTITY_SERIAL,
        #[optional]
        identity.expires as form::Nullable<form::DateTime> => names::IDENTITY_EXPIRES,
        #[optional]
        identity.alert => names::IDENTITY_ALERT,
        #[optional]
        rollout.wave => names::ROLLOUT_WAVE,
        #[optional]
        rollout.waiting => names::ROLLOUT_WAITING,
        #[optional]
        rollout.reason => names::ROLLOUT_REASON,
        #[optional]
        rollout.repository => names::ROLLOUT_REPOSITORY,
        #[optional]
        rollout.unsettled => names::ROLLOUT_UNSETTLED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::{Metric, TypedMetrics};

    fn device() -> ClusterDevice {
        ClusterDevice {
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
                policy_error: Some("pcrs: no register is enforced".to_owned()),
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
            "Cluster/Name String",
            "Cluster/Group String",
            "Cluster/Namespace String",
            "Setup/State String",
            "Setup/Step String",
            "Setup/Reason String",
            "Setup/Since DateTime",
            "Git/Url String",
            "Git/Commit String",
            "Sync/Alive Boolean",
            "Sync/Since DateTime",
            "Desired/Version UInt64",
            "Desired/Digest String",
            "Desired/Agreed Boolean",
            "Desired/Held String",
            "Desired/Held Since DateTime",
            "Deployments/Refused String",
            "Join/Alive Boolean",
            "Policy/Agreed Boolean",
            "Policy/Revision UInt64",
            "Policy/State String",
            "Policy/Error String",
            "Policy/Held String",
            "Bootstrap/Url String",
            "Bootstrap/Enrolment String",
            "Identity/Serial String",
            "Identity/Expires DateTime",
            "Identity/Alert String",
            "Rollout/Wave UInt32",
            "Rollout/Waiting UInt32",
            "Rollout/Reason String",
            "Rollout/Repository String",
            "Rollout/Unsettled String",
        ];
        for device in [device(), ClusterDevice::default()] {
            let metrics = device.to_metrics();
            let listed: Vec<String> = metrics.iter().map(|m| format!("{} {:?}", m.name, m.datatype)).collect();
            assert_eq!(listed, expected);
        }
    }

    #[test]
    fn a_bad_value_is_named_and_changes_nothing() {
        let mut changed = device();
        let update = [Metric::new(names::CLUSTER_NAME, "Other"), Metric::new(names::SETUP_STATE, "done")];
        let error = changed.merge(&update).unwrap_err();
        assert_eq!(error.metric, names::SETUP_STATE);
        assert!(error.to_string().contains("setting-up"), "{error}");
        assert_eq!(changed, device());
        for (name, bad) in [
            (names::SETUP_SINCE, Metric::new(names::SETUP_SINCE, "now")),
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
            device().to_metrics().into_iter().filter(|metric| &*metric.name != names::SETUP_STATE).collect();
        assert_eq!(ClusterDevice::from_metrics(&metrics).unwrap_err().metric, names::SETUP_STATE);
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
        let refused = (1..5_000).map(|n| (Uuid::from_u128(n), "\u{1}é".repeat(2_000))).collect();
        let json = RefusedDeployments(refused).to_json();
        assert!(json.len() <= RefusedDeployments::BYTES_MAX, "{}", json.len());
        let read = RefusedDeployments::from_json(&json).unwrap();
        let kept = read.0.len() - 1;
        assert_eq!(read.0[&Uuid::nil()], format!("{} more refused deployments", 4_999 - kept));
        assert!(kept >= 10, "{kept}");
    }
}
