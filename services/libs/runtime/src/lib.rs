//! What every service of Sparkfleet needs to be a well-behaved process, and nothing about what any of them does.
//!
//! | module | knows |
//! |---|---|
//! | [`effects`] | "persist before send" as types: effects can only be executed after a commit |
//! | [`config`] | defaults, TOML file and environment become one checked value; secrets stay secret |
//! | [`keys`] | documented configuration keys, printed by `--help` and compared with the real ones in tests |
//! | [`logging`] | one way to write logs, to stderr or a file |
//! | [`service`] | the common start and the one loop of a service: signals, health where it is configured, events, effects, deadlines |
//! | [`sessions`] | the sessions of a service that is an Edge Node and a Host Application |
//! | [`health`] | `/livez`, `/readyz` and `/metrics` over HTTP |
//! | [`http`] | the connections of an HTTP server: limits, TLS |
//! | [`state_dir`] | the directory of a service's own files: absolute, closed to others |
//! | [`shutdown`] | SIGINT and SIGTERM become a token; the second signal ends the process |
//! | [`atomic_file`] | replace a file completely or not at all |
//! | [`record`] | the chained record of writes that people asked for, as a file |
//! | [`disk`] | how much room a file system has |
//! | [`exit`] | exit codes and how an error is printed for a person |
//!
//! Of the workspace it imports the Sparkplug library alone. The clock is sparkplug-mqtt's, because it yields the `Now` of the state machines. There is no queue here: a service makes its bounded channel itself, beside the reason for the bound.
#![warn(missing_docs, unreachable_pub)]

pub mod atomic_file;
pub mod config;
pub mod disk;
pub mod effects;
pub mod exit;
pub mod health;
pub mod http;
pub mod keys;
pub mod logging;
pub mod record;
pub mod service;
pub mod sessions;
pub mod shutdown;
pub mod state_dir;

pub use effects::{Effects, Saved, Unsaved};
