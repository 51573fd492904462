//! Topic text <-> message kind and ids. Three shapes exist (Sparkplug 3.0, chapter 4):
//!
//! ```text
//! spBv1.0/<group>/<NBIRTH|NDATA|NDEATH|NCMD>/<edge node>
//! spBv1.0/<group>/<DBIRTH|DDATA|DDEATH|DCMD>/<edge node>/<device>
//! spBv1.0/STATE/<host>
//! ```

use std::fmt;

use crate::name::{DeviceId, EdgeNodeDescriptor, EdgeNodeId, GroupId, HostId, NameError};

/// First level of every topic.
pub const NAMESPACE: &str = "spBv1.0";

/// Kind of a message, spelled in topics as in the standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MessageKind {
    /// NBIRTH
    NBirth,
    /// NDATA
    NData,
    /// NDEATH
    NDeath,
    /// NCMD
    NCmd,
    /// DBIRTH
    DBirth,
    /// DDATA
    DData,
    /// DDEATH
    DDeath,
    /// DCMD
    DCmd,
    /// STATE
    State,
}

impl MessageKind {
    /// From a topic level, spelled exactly as in the standard.
    #[must_use]
    pub fn from_level(level: &str) -> Option<Self> {
        Some(match level {
            "NBIRTH" => Self::NBirth,
            "NDATA" => Self::NData,
            "NDEATH" => Self::NDeath,
            "NCMD" => Self::NCmd,
            "DBIRTH" => Self::DBirth,
            "DDATA" => Self::DData,
            "DDEATH" => Self::DDeath,
            "DCMD" => Self::DCmd,
            "STATE" => Self::State,
            _ => return None,
        })
    }

    /// Whether its topics name a device (tck-id-topic-structure-namespace-device-id-associated-message-types).
    #[must_use]
    pub const fn has_device(self) -> bool {
        matches!(self, Self::DBirth | Self::DData | Self::DDeath | Self::DCmd)
    }

    /// The standard's spelling.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NBirth => "NBIRTH",
            Self::NData => "NDATA",
            Self::NDeath => "NDEATH",
            Self::NCmd => "NCMD",
            Self::DBirth => "DBIRTH",
            Self::DData => "DDATA",
            Self::DDeath => "DDEATH",
            Self::DCmd => "DCMD",
            Self::State => "STATE",
        }
    }
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A parsed topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    /// A message of or to an edge node; `kind` is one of NBIRTH, NDATA, NDEATH, NCMD.
    Node {
        /// Whose.
        node: EdgeNodeDescriptor,
        /// What.
        kind: MessageKind,
    },
    /// A message of or to a device; `kind` is one of DBIRTH, DDATA, DDEATH, DCMD.
    Device {
        /// Below which edge node.
        node: EdgeNodeDescriptor,
        /// What.
        kind: MessageKind,
        /// Which device.
        device: DeviceId,
    },
    /// STATE of a Host Application.
    State {
        /// Which host.
        host: HostId,
    },
}

/// Why a text is not a Sparkplug topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// First level is not `spBv1.0`.
    #[error("topic {topic:?} is not in the namespace spBv1.0")]
    ForeignNamespace {
        /// The topic.
        topic: String,
    },
    /// The third level is not a message kind, or the number of levels does not fit it.
    #[error("topic {topic:?} has not the shape of a Sparkplug topic: {rule}")]
    Shape {
        /// The topic.
        topic: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// An id in it is not allowed.
    #[error("topic {topic:?}: {source}")]
    Name {
        /// The topic.
        topic: String,
        /// Which id, and why.
        source: NameError,
    },
}

/// The first level, and what comes after its `/`. Levels are short: to look at each byte is faster than what searches long texts.
#[inline]
fn split_level(text: &str) -> Option<(&str, &str)> {
    let end = text.bytes().position(|byte| byte == b'/')?;
    Some((text.get(..end)?, text.get(end + 1..)?))
}

/// The levels of a topic of or to an edge node or a device, for those who know the names already: of the ids nothing is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Levels<'a> {
    pub group: &'a str,
    pub kind: MessageKind,
    pub edge_node: &'a str,
    pub device: Option<&'a str>,
}

impl<'a> Levels<'a> {
    /// None: it is none of those topics, and [`Topic::parse`] says why, or what it is.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        let (group, rest) = split_level(text.strip_prefix(NAMESPACE)?.strip_prefix('/')?)?;
        let (kind, rest) = split_level(rest)?;
        let kind = MessageKind::from_level(kind).filter(|kind| *kind != MessageKind::State)?;
        let (edge_node, device) = match split_level(rest) {
            Some((edge_node, device)) => (edge_node, Some(device)),
            None => (rest, None),
        };
        let fits = kind.has_device() == device.is_some() && device.is_none_or(|device| split_level(device).is_none());
        fits.then_some(Self { group, kind, edge_node, device })
    }
}

