//! Hosts with TPMs of their own (swtpm), side by side, over a real Mosquitto: endorsement key and its certificate, attestation key, activation, quote, ticket, lock, second quote.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use crate::disk::{Bench, key};
use crate::support;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use bootstrapper::Ending;
use bootstrapper::adapters::simulated::SimulatedHost;
use bootstrapper::adapters::tpm::TpmAttester;
use bootstrapper::config::{AttestationConfig, RenewalConfig};
use bootstrapper::platform::{Attester as _, Platform, SealedKey, StateDisk as _};
use join_attestation::event_log::Event;
use join_attestation::{EventLog, Hash, Policy, TpmVerifier, pcr};
use join_protocol::attestation::{Admitted, HostKeys, Verifier as _};
use join_protocol::message::acknowledgement::Stage;
use join_protocol::message::local_unlock::LocalUnlock;
use join_protocol::secret::Secret;
use join_protocol::selection::Bank;
use join_protocol::terms::Variant;
use join_trust::unlock;
use join_trust::unlock_key::UnlockKey;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use support::issuer::TestIssuer;
use support::mosquitto::Mosquitto;
use support::site::{Running, Site, config};
use support::swtpm::Swtpm;
use tempfile::TempDir;
use uuid::Uuid;

const PCRS: [u8; 9] = [0, 1, 2, 4, 5, 7, 9, 11, 14];
/// Certificate of the manufacturer.
const ROOT: &str = "ca/swtpm-localca-rootca-cert.pem";

struct Machine {
    disk: Uuid,
    directory: TempDir,
    /// Its disk, its power switch, its Kubernetes.
    rest: SimulatedHost,
    tpm: Swtpm,
    /// Certificates that its configuration has.
    intermediates: Option<String>,
    /// Its configuration looks for the key of its maker.
    has_iak: bool,
}

/// What firmware and kernel would measure.
fn measure(tpm: &Swtpm) {
    for pcr in PCRS {
        tpm.write("event.bin", format!("what is measured into {pcr}").as_bytes());
        tpm.tool("tpm2_pcrevent", &[&pcr.to_string(), "event.bin"]);
    }
}

/// What firmware, boot loader and kernel measured in a boot whose event log this is, and then systemd.
fn boot(tpm: &Swtpm, log: &[u8]) {
    let log = EventLog::parse(log).unwrap();
    let extend =
        |event: &Event<'_>| format!("{}:sha256={}", event.pcr, hex::encode(event.digest(Hash::Sha256).unwrap()));
    let extended: Vec<String> = log.events().iter().map(extend).collect();
    tpm.tool("tpm2_pcrextend", &extended.iter().map(String::as_str).collect::<Vec<_>>());
    for phase in ["sysinit", "ready"] {
        tpm.write("event.bin", phase.as_bytes());
        tpm.tool("tpm2_pcrevent", &["11", "event.bin"]);
    }
}

impl Machine {
    /// One whose firmware keeps an event log.
    fn booted(number: u8, log: &[u8]) -> Self {
        let (disk, directory) = (Uuid::from_u128(u128::from(number)), tempfile::tempdir().unwrap());
        let rest = SimulatedHost::new(directory.path(), disk, Secret::new([number; 32])).unwrap();
        let machine =
            Self { disk, directory, rest, tpm: Swtpm::manufacture("sha256"), intermediates: None, has_iak: false };
        machine.boot(log);
        machine
    }

    fn boot(&self, log: &[u8]) {
        boot(&self.tpm, log);
        std::fs::write(self.event_log(), log).unwrap();
    }

    fn event_log(&self) -> PathBuf {
        self.directory.path().join("binary_bios_measurements")
    }

    fn new(number: u8) -> Self {
        let (disk, directory) = (Uuid::from_u128(u128::from(number)), tempfile::tempdir().unwrap());
        let rest = SimulatedHost::new(directory.path(), disk, Secret::new([number; 32])).unwrap();
        let tpm = Swtpm::manufacture("sha1,sha256");
        measure(&tpm);
        Self { disk, directory, rest, tpm, intermediates: None, has_iak: false }
    }

    fn attester(&self) -> TpmAttester {
        let config = AttestationConfig {
            tcti: format!("swtpm:host=127.0.0.1,port={}", self.tpm.port()),
            lock_pcr: 15,
            intermediates: self.intermediates.clone(),
            iak: self.has_iak,
            event_log: self.event_log(),
            ..AttestationConfig::default()
        };
        TpmAttester::new(&config, None)
    }

    fn start(&self, broker: &Mosquitto) -> Running {
        self.start_renewing(broker, RenewalConfig::default().at_percent)
    }

