//! What one client may take of a server, and all of them together: without it one that floods, or reads slowly, takes the memory of everyone.

/// Largest packet, bytes: a birth or a deployment's manifests with an MQTT header.
pub const PACKET_BYTES_MAX: u64 = 1024 * 1024;
/// Messages that wait for one client; a large birth is a burst of them.
pub const QUEUED_MESSAGES_MAX: u64 = 100_000;
/// The same in bytes, where the server counts them.
pub const QUEUED_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Clients at the same time.
pub const CONNECTIONS_MAX: u64 = 10_000;
/// Memory of the server, bytes, where it counts it; a publisher for whom there is none is disconnected.
pub const MEMORY_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Seconds that a session without a connection is kept. Sparkplug's are clean: only those of others are kept at all.
pub const SESSION_EXPIRY_S: u64 = 3600;
