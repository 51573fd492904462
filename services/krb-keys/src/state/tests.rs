//! The state: which resource is worked on when, and what is said of it.

use super::*;
use crate::reconcile::{KeySpec, Material, Meta, SecretSeen, Validity};
use crate::spec::KeyType;
use kerberos_client::{KdcError, Presence, Principal};

pub(super) fn at(seconds: u64) -> Now {
    Now { mono: Duration::from_secs(seconds), wall: 1_800_000_000_000 + seconds * 1000 }
}

fn settings() -> Settings {
    Settings {
        instance: Uuid::from_u128(1),
        cluster: Uuid::from_u128(2),
        version: "0".to_owned(),
        principal: "op1krbkeys/Test@A".to_owned(),
        retry: (Duration::from_secs(1), Duration::from_secs(8)),
        verify: Duration::from_secs(3600),
        expire_old: Duration::from_secs(100),
    }
}

fn principal(name: &str) -> Principal {
    format!("{name}/Test@A").parse().unwrap()
}

pub(super) fn id(name: &str) -> ResourceId {
    ResourceId { kind: Kind::KerberosKey, name: name.to_owned() }
}

pub(super) fn resource(name: &str) -> Resource {
    let secret = Some(format!("{name}/keytab").parse().unwrap());
    let spec = Spec {
        key_type: KeyType::Random,
        principals: vec![principal(name)],
        secret,
        seal_with: None,
        keep_old_keys: false,
        account: None,
        remark: None,
    };
    let meta = Meta { finalizer: true, record: Record::of(&spec), ..Meta::default() };
    let key_spec = KeySpec { meta, deleting: false, suspended: false, spec: Ok(spec) };
    Resource { uid: format!("uid of {name}"), generation: 1, key_spec, status: None }
}

/// Everything is as `resource` wants it.
pub(super) fn in_step(name: &str, validity: Validity) -> Observed {
    Observed {
        principals: [(principal(name), Presence::Enabled)].into(),
        secret: Some(SecretSeen {
            is_writable: true,
            material: Some(Material { validity, entries: Vec::new() }),
            obstacle: None,
        }),
        ..Observed::default()
    }
}

fn outage() -> KeyError {
    KdcError::Unreachable("no answer".to_owned()).into()
}

pub(super) struct Run(pub(super) State);

impl Run {
    pub(super) fn new(names: &[&str]) -> Self {
        let mut run = Self(State::new(settings()));
        let resources = names.iter().map(|name| ((*name).to_owned(), resource(name))).collect();
        assert_eq!(
            run.on(Event::Listed(Kind::KerberosKey, resources), 0),
            [] as [Effect; 0],
            "the other kind is not listed"
        );
        run
    }

    /// The effects of one event, but for the metrics.
    pub(super) fn on(&mut self, event: Event, seconds: u64) -> Vec<Effect> {
        self.0.on_event(event, at(seconds));
        let effects = self.0.poll_effects().into_iter();
        effects.filter(|effect| !matches!(effect, Effect::Node(_))).collect()
    }

    pub(super) fn begin(&mut self) -> Vec<Effect> {
        self.on(Event::Listed(Kind::LocalSecret, BTreeMap::new()), 0)
    }
}

pub(super) fn looked_at(effects: &[Effect]) -> Option<&str> {
    effects.iter().find_map(|effect| match effect {
        Effect::Observe(id, _) => Some(id.name.as_str()),
        _ => None,
    })
}

pub(super) fn status_reason(effects: &[Effect]) -> Option<&str> {
    effects.iter().find_map(|effect| match effect {
        Effect::WriteStatus { status, .. } => Some(status.reason.as_str()),
        _ => None,
    })
}

#[test]
fn one_resource_after_another_is_looked_at_and_then_only_now_and_then() {
    let mut run = Run::new(&["a", "b"]);
    assert_eq!(looked_at(&run.begin()), Some("a"));
    let effects = run.on(Event::Seen(id("a"), Ok(in_step("a", Validity::Valid))), 1);
    assert_eq!((looked_at(&effects), status_reason(&effects)), (Some("b"), Some("InStep")));
    run.on(Event::Seen(id("b"), Ok(in_step("b", Validity::Valid))), 2);
    assert_eq!((run.0.node().total, run.0.node().ready, run.0.node().failed), (2, 2, 0));
    assert_eq!(run.0.next_deadline(), Some(Duration::from_secs(3601)));
    assert_eq!(looked_at(&run.on(Event::DeadlineReached, 3600)), None);
    assert_eq!(looked_at(&run.on(Event::DeadlineReached, 3601)), Some("a"));
}

