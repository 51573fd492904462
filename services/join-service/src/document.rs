//! What the replicas remember, and how it is written in the cluster: one object each, whose creation is an atomic claim and whose replacement names the version that it replaces.
//!
//! | key | object | holds |
//! |---|---|---|
//! | [`Key::Request`] | ConfigMap `join-request-<id>` | [`Request`]: one attempt of a host, until some minutes after its end |
//! | [`Key::Host`] | ConfigMap `join-host-<endorsement key>` | [`HostRecord`]: who a host is, since its first ticket |
//! | [`Key::Disk`], [`Key::Name`] | ConfigMaps `join-disk-<uuid>`, `join-name-<name>` | [`Binding`]: whose it is |
//! | [`Key::Policy`] | ConfigMap `join-policy` | [`PolicyRecord`]: the last policy |
//! | [`Key::ControlPlane`] | Lease `join-control-plane` | [`ControlPlaneLease`]: the one host that may join the control plane |
//! | [`Key::Leader`] | Lease `join-leader` | [`Leader`]: the replica that speaks |
//!
//! All are JSON with a version of the form, closed and bounded. None holds a secret: a ticket in a request is sealed.

use core::net::IpAddr;
use std::fmt;

use join_attestation::EkHash;
use join_protocol::terms::RequestId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sparkplug::replication::Origin;
use uuid::Uuid;

mod request;

pub use request::Request;

/// Version of the form of every document.
const FORM: u32 = 1;
/// The most bytes of a document: one object of Kubernetes, with room for what surrounds it.
pub const DOCUMENT_BYTES_MAX: usize = 960 * 1024;
/// The most characters of a node's name: with its prefix it has to be the name of an object.
pub const NAME_CHARACTERS_MAX: usize = 200;

/// Which document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The last policy.
    Policy,
    /// The replica that speaks.
    Leader,
    /// The host that is joining the control plane.
    ControlPlane,
    /// An attempt.
    Request(RequestId),
    /// A host, by its endorsement key.
    Host(EkHash),
    /// Owner of a state disk.
    Disk(Uuid),
    /// Owner of a node's name.
    Name(String),
}

/// The kinds of objects that documents are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Store {
    /// ConfigMaps.
    ConfigMaps,
    /// Leases.
    Leases,
}

impl Key {
    /// The kind of object.
    #[must_use]
    pub const fn store(&self) -> Store {
        match self {
            Self::Leader | Self::ControlPlane => Store::Leases,
            _ => Store::ConfigMaps,
        }
    }

    /// Reads the name of an object; None: it is not one of this service.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let hash = |text: &str| <[u8; 32]>::try_from(hex::decode(text).ok()?).ok();
        let key = match name.strip_prefix("join-")? {
            "policy" => Self::Policy,
            "leader" => Self::Leader,
            "control-plane" => Self::ControlPlane,
            rest => match rest.split_once('-')? {
                ("request", id) => Self::Request(RequestId(hex::decode(id).ok()?.try_into().ok()?)),
                ("host", ek) => Self::Host(hash(ek)?),
                ("disk", disk) => Self::Disk(Uuid::try_parse(disk).ok()?),
                ("name", name) => Self::Name(name.to_owned()),
                _ => return None,
            },
        };
        (key.to_string() == name).then_some(key)
    }
}

/// The name of the object.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => f.write_str("join-policy"),
            Self::Leader => f.write_str("join-leader"),
            Self::ControlPlane => f.write_str("join-control-plane"),
            Self::Request(id) => write!(f, "join-request-{id}"),
            Self::Host(ek) => write!(f, "join-host-{}", hex::encode(ek)),
            Self::Disk(disk) => write!(f, "join-disk-{}", disk.hyphenated()),
            Self::Name(name) => write!(f, "join-name-{name}"),
        }
    }
}

/// A document as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Which.
    pub key: Key,
    /// Its version: opaque, but for the order of two that are numbers.
    pub version: String,
    /// Its text.
    pub text: String,
}

/// A document cannot be used. For people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct DocumentError {
    /// Which.
    pub key: String,
    /// Why.
    pub reason: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Versioned<T> {
    form: u32,
    is: T,
}

/// The text of a document.
pub fn to_text<T: Serialize>(document: &T) -> String {
    serde_json::to_string(&Versioned { form: FORM, is: document }).expect("text, numbers and lists are always JSON")
}

/// Reads a text.
///
/// # Errors
/// It is too large, of another form, or breaks a rule.
pub fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(format!("has {} bytes; at most {DOCUMENT_BYTES_MAX} are allowed", text.len()));
    }
    let Versioned { form, is } =
        serde_json::from_str(text).map_err(|error| format!("is not a document of this service: {error}"))?;
    if form == FORM { Ok(is) } else { Err(format!("has form {form}; this release knows form {FORM}")) }
}

