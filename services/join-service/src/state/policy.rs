//! The policy in force: the last one that an authorised operator signed, whether it can be used or not. Without one, or with a bad one, every host is refused.
//!
//! The signature is judged first. Of two signed policies the one with the greater serial number counts, from wherever it comes. What is not signed does not decide which hosts are
//! admitted. Version, revision and origin are judged only where the signed content stays the same, or where there is no signed policy yet.

use configdb_schema::document::AttestationPolicy;
use join_attestation::signed::{self, SignatureError};
use join_attestation::{HostVerifier, Policy};
use join_protocol::certificate::TrustAnchor;
use join_protocol::terms::{HostClock, Variant};
use join_protocol::transcript::Hash;
use join_service_contract::{DesiredPolicy, PolicyDigest, PolicyState};
use sparkplug::replication::{DesiredReceiver, Hold, Outcome};

use crate::document::PolicyRecord;

/// The policy, and what is said of it.
#[derive(Debug)]
pub(super) struct ActivePolicy {
    /// The keys whose signatures count.
    anchor: TrustAnchor,
    desired: Option<DesiredPolicy>,
    receiver: DesiredReceiver<PolicyDigest>,
    /// Of `desired`; a policy may be large, and what is said of it is compared at every event.
    digest: Option<PolicyDigest>,
    /// What is signed of `desired`; None: it is not believed, or there is none.
    signed: Option<Hash>,
    /// Highest serial number that was taken over; 0: none was.
    serial: u64,
    state: PolicyState,
    /// Why it admits no host.
    error: Option<String>,
    /// Why the last command was not taken over.
    refused: Option<String>,
    verifier: HostVerifier,
}

/// What becomes of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommandOutcome {
    /// This is to be stored, and is in force then.
    Accepted(PolicyRecord),
    /// It is in force.
    Duplicate,
    /// It is older than what is in force.
    Stale,
    /// It cannot be taken over.
    Refused,
    /// It comes from where nothing may come from.
    Held,
}

impl ActivePolicy {
    /// None was sent.
    #[must_use]
    pub(super) fn new(anchor: TrustAnchor) -> Self {
        Self {
            anchor,
            desired: None,
            receiver: DesiredReceiver::default(),
            digest: None,
            signed: None,
            serial: 0,
            state: PolicyState::Unknown,
            error: Some("no policy was sent to this cluster: no host is admitted".to_owned()),
            refused: None,
            verifier: HostVerifier::new(Policy::missing()),
        }
    }

    /// What is in force.
    #[must_use]
    pub(super) const fn desired(&self) -> Option<&DesiredPolicy> {
        self.desired.as_ref()
    }

    /// Its digest.
    #[must_use]
    pub(super) const fn digest(&self) -> Option<PolicyDigest> {
        self.digest
    }

    /// What it does.
    #[must_use]
    pub(super) const fn state(&self) -> PolicyState {
        self.state
    }

    /// For people: why it admits no host, or why the last command was refused.
    #[must_use]
    pub(super) fn error(&self) -> Option<&String> {
        self.refused.as_ref().or(self.error.as_ref())
    }

    /// Judges by it.
    #[must_use]
    pub(super) const fn verifier(&self) -> &HostVerifier {
        &self.verifier
    }

    /// Version; 0 without one.
    #[must_use]
    pub(super) fn version(&self) -> u64 {
        self.desired.as_ref().map_or(0, |desired| desired.version)
    }

    /// Another number for each policy and revision, the same in every replica: what was challenged under one is not judged under another.
    #[must_use]
    pub(super) fn epoch(&self) -> u64 {
        self.digest.map_or(0, PolicyDigest::number)
    }

    /// Forms of keys that a challenge is made for. Without a usable policy all, so that a host can be sent under seal why it is refused.
    #[must_use]
    pub(super) fn variants(&self) -> Vec<Variant> {
        match self.state {
            PolicyState::InForce => self.verifier.variants(),
            _ => Variant::ALL.to_vec(),
        }
    }

