//! The decisions, against a small world: a KDC, Secrets and one resource, in which every step is done as it is asked for.

use super::*;
use proptest::prelude::*;

const NOW_S: u64 = 1_800_000_000;
const EXPIRE_S: u64 = 100;

fn principal(name: &str) -> Principal {
    format!("{name}/Test@A").parse().unwrap()
}

fn place(text: &str) -> SecretKey {
    text.parse().unwrap()
}

fn spec(key_type: KeyType, names: &[&str], secret: Option<&str>) -> Spec {
    let principals = names.iter().map(|name| principal(name)).collect();
    Spec {
        key_type,
        principals,
        secret: secret.map(place),
        seal_with: None,
        keep_old_keys: false,
        account: None,
        remark: None,
    }
}

fn sealed(key_type: KeyType, names: &[&str], secret: &str) -> Spec {
    let seal_with = ConfigMapKey { config_map: "sealing".to_owned(), key: "cert.pem".to_owned() };
    Spec { seal_with: Some(seal_with), ..spec(key_type, names, Some(secret)) }
}

/// What a place in a Secret holds: keys of principals by version, or a value by number.
#[derive(Debug, Clone, PartialEq, Eq)]
enum StoredKey {
    Keys(Vec<KeyEntry>),
    Value(u32),
}

/// A principal in the KDC.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    enabled: bool,
    version: u32,
    password: Option<u32>,
    changed_s: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct World {
    key_spec: KeySpec,
    kdc: BTreeMap<Principal, Known>,
    secrets: BTreeMap<SecretKey, StoredKey>,
    /// Values by number, in SealedSecrets.
    sealed: BTreeMap<SecretKey, u32>,
    certificate: Option<u32>,
    foreign: BTreeSet<String>,
    forced_done: bool,
    delivery: Option<Delivery>,
    /// The KDC is not that of the principals' realm: it cannot be asked about passwords.
    is_away: bool,
    made: u32,
    changes: u64,
    now_s: u64,
}

impl World {
    fn new(spec: Spec) -> Self {
        let key_spec = KeySpec { meta: Meta::default(), deleting: false, suspended: false, spec: Ok(spec) };
        Self {
            key_spec,
            kdc: BTreeMap::new(),
            secrets: BTreeMap::new(),
            sealed: BTreeMap::new(),
            certificate: Some(1),
            foreign: BTreeSet::new(),
            forced_done: false,
            delivery: None,
            is_away: false,
            made: 0,
            changes: 0,
            now_s: NOW_S,
        }
    }

    fn look(&self) -> Observed {
        let spec = self.key_spec.spec.as_ref().ok().filter(|_| !self.key_spec.deleting);
        let wanted = spec.map(Record::of).unwrap_or_default();
        let presence = |principal: &Principal| match self.kdc.get(principal) {
            None => Presence::Absent,
            Some(known) if known.enabled => Presence::Enabled,
            Some(_) => Presence::Disabled,
        };
        let all = self.key_spec.meta.record.principals.union(&wanted.principals);
        let sealed = spec.and_then(SealedKey::of);
        let plain = spec.filter(|spec| spec.seal_with.is_none());
        let secret = plain.and_then(|spec| Some((spec, spec.secret.as_ref()?))).map(|(spec, place)| SecretSeen {
            is_writable: !self.foreign.contains(&place.secret),
            material: self.secrets.get(place).and_then(|held| self.material(spec, held)),
            obstacle: None,
        });
        let record = &self.key_spec.meta.record;
        let is_ours = |place: &&SecretKey| !self.foreign.contains(&place.secret);
        let stale = record.secrets.difference(&wanted.secrets).filter(|place| self.secrets.contains_key(place));
        let stale_sealed = record.sealed.difference(&wanted.sealed).filter(|place| self.sealed.contains_key(place));
        let is_trust = plain.filter(|spec| self.is_away && spec.key_type.is_trust());
        let place = is_trust.and_then(|spec| spec.secret.as_ref());
        let delivery = place.and_then(|place| self.delivery_of(&spec?.principals[0], self.secrets.get(place)?));
        Observed {
            delivery: delivery.or_else(|| self.sealed_delivery(sealed.as_ref()?)),
            principals: all.map(|principal| (principal.clone(), presence(principal))).collect(),
            secret: secret.or_else(|| Some(self.look_sealed(sealed.as_ref()?))),
            stale: stale.filter(is_ours).cloned().collect(),
            stale_sealed: stale_sealed.filter(is_ours).cloned().collect(),
            account: None,
        }
    }

