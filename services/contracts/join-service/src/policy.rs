//! The attestation policy as it is sent to Join, both ways: to a Host Application's request, and from an Edge Node's command event.
//!
//! Reading checks shape, size and digest. This module does not know the rules of a policy: one that breaks a rule is taken over too, and admits no host.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sparkplug::host::HostRequest;
use sparkplug::replication::{Origin, OriginError, Point, Stamp};
use sparkplug::{EdgeNodeDescriptor, Metric};

use crate::names::DESIRED_POLICY;

/// The most bytes of a policy: it has to fit into one object of Kubernetes.
pub const POLICY_BYTES_MAX: usize = 900 * 1024;

/// The policy that a cluster is to be judged by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DesiredPolicy {
    /// Grows with every change; at least 1.
    pub version: u64,
    /// Revision of the entry in ConfigDB; 0 without an entry. Every verdict carries it.
    pub revision: u64,
    /// The `AttestationPolicy` entry as JSON; None: the cluster has none.
    pub entry: Option<String>,
    /// State of the store that it was derived from; None: the sender does not say.
    pub origin: Option<Origin>,
    /// The last state, in that store, of the timeline that the receiver reported.
    pub follows: Option<Point>,
}

/// A command could not be used. It names the field and the rule; version and digest are what the sender finds in the report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {rule}")]
pub struct PolicyError {
    /// Path of the field, for example `Desired/Policy version`.
    pub field: String,
    /// The rule that it breaks.
    pub rule: String,
}

fn error(member: &str, rule: impl Into<String>) -> PolicyError {
    PolicyError { field: format!("{DESIRED_POLICY} {member}").trim_end().to_owned(), rule: rule.into() }
}

impl DesiredPolicy {
    /// Digest of revision and entry.
    #[must_use]
    pub fn digest(&self) -> PolicyDigest {
        let mut hash = Sha256::new();
        match &self.entry {
            Some(entry) => {
                hash.update(b"entry");
                hash.update(self.revision.to_be_bytes());
                hash.update(entry.as_bytes());
            }
            None => hash.update(b"none"),
        }
        PolicyDigest(hash.finalize().into())
    }

    /// As on the wire.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut value = json!({"version": self.version, "revision": self.revision, "digest": self.digest().to_string(), "policy": self.entry});
        if let Some(origin) = self.origin {
            value["origin"] = json!(origin.to_string());
        }
        if let Some(follows) = self.follows {
            value["follows"] = json!(follows.to_string());
        }
        value
    }

    /// What a receiver judges it by.
    #[must_use]
    pub fn stamp(&self) -> Stamp<PolicyDigest> {
        let Self { origin, follows, version, .. } = *self;
        Stamp { origin, follows, decided_for: None, version, digest: self.digest() }
    }

    /// From the wire. The digest must be that of revision and entry.
    ///
    /// # Errors
    /// [`PolicyError`] names the field and the rule.
    pub fn from_json(text: &str) -> Result<Self, PolicyError> {
        // The entry is a JSON text of its own, whose quotes are escaped.
        if text.len() > 2 * POLICY_BYTES_MAX {
            return Err(error("", format!("has {} bytes; at most {} are allowed", text.len(), 2 * POLICY_BYTES_MAX)));
        }
        let mut document: Value = serde_json::from_str(text).map_err(|e| error("", format!("is not JSON: {e}")))?;
        let number = |member: &str| document.get(member).and_then(Value::as_u64);
        let version = number("version").filter(|version| *version > 0);
        let version = version.ok_or_else(|| error("version", "must be an integer of at least 1"))?;
        let revision = number("revision").ok_or_else(|| error("revision", "must be an integer of at least 0"))?;
        let digest = document.get("digest").and_then(Value::as_str).unwrap_or_default();
        let digest: PolicyDigest = digest.parse().map_err(|e: PolicyDigestError| error("digest", e.to_string()))?;
        let entry = match document.get_mut("policy").map(Value::take) {
            Some(Value::String(entry)) if entry.len() > POLICY_BYTES_MAX => {
                let rule = format!("has {} bytes; at most {POLICY_BYTES_MAX} are allowed", entry.len());
                return Err(error("policy", rule));
            }
            Some(Value::String(entry)) => Some(entry),
            Some(Value::Null) => None,
            _ => return Err(error("policy", "must be a text that holds JSON, or null")),
        };
        let text_of = |member: &str| document.get(member).map(|value| value.as_str().unwrap_or_default());
        let rule = |member: &'static str| move |rule: OriginError| error(member, rule.to_string());
        let origin = text_of("origin").map(str::parse).transpose().map_err(rule("origin"))?;
        let follows = text_of("follows").map(str::parse).transpose().map_err(rule("follows"))?;
        let desired = Self { version, revision, entry, origin, follows };
        if desired.digest() != digest {
            let rule =
                format!("is not that of the policy, which is {}; send the command again whole", desired.digest());
            return Err(error("digest", rule));
        }
        Ok(desired)
    }

    /// The request to a Host Application that sends it.
    #[must_use]
    pub fn to_request(&self, join: EdgeNodeDescriptor) -> HostRequest {
        let metrics = vec![Metric::new(DESIRED_POLICY, self.to_json().to_string())];
        HostRequest::Command { node: join, device: None, metrics }
    }

    /// Reads the metrics of a node command. None: nothing in it is a policy.
    ///
    /// # Errors
    /// [`PolicyError`] names the field and the rule.
    pub fn from_metrics(metrics: &[Metric]) -> Result<Option<Self>, PolicyError> {
        let Some(metric) = metrics.iter().find(|metric| &*metric.name == DESIRED_POLICY) else {
            return Ok(None);
        };
        let text = metric.as_str().ok_or_else(|| error("", "must be a String that holds JSON"))?;
        Self::from_json(text).map(Some)
    }
}

