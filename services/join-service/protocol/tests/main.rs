//! The integration tests of this package, in one program.

mod decode;
mod exchange;
mod hostile;
mod known_answers;
mod machine;
mod post_office;
mod renewal;
mod support;
