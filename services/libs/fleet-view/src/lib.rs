//! The fleet as people see it: replicas of what was received over Sparkplug, the rows that are made of them, how each thing stands, and what changed between two looks.
//!
//! ```text
//! births, data, deaths -> fleet.rs: replicas -> rows -> tables.rs: JSON rows with health -> deltas.rs: what changed
//!                                                                                         -> history.rs: what happened, for ever
//! ```
//!
//! [`intent`] keeps the time at which each step of a deployment was reported.
//!
//! [`requests`] are the writes by which people change it.
//!
//! The command line, `sparkfleet up` and the web console show these rows, so that none of them judges otherwise than the others. Pure: it must not know how events
//! arrive, what time it is, or how rows are drawn.
#![warn(missing_docs, unreachable_pub)]

pub mod config;
pub mod deltas;
pub mod explorer;
pub mod health;
pub mod history;
pub mod intent;
pub mod policy;
pub mod rendered;
pub mod requests;
pub mod secrets;
pub mod tables;

mod alerts;
#[cfg(any(test, feature = "bench"))]
pub mod bench;
mod fleet;

pub use alerts::{Acknowledged, AlertRow};
pub use fleet::{
    ClusterRow, Count, DISK_ALERT, DeploymentRow, Fleet, FluxRow, HostRow, JoiningHostRow, NOT_DESIRED, REMOVING,
    SUSPENDED,
};
pub use secrets::{SecretKeyRow, SecretRow, SecretState};
