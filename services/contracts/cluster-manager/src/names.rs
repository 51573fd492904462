//! Names on the wire: the node, its metrics, the metrics of a cluster's Device, the command.

use sparkplug::{DeviceId, EdgeNodeDescriptor, Metric, NameError};
use uuid::Uuid;

/// Edge node id of the cluster manager.
pub const NODE_ID: &str = "Cluster-Manager";

/// Value of `Properties/Service`.
pub const SERVICE: &str = "cluster-manager";

/// String: which service this node is.
pub const PROPERTIES_SERVICE: &str = "Properties/Service";
/// String: version of the program.
pub const PROPERTIES_VERSION: &str = "Properties/Version";
/// Boolean: what is behind the node is a simulator.
pub const PROPERTIES_SIMULATED: &str = "Properties/Simulated";

/// UInt64: clusters with a Device.
pub const CLUSTERS_TOTAL: &str = "Clusters/Total";
/// UInt64: clusters that are set up.
pub const CLUSTERS_READY: &str = "Clusters/Ready";
/// UInt64: clusters whose configuration is refused.
pub const CLUSTERS_REFUSED: &str = "Clusters/Refused";
/// UInt64: clusters under tear-down, those that wait for its end included.
pub const CLUSTERS_DELETING: &str = "Clusters/Deleting";
/// UInt64: clusters that hold what they are sent, until an operator decides.
pub const CLUSTERS_HELD: &str = "Clusters/Held";
/// DataSet of `Cluster` (name) and `UUID`: clusters whose edge sync is alive, and which ConfigDB does not have.
pub const CLUSTERS_UNKNOWN: &str = "Clusters/Unknown";
/// DataSet of `Repository` (path) and `Reason`: repositories of which the git server has not everything.
pub const REPOSITORIES_NOT_SERVED: &str = "Repositories/Not_Served";
/// UInt64: deployments on clusters that have a Device.
pub const DEPLOYMENTS_TOTAL: &str = "Deployments/Total";
/// Of the node UInt64: deployments that are refused centrally or by their edge. Of a Device DataSet of `Deployment` (UUID) and `Reason`.
pub const DEPLOYMENTS_REFUSED: &str = "Deployments/Refused";
/// String, of the node: JSON of the values that every deployment's chart gets, below those of its template.
pub const DEPLOYMENTS_VALUES: &str = "Deployments/Values";
/// String or null: version of the git server.
pub const GIT_VERSION: &str = "Git/Version";
/// Boolean: the git server is alive.
pub const GIT_ALIVE: &str = "Git/Alive";
/// String. Of the node: base URL of the git server. Of a Device: URL of the cluster's repository, null before there is one.
pub const GIT_URL: &str = "Git/Url";

/// String or null, of the node: URL of a repository on the git server of the site, with `{name}` for its name, where clusters follow that.
pub const GIT_EXTERNAL_URL: &str = "Git/External_Url";

/// String, of the node: public key that credentials of users who push are sealed to, base64url without padding.
pub const GIT_KEY: &str = "Git/Key";

/// String, of the node: which script bootstraps clusters, [`SCRIPT_SHIPPED`] or [`SCRIPT_SITE`].
pub const BOOTSTRAP_SCRIPT: &str = "Bootstrap/Script";
/// Value of [`BOOTSTRAP_SCRIPT`]: the one that comes with the manager.
pub const SCRIPT_SHIPPED: &str = "shipped";
/// Value of [`BOOTSTRAP_SCRIPT`]: the one in the `BootstrapScript` entry.
pub const SCRIPT_SITE: &str = "site";
/// String or null, of the node: why the `BootstrapScript` entry cannot be used.
pub const BOOTSTRAP_REASON: &str = "Bootstrap/Reason";

