//! Hosts that join by attestation, from the machine to the member: the programs as an operator runs them, with simulated machines.

use std::path::{Path, PathBuf};

use e2e::central_services::{CentralServices, free_port};
use e2e::cli::Cli;
use e2e::joining::{Site, in_force, listed};
use e2e::process::Process;
use e2e::program;
use e2e::recorder::{Message, Recorder};
use e2e::relay::{Fault, Relay};
use e2e::wait;
use e2e::wire::text;
use join_protocol::transcript::hash;
use join_service_contract::{DesiredPolicy, names};
use join_trust::keys::KeyProvider as _;
use join_trust::replica::{Files, cluster_keys};
use serde_json::Value;
use sparkplug::Metric;
use sparkplug::payload::{EncodeOptions, Form, Payload, encode};

use crate::factory::{Up, uuid};

const CLUSTER: &str = "Body_Shop";

/// A simulated machine in a process of its own; its TPM and its disk stay when it stops.
struct Machine {
    process: Process,
    directory: PathBuf,
}

impl Machine {
    fn start(up: &Up, name: &str, more: &[&str]) -> Self {
        let (root, data) = (up.data_dir().join("trust/root.pub"), up.directory.path().join("machines"));
        let broker = format!("mqtt://{}", up.broker);
        let (root, hosts) = (root.display().to_string(), data.display().to_string());
        let own =
            ["simulate-host", name, "--cluster", CLUSTER, "--broker", &broker, "--root", &root, "--data-dir", &hosts];
        let arguments = [&own[..], more].concat();
        let process = Process::start(name, &program::sparkfleet(), &arguments, up.directory.path());
        Self { process, directory: data.join(CLUSTER).join(name) }
    }

    /// Off and on again: another boot of the same machine.
    async fn reboot(&mut self) {
        self.process.interrupt();
        self.process.ended().await;
        self.process.restart();
    }
}

/// What `host list` says of a host, as soon as `found` accepts it.
async fn host(up: &Up, name: &str, what: &str, found: impl Fn(&Value) -> bool) -> Value {
    listed(&up.cli, &up.process, name, what, found).await
}

async fn in_state(up: &Up, name: &str, state: &str) -> Value {
    host(up, name, state, |row| row["state"] == state).await
}