impl Topic {
    /// Topic of a message of or to an edge node, or of or to a device when there is one. `kind` is the node's spelling of it or the device's; the other is
    /// put right.
    #[must_use]
    pub fn of(node: EdgeNodeDescriptor, kind: MessageKind, device: Option<DeviceId>) -> Self {
        use MessageKind as K;
        match device {
            Some(device) => {
                let kind = match kind {
                    K::NBirth => K::DBirth,
                    K::NData => K::DData,
                    K::NDeath => K::DDeath,
                    K::NCmd => K::DCmd,
                    kind => kind,
                };
                Self::Device { node, kind, device }
            }
            None => {
                let kind = match kind {
                    K::DBirth => K::NBirth,
                    K::DData => K::NData,
                    K::DDeath => K::NDeath,
                    K::DCmd => K::NCmd,
                    kind => kind,
                };
                Self::Node { node, kind }
            }
        }
    }

    /// Reads a topic text.
    ///
    /// # Errors
    /// [`TopicError`] names the rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, TopicError> {
        let shape = |rule| TopicError::Shape { topic: text.to_owned(), rule };
        let name = |source| TopicError::Name { topic: text.to_owned(), source };
        let mut levels = text.split('/');
        // tck-id-topic-structure-namespace-a
        if levels.next() != Some(NAMESPACE) {
            return Err(TopicError::ForeignNamespace { topic: text.to_owned() });
        }
        let (Some(first), second) = (levels.next(), levels.next()) else {
            return Err(shape("it has only one level"));
        };
        if first == MessageKind::State.as_str() {
            return match (second, levels.next()) {
                (Some(host), None) => Ok(Self::State { host: HostId::new(host).map_err(name)? }),
                _ => Err(shape("STATE is followed by exactly one level, the host id")),
            };
        }
        let Some(kind) = second.and_then(MessageKind::from_level).filter(|kind| *kind != MessageKind::State) else {
            return Err(shape("its third level is none of NBIRTH, NDATA, NDEATH, NCMD, DBIRTH, DDATA, DDEATH, DCMD"));
        };
        let (edge_node, device) = (levels.next(), levels.next());
        if levels.next().is_some() {
            return Err(shape("it has more than five levels"));
        }
        let edge_node = edge_node.ok_or_else(|| shape("its edge node level is missing"))?;
        let node =
            EdgeNodeDescriptor::new(GroupId::new(first).map_err(name)?, EdgeNodeId::new(edge_node).map_err(name)?);
        // tck-id-topic-structure-namespace-device-id-associated-message-types,
        // tck-id-topic-structure-namespace-device-id-non-associated-message-types
        match (kind.has_device(), device) {
            (false, None) => Ok(Self::Node { node, kind }),
            (true, Some(device)) => Ok(Self::Device { node, kind, device: DeviceId::new(device).map_err(name)? }),
            (false, Some(_)) => Err(shape("messages of edge nodes have no device level")),
            (true, None) => Err(shape("messages of devices have a device level")),
        }
    }

    /// Kind of the message.
    #[must_use]
    pub const fn kind(&self) -> MessageKind {
        match self {
            Self::Node { kind, .. } | Self::Device { kind, .. } => *kind,
            Self::State { .. } => MessageKind::State,
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { node, kind } => write!(f, "{NAMESPACE}/{}/{kind}/{}", node.group, node.edge_node),
            Self::Device { node, kind, device } => {
                write!(f, "{NAMESPACE}/{}/{kind}/{}/{device}", node.group, node.edge_node)
            }
            Self::State { host } => write!(f, "{NAMESPACE}/{}/{host}", MessageKind::State),
        }
    }
}

impl std::str::FromStr for Topic {
    type Err = TopicError;
    fn from_str(text: &str) -> Result<Self, TopicError> {
        Self::parse(text)
    }
}

/// Subscription filters.
pub mod filter {
    use super::{MessageKind, NAMESPACE};
    use crate::name::{EdgeNodeDescriptor, GroupId, HostId};

    /// Everything in the namespace, STATE included.
    #[must_use]
    pub fn everything() -> String {
        format!("{NAMESPACE}/#")
    }

    /// Everything in a group, births to commands.
    #[must_use]
    pub fn group(group: &GroupId) -> String {
        format!("{NAMESPACE}/{group}/#")
    }

    /// Everything of and to one edge node and its devices.
    #[must_use]
    pub fn node(node: &EdgeNodeDescriptor) -> String {
        // Matches four levels and, because `#` includes its parent, also five.
        format!("{NAMESPACE}/{}/+/{}/#", node.group, node.edge_node)
    }

    /// Everything of and to the edge nodes of this name in all groups.
    #[must_use]
    pub fn node_in_all_groups(edge_node: &crate::name::EdgeNodeId) -> String {
        format!("{NAMESPACE}/+/+/{edge_node}/#")
    }

