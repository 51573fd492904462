//! The policy in force: the last one that was sent, whether it can be used or not. Without one, or with a bad one, everybody is refused.

use configdb_schema::document::AttestationPolicy;
use join_attestation::{HostVerifier, Policy};
use join_protocol::terms::Variant;
use join_service_contract::{DesiredPolicy, PolicyDigest, PolicyState};
use sparkplug::replication::{Hold, Outcome, Receiver};

/// The policy, and what is said of it.
#[derive(Debug)]
pub struct PolicyKeeper {
    desired: Option<DesiredPolicy>,
    receiver: Receiver<PolicyDigest>,
    /// Of `desired`; a policy may be large, and what is said of it is compared at every event.
    digest: Option<PolicyDigest>,
    state: PolicyState,
    /// Why it admits nobody.
    error: Option<String>,
    /// Why the last command was not taken over.
    refused: Option<String>,
    verifier: HostVerifier,
}

/// What becomes of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is to be stored, and is in force then.
    New,
    /// It is in force.
    Repeat,
    /// It is older than what is in force.
    Older,
    /// It cannot be taken over.
    Refused,
    /// It comes from where nothing may come from.
    Held,
}

impl PolicyKeeper {
    /// None was sent.
    #[must_use]
    pub fn new() -> Self {
        Self {
            desired: None,
            receiver: Receiver::default(),
            digest: None,
            state: PolicyState::Unknown,
            error: Some("no policy was sent to this cluster: nobody is admitted".to_owned()),
            refused: None,
            verifier: HostVerifier::new(Policy::missing()),
        }
    }

    /// What is in force.
    #[must_use]
    pub const fn desired(&self) -> Option<&DesiredPolicy> {
        self.desired.as_ref()
    }

    /// Its digest.
    #[must_use]
    pub const fn digest(&self) -> Option<PolicyDigest> {
        self.digest
    }

    /// What it does.
    #[must_use]
    pub const fn state(&self) -> PolicyState {
        self.state
    }

    /// For people: why it admits nobody, or why the last command was refused.
    #[must_use]
    pub fn error(&self) -> Option<&String> {
        self.refused.as_ref().or(self.error.as_ref())
    }

    /// Judges by it.
    #[must_use]
    pub const fn verifier(&self) -> &HostVerifier {
        &self.verifier
    }

    /// Version; 0 without one.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.desired.as_ref().map_or(0, |desired| desired.version)
    }

    /// Forms of keys that a challenge is made for. Without a usable policy all, so that a host can be told under seal why it is refused.
    #[must_use]
    pub fn variants(&self) -> Vec<Variant> {
        match self.state {
            PolicyState::InForce => self.verifier.variants(),
            _ => Variant::ALL.to_vec(),
        }
    }

    /// Compares a command with what is in force.
    pub fn take(&mut self, command: &DesiredPolicy) -> Taken {
        let was_held = self.held();
        match self.receiver.receive(&command.stamp()) {
            Outcome::Accepted => Taken::New,
            Outcome::Stale => Taken::Older,
            Outcome::Duplicate => {
                self.refused = None;
                Taken::Repeat
            }
            Outcome::Conflict => {
                let version = command.version;
                self.refuse(format!("version {version} is in force with another digest; send a greater version"));
                Taken::Refused
            }
            Outcome::Held(hold) => {
                if was_held != Some(hold) {
                    tracing::warn!(version = command.version, reason = %hold, "policy held: the one in force stays until an operator decides");
                }
                Taken::Held
            }
        }
    }

    /// Why what the control plane sends is held.
    #[must_use]
    pub const fn held(&self) -> Option<Hold> {
        self.receiver.held()
    }

    /// A command could not be read, or not be stored.
    pub fn refuse(&mut self, reason: String) {
        self.refused = Some(reason);
    }

    /// This policy is in force from here on.
    pub fn apply(&mut self, desired: DesiredPolicy) {
        self.refused = None;
        let policy = match &desired.entry {
            None => {
                self.state = PolicyState::None;
                self.error = Some("the cluster has no AttestationPolicy: nobody is admitted".to_owned());
                Policy::missing()
            }
            Some(text) => match serde_json::from_str::<AttestationPolicy>(text) {
                Ok(entry) => {
                    let policy = Policy::new(&entry, desired.revision);
                    self.error = policy.error().map(|error| format!("the policy admits nobody: {error}"));
                    self.state = if self.error.is_some() { PolicyState::Invalid } else { PolicyState::InForce };
                    policy
                }
                Err(error) => {
                    self.state = PolicyState::Invalid;
                    self.error = Some(format!("the policy admits nobody: AttestationPolicy: {error}"));
                    Policy::missing()
                }
            },
        };
        tracing::info!(version = desired.version, revision = desired.revision, state = %self.state, "policy taken over");
        self.verifier = HostVerifier::new(policy);
        self.digest = Some(desired.digest());
        self.receiver.set_accepted(Some(desired.stamp()));
        self.desired = Some(desired);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired(version: u64, entry: Option<&str>) -> DesiredPolicy {
        let origin = "00000000-0000-0000-0000-000000000007/0/00000000000000ab/12".parse().ok();
        DesiredPolicy { version, revision: 7, entry: entry.map(str::to_owned), origin, follows: None }
    }

    #[test]
    fn versions_only_grow_and_a_bad_policy_is_in_force_as_one_that_admits_nobody() {
        let mut keeper = PolicyKeeper::new();
        assert_eq!((keeper.state(), keeper.variants().len()), (PolicyState::Unknown, 2));
        assert_eq!(keeper.take(&desired(2, None)), Taken::New);
        keeper.apply(desired(2, None));
        assert_eq!(keeper.state(), PolicyState::None);
        assert_eq!(keeper.take(&desired(1, Some("{}"))), Taken::Older);
        assert_eq!(keeper.take(&desired(2, None)), Taken::Repeat);
        assert_eq!(keeper.take(&desired(2, Some("{}"))), Taken::Refused);
        assert!(keeper.error().unwrap().starts_with("version 2 is in force with another digest"));
        // A store that is another one, or older, changes nothing: not even who is kept out.
        let from = |origin: &str| DesiredPolicy { origin: origin.parse().ok(), ..desired(4, Some("{}")) };
        for (origin, reason) in [
            ("00000000-0000-0000-0000-000000000008/0/00000000000000ab/12", "another store"),
            ("00000000-0000-0000-0000-000000000007/0/00000000000000ab/10", "older than this cluster by 2 revisions"),
        ] {
            assert_eq!((keeper.take(&from(origin)), keeper.state()), (Taken::Held, PolicyState::None));
            assert!(keeper.held().unwrap().to_string().contains(reason));
        }
        assert_eq!(keeper.take(&desired(3, Some("{}"))), Taken::New);
        keeper.apply(desired(3, Some("{}")));
        assert_eq!(keeper.state(), PolicyState::Invalid);
        assert!(keeper.error().unwrap().starts_with("the policy admits nobody: AttestationPolicy: missing field"));
        // Nothing measured: upstream let everything pass by such a policy.
        let empty = r#"{"bank":"sha256","pcrs":{},"lock":{"pcr":15},"endorsement":{"require":"either"}}"#;
        keeper.apply(desired(4, Some(empty)));
        assert!(keeper.error().unwrap().contains("no register is enforced"));
        assert!(keeper.verifier().policy().error().is_some());
    }
}
