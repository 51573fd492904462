//! Whole command lines that need no broker, or find none: what they write, and with which exit code they end.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use service_runtime::exit;
use service_runtime::record::chain::Chain;
use simulator::sealed_secrets::CERTIFICATE;

use crate::arguments::parsed;

const CLUSTER: &str = "00000000-0000-0000-0000-0000000000c1";
/// Nothing listens there.
const NOWHERE: &str = "mqtt://127.0.0.1:1";

/// Carries out `sparkfleet <line>`; `@/` in it is the directory. The exit code and the error.
async fn ended(line: &str, directory: &Path) -> (u8, String) {
    let line = line.replace("@/", &format!("{}/", directory.display()));
    let words = std::iter::once("sparkfleet").chain(line.split(' ').filter(|word| !word.is_empty()));
    let command = parsed(words).unwrap_or_else(|error| panic!("{line}: {error}"));
    match crate::run(command).await {
        Ok(()) => (0, String::new()),
        Err(error) => (exit::code_of(&error), format!("{error:#}")),
    }
}

fn write(directory: &Path, name: &str, text: impl AsRef<[u8]>) {
    std::fs::write(directory.join(name), text).unwrap();
}

fn mode(file: &Path) -> u32 {
    std::fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn every_command_on_a_fleet_says_that_the_broker_is_not_reached() {
    let directory = tempfile::tempdir().unwrap();
    for line in [
        "cluster create Paint",
        "cluster list",
        "cluster show Paint",
        "cluster bootstrap Paint",
        "cluster identity show Paint",
        "cluster identity replace Paint",
        "cluster rollout Paint",
        "cluster delete Paint",
        "deployment create Oven --cluster Paint",
        "deployment list",
        "deployment show Paint/Oven",
        "deployment move Paint/Oven",
        "deployment delete Paint/Oven",
        "status",
        "rollout list",
        "rollout hold Agent",
        "rollout resume Agent",
        "rollout free Agent --cluster Paint",
        "alert list",
        "recover status",
        "recover adopt --all",
        "recover discard Paint",
        "host list",
        "host show press-1",
        "policy show Paint",
        "trust issue Paint --purpose join-issuer --dir @/",
        "token create ci --scope viewer",
        "token list",
        "token revoke ci",
        "secret seal Paint --name press --from-file password=@/none",
    ] {
        let (code, error) = ended(&format!("{line} --broker {NOWHERE} --timeout 20s"), directory.path()).await;
        assert_eq!(code, exit::UNAVAILABLE, "{line}: {error}");
        assert!(error.contains(NOWHERE), "{line}: {error}");
    }
}

#[tokio::test]
async fn options_that_cannot_be_used_are_named_before_anything_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    for (line, code, part) in [
        ("cluster list --organisation A-B", exit::CONFIG, "--organisation"),
        ("cluster list --host-id a/b", exit::CONFIG, "--host-id"),
        ("cluster list --password-file @/none", exit::CONFIG, "--password-file"),
        ("cluster list --broker http://x", exit::CONFIG, "connection options"),
        ("cluster bootstrap Paint --expires 5s", exit::USAGE, "--expires must be from 1m to 30d"),
        ("cluster bootstrap Paint --expires 40d", exit::USAGE, "--expires must be from 1m to 30d"),
        ("policy set Paint @/none", exit::CONFIG, "cannot read"),
        ("secret seal --certificate @/none --name a --from-file k=@/v", exit::CONFIG, "cannot read"),
        ("ui --url ftp://x", exit::USAGE, "http://"),
    ] {
        let (ended, error) = ended(line, directory.path()).await;
        assert_eq!(ended, code, "{line}: {error}");
        assert!(error.contains(part), "{line}: {error}");
    }
}

