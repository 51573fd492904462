//! The epoch that a recovery raises.

use configdb_schema::document::EdgeClusterRecovery;
use uuid::Uuid;

/// The epoch that an `EdgeClusterRecovery` entry raises in the store of that identity.
pub(crate) fn epoch_of(recovery: &str, identity: Uuid) -> Option<u64> {
    let recovery: EdgeClusterRecovery = serde_json::from_str(recovery).ok()?;
    (recovery.store == identity).then_some(recovery.epoch)
}
