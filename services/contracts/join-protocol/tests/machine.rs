//! The host's machine in virtual time: what it repeats, when it gives up, what it does about refusals, and what it ignores.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use crate::support;

use std::time::Duration;

use join_protocol::host::{Condition, Effect, Event, HostSettings, Machine};
use join_protocol::issuer::{EvidenceAnswer, HelloAnswer};
use join_protocol::message::acknowledgement::Stage;
use join_protocol::metrics::HostMessage;
use join_protocol::refusal::{Refusal, RefusalCode};
use join_protocol::simulated::SimulatedVerifier;
use support::*;

struct Drive {
    machine: Machine,
    host: Host,
    now: Duration,
    drawn: u64,
}

impl Drive {
    fn start() -> Self {
        let host = host(1);
        let machine = Machine::new(host.settings.clone());
        let mut drive = Self { machine, host, now: ms(0), drawn: 100 };
        let effects = drive.feed(Event::Start);
        assert!(matches!(effects[..], [Effect::Publish(HostMessage::Hello(_))]));
        drive
    }

    fn feed(&mut self, event: Event<'_>) -> Vec<Effect> {
        self.drawn += 1;
        self.machine.on_event(event, self.now, CLOCK, entropy(self.drawn))
    }

    /// Waits for the next deadline and returns how long that was and what followed.
    fn wait(&mut self) -> (u64, Vec<Effect>) {
        let due = self.machine.next_deadline().unwrap();
        let waited = u64::try_from((due - self.now).as_millis()).unwrap();
        self.now = due;
        (waited, self.feed(Event::Timer))
    }

    fn hello(&self) -> Vec<u8> {
        let messages = self.machine.current_messages();
        messages
            .into_iter()
            .find_map(|message| match message {
                HostMessage::Hello(bytes) => Some(bytes),
                _ => None,
            })
            .unwrap()
    }

    fn evidence(&mut self) -> Vec<u8> {
        let challenge = challenge(&replica(1), &self.host, &self.hello());
        let effects = self.feed(Event::Challenge(&challenge));
        let [Effect::ActivateCredential { request, credential }] = &effects[..] else { panic!("{effects:?}") };
        let secret = self.host.tpm.activate_credential(credential).unwrap();
        let effects = self.feed(Event::CredentialActivated(*request, secret));
        let [Effect::Quote { request, qualifying_data, .. }] = &effects[..] else { panic!("{effects:?}") };
        let quote = self.host.tpm.quote(qualifying_data);
        let effects = self.feed(Event::Quoted(*request, quote));
        let [Effect::Publish(HostMessage::Evidence(evidence))] = &effects[..] else { panic!("{effects:?}") };
        evidence.clone()
    }

    /// What the issuer answers to the evidence: the ticket, or this refusal.
    fn answer(&self, evidence: &[u8], refusal: Option<Refusal>) -> Vec<u8> {
        let answer = judge(&replica(1), &self.host, evidence, &SimulatedVerifier::default());
        let EvidenceAnswer::Verified(verified) = answer else { panic!("{answer:?}") };
        let grant = grant_for(self.host.settings.kind, "edge-1");
        let answer = match refusal {
            None => replica(1).grant(&verified, grant, entropy(5)),
            Some(refusal) => replica(1).refuse(verified.recipient(), refusal),
        };
        answer.unwrap().message
    }
}

#[test]
fn a_hello_is_repeated_ever_more_slowly_and_the_attempt_ends_after_five_minutes() {
    let mut drive = Drive::start();
    let (first, request) = (drive.hello(), drive.machine.request());
    let mut wanted = 2_000;
    while drive.now < ms(240_000) {
        let (waited, effects) = drive.wait();
        assert!((wanted * 8 / 10..=wanted * 12 / 10).contains(&waited), "{waited} is not about {wanted} ms");
        assert_eq!(effects, [Effect::Publish(HostMessage::Hello(first.clone()))], "the same bytes");
        wanted = (wanted * 2).min(30_000);
    }
    while drive.machine.request() == request {
        drive.wait();
    }
    assert_eq!(drive.now, ms(300_000));
    assert_ne!(drive.hello(), first, "a new attempt has a new hello");
}

