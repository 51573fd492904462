//! The program itself over HTTPS, with an API behind it whose state answers as the test says.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;
use std::process::{Output, Stdio};

use access::rate::Rate;
use cluster_manager::adapters::http::people;
use cluster_manager::adapters::http::state_client::{QUESTIONS_MAX, StateClient, keep_records};
use cluster_manager::api::{Answer, Asked, Credential, Question, Refusal, Reply};
use cluster_manager_contract::ClusterDevice;
use service_runtime::http::server;
use service_runtime::http::tls::Tls;
use service_runtime::record::{self, RecordFile};
use service_runtime::shutdown::Shutdown;
use simulator::sealed_secrets::CERTIFICATE;
use sparkplug_mqtt::Clock;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::mpsc;
use uuid::Uuid;

const VALUE: &str = "correct horse battery staple";
const TOKEN: &str = "sfp_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn reply(asked: &Asked) -> Result<Reply, Refusal> {
    assert!(matches!(asked.credential, Credential::Token(_)));
    assert!(!format!("{asked:?}").contains(VALUE));
    Ok(match &asked.question {
        Question::Clusters => {
            let device = ClusterDevice { name: "Paint_Shop".to_owned(), ..ClusterDevice::default() };
            Reply::Clusters(vec![(Uuid::from_u128(0xC1), device)])
        }
        Question::SealingCertificate { .. } | Question::Certificate { .. } => {
            Reply::Certificate(CERTIFICATE.to_owned())
        }
        Question::PutSecret { .. } => Reply::Written,
        Question::Secrets { .. } => {
            let reason = "the cluster has no repository at present: it is waiting".to_owned();
            return Err(Refusal::NotAtPresent(reason));
        }
        other => panic!("{other:?}"),
    })
}

/// A self-signed certificate for `localhost` and its key.
fn certificate(directory: &Path) -> (String, String) {
    let path = |name: &str| directory.join(name).display().to_string();
    let (cert, key) = (path("tls.crt"), path("tls.key"));
    let fixed = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x", "-addext"];
    let names = ["subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"];
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(fixed).args(names).args(["-keyout", &key, "-out", &cert]);
    assert!(openssl.output().expect("openssl is installed").status.success());
    (cert, key)
}

async fn run(arguments: &[&str], input: &str) -> (i32, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sparkfleet"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read it closes it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes()).await;
    let Output { status, stdout, stderr } = child.wait_with_output().await.unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    (status.code().unwrap(), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn over_https_the_authorities_are_those_that_are_named_and_what_is_not_there_at_present_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let (cert, key) = certificate(directory.path());
    let tls = Tls::load(["git.cert_file", "git.key_file"], Path::new(&cert), Path::new(&key)).unwrap();
    let (outlet, mut questions) = mpsc::channel::<Asked>(QUESTIONS_MAX);
    let (records, entries) = mpsc::channel(QUESTIONS_MAX);
    let audit = record::path(directory.path());
    tokio::spawn(keep_records(RecordFile::new(audit.clone()), entries));
    let desk = StateClient::new(outlet, records);
    let open = Rate { per_minute: 6000, burst: 6000 };
    let router = people::router(desk.clone(), open, true, None, &audit, Clock::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let shutdown = Shutdown::new();
    let served = tokio::spawn(server::serve(listener, router, Some(tls), shutdown.clone()));
    tokio::spawn(async move {
        while let Some(asked) = questions.recv().await {
            let reply = reply(&asked);
            desk.answer(Answer { id: asked.id, reply, audit: None });
        }
    });

    let token = directory.path().join("token").display().to_string();
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let api = ["--url", &url, "--token-file", &token];
    let trusting = [&api[..], &["--ca-file", &cert]].concat();
    let put = ["secret", "put", "Paint_Shop", "press-login", "password"];
    let (code, text) = run(&[&put[..], &trusting].concat(), VALUE).await;
    assert!(code == 0 && text.contains("fplus-edge/press-login/password written for Paint_Shop"), "{code}: {text}");
    let (code, text) = run(&[&put[..], &api].concat(), VALUE).await;
    assert!(code == 4 && text.contains("certificate") && !text.contains(VALUE), "{code}: {text}");
    let (code, text) = run(&[&["secret", "list", "Paint_Shop"][..], &trusting].concat(), "").await;
    assert!(code == 4 && text.contains("no repository at present: it is waiting; try again in 5 s"), "{code}: {text}");
    let plain = ["--url", "http://m.example:8480", "--token-file", &token];
    let (code, text) = run(&[&put[..], &plain].concat(), VALUE).await;
    assert!(code == 2 && text.contains("--allow-http"), "{code}: {text}");
    let nowhere = [&api[..], &["--ca-file", "/nonexistent"]].concat();
    let (code, text) = run(&[&put[..], &nowhere].concat(), VALUE).await;
    assert!(code == 3 && text.contains("--ca-file: cannot read /nonexistent"), "{code}: {text}");
    shutdown.trigger();
    served.await.unwrap().unwrap();
}