/// Owner of a disk or a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Binding {
    /// Endorsement key.
    #[serde(with = "hash")]
    pub ek: EkHash,
    /// Since when, UTC ms.
    pub since_ms: u64,
}

/// The last policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PolicyRecord {
    /// Version of the desired state.
    pub version: u64,
    /// Revision of the entry.
    pub revision: u64,
    /// The entry; None: the cluster has none.
    pub entry: Option<String>,
    /// State of the store that it was derived from; None: its sender did not say.
    #[serde(default, with = "origin_text", skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Highest serial number of a signed policy that was taken over; 0: none was.
    #[serde(default)]
    pub serial: u64,
}

mod origin_text {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};
    use sparkplug::replication::Origin;

    pub(super) fn serialize<S: Serializer>(origin: &Option<Origin>, serializer: S) -> Result<S::Ok, S::Error> {
        match origin {
            Some(origin) => serializer.collect_str(origin),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Origin>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

/// The one host that may join the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ControlPlaneLease {
    /// Its attempt.
    pub request: String,
    /// Its state disk.
    pub disk: Uuid,
    /// Until when, UTC ms.
    pub until_ms: u64,
}

/// The replica that speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Leader {
    /// Its name.
    pub holder: String,
    /// Grows with each renewal, so that others see it.
    pub beat: u64,
}

/// Who a host is, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct HostRecord {
    /// Form of its keys.
    pub variant: String,
    /// Its state disk.
    pub disk: Uuid,
    /// Its name.
    pub name: String,
    /// `worker` or `control-plane`.
    pub role: String,
    /// Addresses that were certified.
    pub addresses: Vec<IpAddr>,
    /// As [`join_service_contract::HostState`] is written.
    pub state: String,
    /// It has been locked to the cluster with this disk and name.
    pub bound: bool,
    /// What it asked for last.
    pub kind: String,
    /// Its live attempt, by its id.
    pub request: Option<String>,
    /// Resets, restarts and powered ms of its TPM at the last ticket.
    pub counters: Option<(u32, u32, u64)>,
    /// Revision of the policy of the last ticket.
    pub policy_revision: u64,
    /// PCRs of its last quote, JSON.
    #[serde(rename = "registers")]
    pub pcrs: Option<String>,
    /// Deviations that were let pass.
    pub warnings: Option<String>,
    /// What it said last.
    pub detail: Option<String>,
    /// Stage of its last progress.
    pub stage: Option<String>,
    /// UTC ms.
    pub first_seen: u64,
    /// UTC ms.
    pub last_seen: u64,
}

/// A hash as hexadecimal text.
mod hash {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(hash: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(hash))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = hex::decode(&text).map_err(D::Error::custom)?;
        bytes.try_into().map_err(|_| D::Error::custom("must be 64 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_names_of_objects_and_read_back() {
        for key in [
            Key::Policy,
            Key::Leader,
            Key::ControlPlane,
            Key::Request(RequestId([7; 16])),
            Key::Host([8; 32]),
            Key::Disk(Uuid::from_u128(9)),
            Key::Name("press-1.plant.example".to_owned()),
        ] {
            assert_eq!(Key::parse(&key.to_string()), Some(key));
        }
        for foreign in ["", "join-", "join-request-07", "join-host-zz", "other", "join-disk-0", "join-ROLE-x"] {
            assert_eq!(Key::parse(foreign), None, "{foreign}");
        }
        let upper = format!("join-host-{}", "AB".repeat(32));
        assert_eq!(Key::parse(&upper), None, "one spelling a key");
    }

    #[test]
    fn documents_of_another_form_or_with_unknown_fields_or_too_large_are_refused_by_name() {
        let binding = Binding { ek: [1; 32], since_ms: 5 };
        assert_eq!(from_text(&to_text(&binding)), Ok(binding.clone()));
        let error = |text: String| from_text::<Binding>(&text).unwrap_err();
        assert_eq!(
            error(to_text(&binding).replace("\"form\":1", "\"form\":2")),
            "has form 2; this release knows form 1"
        );
        assert!(error(to_text(&binding).replace("sinceMs", "since")).starts_with("is not a document of this service"));
        assert!(error(" ".repeat(DOCUMENT_BYTES_MAX + 1)).contains("at most"));
        assert!(error(to_text(&binding).replace("01010101", "0101")).contains("64 hexadecimal digits"));
    }
}