#[test]
fn an_outage_makes_no_key_and_is_tried_again_with_growing_pauses() {
    let mut run = Run::new(&["a"]);
    run.begin();
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..5 {
        let effects = run.on(Event::Seen(id("a"), Err(outage())), now);
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::Act { .. })), "{effects:?}");
        let due = run.0.next_deadline().unwrap().as_secs();
        pauses.push(due - now);
        now = due;
        assert_eq!(looked_at(&run.on(Event::DeadlineReached, now)), Some("a"));
    }
    assert_eq!(pauses, [1, 2, 4, 8, 8]);
    assert_eq!(run.0.node().problems["KerberosKey a"], "the KDC is not reachable: no answer");
    let effects = run.on(Event::Seen(id("a"), Ok(in_step("a", Validity::Valid))), now);
    assert_eq!((status_reason(&effects), run.0.node().failed), (Some("InStep"), 0));
}

#[test]
fn a_status_that_was_not_written_is_written_again_and_one_that_is_there_is_not() {
    let mut run = Run::new(&["a"]);
    run.begin();
    let seen = || Event::Seen(id("a"), Ok(in_step("a", Validity::Valid)));
    let effects = run.on(seen(), 1);
    let Some(Effect::WriteStatus { status, .. }) = effects.first() else { panic!("{effects:?}") };
    run.on(Event::StatusLost(id("a")), 2);
    assert_eq!(run.0.next_deadline(), Some(Duration::from_secs(10)), "not in an hour");
    assert_eq!(looked_at(&run.on(Event::DeadlineReached, 10)), Some("a"));
    assert_eq!(status_reason(&run.on(seen(), 11)), Some("InStep"));
    let written = Resource { status: Some(status.clone()), ..resource("a") };
    assert_eq!(run.on(Event::Applied(id("a"), written), 12), []);
    assert_eq!(looked_at(&run.on(Event::DeadlineReached, 3611)), Some("a"));
    assert_eq!(status_reason(&run.on(seen(), 3612)), None);
}

#[test]
fn a_wrong_key_is_replaced_and_looked_at_again() {
    let mut run = Run::new(&["a"]);
    run.begin();
    let effects = run.on(Event::Seen(id("a"), Ok(in_step("a", Validity::Invalid))), 1);
    assert!(matches!(&effects[..], [Effect::Act { action: Action::MakeKeys { .. }, uid, .. }] if uid == "uid of a"));
    assert_eq!(looked_at(&run.on(Event::Acted(id("a"), Ok(None)), 2)), Some("a"));
    let conflict = KeyError::Conflict("Secret a".to_owned());
    run.on(Event::Seen(id("a"), Ok(in_step("a", Validity::Invalid))), 3);
    assert_eq!(looked_at(&run.on(Event::Acted(id("a"), Err(conflict)), 4)), Some("a"), "at once");
}

#[test]
fn a_resource_that_changes_during_its_pass_is_looked_at_again_and_an_unchanged_one_is_not() {
    let mut run = Run::new(&["a"]);
    run.begin();
    let mut changed = resource("a");
    changed.key_spec.suspended = true;
    run.on(Event::Applied(id("a"), changed.clone()), 1);
    let effects = run.on(Event::Seen(id("a"), Ok(Observed::default())), 2);
    assert_eq!((status_reason(&effects), looked_at(&effects)), (Some("Suspended"), Some("a")));
    run.on(Event::Seen(id("a"), Ok(Observed::default())), 3);
    assert_eq!(run.on(Event::Applied(id("a"), changed), 4), []);
}

#[test]
fn the_answer_for_a_resource_that_is_gone_is_dropped() {
    let mut run = Run::new(&["a", "b"]);
    run.begin();
    run.on(Event::Deleted(id("a")), 1);
    let effects = run.on(Event::Seen(id("a"), Ok(in_step("a", Validity::Invalid))), 2);
    assert_eq!(looked_at(&effects), Some("b"));
    assert_eq!(run.0.node().total, 1);
    let again = Resource { uid: "another".to_owned(), ..resource("b") };
    run.on(Event::Applied(id("b"), again), 3);
    let effects = run.on(Event::Seen(id("b"), Ok(in_step("b", Validity::Invalid))), 4);
    assert_eq!(looked_at(&effects), Some("b"), "started again, nothing done for the one before");
    assert_eq!(effects.len(), 1);
}

