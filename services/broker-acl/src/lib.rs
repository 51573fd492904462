//! Who may say what on the broker, and how its access control is configured.
//!
//! ```text
//!   site: organisation, clusters ── principals ──> rules: the one table ──> grants ──> broker/{mosquitto, dynamic_security, emqx, hivemq, vernemq}
//!                                                                             └──> filter: does a grant cover this topic?
//! ```
//!
//! A Sparkplug group is a trust domain, so a user of the broker is a group. A client with the credentials of `ACME-Paint_Shop` is that cluster. It does not reach the topics of
//! another cluster. A server takes the common name of a client certificate as the user's name. What is not granted is refused. A host that waits is a user of its own, who is one
//! Edge Node: servers bind it by its name.
//!
//! Everything here is a function of its arguments. What a server does with a file is tested on Mosquitto in `tests/e2e`; for the others the form of the files is checked.
#![warn(missing_docs, unreachable_pub)]

pub mod broker;
pub mod check;
pub mod filter;
pub mod limits;
pub mod rules;
pub mod site;

pub use broker::{Broker, ConfigFile, configuration};
pub use rules::{Action, Grant, allows, grants, grants_of_host, permits};
pub use site::{ForeignGroupError, Principal, Site, SiteError};
