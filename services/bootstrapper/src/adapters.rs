//! Everything outside: translates and executes, never decides.

mod audit;
pub mod certificate_request;
pub mod command;
pub mod components;
pub mod cryptsetup;
pub mod directories;
pub mod files;
pub mod identity;
pub mod k3s;
pub mod kubeadm;
pub mod machine;
pub mod simulated;
pub mod sparkplug;
pub mod supervisor;
pub mod systemctl;
pub mod tasks;
#[cfg(feature = "tpm")]
pub mod tpm;
