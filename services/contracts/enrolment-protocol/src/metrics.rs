//! How the messages travel as Sparkplug metrics, and the Edge Node that they travel by: `<ORG>-Enrol/<cluster uuid>`.

use std::sync::Arc;

use configdb_schema::{ClusterName, Organisation};
use sparkplug::{EdgeNodeDescriptor, EdgeNodeId, GroupId, Metric, NameError, Value};
use uuid::Uuid;

/// The request (Bytes; in NBIRTH).
pub const REQUEST: &str = "Enrol/Request";
/// How often it was asked (UInt64; in NBIRTH and NDATA): asks again without a birth.
pub const ATTEMPT: &str = "Enrol/Attempt";
/// `asking`, `refused` or `enrolled` (String; in NBIRTH and NDATA).
pub const STATE: &str = "Enrol/State";
/// The answer (Bytes; in NCMD).
pub const ANSWER: &str = "Enrol/Answer";

/// The Edge Node of a cluster that enrols.
///
/// # Errors
/// The organisation makes no group.
pub fn node(organisation: &Organisation, cluster: Uuid) -> Result<EdgeNodeDescriptor, NameError> {
    let group = GroupId::new(organisation.enrol_group())?;
    Ok(EdgeNodeDescriptor { group, edge_node: EdgeNodeId::new(cluster.hyphenated().to_string())? })
}

/// Id of the Edge Node by which a cluster that is in asks for the renewal of its certificate, in its own group.
pub const RENEWAL_NODE: &str = configdb_schema::address::IDENTITY_NODE;

/// The Edge Node of a cluster that renews its certificate while that is valid.
///
/// # Errors
/// The names make no group.
pub fn renewal_node(organisation: &Organisation, cluster: &ClusterName) -> Result<EdgeNodeDescriptor, NameError> {
    EdgeNodeDescriptor::parse(&organisation.cluster_group(cluster), RENEWAL_NODE)
}

/// The cluster that an Edge Node of the quarantine group speaks for. None: it is of another group, or its id is not a UUID in its one written form.
#[must_use]
pub fn cluster_of(organisation: &Organisation, node: &EdgeNodeDescriptor) -> Option<Uuid> {
    let id = node.edge_node.as_str();
    let uuid = Uuid::try_parse(id).ok().filter(|_| node.group.as_str() == organisation.enrol_group())?;
    (uuid.hyphenated().to_string() == id).then_some(uuid)
}

/// The bytes of a message among metrics.
#[must_use]
pub fn bytes_of(metrics: &[Metric], name: &str) -> Option<Arc<[u8]>> {
    metrics.iter().find(|metric| &*metric.name == name).and_then(|metric| match &metric.value {
        Some(Value::Bytes(bytes)) => Some(Arc::clone(bytes)),
        _ => None,
    })
}

/// A message as a metric.
#[must_use]
pub fn metric(name: &str, bytes: &[u8]) -> Metric {
    Metric::new(name, Value::Bytes(bytes.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_speaks_for_the_cluster_of_its_id() {
        let organisation = Organisation::new("ACME").unwrap();
        let cluster = Uuid::from_u128(0xabc);
        let own = node(&organisation, cluster).unwrap();
        assert_eq!(own.group.as_str(), "ACME-Enrol");
        assert_eq!(cluster_of(&organisation, &own), Some(cluster));
        let elsewhere = EdgeNodeDescriptor { group: GroupId::new("ACME-Paint_Shop").unwrap(), ..own.clone() };
        assert_eq!(cluster_of(&organisation, &elsewhere), None);
        let simple = EdgeNodeId::new(cluster.simple().to_string()).unwrap();
        assert_eq!(cluster_of(&organisation, &EdgeNodeDescriptor { edge_node: simple, ..own }), None);
    }
}
