//! What a member remembers of itself, on its state disk: the file `node_state.json`. It holds no secret: the salt alone reveals nothing.

use join_protocol::terms::Role;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How far a host came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// It has its key and is on the way. A host that is found so after its lock is of no use.
    Joining,
    /// It is a member.
    Member,
}

/// The record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeRecord {
    /// Form of this record.
    pub version: u32,
    /// How far it came.
    pub progress: Progress,
    /// The cluster.
    pub cluster: Uuid,
    /// Its role there: `worker` or `control-plane`.
    pub role: String,
    /// Name of the node.
    pub node_name: String,
    /// Salt of the cluster id, hexadecimal: a disk that is unlocked later must belong to the same cluster.
    pub measurement_salt: String,
}

/// These bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node_state.json: {0}")]
pub struct RecordError(pub String);

impl NodeRecord {
    /// The form that is written.
    pub const VERSION: u32 = 1;

    /// A record.
    #[must_use]
    pub fn new(progress: Progress, cluster: Uuid, role: Role, node_name: &str, salt: &[u8]) -> Self {
        let (role, measurement_salt) = (role.name().to_owned(), hex::encode(salt));
        Self { version: Self::VERSION, progress, cluster, role, node_name: node_name.to_owned(), measurement_salt }
    }

    /// Its role; None: it is none that is known.
    #[must_use]
    pub fn known_role(&self) -> Option<Role> {
        [Role::Worker, Role::ControlPlane].into_iter().find(|role| role.name() == self.role)
    }

    /// As in the file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Strings and numbers can always be written.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }

    /// From the file.
    ///
    /// # Errors
    /// It is not JSON of this form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: Self = serde_json::from_slice(bytes).map_err(|error| RecordError(error.to_string()))?;
        if record.version != Self::VERSION {
            return Err(RecordError(format!("version {} is not {}", record.version, Self::VERSION)));
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_goes_both_ways_and_another_version_is_refused() {
        let record = NodeRecord::new(Progress::Member, Uuid::from_u128(1), Role::Worker, "edge-1", &[0xab; 32]);
        assert_eq!(NodeRecord::from_bytes(&record.to_bytes()), Ok(record.clone()));
        let text = String::from_utf8(record.to_bytes()).unwrap();
        assert!(text.contains(r#""progress": "member""#) && text.contains(r#""nodeName": "edge-1""#), "{text}");
        let error = NodeRecord::from_bytes(text.replace("\"version\": 1", "\"version\": 2").as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "node_state.json: version 2 is not 1");
        assert!(NodeRecord::from_bytes(b"{").is_err());
    }
}