    fn look_sealed(&self, key: &SealedKey) -> SecretSeen {
        let validity = if self.stamps(key).is_some() { Validity::Recorded } else { Validity::Unchecked };
        SecretSeen {
            is_writable: !self.foreign.contains(&key.place.secret),
            material: self.sealed.contains_key(&key.place).then_some(Material { validity, entries: Vec::new() }),
            obstacle: self.certificate.is_none().then(|| "there is no certificate".to_owned()),
        }
    }

    /// None: not all get tickets.
    fn stamps(&self, key: &SealedKey) -> Option<BTreeMap<Principal, KeyStamp>> {
        let stamp = |principal: &Principal| {
            let known = self.kdc.get(principal).filter(|known| known.enabled)?;
            Some((principal.clone(), KeyStamp { version: known.version, changed_s: known.changed_s }))
        };
        key.principals.iter().map(stamp).collect()
    }

    fn sealed_delivery(&self, key: &SealedKey) -> Option<Delivery> {
        let (value, certificate) = (self.sealed.get(&key.place)?, self.certificate?);
        let of = format!("{:?} {} {certificate} {value}", key.key_type, key.place);
        Some(Delivery { of, keys: self.stamps(key)? })
    }

    fn delivery_of(&self, principal: &Principal, held: &StoredKey) -> Option<Delivery> {
        let known = self.kdc.get(principal)?;
        let stamp = KeyStamp { version: known.version, changed_s: known.changed_s };
        Some(Delivery { of: format!("{held:?}"), keys: [(principal.clone(), stamp)].into() })
    }

    fn material(&self, spec: &Spec, held: &StoredKey) -> Option<Material> {
        let known: Vec<&Known> = spec.principals.iter().filter_map(|principal| self.kdc.get(principal)).collect();
        if known.len() < spec.principals.len() || known.iter().any(|known| !known.enabled) {
            return Some(Material { validity: Validity::Unchecked, entries: Vec::new() });
        }
        let (is_valid, entries) = match (spec.key_type, held) {
            (KeyType::Local, _) => (true, Vec::new()),
            (KeyType::Random, StoredKey::Keys(entries)) => {
                let has = |principal: &Principal| {
                    let version = self.kdc[principal].version;
                    entries.iter().any(|entry| entry.principal == principal.as_str() && entry.version == version)
                };
                (spec.principals.iter().all(has), entries.clone())
            }
            (KeyType::Trust | KeyType::PresetTrust, StoredKey::Value(_)) if self.is_away => {
                return Some(Material { validity: Validity::Recorded, entries: Vec::new() });
            }
            (key_type, StoredKey::Value(value)) if has_password(key_type) => {
                (known[0].password == Some(*value), Vec::new())
            }
            // A keytab is not a password that anyone could type.
            (key_type, StoredKey::Keys(_)) if has_password(key_type) => return None,
            _ => (false, Vec::new()),
        };
        Some(Material { validity: if is_valid { Validity::Valid } else { Validity::Invalid }, entries })
    }

    fn decide(&self, others: &OtherClaims) -> Decision {
        let (forced_done, delivery) = (self.forced_done, self.delivery.clone());
        let rules = Rules { expire_old_s: EXPIRE_S, now_s: self.now_s, forced_done, delivery };
        decide(&self.key_spec, &self.look(), others, &rules)
    }