/// Waits until the join service of the cluster judges by a policy of at least this revision.
async fn judged_by(up: &Up, revision: u64) {
    in_force(&up.cli, CLUSTER, revision).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_factory_comes_up_with_hosts_that_joined_and_a_further_one_is_approved_joins_and_is_revoked() {
    let up = Up::embedded().await;
    let recorder = Recorder::start(up.broker).await;
    for name in ["body-shop-2", "body-shop-3"] {
        let row = in_state(&up, name, "member").await;
        assert_eq!(
            (&row["cluster"], &row["variant"], &row["role"]),
            (&CLUSTER.into(), &"simulated".into(), &"worker".into())
        );
        assert!(row["registers"]["4"].is_string() && row["verdict"].is_null(), "{row:#}");
        up.process.says(&format!("host {CLUSTER}/{name}: member by simulated evidence")).await;
    }
    up.process.says("cluster Body_Shop: setup ready, edge alive, hosts 3/3 ready").await;
    let shown = up.cli.json(&["cluster", "show", CLUSTER]).await;
    let joined: Vec<&Value> = shown["hosts"].as_array().unwrap().iter().map(|host| &host["joined"]).collect();
    assert_eq!(joined, [&Value::Null, &"member (simulated)".into(), &"member (simulated)".into()], "{shown:#}");
    let policy = up.cli.json(&["policy", "show", CLUSTER]).await;
    assert_eq!(policy["policy"]["variants"], serde_json::json!(["simulated"]), "{policy:#}");
    assert_eq!(policy["join_service"]["state"], "in-force", "{policy:#}");

    let mut machine = Machine::start(&up, "body-shop-4", &[]);
    let row = in_state(&up, "body-shop-4", "pending").await;
    let line = machine.process.says("endorsement key").await;
    assert!(line.contains(row["endorsement_key"].as_str().unwrap()), "{line}");
    let unknown = up.cli.run(&["host", "show", "body-shop-9"]).await.refused(7, "body-shop-9");
    assert!(unknown.contains("Body_Shop/body-shop-2"), "{unknown}");
    up.cli.run(&["host", "approve", "body-shop-4", "--ek", "00"]).await.refused(2, "16 to 64 hexadecimal digits");
    let other = "0".repeat(16);
    up.cli.run(&["host", "approve", "body-shop-4", "--ek", &other]).await.refused(5, "has the endorsement key");
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("hosts.csv");
    let delivered = format!("# delivery\n{},body-shop-8\n{}\n", "1f".repeat(31) + "01", "1f".repeat(31) + "02");
    std::fs::write(&list, delivered.clone() + "nothing\n").unwrap();
    let arguments = ["host", "enrol", CLUSTER, list.to_str().unwrap()];
    up.cli.run(&arguments).await.refused(3, "line 4: the endorsement key must be 64 hexadecimal digits");
    std::fs::write(&list, delivered).unwrap();
    for (enrolled, unchanged) in [(2, 0), (0, 2)] {
        let answer = up.cli.json(&arguments).await;
        assert_eq!((&answer["enrolled"], &answer["unchanged"]), (&enrolled.into(), &unchanged.into()), "{answer:#}");
    }
    let approved = up.cli.json(&["host", "approve", "body-shop-4"]).await;
    judged_by(&up, approved["revision"].as_u64().unwrap()).await;
    // A host that was refused waits for a minute, unless the join service asks it again.
    let approved_at = std::time::Instant::now();
    in_state(&up, "body-shop-4", "member").await;
    assert!(approved_at.elapsed() < std::time::Duration::from_secs(45), "it was asked again");
    let shown = up.cli.json(&["host", "show", "Body_Shop/body-shop-4"]).await;
    assert_eq!((&shown["enrolment"]["host"], &shown["revoked"]), (&"body-shop-4".into(), &false.into()), "{shown:#}");

    // A member that was switched off and on gets the key of its disk again.
    machine.reboot().await;
    let again = |row: &Value| row["state"] == "member" && row["kind"] == "rejoin";
    host(&up, "body-shop-4", "a member again", again).await;

    let revoked = up.cli.json(&["host", "revoke", "body-shop-4", "--wait"]).await;
    judged_by(&up, revoked["revision"].as_u64().unwrap()).await;
    machine.reboot().await;
    machine.process.says("endorsement-revoked").await;
    in_state(&up, "body-shop-4", "revoked").await;
    up.cli.run(&["host", "approve", "body-shop-4"]).await.refused(5, "is revoked");

    let logs = [up.logs(), machine.process.output()].concat();
    let mut secrets = [secrets(&up.data_dir()), secrets(&machine.directory)].concat();
    assert!(secrets.len() >= 8, "{}", secrets.len());
    secrets.extend(derived_keys(&up, &row["disk"], &machine.directory).await);
    assert_nothing_secret(&recorder, &logs, &secrets);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_software_is_refused_with_its_pcr_until_that_is_captured() {
    let up = Up::embedded().await;
    in_state(&up, "body-shop-2", "member").await;
    let mut machine =
        Machine::start(&up, "body-shop-4", &["--measure", "4=another boot loader", "--measure", "9=its own"]);
    in_state(&up, "body-shop-4", "pending").await;
    let approved = up.cli.json(&["host", "approve", "body-shop-4"]).await;
    judged_by(&up, approved["revision"].as_u64().unwrap()).await;
    let refused = in_state(&up, "body-shop-4", "refused").await;
    assert_eq!(refused["verdict"], "measurement", "{refused:#}");
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains('4') && !detail.contains("11"), "{detail}");

    let captured = up.cli.json(&["policy", "capture", "body-shop-4", "--pcr", "4,9"]).await;
    // What the policy does not ask for was not quoted.
    assert_eq!((&captured["taken"], &captured["missing"]), (&serde_json::json!([4]), &serde_json::json!([9])));
    let values = captured["policy"]["pcrs"]["4"]["expected"].as_array().unwrap();
    assert_eq!(values.len(), 2, "the image of the others still joins: {captured:#}");
    judged_by(&up, captured["revision"].as_u64().unwrap()).await;
    in_state(&up, "body-shop-4", "member").await;

    // A further PCR: refused with what to do, then asked for; the member quotes it at its next boot.
    let unasked = up.cli.run(&["policy", "capture", "body-shop-4", "--pcr", "9"]).await.refused(5, "--ask");
    assert!(unasked.contains("the policy does not have it"), "{unasked}");
    let asking = up.cli.json(&["policy", "capture", "body-shop-4", "--pcr", "9", "--ask", "--timeout", "2m"]);
    let rebooting = async {
        observed(&up, "9").await;
        machine.reboot().await;
    };
    let (captured, ()) = tokio::join!(asking, rebooting);
    assert_eq!((&captured["taken"], &captured["missing"]), (&serde_json::json!([9]), &serde_json::json!([])));
    let rule = &captured["policy"]["pcrs"]["9"];
    assert_eq!((rule["expected"].as_array().map(Vec::len), &rule["warnOnly"]), (Some(1), &Value::Null), "{rule}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_renews_its_certificates_while_it_runs() {
    let up = Up::embedded().await;
    in_state(&up, "body-shop-2", "member").await;
    let machine = Machine::start(&up, "body-shop-4", &["--renew-every", "2s"]);
    in_state(&up, "body-shop-4", "pending").await;
    let approved = up.cli.json(&["host", "approve", "body-shop-4"]).await;
    judged_by(&up, approved["revision"].as_u64().unwrap()).await;
    let renewed = |row: &Value| row["state"] == "member" && row["kind"] == "renew";
    host(&up, "body-shop-4", "a member with renewed certificates", renewed).await;
    let path = machine.directory.join("root/run/state/ssh/ssh_host_ed25519_key-cert.pub");
    let first = std::fs::read_to_string(&path).unwrap();
    assert!(first.starts_with("ssh-ed25519-cert-v01@openssh.com "), "{first}");
    let deadline = std::time::Instant::now() + wait::PATIENCE;
    while std::fs::read_to_string(&path).unwrap() == first {
        assert!(std::time::Instant::now() < deadline, "the certificate stays: {}", machine.process.tail());
        in_state(&up, "body-shop-4", "member").await;
    }
    let row = in_state(&up, "body-shop-4", "member").await;
    assert!(row["verdict"].is_null(), "{row:#}");
    let secrets = secrets(&machine.directory);
    assert!(secrets.iter().all(|secret| !machine.process.output().contains(&hex::encode(secret))));
}

/// Waits until the join service judges by a policy that only observes this PCR.
async fn observed(up: &Up, pcr: &str) {
    let deadline = std::time::Instant::now() + wait::PATIENCE;
    loop {
        let shown = up.cli.json(&["policy", "show", CLUSTER]).await;
        let rule = &shown["policy"]["pcrs"][pcr];
        if rule["warnOnly"] == true && rule["expected"].is_null() {
            return judged_by(up, shown["revision"].as_u64().unwrap()).await;
        }
        assert!(std::time::Instant::now() < deadline, "the PCR is not asked for: {shown:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_join_through_a_relay_that_drops_delays_repeats_swaps_and_invents() {
    let up = Up::embedded().await;
    in_state(&up, "body-shop-2", "member").await;
    let outside = e2e::mosquitto::Mosquitto::start();
    let group = format!("ACME-{CLUSTER}-Join");
    let relay = Relay::start(outside.address(), up.broker, &group, 7);
    let url = outside.url();
    let names = ["body-shop-4", "body-shop-5"];
    let start = |name: &&str| Machine::start(&up, name, &["--host-broker", &url]);
    let mut machines: Vec<Machine> = names.iter().map(start).collect();
    let mut revision = 0;
    for name in names {
        in_state(&up, name, "pending").await;
    }
    relay.misbehave(200);
    for name in names {
        let approved = up.cli.json(&["host", "approve", name]).await;
        revision = approved["revision"].as_u64().unwrap().max(revision);
    }
    judged_by(&up, revision).await;
    for machine in &mut machines {
        machine.reboot().await;
    }
    let mut keys = Vec::new();
    for name in names {
        let row = in_state(&up, name, "member").await;
        assert_eq!(row["name"], name);
        keys.push(row["endorsement_key"].as_str().unwrap().to_owned());
    }
    keys.dedup();
    assert_eq!(keys.len(), 2, "each is who it is");
    let done = relay.done();
    for fault in [Fault::Drop, Fault::Delay, Fault::Duplicate, Fault::Replay, Fault::Swap, Fault::Invent] {
        assert!(done.get(&fault).is_some_and(|count| *count > 0), "{fault:?} was not tried: {done:?}");
    }
    let logs = machines.iter().map(|machine| machine.process.output()).collect::<String>() + &up.logs();
    assert!(!logs.contains("panicked"), "{logs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_makes_the_first_member_and_recovers_it_where_no_join_service_is() {
    const NAME: &str = "first-1";
    let server = e2e::mosquitto::Mosquitto::start();
    let recorder = Recorder::start(server.address()).await;
    let _central = CentralServices::start(server.address(), free_port());
    let cli = Cli::new(&server.url());
    let cluster = uuid(&cli.json(&["cluster", "create", CLUSTER]).await).to_string();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (trust, own, kubeconfig) = (at("trust"), at(&format!("trust/{cluster}")), at("kubeconfig"));
    cli.json(&["trust", "init", "--dir", &trust]).await;
    for purpose in ["join-issuer", "policy-signer", "cluster-admin"] {
        cli.json(&["trust", "issue", &cluster, "--purpose", purpose, "--dir", &trust]).await;
    }
    let cli = cli.with_environment([("SPARKFLEET_TRUST".to_owned(), trust.clone())]);
    let (root, hosts, url) = (at("trust/root.pub"), at("hosts"), server.url());
    let fixed = ["simulate-host", NAME, "--cluster", CLUSTER, "--broker", &url, "--root", &root, "--data-dir", &hosts];
    let arguments = [&fixed[..], &["--control-plane"]].concat();
    let process = Process::start(NAME, &program::sparkfleet(), &arguments, directory.path());
    let mut machine = Machine { process, directory: directory.path().join("hosts") };
    let line = machine.process.says("endorsement key").await;
    let after = |label: &str| {
        let (_, rest) = line.split_once(label).unwrap();
        rest.split([',', ';']).next().unwrap().trim().to_owned()
    };
    let (disk, key) = (after("state disk "), after("endorsement key "));
    let policy = |pcr: &str| {
        let policy = serde_json::json!({
            "variants": ["simulated"], "bank": "sha256", "lock": { "pcr": 15 },
            "pcrs": { "4": { "expected": [pcr] } },
            "endorsement": { "require": "enrolment", "enrolled": [{ "ek": key, "host": NAME, "controlPlane": true }] },
        });
        policy.to_string()
    };
    let other = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    cli.json_with(&["policy", "set", CLUSTER, "-"], &policy(other)).await;

    let administrator = ["--cluster", CLUSTER, "--trust", &own, "--timeout", "2m"];
    let init = [&["host", "init", NAME, "--name", NAME, "--kubeconfig", &kubeconfig], &administrator[..]].concat();
    // The PCRs that the host showed stand before the refusal.
    let refused = cli.run(&init).await;
    let found = refused.stderr.lines().find_map(|line| line.strip_prefix("  4: ")).unwrap().to_owned();
    let refusal = refused.stderr.lines().last().unwrap();
    assert_eq!(refused.code, 5, "{refused:#?}");
    assert!(refusal.contains(&format!("PCR 4: wanted {other}, found {found}")), "{refused:#?}");
    cli.json_with(&["policy", "set", CLUSTER, "-"], &policy(&found)).await;
    // A host that was refused waits for a minute.
    machine.reboot().await;
    // The policy enrols it without its disk. By the enrolment that is completed the join service knows the host at its next boot.
    let made = cli.json(&init).await;
    let shown = cli.json(&["policy", "show", CLUSTER]).await;
    let member = serde_json::json!({ "ek": key, "host": NAME, "disk": disk, "controlPlane": true });
    assert_eq!(shown["policy"]["endorsement"]["enrolled"], serde_json::json!([member]), "{shown:#}");
    assert_eq!((&made["revision"], &made["not_enrolled"]), (&shown["revision"], &serde_json::Value::Null), "{made:#}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&kubeconfig).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(std::fs::read_to_string(&kubeconfig).unwrap().contains(CLUSTER));
    cli.run(&init).await.refused(5, "is there already");

    machine.reboot().await;
    let recovered = cli.json(&[&["host", "recover", NAME], &administrator[..]].concat()).await;
    assert_eq!(recovered["disk"], disk.as_str(), "{recovered}");
    let secrets = [secrets(Path::new(&trust)), secrets(&machine.directory)].concat();
    assert!(secrets.len() >= 5, "{}", secrets.len());
    assert_nothing_secret(&recorder, &machine.process.output(), &secrets);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_service_begins_with_the_secret_that_one_command_writes_to_its_cluster() {
    let mut site = Site::start("k3s").await;
    let (namespace, url) = (site.cluster.namespace().to_owned(), site.cluster.url());
    let trust = site.trust().display().to_string();
    let own = site.trust().join(site.uuid.to_string());
    // Kubernetes gives its authority to every namespace.
    let authority = std::fs::read_to_string(own.join("ca.crt")).unwrap();
    std::fs::remove_file(own.join("ca.crt")).unwrap();
    let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": authority},
        "metadata": {"namespace": namespace, "name": "kube-root-ca.crt"}});
    site.cluster.kubernetes().apply("kubernetes", map).unwrap();
    let command = [
        "trust",
        "secret",
        e2e::joining::CLUSTER,
        "--dir",
        &trust,
        "--namespace",
        &namespace,
        "--kubernetes-url",
        &url,
    ];
    let written = site.cli.json(&command).await;
    let keys = written["keys"].as_array().unwrap();
    assert!(["ca.crt", "issuer.key", "master.key"].iter().all(|key| keys.contains(&(*key).into())), "{written:#}");
    assert!(!written.to_string().contains("root.key"), "{written:#}");

    site.start_join_with_secret("k3s", "sparkfleet-join");
    let policy = site.cli.json(&["policy", "init", e2e::joining::CLUSTER]).await;
    site.agree(&policy).await;
}

/// Sends Join a policy as the control plane does, with a version above which there is none.
async fn forge(forger: &Recorder, policy: Option<&Value>, origin: Option<&str>) {
    let entry = policy.map(Value::to_string);
    let revision = policy.map_or(0, |_| 1);
    let origin = origin.map(|origin| origin.parse().unwrap());
    let desired = DesiredPolicy { version: u64::MAX, revision, entry, origin, follows: None };
    let metric = Metric::new(names::DESIRED_POLICY, desired.to_json().to_string());
    let payload = Payload { timestamp: Some(1), metrics: vec![metric], ..Payload::default() };
    let payload = encode(&payload, &EncodeOptions::new(Form::Command)).to_vec();
    forger.publish(&format!("spBv1.0/ACME-{CLUSTER}/NCMD/Join"), payload).await;
}

/// What `policy show` says of the join service, as soon as `found` accepts it.
async fn at_cluster(up: &Up, what: &str, found: impl Fn(&Value) -> bool) {
    let deadline = std::time::Instant::now() + wait::PATIENCE;
    loop {
        let shown = up.cli.json(&["policy", "show", CLUSTER]).await["join_service"].clone();
        if found(&shown) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "waited for {what}: {shown:#}");
    }
}

/// The attacker may command Join: it is, for example, an Edge Agent with the certificate of its cluster, where the server cannot distinguish nodes.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_policy_admits_no_host_and_does_not_block_the_operator() {
    let up = Up::embedded().await;
    in_state(&up, "body-shop-2", "member").await;
    let forger = Recorder::start(up.broker).await;
    let mut machine = Machine::start(&up, "body-shop-4", &[]);
    let row = in_state(&up, "body-shop-4", "pending").await;
    let genuine = up.cli.json(&["policy", "show", CLUSTER]).await["policy"].clone();
    let mut changed = genuine.clone();
    let rogue = serde_json::json!({ "ek": row["endorsement_key"], "controlPlane": true });
    changed["endorsement"]["enrolled"].as_array_mut().unwrap().push(rogue);
    let mut unsigned = changed.clone();
    unsigned.as_object_mut().unwrap().remove("signature").unwrap();
    for (policy, reason) in
        [(&unsigned, "the policy is not signed"), (&changed, "the signature is not that of this policy")]
    {
        forge(&forger, Some(policy), None).await;
        let is_refused = |shown: &Value| shown["error"].as_str().is_some_and(|error| error.contains(reason));
        at_cluster(&up, reason, |shown| is_refused(shown) && shown["state"] == "in-force").await;
    }
    // No policy, from nowhere: held until the control plane repeats what is in force.
    let place = forger.count();
    forge(&forger, None, None).await;
    let held =
        |message: &Message| text(message, names::POLICY_HOLD_REASON).filter(|reason| reason.contains("which store"));
    forger.wait_for("the hold of no policy", place, held).await;
    at_cluster(&up, "agreement", |shown| shown["agreed"] == true && shown["state"] == "in-force").await;
    // The policy in force, from a store that does not exist, at the last epoch that there is.
    let elsewhere = format!("00000000-0000-0000-0000-000000000009/{}/00000000000000ab/1", u64::MAX);
    forge(&forger, Some(&genuine), Some(&elsewhere)).await;
    at_cluster(&up, "the hold", |shown| shown["agreed"] == false && shown["state"] == "in-force").await;
    let seen = row["last_seen"].clone();
    machine.reboot().await;
    host(&up, "body-shop-4", "pending still", |row| row["state"] == "pending" && row["last_seen"] != seen).await;

    let approved = up.cli.json(&["host", "approve", "body-shop-4"]).await;
    judged_by(&up, approved["revision"].as_u64().unwrap()).await;
    in_state(&up, "body-shop-4", "member").await;
    at_cluster(&up, "no refusal", |shown| shown["error"].is_null() && shown["agreed"] == true).await;
}

/// Every key in the files of a directory, as bytes.
fn secrets(directory: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(secrets(&path));
        } else if path.extension().is_some_and(|extension| extension == "key" || extension == "seed") {
            let text = std::fs::read_to_string(&path).unwrap();
            if text.starts_with("-----BEGIN") {
                // Every line of it is as secret as all of them.
                found.extend(text.lines().filter(|line| line.len() == 64).map(|line| line.as_bytes().to_vec()));
                continue;
            }
            found.push(hex::decode(text.trim()).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        }
    }
    found
}

/// What the ticket of a host holds: the key of its disk and the measurement secret, derived as its join service does.
async fn derived_keys(up: &Up, disk: &Value, directory: &Path) -> Vec<Vec<u8>> {
    let cluster = uuid(&up.cli.json(&["cluster", "show", CLUSTER]).await["cluster"]);
    let file = up.data_dir().join("trust").join(cluster.to_string()).join("master.key");
    let files = Files::from([("master.key".to_owned(), std::fs::read(file).unwrap().into())]);
    let keys = cluster_keys(&files, cluster).unwrap();
    let header = std::fs::read(directory.join("root/disk.json")).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    let generation: uuid::Uuid = header["generation"].as_str().unwrap().parse().unwrap();
    let key = keys.state_disk_key(disk.as_str().unwrap().parse().unwrap(), Some(generation.as_bytes()));
    // The simulated disk keeps a hash of its key: so this is the right one.
    let known = hex::encode(hash("simulated disk", &[key.expose()])).into_bytes();
    assert!(any_file(directory, &known), "the disk of the host has another key");
    vec![key.expose().to_vec(), keys.measurement().0.expose().to_vec()]
}

/// Whether a file below a directory holds these bytes.
fn any_file(directory: &Path, part: &[u8]) -> bool {
    let holds = |path: &Path| std::fs::read(path).unwrap().windows(part.len()).any(|window| window == part);
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.into_iter().any(|path| if path.is_dir() { any_file(&path, part) } else { holds(&path) })
}

/// Nothing that went over the wire or into a log holds one of these keys, as bytes or as text, or a join token.
pub fn assert_nothing_secret(recorder: &Recorder, logs: &str, secrets: &[Vec<u8>]) {
    let contains = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|window| window == part);
    let messages = recorder.messages();
    assert!(messages.iter().any(|message| message.topic.contains("-Join/")), "no message of a host");
    for secret in secrets {
        for form in [secret.clone(), hex::encode(secret).into_bytes(), hex::encode_upper(secret).into_bytes()] {
            assert!(!contains(logs.as_bytes(), &form), "a key of {} bytes is in a log", secret.len());
            for message in &messages {
                assert!(!contains(&message.payload, &form), "a key is in a message of {}", message.topic);
            }
        }
    }
    for message in &messages {
        assert!(!has_token(&message.payload), "a join token is in a message of {}", message.topic);
    }
    assert!(!has_token(logs.as_bytes()), "a join token is in a log");
}

/// Six characters, a dot and sixteen characters, all of `a-z0-9` and with digits in both, which no name here has.
fn has_token(text: &[u8]) -> bool {
    let is_part = |part: &[u8]| {
        part.iter().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) && part.iter().any(u8::is_ascii_digit)
    };
    let ends = |next: Option<&u8>| next.is_none_or(|c| !(c.is_ascii_alphanumeric() || *c == b'-' || *c == b'.'));
    text.windows(23).enumerate().any(|(at, window)| {
        let begins = at == 0 || ends(text.get(at - 1));
        begins && window[6] == b'.' && is_part(&window[..6]) && is_part(&window[7..]) && ends(text.get(at + 23))
    })
}
