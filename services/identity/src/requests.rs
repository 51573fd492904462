//! Requests of clusters that enrol or renew: who asks, and what.

use std::collections::BTreeMap;
use std::sync::Arc;

use enrolment_protocol::identity::{IdentityKeyPair, Opened};
use enrolment_protocol::metrics::{self, REQUEST};
use sparkplug::EdgeNodeDescriptor;
use sparkplug::host::{HostEvent, HostRequest};
use uuid::Uuid;

/// Most clusters that ask at the same time; the others ask again. It bounds what is judged, written and signed at once when all certificates of a fleet are due.
const ASKING_MAX: usize = 1024;

/// A cluster that asks.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// By which node.
    pub node: EdgeNodeDescriptor,
    /// What.
    pub opened: Arc<Opened>,
    /// It asked since it was answered.
    pub is_due: bool,
}

/// What an event of a node that asks leads to.
#[derive(Debug, PartialEq)]
pub(crate) enum Received {
    /// Nothing.
    Nothing,
    /// The cluster has to be served.
    Request,
    /// The node has to be asked for its birth, which came too early to be understood.
    Unknown(HostRequest),
}

/// All that ask.
#[derive(Debug, Default)]
pub(crate) struct Requests(BTreeMap<Uuid, Request>);

impl Requests {
    /// Takes an event of a node by which that cluster asks to be certified. `is_known`: there is such a cluster.
    pub(crate) fn on_event(
        &mut self,
        key_pair: &IdentityKeyPair,
        (uuid, is_known): (Uuid, bool),
        node: &EdgeNodeDescriptor,
        event: &HostEvent,
    ) -> Received {
        match event {
            HostEvent::NodeBirth { metrics, .. } => {
                self.forget(uuid, node);
                let request = metrics::bytes_of(metrics, REQUEST);
                // Strangers cost nothing: only who could be enrolled is read.
                let Some(request) = request.filter(|_| is_known) else { return Received::Nothing };
                match key_pair.open(uuid, &request) {
                    Ok(opened) if self.0.len() < ASKING_MAX => {
                        let request = Request { node: node.clone(), opened: Arc::new(opened), is_due: true };
                        self.0.insert(uuid, request);
                        return Received::Request;
                    }
                    Ok(_) => {
                        tracing::warn!(cluster_id = %uuid, "too many clusters ask at the same time; this one asks again")
                    }
                    Err(error) => {
                        tracing::warn!(cluster_id = %uuid, error = %error, "a request for a certificate cannot be used");
                    }
                }
            }
            HostEvent::NodeData { .. } => match self.0.get_mut(&uuid).filter(|request| request.node == *node) {
                Some(request) => {
                    request.is_due = true;
                    return Received::Request;
                }
                None if is_known => return Received::Unknown(HostRequest::Rebirth { node: node.clone() }),
                None => {}
            },
            HostEvent::NodeDeath { .. } | HostEvent::NodeStale { .. } => self.forget(uuid, node),
            _ => {}
        }
        Received::Nothing
    }

    /// A cluster may ask by two nodes, in the quarantine group and in its own; the end of one says nothing of the other.
    fn forget(&mut self, uuid: Uuid, node: &EdgeNodeDescriptor) {
        if self.0.get(&uuid).is_some_and(|request| request.node == *node) {
            self.0.remove(&uuid);
        }
    }

    /// What that cluster asks and is not answered.
    pub(crate) fn due(&self, uuid: Uuid) -> Option<&Request> {
        self.0.get(&uuid).filter(|request| request.is_due)
    }

    /// The cluster is answered.
    pub(crate) fn answered(&mut self, uuid: Uuid) {
        if let Some(request) = self.0.get_mut(&uuid) {
            request.is_due = false;
        }
    }

    /// Clusters that are not answered.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Uuid> {
        self.0.iter().filter(|(_, request)| request.is_due).map(|(uuid, _)| *uuid)
    }
}
