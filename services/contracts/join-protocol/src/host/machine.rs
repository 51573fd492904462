//! The machine around attempts: it repeats what may have got lost, gives up what takes too long, and begins again with fresh keys. Work on the TPM are effects, whose results come
//! back as events with the id of their attempt; a result of an older attempt is ignored.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::{ChallengeError, Challenged, EvidenceSent, HelloSent, HostSettings, Quoting, TicketOutcome};
use super::event::{Condition, Effect, Event};
use super::member::{Committed, Opened, Renewed};
use crate::limits::{ATTEMPT_LIFETIME_MS, CHALLENGE_LIFETIME_MS, EVIDENCE_GRACE_MS};
use crate::message::acknowledgement::Stage;
use crate::message::grant::Grant;
use crate::message::renewal::Renewal;
use crate::metrics::HostMessage;
use crate::refusal::{Refusal, RefusalClass, RefusalCode};
use crate::secret::{Entropy, Secret};
use crate::terms::{HostClock, RequestId};

const REPEAT_MS_MIN: u64 = 2_000;
const HELLO_REPEAT_MS_MAX: u64 = 30_000;
const EVIDENCE_REPEAT_MS_MAX: u64 = 20_000;
const ACKNOWLEDGEMENT_REPEAT_MS_MAX: u64 = 30_000;
/// How long an acknowledgement is repeated. Later it is still in the birth, which an issuer may ask for.
const ACKNOWLEDGEMENT_LIFETIME_MS: u64 = 120_000;
/// How long the TPM may take for one command.
const TPM_LIFETIME_MS: u64 = 60_000;
const RETRY_MS: u64 = 5_000;
const WAIT_FOR_CHANGE_MS: u64 = 60_000;
/// How soon after it was asked to a resting host begins again.
const ASKED_REST_MS: u64 = 1_000;
/// No sender can make a resting host begin again more often.
const ASKED_INTERVAL_MS: u64 = 10_000;
/// No issuer can make a host wait longer.
const REST_MS_MAX: u64 = 3_600_000;

#[derive(Debug)]
enum State {
    Stopped,
    Hello(HelloSent),
    Activating(Challenged),
    Quoting(Quoting),
    Evidence(EvidenceSent),
    Opened(Box<Opened>),
    Committed(Box<Committed>),
    Renewed(Box<Renewed>),
    Resting,
}

/// A host that wants in.
#[derive(Debug)]
pub struct Machine {
    settings: Arc<HostSettings>,
    state: State,
    request: Option<RequestId>,
    repeat_at: Option<Duration>,
    repeat_ms: u64,
    ends_at: Option<Duration>,
    sequence: u32,
    progress: Option<Vec<u8>>,
    refusal: Option<Refusal>,
    /// When it last began again because it was asked to.
    asked_at: Option<Duration>,
}

impl Machine {
    /// A host that has not begun.
    #[must_use]
    pub fn new(settings: HostSettings) -> Self {
        Self {
            settings: Arc::new(settings),
            state: State::Stopped,
            request: None,
            repeat_at: None,
            repeat_ms: REPEAT_MS_MIN,
            ends_at: None,
            sequence: 0,
            progress: None,
            refusal: None,
            asked_at: None,
        }
    }

    /// How far it is.
    #[must_use]
    pub const fn condition(&self) -> Condition {
        match &self.state {
            State::Stopped => Condition::Stopped,
            State::Hello(_) => Condition::AwaitsChallenge,
            State::Activating(_) | State::Quoting(_) => Condition::AwaitsTpm,
            State::Evidence(_) => Condition::AwaitsTicket,
            State::Opened(_) => Condition::Opened,
            State::Committed(_) | State::Renewed(_) => Condition::Committed,
            State::Resting => Condition::Resting,
        }
    }

    /// Id of the running attempt.
    #[must_use]
    pub const fn request(&self) -> Option<RequestId> {
        self.request
    }

    /// Why the last attempt was refused.
    #[must_use]
    pub const fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// What the host received, once there is a ticket.
    #[must_use]
    pub fn grant(&self) -> Option<&Grant> {
        match &self.state {
            State::Opened(opened) => Some(opened.grant()),
            State::Committed(committed) => Some(committed.grant()),
            _ => None,
        }
    }

    /// The certificates that a member received.
    #[must_use]
    pub fn renewal(&self) -> Option<&Renewal> {
        match &self.state {
            State::Renewed(renewed) => Some(renewed.renewal()),
            _ => None,
        }
    }

