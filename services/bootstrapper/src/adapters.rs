//! Everything outside: translates and executes, never decides.

pub mod certificate_request;
pub mod files;
pub mod identity;
pub mod simulated;
pub mod sparkplug;
pub mod supervisor;
pub mod tasks;