    /// NCMD to an edge node.
    #[must_use]
    pub fn node_commands(node: &EdgeNodeDescriptor) -> String {
        format!("{NAMESPACE}/{}/{}/{}", node.group, MessageKind::NCmd, node.edge_node)
    }

    /// DCMD to all devices of an edge node.
    #[must_use]
    pub fn device_commands(node: &EdgeNodeDescriptor) -> String {
        format!("{NAMESPACE}/{}/{}/{}/+", node.group, MessageKind::DCmd, node.edge_node)
    }

    /// STATE of every Host Application.
    #[must_use]
    pub fn host_states() -> String {
        format!("{NAMESPACE}/{}/+", MessageKind::State)
    }

    /// STATE of one Host Application.
    #[must_use]
    pub fn host_state(host: &HostId) -> String {
        format!("{NAMESPACE}/{}/{host}", MessageKind::State)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tck-id-topic-structure, tck-id-topics-nbirth-topic, tck-id-topics-dbirth-topic, tck-id-topics-ndata-topic, tck-id-topics-ddata-topic,
    /// tck-id-topics-ndeath-topic, tck-id-topics-ncmd-topic, tck-id-topics-dcmd-topic, tck-id-host-topic-phid-birth-topic, tck-id-intro-group-id-string,
    /// tck-id-intro-edge-node-id-string, tck-id-intro-device-id-string
    #[test]
    fn every_shape_comes_back_as_it_was_written() {
        for text in [
            "spBv1.0/G/NBIRTH/E",
            "spBv1.0/G/NDATA/E",
            "spBv1.0/G/NDEATH/E",
            "spBv1.0/G/NCMD/E",
            "spBv1.0/G/DBIRTH/E/D",
            "spBv1.0/G/DDATA/E/D",
            "spBv1.0/G/DDEATH/E/D",
            "spBv1.0/G/DCMD/E/D",
            "spBv1.0/STATE/Host 1",
            "spBv1.0/Grüße $x/DBIRTH/STATE/節",
        ] {
            assert_eq!(Topic::parse(text).map(|t| t.to_string()).as_deref(), Ok(text));
        }
    }

    /// tck-id-topic-structure-namespace-device-id-associated-message-types,
    /// tck-id-topic-structure-namespace-device-id-non-associated-message-types
    #[test]
    fn a_wrong_number_of_levels_is_refused() {
        for text in [
            "spBv1.0",
            "spBv1.0/G",
            "spBv1.0/G/NBIRTH",
            "spBv1.0/G/NBIRTH/E/D",
            "spBv1.0/G/DDATA/E",
            "spBv1.0/G/DDATA/E/D/x",
            "spBv1.0/G/NDATB/E",
            "spBv1.0/G/STATE/E",
            "spBv1.0/G/nbirth/E",
            "spBv1.0/STATE",
            "spBv1.0/STATE/H/x",
            "spBv1.0/STATE/NBIRTH/E",
        ] {
            assert!(matches!(Topic::parse(text), Err(TopicError::Shape { .. })), "{text}");
        }
    }

    /// tck-id-topic-structure-namespace-valid-group-id, tck-id-topic-structure-namespace-valid-edge-node-id,
    /// tck-id-topic-structure-namespace-valid-device-id, tck-id-intro-group-id-chars, tck-id-intro-edge-node-id-chars, tck-id-intro-device-id-chars
    #[test]
    fn ids_that_are_not_allowed_are_refused() {
        for text in [
            "spBv1.0//NBIRTH/E",
            "spBv1.0/G/NBIRTH/",
            "spBv1.0/G/DBIRTH/E/",
            "spBv1.0/+/NBIRTH/E",
            "spBv1.0/G/DDATA/E/a#b",
            "spBv1.0/STATE/",
        ] {
            assert!(matches!(Topic::parse(text), Err(TopicError::Name { .. })), "{text}");
        }
    }

    /// tck-id-topic-structure-namespace-a
    #[test]
    fn another_namespace_is_refused() {
        for text in ["", "spAv1.0/G/NBIRTH/E", "STATE/H", "$sparkplug/certificates/spBv1.0/G/NBIRTH/E"] {
            assert!(matches!(Topic::parse(text), Err(TopicError::ForeignNamespace { .. })), "{text}");
        }
    }

    #[test]
    fn of_chooses_the_spelling_for_node_or_device() {
        let node = EdgeNodeDescriptor::parse("G", "E").expect("valid");
        let device = DeviceId::new("D").expect("valid");
        assert_eq!(Topic::of(node.clone(), MessageKind::NCmd, Some(device)).to_string(), "spBv1.0/G/DCMD/E/D");
        assert_eq!(Topic::of(node, MessageKind::DBirth, None).to_string(), "spBv1.0/G/NBIRTH/E");
    }
}
