//! The central services as processes of their own: ConfigDB, cluster manager, Identity, git server and central monitor, each with a configuration file, a state directory and a log.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use uuid::Uuid;

pub use crate::port::free as free_port;
use crate::process::{Process, Processes};
use crate::program;
use crate::wait;

/// Organisation of every factory of the tests.
pub const ORGANISATION: &str = "ACME";

/// Names of the central services, as the program calls them.
pub const SERVICES: [&str; 5] = ["configdb", "cluster-manager", "identity", "git-server", "edge-monitor"];

/// Running central services.
#[derive(Debug)]
pub struct CentralServices {
    /// Its services, named as in [`SERVICES`].
    pub processes: Processes,
    git: SocketAddr,
    scripts: SocketAddr,
    // Dropped last, so that the logs are there when the processes end.
    directory: TempDir,
}

impl CentralServices {
    /// Starts all of them against a broker; the git server listens on `git`.
    ///
    /// # Panics
    /// One of them cannot be started.
    #[must_use]
    pub fn start(broker: SocketAddr, git: SocketAddr) -> Self {
        Self::start_with(broker, git, "", "")
    }

    /// The same; the cluster manager serves bootstrap scripts on `scripts`.
    ///
    /// # Panics
    /// As [`CentralServices::start`].
    #[must_use]
    pub fn start_at(broker: SocketAddr, git: SocketAddr, scripts: SocketAddr) -> Self {
        Self::start_all(broker, (git, scripts), "", "")
    }

    /// The same; `edge` are keys of the cluster manager's table `edge`, `bootstrap` of its table `bootstrap`. Flux comes from a file beside the cluster manager.
    ///
    /// # Panics
    /// As [`CentralServices::start`].
    #[must_use]
    pub fn start_with(broker: SocketAddr, git: SocketAddr, edge: &str, bootstrap: &str) -> Self {
        Self::start_all(broker, (git, free_port()), edge, bootstrap)
    }

    fn start_all(broker: SocketAddr, (git, scripts): (SocketAddr, SocketAddr), edge: &str, bootstrap: &str) -> Self {
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        let central = Self { directory, git, scripts, processes: Processes::default() };
        // Short waits, so that a repetition is seen soon.
        let flux = central.directory.path().join("flux.yaml");
        fs::write(&flux, simulator::flux::install::manifests_yaml()).expect("the directory can be written");
        let manager = format!(
            "[timing]\nretry_first_ms = 200\nretry_max_ms = 2000\naway_s = 5\n\
             [edge]\n{edge}\n[bootstrap]\nlisten = \"{}\"\nflux = \"{}\"\n{bootstrap}\n",
            central.scripts,
            flux.display()
        );
        for service in SERVICES {
            let text = if service == "cluster-manager" { &*manager } else { "" };
            let head = match service {
                "edge-monitor" => "mode = \"central\"\n".to_owned(),
                "identity" => "retry_first_ms = 200\nretry_max_ms = 2000\n".to_owned(),
                "git-server" => git_server_head(git),
                _ => String::new(),
            };
            central.processes.insert(service_process(service, &head, text, broker, central.directory.path()));
        }
        central
    }

    /// Where git is served.
    #[must_use]
    pub const fn git(&self) -> SocketAddr {
        self.git
    }

    /// Where the cluster manager serves the scripts that bootstrap clusters.
    #[must_use]
    pub const fn scripts(&self) -> SocketAddr {
        self.scripts
    }

    /// Where everything is kept.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The git password of a cluster, as the operator who bootstraps it reads it.
    ///
    /// # Panics
    /// It is not there.
    pub async fn git_password(&self, cluster: Uuid) -> String {
        git_password(&self.state_dir("cluster-manager"), cluster).await
    }

    /// State directory of a service.
    #[must_use]
    pub fn state_dir(&self, service: &str) -> PathBuf {
        self.directory.path().join(service)
    }
}

/// Keys of a git server before the first table; it listens at that address.
#[must_use]
pub fn git_server_head(listen: SocketAddr) -> String {
    format!("listen = \"{listen}\"\nretry_first_ms = 200\nretry_max_ms = 2000\n")
}

/// The git password of a cluster in a cluster manager's state directory.
///
/// # Panics
/// It is not there.
pub async fn git_password(state_dir: &Path, cluster: Uuid) -> String {
    let file = state_dir.join("secrets").join(cluster.to_string());
    let read = || fs::read_to_string(&file).ok().filter(|text| !text.trim().is_empty());
    let password = wait::until("the git password", read, || file.display().to_string()).await;
    password.trim().to_owned()
}

/// A service as a process. `head` are keys before the first table, `tables` what follows.
///
/// # Panics
/// It cannot be started.
#[must_use]
pub fn service_process(service: &str, head: &str, tables: &str, broker: SocketAddr, directory: &Path) -> Process {
    service_process_with(service, head, tables, broker, directory, &[])
}

/// The same with variables added to its environment.
///
/// # Panics
/// It cannot be started.
#[must_use]
pub fn service_process_with(
    service: &str,
    head: &str,
    tables: &str,
    broker: SocketAddr,
    directory: &Path,
    environment: &[(&str, &str)],
) -> Process {
    let state_dir = directory.join(service);
    fs::create_dir_all(&state_dir).expect("the directory can be written");
    let file = directory.join(format!("{service}.toml"));
    let text = format!(
        "organisation = \"{ORGANISATION}\"\nstate_dir = \"{}\"\n{head}[mqtt]\nservers = [\"mqtt://{broker}\"]\n{tables}",
        state_dir.display()
    );
    fs::write(&file, text).expect("the directory can be written");
    let file = file.display().to_string();
    let level = [("SPARKFLEET_LOG", "info,configdb=debug,cluster_manager=debug,edge_sync=debug,edge_monitor=debug")];
    let environment = [&level, environment].concat();
    Process::with(service, &program::sparkfleet(), &[service, "--config", &file], &environment, directory)
}
