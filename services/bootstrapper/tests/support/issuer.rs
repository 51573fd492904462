//! An issuer in memory: the join service of a cluster, or its administrator. It answers what hosts say, and remembers what they acknowledged.

use std::collections::BTreeMap;
use std::time::Duration;

use bootstrapper_contract::{InitParameters, Manifests};
use join_protocol::attestation::{Admitted, Verifier};
use join_protocol::certificate::{IssuerCertificate, SigningKey, TrustAnchor};
use join_protocol::issuer::{
    Acknowledged, EvidenceAnswer, HelloAnswer, Issuer, IssuerKeys, IssuerPolicy, Record, Verified,
};
use join_protocol::message::acknowledgement::Stage;
use join_protocol::message::evidence::Evidence;
use join_protocol::message::grant::{Grant, Membership, Setup};
use join_protocol::message::local_unlock::LocalUnlock;
use join_protocol::message::renewal::Renewal;
use join_protocol::metrics::{HostMessage, IssuerMessage};
use join_protocol::refusal::Refusal;
use join_protocol::result::ResultKey;
use join_protocol::secret::{Entropy, Secret, SecretBytes, cluster_id};
use join_protocol::terms::{Address, Kind, Purpose, RequestId, Role, Suite, Variant};
use join_tickets::keys::MasterSecret;
use join_tickets::ssh::{HostRequest, SshAuthority};
use join_trust::keys::{DerivedKeys, KeyProvider as _};
use join_trust::unlock;
use sparkplug::Metric;
use uuid::Uuid;

pub const CLUSTER: Uuid = Uuid::from_u128(0xC1);
pub const GROUP: &str = "ACME-Cell-Join";
/// Secrets that must show up nowhere.
pub const TOKEN: &str = "abcdef.0123456789abcdef";
pub const NODE_PASSWORD: &str = "the-password-of-the-node";
pub const KEY_FILE: &str = "-----BEGIN PRIVATE KEY-----THE-KEY-OF-THE-AUTHORITY";

fn signing_key(byte: u8) -> SigningKey {
    SigningKey::from_seed(&Secret::new([byte; 32])).unwrap()
}

pub fn anchor() -> TrustAnchor {
    TrustAnchor { root: signing_key(0x70).public_key(), cluster: CLUSTER, epoch_min: 1 }
}

pub fn master() -> MasterSecret {
    MasterSecret::new(vec![0x40; 32], vec![0x60; 32]).unwrap()
}

fn cluster_id_of_master() -> [u8; 32] {
    let (secret, salt) = (Secret::new(*master().measurement_secret().expose()), master().measurement_salt());
    cluster_id(&secret, &Secret::new(salt))
}

/// What changes a grant before it is sealed.
pub type Change = Box<dyn Fn(&mut Grant) + Send>;

pub struct TestIssuer {
    issuer: Issuer,
    pub verifier: Box<dyn Verifier + Send>,
    records: BTreeMap<RequestId, Record>,
    result_key: ResultKey,
    drawn: u64,
    pub parameters: InitParameters,
    pub change: Option<Change>,
    /// The name in renewed certificates, if it is not that of the host.
    pub renews_for: Option<String>,
    pub refuse: Option<Refusal>,
    /// What second keys of disks are sealed to, if there are to be any.
    pub local_unlock: Option<Admitted>,
    pub tickets: usize,
    pub stages: Vec<(String, Stage, String)>,
    pub acknowledged: Vec<(Address, Acknowledged)>,
    pub kubeconfig: Option<Vec<u8>>,
    /// Refusals that were sent, and messages that were not believed.
    pub errors: Vec<String>,
}

impl TestIssuer {
    /// The join service.
    pub fn join_service(variant: Variant, verifier: Box<dyn Verifier + Send>) -> Self {
        Self::new(Purpose::JoinIssuer, vec![Kind::Join, Kind::Rejoin, Kind::Renew], variant, verifier)
    }

    /// An administrator.
    pub fn administrator(variant: Variant, verifier: Box<dyn Verifier + Send>) -> Self {
        Self::new(Purpose::ClusterAdmin, vec![Kind::Init, Kind::Recover], variant, verifier)
    }

