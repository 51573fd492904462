//! One site for the measurement of joins: keys, policy, the real join service in a thread of its own, hosts with a TPM in software. Keys come from numbers: nothing here is secret.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use join_attestation::signed;
use join_protocol::attestation::{HostKeys, Verifier as _};
use join_protocol::certificate::{IssuerCertificate, SigningKey, TrustAnchor};
use join_protocol::host::{Effect, Event, HostSettings, Machine};
use join_protocol::message::acknowledgement::Stage;
use join_protocol::message::evidence::EvidenceBody;
use join_protocol::metrics::{HostMessage, IssuerMessage};
use join_protocol::secret::{Entropy, Secret};
use join_protocol::simulated::{SimulatedTpm, SimulatedVerifier};
use join_protocol::terms::{Address, HostClock, Kind, Purpose, Role, Suite, Variant};
use join_service::config::{ClusterConfig, Distribution, JoinConfig, KubernetesConfig, TrustConfig};
use join_service_contract::DesiredPolicy;
use serde_json::json;
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use simulator::cluster::SimulatedCluster;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::{EdgeNodeDescriptor, Properties};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig};
use uuid::Uuid;

/// Quarantine group.
pub const JOIN_GROUP: &str = "ACME-Cell-Join";
/// Name of the cluster.
pub const CLUSTER: &str = "Cell";
const CLUSTER_UUID: Uuid = Uuid::from_u128(0xC1);
const AUTHORITY: &str = include_str!("../../../services/libs/join-attestation/tests/recorded/root.pem");
/// What every host has measured into PCR 4.
const MEASURED: [u8; 32] = [0x4D; 32];
/// Above everything that is measured: the limits are not what is looked at.
const PER_SECOND_MAX: u32 = 100_000;

/// Seeds of the root's key and of the policy signer's.
const ROOT: u8 = 0x70;
const SIGNER: u8 = 0x71;

fn numbered(number: u64) -> [u8; 32] {
    let mut bytes = [0xE1; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn signing_key(byte: u8) -> anyhow::Result<SigningKey> {
    SigningKey::from_seed(&Secret::new([byte; 32])).context("a key of the site")
}

fn tpm(number: u64) -> anyhow::Result<SimulatedTpm> {
    let mut tpm = SimulatedTpm::new(&Secret::new(numbered(number))).context("a TPM in software")?;
    tpm.extend(4, &MEASURED);
    Ok(tpm)
}

/// The policy that admits the hosts `0..hosts`.
///
/// # Errors
/// A software TPM cannot be made.
pub fn policy(hosts: u64) -> anyhow::Result<DesiredPolicy> {
    let first = tpm(0)?;
    let (attestation_key, endorsement_key) = (first.attestation_key(), first.endorsement_key());
    let keys = HostKeys {
        variant: Variant::Simulated,
        attestation_key: &attestation_key,
        endorsement_key: &endorsement_key,
        endorsement_certificates: &[],
    };
    let pcrs = SimulatedVerifier::default().read_pcrs(&keys, &first.quote(&[1; 32]), &[1; 32]);
    let measured = pcrs.and_then(|pcrs| pcrs.get(4).copied()).context("PCR 4")?.1;
    let enrolled = |number| {
        let id = join_protocol::transcript::endorsement_key_id(&tpm(number)?.endorsement_key());
        anyhow::Ok(json!({"ek": hex::encode(id)}))
    };
    let enrolled = (0..hosts).map(enrolled).collect::<anyhow::Result<Vec<_>>>()?;
    let entry = json!({"variants": ["simulated"], "bank": "sha256", "lock": {"pcr": 15},
        "pcrs": {"4": {"expected": [hex::encode(measured)]}},
        "endorsement": {"require": "enrolment", "enrolled": enrolled}});
    let key = signing_key(SIGNER)?;
    let certificate = IssuerCertificate {
        public_key: key.public_key(),
        purpose: Purpose::PolicySigner,
        cluster: CLUSTER_UUID,
        not_before_ms: 0,
        not_after_ms: u64::MAX,
        epoch: 1,
    };
    let claims = signed::Claims { cluster: CLUSTER_UUID, serial: 1, not_after_ms: u64::MAX };
    let policy = serde_json::from_value(entry)?;
    let policy = signed::sign(&policy, &claims, &key, &[certificate.sign(&signing_key(ROOT)?)]);
    Ok(DesiredPolicy {
        version: 1,
        revision: 1,
        entry: Some(serde_json::to_string(&policy)?),
        ..DesiredPolicy::default()
    })
}

/// The join service, alone in a thread: what the thread takes is what the service takes.
#[derive(Debug)]
pub struct Service {
    shutdown: Shutdown,
    thread: std::thread::JoinHandle<anyhow::Result<()>>,
    schedule: String,
}

impl Service {
    /// Starts it on a simulated API server.
    ///
    /// # Errors
    /// Its files cannot be written, or no thread can be started.
    pub fn start(cluster: &SimulatedCluster, mqtt: &MqttConfig, directory: &Path) -> anyhow::Result<Self> {
        let config = join_service::Config {
            state_dir: directory.to_owned().into(),
            simulated: true,
            replica: "join-0".to_owned(),
            cluster: ClusterConfig { name: CLUSTER.to_owned(), uuid: Some(CLUSTER_UUID) },
            kubernetes: KubernetesConfig { namespace: cluster.namespace().to_owned(), url: Some(cluster.url()) },
            trust: TrustConfig { directory: Some(write_trust(directory)?), secret: None },
            join: JoinConfig {
                distribution: Distribution::K3s,
                servers: vec!["https://10.1.0.1:6443".to_owned()],
                hosts_max: 10_000,
                hellos_per_second_max: PER_SECOND_MAX,
                evidence_per_second_max: PER_SECOND_MAX,
                ..JoinConfig::default()
            },
            mqtt: mqtt.clone(),
            ..join_service::Config::default()
        };
        let shutdown = Shutdown::new();
        let stop = shutdown.child();
        let (sender, started) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let own = fs::read_link("/proc/thread-self").context("the thread in /proc")?;
            sender.send(format!("/proc/{}/schedstat", own.display()))?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(join_service::run(config, stop, Health::new()))
        });
        let schedule = started.recv().context("the thread of the join service")?;
        Ok(Self { shutdown, thread, schedule })
    }

    /// Processor time until this moment.
    ///
    /// # Errors
    /// The service has ended.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let text = fs::read_to_string(&self.schedule).context("the join service has ended")?;
        let nanoseconds = text.split_whitespace().next().context("schedstat")?.parse()?;
        Ok(Duration::from_nanos(nanoseconds))
    }

    /// Stops it.
    ///
    /// # Errors
    /// It had failed.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.shutdown.trigger();
        let thread = self.thread;
        let ended = tokio::task::spawn_blocking(move || thread.join()).await?;
        ended.map_err(|_| anyhow::anyhow!("the join service panicked"))?
    }
}