#[test]
fn evidence_is_repeated_as_the_same_bytes_and_given_up_after_two_minutes() {
    let mut drive = Drive::start();
    let evidence = drive.evidence();
    let (sent_at, request) = (drive.now, drive.machine.request());
    assert_eq!(drive.machine.current_messages(), [HostMessage::Evidence(evidence.clone())], "a birth has it");
    let mut repeats = 0;
    loop {
        let (waited, effects) = drive.wait();
        if drive.machine.request() != request {
            assert!(matches!(effects[..], [Effect::Publish(HostMessage::Hello(_))]));
            break;
        }
        assert!(waited <= 24_000, "{waited}");
        assert_eq!(effects, [Effect::Publish(HostMessage::Evidence(evidence.clone()))]);
        repeats += 1;
    }
    assert_eq!(drive.now - sent_at, ms(120_000));
    assert!(repeats >= 6, "{repeats}");
}

#[test]
fn after_a_refusal_a_host_rests_as_its_class_and_the_issuer_say() {
    let cases = [
        (Refusal::new(RefusalCode::ControlPlaneBusy, ""), 5_000),
        (Refusal::new(RefusalCode::ControlPlaneBusy, "").retry_after_ms(30_000), 30_000),
        (Refusal::new(RefusalCode::ApprovalPending, ""), 60_000),
        (Refusal::new(RefusalCode::ApprovalPending, "").retry_after_ms(u64::MAX), 3_600_000),
    ];
    for (refusal, rest_ms) in cases {
        let mut drive = Drive::start();
        let evidence = drive.evidence();
        let answer = drive.answer(&evidence, Some(refusal.clone()));
        assert_eq!(drive.feed(Event::Ticket(&answer)), [Effect::Refused(refusal.clone())]);
        assert_eq!((drive.machine.condition(), drive.machine.refusal()), (Condition::Resting, Some(&refusal)));
        let (waited, effects) = drive.wait();
        assert!((rest_ms * 8 / 10..=rest_ms * 12 / 10).contains(&waited), "{refusal}: {waited}");
        assert!(matches!(effects[..], [Effect::Publish(HostMessage::Hello(_))]), "then it begins again");
    }
}

#[test]
fn a_resting_host_that_is_asked_to_begins_again_soon_and_cannot_be_made_to_do_so_often() {
    let mut drive = Drive::start();
    drive.feed(Event::AskAgain);
    assert_eq!(drive.machine.condition(), Condition::AwaitsChallenge, "an attempt is not disturbed");
    let refused = |drive: &mut Drive| {
        let evidence = drive.evidence();
        let answer =
            drive.answer(&evidence, Some(Refusal::new(RefusalCode::ApprovalPending, "").retry_after_ms(u64::MAX)));
        drive.feed(Event::Ticket(&answer));
        assert_eq!(drive.machine.condition(), Condition::Resting);
    };
    refused(&mut drive);
    let mut begun = Vec::new();
    for _ in 0..4 {
        // Far more often than it begins.
        for _ in 0..100 {
            assert!(drive.feed(Event::AskAgain).is_empty(), "it says nothing at once");
        }
        drive.wait();
        assert_eq!(drive.machine.condition(), Condition::AwaitsChallenge);
        begun.push(drive.now);
        refused(&mut drive);
    }
    assert!((ms(800)..=ms(1_200)).contains(&begun[0]), "{begun:?}");
    assert!(begun.windows(2).all(|pair| pair[1] - pair[0] == ms(10_000)), "{begun:?}");
}

#[test]
fn a_host_that_is_locked_already_stops_for_good() {
    let mut drive = Drive::start();
    let evidence = drive.evidence();
    let answer = drive.answer(&evidence, Some(Refusal::new(RefusalCode::Lock, "")));
    drive.feed(Event::Ticket(&answer));
    assert_eq!((drive.machine.condition(), drive.machine.next_deadline()), (Condition::Stopped, None));
    drive.feed(Event::AskAgain);
    assert_eq!((drive.machine.condition(), drive.machine.next_deadline()), (Condition::Stopped, None));
}

#[test]
fn a_refusal_in_clear_ends_an_attempt_only_if_it_is_about_it() {
    let mut drive = Drive::start();
    let other = replica(1).refuse_busy(host(2).hello(1).message(), 0).unwrap();
    let effects = drive.feed(Event::ClearRefusal(&other.message));
    assert!(matches!(&effects[..], [Effect::Ignored { message: "clear refusal", .. }]), "{effects:?}");
    assert_eq!(drive.machine.condition(), Condition::AwaitsChallenge);
    let mine = replica(1).refuse_busy(&drive.hello(), 0).unwrap();
    assert_eq!(drive.feed(Event::ClearRefusal(&mine.message)), [Effect::Refused(mine.refusal)]);
    assert_eq!(drive.machine.condition(), Condition::Resting);
}