    fn start_renewing(&self, broker: &Mosquitto, at_percent: u8) -> Running {
        let mut platform = self.rest.platform();
        platform.attester = Box::new(self.attester());
        let mut config = config(broker, self.directory.path(), &format!("edge-{}", self.disk.as_u128()));
        config.renewal.at_percent = at_percent;
        Running::start(config, platform)
    }

    /// Has an SSH host key from here on.
    fn write_ssh_host_key(&self) {
        let folder = self.directory.path().join("etc/ssh");
        std::fs::create_dir_all(&folder).unwrap();
        let key = [&11_u32.to_be_bytes()[..], b"ssh-ed25519", &32_u32.to_be_bytes(), &[0x5A; 32]].concat();
        let line = format!("ssh-ed25519 {}\n", base64::engine::general_purpose::STANDARD.encode(key));
        std::fs::write(folder.join("ssh_host_ed25519_key.pub"), line).unwrap();
    }

    fn ssh_host_certificate(&self) -> String {
        let path = self.directory.path().join("run/state/ssh/ssh_host_ed25519_key-cert.pub");
        std::fs::read_to_string(path).unwrap()
    }

    /// The certificate of the authority that signed the endorsement key's certificate; the manufacturer's root signed it.
    fn intermediate(&self) -> String {
        String::from_utf8(self.tpm.file("ca/issuercert.pem")).unwrap()
    }

    /// As a manufacturer does that puts the whole chain into its TPMs.
    fn write_chain(&self) {
        let der = CertificateDer::from_pem_slice(self.intermediate().as_bytes()).unwrap();
        self.tpm.write("chain.der", &der);
        let (place, size) = ("0x1c00100", (der.len() + 16).to_string());
        self.tpm.tool("tpm2_nvdefine", &[place, "-C", "o", "-s", &size, "-a", "ownerwrite|ownerread|authread"]);
        self.tpm.tool("tpm2_nvwrite", &[place, "-C", "o", "-i", "chain.der"]);
    }

    /// As a maker of machines does: an IAK and an IDevID with their certificates, which this authority (key and certificate in the directory) issues. The IDevID comes first.
    fn write_device_identity(&self, authority: &str) -> String {
        let fixed = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|adminwithpolicy";
        let policies = "2.23.133.11.1.1,2.23.133.11.1.2";
        self.tpm.write("policy", &[0x5C; 32]);
        for (place, name, attributes, policies) in [
            (0, "idevid", format!("{fixed}|sign"), policies.to_owned()),
            (1, "iak", format!("{fixed}|sign|restricted"), format!("{policies},2.23.133.11.1.3")),
        ] {
            // The template wants an administrator to fulfil a policy, which this host cannot.
            let template = ["-G", "ecc256:ecdsa-sha256:null", "-L", "policy", "-a", &attributes, "-c", "made.ctx"];
            self.tpm.tool("tpm2_createprimary", &[&["-C", "e"], template.as_slice()].concat());
            self.tpm
                .tool("tpm2_evictcontrol", &["-C", "o", "-c", "made.ctx", &format!("{:#x}", 0x8102_0000_u32 + place)]);
            self.tpm.tool("tpm2_readpublic", &["-c", "made.ctx", "-f", "pem", "-o", &format!("{name}.pem")]);
            self.tpm.write(
                "extensions",
                format!("[leaf]\nbasicConstraints=critical,CA:FALSE\ncertificatePolicies={policies}\n").as_bytes(),
            );
            openssl(&self.tpm, "ecparam -name prime256v1 -genkey -noout -out any.key");
            openssl(&self.tpm, &format!("req -new -key any.key -subj /CN={name} -out any.csr"));
            openssl(
                &self.tpm,
                &format!(
                    "x509 -req -in any.csr -CA {authority}/maker.pem -CAkey {authority}/maker.key -set_serial {} -days 30 \
                     -force_pubkey {name}.pem -extfile extensions -extensions leaf -outform der -out {name}.der",
                    place + 1
                ),
            );
            let (index, size) =
                (format!("{:#x}", 0x01C9_0000_u32 + place), self.tpm.file(&format!("{name}.der")).len().to_string());
            self.tpm.tool("tpm2_nvdefine", &[&index, "-C", "o", "-s", &size, "-a", "ownerwrite|ownerread|authread"]);
            self.tpm.tool("tpm2_nvwrite", &[&index, "-C", "o", "-i", &format!("{name}.der")]);
        }
        self.tpm.tool("tpm2_readpublic", &["-c", "0x81010001", "-f", "der", "-o", "ek.spki"]);
        hex::encode(Hash::Sha256.digest(&[&self.tpm.file("ek.spki")]))
    }