    fn act(&mut self, action: &Action) {
        self.forced_done |= self.key_spec.meta.force_rekey && action.is_another_key(&self.key_spec);
        match action {
            Action::Mark { meta, .. } => {
                self.key_spec.meta = meta.clone();
                self.forced_done &= meta.force_rekey;
            }
            Action::Create(principal) => {
                assert!(self.key_spec.meta.record.principals.contains(principal), "made before it was recorded");
                self.kdc.insert(principal.clone(), Known { enabled: true, version: 1, password: None, changed_s: 0 });
            }
            Action::Allow(principal, allowed) => self.kdc.get_mut(principal).unwrap().enabled = *allowed,
            Action::MakeKeys { principals, secret, keep_old } => {
                assert!(self.key_spec.meta.record.secrets.contains(secret), "written before it was recorded");
                self.made += 1;
                let mut entries = match self.secrets.get(secret) {
                    Some(StoredKey::Keys(entries)) if *keep_old => entries.clone(),
                    _ => Vec::new(),
                };
                for principal in principals {
                    let known = self.kdc.get_mut(principal).unwrap();
                    (known.version, known.password) = (known.version + 1, None);
                    let at_s = u32::try_from(self.now_s).unwrap();
                    entries.push(KeyEntry { principal: principal.to_string(), version: known.version, at_s });
                }
                self.secrets.insert(secret.clone(), StoredKey::Keys(entries));
            }
            Action::MakeValue(secret) | Action::MakeTrust(_, secret) => {
                self.made += 1;
                self.secrets.insert(secret.clone(), StoredKey::Value(self.made));
            }
            Action::MakeSealed(key) => {
                assert!(self.key_spec.meta.record.sealed.contains(&key.place), "written before it was recorded");
                self.give_sealed(key);
                self.sealed.insert(key.place.clone(), self.made);
                self.delivery = self.sealed_delivery(key);
            }
            Action::ClearSealed(place) => {
                self.sealed.remove(place);
            }
            Action::SetPassword(principal, secret) | Action::SetTrust(principal, secret) => {
                let StoredKey::Value(value) = self.secrets[secret] else { panic!("no password") };
                self.change_password(principal, Some(value));
                let is_recorded = self.is_away && matches!(action, Action::SetTrust(..));
                let delivery = is_recorded.then(|| self.delivery_of(principal, &self.secrets[secret])).flatten();
                self.delivery = delivery.or(self.delivery.take());
            }
            Action::Trim(secret, old) => {
                let Some(StoredKey::Keys(entries)) = self.secrets.get_mut(secret) else { panic!("no keytab") };
                entries.retain(|entry| {
                    !old.iter().any(|old| old.version == entry.version && old.principal == entry.principal)
                });
            }
            Action::Clear(secret) => {
                self.secrets.remove(secret);
            }
        }
    }

    fn change_password(&mut self, principal: &Principal, password: Option<u32>) {
        self.changes += 1;
        let known = self.kdc.get_mut(principal).unwrap();
        (known.version, known.password, known.changed_s) = (known.version + 1, password, self.changes);
    }

    /// The first half of what is done for a sealed key.
    fn give_sealed(&mut self, key: &SealedKey) {
        self.made += 1;
        for principal in &key.principals {
            self.change_password(principal, Some(self.made));
        }
    }

    /// The service is killed in the middle of a step.
    fn cut(&mut self, action: &Action) {
        if let Action::MakeSealed(key) = action {
            self.give_sealed(key);
        }
        self.kill();
    }

    /// The service is killed: what only memory knew is gone.
    fn kill(&mut self) {
        (self.forced_done, self.delivery) = (false, None);
    }

    /// Does what is asked for until nothing is; the last decision.
    fn settle(&mut self) -> Decision {
        for _ in 0..50 {
            match self.decide(&OtherClaims::default()) {
                Decision::Do(action) => self.act(&action),
                other => return other,
            }
        }
        panic!("it does not settle: {self:?}");
    }
}

fn has_password(key_type: KeyType) -> bool {
    matches!(key_type, KeyType::Password | KeyType::PresetPassword | KeyType::Trust | KeyType::PresetTrust)
}

const DONE: Decision = Decision::Done { trim_at_s: None, account: AccountState::InStep };

#[test]
fn each_type_settles_and_a_second_start_changes_nothing() {
    for spec in [
        spec(KeyType::Random, &["a", "b"], Some("s/keytab")),
        spec(KeyType::Random, &["a"], None),
        spec(KeyType::Password, &["a"], Some("s/password")),
        spec(KeyType::Trust, &["a"], Some("s/trust")),
        spec(KeyType::Local, &[], Some("s/value")),
        spec(KeyType::Disabled, &["a"], None),
        sealed(KeyType::Random, &["a", "b"], "s/keytab"),
        sealed(KeyType::Password, &["a"], "s/password"),
        sealed(KeyType::Trust, &["a"], "s/trust"),
        sealed(KeyType::Disabled, &["a"], "s/keytab"),
    ] {
        let mut world = World::new(spec);
        assert_eq!(world.settle(), DONE);
        world.kill();
        let before = world.clone();
        assert_eq!(world.decide(&OtherClaims::default()), DONE);
        assert_eq!(world, before);
    }
}

