//! Whose account an object is.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The object is the account of a Kerberos principal of an edge cluster. Written by the cluster manager, which reads in it what it has made for the account. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeAccount {
    /// The cluster whose KerberosKey wants it.
    pub cluster: Uuid,
    /// Whose account it is, with the realm.
    pub principal: String,
    /// The object was made for the account, and goes with it.
    pub managed: bool,
    /// Groups that it is a member of because of this.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<Uuid>,
    /// Edge Node of the cluster's group that its Sparkplug address says because of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}
