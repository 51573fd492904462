//! All that comes in and all that goes out: the reader's index of this service.

use std::collections::BTreeMap;

use kerberos_client::KdcError;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};

use crate::reconcile::{Action, Delivery, KeySpec, Observed};
use crate::spec::{Kind, ResourceId, SecretKey, Spec};

/// A resource as it is in Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Which object of that name; another one is another resource.
    pub uid: String,
    /// Version of its `spec`.
    pub generation: i64,
    pub key_spec: KeySpec,
    /// What its status says.
    pub status: Option<Status>,
}

/// The condition `Ready` of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    /// For people, without secrets.
    pub message: String,
    /// Version of the `spec` that it is about.
    pub observed_generation: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A deadline of the state passed.
    DeadlineReached,
    /// From the session as Edge Node.
    Node(NodeEvent),
    /// These resources of a kind exist, and no others.
    Listed(Kind, BTreeMap<String, Resource>),
    Applied(ResourceId, Resource),
    /// This one is gone.
    Deleted(ResourceId),
    /// Answer to [`Effect::Observe`].
    Seen(ResourceId, Result<Observed, KeyError>),
    /// Answer to [`Effect::Act`]; with a delivery, if it was one of a key that no one can be asked about.
    Acted(ResourceId, Result<Option<Delivery>, KeyError>),
    /// Its status could not be written.
    StatusLost(ResourceId),
}

/// Why something could not be looked at or done. Messages hold no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The KDC, or its programs here.
    #[error(transparent)]
    Kdc(#[from] KdcError),
    #[error("Kubernetes: {0}")]
    Kubernetes(String),
    /// Another client changed the object meanwhile: look again.
    #[error("Kubernetes: {0} was changed by another client")]
    Conflict(String),
    /// What is in a Secret is not what it should be.
    #[error("{0}: {1}")]
    Content(SecretKey, String),
}

impl KeyError {
    /// It says nothing about what was asked: no one was there to answer.
    #[must_use]
    pub const fn is_outage(&self) -> bool {
        matches!(self, Self::Kdc(KdcError::Unreachable(_)))
    }
}

/// What is to be observed for one resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservationRequest {
    /// Principals whose presence counts.
    pub principals: Vec<kerberos_client::Principal>,
    /// What is wanted, if that is clear: its Secret is read, and its key tried if all its principals get tickets.
    pub spec: Option<Spec>,
    /// Places that may hold something of ours.
    pub stale: Vec<SecretKey>,
    pub stale_sealed: Vec<SecretKey>,
}

/// What goes out. At most one of [`Effect::Observe`] and [`Effect::Act`] is under way.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// To the own Edge Node.
    Node(NodeUpdate),
    /// Observe KDC and Secrets.
    Observe(ResourceId, ObservationRequest),
    /// Do one step for the object with that uid.
    Act {
        id: ResourceId,
        /// Which object of that name.
        uid: String,
        action: Action,
    },
    /// Write its status. Only a failure is answered, by [`Event::StatusLost`].
    WriteStatus { id: ResourceId, status: Status },
}
