//! Metrics of the node.

use sparkplug::typed::form;

use crate::names;

/// What Identity says of itself. No secret is in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdentityNode {
    /// Version of the program.
    pub version: String,
    /// Public key that requests and logins are sealed to, base64url without padding.
    pub key: String,
    /// Clusters that ask and are not answered yet.
    pub waiting: u32,
    /// UTC ms at which the authority's certificate ends; None: not known.
    pub authority_expires: Option<u64>,
    /// Why no certificate is issued; None: nothing is in the way.
    pub authority_alert: Option<String>,
    /// Clusters that have a certificate that is not revoked.
    pub clusters: u32,
    /// Certificates that are revoked and have not ended.
    pub revoked: u32,
    /// UTC ms at which the first of the watched revocation lists ends; None: none was read.
    pub revocations_next_update: Option<u64>,
    /// What an operator has to do about a revocation list; None: nothing.
    pub revocations_alert: Option<String>,
}

sparkplug::typed_metrics! {
    IdentityNode {
        /// Which service the node is.
        (|_| names::SERVICE.into()) => names::PROPERTIES_SERVICE,
        /// Version of the software.
        #[optional]
        version => names::PROPERTIES_VERSION,
        /// What stands behind the node is a simulator.
        (|_| false.into()) => names::PROPERTIES_SIMULATED,
        /// Public key that requests for enrolment are sealed to, and by which the cluster manager seals the logins of repositories, base64url without padding.
        key => names::ENROLMENT_KEY,
        /// Clusters that ask and are not answered yet.
        #[optional]
        waiting as form::Count => names::ENROLMENT_WAITING,
        /// When the authority's certificate ends.
        #[optional]
        authority_expires as form::Nullable<form::DateTime> => names::AUTHORITY_EXPIRES,
        /// Why no certificate is issued, such as keys that are not those that ConfigDB names; null: nothing is in the way.
        #[optional]
        authority_alert => names::AUTHORITY_ALERT,
        /// Clusters that have a certificate that is not revoked.
        #[optional]
        clusters as form::Count => names::CERTIFICATES_CLUSTERS,
        /// Certificates of clusters that are revoked and have not ended.
        #[optional]
        revoked as form::Count => names::CERTIFICATES_REVOKED,
        /// When the first of the watched revocation lists ends; null: none was read.
        #[optional]
        revocations_next_update as form::Nullable<form::DateTime> => names::REVOCATIONS_NEXT_UPDATE,
        /// What an operator has to do about a revocation list, such as one that is past half of its validity; null: nothing.
        #[optional]
        revocations_alert => names::REVOCATIONS_ALERT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::TypedMetrics;

    #[test]
    fn what_was_written_is_read() {
        let node = IdentityNode {
            version: "1.2.3".to_owned(),
            key: "KEY".to_owned(),
            waiting: 1,
            authority_expires: Some(1_900_000_000_000),
            authority_alert: Some("lost".to_owned()),
            clusters: 7,
            revoked: 2,
            revocations_next_update: Some(1_800_000_000_000),
            revocations_alert: Some("old".to_owned()),
        };
        assert_eq!(IdentityNode::from_metrics(&node.to_metrics()), Ok(node));
    }
}
