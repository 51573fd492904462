//! The bootstrap script over HTTP. Whatever bytes a client sends over its connection, the cluster manager answers in HTTP. It gives a script only to a client that shows a token of that cluster.
//!
//! Apart from the other targets, because a test of `cluster-manager` includes this file by its path.

use cluster_manager::adapters::bootstrap_http::{ScriptStore, Settings, router};
use cluster_manager::adapters::passwords::ClusterPasswords;
use cluster_manager::adapters::quarantine::QuarantineFiles;
use cluster_manager::bootstrap::{BootstrapGrant, FluxSource, OfferedToken, ScriptValues};
use enrolment_protocol::token::Token;
use service_runtime::config::ExposeSecret as _;
use service_runtime::http::server;
use service_runtime::shutdown::Shutdown;
use sparkplug_mqtt::Clock;
use tokio::net::TcpListener;
use uuid::Uuid;

#[path = "connection.rs"]
mod connection;

use connection::contains;

/// Name of the target and of its folder of seeds.
pub const NAME: &str = "bootstrap_http";

/// A cluster with a token.
const CLUSTER: Uuid = Uuid::from_u128(0xA);
/// A cluster whose token has ended.
const ENDED: Uuid = Uuid::from_u128(0xB);

fn grant(token: &Token, expires: u64) -> BootstrapGrant {
    let values = ScriptValues {
        name: "Fuzz".to_owned(),
        namespace: "fplus-edge".to_owned(),
        bare: false,
        self_link: "kind: SelfLink\n".to_owned(),
        identity_key: None,
    };
    let tokens = vec![OfferedToken { hash: token.hash().as_str().to_owned(), expires }];
    BootstrapGrant { values: Some(values), tokens }
}

/// Bytes as all that a client sends over one connection.
pub fn bootstrap_http(bytes: &[u8]) {
    connection::run(async {
        let state_dir = tempfile::tempdir().expect("a temporary directory");
        let passwords = ClusterPasswords::load(state_dir.path(), []).expect("an empty directory");
        let (token, script_store) = (Token::new([1; 32]), ScriptStore::default());
        for (cluster, expires) in [(CLUSTER, u64::MAX), (ENDED, 1)] {
            passwords.ensure(cluster).expect("a password");
            script_store.set(cluster, Some(grant(&token, expires)));
        }
        script_store.complete();
        let settings = Settings {
            organisation: "ACME".to_owned(),
            flux: FluxSource::Site,
            image: None,
            mqtt_servers: Vec::new(),
            login: QuarantineFiles::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shutdown = Shutdown::new();
        let router = router(script_store, passwords.clone(), settings, Clock::new());
        let serving = tokio::spawn(server::serve(listener, router, None, shutdown.clone()));
        let answers = connection::exchange(address, bytes).await;
        assert!(answers.is_empty() || answers.starts_with(b"HTTP/1."), "an answer is HTTP");
        assert!(!contains(&answers, b"HTTP/1.1 500"), "nothing is unexpected");
        let shows = |cluster| {
            let password = passwords.get(cluster).expect("a password");
            contains(&answers, password.expose_secret().as_bytes())
        };
        assert!(!shows(ENDED), "a token that has ended opens nothing");
        let has_token = contains(bytes, token.expose().as_bytes());
        assert!(has_token || !(shows(CLUSTER) || contains(&answers, b"HTTP/1.1 200")), "a stranger learns nothing");
        shutdown.trigger();
        serving.await.expect("the server does not panic").expect("the server ends well");
    });
}
