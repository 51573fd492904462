//! Translate and execute: resources and Secrets of Kubernetes, keys of the KDC.

pub mod key_executor;
pub mod resources;
pub mod sealing;
pub mod secrets;
