//! The integration tests of this package, in one program.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod bootstrap_http;
mod external;
mod fuzz_seeds;
mod gatekeeper;
mod git_pushes;
mod git_server;
#[cfg(feature = "kerberos")]
#[path = "../../libs/kerberos-client/tests/support/kdc.rs"]
#[allow(dead_code, reason = "tests of other packages look at more")]
mod kdc;
#[cfg(feature = "kerberos")]
mod kerberos;
#[path = "../../../sparkplug/mqtt/tests/support/mosquitto.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod mosquitto;
mod oidc;
mod run;
#[path = "support/state_client.rs"]
mod state_client;
#[path = "support/there.rs"]
mod there;
mod upkeep;
