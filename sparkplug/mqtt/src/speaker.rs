//! The name of this process among those that could speak for an Edge Node.

use sparkplug::edge_node::{NodeEvent, OtherSpeaker, Speaker};

/// Another process runs as this Edge Node and continues; this one has to end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; stop it, or displace it with mqtt.take_over = true (sparkfleet up --take-over)")]
pub struct Displaced(pub OtherSpeaker);

/// The event, for a service that ends when it is displaced.
///
/// # Errors
/// [`Displaced`]
pub fn unless_displaced(event: NodeEvent) -> Result<NodeEvent, Displaced> {
    match event {
        NodeEvent::Displaced(other) => Err(Displaced(other)),
        event => Ok(event),
    }
}

/// The speaker with what is missing filled in.
pub(crate) fn named(speaker: Speaker, take_over: bool) -> Speaker {
    let Speaker { instance, host, takes_over } = speaker;
    let instance = if instance.is_empty() { uuid::Uuid::new_v4().to_string().into() } else { instance };
    let host = if host.is_empty() { rustix::system::uname().nodename().to_string_lossy().into() } else { host };
    Speaker { instance, host, takes_over: takes_over || take_over }
}
