//! The integration tests of this package, in one program.

mod certificates;
mod forge;
mod fuzz_seeds;
mod hostile;
mod policy;
mod real_tpm;
mod recorded;
mod signed;
mod swtpm;
