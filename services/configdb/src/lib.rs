//! ConfigDB: objects, their classes and their JSON entries, kept durably and published on Sparkplug.
//!
//! ```text
//!  DCMD (write) -> contract: Command -> State -> Model: validate as a whole -> Transaction
//!                                                       |
//!            Store: commit, synced  <-------------------+      persist before publish
//!                    |
//!                    +-> DBIRTH / DDATA / DDEATH of the object -> NDATA Config/Revision -> NDATA Request/Result
//! ```
//!
//! 1. [`run`] loads the [`store`] into the [`model`], adds what comes with the program to a fresh one, and declares every object to the edge node `ORG-Central/ConfigDB`.
//! 2. A command is read by the contract, applied by the model or refused with field and rule, in [`state`]. All commands that wait are one turn: one commit, then all effects.
//! 3. Effects become messages only after the commit. If the process dies in between, the restarted one publishes the committed state with its births, and the repeated request is
//!    answered with the recorded result.
//! 4. A replay reads the history from the store and publishes it as historical data.
//! 5. What was written is recorded for people, from the history, before it is answered: `record`.
//!
//! There is no `reconcile.rs`: nothing here is brought to a desired state, the writer's request is it. There is no `adapters/`: the outside things are the [`store`] (one file
//! each) and the edge node, which is sparkplug-mqtt's.
#![warn(unreachable_pub)]

mod births;
mod builtin;
mod config;
mod epoch;
mod event;
pub mod model;
mod object;
mod object_metrics;
mod record;
mod service;
pub mod state;
pub mod store;
mod turns;

pub use config::{Config, ConfigError};
pub use event::{Effect, Event};
pub use service::{run, run_on};
pub use state::{State, Turn};
