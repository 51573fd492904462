//! What runs: the real states of every service, the machines that they are given, and simple programs for edge agents, the operator and an observer.
//!
//! A program knows its disk and what it was given at its start, and no world.

pub mod agent;
pub mod cluster_manager;
pub mod config_db;
pub mod console;
pub mod enrolment;
pub mod git_server;
pub mod joining;
pub mod keys;
pub mod monitor;
pub mod observer;
pub mod operator;
pub mod sync;
