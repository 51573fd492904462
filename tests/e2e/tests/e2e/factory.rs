//! `sparkfleet up` for a test: own data directory, free ports, no content but the built-in one or what the test loads.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use e2e::central_services;
use e2e::cli::Cli;
use e2e::process::Process;
use e2e::program;
use tempfile::TempDir;

/// A ConfigDB dump that holds nothing.
pub const EMPTY: &str = "service: af15f175-78a0-4e05-97c0-2a0bb82b9f3b\nversion: 2\n";

/// A factory in one process.
pub struct Up {
    pub process: Process,
    pub directory: TempDir,
    pub cli: Cli,
    /// Where its broker is.
    pub broker: SocketAddr,
}

/// Arguments of `up` that every test gives, unless they are in `more`.
pub fn arguments(data_dir: &Path, more: &[&str]) -> Vec<String> {
    let data_dir = data_dir.display().to_string();
    let mut all = vec!["up", "--plain", "--data-dir", &data_dir];
    for option in ["--listen", "--git", "--bootstrap", "--http", "--console-listen"] {
        // A factory on a site's server has no server of its own.
        let is_own = option != "--listen" || !more.contains(&"--broker");
        if is_own && !more.contains(&option) {
            all.extend([option, "127.0.0.1:0"]);
        }
    }
    all.extend(more);
    all.into_iter().map(str::to_owned).collect()
}

impl Up {
    /// Starts it on a server that runs, with nothing in its ConfigDB but what every store holds.
    pub async fn on(broker: SocketAddr) -> Self {
        Self::on_with(broker, &[]).await
    }

    /// The same with more arguments.
    pub async fn on_with(broker: SocketAddr, more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let load = directory.path().join("empty.yaml");
        std::fs::write(&load, EMPTY).unwrap();
        let url = format!("mqtt://{broker}");
        let load = load.display().to_string();
        Self::start(directory, &[&["--broker", &url, "--load", &load], more].concat()).await
    }

    /// Starts it on a server that runs, with the built-in content. `protocol`: the version of MQTT that its services speak.
    pub async fn filled_on(broker: SocketAddr, protocol: &str) -> Self {
        let url = format!("mqtt://{broker}");
        Self::start(tempfile::tempdir().unwrap(), &["--broker", &url, "--protocol", protocol]).await
    }

    /// Starts it with its own broker and the built-in content.
    pub async fn embedded() -> Self {
        Self::start(tempfile::tempdir().unwrap(), &[]).await
    }

    /// Starts a factory with its own broker again, on what the last one left.
    pub async fn again(directory: TempDir) -> Self {
        Self::again_with(directory, &[]).await
    }

    /// The same with more arguments.
    pub async fn again_with(directory: TempDir, more: &[&str]) -> Self {
        // A log of its own, so that what is said now is not confused with what was said before.
        let log = directory.path().join("up.log");
        std::fs::rename(&log, log.with_extension("before")).unwrap();
        Self::start(directory, more).await
    }

    async fn start(directory: TempDir, more: &[&str]) -> Self {
        let arguments = arguments(&directory.path().join("data"), more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let process = Process::start("up", &program::sparkfleet(), &arguments, directory.path());
        let line = process.says("broker mqtt://").await;
        let broker: SocketAddr = word_after(&line, "mqtt://").parse().unwrap();
        let trust = directory.path().join("data/trust").display().to_string();
        let cli = Cli::new(&format!("mqtt://{broker}")).with_environment([("SPARKFLEET_TRUST".to_owned(), trust)]);
        Self { directory, process, cli, broker }
    }

    pub fn data_dir(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Its log and everything that it printed.
    pub fn logs(&self) -> String {
        let log = std::fs::read_to_string(self.data_dir().join("sparkfleet.log")).unwrap_or_default();
        format!("{}{log}", self.process.output())
    }

    pub async fn git_password(&self, cluster: uuid::Uuid) -> String {
        central_services::git_password(&self.data_dir().join("cluster-manager"), cluster).await
    }

    /// What its ConfigDB holds, wherever its git server is.
    pub async fn content(&self) -> serde_json::Value {
        let place = self.git_url().await;
        let dump = e2e::end_state::dump(&self.cli).await;
        serde_json::from_str(&dump.to_string().replace(&place, "GIT")).unwrap()
    }

    /// Waits until all its services are ready.
    pub async fn ready(&self) {
        let line = self.process.says("health http://").await;
        let address = word_after(&line, "health http://").split('/').next().unwrap().parse().unwrap();
        let until = Instant::now() + e2e::wait::PATIENCE;
        while !e2e::edge::is_ready(address).await {
            assert!(Instant::now() < until, "{}", self.logs());
            tokio::time::sleep(e2e::wait::LOOK).await;
        }
    }

    /// Base URL of its git server.
    pub async fn git_url(&self) -> String {
        let line = self.process.says("git http://").await;
        format!("http://{}", word_after(&line, "git http://").trim_end_matches('/'))
    }
}

/// What follows `mark` up to the next blank.
pub fn word_after<'a>(line: &'a str, mark: &str) -> &'a str {
    let (_, rest) = line.split_once(mark).unwrap();
    rest.split_whitespace().next().unwrap_or_default()
}

/// The UUID that a command printed.
pub fn uuid(value: &serde_json::Value) -> uuid::Uuid {
    value["uuid"].as_str().unwrap().parse().unwrap()
}
