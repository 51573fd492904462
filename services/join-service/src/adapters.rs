//! The outside: Sparkplug, Kubernetes, files with keys. Each translates and executes, and decides nothing.

pub mod kubernetes;
pub mod sparkplug;
pub mod trust;
