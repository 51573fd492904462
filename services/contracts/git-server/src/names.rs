//! Names on the wire: the node, its Devices and their metrics. Nothing else may spell them.

use sparkplug::{DeviceId, EdgeNodeDescriptor, NameError};
use uuid::Uuid;

/// Edge node id of the git server.
pub const NODE_ID: &str = configdb_schema::address::GIT_NODE;

/// Value of [`PROPERTIES_SERVICE`].
pub const SERVICE: &str = "git-server";

/// String: which service this node is.
pub const PROPERTIES_SERVICE: &str = "Properties/Service";
/// String: version of the program.
pub const PROPERTIES_VERSION: &str = "Properties/Version";
/// Boolean: what is behind the node is a simulator.
pub const PROPERTIES_SIMULATED: &str = "Properties/Simulated";
/// String: base URL under which clients reach the repositories.
pub const GIT_URL: &str = "Git/Url";
/// UInt64: Devices of repositories.
pub const REPOSITORIES_TOTAL: &str = "Repositories/Total";
/// UInt64: Devices of pushes.
pub const PUSHES_TOTAL: &str = "Pushes/Total";

/// NCMD, String: what one copy shall be, JSON.
pub const DESIRED_REPOSITORY: &str = "Desired/Repository";

/// String: of a repository `served`, `waiting` or `not-served`, of a push `sending` or `deciding`.
pub const STATUS_STATE: &str = "Status/State";
/// String or null: why it is not as wanted.
pub const STATUS_REASON: &str = "Status/Reason";
/// DateTime: since when it is in that state; of a push since when it is under way.
pub const STATUS_SINCE: &str = "Status/Since";
/// String: path on the git server.
pub const REPOSITORY_PATH: &str = "Repository/Path";
/// UInt64: version of the desired state that was accepted last.
pub const DESIRED_VERSION: &str = "Desired/Version";
/// String or null: digest of the desired state that the copy is.
pub const APPLIED_DIGEST: &str = "Applied/Digest";
/// String or null: commit of branch `main`.
pub const GIT_COMMIT: &str = "Git/Commit";
/// DataSet: the refs with their commits.
pub const GIT_REFS: &str = "Git/Refs";
/// Boolean: the copy lacks objects of its desired state.
pub const PACK_MISSING: &str = "Pack/Missing";
/// String or null: digest of the pack that is being received; in a command, and of a push, of the pack that is sent.
pub const PACK_DIGEST: &str = "Pack/Digest";
/// UInt64: bytes of it that have arrived.
pub const PACK_RECEIVED: &str = "Pack/Received";
/// UInt64: bytes of the whole pack.
pub const PACK_BYTES: &str = "Pack/Bytes";
/// UInt64: where the part begins.
pub const PACK_OFFSET: &str = "Pack/Offset";
/// Bytes: the part.
pub const PACK_DATA: &str = "Pack/Data";
/// DateTime or null: when the cluster asked for a repository last.
pub const CLUSTER_POLLED: &str = "Cluster/Polled";

/// UUID: the repository that is pushed to.
pub const PUSH_REPOSITORY: &str = "Push/Repository";
/// String: address of the client.
pub const PUSH_FROM: &str = "Push/From";
/// Bytes: the credential of the user, sealed to the cluster manager's key.
pub const PUSH_CREDENTIAL: &str = "Push/Credential";
/// DataSet: the refs, with their commits before and after.
pub const PUSH_REFS: &str = "Push/Refs";
/// UInt64: grows when a part is sent again.
pub const PUSH_ATTEMPT: &str = "Push/Attempt";

/// DCMD, UInt64: bytes of the pack that have arrived.
pub const ANSWER_RECEIVED: &str = "Answer/Received";
/// DCMD, Boolean or null: the push is accepted, or not; null: that is not decided yet.
pub const ANSWER_ACCEPTED: &str = "Answer/Accepted";
/// DCMD, String or null: why it is not accepted.
pub const ANSWER_REASON: &str = "Answer/Reason";

/// What the Device id of a push begins with; its UUID follows.
const PUSH_PREFIX: &str = "push-";
/// What the Device id of a repository begins with; its UUID follows.
const REPOSITORY_PREFIX: &str = "repository-";

/// The git server's Edge Node in an organisation, `<ORG>-Central/Git`.
///
/// # Errors
/// The organisation's prefix makes no group id.
pub fn node(organisation: &str) -> Result<EdgeNodeDescriptor, NameError> {
    EdgeNodeDescriptor::parse(&format!("{organisation}-{}", configdb_schema::address::CENTRAL), NODE_ID)
}

/// Device of a repository.
#[must_use]
pub fn repository_device(repository: Uuid) -> DeviceId {
    of(REPOSITORY_PREFIX, repository)
}

/// Device of a push.
#[must_use]
pub fn push_device(push: Uuid) -> DeviceId {
    of(PUSH_PREFIX, push)
}

/// The repository of a Device, if its id is as [`repository_device`] writes it.
#[must_use]
pub fn repository_of(device: &DeviceId) -> Option<Uuid> {
    uuid(device, REPOSITORY_PREFIX)
}

/// The push of a Device, if its id is as [`push_device`] writes it.
#[must_use]
pub fn push_of(device: &DeviceId) -> Option<Uuid> {
    uuid(device, PUSH_PREFIX)
}

fn of(prefix: &str, uuid: Uuid) -> DeviceId {
    DeviceId::new(format!("{prefix}{}", uuid.hyphenated())).expect("letters, hex digits and hyphens are allowed")
}

fn uuid(device: &DeviceId, prefix: &str) -> Option<Uuid> {
    let text = device.as_str().strip_prefix(prefix)?;
    Uuid::parse_str(text).ok().filter(|uuid| uuid.hyphenated().to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_belongs_to_the_central_group() {
        assert_eq!(node("ACME").unwrap().to_string(), "ACME-Central/Git");
        assert!(node("A/B").is_err());
    }

    #[test]
    fn a_device_id_names_a_repository_or_a_push_and_never_both() {
        let known = Uuid::from_u128(0xABCD);
        let (repository, push) = (repository_device(known), push_device(known));
        assert_eq!((repository_of(&repository), push_of(&repository)), (Some(known), None));
        assert_eq!((repository_of(&push), push_of(&push)), (None, Some(known)));
        assert_eq!(push_of(&DeviceId::new("push-00000000-0000-0000-0000-00000000ABCD").unwrap()), None);
    }
}
