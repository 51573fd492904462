//! What end-to-end tests need around them; the tests themselves are in `tests/`. Everything here runs the programs as an operator would: as processes with
//! configuration files, over a real MQTT server, looked at from outside.
//!
//! | module | knows |
//! |---|---|
//! | [`program`] | where the programs are, and how they are built |
//! | [`process`] | a running program: its log, signals, its end |
//! | [`mosquitto`] | an MQTT server of a test's own |
//! | [`secured_site`] | one that asks for certificates, and central services on it that sign them |
//! | [`port`] | ports that no one takes by accident |
//! | [`cli`] | the command line: exit code and JSON |
//! | [`recorder`] | every message of a run, in order |
//! | [`relay`] | a relay between joining hosts and their join service, honest or not |
//! | [`wire`] | the rules of Sparkplug sessions, checked on a recording; what nodes and devices report |
//! | [`central_services`] | ConfigDB, cluster manager and central monitor as processes |
//! | [`edge`] | a simulated Kubernetes API whose Flux starts edge sync and edge monitor as processes |
//! | [`end_state`] | what must be equal after every way that leads there |
//! | [`git_backend`] | another git server than the cluster manager's |
//! | [`shell`] | a user's shell with kubectl and curl |
//! | [`joining`] | what hosts with real TPMs join |
//! | [`wait`] | waiting for a state, with a bound and a diagnosis |
#![warn(missing_docs)]

pub mod central_services;
pub mod cli;
pub mod edge;
pub mod end_state;
pub mod git_backend;
pub mod joining;
pub mod mosquitto;
#[path = "../../../sparkplug/mqtt/tests/support/port.rs"]
pub mod port;
pub mod process;
pub mod program;
pub mod recorder;
pub mod relay;
pub mod secured_site;
pub mod shell;
pub mod wait;
pub mod wire;
