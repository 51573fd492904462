//! Translate and execute: resources and Secrets of Kubernetes, keys of the KDC.

pub mod hands;
pub mod resources;
pub mod sealing;
pub mod secrets;
