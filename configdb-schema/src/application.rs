//! The applications: for each its UUID, its slug, its name and the JSON Schema of its entries.

use uuid::Uuid;

use crate::known;

/// An application: an object under which every object may have one entry.
#[derive(Debug, PartialEq, Eq)]
pub struct Application {
    /// UUID of the application.
    pub uuid: Uuid,
    /// Name of the metric that carries its entries.
    pub slug: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// JSON Schema (2020-12) of its entries, as text.
    pub schema: &'static str,
}

macro_rules! applications {
    ($($name:ident $uuid:ident $slug:literal $text:literal $file:literal;)*) => {
        $(
            #[doc = $text]
            pub static $name: Application = Application {
                uuid: known::application::$uuid,
                slug: $slug,
                name: $text,
                schema: include_str!(concat!("../schemas/", $file)),
            };
        )*
        /// Every application that has a slug from the start. Others get theirs when they are created.
        pub static APPLICATIONS: &[&Application] = &[$(&$name),*];
    };
}

applications! {
    INFO INFO "Info" "General object information" "info.json";
    SPARKPLUG_ADDRESS SPARKPLUG_ADDRESS "SparkplugAddress" "Sparkplug address information" "sparkplug-address.json";
    CONFIG_SCHEMA CONFIG_SCHEMA "ConfigSchema" "App config schema" "config-schema.json";
    SERVICE_CONFIG SERVICE_CONFIG "ServiceConfig" "Service setup" "service-config.json";
    EDGE_CLUSTER EDGE_CLUSTER "EdgeCluster" "Edge cluster configuration" "edge-cluster.json";
    EDGE_CLUSTER_SETUP EDGE_CLUSTER_SETUP "EdgeClusterSetup" "Edge cluster setup status" "edge-cluster-setup.json";
    EDGE_CLUSTER_STATUS EDGE_CLUSTER_STATUS "EdgeClusterStatus" "Edge cluster status" "edge-cluster-status.json";
    EDGE_CLUSTER_ENROLMENT EDGE_CLUSTER_ENROLMENT "EdgeClusterEnrolment" "Edge cluster enrolment" "edge-cluster-enrolment.json";
    EDGE_CLUSTER_IDENTITY EDGE_CLUSTER_IDENTITY "EdgeClusterIdentity" "Edge cluster identity" "edge-cluster-identity.json";
    EDGE_CLUSTER_ROLLOUT EDGE_CLUSTER_ROLLOUT "EdgeClusterRollout" "Edge cluster rollout" "edge-cluster-rollout.json";
    CHART_ROLLOUT CHART_ROLLOUT "ChartRollout" "Chart rollout" "chart-rollout.json";
    EDGE_CLUSTER_RECOVERY EDGE_CLUSTER_RECOVERY "EdgeClusterRecovery" "Edge cluster recovery" "edge-cluster-recovery.json";
    FLUX_TEMPLATE FLUX_TEMPLATE "FluxTemplate" "Flux template" "flux-template.json";
    HELM_CHART_TEMPLATE HELM_CHART_TEMPLATE "HelmChartTemplate" "Helm chart template" "helm-chart-template.json";
    K8S_TEMPLATE K8S_TEMPLATE "K8sTemplate" "K8s resource template" "k8s-template.json";
    BOOTSTRAP_SCRIPT BOOTSTRAP_SCRIPT "BootstrapScript" "Bootstrap script" "bootstrap-script.json";
    EDGE_DEPLOYMENT EDGE_DEPLOYMENT "EdgeDeployment" "Edge deployment" "edge-deployment.json";
    AGENT_CONFIG AGENT_CONFIG "AgentConfig" "Edge Agent config" "agent-config.json";
    GIT_CONFIG GIT_CONFIG "GitConfig" "Git repository configuration" "git-config.json";
    ATTESTATION_POLICY ATTESTATION_POLICY "AttestationPolicy" "Attestation policy" "attestation-policy.json";
    API_TOKEN API_TOKEN "ApiToken" "API token" "api-token.json";
    ALERT_ACKNOWLEDGEMENTS ALERT_ACKNOWLEDGEMENTS "AlertAcknowledgements" "Alert acknowledgements" "alert-acknowledgements.json";
    EDGE_ACCOUNT EDGE_ACCOUNT "EdgeAccount" "Edge account" "edge-account.json";
    SEALED_SECRET SEALED_SECRET "SealedSecret" "Sealed secret" "sealed-secret.json";
}

/// JSON Schema of the computed registration of an object; it is never written as an entry.
pub static REGISTRATION_SCHEMA: &str = include_str!("../schemas/registration.json");

/// Metric that carries the computed registration.
pub const REGISTRATION_SLUG: &str = "Registration";

/// Metric that carries the direct relations of an object.
pub const MEMBERSHIP_SLUG: &str = "Membership";

/// The application with that slug, if it has one from the start.
#[must_use]
pub fn by_slug(slug: &str) -> Option<&'static Application> {
    APPLICATIONS.iter().copied().find(|a| a.slug == slug)
}

/// The application with that UUID, if it has a slug from the start.
#[must_use]
pub fn by_uuid(uuid: Uuid) -> Option<&'static Application> {
    APPLICATIONS.iter().copied().find(|a| a.uuid == uuid)
}

/// The slug of an application that is created with this name: letters, digits and `_` of it; `App` when none is left or when it would not start with a
/// letter. `taken` says which slugs are in use; then the first eight digits of the UUID are added, or all of it.
#[must_use]
pub fn slug(name: &str, uuid: Uuid, taken: impl Fn(&str) -> bool) -> String {
    let reduced: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(48).collect();
    let base = match reduced.chars().next() {
        Some(first) if first.is_ascii_alphabetic() => reduced,
        _ => format!("App{reduced}"),
    };
    let digits = uuid.simple().to_string();
    let reserved = |s: &str| s == REGISTRATION_SLUG || s == MEMBERSHIP_SLUG || taken(s);
    [base.clone(), format!("{base}_{}", &digits[..8])]
        .into_iter()
        .find(|s| !reserved(s))
        .unwrap_or_else(|| format!("{base}_{digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_and_uuids_of_applications_are_unique_and_found() {
        for (i, application) in APPLICATIONS.iter().enumerate() {
            assert_eq!(by_slug(application.slug), Some(*application));
            assert_eq!(by_uuid(application.uuid), Some(*application));
            assert!(APPLICATIONS[..i].iter().all(|a| a.slug != application.slug && a.uuid != application.uuid));
            assert!(
                known::application::OBJECTS.iter().any(|o| o.uuid == application.uuid && o.name == application.name)
            );
        }
        assert_eq!(by_slug("Registration"), None);
    }

    #[test]
    fn a_slug_keeps_letters_digits_and_underscores_and_is_made_unique() {
        let uuid = uuid::uuid!("12345678-0000-4000-8000-000000000000");
        let free = |_: &str| false;
        assert_eq!(slug("Robot cell: v2", uuid, free), "Robotcellv2");
        assert_eq!(slug("2nd", uuid, free), "App2nd");
        assert_eq!(slug("// +#", uuid, free), "App");
        assert_eq!(slug("Membership", uuid, free), "Membership_12345678");
        assert_eq!(slug("Info", uuid, |s| s == "Info"), "Info_12345678");
        assert_eq!(slug("Info", uuid, |s| s.len() < 20), "Info_12345678000040008000000000000000");
    }
}
