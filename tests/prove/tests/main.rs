//! The integration tests of this package, in one program.

mod classics;
mod labels;
