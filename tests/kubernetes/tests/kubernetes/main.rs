//! A real control plane and what runs on it. Ignored without the programs: `make kubernetes` builds them and runs these tests.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod attack;
mod charts;
mod control_plane;
mod edge_chart;
mod etcd;
mod flux;
mod host;
mod journey;
mod kubeadm;
mod pods;
mod rights;
mod waiting;
