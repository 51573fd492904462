//! A host in virtual time: the protocol's machine with a TPM in software.

use std::time::Duration;

use join_protocol::host::{Effect, Event, HostSettings, Machine};
use join_protocol::message::acknowledgement::Stage;
use join_protocol::message::evidence::EvidenceBody;
use join_protocol::message::local_unlock::LocalUnlock;
use join_protocol::message::renewal::Renewal;
use join_protocol::metrics::{HostMessage, IssuerMessage};
use join_protocol::refusal::Refusal;
use join_protocol::simulated::SimulatedTpm;
use join_protocol::terms::{Address, HostClock, Kind, Role, Suite, Variant};
use sparkplug::Now;
use uuid::Uuid;

use super::site::{GROUP, anchor, ek, entropy, tpm};

pub struct SimHost {
    pub number: u64,
    pub disk: Uuid,
    pub tpm: SimulatedTpm,
    pub machine: Machine,
    pub settings: HostSettings,
    /// Every ticket's join token and disk key that it opened.
    pub tokens: Vec<String>,
    pub disk_keys: Vec<[u8; 32]>,
    /// And what it may seal a second key to.
    pub second_keys: Vec<Option<LocalUnlock>>,
    pub refusals: Vec<Refusal>,
    /// Certificates that it renewed.
    pub renewals: Vec<Renewal>,
    /// Says that it is a member as soon as it is locked.
    pub becomes_member: bool,
    /// How much it reports between its lock and that.
    pub reports: u32,
    /// Its acknowledgements come in its births only.
    pub loses_acknowledgements: bool,
    /// False: it says that it is a member without ever having locked itself.
    pub locks: bool,
    draws: u64,
}

impl SimHost {
    pub fn new(number: u64, role: Role) -> Self {
        Self::with(number, Uuid::from_u128(u128::from(number)), &format!("edge-{number}"), role)
    }

    pub fn with(number: u64, disk: Uuid, name: &str, role: Role) -> Self {
        let tpm = tpm(number);
        let settings = HostSettings {
            address: Address::of_disk(GROUP, disk),
            disk,
            kind: Kind::Join,
            role,
            suites: vec![Suite::X25519],
            variant: Variant::Simulated,
            attestation_key: tpm.attestation_key(),
            endorsement_key: tpm.endorsement_key(),
            endorsement_certificates: Vec::new(),
            lock_pcr: 15,
            body: EvidenceBody { boot: [1; 16], node_name: name.to_owned(), ..EvidenceBody::default() },
            anchor: anchor(),
        };
        let machine = Machine::new(settings.clone());
        let (tokens, disk_keys, refusals, renewals) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            number,
            disk,
            tpm,
            machine,
            settings,
            tokens,
            disk_keys,
            second_keys: Vec::new(),
            refusals,
            renewals,
            becomes_member: true,
            reports: 0,
            loses_acknowledgements: false,
            locks: true,
            draws: 0,
        }
    }

    pub fn ek(&self) -> String {
        ek(&self.tpm)
    }

    pub fn ek_bytes(&self) -> [u8; 32] {
        hex::decode(self.ek()).unwrap().try_into().unwrap()
    }

    /// Another boot: PCRs as after a good boot, the attempt is forgotten.
    pub fn reboot(&mut self, kind: Kind) {
        self.tpm = tpm(self.number);
        self.settings.kind = kind;
        self.settings.body.boot[0] += 1;
        self.machine = Machine::new(self.settings.clone());
    }

    /// Asks for other certificates in the same boot: what is locked stays so.
    pub fn renew(&mut self) {
        self.settings.kind = Kind::Renew;
        self.machine = Machine::new(self.settings.clone());
    }

    pub fn last_refusal(&self) -> Option<u32> {
        self.refusals.last().map(|refusal| refusal.code.to_wire())
    }

    /// What the host publishes in answer to this.
    pub fn on_event(&mut self, event: Event<'_>, now: Now) -> Vec<HostMessage> {
        let mut published = Vec::new();
        let mut effects = self.step(event, now);
        while !effects.is_empty() {
            let mut next = Vec::new();
            for effect in effects {
                match effect {
                    Effect::Publish(message) => published.push(message),
                    Effect::ActivateCredential { request, credential } => {
                        next.extend(match self.tpm.activate_credential(&credential) {
                            Some(secret) => self.step(Event::CredentialActivated(request, secret), now),
                            None => self.step(Event::TpmFailed(request, "not for this TPM".to_owned()), now),
                        });
                    }
                    Effect::Quote { request, qualifying_data, selection, .. } => {
                        let quote = self.tpm.quote_of(&qualifying_data, &selection);
                        next.extend(self.step(Event::Quoted(request, quote), now));
                    }
                    Effect::Lock { request, cluster_id, qualifying_data, selection } => {
                        self.opened();
                        if self.locks {
                            self.tpm.lock(&cluster_id);
                            let quote = self.tpm.quote_of(&qualifying_data, &selection);
                            next.extend(self.step(Event::Locked { request, quote, result: None }, now));
                        }
                        for number in 0..self.reports {
                            next.extend(self.step(Event::Stage(Stage::Installed, format!("{number}")), now));
                        }
                        if self.becomes_member {
                            next.extend(self.step(Event::Stage(Stage::Member, String::new()), now));
                        }
                    }
                    Effect::Renew { .. } => {
                        self.renewals.push(self.machine.renewal().unwrap().clone());
                        if self.becomes_member {
                            next.extend(self.step(Event::Stage(Stage::Member, String::new()), now));
                        }
                    }
                    Effect::Refused(refusal) => self.refusals.push(refusal),
                    Effect::Ignored { .. } | Effect::Hindered { .. } => {}
                }
            }
            effects = next;
        }
        let is_lost = |message: &HostMessage| matches!(message, HostMessage::Acknowledgement(_));
        published.retain(|message| !(self.loses_acknowledgements && is_lost(message)));
        published
    }

    pub fn on_message(&mut self, message: &IssuerMessage, now: Now) -> Vec<HostMessage> {
        self.on_event(
            match message {
                IssuerMessage::Challenge(bytes) => Event::Challenge(bytes),
                IssuerMessage::ClearRefusal(bytes) => Event::ClearRefusal(bytes),
                IssuerMessage::Ticket(bytes) => Event::Ticket(bytes),
                IssuerMessage::AskAgain => Event::AskAgain,
            },
            now,
        )
    }

    pub fn next_deadline(&self) -> Option<Duration> {
        self.machine.next_deadline()
    }

    fn opened(&mut self) {
        let grant = self.machine.grant().unwrap();
        self.disk_keys.push(*grant.disk_key.expose());
        self.second_keys.push(grant.local_unlock.clone());
        if let Some(membership) = &grant.membership {
            self.tokens.push(String::from_utf8(membership.token.expose().to_vec()).unwrap());
        }
    }

    fn step(&mut self, event: Event<'_>, now: Now) -> Vec<Effect> {
        self.draws += 1;
        let entropy = entropy(self.number * 1_000_000 + self.draws);
        self.machine.on_event(event, now.mono, HostClock::Trusted(now.wall), entropy)
    }
}
