//! Ids of groups, edge nodes, devices and hosts, validated when made.
//!
//! Rules: any UTF-8 without `+`, `/`, `#` (tck-id-topic-structure-namespace-valid-group-id and its siblings for edge node and device ids). In addition:
//! not empty, no U+0000 and no other control character, at most [`NAME_BYTES_MAX`] bytes. A group is not called `STATE`, which would make `spBv1.0/STATE/...` ambiguous.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Longest id accepted, in bytes of UTF-8. An MQTT topic has at most 65,535 bytes; five levels of this size fit.
pub const NAME_BYTES_MAX: usize = 1024;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The id has no character.
    #[error("{what} is empty; it needs at least one character")]
    Empty {
        /// Which id: `group id`, `edge node id`, `device id`, `host id`.
        what: &'static str,
    },
    /// The id holds a character that the standard or MQTT forbids in it.
    #[error("{what} {name:?} contains {character:?}; `+`, `/`, `#` and control characters are not allowed in it")]
    ForbiddenCharacter {
        /// Which id.
        what: &'static str,
        /// The refused text.
        name: String,
        /// The first character at fault.
        character: char,
    },
    /// The id is longer than [`NAME_BYTES_MAX`].
    #[error("{what} has {bytes} bytes; at most {NAME_BYTES_MAX} are allowed")]
    TooLong {
        /// Which id.
        what: &'static str,
        /// Its length in bytes.
        bytes: usize,
    },
    /// The id is taken by the standard.
    #[error("{what} {name:?} is reserved by the Sparkplug topic namespace; choose another")]
    Reserved {
        /// Which id.
        what: &'static str,
        /// The refused text.
        name: String,
    },
}

fn check(what: &'static str, text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { what, bytes: text.len() });
    }
    match text.chars().find(|c| matches!(c, '+' | '/' | '#') || c.is_control()) {
        Some(character) => Err(NameError::ForbiddenCharacter { what, name: text.to_owned(), character }),
        None => Ok(()),
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $reserved:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text` and makes the id of it.
            ///
            /// # Errors
            /// [`NameError`] names the rule that the text breaks.
            pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
                let text = text.as_ref();
                check($what, text)?;
                let reserved: &[&str] = &$reserved;
                if reserved.contains(&text) {
                    return Err(NameError::Reserved { what: $what, name: text.to_owned() });
                }
                Ok(Self(Arc::from(text)))
            }

            /// The id as it is written in a topic.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        /// Ids are ordered and compared as their texts are.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
    };
}

id!(
    /// Group id: the first naming level, a logical grouping of edge nodes; here also a trust domain.
    GroupId, "group id", ["STATE"]
);
id!(
    /// Edge node id, unique within its group.
    EdgeNodeId, "edge node id", []
);
id!(
    /// Device id, unique below its edge node.
    DeviceId, "device id", []
);
id!(
    /// Host Application id, unique in the system.
    HostId, "host id", []
);

/// Group id and edge node id together: unique in the whole system (Sparkplug 3.0, edge node descriptor).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeNodeDescriptor {
    /// The group.
    pub group: GroupId,
    /// The edge node in it.
    pub edge_node: EdgeNodeId,
}

impl EdgeNodeDescriptor {
    /// Puts two ids together.
    #[must_use]
    pub const fn new(group: GroupId, edge_node: EdgeNodeId) -> Self {
        Self { group, edge_node }
    }

    /// Checks two texts and makes a descriptor of them.
    ///
    /// # Errors
    /// [`NameError`] of the first id that is not allowed.
    pub fn parse(group: &str, edge_node: &str) -> Result<Self, NameError> {
        Ok(Self { group: GroupId::new(group)?, edge_node: EdgeNodeId::new(edge_node)? })
    }
}

impl fmt::Display for EdgeNodeDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.edge_node)
    }
}
