//! The integration tests of this package, in one program.

mod crd;
#[cfg(feature = "kerberos")]
mod service;
#[cfg(feature = "kerberos")]
mod support;