#[tokio::test]
async fn a_command_on_the_console_says_what_is_wrong_with_its_address_its_token_or_its_span() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    write(dir, "token", "sfp_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n");
    write(dir, "words", "two words\n");
    write(dir, "night.jsonl", "kept");
    let none = "--console http://127.0.0.1:1";
    for (line, code, part) in [
        ("events --console ftp://x", exit::USAGE, "http://HOST:PORT"),
        ("at 1h --console 127.0.0.1:8482", exit::USAGE, "http://HOST:PORT"),
        (format!("events {none}").as_str(), exit::UNAVAILABLE, "there is no console at http://127.0.0.1:1"),
        (format!("at 1h hosts {none}").as_str(), exit::UNAVAILABLE, "`sparkfleet console` serve one"),
        (format!("at 1h --diff 0s {none}").as_str(), exit::UNAVAILABLE, "there is no console"),
        (format!("events --since 1h --until 2h {none}").as_str(), exit::USAGE, "--since is later than --until"),
        (format!("events {none} --console-token-file @/none").as_str(), exit::CONFIG, "cannot read"),
        (
            format!("events {none} --console-token-file @/words").as_str(),
            exit::CONFIG,
            "must hold a token and nothing else",
        ),
        (format!("events {none} --console-ca-file @/none").as_str(), exit::CONFIG, "--console-ca-file"),
        ("events --console http://c.example --console-token-file @/token", exit::USAGE, "https://HOST:PORT"),
        (format!("events --export @/new.jsonl {none}").as_str(), exit::UNAVAILABLE, "there is no console"),
        (format!("events --export @/night.jsonl {none}").as_str(), exit::CONFIG, "night.jsonl"),
        (format!("events --export @/none/new.jsonl {none}").as_str(), exit::CONFIG, "--export"),
        ("cluster list --from console", exit::USAGE, "no console is named"),
        ("deployment list --from console", exit::USAGE, "no console is named"),
        ("alert list --from console", exit::USAGE, "no console is named"),
        ("host list --from console", exit::USAGE, "no console is named"),
        ("cluster show Paint_Shop --from console", exit::USAGE, "no console is named"),
        ("deployment show Oven --from console", exit::USAGE, "no console is named"),
        ("host show press-1 --from console", exit::USAGE, "no console is named"),
        (format!("host list --from console {none}").as_str(), exit::UNAVAILABLE, "there is no console"),
        (format!("host show press-1 --from console {none}").as_str(), exit::UNAVAILABLE, "there is no console"),
        (format!("cluster list --from console {none}").as_str(), exit::UNAVAILABLE, "there is no console"),
        (format!("deployment list --from console {none}").as_str(), exit::UNAVAILABLE, "there is no console"),
        (format!("alert list --check --from console {none}").as_str(), exit::UNAVAILABLE, "there is no console"),
        // Without --from it is the broker that is asked then.
        (format!("alert list {none} --broker {NOWHERE} --timeout 20s").as_str(), exit::UNAVAILABLE, NOWHERE),
    ] {
        let (ended, error) = ended(line, dir).await;
        assert_eq!(ended, code, "{line}: {error}");
        assert!(error.contains(part), "{line}: {error}");
        assert!(!error.contains("sfp_") && !error.contains("two words"), "{line}: {error}");
    }
    assert_eq!(std::fs::read_to_string(dir.join("night.jsonl")).unwrap(), "kept");
    assert!(!dir.join("new.jsonl").exists(), "of an export that did not come nothing is left");
}

#[tokio::test]
async fn a_recording_that_cannot_be_used_is_named_before_a_broker_is_reached() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    write(dir, "text", "hello\n");
    write(dir, "later.jsonl", "{\"sparkplugRecording\":99}\n");
    write(dir, "taken.jsonl", "kept");
    for (line, code, part) in [
        ("replay @/none", exit::CONFIG, "none"),
        ("replay @/text", exit::CONFIG, "is not a recording"),
        ("replay @/later.jsonl", exit::CONFIG, "of version 99"),
        ("replay @/text --kind STATE", exit::USAGE, "speaks for a living Host Application"),
        ("watch --read @/none", exit::CONFIG, "none"),
        ("watch --read @/text", exit::CONFIG, "is not a recording"),
        ("watch --record @/taken.jsonl", exit::CONFIG, "taken.jsonl"),
    ] {
        let line =
            format!("{line}{}", if line.starts_with("watch --read") { "" } else { " --broker mqtt://127.0.0.1:1" });
        let (ended, error) = ended(&line, dir).await;
        assert_eq!(ended, code, "{line}: {error}");
        assert!(error.contains(part), "{line}: {error}");
    }
    assert_eq!(std::fs::read_to_string(dir.join("taken.jsonl")).unwrap(), "kept");
}

