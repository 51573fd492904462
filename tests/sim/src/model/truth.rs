//! What ConfigDB's database wants.

use std::collections::{BTreeMap, BTreeSet};

use configdb_schema::Document;
use configdb_schema::document::{EdgeCluster, EdgeClusterRecovery, EdgeClusterSetup, EdgeDeployment, SealedSecret};
use sparkplug::replication::Point;
use uuid::Uuid;

/// What ConfigDB's database wants.
#[derive(Debug, Default)]
pub struct Truth {
    /// Clusters.
    pub clusters: BTreeMap<Uuid, EdgeCluster>,
    /// Clusters that are being torn down, also if they were created again.
    pub torn_down: BTreeSet<Uuid>,
    /// Deployments, also of clusters that do not exist.
    pub deployments: BTreeMap<Uuid, EdgeDeployment>,
    /// Secrets, also of clusters that do not exist.
    pub secrets: Vec<SealedSecret>,
    /// The highest epoch that an operator decided.
    pub epoch: u64,
    /// State of the store; None: nothing was ever written.
    pub point: Option<Point>,
}

impl Truth {
    /// Reads it.
    #[must_use]
    pub fn of(snapshot: &configdb::store::Snapshot) -> Self {
        let mut truth = Self { point: snapshot.timelines.at(snapshot.revision), ..Self::default() };
        for (object, application, entry) in &snapshot.entries {
            if *application == EdgeCluster::application().uuid {
                if let Ok(cluster) = serde_json::from_str(&entry.json) {
                    truth.clusters.insert(*object, cluster);
                }
            } else if *application == EdgeClusterSetup::application().uuid {
                let record = serde_json::from_str::<EdgeClusterSetup>(&entry.json);
                truth.torn_down.extend(record.is_ok_and(|record| record.is_deleting()).then_some(*object));
            } else if *application == EdgeClusterRecovery::application().uuid {
                let recovery = serde_json::from_str::<EdgeClusterRecovery>(&entry.json);
                truth.epoch = truth.epoch.max(recovery.map_or(0, |recovery| recovery.epoch));
            } else if *application == SealedSecret::application().uuid {
                truth.secrets.extend(serde_json::from_str(&entry.json).ok());
            } else if *application == EdgeDeployment::application().uuid
                && let Ok(deployment) = serde_json::from_str(&entry.json)
            {
                truth.deployments.insert(*object, deployment);
            }
        }
        truth
    }
}