#[test]
fn of_two_resources_with_one_principal_the_second_waits_for_the_end_of_the_first() {
    let mut run = Run::new(&[]);
    run.begin();
    let second = |recorded: bool| {
        let mut second = resource("a");
        second.uid = "second".to_owned();
        second.key_spec.meta.finalizer = recorded;
        if !recorded {
            second.key_spec.meta.record = Record::default();
        }
        second
    };
    run.on(Event::Applied(id("z"), resource("a")), 0);
    run.on(Event::Seen(id("z"), Ok(in_step("a", Validity::Valid))), 0);
    run.on(Event::Applied(id("b"), second(false)), 1);
    let effects = run.on(Event::Seen(id("b"), Ok(in_step("a", Validity::Valid))), 1);
    assert_eq!(status_reason(&effects), Some("Refused"), "it comes first by name, but the other has it");
    let mut ending = resource("a");
    ending.key_spec.deleting = true;
    let mut effects = run.on(Event::Applied(id("z"), ending), 2);
    for _ in 0..10 {
        effects = match &effects[..] {
            [.., Effect::Observe(looked, _)] if looked.name == "b" => {
                run.on(Event::Seen(id("b"), Ok(in_step("a", Validity::Valid))), 3)
            }
            [.., Effect::Observe(..)] => {
                run.on(Event::Deleted(id("z")), 3);
                run.on(Event::Seen(id("z"), Ok(Observed::default())), 3)
            }
            [Effect::Act { id, action: Action::Mark { meta, .. }, .. }] => {
                assert_eq!((id.name.as_str(), &meta.record), ("b", &resource("a").key_spec.meta.record));
                return;
            }
            other => panic!("{other:?}"),
        };
    }
    panic!("it still waits");
}

#[test]
fn what_a_mark_has_changed_is_known_when_kubernetes_says_so() {
    let mut run = Run::new(&[]);
    run.begin();
    let mut fresh = resource("a");
    fresh.key_spec.meta = Meta::default();
    run.on(Event::Applied(id("a"), fresh), 0);
    let effects = run.on(Event::Seen(id("a"), Ok(Observed::default())), 0);
    assert!(matches!(&effects[..], [Effect::Act { action: Action::Mark { fulfilled: false, .. }, .. }]));
    assert_eq!(run.on(Event::Acted(id("a"), Ok(None)), 0), [], "no step on what was only asked for");
    assert_eq!(looked_at(&run.on(Event::Applied(id("a"), resource("a")), 0)), Some("a"));
}

#[test]
fn what_goes_wrong_with_one_resource_does_not_hold_up_the_others() {
    let mut run = Run::new(&["a", "b"]);
    run.begin();
    let effects = run.on(Event::Seen(id("a"), Err(KeyError::Kubernetes("Forbidden (403)".to_owned()))), 1);
    assert_eq!((status_reason(&effects), looked_at(&effects)), (Some("Failed"), Some("b")));
}

#[test]
fn a_delivery_is_recorded_when_it_is_seen_to_be_still_so() {
    let mut run = Run::new(&[]);
    run.begin();
    let mut trust = resource("a");
    let Ok(spec) = &mut trust.key_spec.spec else { panic!("a spec") };
    spec.key_type = KeyType::PresetTrust;
    trust.key_spec.meta.record = Record::of(spec);
    run.on(Event::Applied(id("a"), trust), 0);
    let delivery = |of: &str| Delivery { of: of.to_owned(), ..Delivery::default() };
    let seen = |of: &str| {
        let observed = Observed { delivery: Some(delivery(of)), ..in_step("a", Validity::Recorded) };
        Event::Seen(id("a"), Ok(observed))
    };
    assert!(matches!(&run.on(seen("1"), 0)[..], [Effect::Act { action: Action::SetTrust(..), .. }]));
    run.on(Event::Acted(id("a"), Ok(Some(delivery("1")))), 0);
    // The Secret was written meanwhile.
    assert!(matches!(&run.on(seen("2"), 0)[..], [Effect::Act { action: Action::SetTrust(..), .. }]));
    run.on(Event::Acted(id("a"), Ok(Some(delivery("2")))), 0);
    let effects = run.on(seen("2"), 0);
    assert!(
        matches!(&effects[..], [Effect::Act { action: Action::Mark { meta, .. }, .. }] if meta.record.delivery == Some(delivery("2"))),
        "{effects:?}"
    );
}

#[test]
fn a_request_for_another_key_is_fulfilled_once_even_if_its_annotation_stays() {
    let mut run = Run::new(&[]);
    run.begin();
    let mut forced = resource("a");
    forced.key_spec.meta.force_rekey = true;
    run.on(Event::Applied(id("a"), forced), 0);
    let seen = || Event::Seen(id("a"), Ok(in_step("a", Validity::Valid)));
    assert!(matches!(&run.on(seen(), 0)[..], [Effect::Act { action: Action::MakeKeys { .. }, .. }]));
    run.on(Event::Acted(id("a"), Ok(None)), 0);
    assert!(
        matches!(&run.on(seen(), 0)[..], [Effect::Act { action: Action::Mark { meta, .. }, .. }] if !meta.force_rekey)
    );
    run.on(Event::Acted(id("a"), Err(KeyError::Kubernetes("down".to_owned()))), 0);
    run.on(Event::DeadlineReached, 10);
    assert!(matches!(&run.on(seen(), 10)[..], [Effect::Act { action: Action::Mark { .. }, .. }]), "no second key");
}
