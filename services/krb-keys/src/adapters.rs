//! Translate and execute: resources and Secrets of Kubernetes, keys of the KDC.

pub(crate) mod key_executor;
mod material;
pub mod resources;
pub(crate) mod sealing;
pub(crate) mod secrets;