    fn reboot(&mut self) {
        self.rest.reboot();
        self.tpm.reboot();
        measure(&self.tpm);
    }

    fn pcr(&self, bank: &str) -> Vec<u8> {
        // Behind the number of digests and the size of the only one.
        self.tpm.pcrs(bank, &[15])[6..].to_vec()
    }
}

/// What the first machine measured, and the manufacturer of all machines.
fn verifier(machines: &[&Machine]) -> TpmVerifier {
    verifier_by(machines, &["ca/issuercert.pem", ROOT])
}

/// The same where these authorities of each manufacturer are known.
fn verifier_by(machines: &[&Machine], authorities: &[&str]) -> TpmVerifier {
    let manufacturers: Vec<String> = machines
        .iter()
        .flat_map(|machine| authorities.iter().map(|file| String::from_utf8(machine.tpm.file(file)).unwrap()))
        .collect();
    verifier_of(machines[0], &json!({"require": "certificate", "manufacturers": manufacturers}))
}

/// The authorities of the maker of this machine's TPM.
fn manufacturers(machine: &Machine) -> [String; 2] {
    ["ca/issuercert.pem", ROOT].map(|file| String::from_utf8(machine.tpm.file(file)).unwrap())
}

fn verifier_by_policy(policy: Value) -> TpmVerifier {
    let policy = Policy::new(&serde_json::from_value(policy).unwrap(), 1);
    assert_eq!(policy.error(), None);
    TpmVerifier::new(policy)
}

/// What this machine measured, and these rules.
fn verifier_of(machine: &Machine, endorsement: &Value) -> TpmVerifier {
    let tpm = &machine.tpm;
    let values = join_attestation::pcr::parse_digests(&tpm.pcrs("sha256", &PCRS)).unwrap();
    let pcrs: serde_json::Map<String, Value> = PCRS
        .iter()
        .zip(values)
        .map(|(at, value)| (at.to_string(), json!({"expected": [hex::encode(value)]})))
        .collect();
    let policy = json!({"bank": "sha256", "pcrs": pcrs, "lock": {"pcr": 15}, "endorsement": endorsement});
    verifier_by_policy(policy)
}

#[tokio::test]
async fn hosts_with_real_tpms_join_side_by_side_lock_themselves_and_come_back_after_a_reboot() {
    let broker = Mosquitto::start();
    let mut machines: Vec<Machine> = (1..=3).map(Machine::new).collect();
    let verifier = verifier(&machines.iter().collect::<Vec<_>>());
    let mut site = Site::start(&broker, vec![TestIssuer::join_service(Variant::Tpm2, Box::new(verifier))]);
    let running: Vec<Running> = machines.iter().map(|machine| machine.start(&broker)).collect();
    let disks: Vec<Uuid> = machines.iter().map(|machine| machine.disk).collect();
    let all = |site: &Site, kind: &str| {
        disks.iter().all(|disk| site.state(*disk) == "member" && site.node(*disk).unwrap().kind == kind)
    };
    site.until("all to be members", |site| all(site, "join")).await;
    site.until("all second quotes", |site| site.issuers[0].acknowledged.len() == 3).await;
    assert_eq!((site.errors().len(), site.issuers[0].tickets), (0, 3), "{:?}", site.errors());
    for running in running {
        assert_eq!(running.stop().await, Ending::Member);
    }
    for machine in &machines {
        assert!(!site.node(machine.disk).unwrap().simulated && machine.attester().is_locked().unwrap());
        assert!(machine.pcr("sha1") != vec![0; 20], "every bank is extended");
    }
    assert_eq!(machines[0].pcr("sha256"), machines[1].pcr("sha256"), "by the same cluster id");

    let before: Vec<_> = machines.iter().map(|machine| machine.attester().keys().unwrap()).collect();
    machines.iter_mut().for_each(Machine::reboot);
    let running: Vec<Running> = machines.iter().map(|machine| machine.start(&broker)).collect();
    site.until("all to be back", |site| all(site, "rejoin")).await;
    site.until("all quotes of this boot", |site| site.issuers[0].acknowledged.len() == 6).await;
    assert_eq!(site.errors().len(), 0, "{:?}", site.errors());
    for running in running {
        assert_eq!(running.stop().await, Ending::Member);
    }
    let after: Vec<_> = machines.iter().map(|machine| machine.attester().keys().unwrap()).collect();
    assert_eq!(before, after, "a TPM has the same keys after every boot");
}

