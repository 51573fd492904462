//! The integration tests of this package, in one program.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod decode;
mod exchange;
mod hostile;
mod known_answers;
mod machine;
mod post_office;
mod renewal;
mod support;
