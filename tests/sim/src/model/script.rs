//! What people have made so far, and what they ask of ConfigDB.

use configdb_contract::WriteRequest;
use uuid::Uuid;

use crate::model::ids::ClusterId;

/// One request to ConfigDB.
#[derive(Debug, Clone)]
pub struct OperatorWrite(pub WriteRequest);

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Not answered yet.
    Open,
    /// ConfigDB says that it is carried out.
    Applied,
    /// ConfigDB says why not.
    Refused(String),
    /// No answer in time; the operator saw that.
    GaveUp,
}

/// A cluster that people made.
#[derive(Debug, Clone)]
pub struct ScriptCluster {
    /// Its object.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// The cluster that was bootstrapped for it.
    pub site: Option<ClusterId>,
    /// It was deleted.
    pub is_deleted: bool,
}

/// A deployment that people made.
#[derive(Debug, Clone)]
pub struct ScriptDeployment {
    /// Its object.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// The cluster.
    pub cluster: Uuid,
}

/// What people have made so far.
#[derive(Debug, Default)]
pub struct Script {
    /// Clusters.
    pub clusters: Vec<ScriptCluster>,
    /// Deployments.
    pub deployments: Vec<ScriptDeployment>,
    /// Requests so far.
    pub requests: u64,
    /// Clusters that were bootstrapped so far.
    pub sites: u32,
    /// Deployments that were made so far.
    pub deployments_made: u32,
}
