//! Simulated surroundings of the services, for one machine without a cluster, a shop floor or a cloud: everything here says of itself that it is simulated.
//!
//! ```text
//!   edge-sync, edge-monitor, kubectl ── HTTP ──> kubernetes: API, objects, watches
//!                                                   ^
//!   cluster: hosts;  sealed_secrets: unsealing ─────┤
//!   jobs: a Job -> what the composition does for it ─┤
//!   flux: git repository -> objects, HelmRelease -> chart ──┐
//!                                                           v
//!   edge_agent: Edge Nodes ── MQTT ──> the real broker    machine: what they measure
//! ```
//!
//! A [`cluster::SimulatedCluster`] is all of it: an API, hosts, Flux, and the charts that the composition gives it. The chart `edge-agent` comes from here
//! ([`edge_agent::AgentChart`]); the chart `edge-cluster` is a [`flux::chart::HookChart`] by which the composition starts its own services, because this package imports none.
//!
//! This is not a service: it has no state that outlives the process, no configuration of its own and no contract. So the rooms `config.rs`, `event.rs`, `state.rs`, `reconcile.rs`
//! and `adapters/` are absent. What can be pure is (the store and its rules, conditions, manifests, agents' configuration, machines); rims are `kubernetes/http.rs`,
//! `kubernetes/stream.rs`, `flux/git.rs` and `edge_agent/`.
#![warn(unreachable_pub)]

pub mod cluster;
pub mod edge_agent;
pub mod flux;
pub mod jobs;
pub mod kubernetes;
mod machine;
pub mod sealed_secrets;
