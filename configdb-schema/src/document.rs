//! A Rust type for the entries of each application. Types of closed schemas refuse unknown keys; the others keep them in `extra`, so that
//! reading an entry and writing it back loses nothing. Free-form objects are [`serde_json::Value`].

mod access;
mod account;
mod agent;
mod alert;
mod attestation;
mod cluster;
mod deployment;
mod identity;
mod object;
mod rollout;
mod secret;
mod template;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use access::{ApiToken, TokenScope};
pub use account::EdgeAccount;
pub use agent::AgentConfig;
pub use alert::{AlertAcknowledgement, AlertAcknowledgements};
pub use attestation::{
    AttestationPolicy, BootRelease, BootRules, EndorsementProof, EndorsementRules, EnrolledHost, EvidenceVariant,
    LocalUnlock, PcrBank, PcrLock, PcrRule, PolicySignature,
};
pub use cluster::{
    AccountStep, EdgeCluster, EdgeClusterRecovery, EdgeClusterRollout, EdgeClusterSetup, EdgeClusterStatus, GitRef,
    Host, PodSecurity, RecoveryDecision, WAVE_MAX,
};
pub use deployment::EdgeDeployment;
pub use identity::{
    CertificateKind, CertificateState, EdgeClusterEnrolment, EdgeClusterIdentity, EnrolmentToken, IdentityAlert,
    IdentityAlertKind, IssuedCertificate, UsedToken,
};
pub use object::{Contact, Info, Membership, Registration, SparkplugAddress};
pub use rollout::{ChartRollout, RolloutDecision, RolloutWithout};
pub use secret::{SealedSecret, SealedValue, SealingScope};
pub use template::{
    BootstrapScript, FluxItem, FluxTemplate, GitAuth, GitConfig, GitPull, HelmChartTemplate, K8sTemplate, ResourceKind,
};

use crate::Application;

/// A free-form JSON object.
pub type JsonObject = serde_json::Map<String, serde_json::Value>;

/// The type of an application's entries.
pub trait Document: Serialize + DeserializeOwned {
    /// The application.
    fn application() -> &'static Application;

    /// Its slug: the name of the metric that carries it.
    #[must_use]
    fn slug() -> &'static str {
        Self::application().slug
    }
}

macro_rules! documents {
    ($($type:ident $application:ident;)*) => {
        $(impl Document for $type {
            fn application() -> &'static Application {
                &crate::application::$application
            }
        })*
    };
}
documents! {
    Info INFO;
    SparkplugAddress SPARKPLUG_ADDRESS;
    EdgeCluster EDGE_CLUSTER;
    EdgeClusterSetup EDGE_CLUSTER_SETUP;
    EdgeClusterStatus EDGE_CLUSTER_STATUS;
    EdgeClusterEnrolment EDGE_CLUSTER_ENROLMENT;
    EdgeClusterIdentity EDGE_CLUSTER_IDENTITY;
    EdgeClusterRollout EDGE_CLUSTER_ROLLOUT;
    ChartRollout CHART_ROLLOUT;
    EdgeClusterRecovery EDGE_CLUSTER_RECOVERY;
    FluxTemplate FLUX_TEMPLATE;
    HelmChartTemplate HELM_CHART_TEMPLATE;
    K8sTemplate K8S_TEMPLATE;
    BootstrapScript BOOTSTRAP_SCRIPT;
    EdgeDeployment EDGE_DEPLOYMENT;
    AgentConfig AGENT_CONFIG;
    GitConfig GIT_CONFIG;
    AttestationPolicy ATTESTATION_POLICY;
    ApiToken API_TOKEN;
    AlertAcknowledgements ALERT_ACKNOWLEDGEMENTS;
    EdgeAccount EDGE_ACCOUNT;
    SealedSecret SEALED_SECRET;
}

fn is_false(b: &bool) -> bool {
    !*b
}