    /// Compares a command with what is in force. `now_ms`: UTC ms.
    pub(super) fn take(&mut self, command: DesiredPolicy, now_ms: u64) -> CommandOutcome {
        let version = command.version;
        let taken = match &command.entry {
            Some(text) => match read(text, &self.anchor) {
                Ok((entry, serial, digest)) => self.take_signed(&entry, serial, digest, command, now_ms),
                Err(reason) => Err(reason),
            },
            None => self.take_none(command),
        };
        match taken {
            Ok(CommandOutcome::Duplicate) => {
                self.refused = None;
                CommandOutcome::Duplicate
            }
            Ok(taken) => taken,
            Err(reason) => {
                if self.refused.as_ref() != Some(&reason) {
                    tracing::warn!(version, reason, "policy refused: the one in force stays");
                }
                self.refuse(reason);
                CommandOutcome::Refused
            }
        }
    }

    fn take_signed(
        &mut self,
        entry: &AttestationPolicy,
        serial: u64,
        digest: Hash,
        command: DesiredPolicy,
        now_ms: u64,
    ) -> Result<CommandOutcome, String> {
        if self.signed == Some(digest) {
            // Nothing changes but the way that it came. What it was taken over with is not signed, so no number of it may keep the next one out.
            return Ok(match self.receive(&command) {
                Outcome::Accepted | Outcome::Conflict => CommandOutcome::Accepted(record(command, serial)),
                Outcome::Duplicate => CommandOutcome::Duplicate,
                Outcome::Stale => CommandOutcome::Stale,
                Outcome::Held(_) => CommandOutcome::Held,
            });
        }
        match signed::follows(serial, self.serial) {
            Ok(()) => {}
            Err(SignatureError::Old { found, last }) if found < last => {
                return match self.receive(&command) {
                    Outcome::Held(_) => Ok(CommandOutcome::Held),
                    Outcome::Stale => Ok(CommandOutcome::Stale),
                    _ => Err(SignatureError::Old { found, last }.to_string()),
                };
            }
            Err(SignatureError::Old { found, .. }) => return Err(SignatureError::Conflict(found).to_string()),
            Err(error) => return Err(error.to_string()),
        }
        signed::verify(entry, &self.anchor, HostClock::Trusted(now_ms)).map_err(|error| error.to_string())?;
        Ok(CommandOutcome::Accepted(record(command, serial)))
    }

    /// That there is no policy is never signed: it is believed until there is one.
    fn take_none(&mut self, command: DesiredPolicy) -> Result<CommandOutcome, String> {
        match self.receive(&command) {
            Outcome::Held(_) => Ok(CommandOutcome::Held),
            Outcome::Stale => Ok(CommandOutcome::Stale),
            _ if self.serial > 0 => {
                Err("a signed policy stays in force; to admit no host any more, sign one that revokes every host"
                    .to_owned())
            }
            Outcome::Accepted => Ok(CommandOutcome::Accepted(record(command, 0))),
            Outcome::Duplicate => Ok(CommandOutcome::Duplicate),
            Outcome::Conflict => {
                Err(format!("version {} is in force with another digest; send a greater version", command.version))
            }
        }
    }

    /// Judges where a command comes from.
    fn receive(&mut self, command: &DesiredPolicy) -> Outcome {
        let was_held = self.held();
        let outcome = self.receiver.receive(&command.stamp());
        if let Outcome::Held(hold) = outcome
            && was_held != Some(hold)
        {
            tracing::warn!(version = command.version, reason = %hold, "policy held: the one in force stays until an operator decides");
        }
        outcome
    }

    /// Why what the control plane sends is held.
    #[must_use]
    pub(super) const fn held(&self) -> Option<Hold> {
        self.receiver.held()
    }

    /// A command could not be read, or not be stored.
    pub(super) fn refuse(&mut self, reason: String) {
        self.refused = Some(reason);
    }

