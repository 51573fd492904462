//! Identity, and who asks it to be enrolled. Its authority is a model that writes the serial number where a certificate would be.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::EcdsaKeyPair;
use aws_lc_rs::signature::KeyPair as _;
use cluster_manager::event::LoginResult;
use cluster_manager_contract::SealedLogin;
use enrolment_protocol::cluster::{Draft, Grant, Request, Seed};
use enrolment_protocol::identity::IdentityKeyPair;
use enrolment_protocol::login::Login;
use enrolment_protocol::metrics;
use enrolment_protocol::metrics::{ANSWER, REQUEST};
use enrolment_protocol::refusal::RefusalCode;
use enrolment_protocol::token::Token;
use identity::authority::Terms;
use identity::event::{Effect as IdentityEffect, Event as IdentityEvent, IssueCertificate};
use identity::state::{Settings as IdentitySettings, State as IdentityState};
use sparkplug::Now;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent};
use sparkplug::host::{HostConfig, HostRequest};
use uuid::Uuid;

use crate::model::disk::Disk;
use crate::model::enrolment::{Applicant, Enrolments};
use crate::model::ids::ClusterId;
use crate::model::names::organisation;
use crate::model::program::{Action, Boot, Input, Program};

/// Seed of the enrolment key.
const IDENTITY_SEED: [u8; 32] = [0x3A; 32];

/// Far in the future.
const AUTHORITY_ENDS_MS: u64 = 4_000_000_000_000;

const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Starts Identity.
pub(crate) fn boot_identity(disk: &Disk, seed: u64, now: Now) -> Boot {
    let key_pair = Arc::new(IdentityKeyPair::new(IDENTITY_SEED));
    let terms = Terms {
        key: key_pair.public().to_string(),
        authority: "-----BEGIN CERTIFICATE-----".to_owned(),
        authority_ends_ms: AUTHORITY_ENDS_MS,
        lifetime: Duration::from_secs(30 * 86_400),
    };
    let settings = IdentitySettings {
        organisation: organisation(),
        version: "sim".to_owned(),
        key_pair,
        terms: Arc::new(terms),
        replaces_keys: false,
        retry: (Duration::from_secs(1), Duration::from_secs(60)),
    };
    let state = IdentityState::new(settings, disk.issued(), seed, now);
    let node = identity::adapters::sparkplug::own_descriptor(&organisation()).expect("ACME is a name");
    let host = identity::adapters::sparkplug::host_config(&organisation()).expect("ACME is a name");
    let node = EdgeNodeConfig { seed, ..identity::adapters::sparkplug::node_config(node) };
    let node = Some((node, state.node_metrics()));
    let mut program = Identity { state, disk: disk.clone() };
    let actions = program.actions();
    Boot { program: Box::new(program), node, host: Some(HostConfig { seed: seed ^ 1, ..host }), actions }
}

/// Identity with its disk.
#[derive(Debug)]
struct Identity {
    state: IdentityState,
    disk: Disk,
}

impl Identity {
    fn actions(&mut self) -> Vec<Action> {
        let effects = self.state.poll_effects().into_iter();
        effects
            .filter_map(|effect| match effect {
                IdentityEffect::Host(request) => Some(Action::Host(request)),
                IdentityEffect::Node(update) => Some(Action::Node(update)),
                IdentityEffect::Remember(issued) => {
                    self.disk.remember(issued);
                    None
                }
                IdentityEffect::Answer(order) => answer(&order).map(Action::Host),
                // No server reads the list.
                IdentityEffect::Revocations { .. } | IdentityEffect::ReadRevocations => None,
            })
            .collect()
    }
}