#[test]
fn a_preset_password_waits_for_its_secret_and_goes_to_the_kdc_then() {
    let mut world = World::new(spec(KeyType::PresetPassword, &["a"], Some("s/password")));
    world.foreign.insert("s".to_owned());
    assert!(matches!(world.settle(), Decision::Refused(reason) if reason.contains("s/password is missing")));
    world.secrets.insert(place("s/password"), StoredKey::Value(7));
    assert_eq!(world.settle(), DONE);
    assert_eq!(world.kdc[&principal("a")].password, Some(7));
    world.key_spec.deleting = true;
    assert_eq!(world.settle(), Decision::Released);
    assert!(world.secrets.contains_key(&place("s/password")), "another owner's");
}

#[test]
fn the_key_of_a_trust_is_written_first_and_given_to_the_kdc_then() {
    let mut world = World::new(spec(KeyType::Trust, &["a"], Some("s/trust")));
    let mut steps = Vec::new();
    while let Decision::Do(action) = world.decide(&OtherClaims::default()) {
        world.act(&action);
        steps.push(action);
    }
    let (trust, at) = (principal("a"), place("s/trust"));
    assert!(
        matches!(&steps[..], [Action::Mark { .. }, Action::Create(_), made, set]
            if *made == Action::MakeTrust(trust.clone(), at.clone()) && *set == Action::SetTrust(trust.clone(), at)),
        "{steps:?}"
    );
    world.change_password(&trust, None);
    assert_eq!(world.settle(), DONE);
    assert_eq!((world.made, world.kdc[&trust].password), (1, Some(1)), "the other realm has that key");
    world.key_spec.meta.force_rekey = true;
    assert_eq!(world.settle(), DONE);
    assert_eq!((world.made, world.kdc[&trust].password), (2, Some(2)));
}

#[test]
fn where_the_kdc_cannot_be_asked_the_recorded_delivery_counts() {
    for key_type in [KeyType::Trust, KeyType::PresetTrust] {
        let mut world = World::new(spec(key_type, &["a"], Some("s/trust")));
        world.is_away = true;
        if key_type.is_preset() {
            assert!(matches!(world.settle(), Decision::Refused(reason) if reason.contains("s/trust is missing")));
            world.secrets.insert(place("s/trust"), StoredKey::Value(1));
        }
        assert_eq!(world.settle(), DONE);
        assert_eq!(world.changes, 1, "{key_type:?}");
        world.kill();
        assert_eq!(world.decide(&OtherClaims::default()), DONE, "it is recorded");
        // Someone gives the KDC another key, or writes another one into the Secret.
        world.change_password(&principal("a"), Some(99));
        assert_eq!(world.settle(), DONE);
        assert_eq!(world.kdc[&principal("a")].password, Some(1));
        world.secrets.insert(place("s/trust"), StoredKey::Value(7));
        assert_eq!(world.settle(), DONE);
        assert_eq!(world.kdc[&principal("a")].password, Some(7), "{key_type:?}");
        // A request for another key is one for a preset key to be set once more.
        let changes = world.changes;
        world.key_spec.meta.force_rekey = true;
        assert_eq!(world.settle(), DONE);
        assert_eq!(world.changes, changes + 1, "{key_type:?}");
        world.key_spec.spec = Ok(spec(KeyType::Disabled, &["a"], None));
        assert_eq!(world.settle(), DONE);
        assert_eq!(world.key_spec.meta.record.delivery, None);
    }
}

