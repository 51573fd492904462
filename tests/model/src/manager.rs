//! The sender: the cluster manager's plan, its replica of the store, and what it has received of the edge.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cluster_manager::reconcile::{self, DeploymentIntent, DerivedFrom, Reported, SentVersions};
use edge_sync_contract::{DesiredIndex, Digest};
use serde_json::json;
use sparkplug::replication;
use uuid::Uuid;

use crate::edge::Report;
use crate::fault::Fault;
use crate::store::{Deployment, Store, Transaction};

/// What is on the way to the edge.
#[derive(Debug, Clone)]
pub struct Message {
    /// The command.
    pub index: DesiredIndex,
    /// As on the wire: two messages are the same if this is.
    text: Arc<str>,
    /// What the sender knew: the log of the store that it was derived from. Not part of the command.
    pub log: Arc<[Transaction]>,
}

impl Message {
    fn key(&self) -> (&str, &[Transaction]) {
        (&self.text, &self.log)
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Message {}

impl PartialOrd for Message {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Message {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for Message {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// The sender. All of it is lost when it restarts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manager {
    /// The state of the store that the sender knows; None: none is known completely.
    pub replica: Option<Arc<Store>>,
    /// What the edge reported last, as far as it was received.
    pub report: Option<Arc<Report>>,
    /// The versions that it has given.
    pub(crate) assigned: SentVersions,
}

impl Hash for Manager {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.replica.hash(state);
        format!("{:?} {:?}", self.report, self.assigned).hash(state);
    }
}

/// The object of a deployment.
#[must_use]
pub fn object(deployment: Deployment) -> Uuid {
    Uuid::from_u128(0x100 + u128::from(deployment))
}

fn digest(deployment: Deployment) -> Digest {
    Digest::of(&json!(deployment))
}

impl Manager {
    /// What the edge shall have, if it does not have it.
    pub fn plan(&mut self, fault: Option<Fault>) -> Option<Message> {
        let (store, report) = (self.replica.clone()?, self.report.clone()?);
        let mut deployments = store.deployments();
        if fault == Some(Fault::IncompleteSender) {
            deployments.pop_last();
        }
        let intents: BTreeMap<Uuid, DeploymentIntent> = deployments
            .iter()
            .map(|deployment| (object(*deployment), DeploymentIntent::Rendered(digest(*deployment))))
            .collect();
        let origin = store.origin();
        let devices = report.devices();
        let restarts_numbers = fault == Some(Fault::ReportIgnored);
        let index = replication::Report {
            version: if restarts_numbers { 0 } else { report.version },
            digest: report.digest.filter(|_| !restarts_numbers),
            origin: report.origin,
            held: Some(report.held),
        };
        let reported = Reported { index, deployments: &devices };
        let follows = report.origin.and_then(|accepted| store.follows(accepted));
        let from = DerivedFrom {
            origin,
            follows,
            decided_for: store.decided_for(),
            is_ageing: false,
            revision: store.revision(),
        };
        let plan = reconcile::plan(&intents, &BTreeMap::new(), &reported, &mut self.assigned, from);
        if plan.agreed {
            return None;
        }
        let mut index = plan.index;
        if let Some(fault) = fault {
            fault.spoil(&mut index, report.origin);
        }
        let text = index.to_json().to_string();
        // What arrives is what was read back from the wire.
        let index = DesiredIndex::from_json(&text).ok()?;
        Some(Message { index, text: text.into(), log: store.log.as_slice().into() })
    }
}