/// Digest of a policy; on the wire 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyDigest([u8; 32]);

/// The text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be the 64 lower-case hex digits of a SHA-256 digest")]
pub struct PolicyDigestError;

impl PolicyDigest {
    /// Its first eight bytes: a number that no other policy has.
    #[must_use]
    pub const fn number(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl FromStr for PolicyDigest {
    type Err = PolicyDigestError;

    fn from_str(text: &str) -> Result<Self, PolicyDigestError> {
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(PolicyDigestError);
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| PolicyDigestError)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for PolicyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for PolicyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a policy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum PolicyState {
    /// None was ever sent: no host is admitted.
    #[default]
    Unknown,
    /// The cluster has no entry: no host is admitted.
    None,
    /// Hosts are judged by it.
    InForce,
    /// It breaks a rule: no host is admitted.
    Invalid,
}

impl PolicyState {
    /// As on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::None => "none",
            Self::InForce => "in-force",
            Self::Invalid => "invalid",
        }
    }
}

impl fmt::Display for PolicyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not one of the states.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be unknown, none, in-force or invalid")]
pub struct UnknownPolicyState;

impl FromStr for PolicyState {
    type Err = UnknownPolicyState;

    fn from_str(text: &str) -> Result<Self, UnknownPolicyState> {
        let states = [Self::Unknown, Self::None, Self::InForce, Self::Invalid];
        states.into_iter().find(|state| state.as_str() == text).ok_or(UnknownPolicyState)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::GroupId;

    fn desired() -> DesiredPolicy {
        DesiredPolicy {
            version: 3,
            revision: 17,
            entry: Some(r#"{"bank":"sha256"}"#.to_owned()),
            origin: "00000000-0000-0000-0000-000000000007/2/00000000000000ab/12".parse().ok(),
            follows: "00000000000000aa/9".parse().ok(),
        }
    }

    #[test]
    fn what_is_sent_is_what_is_read() {
        let none = DesiredPolicy { version: 4, ..DesiredPolicy::default() };
        for desired in [desired(), none] {
            let join = crate::names::join_node(GroupId::new("ACME-Cell").unwrap());
            let HostRequest::Command { device: None, metrics, .. } = desired.to_request(join) else { panic!() };
            assert_eq!(DesiredPolicy::from_metrics(&metrics), Ok(Some(desired)));
        }
        assert_eq!(DesiredPolicy::from_metrics(&[Metric::new("Other", true)]), Ok(None));
    }

    #[test]
    fn a_command_names_the_field_at_fault() {
        let good = desired().to_json();
        let message = |member: &str, value: Value| {
            let mut bad = good.clone();
            bad[member] = value;
            DesiredPolicy::from_json(&bad.to_string()).unwrap_err().to_string()
        };
        assert_eq!(message("version", json!(0)), "Desired/Policy version must be an integer of at least 1");
        assert_eq!(message("revision", json!("1")), "Desired/Policy revision must be an integer of at least 0");
        assert!(message("origin", json!("x")).starts_with("Desired/Policy origin must be STORE/EPOCH"));
        assert!(message("follows", json!(1)).starts_with("Desired/Policy follows must be TIMELINE"));
        assert!(message("digest", json!("ab")).starts_with("Desired/Policy digest must be the 64"));
        assert!(message("revision", json!(18)).starts_with("Desired/Policy digest is not that of the policy"));
        assert!(message("policy", json!({})).starts_with("Desired/Policy policy must be a text"));
        let long = DesiredPolicy { entry: Some("x".repeat(POLICY_BYTES_MAX + 1)), ..desired() };
        let error = DesiredPolicy::from_json(&long.to_json().to_string()).unwrap_err();
        assert!(error.to_string().starts_with("Desired/Policy policy has 921601 bytes"), "{error}");
        assert!(DesiredPolicy::from_json("{").unwrap_err().to_string().starts_with("Desired/Policy is not JSON"));
        let error = DesiredPolicy::from_metrics(&[Metric::new(DESIRED_POLICY, 1_u64)]).unwrap_err();
        assert_eq!(error.to_string(), "Desired/Policy must be a String that holds JSON");
    }

    #[test]
    fn the_digest_is_of_revision_and_entry() {
        let none = |revision| DesiredPolicy { version: 1, revision, ..DesiredPolicy::default() }.digest();
        assert_eq!(none(0), none(5), "without an entry there is no revision");
        assert_eq!(desired().digest(), DesiredPolicy { version: 9, ..desired() }.digest());
        assert_ne!(desired().digest(), DesiredPolicy { revision: 18, ..desired() }.digest());
        assert_eq!(desired().digest().to_string().parse(), Ok(desired().digest()));
    }

    #[test]
    fn states_go_both_ways() {
        for state in [PolicyState::Unknown, PolicyState::None, PolicyState::InForce, PolicyState::Invalid] {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert!("applied".parse::<PolicyState>().is_err());
    }
}