fn write_trust(directory: &Path) -> anyhow::Result<std::path::PathBuf> {
    let certificate = IssuerCertificate {
        public_key: signing_key(0x80)?.public_key(),
        purpose: Purpose::JoinIssuer,
        cluster: CLUSTER_UUID,
        not_before_ms: 0,
        not_after_ms: u64::MAX,
        epoch: 1,
    };
    let trust = directory.join("trust");
    fs::create_dir_all(&trust)?;
    for (name, text) in [
        ("issuer.key", "80".repeat(32)),
        ("root.pub", hex::encode(signing_key(ROOT)?.public_key())),
        ("issuer.certificates", hex::encode(certificate.sign(&signing_key(ROOT)?))),
        ("master.key", "4b".repeat(32)),
        ("ca.crt", AUTHORITY.to_owned()),
        ("k3s-server-token", "K10abc::server:hush".to_owned()),
    ] {
        let file = trust.join(name);
        fs::write(&file, text + "\n")?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    }
    Ok(trust)
}

/// A host: the protocol's machine, a TPM in software, a real Edge Node session.
pub struct JoiningHost {
    number: u64,
    tpm: SimulatedTpm,
    machine: Machine,
    node: EdgeNodeHandle,
    clock: Clock,
    draws: u64,
    opened: Option<Instant>,
    /// Every message of both sides, by the name of its metric.
    pub messages: Vec<(&'static str, Vec<u8>)>,
}

impl JoiningHost {
    /// A host that was born and has not begun.
    ///
    /// # Errors
    /// It cannot be born.
    pub async fn start(number: u64, mqtt: &MqttConfig) -> anyhow::Result<Self> {
        let tpm = tpm(number)?;
        let disk = Uuid::from_u128(u128::from(number) + 1);
        let address = Address::of_disk(JOIN_GROUP, disk);
        let descriptor = EdgeNodeDescriptor::parse(JOIN_GROUP, &address.node)?;
        let machine = Machine::new(HostSettings {
            address,
            disk,
            kind: Kind::Join,
            role: Role::Worker,
            suites: vec![Suite::X25519],
            variant: Variant::Simulated,
            attestation_key: tpm.attestation_key(),
            endorsement_key: tpm.endorsement_key(),
            endorsement_certificates: Vec::new(),
            lock_pcr: 15,
            body: EvidenceBody { boot: [1; 16], node_name: format!("edge-{number}"), ..EvidenceBody::default() },
            anchor: TrustAnchor { root: signing_key(ROOT)?.public_key(), cluster: CLUSTER_UUID, epoch_min: 1 },
        });
        let clock = Clock::new();
        let (config, birth) = (EdgeNodeConfig::new(descriptor), HostMessage::birth_metrics(&[]));
        let mut node = sparkplug_mqtt::spawn_edge_node(config, birth, mqtt, BdSeqStore::Memory, clock)?;
        while !matches!(node.recv().await.context("the host's session has ended")?, NodeEvent::Born { .. }) {}
        Ok(Self { number, tpm, machine, node, clock, draws: 0, opened: None, messages: Vec::new() })
    }

