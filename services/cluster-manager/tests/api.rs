//! The API as HTTP: requests over a socket, with a state behind it that answers as the test says.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use access::audit::{AuditRecord, AuditResult};
use access::rate::{Rate, TooOften};
use access::{Denied, Operation};
use cluster_manager::adapters::http::state_client::{QUESTIONS_MAX, StateClient, keep_records};
use cluster_manager::adapters::http::{openapi, people, secrets};
use cluster_manager::api::{Answer, Asked, Credential, Question, Refusal, Reply};
use cluster_manager::secrets::{SecretFault, StoredSecret};
use cluster_manager_contract::api_token::TokenHash;
use configdb_schema::document::TokenScope;
use enrolment_protocol::token::Token;
use serde_json::Value;
use service_runtime::http::server;
use service_runtime::http::tls::Tls;
use service_runtime::record::{self, RecordFile};
use service_runtime::shutdown::Shutdown;
use simulator::sealed_secrets::CERTIFICATE;
use sparkplug_mqtt::Clock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use uuid::Uuid;

const CLUSTER: Uuid = Uuid::from_u128(0xC1);
const VALUE: &str = "correct horse battery staple";
const TOKEN: &str = "sfp_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const OPEN: Rate = Rate { per_minute: 6000, burst: 6000 };

type Published = Result<Reply, Refusal>;

/// The API with everything that it asked.
struct Api {
    addr: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    state_dir: tempfile::TempDir,
    shutdown: Shutdown,
}

