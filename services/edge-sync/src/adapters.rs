//! The outside: Kubernetes is observed and changed here, Sparkplug is reported to. Nothing here decides.

pub mod identity;
pub mod kubernetes;
pub mod sparkplug;