    /// Joins; yields the time from the hello until the ticket is opened. Then the host is locked and says that it is a member.
    ///
    /// # Errors
    /// The host is refused, or its session has ended.
    pub async fn join(&mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        self.step_with_effects(Event::Start).await?;
        loop {
            if let Some(opened) = self.opened {
                return Ok(opened - begun);
            }
            let deadline = self.machine.next_deadline();
            tokio::select! {
                event = self.node.recv() => {
                    if let NodeEvent::Command { metrics, .. } = event.context("the host's session has ended")? {
                        for metric in &metrics {
                            let Some(message) = IssuerMessage::from_metric(metric)? else { continue };
                            self.on_message(message).await?;
                        }
                    }
                }
                () = self.clock.sleep_until(deadline) => self.step_with_effects(Event::Timer).await?,
            }
        }
    }

    /// Ends the session.
    pub async fn stop(self) {
        self.node.stop().await;
    }

    async fn on_message(&mut self, message: IssuerMessage) -> anyhow::Result<()> {
        match message {
            IssuerMessage::Challenge(bytes) => {
                self.messages.push(("challenge", bytes.clone()));
                self.step_with_effects(Event::Challenge(&bytes)).await
            }
            IssuerMessage::Ticket(bytes) => {
                self.messages.push(("ticket", bytes.clone()));
                self.step_with_effects(Event::Ticket(&bytes)).await
            }
            IssuerMessage::ClearRefusal(bytes) => self.step_with_effects(Event::ClearRefusal(&bytes)).await,
            IssuerMessage::AskAgain => self.step_with_effects(Event::AskAgain).await,
        }
    }

    async fn step_with_effects(&mut self, event: Event<'_>) -> anyhow::Result<()> {
        let mut effects = std::collections::VecDeque::from(self.step(event));
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Publish(message) => self.publish(message).await?,
                Effect::ActivateCredential { request, credential } => {
                    let secret = self.tpm.activate_credential(&credential).context("a credential for this TPM")?;
                    effects.extend(self.step(Event::CredentialActivated(request, secret)));
                }
                Effect::Quote { request, qualifying_data, selection, .. } => {
                    let quote = self.tpm.quote_of(&qualifying_data, &selection);
                    effects.extend(self.step(Event::Quoted(request, quote)));
                }
                Effect::Lock { request, cluster_id, qualifying_data, selection } => {
                    self.opened = Some(Instant::now());
                    self.tpm.lock(&cluster_id);
                    let quote = self.tpm.quote_of(&qualifying_data, &selection);
                    effects.extend(self.step(Event::Locked { request, quote, result: None }));
                    effects.extend(self.step(Event::Stage(Stage::Member, String::new())));
                }
                Effect::Renew { .. } => {
                    anyhow::bail!("host {}: it renews although the benchmark did not ask for it", self.number)
                }
                Effect::Refused(refusal) => anyhow::bail!("host {} is refused: {refusal:?}", self.number),
                Effect::Hindered { reason } => anyhow::bail!("host {}: {reason}", self.number),
                Effect::Ignored { message, reason } => anyhow::bail!("host {}: {message}: {reason}", self.number),
            }
        }
        Ok(())
    }

    fn step(&mut self, event: Event<'_>) -> Vec<Effect> {
        self.draws += 1;
        let entropy = Entropy::new(numbered((self.number + 1) * 1_000_000 + self.draws));
        let now = self.clock.now();
        self.machine.on_event(event, now.mono, HostClock::Trusted(now.wall), entropy)
    }

    async fn publish(&mut self, message: HostMessage) -> anyhow::Result<()> {
        let mut metric = message.to_metric();
        // A repeat is the same bytes; without another property report by exception would swallow it.
        metric.properties = Properties::new().with("Repeat", u32::try_from(self.messages.len())?);
        self.messages.push(match message {
            HostMessage::Hello(bytes) => ("hello", bytes),
            HostMessage::Evidence(bytes) => ("evidence", bytes),
            HostMessage::Progress(bytes) => ("progress", bytes),
            HostMessage::Acknowledgement(bytes) => ("acknowledgement", bytes),
        });
        Ok(self.node.update(NodeUpdate::Set { device: None, metrics: vec![metric] }).await?)
    }
}
