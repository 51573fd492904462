//! Everything that can come in and everything that can go out: the index of this service.

use edge_sync_contract::{Digest, Sources};
pub use kubernetes_client::error::{ErrorClass, KubernetesError};
use serde_json::Value;
use service_runtime::{Effects, Saved, Unsaved};
use sparkplug::Metric;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use uuid::Uuid;

use crate::flux::FluxReport;
use crate::hosts::ObservedNode;
use crate::object::{Kind, ObjectKey, ObservedObject, Readiness};
use crate::record::{IndexRecord, StoredRecord};

/// Everything that can come in.
#[derive(Debug)]
pub enum Event {
    /// Answer to [`Effect::LoadIndex`].
    IndexLoaded(Result<StoredRecord, KubernetesError>),
    /// The index is stored; only what was committed can say so.
    IndexSaved {
        /// Version of the ConfigMap after the save.
        resource_version: String,
        saved: Effects<Saved, IndexRecord>,
    },
    /// The index is not stored.
    IndexNotSaved(KubernetesError),
    /// About the nodes of the cluster.
    Nodes(Observation<ObservedNode>),
    /// About the objects of one kind that carry the label of Sync.
    Objects(Kind, Observation<ObservedObject>),
    /// Answer to [`Effect::Apply`].
    Applied {
        deployment: Uuid,
        /// Its objects that were applied, as they are after it.
        applied: Vec<ObservedObject>,
        /// The first that was not; those after it were not tried.
        failed: Option<(ObjectKey, KubernetesError)>,
    },
    /// Answer to [`Effect::Delete`].
    Deleted {
        key: ObjectKey,
        /// Which object of that name.
        uid: String,
        /// What became of it.
        result: Result<Deletion, KubernetesError>,
    },
    /// Answer to [`Effect::FetchCertificate`]: the text that the controller gave.
    Certificate(Result<String, KubernetesError>),
    /// Answer to [`Effect::Annotate`].
    Annotated(Result<(), KubernetesError>),
    /// Something of what Flux makes of the cluster's repository may have changed.
    FluxChanged,
    /// Answer to [`Effect::LookAtFlux`].
    FluxSeen(Result<FluxReport, KubernetesError>),
    /// Something may have changed of what these releases have made.
    WorkloadsChanged(Vec<String>),
    /// Answer to [`Effect::LookAtWorkloads`].
    WorkloadsSeen {
        release: String,
        /// Whether what it has made runs.
        seen: Result<Readiness, KubernetesError>,
    },
    /// Answer to [`Effect::Probe`].
    Probed(Result<(), KubernetesError>),
    /// From the own Edge Node.
    Node(NodeEvent),
    /// `State::next_deadline` has come.
    DeadlineReached,
    /// The process is asked to end.
    Stop,
}

/// What a watch reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation<T> {
    /// All there are: replaces what was known.
    Listed(Vec<T>),
    /// One came or changed.
    Changed(T),
    /// One went; its last state.
    Gone(T),
    /// The API server does not know this kind: there are none.
    NotInstalled,
    /// The watch is interrupted and is tried again; what is known may be old.
    Failed(KubernetesError),
}

/// What became of an object that was to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    Gone,
    /// It waits for its finalizers.
    Waiting,
}

/// An object that is ready to be applied.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedObject {
    pub key: ObjectKey,
    /// It is known to carry the label of Sync. If not, and it exists, it is another's and is not touched.
    pub is_ours: bool,
    /// The whole object with the marks of Sync.
    pub body: Value,
}

/// Everything that can go out.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Read the record of the accepted index.
    LoadIndex,
    /// Store an index. It is accepted when [`Event::IndexSaved`] brings `then` back committed.
    SaveIndex {
        record: IndexRecord,
        /// Version of the ConfigMap that is replaced; None: there is none yet. Another version there is a conflict.
        replaces: Option<String>,
        /// To be committed with the write.
        then: Effects<Unsaved, IndexRecord>,
    },
    /// Apply objects one after another, until one fails.
    Apply {
        deployment: Uuid,
        /// Digest of its manifests.
        digest: Digest,
        /// Its objects that are not in place.
        objects: Vec<PreparedObject>,
    },
    /// Delete this very object in this very state.
    Delete { key: ObjectKey, uid: String, resource_version: String },
    /// Read the sealing certificate.
    FetchCertificate,
    /// Make Flux fetch the cluster's repositories, which are at these commits.
    Annotate(Sources),
    /// Read what Flux has made of the cluster's repository.
    LookAtFlux,
    /// Read whether what a release has made runs.
    LookAtWorkloads {
        /// Name of its HelmRelease.
        release: String,
    },
    /// Ask the API server whether it answers.
    Probe,
    /// Everything is known: start the Edge Node with these metrics of its own. Once, before every [`Effect::Node`].
    Birth(Vec<Metric>),
    /// Update the Edge Node.
    Node(NodeUpdate),
    /// The cluster is being followed, or why not.
    Ready { ready: bool, reason: String },
}