    /// What a birth carries: the messages of the current state, so that an issuer that missed any has them.
    #[must_use]
    pub fn current_messages(&self) -> Vec<HostMessage> {
        let mut messages = Vec::new();
        match &self.state {
            State::Hello(hello) => messages.push(HostMessage::Hello(hello.message().to_vec())),
            State::Evidence(evidence) => messages.push(HostMessage::Evidence(evidence.message().to_vec())),
            State::Committed(committed) => {
                messages.push(HostMessage::Acknowledgement(committed.acknowledgement().to_vec()));
            }
            _ => {}
        }
        messages.extend(self.progress.clone().map(HostMessage::Progress));
        messages
    }

    /// When [`Event::Timer`] is due, on the monotonic clock.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.repeat_at.into_iter().chain(self.ends_at).min()
    }

    /// Takes an event. `mono`: time since a fixed start, for deadlines; `clock`: the wall clock, for certificates; `entropy`: fresh for each event.
    #[must_use]
    pub fn on_event(&mut self, event: Event<'_>, mono: Duration, clock: HostClock, entropy: Entropy) -> Vec<Effect> {
        let mut turn = Turn { mono, clock, entropy, effects: Vec::new() };
        match event {
            Event::Start if matches!(self.state, State::Stopped) => self.begin(&mut turn),
            Event::Start => {}
            Event::Challenge(message) => self.on_challenge(message, &mut turn),
            Event::ClearRefusal(message) => self.on_clear_refusal(message, &mut turn),
            Event::Ticket(message) => self.on_ticket(message, &mut turn),
            Event::AskAgain => self.on_ask_again(&turn),
            Event::CredentialActivated(request, secret) => self.on_activated(request, secret, &mut turn),
            Event::Quoted(request, quote) => self.on_quoted(request, quote, &mut turn),
            Event::TpmFailed(request, reason) => self.on_tpm_failed(request, reason, &mut turn),
            Event::Locked { request, quote, result } => self.on_locked(request, quote, result.as_deref(), &mut turn),
            Event::Stage(stage, detail) => self.on_stage(stage, &detail, &mut turn),
            Event::Timer => self.on_timer(&mut turn),
        }
        turn.effects
    }

    fn begin(&mut self, turn: &mut Turn) {
        self.progress = None;
        self.sequence = 0;
        match HelloSent::new(Arc::clone(&self.settings), &turn.entropy) {
            Ok(hello) => {
                self.request = Some(hello.request());
                turn.publish(HostMessage::Hello(hello.message().to_vec()));
                self.state = State::Hello(hello);
                self.wait_at_most(turn, ATTEMPT_LIFETIME_MS);
                self.repeat_from(turn, REPEAT_MS_MIN);
            }
            Err(error) => {
                turn.ignored("hello", error);
                self.stop();
            }
        }
    }

    fn on_challenge(&mut self, message: &[u8], turn: &mut Turn) {
        let hello = match std::mem::replace(&mut self.state, State::Stopped) {
            State::Hello(hello) => hello,
            // A repeat, or the answer of another replica: one is enough.
            other => return self.state = other,
        };
        match hello.on_challenge(message, turn.clock) {
            Ok(challenged) => {
                if let Some(request) = self.request {
                    let credential = challenged.credential().to_vec();
                    turn.effects.push(Effect::ActivateCredential { request, credential });
                }
                self.state = State::Activating(challenged);
                self.wait_at_most(turn, TPM_LIFETIME_MS);
                self.repeat_at = None;
            }
            Err(not_believed) => match not_believed.error {
                // It is from the issuer, and says the same however often it comes.
                ChallengeError::Selection(error) => {
                    self.rest(Refusal::new(RefusalCode::QuoteSelection, error.to_string()), turn);
                }
                error => {
                    match error {
                        ChallengeError::Clock => turn.effects.push(Effect::Hindered { reason: error.to_string() }),
                        error => turn.ignored("challenge", error),
                    }
                    self.state = State::Hello(not_believed.state);
                }
            },
        }
    }

    fn on_clear_refusal(&mut self, message: &[u8], turn: &mut Turn) {
        let believed = match &self.state {
            State::Hello(hello) => hello.on_clear_refusal(message, turn.clock),
            State::Evidence(evidence) => evidence.on_clear_refusal(message, turn.clock),
            _ => return,
        };
        match believed {
            Ok(refusal) => self.rest(refusal, turn),
            Err(error) => turn.ignored("clear refusal", error),
        }
    }

    fn on_activated(&mut self, request: RequestId, secret: Secret, turn: &mut Turn) {
        if self.request != Some(request) {
            return;
        }
        match std::mem::replace(&mut self.state, State::Stopped) {
            State::Activating(challenged) => {
                let quoting = challenged.on_credential_activated(secret, &turn.entropy);
                let (qualifying_data, selection) = (quoting.qualifying_data(), quoting.selection().clone());
                let variant = quoting.variant();
                turn.effects.push(Effect::Quote { request, variant, qualifying_data, selection });
                self.state = State::Quoting(quoting);
                self.wait_at_most(turn, TPM_LIFETIME_MS);
            }
            other => self.state = other,
        }
    }

    fn on_quoted(&mut self, request: RequestId, quote: Vec<u8>, turn: &mut Turn) {
        if self.request != Some(request) {
            return;
        }
        match std::mem::replace(&mut self.state, State::Stopped) {
            State::Quoting(quoting) => match quoting.on_quoted(quote, &turn.entropy) {
                Ok(evidence) => {
                    turn.publish(HostMessage::Evidence(evidence.message().to_vec()));
                    self.state = State::Evidence(evidence);
                    self.wait_at_most(turn, CHALLENGE_LIFETIME_MS + EVIDENCE_GRACE_MS);
                    self.repeat_from(turn, REPEAT_MS_MIN);
                }
                Err(error) => {
                    let refusal = Refusal::new(RefusalCode::QuoteMalformed, error.to_string());
                    self.rest(refusal, turn);
                }
            },
            other => self.state = other,
        }
    }

    fn on_tpm_failed(&mut self, request: RequestId, reason: String, turn: &mut Turn) {
        let waits = matches!(self.state, State::Activating(_) | State::Quoting(_));
        if waits && self.request == Some(request) {
            // Another host may have sent these keys in its own hello, or the TPM is busy: another attempt shows which.
            turn.ignored("tpm", reason);
            self.rest_for(RETRY_MS, turn);
        }
    }

    fn on_ticket(&mut self, message: &[u8], turn: &mut Turn) {
        let evidence = match std::mem::replace(&mut self.state, State::Stopped) {
            State::Evidence(evidence) => evidence,
            other => return self.state = other,
        };
        match evidence.on_ticket(message, turn.clock) {
            Ok(TicketOutcome::Refused(refusal)) => self.rest(refusal, turn),
            Ok(TicketOutcome::Opened(opened)) => {
                if let Some(request) = self.request {
                    let (cluster_id, qualifying_data) = (opened.cluster_id(), opened.qualifying_data());
                    let selection = opened.selection().clone();
                    turn.effects.push(Effect::Lock { request, cluster_id, qualifying_data, selection });
                }
                self.state = State::Opened(opened);
                self.refusal = None;
                (self.repeat_at, self.ends_at) = (None, None);
                self.on_stage(Stage::Opened, "", turn);
            }
            Ok(TicketOutcome::Renewed(renewed)) => {
                turn.effects.extend(self.request.map(|request| Effect::Renew { request }));
                self.state = State::Renewed(renewed);
                self.refusal = None;
                (self.repeat_at, self.ends_at) = (None, None);
                self.on_stage(Stage::Opened, "", turn);
            }
            Err(not_believed) => {
                turn.ignored("ticket", not_believed.error);
                self.state = State::Evidence(not_believed.state);
            }
        }
    }

    fn on_locked(&mut self, request: RequestId, quote: Vec<u8>, result: Option<&[u8]>, turn: &mut Turn) {
        if self.request != Some(request) {
            return;
        }
        match std::mem::replace(&mut self.state, State::Stopped) {
            State::Opened(opened) => match opened.on_locked(quote, result, &turn.entropy) {
                Ok(committed) => {
                    turn.publish(HostMessage::Acknowledgement(committed.acknowledgement().to_vec()));
                    self.state = State::Committed(Box::new(committed));
                    self.wait_at_most(turn, ACKNOWLEDGEMENT_LIFETIME_MS);
                    self.repeat_from(turn, REPEAT_MS_MIN);
                    self.on_stage(Stage::Locked, "", turn);
                }
                // Locked but unable to report it: only a reboot helps, and the caller gets the error.
                Err(error) => {
                    turn.ignored("second quote", error);
                    self.stop();
                }
            },
            other => self.state = other,
        }
    }

    fn on_stage(&mut self, stage: Stage, detail: &str, turn: &mut Turn) {
        let sequence = self.sequence + 1;
        let message = match &self.state {
            State::Opened(opened) => opened.progress(sequence, stage, detail),
            State::Committed(committed) => committed.progress(sequence, stage, detail),
            State::Renewed(renewed) => renewed.progress(sequence, stage, detail),
            _ => return,
        };
        self.sequence = sequence;
        self.progress = Some(message.clone());
        turn.publish(HostMessage::Progress(message));
    }

    fn on_timer(&mut self, turn: &mut Turn) {
        if self.ends_at.is_some_and(|at| at <= turn.mono) {
            return match &self.state {
                State::Committed(_) => (self.repeat_at, self.ends_at) = (None, None),
                State::Opened(_) | State::Renewed(_) | State::Stopped => self.ends_at = None,
                State::Hello(_) | State::Activating(_) | State::Quoting(_) | State::Evidence(_) | State::Resting => {
                    self.begin(turn);
                }
            };
        }
        if self.repeat_at.is_none_or(|at| at > turn.mono) {
            return;
        }
        let (message, repeat_ms_max) = match &self.state {
            State::Hello(hello) => (HostMessage::Hello(hello.message().to_vec()), HELLO_REPEAT_MS_MAX),
            State::Evidence(evidence) => (HostMessage::Evidence(evidence.message().to_vec()), EVIDENCE_REPEAT_MS_MAX),
            State::Committed(committed) => {
                let acknowledgement = committed.acknowledgement().to_vec();
                (HostMessage::Acknowledgement(acknowledgement), ACKNOWLEDGEMENT_REPEAT_MS_MAX)
            }
            _ => return self.repeat_at = None,
        };
        turn.publish(message);
        self.repeat_from(turn, (self.repeat_ms * 2).min(repeat_ms_max));
    }

    fn rest(&mut self, refusal: Refusal, turn: &mut Turn) {
        turn.effects.push(Effect::Refused(refusal.clone()));
        let rest_ms = match refusal.code.class() {
            RefusalClass::Retry => RETRY_MS,
            RefusalClass::WaitForChange => WAIT_FOR_CHANGE_MS,
            RefusalClass::Fatal => {
                self.refusal = Some(refusal);
                return self.stop();
            }
        };
        let rest_ms = rest_ms.max(refusal.retry_after_ms).min(REST_MS_MAX);
        self.refusal = Some(refusal);
        self.rest_for(rest_ms, turn);
    }

    fn rest_for(&mut self, rest_ms: u64, turn: &Turn) {
        self.state = State::Resting;
        self.request = None;
        self.repeat_at = None;
        self.ends_at = Some(turn.mono + turn.jittered(rest_ms));
    }

    /// Shortens a rest. The sender proves nothing, so what it can cause is bounded.
    fn on_ask_again(&mut self, turn: &Turn) {
        let Some(rests_until) = self.ends_at.filter(|_| matches!(self.state, State::Resting)) else { return };
        let soon = turn.mono + turn.jittered(ASKED_REST_MS);
        let next = self.asked_at.map(|at| at + Duration::from_millis(ASKED_INTERVAL_MS));
        let begins_at = next.map_or(soon, |next| next.max(soon));
        if begins_at < rests_until {
            self.asked_at = Some(begins_at);
            self.ends_at = Some(begins_at);
        }
    }

    fn stop(&mut self) {
        self.state = State::Stopped;
        (self.request, self.repeat_at, self.ends_at) = (None, None, None);
    }

    fn wait_at_most(&mut self, turn: &Turn, lifetime_ms: u64) {
        self.ends_at = Some(turn.mono + Duration::from_millis(lifetime_ms));
    }

    fn repeat_from(&mut self, turn: &Turn, repeat_ms: u64) {
        self.repeat_ms = repeat_ms;
        self.repeat_at = Some(turn.mono + turn.jittered(repeat_ms));
    }
}

/// What one event came with, and what follows from it.
struct Turn {
    mono: Duration,
    clock: HostClock,
    entropy: Entropy,
    effects: Vec<Effect>,
}

impl Turn {
    fn publish(&mut self, message: HostMessage) {
        self.effects.push(Effect::Publish(message));
    }

    fn ignored(&mut self, message: &'static str, reason: impl ToString) {
        self.effects.push(Effect::Ignored { message, reason: reason.to_string() });
    }

    /// 80 to 120 per cent, so that a factory that powers up at once does not speak at once.
    fn jittered(&self, ms: u64) -> Duration {
        let share = u64::from(u16::from_be_bytes(self.entropy.bytes("jitter")));
        Duration::from_millis(ms * 4 / 5 + ms * 2 / 5 * share / u64::from(u16::MAX))
    }
}
