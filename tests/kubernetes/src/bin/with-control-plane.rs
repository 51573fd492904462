//! Starts a control plane, runs a command with KUBECONFIG set to it, and ends with the command's exit code.
//!
//! `with-control-plane cargo test -p edge-sync --test kubernetes` brings the definitions of Flux, Sealed Secrets and our chart, and one host without pods.
//! `with-control-plane --pods target/debug bash` is a fresh cluster for a user: three hosts that run pods as processes, of programs in the given directory. Nothing is
//! installed. `FLUX_EXPORT` names the file that installs Flux, and `PATH` has its kubectl and helm.

use std::path::Path;
use std::process::ExitCode;

use kubernetes_tests::control_plane::{ControlPlane, Options};
use kubernetes_tests::kubelet::images::{self, Ours};
use kubernetes_tests::kubelet::{self, Kubelet};
use kubernetes_tests::sources::Sources;
use kubernetes_tests::{definitions, flux_export};
use tokio::process::Command;

/// What the shell says of wrong usage.
const WRONG_USAGE: u8 = 2;

/// What the shell says of a command that it cannot start.
const CANNOT_START: u8 = 126;

/// Hosts that run pods; the first is the control plane's.
const HOSTS: [&str; 3] = ["host-1", "host-2", "host-3"];

const USAGE: &str = "usage: with-control-plane [--pods DIRECTORY] COMMAND [ARGUMENTS]";

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let ours = if arguments.first().is_some_and(|first| first == "--pods") {
        let Some(directory) = arguments.get(1).cloned() else { return wrong(USAGE) };
        arguments.drain(..2);
        match Ours::within(Path::new(&directory)) {
            Ok(ours) => Some(ours),
            Err(missing) => return wrong(&format!("{missing}: build it with `cargo build --workspace --bins`")),
        }
    } else {
        None
    };
    if arguments.is_empty() {
        return wrong(USAGE);
    }
    let program = arguments.remove(0);
    let mut command = Command::new(&program);
    command.args(arguments);
    let status = match ours {
        None => {
            let plane = ControlPlane::start().await;
            definitions::apply_all(&plane).await;
            kubelet::node::register(&plane.client(), "test-1", plane.network().address(1), true).await;
            command.env("KUBECONFIG", plane.kubeconfig()).status().await
        }
        Some(ours) => with_pods(&mut command, ours).await,
    };
    match status {
        Ok(status) => ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)),
        Err(error) => {
            eprintln!("with-control-plane: {} cannot be started: {error}", program.display());
            ExitCode::from(CANNOT_START)
        }
    }
}

async fn with_pods(command: &mut Command, ours: Ours) -> std::io::Result<std::process::ExitStatus> {
    let plane = ControlPlane::with(Options { scheduler: true, ..Options::default() }).await;
    let programs = plane.programs().clone();
    let _kubelet = Kubelet::start(&plane, &HOSTS, false, images::of(&programs, ours)).await;
    let _sources = Sources::start(&plane).await;
    let export = plane.directory().join("flux.yaml");
    std::fs::write(&export, flux_export::manifests(&programs))?;
    let mut path = programs.directory().into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    command.env("KUBECONFIG", plane.kubeconfig()).env("FLUX_EXPORT", export).env("PATH", path);
    command.status().await
}

fn wrong(what: &str) -> ExitCode {
    eprintln!("with-control-plane: {what}");
    ExitCode::from(WRONG_USAGE)
}
