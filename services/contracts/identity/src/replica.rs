//! A typed copy of Identity.
//!
//! It keeps what was last known while Identity is away ([`IdentityReplica::is_alive`] is then false).

use sparkplug::EdgeNodeDescriptor;
use sparkplug::host::HostEvent;
use sparkplug::replication::{NodeOnly, Replica};

use crate::node::IdentityNode;

/// The copy; see [`Replica`].
#[derive(Debug, Clone)]
pub struct IdentityReplica(Replica<NodeOnly<IdentityNode>>);

impl IdentityReplica {
    /// An empty copy of that node.
    #[must_use]
    pub fn new(node: EdgeNodeDescriptor) -> Self {
        Self(Replica::new(node))
    }

    /// The node that it replicates.
    #[must_use]
    pub const fn node(&self) -> &EdgeNodeDescriptor {
        self.0.address()
    }

    /// Whether Identity is between a birth and its death, without a gap since.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        self.0.is_current()
    }

    /// Version of the program; empty before the first birth.
    #[must_use]
    pub fn version(&self) -> &str {
        self.0.node().map_or("", |node| &node.version)
    }

    /// Public key that logins are sealed to, base64url; None before the first birth.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.0.node().map(|node| &*node.key).filter(|key| !key.is_empty())
    }

    /// What an operator has to do about a revocation list; None: nothing.
    #[must_use]
    pub fn revocations_alert(&self) -> Option<&str> {
        self.0.node()?.revocations_alert.as_deref()
    }

    /// Why no certificate is issued; None: nothing is in the way.
    #[must_use]
    pub fn authority_alert(&self) -> Option<&str> {
        self.0.node()?.authority_alert.as_deref()
    }

    /// Takes one event. True: something about the node has changed.
    pub fn on_event(&mut self, event: &HostEvent) -> bool {
        self.0.on_event(event).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;
    use sparkplug::{BdSeq, TypedMetrics};

    #[test]
    fn what_was_last_known_is_kept_while_the_node_is_away() {
        let node = names::node("ACME").unwrap();
        let mut replica = IdentityReplica::new(node.clone());
        assert_eq!((replica.key(), replica.is_alive()), (None, false));
        let metrics = IdentityNode { key: "KEY".to_owned(), ..IdentityNode::default() }.to_metrics().into();
        let birth = HostEvent::NodeBirth { node: node.clone(), bd_seq: BdSeq::ZERO, timestamp: 1, uuid: None, metrics };
        assert!(replica.on_event(&birth) && replica.is_alive());
        replica.on_event(&HostEvent::NodeDeath { node, timestamp: 2 });
        assert_eq!((replica.key(), replica.is_alive()), (Some("KEY"), false));
        let elsewhere = EdgeNodeDescriptor::parse("ACME-Paint_Shop", names::NODE_ID).unwrap();
        assert!(!replica.on_event(&HostEvent::NodeDeath { node: elsewhere, timestamp: 3 }));
    }
}
