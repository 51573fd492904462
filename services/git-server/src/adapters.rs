//! What the git server touches: the copies on the disk, users who ask over HTTP, Sparkplug.

pub mod copying;
pub mod gatekeeper;
pub mod sparkplug;
pub mod store;
