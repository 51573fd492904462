//! The plain state of a run: what a world consists of, and what can happen. Nothing here knows the world.

pub mod broker;
pub mod checks;
pub mod disk;
pub mod endpoint;
pub mod enrolment;
pub mod git;
pub mod happening;
pub mod ids;
pub mod joins;
pub mod keys;
pub mod kubernetes;
pub mod mutation;
pub mod names;
pub mod network;
pub mod past;
pub mod people;
pub mod process;
pub mod program;
pub mod random;
pub mod replica;
pub mod role;
pub mod script;
pub mod transition;
pub mod truth;