    fn new(purpose: Purpose, kinds: Vec<Kind>, variant: Variant, verifier: Box<dyn Verifier + Send>) -> Self {
        let key = signing_key(0x80 + u8::try_from(purpose.to_wire()).unwrap());
        let certificate = IssuerCertificate {
            public_key: key.public_key(),
            purpose,
            cluster: CLUSTER,
            not_before_ms: 0,
            not_after_ms: 4_000_000_000_000,
            epoch: 1,
        };
        let policy = IssuerPolicy {
            locked_to: Some(cluster_id_of_master()),
            cluster: CLUSTER,
            group: GROUP.to_owned(),
            kinds,
            suites: vec![Suite::X25519],
            variants: vec![variant],
            policy_epoch: 1,
        };
        let keys = IssuerKeys::new((1, &Secret::new([0x44; 32])), None);
        let chain = vec![certificate.sign(&signing_key(0x70))];
        Self {
            issuer: Issuer::new(policy, keys, key, chain),
            verifier,
            records: BTreeMap::new(),
            result_key: ResultKey::generate(Suite::X25519, Entropy::new([0x45; 32])),
            drawn: 0,
            parameters: InitParameters {
                node_name: "first".to_owned(),
                cluster_name: "cell".to_owned(),
                kubernetes_version: "v1.33.2".to_owned(),
                endpoint: String::new(),
                certificate_names: Vec::new(),
                pod_subnet: String::new(),
                service_subnet: String::new(),
                labels: Vec::new(),
                taints: Vec::new(),
                components: Vec::new(),
                manifests: Manifests::None,
                ssh_authority: String::new(),
            },
            change: None,
            renews_for: None,
            refuse: None,
            local_unlock: None,
            tickets: 0,
            stages: Vec::new(),
            acknowledged: Vec::new(),
            kubeconfig: None,
            errors: Vec::new(),
        }
    }

    fn entropy(&mut self) -> Entropy {
        self.drawn += 1;
        let mut bytes = [0xE1; 32];
        bytes[..8].copy_from_slice(&self.drawn.to_be_bytes());
        Entropy::new(bytes)
    }

    /// Answers what a host says; `now_ms`: UTC.
    pub fn on_metric(&mut self, address: &Address, metric: &Metric, now_ms: u64) -> Option<Metric> {
        let message = HostMessage::from_metric(metric).unwrap()?;
        let answer = match message {
            HostMessage::Hello(bytes) => self.on_hello(address, &bytes, now_ms),
            HostMessage::Evidence(bytes) => self.on_evidence(address, &bytes, now_ms),
            HostMessage::Progress(bytes) => {
                self.on_progress(address, &bytes);
                None
            }
            HostMessage::Acknowledgement(bytes) => {
                self.on_acknowledgement(address, &bytes);
                None
            }
        };
        answer.map(|answer| answer.to_metric())
    }

    fn on_hello(&mut self, address: &Address, bytes: &[u8], now_ms: u64) -> Option<IssuerMessage> {
        let entropy = self.entropy();
        match self.issuer.on_hello(address, bytes, now_ms, entropy, self.verifier.as_ref()) {
            HelloAnswer::Challenge { message, .. } => Some(IssuerMessage::Challenge(message)),
            HelloAnswer::Refused(refused) => {
                self.errors.push(refused.refusal.to_string());
                Some(IssuerMessage::ClearRefusal(refused.message))
            }
            HelloAnswer::Ignored(ignored) => {
                self.errors.push(ignored.to_string());
                None
            }
        }
    }

    fn on_evidence(&mut self, address: &Address, bytes: &[u8], now_ms: u64) -> Option<IssuerMessage> {
        let request = Evidence::decode(bytes).ok()?.request;
        if let Some(ticket) = self.records.get(&request).and_then(|record| record.answer_to(bytes)) {
            return Some(IssuerMessage::Ticket(ticket.to_vec()));
        }
        let verified = match self.issuer.on_evidence(address, bytes, now_ms, self.verifier.as_ref()) {
            EvidenceAnswer::Verified(verified) => verified,
            EvidenceAnswer::Rejected(rejected) => {
                self.errors.push(rejected.refusal.to_string());
                let answer = self.issuer.refuse(rejected.recipient(), rejected.refusal.clone()).unwrap();
                return Some(IssuerMessage::Ticket(answer.message));
            }
            EvidenceAnswer::Refused(refused) => {
                self.errors.push(refused.refusal.to_string());
                return Some(IssuerMessage::ClearRefusal(refused.message));
            }
            EvidenceAnswer::Ignored(ignored) => {
                self.errors.push(ignored.to_string());
                return None;
            }
        };
        if let Some(refusal) = self.refuse.clone() {
            let answer = self.issuer.refuse(verified.recipient(), refusal).unwrap();
            return Some(IssuerMessage::Ticket(answer.message));
        }
        let entropy = self.entropy();
        let answer = match verified.recipient().hello().kind {
            Kind::Renew => self.issuer.renew(&verified, self.renewal(&verified, now_ms), entropy),
            _ => self.issuer.grant(&verified, self.grant(&verified, now_ms), entropy),
        };
        let answer = answer.unwrap();
        self.tickets += 1;
        self.records.insert(request, verified.record().granted(&answer));
        Some(IssuerMessage::Ticket(answer.message))
    }