fn openssl(tpm: &Swtpm, arguments: &str) {
    let words: Vec<&str> = arguments.split_ascii_whitespace().collect();
    let output = std::process::Command::new("openssl").args(&words).current_dir(tpm.path("")).output().unwrap();
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn hosts_whose_makers_put_an_identity_into_their_tpms_join_by_it_and_one_without_it_is_refused() {
    let (broker, authority) = (Mosquitto::start(), tempfile::tempdir().unwrap());
    let mut machines: Vec<Machine> = (1..=2).map(Machine::new).collect();
    let at = authority.path().display().to_string();
    openssl(&machines[0].tpm, &format!("ecparam -name prime256v1 -genkey -noout -out {at}/maker.key"));
    openssl(&machines[0].tpm, &format!("req -x509 -key {at}/maker.key -subj /CN=maker -days 30 -out {at}/maker.pem"));
    let enrolled: Vec<Value> =
        machines.iter().map(|machine| json!({"ek": machine.write_device_identity(&at)})).collect();
    // The second has the keys, and does not use them.
    machines[0].has_iak = true;
    let maker = std::fs::read_to_string(authority.path().join("maker.pem")).unwrap();
    let endorsement = json!({"require": "both", "deviceManufacturers": [maker], "enrolled": enrolled});
    let verifier = verifier_of(&machines[0], &endorsement);
    let mut site = Site::start(&broker, vec![TestIssuer::join_service(Variant::Tpm2, Box::new(verifier))]);
    let running: Vec<Running> = machines.iter().map(|machine| machine.start(&broker)).collect();
    let disks: Vec<Uuid> = machines.iter().map(|machine| machine.disk).collect();
    site.until("the member", |site| site.state(disks[0]) == "member").await;
    site.until("the refusal", |site| site.node(disks[1]).is_some_and(|node| node.refusals > 0)).await;
    let error = site.node(disks[1]).unwrap().last_error.clone().unwrap();
    assert!(error.starts_with("join refused: endorsement-certificate"), "{error}");
    for running in running {
        running.stop().await;
    }
    let (with, without) = (machines[0].attester().keys().unwrap(), machines[1].attester().keys().unwrap());
    assert!(with.attestation.len() > without.attestation.len(), "what the IAK says follows the attestation key");

    machines[0].reboot();
    assert_eq!(machines[0].attester().keys().unwrap().certificates, with.certificates);
    let running = machines[0].start(&broker);
    let is_back = |site: &Site| site.node(disks[0]).is_some_and(|node| node.kind == "rejoin" && node.state == "member");
    site.until("the member to be back", is_back).await;
    assert_eq!(running.stop().await, Ending::Member);
}

#[tokio::test]
async fn a_member_renews_its_certificates_without_a_reboot_by_a_quote_that_shows_its_lock() {
    let broker = Mosquitto::start();
    let machine = Machine::new(1);
    machine.write_ssh_host_key();
    let verifier = verifier(&[&machine]);
    let mut site = Site::start(&broker, vec![TestIssuer::join_service(Variant::Tpm2, Box::new(verifier))]);
    let disk = machine.disk;
    let running = machine.start(&broker);
    site.until("the member", |site| site.state(disk) == "member").await;
    assert_eq!(running.stop().await, Ending::Member);
    let (first, lock) = (machine.ssh_host_certificate(), machine.pcr("sha256"));
    // Nothing is due: it needs neither ticket nor broker.
    assert_eq!(machine.start(&broker).end().await, Ending::Member);
    assert_eq!((site.issuers[0].tickets, machine.ssh_host_certificate()), (1, first.clone()));

    let running = machine.start_renewing(&broker, 0);
    let renewed = |site: &Site| site.node(disk).is_some_and(|node| node.kind == "renew" && node.state == "member");
    site.until("the renewal", renewed).await;
    site.until("its report", |site| site.issuers[0].stages_of(disk).last() == Some(&Stage::Member)).await;
    assert_eq!(running.stop().await, Ending::Member);
    let second = machine.ssh_host_certificate();
    assert!(second != first && second.starts_with("ssh-ed25519-cert-v01@openssh.com "), "{second}");
    assert_eq!((site.issuers[0].tickets, site.errors().len()), (2, 0), "{:?}", site.errors());
    assert_eq!(machine.pcr("sha256"), lock, "nothing is extended for it");
}

#[tokio::test]
async fn a_machine_with_another_boot_chain_is_refused_and_says_which_pcr_it_is() {
    let broker = Mosquitto::start();
    let machines = [Machine::new(1), Machine::new(2)];
    let verifier = verifier(&machines.iter().collect::<Vec<_>>());
    let mut site = Site::start(&broker, vec![TestIssuer::join_service(Variant::Tpm2, Box::new(verifier))]);
    machines[1].tpm.write("event.bin", b"another kernel");
    machines[1].tpm.tool("tpm2_pcrevent", &["11", "event.bin"]);
    let running = machines[1].start(&broker);
    let refused = machines[1].disk;
    site.until("the refusal", |site| site.node(refused).is_some_and(|node| node.last_error.is_some())).await;
    let error = site.node(refused).unwrap().last_error.clone().unwrap();
    assert!(error.starts_with("join refused: measurement") && error.contains("11"), "{error}");
    assert_eq!(running.stop().await, Ending::Stopped);
    assert!(!machines[1].attester().is_locked().unwrap());
}

const PLAIN: &[u8] = include_bytes!("../../libs/join-attestation/tests/event_logs/plain.bin");
const OTHER_COMMAND_LINE: &[u8] = include_bytes!("../../libs/join-attestation/tests/event_logs/other-command-line.bin");

/// A policy that lists what this log has: both images, command line and initrd.
fn verifier_by_events(machine: &Machine, log: &[u8]) -> TpmVerifier {
    let log = EventLog::parse(log).unwrap();
    let digests = |pcr: u8, kind: u32| -> Vec<String> {
        let events = log.of_pcr(pcr).filter(|event| event.kind == kind);
        events.map(|event| hex::encode(event.digest(Hash::Sha256).unwrap())).collect()
    };
    let (images, tagged) = (digests(4, 0x8000_0003), digests(9, 6));
    let manufacturers = manufacturers(machine);
    let policy = json!({"bank": "sha256", "pcrs": {}, "lock": {"pcr": 15},
        "boot": {"images": images, "commandLines": tagged[..1], "initrds": tagged[1..]},
        "endorsement": {"require": "certificate", "manufacturers": manufacturers}});
    verifier_by_policy(policy)
}

#[tokio::test]
async fn a_machine_sends_its_event_log_joins_renews_and_is_refused_after_a_boot_with_another_command_line() {
    let broker = Mosquitto::start();
    let mut machine = Machine::booted(1, PLAIN);
    machine.write_ssh_host_key();
    let verifier = verifier_by_events(&machine, PLAIN);
    let mut site = Site::start(&broker, vec![TestIssuer::join_service(Variant::Tpm2EventLog, Box::new(verifier))]);
    let disk = machine.disk;
    let running = machine.start(&broker);
    site.until("the member", |site| site.state(disk) == "member").await;
    site.until("its second quote", |site| site.issuers[0].acknowledged.len() == 1).await;
    assert_eq!(running.stop().await, Ending::Member);
    let running = machine.start_renewing(&broker, 0);
    let renewed = |site: &Site| site.node(disk).is_some_and(|node| node.kind == "renew" && node.state == "member");
    site.until("the renewal", renewed).await;
    assert_eq!(running.stop().await, Ending::Member);
    assert_eq!((site.issuers[0].tickets, site.errors().len()), (2, 0), "{:?}", site.errors());

    machine.rest.reboot();
    machine.tpm.reboot();
    machine.boot(OTHER_COMMAND_LINE);
    let running = machine.start(&broker);
    let last_error = |site: &Site| site.node(disk).and_then(|node| node.last_error.clone());
    site.until("the refusal", |site| last_error(site).is_some()).await;
    let error = last_error(&site).unwrap();
    assert!(error.starts_with("rejoin refused: measurement") && error.contains("image-not-listed: PCR 4"), "{error}");
    assert_eq!(running.stop().await, Ending::Stopped);
    assert_eq!(site.issuers[0].tickets, 2);
}

#[tokio::test]
async fn certificates_up_to_the_manufacturers_root_come_from_the_tpm_or_from_the_configuration() {
    let broker = Mosquitto::start();
    let mut machines: Vec<Machine> = (1..=3).map(Machine::new).collect();
    let verifier = verifier_by(&machines.iter().collect::<Vec<_>>(), &[ROOT]);
    let mut site = Site::start(&broker, vec![TestIssuer::join_service(Variant::Tpm2, Box::new(verifier))]);
    machines[0].write_chain();
    machines[1].intermediates = Some(machines[1].intermediate());
    let running: Vec<Running> = machines.iter().map(|machine| machine.start(&broker)).collect();
    let disks: Vec<Uuid> = machines.iter().map(|machine| machine.disk).collect();
    site.until("two members", |site| disks[..2].iter().all(|disk| site.state(*disk) == "member")).await;
    site.until("the refusal", |site| site.node(disks[2]).is_some_and(|node| node.last_error.is_some())).await;
    let error = site.node(disks[2]).unwrap().last_error.clone().unwrap();
    assert!(error.starts_with("join refused: endorsement-certificate") && error.contains("no manufacturer"), "{error}");
    for (running, ending) in running.into_iter().zip([Ending::Member, Ending::Member, Ending::Stopped]) {
        assert_eq!(running.stop().await, ending);
    }
    assert_eq!(machines[0].attester().keys().unwrap().certificates.len(), 2);
}

#[test]
fn a_pcr_that_is_extended_and_a_tpm_that_is_not_there_are_reported() {
    let machine = Machine::new(1);
    let mut attester = machine.attester();
    assert_eq!(attester.is_locked(), Ok(false));
    attester.lock(&[7; 32]).unwrap();
    assert_eq!(attester.is_locked(), Ok(true));
    // SHA-256 of zeros and the SHA-256 of the cluster id, as `TPM2_PCR_Event` does it.
    let digest =
        |parts: &[&[u8]]| aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &parts.concat()).as_ref().to_vec();
    assert_eq!(machine.pcr("sha256"), digest(&[&[0; 32], &digest(&[&[7; 32]])]));
    let expected = AttestationConfig {
        tcti: format!("swtpm:host=127.0.0.1,port={}", machine.tpm.port()),
        ..AttestationConfig::default()
    };
    drop(attester);
    let value = machine.pcr("sha256");
    assert_eq!(TpmAttester::new(&expected, Some(value)).is_locked(), Ok(false), "that is its value before");
    let nowhere = AttestationConfig { tcti: "device:/nonexistent".to_owned(), ..AttestationConfig::default() };
    let error = TpmAttester::new(&nowhere, None).is_locked().unwrap_err().0;
    assert!(error.starts_with("TPM: it cannot be reached"), "{error}");
}

