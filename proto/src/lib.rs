//! Protobuf messages that travel over the wire, as plain data. One module a schema; no logic and no opinion about
//! which fields a message must have.
#![warn(missing_docs)]

pub mod enrol;
pub mod join;
pub mod sparkplug_b;