#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Api {
    async fn start(reply: impl Fn(&Question) -> Published + Send + 'static) -> Self {
        Self::start_with(OPEN, None, reply).await
    }

    async fn start_with(rate: Rate, tls: Option<Tls>, reply: impl Fn(&Question) -> Published + Send + 'static) -> Self {
        let state_dir = tempfile::tempdir().unwrap();
        let (outlet, mut questions) = mpsc::channel::<Asked>(QUESTIONS_MAX);
        let (records, entries) = mpsc::channel(QUESTIONS_MAX);
        tokio::spawn(keep_records(RecordFile::new(record::path(state_dir.path())), entries));
        let desk = StateClient::new(outlet, records);
        let router =
            people::router(desk.clone(), rate, tls.is_some(), None, &record::path(state_dir.path()), Clock::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (shutdown, asked) = (Shutdown::new(), Arc::new(Mutex::new(Vec::new())));
        tokio::spawn(server::serve(listener, router, tls, shutdown.clone()));
        let log = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Some(question) = questions.recv().await {
                let answer = reply(&question.question);
                let audit = record(&question, &answer);
                log.lock().unwrap().push(question.clone());
                desk.answer(Answer { id: question.id, reply: answer, audit });
            }
        });
        Self { addr, asked, state_dir, shutdown }
    }

    async fn request(&self, line: &str, fields: &str, body: &str) -> Response {
        let stream = TcpStream::connect(self.addr).await.unwrap();
        exchange(stream, line, fields, body).await
    }

    async fn put(&self, path: &str, body: &str) -> Response {
        let fields = format!("Authorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n", body.len());
        self.request(&format!("PUT {path}"), &fields, body).await
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.shutdown.trigger();
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, line: &str, fields: &str, body: &str) -> Response {
    let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n{body}");
    // A server that refuses may close before it has read everything.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

fn record(asked: &Asked, reply: &Published) -> Option<AuditRecord> {
    let Question::PutSecret { cluster, key, .. } = &asked.question else { return None };
    let result = match reply {
        Ok(_) => AuditResult::Done { commit: Some("c0ffee".to_owned()) },
        Err(refusal) => AuditResult::Refused { reason: refusal.to_string() },
    };
    Some(AuditRecord {
        at: 1,
        who: "token:test".to_owned(),
        from: asked.from.clone(),
        operation: Operation::PutSecret,
        cluster: Some(*cluster),
        target: key.to_string(),
        request: None,
        result,
    })
}

/// A state that admits every client.
#[expect(clippy::unnecessary_wraps, reason = "the others may refuse")]
fn everything(question: &Question) -> Published {
    Ok(match question {
        Question::Repository { .. } | Question::Pushed(_) => panic!("that is git's"),
        Question::Clusters => Reply::Clusters(Vec::new()),
        Question::Certificate { .. } | Question::SealingCertificate { .. } => {
            Reply::Certificate(CERTIFICATE.to_owned())
        }
        Question::Secrets { .. } => Reply::Secrets(vec![stored()], sealed_secrets::fingerprint(CERTIFICATE)),
        Question::Status { .. } => Reply::Status(CLUSTER, Box::default()),
        Question::PutSecret { .. } | Question::DeleteSecret { .. } => Reply::Written,
        Question::Tokens => Reply::Tokens(Vec::new()),
        Question::CreateToken { .. } => Reply::Created { expires: "2027-01-01T00:00:00Z".to_owned() },
        Question::RevokeToken { .. } => Reply::Written,
        Question::Audit => Reply::Permitted,
        Question::BootstrapLine { .. } => {
            Reply::Offered { url: "https://m.example/bootstrap/x".to_owned(), expires: 9 }
        }
    })
}

fn stored() -> StoredSecret {
    let keys = [("password".to_owned(), Some("f0".to_owned()))].into();
    let (namespace, name, secret_type) = ("fplus-edge".to_owned(), "press-login".to_owned(), "Opaque".to_owned());
    StoredSecret { namespace, name, scope: "strict", secret_type, keys }
}

fn path(rest: &str) -> String {
    format!("/v1/cluster/{CLUSTER}/{rest}")
}

#[tokio::test]
async fn a_value_is_sealed_before_the_state_gets_it_and_recorded_before_it_is_answered() {
    let api = Api::start(everything).await;
    let put = api.put(&path("secret/fplus-edge/press-login/password"), VALUE).await;
    assert_eq!((put.status, put.body.as_str()), (204, ""), "{put:?}");
    let asked = api.asked();
    assert_eq!(asked.len(), 2);
    assert!(matches!(&asked[0].question, Question::Certificate { cluster: CLUSTER, .. }));
    assert!(matches!(asked[1].credential, Credential::Token(_)));
    let shown = format!("{asked:?}");
    assert!(!shown.contains(VALUE) && !shown.contains(TOKEN), "neither value nor token go further");
    let Question::PutSecret { sealed, fingerprint, dry_run: false, .. } = &asked[1].question else { panic!("{shown}") };
    assert!(sealed["spec"]["encryptedData"]["password"].as_str().unwrap().len() > VALUE.len());
    assert_eq!(Some(fingerprint.clone()), sealed_secrets::fingerprint(CERTIFICATE));
    let file = record::path(api.state_dir.path());
    let line: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((&line["target"], &line["from"]), (&"fplus-edge/press-login/password".into(), &"127.0.0.1".into()));
    assert_eq!(mode(&file), 0o600);
    let query = "?dryrun&scope=cluster-wide&type=kubernetes.io%2Ftls";
    assert_eq!(api.put(&path(&format!("secret/a/b/c{query}")), VALUE).await.status, 204);
    let asked = api.asked();
    let Question::PutSecret { sealed, dry_run: true, .. } = &asked[3].question else { panic!("{asked:?}") };
    assert_eq!(sealed["spec"]["template"]["type"], "kubernetes.io/tls");
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 2, "one line a write");
}

fn fingerprint() -> String {
    sealed_secrets::fingerprint(CERTIFICATE).unwrap()
}