    /// This policy is in force from here on. It was taken over before: its end is not looked at. Of two records the one with the smaller serial number is an older one of the store.
    pub(super) fn apply(&mut self, stored: PolicyRecord) {
        if stored.serial < self.serial {
            return;
        }
        if stored.serial > self.serial {
            // The signer has decided, whatever was held until here.
            self.receiver = DesiredReceiver::default();
        }
        let PolicyRecord { version, revision, entry, origin, serial } = stored;
        let desired = DesiredPolicy { version, revision, entry, origin, follows: None };
        self.serial = serial;
        self.refused = None;
        self.signed = None;
        let policy = match &desired.entry {
            None => {
                self.state = PolicyState::None;
                self.error = Some("the cluster has no AttestationPolicy: no host is admitted".to_owned());
                Policy::missing()
            }
            Some(text) => match read(text, &self.anchor) {
                Ok((entry, _, digest)) => {
                    let policy = Policy::new(&entry, desired.revision);
                    self.signed = Some(digest);
                    self.error = policy.error().map(|error| format!("the policy admits no host: {error}"));
                    self.state = if self.error.is_some() { PolicyState::Invalid } else { PolicyState::InForce };
                    policy
                }
                Err(error) => {
                    self.state = PolicyState::Invalid;
                    self.error = Some(format!("the policy admits no host: {error}"));
                    Policy::missing()
                }
            },
        };
        tracing::info!(version, serial, revision, state = %self.state, "policy taken over");
        self.verifier = HostVerifier::new(policy);
        self.digest = Some(desired.digest());
        self.receiver.set_accepted(Some(desired.stamp()));
        self.desired = Some(desired);
    }
}

fn record(command: DesiredPolicy, serial: u64) -> PolicyRecord {
    let DesiredPolicy { version, revision, entry, origin, follows: _ } = command;
    PolicyRecord { version, revision, entry, origin, serial }
}