/// UUID: object of the cluster in ConfigDB.
pub const CLUSTER_UUID: &str = "Cluster/UUID";
/// String: name of the cluster, as recorded by its set-up; before that as configured.
pub const CLUSTER_NAME: &str = "Cluster/Name";
/// String: Sparkplug group of the cluster.
pub const CLUSTER_GROUP: &str = "Cluster/Group";
/// String: Kubernetes namespace on the cluster.
pub const CLUSTER_NAMESPACE: &str = "Cluster/Namespace";
/// String. Of a cluster: see [`crate::SetupState`]. Of a shared repository: `served` or `not-served`.
pub const STATUS_STATE: &str = "Status/State";
/// String: last recorded step, see [`crate::SetupStep`].
pub const SETUP_STEP: &str = "Setup/Step";
/// String or null. Of a cluster: why the set-up does not go on, or what it waits for. Of a shared repository: why it is not served.
pub const STATUS_REASON: &str = "Status/Reason";
/// DateTime: since when `Status/State` has its value.
pub const STATUS_SINCE: &str = "Status/Since";
/// String or null: commit of branch `main` of the cluster's repository.
pub const GIT_COMMIT: &str = "Git/Commit";
/// Bytes or null: login of the cluster's repository, sealed to Identity's enrolment key; null while the repository is not open, or the key is not known.
pub const GIT_LOGIN: &str = "Git/Login";
/// Boolean: the cluster's Sync is alive.
pub const SYNC_ALIVE: &str = "Sync/Alive";
/// DateTime or null: since when `Sync/Alive` has its value; null if no message of Sync was ever received.
pub const SYNC_SINCE: &str = "Sync/Since";
/// UInt64: version of the index that the cluster shall have, 0 before the first.
pub const DESIRED_VERSION: &str = "Desired/Version";
/// String or null: digest of that index.
pub const DESIRED_DIGEST: &str = "Desired/Digest";
/// Boolean: Sync reports that digest, from the store of this control plane.
pub const DESIRED_AGREED: &str = "Desired/Agreed";

/// String or null: why the edge holds what it is sent, until an operator decides with `sparkfleet recover`.
pub const DESIRED_HELD: &str = "Desired/Held";

/// DateTime or null: since when the edge or its Join holds something.
pub const HELD_SINCE: &str = "Desired/Held_Since";

/// String or null: where the script that bootstraps the cluster is fetched with a token; null while it is not set up.
pub const BOOTSTRAP_URL: &str = "Bootstrap/Url";
/// String or null: ETag of the `EdgeClusterEnrolment` entry whose tokens open it.
pub const BOOTSTRAP_ENROLMENT: &str = "Bootstrap/Enrolment";

/// Boolean: the cluster's Join node is alive.
pub const JOIN_ALIVE: &str = "Join/Alive";
/// Boolean: Join has taken over the attestation policy of the cluster that ConfigDB stores.
pub const POLICY_AGREED: &str = "Policy/Agreed";
/// UInt64: revision of the policy that Join has; 0: none.
pub const POLICY_REVISION: &str = "Policy/Revision";
/// String or null: what that policy does: `unknown`, `none`, `in-force`, `invalid`; null if no message of Join was ever received.
pub const POLICY_STATE: &str = "Policy/State";
/// String or null: why the policy admits no host.
pub const POLICY_REASON: &str = "Policy/Reason";

/// String or null: why Join holds the policy that it is sent, until an operator decides.
pub const POLICY_HELD: &str = "Policy/Held";

/// String or null: serial number of the cluster's newest certificate that counts.
pub const IDENTITY_SERIAL: &str = "Identity/Serial";
/// DateTime or null: when that ends.
pub const IDENTITY_EXPIRES: &str = "Identity/Expires";
/// String or null: what an operator should look at about the cluster's identities.
pub const IDENTITY_ALERT: &str = "Identity/Alert";
/// UInt64: in which wave a changed template reaches the cluster, 1 to 9.
pub const ROLLOUT_WAVE: &str = "Rollout/Wave";
/// UInt64: deployments of the cluster that wait until every earlier wave has settled.
pub const ROLLOUT_WAITING: &str = "Rollout/Waiting";
/// String or null: what the first of them waits for.
pub const ROLLOUT_REASON: &str = "Rollout/Reason";
/// String or null: why the cluster's own repository keeps what it holds although a template has changed.
pub const ROLLOUT_REPOSITORY: &str = "Rollout/Repository";
/// String or null: why the cluster's own repository has not settled, so that those of later waves wait; null also in the last wave.
pub const ROLLOUT_UNSETTLED: &str = "Rollout/Unsettled";
/// String or null: JSON, the sealed secrets in the cluster's repository by their names ([`crate::StoredSecrets`]); null: it has none.
pub const SECRETS_STORED: &str = "Secrets/Stored";
/// String or null: what of the secrets that ConfigDB has is not in the repository, and why.
pub const SECRETS_REASON: &str = "Secrets/Reason";