#[test]
fn a_sealed_key_is_made_again_only_for_a_reason() {
    let mut world = World::new(sealed(KeyType::Random, &["a", "b"], "s/k"));
    world.certificate = None;
    assert!(matches!(world.settle(), Decision::Refused(reason) if reason == "there is no certificate"));
    assert_eq!(world.changes, 0);
    world.certificate = Some(1);
    let is_made_again = |what: &str, world: &mut World| {
        let made = world.made + 1;
        assert_eq!(world.settle(), DONE, "{what}");
        assert_eq!((world.made, world.sealed[&place("s/k")]), (made, made), "{what}");
        world.kill();
        assert_eq!(world.settle(), DONE, "{what}");
        assert_eq!(world.made, made, "{what}: a restart makes none");
    };
    is_made_again("the first", &mut world);
    world.certificate = Some(2);
    is_made_again("another certificate", &mut world);
    world.sealed.clear();
    is_made_again("the SealedSecret is gone", &mut world);
    let before = world.sealed.insert(place("s/k"), 1);
    is_made_again("one of before has come back", &mut world);
    assert_eq!(before, Some(3));
    world.change_password(&principal("b"), None);
    is_made_again("the KDC has another key", &mut world);
    world.key_spec.meta.force_rekey = true;
    is_made_again("it is asked for", &mut world);
    world.key_spec.spec = Ok(sealed(KeyType::Random, &["a"], "s/k"));
    is_made_again("other principals", &mut world);
    world.key_spec.spec = Ok(sealed(KeyType::Password, &["a"], "s/k"));
    is_made_again("another type", &mut world);
    world.sealed.clear();
    let Decision::Do(action @ Action::MakeSealed(_)) = world.decide(&OtherClaims::default()) else { panic!("no step") };
    world.cut(&action);
    is_made_again("killed between KDC and SealedSecret", &mut world);
    world.foreign.insert("s".to_owned());
    world.key_spec.meta.force_rekey = true;
    assert!(matches!(world.settle(), Decision::Refused(reason) if reason.contains("SealedSecret s is not written")));
}

#[test]
fn a_secret_is_either_sealed_or_not() {
    let mut world = World::new(spec(KeyType::Random, &["a"], Some("s/k")));
    world.settle();
    world.key_spec.spec = Ok(sealed(KeyType::Random, &["a"], "s/k"));
    world.certificate = None;
    assert!(matches!(world.settle(), Decision::Refused(_)));
    assert_eq!((world.secrets.len(), world.made), (1, 1), "the key that works stays");
    world.certificate = Some(1);
    assert_eq!(world.decide(&OtherClaims::default()), Decision::Do(Action::Clear(place("s/k"))), "it is in the way");
    assert_eq!(world.settle(), DONE);
    assert_eq!((world.secrets.len(), world.sealed.len()), (0, 1));
    world.key_spec.spec = Ok(spec(KeyType::Random, &["a"], Some("s/l")));
    let Decision::Do(mark @ Action::Mark { .. }) = world.decide(&OtherClaims::default()) else { panic!("no mark") };
    world.act(&mark);
    let cleared = Decision::Do(Action::ClearSealed(place("s/k")));
    assert_eq!(world.decide(&OtherClaims::default()), cleared, "before the Secret is written");
    assert_eq!(world.settle(), DONE);
    assert_eq!((world.secrets.len(), world.sealed.len()), (1, 0));
    let owned = |secrets: &[&str], sealed: &[&str]| {
        let places = |texts: &[&str]| texts.iter().map(|text| place(text)).collect();
        let owned = Record { secrets: places(secrets), sealed: places(sealed), ..Record::default() };
        OtherClaims { owned, wanted: Record::default() }
    };
    for others in [owned(&[], &["s/l"]), owned(&[], &["s/other"])] {
        assert!(matches!(world.decide(&others), Decision::Refused(_)), "{others:?}");
    }
    world.key_spec.spec = Ok(sealed(KeyType::Random, &["a"], "s/k"));
    assert!(matches!(world.decide(&owned(&["s/other"], &[])), Decision::Refused(reason) if reason.contains("either")));
    assert!(matches!(world.decide(&owned(&[], &["s/other"])), Decision::Do(_)));
}

#[test]
fn a_secret_of_another_owner_is_not_written() {
    for key_type in [KeyType::Random, KeyType::Password, KeyType::Trust] {
        let mut world = World::new(spec(key_type, &["a"], Some("s/k")));
        world.foreign.insert("s".to_owned());
        assert!(matches!(world.settle(), Decision::Refused(reason) if reason.contains("lacks the label")));
        assert_eq!(world.secrets, BTreeMap::new());
    }
}

#[test]
fn a_key_that_the_kdc_calls_wrong_is_replaced_and_a_password_is_given_again() {
    let mut world = World::new(spec(KeyType::Random, &["a"], Some("s/k")));
    world.settle();
    world.kdc.get_mut(&principal("a")).unwrap().version = 9;
    assert_eq!(world.settle(), DONE);
    assert_eq!(world.made, 2);
    let mut world = World::new(spec(KeyType::Password, &["a"], Some("s/k")));
    world.settle();
    world.kdc.get_mut(&principal("a")).unwrap().password = None;
    assert_eq!(world.settle(), DONE);
    assert_eq!(world.made, 1, "services keep the password that they have read");
}