    /// Authority and certificate of the SSH host key; no certificate if the host has no key.
    fn ssh(&self, verified: &Verified, now_ms: u64) -> (String, String) {
        let body = verified.body();
        let authority = SshAuthority::from_seed(&master().ssh_authority_seed()).unwrap();
        let principals = vec![body.node_name.clone()];
        let request = HostRequest { key: &body.ssh_host_key, principals: &principals, allowed: &principals };
        let (now, validity) = (Duration::from_millis(now_ms), Duration::from_secs(30 * 86_400));
        let certificate = authority.certify(&request, self.drawn, &[9; 32], now, validity);
        (authority.line(), certificate.map(|certificate| certificate.line).unwrap_or_default())
    }

    fn local_unlock(&self, verified: &Verified) -> Option<LocalUnlock> {
        let (disk, body) = (verified.recipient().hello().disk, verified.body());
        let admitted = self.local_unlock.as_ref().or(verified.claims().local_unlock.as_ref())?;
        let key = DerivedKeys::new(master()).unlock_key(disk, body.disk_generation.as_ref(), &body.local_unlock?);
        Some(unlock::signed(&key.unwrap(), admitted).unwrap())
    }

    fn renewal(&self, verified: &Verified, now_ms: u64) -> Renewal {
        let (ssh_authority, ssh_host_certificate) = self.ssh(verified, now_ms);
        let node_name = self.renews_for.clone().unwrap_or_else(|| verified.body().node_name.clone());
        let local_unlock = self.local_unlock(verified);
        Renewal { node_name, ssh_authority, ssh_host_certificate, local_unlock, ..Renewal::default() }
    }

    fn grant(&self, verified: &Verified, now_ms: u64) -> Grant {
        let (hello, master) = (verified.recipient().hello(), master());
        let secret = |secret: join_tickets::keys::Secret| Secret::new(*secret.expose());
        let files = if hello.role == Role::ControlPlane {
            vec![("ca.key".to_owned(), SecretBytes::from(KEY_FILE))]
        } else {
            Vec::new()
        };
        let membership = Membership {
            node_name: verified.body().node_name.clone(),
            servers: vec!["https://10.0.0.1:6443".to_owned()],
            token: TOKEN.into(),
            authority_pin: format!("sha256:{}", "ab".repeat(32)),
            node_password: NODE_PASSWORD.into(),
            kubernetes_version: "v1.33.2".to_owned(),
            ssh_authority: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA".to_owned(),
            ssh_host_certificate: self.ssh(verified, now_ms).1,
            files,
            ..Membership::default()
        };
        let setup = Setup {
            result_key: self.result_key.public().to_vec(),
            parameters: SecretBytes::new(self.parameters.to_bytes()),
        };
        let mut grant = Grant {
            disk_key: secret(master.state_disk_key(hello.disk, verified.body().disk_generation.as_ref())),
            measurement_secret: secret(master.measurement_secret()),
            measurement_salt: Secret::new(master.measurement_salt()),
            membership: (hello.kind == Kind::Join).then_some(membership),
            setup: (hello.kind == Kind::Init).then_some(setup),
            local_unlock: self.local_unlock(verified),
        };
        if let Some(change) = &self.change {
            change(&mut grant);
        }
        grant
    }

    fn on_progress(&mut self, address: &Address, bytes: &[u8]) {
        for record in self.records.values_mut() {
            if let Ok(progress) = self.issuer.on_progress(record, address, bytes) {
                record.sequence = progress.sequence;
                self.stages.push((address.node.clone(), progress.stage, progress.detail));
            }
        }
    }

    fn on_acknowledgement(&mut self, address: &Address, bytes: &[u8]) {
        let id = cluster_id_of_master();
        for record in self.records.values_mut() {
            match self.issuer.on_acknowledgement(record, address, bytes, &id, self.verifier.as_ref()) {
                Ok(acknowledged)
                    if !self.acknowledged.iter().any(|(known, one)| known == address && *one == acknowledged) =>
                {
                    if let Some((key, text)) = &acknowledged.sealed_result {
                        let th4 = match &record.phase {
                            join_protocol::issuer::Phase::Granted { th4, .. } => *th4,
                            phase => panic!("{phase:?}"),
                        };
                        let opened = self.result_key.open(address, record.request, &th4, (key, text)).unwrap();
                        self.kubeconfig = Some(opened.to_vec());
                    }
                    self.acknowledged.push((address.clone(), acknowledged));
                }
                Ok(_) => {}
                Err(join_protocol::issuer::MemberError::Mac | join_protocol::issuer::MemberError::NotOfRequest) => {}
                Err(error) => self.errors.push(error.to_string()),
            }
        }
    }

    /// Every distinct stage that this host reported, in order.
    pub fn stages_of(&self, disk: Uuid) -> Vec<Stage> {
        let node = disk.hyphenated().to_string();
        let mut stages: Vec<Stage> =
            self.stages.iter().filter(|(of, _, _)| *of == node).map(|(_, stage, _)| *stage).collect();
        stages.dedup();
        stages
    }
}
