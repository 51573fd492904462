//! What a host says of its way in, for people and dashboards. No secret is in it.

use crate::names::{
    ACTIVITY, ADMINISTRATOR, ATTEMPTS, DISTRIBUTION, IGNORED, KIND, KUBERNETES_VERSION, LAST_ERROR, NODE_NAME,
    REFUSALS, ROLE, SERVICE, SERVICE_NAME, SIMULATED, STAGE, STATE, VARIANT, VERSION,
};

/// The readable metrics of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostNode {
    /// Version of the software.
    pub version: String,
    /// Its attester proves nothing.
    pub simulated: bool,
    /// Where it stands: a condition of the join protocol (`awaits-challenge`, `awaits-tpm`, `awaits-ticket`, `opened`, `committed`, `resting`, `stopped`), `member`, or `failed`.
    pub state: String,
    /// The last stage of the join protocol that it reached with its ticket.
    pub stage: Option<String>,
    /// What it does at the moment.
    pub activity: Option<String>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// What it asks for.
    pub kind: String,
    /// What it wants to be.
    pub role: String,
    /// The name that it asks for, or has.
    pub node_name: Option<String>,
    /// Its Kubernetes distribution.
    pub distribution: String,
    /// Variant of its attestation.
    pub variant: String,
    /// Attempts begun.
    pub attempts: u64,
    /// Refusals believed.
    pub refusals: u64,
    /// Messages not believed.
    pub ignored: u64,
    /// Kubernetes version of its ticket.
    pub kubernetes_version: Option<String>,
    /// It asks an administrator, too.
    pub administrator: bool,
}

sparkplug::typed_metrics! {
    HostNode {
        /// Which service the node is.
        (|_| SERVICE_NAME.into()) => SERVICE,
        /// Version of the software.
        #[optional]
        version => VERSION,
        /// The host is a simulation: its attester proves nothing.
        #[optional]
        simulated => SIMULATED,
        /// Where the host stands: a condition of the join protocol, member or failed.
        state => STATE,
        /// Last stage of the join protocol that it reached with its ticket; null without one.
        stage => STAGE,
        /// What it does at the moment; null: nothing of note.
        activity => ACTIVITY,
        /// What went wrong last; null: nothing.
        last_error => LAST_ERROR,
        /// What it asks for: join, rejoin, init, recover or renew.
        kind => KIND,
        /// worker or control-plane.
        role => ROLE,
        /// Name of the Kubernetes node that it asks for, or has; null: the issuer names it.
        node_name => NODE_NAME,
        /// kubeadm or k3s.
        distribution => DISTRIBUTION,
        /// Variant of its attestation.
        variant => VARIANT,
        /// Attempts begun since the process started.
        attempts => ATTEMPTS,
        /// Refusals believed since the process started.
        refusals => REFUSALS,
        /// Messages that were not believed since the process started.
        ignored => IGNORED,
        /// Kubernetes version of the ticket; null without one.
        kubernetes_version => KUBERNETES_VERSION,
        /// The host asks an administrator, too. True as a command: it does so for ten minutes; false: no longer.
        #[writable]
        administrator => ADMINISTRATOR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::TypedMetrics;

    #[test]
    fn names_and_types_on_the_wire_are_fixed_and_only_changes_are_published() {
        let node = HostNode { state: "awaits-challenge".to_owned(), ..HostNode::default() };
        let metrics = node.to_metrics();
        let listed: Vec<String> = metrics.iter().map(|m| format!("{} {:?}", m.name, m.datatype)).collect();
        let expected = [
            (SERVICE, "String"),
            (VERSION, "String"),
            (SIMULATED, "Boolean"),
            (STATE, "String"),
            (STAGE, "String"),
            (ACTIVITY, "String"),
            (LAST_ERROR, "String"),
            (KIND, "String"),
            (ROLE, "String"),
            (NODE_NAME, "String"),
            (DISTRIBUTION, "String"),
            (VARIANT, "String"),
            (ATTEMPTS, "UInt64"),
            (REFUSALS, "UInt64"),
            (IGNORED, "UInt64"),
            (KUBERNETES_VERSION, "String"),
            (ADMINISTRATOR, "Boolean"),
        ];
        assert_eq!(listed, expected.map(|(name, datatype)| format!("{name} {datatype}")));
        assert_eq!(HostNode::from_metrics(&metrics), Ok(node.clone()));
        let later = HostNode { state: "member".to_owned(), attempts: 1, ..node.clone() };
        let changed: Vec<String> = later.changes_since(&node).iter().map(|m| m.name.to_string()).collect();
        assert_eq!(changed, [STATE, ATTEMPTS]);
    }
}