/// A policy that an authorised operator has signed, whenever that was: the entry, its serial number, and what is signed.
fn read(text: &str, anchor: &TrustAnchor) -> Result<(AttestationPolicy, u64, Hash), String> {
    let entry: AttestationPolicy = serde_json::from_str(text).map_err(|error| format!("AttestationPolicy: {error}"))?;
    let claims = signed::verify(&entry, anchor, HostClock::Unset).map_err(|error| error.to_string())?;
    let digest = signed::digest(&entry, &claims);
    Ok((entry, claims.serial, digest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use join_protocol::certificate::{IssuerCertificate, SigningKey};
    use join_protocol::secret::Secret;
    use join_protocol::terms::Purpose;
    use proptest::prelude::*;
    use uuid::Uuid;

    const NOW: u64 = 1_800_000_000_000;
    const HERE: &str = "00000000-0000-0000-0000-000000000007/0/00000000000000ab/12";
    const EARLIER: &str = "00000000-0000-0000-0000-000000000007/0/00000000000000ab/10";
    const ELSEWHERE: &str = "00000000-0000-0000-0000-000000000008/0/00000000000000ab/12";
    const RELEASED: &str = "00000000-0000-0000-0000-000000000008/1/00000000000000ab/12";
    const EMPTY: &str = r#"{"bank":"sha256","pcrs":{},"lock":{"pcr":15},"endorsement":{"require":"either"}}"#;

    fn key(byte: u8) -> SigningKey {
        SigningKey::from_seed(&Secret::new([byte; 32])).unwrap()
    }

    fn anchor(epoch_min: u32) -> TrustAnchor {
        TrustAnchor { root: key(1).public_key(), cluster: Uuid::nil(), epoch_min }
    }

    fn active_policy() -> ActivePolicy {
        ActivePolicy::new(anchor(0))
    }

    fn desired(version: u64, entry: Option<&str>) -> DesiredPolicy {
        DesiredPolicy {
            version,
            revision: 7,
            entry: entry.map(str::to_owned),
            origin: HERE.parse().ok(),
            follows: None,
        }
    }

    fn of(version: u64, serial: u64, text: &str) -> DesiredPolicy {
        let certificate = IssuerCertificate {
            public_key: key(2).public_key(),
            purpose: Purpose::PolicySigner,
            cluster: Uuid::nil(),
            not_before_ms: 0,
            not_after_ms: u64::MAX,
            epoch: 0,
        };
        let claims = signed::Claims { cluster: Uuid::nil(), serial, not_after_ms: NOW };
        let policy = serde_json::from_str(text).unwrap();
        let policy = signed::sign(&policy, &claims, &key(2), &[certificate.sign(&key(1))]);
        desired(version, Some(&serde_json::to_string(&policy).unwrap()))
    }

    fn from(origin: &str, desired: DesiredPolicy) -> DesiredPolicy {
        DesiredPolicy { origin: origin.parse().ok(), ..desired }
    }

    /// Takes a command, and stores and applies it if it is to be.
    fn send(active_policy: &mut ActivePolicy, command: &DesiredPolicy) -> CommandOutcome {
        let taken = active_policy.take(command.clone(), NOW);
        if let CommandOutcome::Accepted(record) = &taken {
            active_policy.apply(record.clone());
        }
        taken
    }

    fn is_new(active_policy: &mut ActivePolicy, command: &DesiredPolicy) -> bool {
        matches!(send(active_policy, command), CommandOutcome::Accepted(_))
    }

    #[test]
    fn only_what_is_signed_is_taken_over_and_a_bad_policy_is_in_force_as_one_that_admits_no_host() {
        let mut active_policy = active_policy();
        assert_eq!((active_policy.state(), active_policy.variants().len()), (PolicyState::Unknown, Variant::ALL.len()));
        assert!(is_new(&mut active_policy, &desired(2, None)));
        assert_eq!(active_policy.state(), PolicyState::None);
        assert_eq!(send(&mut active_policy, &desired(1, None)), CommandOutcome::Stale);
        assert_eq!(send(&mut active_policy, &desired(2, None)), CommandOutcome::Duplicate);
        for (text, reason) in [("{}", "AttestationPolicy: missing field"), (EMPTY, "the policy is not signed")] {
            assert_eq!(send(&mut active_policy, &desired(u64::MAX, Some(text))), CommandOutcome::Refused);
            assert!(active_policy.error().unwrap().starts_with(reason), "{:?}", active_policy.error());
            assert_eq!((active_policy.state(), active_policy.version()), (PolicyState::None, 2));
        }
        // Nothing measured: upstream let everything pass by such a policy.
        assert!(is_new(&mut active_policy, &of(3, 1, EMPTY)));
        assert_eq!(active_policy.state(), PolicyState::Invalid);
        assert!(active_policy.error().unwrap().contains("no PCR is enforced"));
        assert!(active_policy.verifier().policy().error().is_some());
        assert_eq!(
            send(&mut active_policy, &desired(u64::MAX, None)),
            CommandOutcome::Refused,
            "it is not taken away again"
        );
        assert!(active_policy.error().unwrap().starts_with("a signed policy stays in force"));
        assert_eq!(send(&mut active_policy, &of(3, 1, EMPTY)), CommandOutcome::Duplicate);
        assert!(active_policy.error().unwrap().contains("no PCR"), "a repeat is the answer to what was refused");
    }

    #[test]
    fn the_serial_number_decides_and_no_version_of_a_carrier_locks_the_next_policy_out() {
        let mut active_policy = active_policy();
        assert!(is_new(&mut active_policy, &of(3, 5, EMPTY)));
        // A genuine document in a hostile envelope.
        assert!(is_new(&mut active_policy, &of(u64::MAX, 5, EMPTY)));
        let moved = DesiredPolicy { revision: 8, ..of(u64::MAX, 5, EMPTY) };
        assert!(is_new(&mut active_policy, &moved), "no greater version is left, and none is needed");
        let other = EMPTY.replace("15", "14");
        let far = 5 + signed::SERIAL_JUMP_MAX;
        for (command, reason) in [
            (of(u64::MAX, 4, EMPTY), "signature.serial is 4, and 5 was taken over"),
            (of(9, 5, &other), "signature.serial 5 was taken over with another policy"),
            (of(9, far + 1, &other), "signature.serial is 1048582, more than 1048576 above 5"),
            (of(9, u64::MAX, &other), "signature.serial is 18446744073709551615, more than 1048576 above 5"),
        ] {
            assert_eq!(send(&mut active_policy, &command), CommandOutcome::Refused);
            assert!(active_policy.error().unwrap().starts_with(reason), "{:?}", active_policy.error());
            assert_eq!((active_policy.desired(), active_policy.serial), (Some(&moved), 5));
        }
        assert_eq!(
            send(&mut active_policy, &of(3, 4, EMPTY)),
            CommandOutcome::Stale,
            "a repetition that was overtaken"
        );
        assert_eq!(active_policy.take(of(9, 6, &other), NOW + 1), CommandOutcome::Refused);
        assert!(active_policy.error().unwrap().contains("ended"));
        assert!(is_new(&mut active_policy, &of(1, far, &other)));
        assert_eq!(
            (active_policy.version(), active_policy.serial, active_policy.error().unwrap().contains("ended")),
            (1, far, false)
        );
    }

    #[test]
    fn another_or_an_older_store_is_held_until_the_signer_or_an_operator_decides() {
        let mut active_policy = active_policy();
        assert!(is_new(&mut active_policy, &of(3, 5, EMPTY)));
        for (command, reason) in [
            (from(ELSEWHERE, of(9, 5, EMPTY)), "another store"),
            (from(ELSEWHERE, of(9, 4, EMPTY)), "another store"),
            (from(ELSEWHERE, desired(9, None)), "another store"),
            (from(EARLIER, of(9, 4, EMPTY)), "older than this cluster by 2 revisions"),
        ] {
            assert_eq!(send(&mut active_policy, &command), CommandOutcome::Held);
            assert!(active_policy.held().unwrap().to_string().contains(reason), "{:?}", active_policy.held());
            assert_eq!((active_policy.version(), active_policy.serial), (3, 5));
        }
        // The signer's next policy is what is wanted, wherever it comes from.
        assert!(is_new(&mut active_policy, &from(ELSEWHERE, of(1, 6, EMPTY))));
        assert_eq!((active_policy.held(), active_policy.serial), (None, 6));
        assert_eq!(send(&mut active_policy, &of(9, 6, EMPTY)), CommandOutcome::Held, "the store that was left");
        // An operator's decision, for the same policy.
        assert!(is_new(&mut active_policy, &from(RELEASED, of(9, 6, EMPTY))));
        assert_eq!((active_policy.held(), active_policy.version()), (None, 9));
        // A signature that is not believed is refused, not held.
        assert_eq!(send(&mut active_policy, &from(HERE, desired(99, Some(EMPTY)))), CommandOutcome::Refused);
        assert_eq!(active_policy.held(), None);
    }

    #[test]
    fn what_is_stored_counts_after_its_end_and_not_without_a_signature() {
        let mut active_policy = active_policy();
        active_policy.apply(record(desired(u64::MAX, Some(EMPTY)), 0));
        assert_eq!((active_policy.state(), active_policy.serial), (PolicyState::Invalid, 0));
        assert!(active_policy.error().unwrap().contains("not signed"));
        let before = active_policy.epoch();
        assert!(is_new(&mut active_policy, &of(1, 1, EMPTY)));
        assert_ne!(active_policy.epoch(), before);
        assert_eq!(active_policy.take(of(1, 1, EMPTY), NOW + 1), CommandOutcome::Duplicate);
        // An older state of the store changes nothing.
        active_policy.apply(record(desired(9, None), 0));
        assert_eq!((active_policy.version(), active_policy.serial), (1, 1));
    }

    #[test]
    fn the_serial_number_outlives_the_key_that_signed_it() {
        let mut later = ActivePolicy::new(anchor(1));
        later.apply(record(of(3, 5, EMPTY), 5));
        assert_eq!((later.state(), later.serial), (PolicyState::Invalid, 5));
        assert!(later.error().unwrap().contains("not believed"), "{:?}", later.error());
        assert_eq!(send(&mut later, &of(4, 6, EMPTY)), CommandOutcome::Refused, "the key of an ended epoch");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        /// Invariant `signed-or-nothing`, whatever is sent in whatever order. The policy in force is the signed one with the highest serial number that was taken over. The next
        /// serial number is always accepted.
        #[test]
        fn the_highest_serial_number_is_in_force(commands in proptest::collection::vec((0_u64..6, any::<u64>(), any::<bool>(), 0_usize..4), 0..24)) {
            let mut active_policy = active_policy();
            let mut highest = 0;
            for (serial, version, other, origin) in commands {
                let text = if other { EMPTY.replace("15", "14") } else { EMPTY.to_owned() };
                let command = if serial == 0 { desired(version, None) } else { of(version, serial, &text) };
                let origin = [HERE, EARLIER, ELSEWHERE, RELEASED][origin];
                let before = active_policy.signed;
                send(&mut active_policy, &from(origin, command));
                prop_assert_eq!(active_policy.serial, serial.max(highest));
                prop_assert!(active_policy.serial > highest || active_policy.signed == before, "the same number, other content");
                highest = active_policy.serial;
            }
            prop_assert!(is_new(&mut active_policy, &of(1, highest + 1, EMPTY)));
            prop_assert_eq!(active_policy.held(), None);
        }
    }
}
