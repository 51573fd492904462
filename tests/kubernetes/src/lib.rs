//! A real Kubernetes control plane of a test's own, pods as processes, and Flux' real controllers.
//!
//! | module | knows |
//! |---|---|
//! | [`programs`] | where the programs are that `make kubernetes` builds |
//! | [`process`] | a running program, which ends with the test whatever becomes of it |
//! | [`network`] | addresses of one control plane |
//! | [`certificates`] | its authority and what that has signed |
//! | [`control_plane`] | etcd, API server, controller-manager and scheduler; restart, compaction, logs |
//! | [`audit`] | what an account asks of it, beside what it may |
//! | [`definitions`] | the resource definitions of Flux, Sealed Secrets and our chart |
//! | [`flux_export`] | what installs Flux, as `flux install --export` writes it |
//! | [`controllers`] | helm-controller and kustomize-controller |
//! | [`sources`] | artifacts for Flux' sources, in the place of source-controller |
//! | [`kubelet`] | nodes, and pods as processes |
//! | [`repository`] | a git repository that Flux can fetch |
//! | [`cluster`] | which cluster a test runs on |
//! | [`proxy`] | that cluster's API without TLS and credentials |
//!
//! Programs that need it are started in a mount namespace of their own; what the machine does not allow is said in the failure of the test that needs it.
#![warn(missing_docs)]

pub mod audit;
pub mod certificates;
pub mod cluster;
pub mod control_plane;
pub mod controllers;
pub mod definitions;
pub mod flux_export;
pub mod kubelet;
pub mod network;
pub mod process;
pub mod programs;
pub mod proxy;
pub mod repository;
pub mod sources;
