//! End-to-end tests: the programs as an operator runs them, over a real MQTT server, each test with its own server, directories and ports.
//!
//! One test program, because linking a Kubernetes client, git and an MQTT server takes longer than running most of the tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[cfg(feature = "kerberos")]
mod accounts;
mod alertmanager;
mod bootstrap;
mod broker_acl;
mod charts;
mod command_line;
mod console;
mod console_reads;
mod enrolment;
mod factory;
mod full_disk;
mod git;
mod history;
mod hostile;
mod interop;
mod joining;
mod journey;
mod kubernetes;
mod lifecycle;
mod one_speaker;
mod pushes;
mod recovery;
mod renewal;
mod resume;
mod sealing;
mod secured_recovery;
mod site;
mod suspension;
mod tokens;
#[cfg(feature = "tpm")]
mod tpm;
mod up;
mod waves;