/// `VALUE`, as a client seals it.
fn sealed_value() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let certificate = sealed_secrets::SealingCertificate::from_pem(CERTIFICATE, now).unwrap();
    let scope = sealed_secrets::Scope::Strict;
    let request = sealed_secrets::Request { namespace: "a", name: "b", scope, secret_type: "Opaque" };
    let value = sealed_secrets::Plain {
        key: "c".to_owned(),
        value: VALUE.as_bytes().to_vec().into(),
        session_key: [7; 32].into(),
    };
    let sealed = sealed_secrets::sealed_secret(&certificate, request, &[value]).unwrap();
    sealed["spec"]["encryptedData"]["c"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_value_that_was_sealed_elsewhere_is_taken_as_it_is_if_it_is_for_the_certificate_of_the_cluster() {
    let api = Api::start(everything).await;
    let response = api.request(&format!("GET {}", path("sealing-certificate")), "", "").await;
    let sealing: Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!((&sealing["certificate"], &sealing["fingerprint"]), (&CERTIFICATE.into(), &fingerprint().into()));
    let put = async |query: &str, value: &str| api.put(&path(&format!("sealed-secret/a/b/c{query}")), value).await;
    let good = format!("?fingerprint={}", fingerprint().to_uppercase());
    let value = sealed_value();
    assert_eq!(put(&good, &format!("{value}\n")).await.status, 204);
    let query = format!("{good}&dryrun&scope=cluster-wide&type=kubernetes.io%2Ftls");
    assert_eq!(put(&query, &value).await.status, 204);
    let asked = api.asked();
    let written = asked.iter().filter_map(|asked| match &asked.question {
        Question::PutSecret { sealed, fingerprint, dry_run, .. } => Some((sealed, fingerprint, *dry_run)),
        _ => None,
    });
    let written: Vec<_> = written.collect();
    assert_eq!(written.len(), 2, "{asked:?}");
    let (sealed, of, dry_run) = &written[0];
    assert!(!dry_run && **of == fingerprint() && sealed["spec"]["encryptedData"]["c"] == value.as_str());
    let (sealed, _, dry_run) = &written[1];
    assert!(*dry_run && sealed["spec"]["template"]["type"] == "kubernetes.io/tls");
    assert_eq!(sealed["metadata"]["annotations"]["sealedsecrets.bitnami.com/cluster-wide"], "true");

    let large = "x".repeat(2 * 1024 * 1024);
    for (query, value, status, reason) in [
        ("", value.as_str(), 400, "fingerprint must say"),
        ("?fingerprint=f0", &value, 409, "seal the value again"),
        (&good, VALUE, 400, "not base64"),
        (&good, "AAAA", 400, "not sealed for the key"),
        (&good, "", 400, "not sealed for the key"),
        (&good, &large, 413, "larger than"),
        (&format!("{good}&scope=everywhere"), &value, 400, "scope is"),
        (&format!("{good}&type=a%20b"), &value, 400, "type"),
    ] {
        let refused = put(query, value).await;
        assert_eq!(refused.status, status, "{query}: {refused:?}");
        assert!(refused.body.contains(reason) && !refused.body.contains(VALUE), "{query}: {refused:?}");
    }
}

#[cfg(unix)]
fn mode(file: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_client_that_may_not_write_is_refused_before_the_value_is_sent() {
    let denied = Denied::Scope { operation: Operation::PutSecret, scope: TokenScope::Viewer };
    let api = Api::start(move |_| Err(denied.into())).await;
    let fields = format!("Authorization: Bearer {TOKEN}\r\nContent-Length: 28\r\n");
    let refused = api.request(&format!("PUT {}", path("secret/a/b/c")), &fields, "").await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.body.contains("needs the scope operator"), "{refused:?}");
    assert_eq!(api.asked().len(), 1);
}

#[tokio::test]
async fn each_refusal_has_its_status() {
    let secret = |fault: SecretFault| Refusal::Secret(fault);
    let foreign = SecretFault::Foreign { path: "p".to_owned(), reason: "r".to_owned() };
    let cases = [
        (Refusal::Unauthenticated("the token has expired".to_owned()), 401, "www-authenticate: bearer"),
        (Refusal::Forbidden(Denied::Cluster), 403, ""),
        (Refusal::TooOften(TooOften { wait: Duration::from_millis(1500) }), 429, "retry-after: 2"),
        (Refusal::NoCluster, 404, ""),
        (Refusal::NoToken, 404, ""),
        (Refusal::NameTaken, 409, ""),
        (Refusal::Invalid("name must be ...".to_owned()), 400, ""),
        (Refusal::NotAtPresent("no certificate".to_owned()), 503, "retry-after: 5"),
        (secret(SecretFault::Missing("a/b/c".to_owned())), 404, ""),
        (secret(foreign), 409, ""),
        (secret(SecretFault::TooLarge { path: "p".to_owned() }), 413, ""),
        (secret(SecretFault::Repository("/var/lib/x".to_owned())), 500, ""),
    ];
    for (refusal, status, field) in cases {
        let answer = refusal.clone();
        let api = Api::start(move |_| Err(answer.clone())).await;
        let response = api.request(&format!("DELETE {}", path("secret/a/b/c")), "", "").await;
        assert_eq!(response.status, status, "{response:?}");
        assert!(response.head.contains(field), "{response:?}");
        let problem: Value = serde_json::from_str(&response.body).unwrap();
        let is_inside = status == 500;
        assert_eq!(problem["error"] == refusal.to_string(), !is_inside, "paths of the disk are for the log: {problem}");
    }
}

#[tokio::test]
async fn names_and_values_that_no_secret_can_have_are_refused_without_asking() {
    let api = Api::start(everything).await;
    for bad in ["secret/../b/c", "secret/a/..%2f..%2fb/c", "secret/a/b/c%2Fd", "secret/A/b/c", "secret/a/b/%00"] {
        let refused = api.put(&path(bad), VALUE).await;
        assert!([400, 404].contains(&refused.status), "{bad}: {refused:?}");
    }
    assert_eq!(api.put("/v1/cluster/Paint_Shop/secret/a/b/c", VALUE).await.status, 400);
    assert_eq!(api.put(&path("secret/a/b/c?scope=everywhere"), VALUE).await.status, 400);
    assert!(api.asked().is_empty());
    let large = "x".repeat(secrets::VALUE_BYTES_MAX + 1);
    assert_eq!(api.put(&path("secret/a/b/c"), &large).await.status, 413);
    let chunked = format!("Authorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\n");
    let body = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let refused = api.request(&format!("PUT {}", path("secret/a/b/c")), &chunked, &body).await;
    assert_eq!(refused.status, 413, "{:?}", refused.head);
    assert!(api.asked().iter().all(|asked| matches!(asked.question, Question::Certificate { .. })));
}

#[tokio::test]
async fn a_token_is_returned_once_and_only_its_hash_is_asked_for() {
    let api = Api::start(everything).await;
    let post = async |body: &str| {
        let content = "Content-Type: application/json\r\n";
        let fields = format!("Authorization: Bearer {TOKEN}\r\n{content}Content-Length: {}\r\n", body.len());
        api.request("POST /v1/tokens", &fields, body).await
    };
    for (bad, field) in [
        (r#"{"name": "ci"}"#, "scope"),
        (r#"{"name": "ci", "scope": "root"}"#, "root"),
        (r#"{"name": "ci", "scope": "viewer", "clusters": []}"#, "clusters"),
        (r#"{"name": "ci", "scope": "viewer", "clusters": ["Paint_Shop"]}"#, "UUID"),
        (r#"{"name": "ci", "scope": "viewer", "expires_s": 0}"#, "expires_s"),
        (r#"{"name": "ci", "scope": "viewer", "expire": 9}"#, "expire"),
        ("ci", "expected"),
    ] {
        let refused = post(bad).await;
        assert!([400, 422].contains(&refused.status) && refused.body.contains(field), "{bad}: {refused:?}");
    }
    assert!(api.asked().is_empty());
    let made = post(&format!(r#"{{"name": "ci", "scope": "operator", "clusters": ["{CLUSTER}"]}}"#)).await;
    let made: Value = serde_json::from_str(&made.body).unwrap();
    let text = made["token"].as_str().unwrap();
    let asked = api.asked();
    let Question::CreateToken { name, hash, grant, .. } = &asked[0].question else { panic!("{asked:?}") };
    assert_eq!((name.as_str(), Some(*hash)), ("ci", TokenHash::of(text)));
    assert_eq!(grant.clusters, Some([CLUSTER].into()));
    assert!(!format!("{asked:?}").contains(text));
    assert_eq!(api.request("DELETE /v1/token/ci", "", "").await.status, 204);
}

#[tokio::test]
async fn the_record_of_writes_is_read_the_newest_first_by_who_may() {
    let api = Api::start(everything).await;
    for key in ["a", "b", "c"] {
        assert_eq!(api.put(&path(&format!("secret/n/s/{key}")), VALUE).await.status, 204);
    }
    let response = api.request("GET /v1/audit?limit=2", "", "").await;
    let records: Vec<Value> = serde_json::from_str(&response.body).unwrap();
    let targets: Vec<_> = records.iter().map(|record| record["target"].as_str().unwrap()).collect();
    assert_eq!(targets, ["n/s/c", "n/s/b"]);
    for bad in ["0", "1001", "x"] {
        assert_eq!(api.request(&format!("GET /v1/audit?limit={bad}"), "", "").await.status, 400, "{bad}");
    }
    let denied = Denied::NotForAll { operation: Operation::ReadAudit };
    let api = Api::start(move |_| Err(denied.into())).await;
    assert_eq!(api.request("GET /v1/audit", "", "").await.status, 403);
}

#[tokio::test]
async fn an_address_that_asks_too_often_has_to_wait_before_anything_else() {
    let api = Api::start_with(Rate { per_minute: 1, burst: 3 }, None, everything).await;
    for _ in 0..3 {
        assert_eq!(api.request("GET /v1/clusters", "", "").await.status, 200);
    }
    let refused = api.request("GET /v1/clusters", "", "").await;
    assert_eq!(refused.status, 429);
    assert!(refused.head.contains("retry-after: "), "{refused:?}");
    assert_eq!(api.asked().len(), 3);
}

#[tokio::test]
async fn nothing_is_cached_framed_or_guessed_by_a_browser() {
    let api = Api::start(everything).await;
    for line in ["GET /v1/clusters", "GET /v1/openapi.json", "DELETE /v1/cluster/x/secret/a/b/c"] {
        let head = api.request(line, "", "").await.head;
        for field in ["cache-control: no-store", "x-content-type-options: nosniff", "default-src 'none'"] {
            assert!(head.contains(field), "{line}: {head}");
        }
        assert!(!head.contains("strict-transport-security"), "this is not TLS: {head}");
    }
    let secrets = api.request(&format!("GET {}", path("secrets")), "", "").await;
    let secrets: Value = serde_json::from_str(&secrets.body).unwrap();
    assert_eq!(secrets["secrets"][0]["keys"][0]["seal_again"], true);
}

#[tokio::test]
async fn a_certificate_that_changed_is_served_to_the_next_connection_and_a_bad_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let (cert_file, key_file) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
    let first = certificate(&cert_file, &key_file, 1);
    let tls = Tls::load(["git.cert_file", "git.key_file"], &cert_file, &key_file).unwrap();
    let api = Api::start_with(OPEN, Some(tls), everything).await;
    let response = over_tls(api.addr, &first).await.unwrap();
    assert_eq!(response.status, 200);
    assert!(response.head.contains("strict-transport-security: max-age"), "{response:?}");
    let second = certificate(&cert_file, &key_file, 22);
    assert!(over_tls(api.addr, &first).await.is_err(), "the first is not served any more");
    assert_eq!(over_tls(api.addr, &second).await.unwrap().status, 200);
    std::fs::write(&cert_file, "no certificate").unwrap();
    assert_eq!(over_tls(api.addr, &second).await.unwrap().status, 200, "the last good one stays");
    let error = Tls::load(["git.cert_file", "git.key_file"], &cert_file, &key_file).unwrap_err().to_string();
    assert!(error.starts_with("git.cert_file: cannot read"), "{error}");
    std::fs::write(&key_file, "no key").unwrap();
    std::fs::write(&cert_file, &second).unwrap();
    let error = Tls::load(["git.cert_file", "git.key_file"], &cert_file, &key_file).unwrap_err().to_string();
    assert!(error.starts_with("git.key_file: cannot read") && !error.contains("no key\n"), "{error}");
}

/// Writes a self-signed certificate for `localhost`; returns its PEM. Its subject is so long that no two have the same size.
fn certificate(cert_file: &Path, key_file: &Path, length: usize) -> String {
    let subject = format!("/CN={}", "x".repeat(length));
    let (cert, key) = (cert_file.display().to_string(), key_file.display().to_string());
    let arguments = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", &subject, "-addext"];
    let no_authority = ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", &key, "-out", &cert];
    let arguments = [&arguments[..], &["subjectAltName=DNS:localhost"], &no_authority].concat();
    let done = std::process::Command::new("openssl").args(arguments).output().expect("openssl is installed");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    std::fs::read_to_string(cert_file).unwrap()
}

/// A request by a client that trusts this certificate alone.
async fn over_tls(addr: SocketAddr, trusted: &str) -> std::io::Result<Response> {
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(addr).await?;
    let stream = connector.connect("localhost".try_into().unwrap(), stream).await?;
    Ok(exchange(stream, "GET /v1/clusters", "", "").await)
}

#[tokio::test]
async fn every_operation_of_the_document_is_served_and_the_committed_copy_is_the_document() {
    let api = Api::start(everything).await;
    let served = api.request("GET /v1/openapi.json", "", "").await;
    let document: Value = serde_json::from_str(&served.body).unwrap();
    assert_eq!(document, openapi::document());
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let path = path.replace("{cluster}", &CLUSTER.to_string()).replace(['{', '}'], "");
            let content = item[method]["requestBody"]["content"].as_object();
            let (body, query) = match content.and_then(|content| content.keys().next()).map(String::as_str) {
                Some("application/json") => (r#"{"name": "ci", "scope": "viewer"}"#.to_owned(), String::new()),
                Some("text/plain") => (sealed_value(), format!("?fingerprint={}", fingerprint())),
                _ => (String::new(), String::new()),
            };
            let line = format!("{} {path}{query}", method.to_uppercase());
            let fields = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
            let response = api.request(&line, &fields, &body).await;
            assert!((200..300).contains(&response.status), "{line}: {response:?}");
            let undocumented = api.request(&format!("PATCH {path}"), "", "").await;
            assert_eq!(undocumented.status, 405, "PATCH {path}");
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let text = serde_json::to_string_pretty(&openapi::document()).unwrap() + "\n";
    if std::env::var_os("SPARKFLEET_WRITE_DOCS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap();
    assert!(committed == text, "run SPARKFLEET_WRITE_DOCS=1 cargo test -p cluster-manager --test api");
}

#[tokio::test]
async fn a_line_holds_a_token_that_only_its_requester_gets() {
    let api = Api::start(everything).await;
    let post = |query: &str| format!("POST {}", path(&format!("bootstrap-url{query}")));
    for bad in ["?expires_s=5", "?expires_s=99999999", "?expires_s=soon"] {
        assert_eq!(api.request(&post(bad), "Content-Length: 0\r\n", "").await.status, 400, "{bad}");
    }
    assert!(api.asked().is_empty());
    let made = api.request(&post("?expires_s=600"), "Content-Length: 0\r\n", "").await;
    let made: Value = serde_json::from_str(&made.body).unwrap();
    let line = made["line"].as_str().unwrap();
    assert!(line.contains("'https://m.example/bootstrap/x' | sh") && made["expires"] == 9, "{made}");
    let token = Token::parse(&line[line.find("sft_").unwrap()..][..47]).unwrap();
    let asked = api.asked();
    let Question::BootstrapLine { hash, lifetime, .. } = &asked[0].question else { panic!("{asked:?}") };
    assert_eq!((hash.as_str(), *lifetime), (token.hash().as_str(), Duration::from_secs(600)));
}
