//! The integration tests of this package, in one program.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod api;
mod bootstrap_http;
mod external;
mod fuzz_seeds;
mod gatekeeper;
#[cfg(feature = "kerberos")]
#[path = "../../libs/kerberos-client/tests/support/kdc.rs"]
#[allow(dead_code, reason = "tests of other packages look at more")]
mod kdc;
#[cfg(feature = "kerberos")]
mod kerberos;
mod oidc;
#[path = "../../../sparkplug/mqtt/tests/support/port.rs"]
mod port;
mod run;
#[path = "support/state_client.rs"]
mod state_client;
#[path = "support/there.rs"]
mod there;
mod upkeep;
