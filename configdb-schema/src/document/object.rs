//! What any object can have: registration, relations, general information, a Sparkplug address.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{JsonObject, is_false};

/// Registration of an object, computed by ConfigDB. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// The object.
    pub uuid: Uuid,
    /// 0 individual, 1 class of individuals, 2 class of classes, 3 top.
    pub rank: u8,
    /// Primary class.
    pub class: Uuid,
    /// A principal, or [`crate::known::special::UNOWNED`].
    pub owner: Uuid,
    /// Marked deleted: still resolvable, without entries.
    pub deleted: bool,
    /// Always true: the rank rules hold.
    pub strict: bool,
}

/// Direct relations of an object. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Membership {
    /// Classes that it is a direct member of, the primary class included.
    #[serde(default, rename = "memberOf")]
    pub member_of: BTreeSet<Uuid>,
    /// Classes that it is a direct subclass of.
    #[serde(default, rename = "subclassOf")]
    pub subclass_of: BTreeSet<Uuid>,
}

/// General object information.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Info {
    /// Name, for people.
    pub name: String,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Picture, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub photo: Option<String>,
    /// Whom to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contact: Option<Vec<Contact>>,
    /// By which people choose among objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Mark of old stores; the registration says whether an object is deleted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deleted: bool,
    /// Keys that this version does not know.
    #[serde(flatten)]
    pub extra: JsonObject,
}

impl Info {
    /// Only a name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// A person to ask.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Contact {
    /// Name.
    pub name: String,
    /// E-mail address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Keys that this version does not know.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// Sparkplug address: a group (which marks a cluster), a node, or a device. Closed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SparkplugAddress {
    /// Group id.
    pub group_id: String,
    /// Edge node id; absent for a whole group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Device id; only with a node id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
}

impl SparkplugAddress {
    /// Address of a group: of a cluster.
    #[must_use]
    pub fn group(group_id: impl Into<String>) -> Self {
        Self { group_id: group_id.into(), node_id: None, device_id: None }
    }

    /// Address of a node.
    #[must_use]
    pub fn node(group_id: impl Into<String>, node_id: impl Into<String>) -> Self {
        Self { group_id: group_id.into(), node_id: Some(node_id.into()), device_id: None }
    }
}