#[tokio::test]
async fn the_root_of_trust_is_made_once_and_certifies_keys_that_only_their_owner_can_read() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let (code, error) = ended(&format!("trust issue {CLUSTER} --purpose join-issuer --dir @/"), dir).await;
    assert!(code == exit::CONFIG && error.contains("trust init"), "{code}: {error}");
    assert_eq!(ended("trust init --dir @/", dir).await.0, 0);
    assert_eq!((mode(&dir.join("root.key")), mode(&dir.join("root.pub"))), (0o600, 0o644));
    let root = std::fs::read(dir.join("root.pub")).unwrap();
    let (code, error) = ended("trust init --dir @/", dir).await;
    assert!(code == exit::REFUSED && error.contains("--force"), "{code}: {error}");
    assert_eq!(std::fs::read(dir.join("root.pub")).unwrap(), root, "a refusal changes nothing");

    let issue = |more: &str| format!("trust issue {CLUSTER} --purpose join-issuer --dir @/ {more}");
    assert_eq!(ended(&issue(""), dir).await.0, 0);
    let own = dir.join(CLUSTER);
    for (file, expected) in
        [("issuer.key", 0o600), ("issuer.certificates", 0o644), ("master.key", 0o600), ("root.pub", 0o644)]
    {
        assert_eq!(mode(&own.join(file)), expected, "{file}");
    }
    let read = |file: &str| std::fs::read(own.join(file)).unwrap();
    let (key, master) = (read("issuer.key"), read("master.key"));
    assert_eq!(ended(&issue(""), dir).await.0, exit::REFUSED);
    assert_eq!(ended(&issue("--renew"), dir).await.0, 0);
    assert_eq!(read("issuer.key"), key, "it is certified again");
    assert_eq!(ended(&issue("--force"), dir).await.0, 0);
    assert_ne!(read("issuer.key"), key, "another one takes its place");
    assert_eq!(read("master.key"), master, "every disk of the cluster needs it");
    assert_eq!(ended("trust init --dir @/ --force", dir).await.0, 0);
    assert_ne!(std::fs::read(dir.join("root.pub")).unwrap(), root);
}

#[tokio::test]
async fn keys_of_other_purposes_have_files_of_their_own_and_no_master_secret() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    assert_eq!(ended("trust init --dir @/", dir).await.0, 0);
    for (purpose, name) in [("cluster-admin", "admin"), ("policy-signer", "policy-signer")] {
        let line = format!("trust issue {CLUSTER} --purpose {purpose} --dir @/ --out @/{name} --days 1 -o json");
        assert_eq!(ended(&line, dir).await.0, 0, "{purpose}");
        assert!(dir.join(name).join(format!("{name}.key")).exists(), "{purpose}");
        assert!(!dir.join(name).join("master.key").exists(), "{purpose}");
    }
}

/// A record of three writes, as the cluster manager writes it.
fn record() -> Vec<Vec<u8>> {
    let mut chain = Chain::begin();
    let mut lines = Vec::new();
    for who in ["ada", "bob", "eve"] {
        let serde_json::Value::Object(entry) = serde_json::json!({ "who": who }) else { unreachable!() };
        let line = chain.line(entry);
        chain = Chain::after(&line);
        lines.push(line);
    }
    lines
}

