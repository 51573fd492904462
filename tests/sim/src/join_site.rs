//! A site where hosts join, as the tests of the join service make it. It has keys, signed policies, machines with TPMs in software, a Kubernetes API in memory, and a search for secrets.
#![allow(dead_code, unreachable_pub, reason = "the simulation uses a part of it")]
#![allow(missing_debug_implementations, clippy::unwrap_used, reason = "they belong to tests")]

#[path = "../../../services/join-service/tests/support/host.rs"]
pub mod host;
#[path = "../../../services/join-service/tests/support/site.rs"]
pub mod site;
#[path = "../../../services/join-service/tests/support/store.rs"]
pub mod store;
#[path = "../../../services/join-service/tests/support/wire.rs"]
pub mod wire;
