//! What happens in a step: processes start, take turns, send and receive; what they ask for is done; people want something; things break.
//!
//! Each file acts on a [`crate::world::World`], and calls only what is before it in this order:
//!
//! 1. `mutation`, `sending`, `machines`: what processes send, and the Sparkplug machines that say it.
//! 2. `delivery`, `notify`, `requests`: what arrives at the broker, at processes, at watchers, at ConfigDB.
//! 3. `kubernetes`, `joins`, `keys`, `git`, `copies`, `people`, `pushes`, `enrolment`: what services ask of their surroundings is done.
//! 4. `watches`, `turns`, `start`: watches list, programs take turns, processes begin.
//! 5. `recovery`, `fault`, `transition`: what people do, and what breaks.

pub mod copies;
pub mod delivery;
pub mod enrolment;
pub mod fault;
pub mod git;
pub mod joins;
pub mod keys;
pub mod kubernetes;
pub mod machines;
pub mod mutation;
pub mod notify;
pub mod people;
pub mod pushes;
pub mod recovery;
pub mod requests;
pub mod sending;
pub mod start;
pub mod transition;
pub mod turns;
pub mod watches;