impl Program for Identity {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        let event = match input {
            Input::Timer => IdentityEvent::DeadlineReached,
            Input::Node(event) => IdentityEvent::Node(event),
            Input::Host(event) => IdentityEvent::Host(event),
            _ => return Vec::new(),
        };
        self.state.on_event(event, now);
        self.actions()
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.state.next_deadline()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// The cluster manager's disk seals a login.
pub(crate) fn seal_login(cluster: Uuid, key: String) -> LoginResult {
    let login = Login { username: "git".to_owned(), password: "hush".into() };
    let recipient = key.parse().map_err(|_| "the key is none".to_owned());
    let sealed = recipient.and_then(|recipient| login.seal(&recipient, cluster, [7; 32]).map_err(|e| e.to_string()));
    LoginResult { cluster, key, sealed: sealed.map(|bytes| SealedLogin(bytes.into())) }
}

/// The authority carries an order out.
fn answer(order: &IssueCertificate) -> Option<HostRequest> {
    let key_pair = IdentityKeyPair::new(IDENTITY_SEED);
    let answer = match &order.answer {
        Ok((certificate, login)) => {
            let login = key_pair.open_login(order.opened.cluster, login).ok()?;
            Ok(Grant {
                certificate: certificate.serial.clone().into_bytes(),
                authorities: Vec::new(),
                git_username: login.username,
                git_password: login.password,
            })
        }
        Err(refusal) => Err(refusal.clone()),
    };
    let bytes = key_pair.answer(&order.opened, &answer).ok()?;
    let metrics = vec![metrics::metric(ANSWER, &bytes)];
    Some(HostRequest::Command { node: order.node.clone(), device: None, metrics })
}

struct Asking {
    site: ClusterId,
    applicant: Applicant,
    request: Request,
    enrolments: Enrolments,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asking").field("site", &self.site).field("applicant", &self.applicant).finish_non_exhaustive()
    }
}

/// Starts someone who asks.
pub(crate) fn boot(
    site: ClusterId,
    applicant: Applicant,
    key: &EcdsaKeyPair,
    enrolments: &Enrolments,
    seed: u64,
) -> Boot {
    let (cluster, token) = {
        let enrolments = enrolments.lock();
        (enrolments[&site].cluster, enrolments[&site].token)
    };
    let (token, pinned) = (Token::new(token), IdentityKeyPair::new(IDENTITY_SEED).public());
    let own = Seed::new([if applicant == Applicant::Thief { 2 } else { 1 }; 32]);
    let point = key.public_key().as_ref().try_into().expect("a point of P-256 is not compressed");
    let draft = Draft::new(cluster, &token, point, &pinned, &own);
    let signature = key.sign(&SystemRandom::new(), &draft.to_sign()).expect("the key can sign");
    let signature = signature.as_ref().try_into().expect("the fixed form has 64 bytes");
    let request = draft.seal(signature).expect("Identity's key is one");
    let node = metrics::node(&organisation(), cluster).expect("a UUID is an id");
    let config = EdgeNodeConfig { seed, ..EdgeNodeConfig::for_any_reader(node) };
    let birth = vec![metrics::metric(REQUEST, &request.bytes)];
    let program = Asking { site, applicant, request, enrolments: enrolments.clone() };
    Boot { program: Box::new(program), node: Some((config, birth)), host: None, actions: Vec::new() }
}

impl Program for Asking {
    fn on_input(&mut self, input: Input, _: Now) -> Vec<Action> {
        let Input::Node(NodeEvent::Command { metrics, .. }) = input else { return Vec::new() };
        let Some(bytes) = metrics::bytes_of(&metrics, ANSWER) else { return Vec::new() };
        // What is for the other one does not open.
        let Ok(answer) = self.request.open(&bytes) else { return Vec::new() };
        let answer = answer.map(|grant| String::from_utf8_lossy(&grant.certificate).into_owned());
        let is_final = answer.as_ref().err().is_none_or(|refusal| refusal.code == RefusalCode::TokenUsed);
        if let Some(enrolment) = self.enrolments.lock().get_mut(&self.site) {
            enrolment.answers.insert(self.applicant, answer);
        }
        // Who is refused for another reason runs the command again.
        if is_final { Vec::new() } else { vec![Action::Exit { again_after: Some(ASK_AGAIN) }] }
    }

    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