/// String: path of a shared repository on the git server.
pub const REPOSITORY_PATH: &str = "Repository/Path";
/// Last part of `Pull/<branch>/Url`, String or null: from where a branch is pulled.
pub const PULL_URL: &str = "Url";
/// Last part of `Pull/<branch>/Commit`, String or null: what was pulled last.
pub const PULL_COMMIT: &str = "Commit";
/// Last part of `Pull/<branch>/At`, DateTime or null: when a pull went well last.
pub const PULL_AT: &str = "At";
/// Last part of `Pull/<branch>/Reason`, String or null: why the last pull did not go well.
pub const PULL_REASON: &str = "Reason";
/// Last part of `Pull/<branch>/Diverged`, Boolean: the branch that should follow has commits of its own.
pub const PULL_DIVERGED: &str = "Diverged";

/// DCMD to the Device of a shared repository, Boolean true: pull all its branches at once.
pub const PULL_NOW: &str = "Pull/Now";

/// DCMD, Boolean true: forget all waiting times of this cluster and try everything again.
pub const SETUP_RETRY: &str = "Setup/Retry";

/// The manager's Edge Node in an organisation, `<ORG>-Central/Cluster-Manager`.
///
/// # Errors
/// The organisation's prefix makes no group id.
pub fn node(organisation: &str) -> Result<EdgeNodeDescriptor, NameError> {
    EdgeNodeDescriptor::parse(&format!("{organisation}-Central"), NODE_ID)
}

/// Device id of a cluster: its name, if that has only letters, digits and `_`, as the name of every cluster that is not refused. Otherwise [`unnamed_device`]. Which cluster a Device belongs to says
/// [`CLUSTER_UUID`].
#[must_use]
pub fn device(cluster: Uuid, name: &str) -> DeviceId {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let named = DeviceId::new(name).ok().filter(|_| name.chars().all(is_name));
    named.unwrap_or_else(|| unnamed_device(cluster))
}

/// Device id of a cluster whose name is not an id, or that of the Device of another cluster: its UUID, lower-case and hyphenated.
#[must_use]
pub fn unnamed_device(cluster: Uuid) -> DeviceId {
    DeviceId::new(cluster.hyphenated().to_string()).expect("hex digits and hyphens are allowed in a device id")
}

/// Metrics of the DCMD that asks for a retry.
#[must_use]
pub fn retry_command() -> Vec<Metric> {
    vec![Metric::new(SETUP_RETRY, true)]
}

/// Whether a DCMD asks for a retry.
#[must_use]
pub fn is_retry(metrics: &[Metric]) -> bool {
    is_true(metrics, SETUP_RETRY)
}

/// Whether a DCMD asks for a pull.
#[must_use]
pub fn is_pull(metrics: &[Metric]) -> bool {
    is_true(metrics, PULL_NOW)
}

fn is_true(metrics: &[Metric], name: &str) -> bool {
    metrics.iter().any(|metric| &*metric.name == name && metric.as_bool() == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_id_is_the_name_or_else_the_uuid_and_has_no_dot() {
        let uuid = Uuid::from_u128(0xABCD);
        assert_eq!(device(uuid, "Paint_Shop").as_str(), "Paint_Shop");
        for refused in ["", "a.b", "a/b", "Süd", "repository-1"] {
            assert_eq!(device(uuid, refused).as_str(), "00000000-0000-0000-0000-00000000abcd", "{refused}");
        }
    }

    #[test]
    fn only_a_true_retry_is_one() {
        assert!(is_retry(&retry_command()));
        assert!(!is_retry(&[Metric::new(SETUP_RETRY, false)]));
        assert!(!is_retry(&[Metric::new(SETUP_RETRY, "true")]));
        assert!(!is_retry(&[]));
    }

    #[test]
    fn the_node_belongs_to_the_central_group() {
        assert_eq!(node("ACME").unwrap().to_string(), "ACME-Central/Cluster-Manager");
        assert!(node("A/B").is_err());
    }
}
