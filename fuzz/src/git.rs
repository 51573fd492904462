//! Git over smart HTTP: whatever bytes a client sends over its connection, the server answers in HTTP, serves nothing without a credential, and keeps what no client may change.
//!
//! The server is the one that the cluster manager starts, with its limits, on a port of this machine; behind it stands the program git, which reads the packet lines. Each input gets
//! a server and repositories of its own, so that an input replays as it was found.
//!
//! Apart from the other targets, because a test of `git-hosting` includes this file by its path.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

#[path = "connection.rs"]
mod connection;

use access::Principal;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use git_hosting::gatekeeper::{Admission, AdmissionRequest, Denial, Gatekeeper, Push};
use git_hosting::http::{Anonymous, Settings, router};
use git_hosting::passwords::{PasswordDigest, PasswordDigests};
use git_hosting::push::Hooks;
use git_hosting::repositories::{Kind, Repositories, RepositoryFiles, RepositoryRecord};
use service_runtime::http::server;
use service_runtime::shutdown::Shutdown;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use connection::contains;

/// A fuzz target: its name, which is that of its folder of seeds, too, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 1] = [("git_http", git_http)];

/// The cluster whose repository is served at `/git/cluster/Fuzz`.
pub const CLUSTER: Uuid = Uuid::from_u128(0xC1);
/// Its password.
pub const PASSWORD: &str = "fuzz-password";
/// Token of a person who may read and push.
pub const TOKEN: &str = "fuzz-token";

/// What only the cluster manager writes.
const OWNED: &str = "edo";
const FILE_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug, Clone)]
struct Doorkeeper;

impl Gatekeeper for Doorkeeper {
    fn polled(&self, _: Uuid) {}

    async fn admit(&self, request: AdmissionRequest) -> Result<Admission, Denial> {
        if *request.credential != TOKEN {
            return Err(Denial::Unknown);
        }
        let who = Principal { name: "token:fuzz".to_owned(), grants: Vec::new() };
        Ok(Admission { who, pulled: ["upstream".to_owned()].into() })
    }

    async fn pushed(&self, _: Push) -> bool {
        true
    }
}

/// A git server with one repository.
pub struct Site {
    repositories: Repositories,
    /// Where it listens.
    pub address: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<io::Result<()>>,
    _state_dir: TempDir,
}

impl Site {
    /// Starts it.
    ///
    /// # Panics
    /// The machine has no room or no port.
    pub async fn start() -> Self {
        let state_dir = tempfile::tempdir().expect("a temporary directory");
        let repositories = Repositories::load(state_dir.path()).expect("an empty directory");
        let files = RepositoryFiles {
            initial: [("README.md".to_owned(), b"read\n".to_vec())].into(),
            directory: Some(format!("{OWNED}/cluster")),
            owned: [("a.yaml".to_owned(), b"a: 1\n".to_vec())].into(),
            message: "first".to_owned(),
        };
        let place =
            RepositoryRecord { path: "cluster/Fuzz".to_owned(), kind: Kind::Cluster, store: Uuid::nil(), origin: None };
        repositories.write(CLUSTER, &place, &files, 0).expect("a repository");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (pushed, _) = mpsc::channel(1);
        let hooks = Hooks::install(state_dir.path()).expect("hooks");
        let request_timeout = Duration::from_secs(20);
        let passwords = PasswordDigests::default();
        passwords.insert(CLUSTER, PasswordDigest::of(PASSWORD));
        let settings = Settings {
            anonymous: Anonymous::None,
            children_max: 4,
            request_timeout,
            passwords,
            hooks,
            pushed,
            scratches: None,
        };
        let shutdown = Shutdown::new();
        let router = router(repositories.clone(), Doorkeeper, settings);
        let task = tokio::spawn(server::serve(listener, router, None, shutdown.clone()));
        Self { repositories, address, shutdown, task, _state_dir: state_dir }
    }

    /// Ends it.
    ///
    /// # Panics
    /// The server has panicked.
    pub async fn stop(self) {
        self.shutdown.trigger();
        self.task.await.expect("the server does not panic").expect("the server ends well");
    }

    /// What only the cluster manager writes, by path, and the commit of `main`.
    fn kept(&self) -> (BTreeMap<String, Vec<u8>>, Option<String>) {
        let files = self.repositories.read(CLUSTER, OWNED, FILE_BYTES_MAX).expect("the repository is whole");
        (files, self.repositories.main(CLUSTER).expect("the repository is whole"))
    }
}

/// Bytes as all that a client sends over one connection.
pub fn git_http(bytes: &[u8]) {
    connection::run(async {
        let site = Site::start().await;
        let (owned, first) = site.kept();
        let answers = connection::exchange(site.address, bytes).await;
        assert!(answers.is_empty() || answers.starts_with(b"HTTP/1."), "an answer is HTTP");
        let (kept, main) = site.kept();
        assert_eq!(kept, owned, "no client writes what the cluster manager writes");
        if !shows_credential(bytes) {
            assert_eq!(main, first, "no client pushes without a token");
            for status in ["200", "500"] {
                assert!(!contains(&answers, format!("HTTP/1.1 {status}").as_bytes()), "{status} for a stranger");
            }
        }
        assert!(main.is_some(), "no client deletes the branch");
        site.stop().await;
    });
}

/// Whether the bytes contain the password or the token, plain or as Base64.
fn shows_credential(bytes: &[u8]) -> bool {
    let shows = |bytes: &[u8]| [PASSWORD, TOKEN].iter().any(|secret| contains(bytes, secret.as_bytes()));
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let mut words = bytes.split(|byte| !is_base64(byte)).filter(|word| !word.is_empty());
    shows(bytes) || words.any(|word| BASE64_STANDARD.decode(word).is_ok_and(|decoded| shows(&decoded)))
}