#[tokio::test]
async fn a_record_of_writes_is_verified_alone_and_after_the_one_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let lines = record();
    write(dir, "audit.jsonl", [lines.join(&b'\n'), b"\n".to_vec()].concat());
    for form in ["table", "json", "yaml"] {
        assert_eq!(ended(&format!("audit verify @/audit.jsonl -o {form}"), dir).await.0, 0, "{form}");
    }
    write(dir, "rotated.jsonl", [lines[1..].join(&b'\n'), b"\n".to_vec()].concat());
    let head = Chain::after(&lines[0]).head;
    assert_eq!(ended(&format!("audit verify @/rotated.jsonl --after {head}"), dir).await.0, 0);
    let (code, error) = ended(&format!("audit verify @/rotated.jsonl --after {}", "0".repeat(64)), dir).await;
    assert!(code == exit::REFUSED && error.contains("begins after"), "{code}: {error}");
    write(dir, "changed.jsonl", String::from_utf8(lines.join(&b'\n')).unwrap().replace("bob", "mallory"));
    let (code, error) = ended("audit verify @/changed.jsonl", dir).await;
    assert!(code == exit::REFUSED && error.contains("line 3"), "{code}: {error}");
    let (code, error) = ended("audit verify @/none.jsonl", dir).await;
    assert!(code == exit::CONFIG && error.contains("cannot read"), "{code}: {error}");
}

#[tokio::test]
async fn access_files_are_written_for_each_kind_of_server() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    for broker in ["mosquitto", "mosquitto-dynsec", "emqx", "hivemq", "vernemq"] {
        let line = format!("acl generate --broker {broker} --cluster Paint --cluster Body --directory @/{broker}");
        assert_eq!(ended(&line, dir).await.0, 0, "{broker}");
        let written = std::fs::read_dir(dir.join(broker)).unwrap().map(|file| file.unwrap().path());
        let texts: Vec<String> = written.map(|file| std::fs::read_to_string(file).unwrap()).collect();
        assert!(texts.iter().any(|text| text.contains("ACME-Paint")), "{broker}");
        assert!(texts.iter().any(|text| text.contains("ACME-Body")), "{broker}");
    }
}

