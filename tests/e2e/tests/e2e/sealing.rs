//! A secret on its way from an operator's keyboard into a cluster, sealed all the way.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use e2e::cli::Cli;
use e2e::wait;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::http_api::{contains, nowhere, token};
use crate::site::{NAME, Site};

const VALUE: &str = "correct horse battery staple";

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_sealed_on_the_command_line_opens_in_its_cluster_and_is_readable_nowhere_between() {
    let site = Site::start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), VALUE).unwrap();
    let from_file = format!("password={}", file.path().display());
    let seal = ["secret", "seal", NAME, "--name", "press-login", "--from-file", &from_file, "--from-file", "user=-"];
    let sealed = site.cli.json_with(&seal, "operator-1").await;
    let shown = sealed.to_string();
    assert!(!shown.contains(VALUE) && !shown.contains("operator-1"), "{shown}");

    // As Flux would, from by-hand/ of the cluster's repository.
    let kubernetes = site.edge.cluster.kubernetes().clone();
    kubernetes.apply("test", sealed).unwrap();
    let opened = || kubernetes.get("v1", "Secret", "fplus-edge", "press-login").ok();
    let secret = wait::until("the Secret", opened, String::new).await;
    assert_eq!(decoded(&secret["data"]["password"]), VALUE);
    assert_eq!(decoded(&secret["data"]["user"]), "operator-1");
    let said = site.recorder.messages().iter().any(|message| contains(&message.payload, VALUE.as_bytes()));
    assert!(!said, "no message holds the value");

    let missing = site.cli.run(&["secret", "seal", NAME, "--name", "x", "--from-file", "password=/nonexistent"]).await;
    missing.refused(3, "cannot read /nonexistent");
    let bad = site.cli.run(&["secret", "seal", NAME, "--name", "Not_A_Name", "--from-file", &from_file]).await;
    bad.refused(2, "name \"Not_A_Name\" must be");
    let nowhere = site.cli.run(&["secret", "seal", "Nowhere", "--name", "x", "--from-file", &from_file]).await;
    nowhere.refused(7, "there is no cluster \"Nowhere\"");
}

/// Base64, decoded by the program `base64`.
fn decoded(value: &Value) -> String {
    let text = value.as_str().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let output = std::process::Command::new("base64").arg("-d").arg(file.path()).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// What goes from here to a server passes through, and is remembered.
struct Tap {
    addr: SocketAddr,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tap = Self { addr: listener.local_addr().unwrap(), sent: Arc::default() };
        let sent = Arc::clone(&tap.sent);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server, Arc::clone(&sent)));
            }
        });
        tap
    }

    fn has_seen(&self, text: &str) -> bool {
        contains(&self.sent.lock().unwrap(), text.as_bytes())
    }
}

async fn pass(client: TcpStream, server: SocketAddr, sent: Arc<Mutex<Vec<u8>>>) {
    let server = TcpStream::connect(server).await.unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            sent.lock().unwrap().extend_from_slice(&buffer[..length]);
            to_server.write_all(&buffer[..length]).await.unwrap();
        }
    };
    // A client that has its answer hangs up.
    tokio::select! {
        () = there => {}
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
    }
}

