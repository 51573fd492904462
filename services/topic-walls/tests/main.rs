//! The integration tests of this package, in one program.

mod files;
mod flood;
mod walls;
