//! The integration tests of this package, in one program.

mod core;
mod seeds;
mod support;
mod trust;