/// What went over the wires between a machine and its TPM, in both directions.
struct Tap {
    port: u16,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    /// Between the program that connects here and this TPM.
    fn on(tpm: &Swtpm) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let [commands, control] = neighbours();
        let port = commands.local_addr().unwrap().port();
        let silent = Arc::new(Mutex::new(Vec::new()));
        for (listener, to, log) in [(commands, tpm.port(), &seen), (control, tpm.port() + 1, &silent)] {
            let log = Arc::clone(log);
            std::thread::spawn(move || {
                for client in listener.incoming().map_while(Result::ok) {
                    let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
                    let ends = [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))];
                    for (from, to) in ends {
                        let (from, to, log) = (from.unwrap(), to.unwrap(), Arc::clone(&log));
                        std::thread::spawn(move || copy(from, to, &log));
                    }
                }
            });
        }
        Self { port, seen }
    }

    fn has(&self, bytes: &[u8]) -> bool {
        self.seen.lock().unwrap().windows(bytes.len()).any(|window| window == bytes)
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, log: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 8192];
    while let Ok(count) = from.read(&mut buffer)
        && count > 0
    {
        log.lock().unwrap().extend(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Listeners at two ports of which one follows the other.
fn neighbours() -> [TcpListener; 2] {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        if let Some(Ok(second)) = port.checked_add(1).map(|next| TcpListener::bind(("127.0.0.1", next))) {
            return [first, second];
        }
    }
}

#[test]
fn a_secret_that_the_tpm_gives_out_cannot_be_read_on_its_wires() {
    let machine = Machine::new(1);
    // Its tools flush what the attester has loaded, so that comes after.
    let verifier = verifier(&[&machine]);
    let signed = unlock::signed(&unlock_key(1), &admitted(&machine, &[4])).unwrap();
    let tap = Tap::on(&machine.tpm);
    let config = AttestationConfig {
        tcti: format!("swtpm:host=127.0.0.1,port={}", tap.port),
        lock_pcr: 15,
        event_log: machine.event_log(),
        ..AttestationConfig::default()
    };
    let mut attester = TpmAttester::new(&config, None);
    let keys = attester.keys().unwrap();
    let secret = Secret::new([0xC5; 32]);
    let host = HostKeys {
        variant: Variant::Tpm2,
        attestation_key: &keys.attestation,
        endorsement_key: &keys.endorsement,
        endorsement_certificates: &keys.certificates,
    };
    let credential = verifier.make_credential(&host, &secret, &Secret::new([7; 32])).unwrap();
    assert_eq!(attester.activate_credential(&credential).unwrap().expose(), secret.expose());
    assert!(tap.has(&keys.endorsement), "the tap sees what is not secret");
    let sealed = attester.seal(&key(0xC6), [3; 16], &signed).unwrap();
    assert_eq!(attester.unseal(&sealed).unwrap().expose(), key(0xC6).expose());
    assert!(tap.has(&sealed.public), "it sees what is sealed");
    let is_seen = [secret.expose(), key(0xC6).expose()].map(|secret| tap.has(secret));
    assert_eq!(is_seen, [false, false], "what answers hold is encrypted");
}

/// The values that PCRs have now, by which a host that is not locked is admitted.
fn admitted(machine: &Machine, pcrs: &[u8]) -> Admitted {
    let values = join_attestation::pcr::parse_digests(&machine.tpm.pcrs("sha256", pcrs)).unwrap();
    let of = pcrs.iter().copied().zip(values.into_iter().map(|value| vec![value]));
    Admitted { bank: Bank::Sha256, pcrs: of.chain([(15, vec![vec![0; 32]])]).collect() }
}

fn unlock_key(seed: u8) -> UnlockKey {
    UnlockKey::from_seed(&join_tickets::keys::Secret::new([seed; 32])).unwrap()
}

/// Signatures of another second key's signer, for fewer PCRs, with a link that is left out, and of the value of another PCR.
fn forged(now: &Admitted, signed: &LocalUnlock) -> [LocalUnlock; 5] {
    let foreign = unlock::signed(&unlock_key(2), now).unwrap();
    let mut fewer = now.clone();
    fewer.pcrs.remove(&4);
    let mut moved = signed.clone();
    moved.pcrs.get_mut(&11).unwrap()[0].signature = signed.pcrs[&4][0].signature;
    [
        LocalUnlock { key: signed.key, ..foreign.clone() },
        foreign,
        unlock::signed(&unlock_key(1), &fewer).unwrap(),
        LocalUnlock { pcrs: signed.pcrs.clone().into_iter().filter(|(at, _)| *at != 4).collect(), ..signed.clone() },
        moved,
    ]
}

#[tokio::test]
async fn the_tpm_gives_out_the_second_key_of_a_disk_under_signed_values_before_the_lock_and_never_else() {
    let (mut machine, other, bench) = (Machine::new(1), Machine::new(2), Bench::new());
    bench.make_member(&key(7)).await;
    // Its tools flush what the attester has loaded, so that comes after.
    let now = admitted(&machine, &[4, 11]);
    let signed = unlock::signed(&unlock_key(1), &now).unwrap();
    // A member seals when it is locked.
    let mut attester = machine.attester();
    attester.lock(&[9; 32]).unwrap();
    let sealed = attester.seal(&key(2), [3; 16], &signed).unwrap();
    assert_eq!((sealed.id, &sealed.unlock), ([3; 16], &signed));
    bench.disk().set_sealed_key(&key(7), &key(2), &sealed).await.unwrap();
    let error = attester.unseal(&sealed).unwrap_err().0;
    assert!(error.contains("not given out: PCR 15 holds") && error.ends_with("1 other values are signed"), "{error}");
    let keys = attester.keys().unwrap();
    drop(attester);

    machine.reboot();
    bench.reboot();
    let sealed = bench.disk().sealed_key().await.unwrap().unwrap();
    let mut attester = machine.attester();
    let second = attester.unseal(&sealed).unwrap();
    assert_eq!(attester.keys().unwrap(), keys);
    bench.disk().unlock_sealed(&second).await.unwrap();
    for (at, unlock) in forged(&now, &signed).into_iter().enumerate() {
        let error = attester.unseal(&SealedKey { unlock, ..sealed.clone() }).unwrap_err().0;
        assert!(error.contains("what is signed is not for it"), "{at}: {error}");
    }
    assert_eq!(attester.unseal(&sealed).unwrap().expose(), key(2).expose(), "nothing of that is left in the TPM");
    other.attester().unseal(&sealed).unwrap_err();
    attester.lock(&[9; 32]).unwrap();
    attester.unseal(&sealed).unwrap_err();
    drop(attester);

    // Another image: refused, until a renewal brings its value.
    machine.reboot();
    bench.reboot();
    machine.tpm.write("event.bin", b"another image");
    machine.tpm.tool("tpm2_pcrevent", &["11", "event.bin"]);
    let mut attester = machine.attester();
    let error = attester.unseal(&sealed).unwrap_err().0;
    assert!(error.contains("not given out: PCR 11 holds"), "{error}");
    let mut renewed = now.clone();
    let of_image = |value: &mut Vec<Vec<u8>>| value.push(pcr::after_event(Hash::Sha256, &value[0], b"another image"));
    renewed.pcrs.entry(11).and_modify(of_image);
    let mut sealed = sealed;
    assert!(sealed.unlock.add(unlock::signed(&unlock_key(1), &renewed).unwrap()));
    bench.disk().update_sealed_key(&sealed).await.unwrap();
    let sealed = bench.disk().sealed_key().await.unwrap().unwrap();
    let second = attester.unseal(&sealed).unwrap();
    bench.disk().unlock_sealed(&second).await.unwrap();
    attester.keys().unwrap();
}

#[test]
fn what_is_not_tied_to_the_lock_pcr_is_not_sealed() {
    let machine = Machine::new(1);
    let now = admitted(&machine, &[4]);
    let mut attester = machine.attester();
    let mut error = |change: fn(&mut Admitted)| {
        let mut wanted = now.clone();
        change(&mut wanted);
        attester.seal(&key(2), [3; 16], &unlock::signed(&unlock_key(1), &wanted).unwrap()).unwrap_err().0
    };
    let lock = "TPM: PCR 15 is not sealed to with its value before a lock, and nothing else";
    assert_eq!(error(|wanted| drop(wanted.pcrs.remove(&15))), lock);
    assert_eq!(error(|wanted| drop(wanted.pcrs.insert(15, vec![vec![1; 32]]))), lock);
    assert_eq!(error(|wanted| wanted.pcrs.get_mut(&15).unwrap().push(vec![1; 32])), lock);
    assert!(error(|wanted| wanted.bank = Bank::Sha384).contains("is not attestation.bank"));
}

/// A policy that admits these values of PCR 11, and second keys.
fn verifier_of_images(machine: &Machine, images: &[Vec<u8>]) -> TpmVerifier {
    let manufacturers = manufacturers(machine);
    let policy = json!({"bank": "sha256", "lock": {"pcr": 15}, "localUnlock": {"pcrs": [4]},
        "pcrs": {"11": {"expected": images.iter().map(hex::encode).collect::<Vec<_>>()}},
        "endorsement": {"require": "certificate", "manufacturers": manufacturers}});
    verifier_by_policy(policy)
}

#[tokio::test]
async fn a_member_with_a_second_key_comes_back_without_an_answer_also_with_an_image_that_a_renewal_brought() {
    let (broker, mut machine) = (Mosquitto::start(), Machine::new(1));
    let (disk, bench) = (machine.disk, Bench::with_uuid(machine.disk));
    let mut images = admitted(&machine, &[11]).pcrs.remove(&11).unwrap();
    let service = TestIssuer::join_service(Variant::Tpm2, Box::new(verifier_of_images(&machine, &images)));
    let mut site = Site::start(&broker, vec![service]);
    let start = |machine: &Machine, within_ms| {
        let platform = machine.rest.platform();
        let (attester, disk) = (Box::new(machine.attester()), Box::new(bench.disk()));
        let platform = Platform { attester, disk, root: bench.root().to_owned(), ..platform };
        let mut config = config(&broker, bench.root(), "edge-1");
        config.timeouts.local_unlock_ms = within_ms;
        Running::start(config, platform)
    };
    let running = start(&machine, 60_000);
    site.until("the member", |site| site.state(disk) == "member").await;
    assert_eq!((running.stop().await, site.node(disk).unwrap().last_error.clone()), (Ending::Member, None));
    assert!(bench.disk().sealed_key().await.unwrap().is_some());

    images.push(pcr::after_event(Hash::Sha256, &images[0], b"another image"));
    for image in [None, Some("another image")] {
        machine.reboot();
        bench.reboot();
        if let Some(image) = image {
            machine.tpm.write("event.bin", image.as_bytes());
            machine.tpm.tool("tpm2_pcrevent", &["11", "event.bin"]);
        }
        let mut service = site.issuers.pop().unwrap();
        let given = service.tickets;
        let running = start(&machine, 100);
        // What it said in its last boot is still there.
        site.until("it asks", |site| site.node(disk).is_some_and(|node| node.kind == "rejoin")).await;
        site.until("a member that asks whether it still may", |site| {
            site.node(disk).is_some_and(|node| node.kind == "renew" && node.attempts > 1)
        })
        .await;
        assert_eq!(service.tickets, given, "no issuer gave it a key");
        // The issuer that judges the renewal sees the lock PCR with the id of this cluster. Its policy has another image by now.
        service.verifier = Box::new(verifier_of_images(&machine, &images));
        site.issuers.push(service);
        site.until("the renewal", |site| site.state(disk) == "member").await;
        assert_eq!((running.stop().await, site.issuers[0].tickets), (Ending::Member, given + 1));
        let sealed = bench.disk().sealed_key().await.unwrap().unwrap();
        let known: Vec<_> = sealed.unlock.pcrs[&11].iter().map(|one| one.value.clone()).collect();
        assert_eq!(known, images);
    }
}
