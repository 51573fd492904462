//! Names on the wire: the node and its metrics. Nothing else may spell them.

use sparkplug::{EdgeNodeDescriptor, NameError};

/// Edge node id of Identity.
pub const NODE_ID: &str = configdb_schema::address::IDENTITY_NODE;

/// Value of [`PROPERTIES_SERVICE`].
pub const SERVICE: &str = "identity";

/// String: which service this node is.
pub const PROPERTIES_SERVICE: &str = "Properties/Service";
/// String: version of the program.
pub const PROPERTIES_VERSION: &str = "Properties/Version";
/// Boolean: what is behind the node is a simulator.
pub const PROPERTIES_SIMULATED: &str = "Properties/Simulated";

/// String: public key that requests for enrolment, and logins of repositories, are sealed to, base64url without padding.
pub const ENROLMENT_KEY: &str = "Enrolment/Key";
/// UInt64: clusters that ask and are not answered yet.
pub const ENROLMENT_WAITING: &str = "Enrolment/Waiting";
/// DateTime: when the authority's certificate ends.
pub const AUTHORITY_EXPIRES: &str = "Authority/Expires";
/// String or null: why no certificate is issued.
pub const AUTHORITY_ALERT: &str = "Authority/Alert";
/// UInt64: clusters that have a certificate that is not revoked.
pub const CERTIFICATES_CLUSTERS: &str = "Certificates/Clusters";
/// UInt64: certificates that are revoked and have not ended.
pub const CERTIFICATES_REVOKED: &str = "Certificates/Revoked";
/// DateTime or null: when the first of the watched revocation lists ends.
pub const REVOCATIONS_NEXT_UPDATE: &str = "Revocations/Next_Update";
/// String or null: what an operator has to do about a revocation list.
pub const REVOCATIONS_ALERT: &str = "Revocations/Alert";

/// Identity's Edge Node in an organisation, `<ORG>-Central/Identity`.
///
/// # Errors
/// The organisation's prefix makes no group id.
pub fn node(organisation: &str) -> Result<EdgeNodeDescriptor, NameError> {
    EdgeNodeDescriptor::parse(&format!("{organisation}-{}", configdb_schema::address::CENTRAL), NODE_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_belongs_to_the_central_group() {
        assert_eq!(node("ACME").unwrap().to_string(), "ACME-Central/Identity");
        assert!(node("A/B").is_err());
    }
}