#[test]
fn results_of_the_tpm_for_an_older_attempt_are_ignored() {
    let mut drive = Drive::start();
    let old = drive.machine.request().unwrap();
    let challenge = challenge(&replica(1), &drive.host, &drive.hello());
    drive.feed(Event::Challenge(&challenge));
    assert_eq!(drive.machine.condition(), Condition::AwaitsTpm);
    // The TPM takes too long.
    let (waited, _) = drive.wait();
    assert_eq!(waited, 60_000);
    assert_ne!(drive.machine.request(), Some(old));
    assert!(drive.feed(Event::CredentialActivated(old, secret(1))).is_empty());
    assert!(drive.feed(Event::Quoted(old, vec![1])).is_empty());
    assert!(drive.feed(Event::TpmFailed(old, "late".to_owned())).is_empty());
    assert_eq!(drive.machine.condition(), Condition::AwaitsChallenge);
}

#[test]
fn a_tpm_that_refuses_leads_to_another_attempt() {
    let mut drive = Drive::start();
    let request = drive.machine.request().unwrap();
    let challenge = challenge(&replica(1), &drive.host, &drive.hello());
    drive.feed(Event::Challenge(&challenge));
    drive.feed(Event::TpmFailed(request, "busy".to_owned()));
    assert_eq!(drive.machine.condition(), Condition::Resting);
    drive.wait();
    assert_eq!(drive.machine.condition(), Condition::AwaitsChallenge);
}

#[test]
fn after_the_ticket_the_host_locks_once_acknowledges_and_counts_its_progress() {
    let mut drive = Drive::start();
    let evidence = drive.evidence();
    let ticket = drive.answer(&evidence, None);
    let effects = drive.feed(Event::Ticket(&ticket));
    let [Effect::Lock { request, cluster_id, qualifying_data, .. }, Effect::Publish(HostMessage::Progress(_))] =
        effects[..]
    else {
        panic!("{effects:?}")
    };
    assert!(drive.feed(Event::Ticket(&ticket)).is_empty(), "a repeated ticket does not lock again");
    assert_eq!((drive.machine.condition(), drive.machine.next_deadline()), (Condition::Opened, None));
    drive.host.tpm.lock(&cluster_id);
    let quote = drive.host.tpm.quote(&qualifying_data);
    let effects = drive.feed(Event::Locked { request, quote, result: None });
    let [Effect::Publish(HostMessage::Acknowledgement(acknowledgement)), Effect::Publish(HostMessage::Progress(_))] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(drive.machine.grant(), Some(&grant_for(drive.host.settings.kind, "edge-1")));
    let committed_at = drive.now;
    while drive.machine.next_deadline().is_some() {
        let (_, effects) = drive.wait();
        let repeat = [Effect::Publish(HostMessage::Acknowledgement(acknowledgement.clone()))];
        assert!(effects.is_empty() || effects == repeat);
    }
    assert_eq!(drive.now - committed_at, ms(120_000));
    let effects = drive.feed(Event::Stage(Stage::Member, String::new()));
    assert!(matches!(effects[..], [Effect::Publish(HostMessage::Progress(_))]));
    let messages = drive.machine.current_messages();
    assert!(matches!(messages[..], [HostMessage::Acknowledgement(_), HostMessage::Progress(_)]), "a birth has both");
}

#[test]
fn a_host_with_settings_that_cannot_be_sent_says_so_and_stops() {
    let mut host = host(1);
    host.settings.body.node_name = "Not A Name".to_owned();
    let mut machine = Machine::new(host.settings);
    let effects = machine.on_event(Event::Start, ms(0), CLOCK, entropy(1));
    assert!(matches!(&effects[..], [Effect::Ignored { message: "hello", reason }] if reason.contains("node_name")));
    assert_eq!(machine.condition(), Condition::Stopped);
}

#[test]
fn a_host_that_is_asked_for_a_quote_that_shows_nothing_says_so_and_rests() {
    let mut drive = Drive::start();
    drive.machine = Machine::new(HostSettings { lock_pcr: 12, ..drive.host.settings.clone() });
    let _ = drive.feed(Event::Start);
    let verifier = SimulatedVerifier { reference_values: [(4, [0; 32])].into(), ..SimulatedVerifier::default() };
    let answer = replica(1).on_hello(&drive.host.settings.address, &drive.hello(), NOW_MS, entropy(9), &verifier);
    let HelloAnswer::Challenge { message, .. } = answer else { panic!("{answer:?}") };
    let effects = drive.feed(Event::Challenge(&message));
    let [Effect::Refused(refusal), ..] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(refusal.code, RefusalCode::QuoteSelection);
    assert!(refusal.detail.starts_with("it asks for a quote without PCR 12"), "{refusal}");
    assert_eq!(drive.machine.condition(), Condition::Resting);
}
