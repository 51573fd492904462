//! Starts a control plane with the definitions of Flux, Sealed Secrets and our chart, runs a command with KUBECONFIG set to it, and ends with the command's exit code:
//! `with-control-plane cargo test -p edge-sync --test kubernetes`.

use std::process::ExitCode;

use kubernetes_tests::control_plane::ControlPlane;
use kubernetes_tests::{definitions, kubelet};
use tokio::process::Command;

/// What the shell says of a command that it cannot start.
const CANNOT_START: u8 = 126;

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("with-control-plane: name the command to run");
        return ExitCode::from(2);
    };
    let plane = ControlPlane::start().await;
    definitions::apply_all(&plane).await;
    kubelet::node::register(&plane.client(), "test-1", plane.network().address(1), true).await;
    let status = Command::new(&program).args(arguments).env("KUBECONFIG", plane.kubeconfig()).status().await;
    match status {
        Ok(status) => ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)),
        Err(error) => {
            eprintln!("with-control-plane: {} cannot be started: {error}", program.display());
            ExitCode::from(CANNOT_START)
        }
    }
}