#[test]
fn another_key_is_made_once_for_each_request() {
    for (key_type, made) in [(KeyType::Random, 2), (KeyType::Password, 2)] {
        let mut world = World::new(spec(key_type, &["a"], Some("s/k")));
        world.settle();
        world.key_spec.meta.force_rekey = true;
        assert_eq!(world.settle(), DONE);
        assert_eq!((world.made, world.key_spec.meta.force_rekey), (made, false), "{key_type:?}");
    }
}

#[test]
fn the_end_of_a_resource_disables_and_never_deletes() {
    let mut world = World::new(spec(KeyType::Random, &["a", "b"], Some("s/k")));
    world.settle();
    world.key_spec.deleting = true;
    assert_eq!(world.settle(), Decision::Released);
    assert_eq!(world.kdc.len(), 2);
    assert!(world.kdc.values().all(|known| !known.enabled));
    assert_eq!(world.secrets, BTreeMap::new());
}

#[test]
fn what_another_resource_wants_survives_the_end_of_this_one() {
    let mut world = World::new(spec(KeyType::Random, &["a"], Some("s/k")));
    world.settle();
    let others = OtherClaims { owned: Record::default(), wanted: world.key_spec.meta.record.clone() };
    world.key_spec.deleting = true;
    assert!(matches!(world.decide(&others), Decision::Do(Action::Mark { meta, .. }) if !meta.finalizer));
}

#[test]
fn what_belongs_to_another_resource_is_refused() {
    let owned = |secrets: &[&str], names: &[&str]| OtherClaims {
        owned: Record {
            principals: names.iter().map(|name| principal(name)).collect(),
            secrets: secrets.iter().map(|text| place(text)).collect(),
            ..Record::default()
        },
        wanted: Record::default(),
    };
    let world = World::new(spec(KeyType::Random, &["a"], Some("s/k")));
    assert!(matches!(world.decide(&owned(&[], &["a"])), Decision::Refused(reason) if reason.contains("a/Test@A")));
    assert!(matches!(world.decide(&owned(&["s/k"], &[])), Decision::Refused(reason) if reason.contains("s/k")));
    assert!(matches!(world.decide(&owned(&["s/other"], &["b"])), Decision::Do(_)));
}

#[test]
fn a_changed_resource_leaves_nothing_behind() {
    let mut world = World::new(spec(KeyType::Random, &["a", "b"], Some("s/k")));
    world.settle();
    world.key_spec.spec = Ok(spec(KeyType::Random, &["a"], Some("t/k")));
    assert_eq!(world.settle(), DONE);
    assert!(world.kdc[&principal("a")].enabled && !world.kdc[&principal("b")].enabled);
    assert_eq!(world.secrets.keys().cloned().collect::<Vec<_>>(), [place("t/k")]);
    assert_eq!(world.key_spec.meta.record, Record::of(world.key_spec.spec.as_ref().unwrap()));
}

#[test]
fn a_password_that_becomes_preset_stays_where_it_is() {
    let mut world = World::new(spec(KeyType::Password, &["a"], Some("s/k")));
    world.settle();
    world.key_spec.spec = Ok(spec(KeyType::PresetPassword, &["a"], Some("s/k")));
    let before = world.secrets.clone();
    assert_eq!(world.settle(), DONE);
    assert_eq!((world.secrets, world.made), (before, 1));
}

#[test]
fn old_keys_stay_for_a_while() {
    let mut kept = spec(KeyType::Random, &["a"], Some("s/k"));
    kept.keep_old_keys = true;
    let mut world = World::new(kept);
    world.settle();
    world.key_spec.meta.force_rekey = true;
    assert_eq!(world.settle(), Decision::Done { trim_at_s: Some(NOW_S + EXPIRE_S), account: AccountState::InStep });
    assert!(world.key_spec.meta.has_old_keys);
    world.now_s += EXPIRE_S;
    assert_eq!(world.settle(), DONE);
    assert!(!world.key_spec.meta.has_old_keys);
    let StoredKey::Keys(entries) = &world.secrets[&place("s/k")] else { panic!("no keytab") };
    assert_eq!(entries.iter().map(|entry| entry.version).collect::<Vec<_>>(), [3]);
    assert_eq!(world.made, 2, "trimming makes no key");
}

