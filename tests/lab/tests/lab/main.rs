//! Stories of machines: firmware, TPM, measured boot, encrypted disk, the bootstrapper as systemd starts it. `make lab` runs them.
//!
//! Each story has its own factory and its own machines. They are ignored unless asked for: one takes some minutes, and needs QEMU and root.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "stories print figures")]

mod cluster;
mod factory;
mod joining;
mod kubeadm;
mod kubeadm_nodes;
mod outages;
mod refusals;