/// A file with the text of a token.
fn token_file(directory: &Path, name: &str, text: &str) -> String {
    let file: PathBuf = directory.join(name);
    fs::write(&file, format!("{text}\n")).unwrap();
    file.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_put_on_the_command_line_is_sealed_before_it_leaves_the_machine() {
    let site = Site::start().await;
    let tap = Tap::start(site.central.api()).await;
    let operator = token(&site, &["press", "--scope", "operator", "--cluster", NAME], NAME).await;
    let viewer = token(&site, &["look", "--scope", "viewer"], NAME).await;
    let directory = tempfile::tempdir().unwrap();
    let as_viewer = token_file(directory.path(), "viewer", &viewer);
    // No broker is needed: there is none at the address that the commands have.
    let url = ("SPARKFLEET_API_URL".to_owned(), format!("http://{}", tap.addr));
    let as_operator = token_file(directory.path(), "operator", &operator);
    let cli = Cli::new("mqtt://127.0.0.1:1").with_environment([url]);
    let cli = cli.with_environment([("SPARKFLEET_API_TOKEN_FILE".to_owned(), as_operator.clone())]);

    let put = ["secret", "put", NAME, "press-login", "password"];
    let tried = cli.json_with(&[&put[..], &["--dry-run"]].concat(), VALUE).await;
    assert_eq!(tried["pinned"], false, "{tried}");
    let used = tried["fingerprint"].as_str().unwrap();
    let pinned = [&put[..], &["--fingerprint", used]].concat();
    assert_eq!(cli.json_with(&pinned, VALUE).await["pinned"], true);
    let file = directory.path().join("user.txt");
    fs::write(&file, "operator-1").unwrap();
    let file = file.display().to_string();
    let shown = cli.run(&["secret", "put", NAME, "press-login", "user", "--file", &file]).await;
    assert!(shown.code == 0 && shown.stdout.contains(&format!("not pinned: --fingerprint {used}")), "{shown:#?}");

    let kubernetes = site.edge.cluster.kubernetes().clone();
    let get = || kubernetes.get("v1", "Secret", "fplus-edge", "press-login").ok();
    let both = || get().filter(|secret| secret["data"]["user"].is_string() && secret["data"]["password"].is_string());
    let secret = wait::until("the Secret", both, || site.edge.processes.tails()).await;
    assert_eq!(decoded(&secret["data"]["password"]), VALUE);
    assert_eq!(decoded(&secret["data"]["user"]), "operator-1");
    let listed = cli.json(&["secret", "list", NAME]).await;
    assert_eq!(listed["fingerprint"], used);
    let keys = listed["secrets"][0]["keys"].as_array().unwrap();
    assert!(keys.len() == 2 && keys.iter().all(|key| key["sealed_for"] == used && key["seal_again"] == false));
    let table = cli.run(&["secret", "list", NAME]).await.stdout;
    assert!(table.contains("press-login") && table.contains("password,user"), "{table}");

    let other = "0f".repeat(32);
    let refused = cli.run_with(&[&put[..], &["--fingerprint", &other]].concat(), VALUE).await;
    refused.refused(5, "nothing was sent");
    let wide = cli.run_with(&[&put[..], &["--scope", "cluster-wide"]].concat(), VALUE).await;
    wide.refused(5, "is there with scope strict");
    let may_not = cli.run_with(&[&put[..], &["--token-file", &as_viewer]].concat(), VALUE).await;
    may_not.refused(5, "needs the scope operator");
    let unknown = cli.run_with(&["secret", "put", "Nowhere", "x", "y"], VALUE).await;
    unknown
        .refused(7, "among the clusters that the token is for: there is no cluster \"Nowhere\"; there are: Paint_Shop");
    let stranger = token_file(directory.path(), "stranger", "sfp_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let stranger = cli.run(&["secret", "list", NAME, "--token-file", &stranger]).await;
    stranger.refused(5, "`sparkfleet token create");
    let unreachable = cli.run(&["secret", "list", NAME, "--url", "http://127.0.0.1:1"]).await;
    unreachable.refused(4, "cannot reach http://127.0.0.1:1");

    let delete = ["secret", "delete", NAME, "press-login", "password"];
    cli.json(&[&delete[..], &["--dry-run"]].concat()).await;
    cli.json(&[&delete[..], &["user"]].concat()).await;
    let gone = || get().is_none().then_some(());
    wait::until("the Secret to go", gone, || site.edge.processes.tails()).await;
    assert_eq!(cli.json(&["secret", "list", NAME]).await["secrets"].as_array().unwrap().len(), 0);
    cli.run(&delete).await.refused(5, "there is no secret fplus-edge/press-login/password");

    assert!(tap.has_seen("/sealed-secret/fplus-edge/press-login/password"), "all of it went this way");
    assert!(!tap.has_seen(VALUE) && !tap.has_seen("operator-1"), "no value did");
    nowhere(&site, &[VALUE, "operator-1", &operator, &viewer]).await;
}
