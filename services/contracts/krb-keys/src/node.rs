//! The metrics of the service itself. Counts and reasons, never anything of a key.

use std::collections::BTreeMap;

use configdb_schema::known::link::MONITORED_CLUSTER;
use sparkplug::Value;
use sparkplug::typed::form;
use uuid::Uuid;

use crate::names;

/// Problems that are published one by one; more are counted. Keeps the metric small whatever the cluster holds.
const PROBLEMS_PUBLISHED_MAX: usize = 100;

/// What the service says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeysNode {
    /// Its own identity.
    pub instance: Uuid,
    /// The cluster that it serves.
    pub cluster: Uuid,
    /// Its version.
    pub version: String,
    /// Whom it administers the realm as.
    pub principal: String,
    /// Resources.
    pub total: u32,
    /// Those that are as they shall be.
    pub ready: u32,
    /// Those that are not.
    pub failed: u32,
    /// Why not.
    pub problems: BTreeMap<String, String>,
    /// Devices of accounts; None: not known yet which there are.
    pub accounts: Option<u32>,
}

/// Columns of [`KeysNode::problems`].
struct Problems;

impl form::Columns for Problems {
    const KEY: &'static str = "Resource";
    const VALUE: &'static str = "Reason";
}

sparkplug::typed_metrics! {
    KeysNode {
        /// Identity of the service: the cluster's account for Kerberos keys, unless configured.
        instance as form::Uuid => names::INSTANCE_UUID,
        /// The cluster that it serves.
        cluster as form::Uuid => names::LINK_CLUSTER_TARGET,
        /// Relation to the cluster: monitored cluster.
        (|_| Value::Uuid(MONITORED_CLUSTER.to_string().into())) => names::LINK_CLUSTER_RELATION,
        /// Which service the node is.
        (|_| names::SERVICE.into()) => names::PROPERTIES_SERVICE,
        /// Version of the software.
        version => names::PROPERTIES_VERSION,
        /// Whom it administers the realm as.
        principal => names::PROPERTIES_PRINCIPAL,
        /// KerberosKey and LocalSecret resources.
        total as form::Count => names::KEYS_TOTAL,
        /// Resources that are in step.
        ready as form::Count => names::KEYS_READY,
        /// Resources that are not in step.
        failed as form::Count => names::KEYS_FAILED,
        /// Why resources are not in step, 100 at most; absent: all are.
        #[omit_null]
        problems as form::Table<Problems> => names::KEYS_PROBLEMS,
        /// Devices of accounts that are alive; null until the resources are known.
        #[optional]
        accounts as form::Nullable<form::Count> => names::ACCOUNTS_TOTAL,
    }
}

/// Bounded, so that resources full of mistakes cannot make the birth too large.
#[must_use]
pub fn short(mut problems: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let more = problems.len().saturating_sub(PROBLEMS_PUBLISHED_MAX);
    if more > 0 {
        problems = problems.into_iter().take(PROBLEMS_PUBLISHED_MAX).collect();
        problems.insert("...".to_owned(), format!("and {more} more"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::TypedMetrics;

    #[test]
    fn what_was_written_is_read() {
        let node = KeysNode {
            instance: Uuid::from_u128(1),
            cluster: Uuid::from_u128(2),
            failed: 1,
            problems: BTreeMap::from([("KerberosKey x".to_owned(), "no".to_owned())]),
            ..KeysNode::default()
        };
        assert_eq!(KeysNode::from_metrics(&node.to_metrics()), Ok(node));
    }

    #[test]
    fn many_problems_are_counted() {
        let problems = (0..102).map(|number| (format!("{number:03}"), String::new())).collect();
        let short = short(problems);
        assert_eq!((short.len(), short["..."].as_str()), (101, "and 2 more"));
    }
}
