//! All that can come in, all that can go out.

use std::collections::BTreeMap;
use std::sync::Arc;

use configdb_schema::document::IssuedCertificate;
use enrolment_protocol::identity::Opened;
use enrolment_protocol::refusal::Refusal;
use sparkplug::EdgeNodeDescriptor;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::host::{HostEvent, HostRequest};
use uuid::Uuid;

use crate::issued::Issued;

/// What comes in.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// By its Host Application: ConfigDB, the cluster manager, clusters that enrol or renew.
    Host(HostEvent),
    /// By its own Edge Node.
    Node(NodeEvent),
    /// By the disk: how writing the revocation list ended, or what the watched lists contain.
    Revocations(RevocationsReport),
    /// By the clock: a deadline has passed.
    DeadlineReached,
}

/// What shall be done, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// By its Host Application: commands to ConfigDB.
    Host(HostRequest),
    /// By its own Edge Node.
    Node(NodeUpdate),
    /// On the disk, before any answer that follows: what was issued to clusters.
    Remember(BTreeMap<Uuid, Issued>),
    /// By the authority, and then by the Host Application: the answer to a cluster.
    Answer(Box<IssueCertificate>),
    /// On the disk: the list of revoked certificates; answered by one [`Event::Revocations`].
    Revocations {
        /// Serial numbers, with the ends of the certificates.
        revoked: BTreeMap<String, String>,
        /// UTC ms.
        at: u64,
    },
    /// On the disk: read the watched revocation lists; answered by one [`Event::Revocations`].
    ReadRevocations,
}

/// What to answer to a cluster that asks.
#[derive(Debug, Clone, PartialEq)]
pub struct IssueCertificate {
    /// Who asks.
    pub node: EdgeNodeDescriptor,
    /// The cluster's Sparkplug group: whom the certificate is for.
    pub group: String,
    /// What it asked.
    pub opened: Arc<Opened>,
    /// The recorded certificate to sign and the sealed login of the cluster's repository, or why there is none.
    pub answer: Result<(IssuedCertificate, Arc<[u8]>), Refusal>,
}

/// The revocation lists as they are on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RevocationsReport {
    /// The own list was written; Err: why not, for people. None: only read.
    pub written: Option<Result<(), String>>,
    /// The watched lists.
    pub lists: Vec<Result<RevocationList, String>>,
}

/// A revocation list that MQTT servers judge certificates by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevocationList {
    /// Its file.
    pub file: String,
    /// Whose it is.
    pub issuer: String,
    /// UTC ms from which it counts.
    pub begins: u64,
    /// UTC ms at which it ends; None: it does not say.
    pub ends: Option<u64>,
}
