//! The integration tests of this package, in one program: command lines as users write them, against real parts.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod clusters;
mod contexts;
mod deployments;
mod entries;
mod hosts;
mod observing;
mod refusals;
mod support;
mod terminal;