#[test]
fn a_suspended_or_broken_resource_is_left_as_it_is() {
    let mut world = World::new(spec(KeyType::Random, &["a"], Some("s/k")));
    world.settle();
    let before = world.clone();
    world.key_spec.suspended = true;
    world.key_spec.meta.force_rekey = true;
    assert_eq!(world.settle(), Decision::Suspended);
    (world.key_spec.suspended, world.key_spec.meta.force_rekey) = (false, false);
    world.key_spec.spec = Err("no".to_owned());
    assert_eq!(world.settle(), Decision::Refused("no".to_owned()));
    assert_eq!((world.kdc, world.secrets), (before.kdc, before.secrets));
}

fn specs() -> impl Strategy<Value = Spec> {
    let types = prop_oneof![
        Just(KeyType::Random),
        Just(KeyType::Password),
        Just(KeyType::PresetPassword),
        Just(KeyType::Trust),
        Just(KeyType::PresetTrust),
        Just(KeyType::Disabled),
    ];
    let secrets = proptest::sample::select(vec!["s/k", "s/l", "t/k"]);
    (types, proptest::sample::subsequence(vec!["a", "b", "c"], 1..=3), secrets, any::<bool>(), any::<bool>()).prop_map(
        |(key_type, names, secret, keep, is_sealed)| {
            let may_be_many = matches!(key_type, KeyType::Random | KeyType::Disabled);
            let names = if may_be_many { &names[..] } else { &names[..1] };
            if is_sealed && !key_type.is_preset() {
                return sealed(key_type, names, secret);
            }
            let keep_old_keys = keep && may_be_many;
            Spec { keep_old_keys, ..spec(key_type, names, Some(secret)) }
        },
    )
}

proptest! {
    /// A resource changes again and again, the service is killed after any number of steps, and in the end the resource is deleted. Then nothing that it made gets tickets, and none of its keys is left.
    #[test]
    fn nothing_is_left_behind_whatever_was_killed(
        turns in proptest::collection::vec((specs(), any::<bool>(), 0usize..8), 1..6), is_away in any::<bool>()
    ) {
        let mut world = World::new(turns[0].0.clone());
        world.is_away = is_away;
        for (spec, force, steps) in turns {
            world.key_spec.spec = Ok(spec);
            world.key_spec.meta.force_rekey |= force;
            for _ in 0..steps {
                if let Decision::Do(action) = world.decide(&OtherClaims::default()) {
                    world.act(&action);
                }
            }
            if let Decision::Do(action) = world.decide(&OtherClaims::default()) {
                world.cut(&action);
            }
            world.kill();
        }
        let last = world.settle();
        if let (Decision::Done { .. }, Ok(spec @ Spec { key_type, principals, secret: Some(place), .. })) = (&last, &world.key_spec.spec) {
            let known = world.kdc.get(&principals[0]).and_then(|known| known.password);
            if SealedKey::of(spec).is_some() {
                prop_assert_eq!(known.as_ref(), world.sealed.get(place), "the KDC has another key");
            } else if has_password(*key_type) {
                prop_assert_eq!(known.map(StoredKey::Value), world.secrets.get(place).cloned(), "the KDC has another password");
            }
        }
        prop_assert!(matches!(last, Decision::Done { .. } | Decision::Refused(_)), "{:?}", last);
        let wanted = Record::of(world.key_spec.spec.as_ref().unwrap());
        for (principal, known) in &world.kdc {
            let is_wanted = wanted.principals.contains(principal) && !matches!(&world.key_spec.spec, Ok(spec) if spec.key_type == KeyType::Disabled);
            // Of a refused resource what was before stays until it can be followed.
            prop_assert!(known.enabled == is_wanted || matches!(last, Decision::Refused(_)), "{} {:?}", principal, known);
        }
        world.key_spec.deleting = true;
        prop_assert_eq!(world.settle(), Decision::Released);
        prop_assert!(world.kdc.values().all(|known| !known.enabled));
        for place in world.secrets.keys() {
            prop_assert!(!world.key_spec.meta.record.secrets.contains(place), "{} is left", place);
        }
        prop_assert_eq!(world.sealed.len(), 0, "sealed keys are left");
    }
}
