//! The outside world of a monitor: one file an outside thing. They translate and execute; they never decide.

pub mod kubernetes;
pub mod sparkplug;