#[tokio::test]
async fn clusters_for_access_files_are_taken_from_what_cluster_list_prints() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    write(dir, "clusters.json", r#"[{ "name": "Paint" }, { "name": "Body", "hosts": 3 }]"#);
    let line = "acl generate --broker mosquitto --clusters-from @/clusters.json --directory @/out";
    assert_eq!(ended(line, dir).await.0, 0);
    for (text, part) in [
        ("{}", "not a list of clusters"),
        (r#"[{ "uuid": "x" }]"#, "has no `name`"),
        (r#"[{ "name": "a b" }]"#, "--cluster"),
        ("[]", "no cluster is named"),
    ] {
        write(dir, "clusters.json", text);
        let (code, error) = ended(line, dir).await;
        assert!(code == exit::USAGE && error.contains(part), "{text}: {code}: {error}");
    }
    for (line, part) in [
        ("acl generate --broker emqx", "no cluster is named"),
        ("acl generate --broker emqx --cluster Paint --organisation A-B", "--organisation"),
        ("acl generate --broker emqx --cluster Paint --operator-host a/b", "--operator-host"),
        ("acl generate --broker emqx --cluster Paint --viewer-host +", "--viewer-host"),
    ] {
        let (code, error) = ended(line, dir).await;
        assert!(code == exit::USAGE && error.contains(part), "{line}: {code}: {error}");
    }
}

#[tokio::test]
async fn a_revocation_list_that_is_missing_or_something_else_is_refused_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let line = "acl crl --ca @/ca.pem --list @/list.pem --out @/crl.pem";
    let (code, error) = ended(line, dir).await;
    assert!(code == exit::CONFIG && error.contains("ca.pem"), "{code}: {error}");
    write(dir, "ca.pem", CERTIFICATE);
    let (code, error) = ended(line, dir).await;
    assert!(code == exit::CONFIG && error.contains("list.pem"), "{code}: {error}");
    write(dir, "list.pem", CERTIFICATE);
    let (code, error) = ended(line, dir).await;
    assert!(code == exit::REFUSED && error.contains("is not a revocation list"), "{code}: {error}");
    write(dir, "list.pem", "");
    assert_eq!(ended(line, dir).await.0, exit::REFUSED);
    assert!(!dir.join("crl.pem").exists());
}

#[tokio::test]
async fn a_value_is_sealed_for_a_certificate_without_a_broker() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    write(dir, "seal.pem", CERTIFICATE);
    write(dir, "value", "correct horse");
    let seal = |more: &str| format!("secret seal --certificate @/seal.pem --name press {more}");
    for scope in ["strict", "namespace-wide", "cluster-wide"] {
        assert_eq!(ended(&seal(&format!("--from-file password=@/value --scope {scope}")), dir).await.0, 0, "{scope}");
    }
    for (more, code, part) in [
        ("--from-file password", exit::USAGE, "is not KEY=FILE"),
        ("--from-file password=@/none", exit::CONFIG, "cannot read"),
        ("--from-file pass/word=@/value", exit::USAGE, "key"),
        ("--from-file password=@/value --namespace Upper", exit::USAGE, "namespace"),
    ] {
        let (ended, error) = ended(&seal(more), dir).await;
        assert_eq!(ended, code, "{more}: {error}");
        assert!(error.contains(part) && !error.contains("correct horse"), "{more}: {error}");
    }
    write(dir, "seal.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let (code, error) = ended(&seal("--from-file password=@/value"), dir).await;
    assert!(code == exit::CONFIG && error.contains("is not an X.509 certificate"), "{code}: {error}");
}

#[tokio::test]
async fn a_secret_with_a_bad_name_is_refused_before_anything_is_read_or_asked() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    write(dir, "value", "correct horse");
    for line in [
        "secret put Paint Press password --file @/value",
        "secret put Paint press pass/word --file @/value",
        "secret put Paint press password --namespace A_B --file @/value",
        "secret delete Paint press ../x",
        "secret delete Paint Press a",
        "secret delete Paint press a --namespace A_B",
    ] {
        let (ended, error) = ended(line, dir).await;
        assert_eq!(ended, exit::USAGE, "{line}: {error}");
        assert!(error.contains("must be") && !error.contains("correct horse"), "{line}: {error}");
    }
    let (code, error) = ended("secret put Paint press password --file @/value --broker mqtt://127.0.0.1:1", dir).await;
    assert!(code == exit::UNAVAILABLE && !error.contains("correct horse"), "{code}: {error}");
}

#[tokio::test]
async fn an_operator_gets_a_key_and_a_certificate_once_and_only_of_an_authority_whose_key_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let pair = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    let leaf = params.self_signed(&pair).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    write(dir, "ca.pem", params.self_signed(&pair).unwrap().pem());
    write(dir, "leaf.pem", leaf.pem());
    write(dir, "ca.key", pair.serialize_pem());
    write(dir, "other.key", rcgen::KeyPair::generate().unwrap().serialize_pem());
    let make =
        |name: &str, ca: &str, key: &str| format!("acl operator {name} --ca @/{ca} --ca-key @/{key} --directory @/pki");
    for (line, code, part) in [
        (make("a-b", "ca.pem", "ca.key"), exit::USAGE, "name of an operator"),
        (make("ada", "none", "ca.key"), exit::CONFIG, "cannot read"),
        (make("ada", "leaf.pem", "ca.key"), exit::CONFIG, "must be the certificate of an authority"),
        (make("ada", "ca.pem", "other.key"), exit::CONFIG, "must be the certificate of the key in --ca-key"),
        (make("ada", "ca.pem", "ca.key"), 0, ""),
        (make("ada", "ca.pem", "ca.key"), exit::REFUSED, "ACME-Central-Operator-ada.pem is there"),
    ] {
        let (ended, error) = ended(&line, dir).await;
        assert_eq!(ended, code, "{line}: {error}");
        assert!(error.contains(part), "{line}: {error}");
    }
    let [certificate, key] = ["pem", "key"].map(|kind| dir.join(format!("pki/ACME-Central-Operator-ada.{kind}")));
    assert_eq!(
        (mode(&key), crate::certificate::subject(&certificate).unwrap()),
        (0o600, "ACME-Central-Operator-ada".to_owned())
    );
}
