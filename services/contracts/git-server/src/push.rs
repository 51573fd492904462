//! The Device of a push under way: it is born with the push, and dies with its end. The cluster manager answers by DCMDs to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use sparkplug::host::HostRequest;
use sparkplug::typed::{Form, form};
use sparkplug::{DataType, EdgeNodeDescriptor, Metric, Value};
use uuid::Uuid;

use crate::desired::{REFS_MAX, is_object, is_ref};
use crate::names;
use crate::pack::PackPart;

/// Most bytes of a sealed credential.
pub const CREDENTIAL_BYTES_MAX: usize = 16 * 1024;
/// Characters of a reason that travel.
const REASON_CHARACTERS_MAX: usize = 1_000;

/// A ref that a push changes: its object before and after. None: there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefChange {
    /// Before the push.
    pub before: Option<String>,
    /// And after it.
    pub after: Option<String>,
}

/// The refs of a push as a DataSet: `-` stands for no object.
struct Changes;

impl form::Columns for Changes {
    const KEY: &'static str = "Ref";
    const VALUE: &'static str = "Commits";
}

const NONE: &str = "-";

impl Form<BTreeMap<String, RefChange>> for Changes {
    const DATATYPE: DataType = DataType::DataSet;

    fn write(changes: &BTreeMap<String, RefChange>) -> Option<Value> {
        let text = |change: &RefChange| {
            let [before, after] = [&change.before, &change.after].map(|id| id.as_deref().unwrap_or(NONE));
            format!("{before} {after}")
        };
        let rows: BTreeMap<String, String> =
            changes.iter().map(|(name, change)| (name.clone(), text(change))).collect();
        form::Table::<Self>::write(&rows)
    }

    fn read(value: Option<&Value>) -> Result<BTreeMap<String, RefChange>, String> {
        let rows: BTreeMap<String, String> = form::Table::<Self>::read(value)?;
        if rows.len() > REFS_MAX {
            return Err("has more than 1000 rows".to_owned());
        }
        let object = |text: &str| match text {
            NONE => Ok(None),
            text if is_object(text) => Ok(Some(text.to_owned())),
            _ => Err("has a cell that is not two objects of git".to_owned()),
        };
        let change = |(name, commits): (String, String)| {
            if !is_ref(&name) {
                return Err("has a name that is not a branch's or tag's".to_owned());
            }
            let (before, after) = commits.split_once(' ').ok_or("has a cell that is not two objects of git")?;
            Ok((name, RefChange { before: object(before)?, after: object(after)? }))
        };
        rows.into_iter().map(change).collect()
    }
}

/// Bytes of a limited size.
struct Credential;

impl Form<Arc<[u8]>> for Credential {
    const DATATYPE: DataType = DataType::Bytes;

    fn write(field: &Arc<[u8]>) -> Option<Value> {
        Some(Value::Bytes(Arc::clone(field)))
    }

    fn read(value: Option<&Value>) -> Result<Arc<[u8]>, String> {
        match value {
            Some(Value::Bytes(bytes)) if bytes.len() <= CREDENTIAL_BYTES_MAX => Ok(Arc::clone(bytes)),
            Some(Value::Bytes(_)) => Err(format!("has more than {CREDENTIAL_BYTES_MAX} bytes")),
            _ => Err("must be Bytes".to_owned()),
        }
    }
}

/// The same for a part, which has its own limit.
struct Data;

impl Form<Arc<[u8]>> for Data {
    const DATATYPE: DataType = DataType::Bytes;

    fn write(field: &Arc<[u8]>) -> Option<Value> {
        Some(Value::Bytes(Arc::clone(field)))
    }

    fn read(value: Option<&Value>) -> Result<Arc<[u8]>, String> {
        match value {
            Some(Value::Bytes(bytes)) if bytes.len() <= crate::pack::PART_BYTES_MAX => Ok(Arc::clone(bytes)),
            Some(Value::Bytes(_)) => Err(format!("has more than {} bytes", crate::pack::PART_BYTES_MAX)),
            _ => Err("must be Bytes".to_owned()),
        }
    }
}

/// A push under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushDevice {
    /// Why it does not go on, for people; None: it does.
    pub reason: Option<String>,
    /// Since when it is under way, UTC ms.
    pub since: u64,
    /// Into which repository.
    pub repository: Uuid,
    /// Address of the client.
    pub from: String,
    /// The credential that the user presented, sealed to the cluster manager's key, for this push alone.
    pub credential: Arc<[u8]>,
    /// What it changes.
    pub refs: BTreeMap<String, RefChange>,
    /// Digest of the pack of what is new; empty: nothing is, as when a branch is deleted.
    pub digest: String,
    /// Bytes of that pack.
    pub total: u64,
    /// Where the part begins that is being sent.
    pub offset: u64,
    /// That part.
    pub data: Arc<[u8]>,
    /// Grows when the part is sent again because no answer has come. Values that stay the same are not sent.
    pub attempt: u64,
}

impl Default for PushDevice {
    fn default() -> Self {
        let PackPart { digest, total, offset, data } = PackPart::default();
        let (repository, from, credential, refs) = (Uuid::nil(), String::new(), Arc::from([]), BTreeMap::new());
        Self { reason: None, since: 0, repository, from, credential, refs, digest, total, offset, data, attempt: 0 }
    }
}

sparkplug::typed_metrics! {
    PushDevice {
        /// sending (parts of the pack are still to be sent) or deciding (the cluster manager has to say whether it is accepted).
        (|push| push.state().into()) => names::STATUS_STATE,
        /// Why it does not go on; null: it does.
        reason => names::STATUS_REASON,
        /// Since when it is under way.
        #[optional]
        since as form::DateTime => names::STATUS_SINCE,
        /// Repository that is pushed to.
        repository as form::Uuid => names::PUSH_REPOSITORY,
        /// Address of the client.
        from => names::PUSH_FROM,
        /// Credential of the user, sealed to the cluster manager's key for this push alone.
        credential as Credential => names::PUSH_CREDENTIAL,
        /// Refs, with their commits before and after.
        refs as Changes => names::PUSH_REFS,
        /// Digest of the pack of what is new; empty: nothing is.
        digest => names::PACK_DIGEST,
        /// Bytes of that pack.
        #[properties("engUnit" = "B")]
        total as form::Count => names::PACK_BYTES,
        /// Where the part begins that is being sent.
        #[properties("engUnit" = "B")]
        offset as form::Count => names::PACK_OFFSET,
        /// The part that is being sent.
        data as Data => names::PACK_DATA,
        /// Grows when the part is sent again because no answer has come.
        #[optional]
        attempt as form::Count => names::PUSH_ATTEMPT,
    }
}

impl PushDevice {
    /// `sending` or `deciding`.
    #[must_use]
    pub fn state(&self) -> &'static str {
        let end = self.offset.saturating_add(self.data.len() as u64);
        if end < self.total { "sending" } else { "deciding" }
    }

    /// The part that it holds; None: the push has no pack.
    #[must_use]
    pub fn part(&self) -> Option<PackPart> {
        let Self { digest, total, offset, data, .. } = self;
        let part = PackPart { digest: digest.clone(), total: *total, offset: *offset, data: Arc::clone(data) };
        Some(part).filter(|part| !part.digest.is_empty())
    }

    /// Sends another part.
    pub fn set_part(&mut self, part: PackPart) {
        let PackPart { digest, total, offset, data } = part;
        (self.digest, self.total, self.offset, self.data) = (digest, total, offset, data);
    }
}

/// The answer to a push: how much has arrived, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushAnswer {
    /// Bytes of the pack that have arrived.
    pub received: u64,
    /// What became of the push; Err: why it is refused, for people. None: that is not decided yet.
    pub outcome: Option<Result<(), String>>,
}

impl PushAnswer {
    /// The metrics of the DCMD. Long reasons are cut.
    #[must_use]
    pub fn to_metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![Metric::new(names::ANSWER_RECEIVED, self.received)];
        if let Some(outcome) = &self.outcome {
            metrics.push(Metric::new(names::ANSWER_ACCEPTED, outcome.is_ok()));
            if let Err(reason) = outcome {
                let reason: String = reason.chars().take(REASON_CHARACTERS_MAX).collect();
                metrics.push(Metric::new(names::ANSWER_REASON, reason));
            }
        }
        metrics
    }

    /// From the metrics of a DCMD. None: it is not an answer.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    #[must_use]
    pub fn from_metrics(metrics: &[Metric]) -> Option<Result<Self, String>> {
        let find = |name: &str| metrics.iter().find(|metric| &*metric.name == name);
        let received = find(names::ANSWER_RECEIVED)?;
        let received: Result<u64, String> = <form::Count as Form<u64>>::read(received.value.as_ref());
        Some(received.map_err(|rule| format!("{} {rule}", names::ANSWER_RECEIVED)).and_then(|received| {
            let outcome = match find(names::ANSWER_ACCEPTED).map(|metric| (metric.as_bool(), &metric.value)) {
                None | Some((None, None)) => None,
                Some((Some(true), _)) => Some(Ok(())),
                Some((Some(false), _)) => {
                    let reason = find(names::ANSWER_REASON).and_then(|metric| metric.as_str()).unwrap_or_default();
                    Some(Err(reason.chars().take(REASON_CHARACTERS_MAX).collect()))
                }
                Some((None, Some(_))) => return Err(format!("{} must be a Boolean", names::ANSWER_ACCEPTED)),
            };
            Ok(Self { received, outcome })
        }))
    }

    /// The request to a Host Application that sends it to the git server.
    #[must_use]
    pub fn to_request(&self, node: EdgeNodeDescriptor, push: Uuid) -> HostRequest {
        HostRequest::Command { node, device: Some(names::push_device(push)), metrics: self.to_metrics() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::TypedMetrics;

    fn push() -> PushDevice {
        let commit = |digit: &str| Some(digit.repeat(40));
        PushDevice {
            reason: Some("the cluster manager is away".to_owned()),
            since: 5,
            repository: Uuid::from_u128(7),
            from: "10.0.0.7".to_owned(),
            credential: Arc::from([1, 2, 3]),
            refs: [
                ("refs/heads/main".to_owned(), RefChange { before: commit("a"), after: commit("b") }),
                ("refs/heads/new".to_owned(), RefChange { before: None, after: commit("c") }),
                ("refs/heads/old".to_owned(), RefChange { before: commit("d"), after: None }),
            ]
            .into(),
            digest: "ab".repeat(32),
            total: 10,
            offset: 4,
            data: Arc::from([5, 6]),
            attempt: 2,
        }
    }

    #[test]
    fn a_push_and_its_part_travel() {
        let mut push = push();
        assert_eq!(PushDevice::from_metrics(&push.to_metrics()), Ok(push.clone()));
        let part = PackPart { offset: 6, data: Arc::from([7]), ..push.part().unwrap() };
        push.set_part(part.clone());
        assert_eq!((push.part(), push.offset, push.state()), (Some(part), 6, "sending"));
        assert_eq!(PushDevice { total: 7, ..push.clone() }.state(), "deciding");
        assert_eq!(PushDevice::default().part(), None);
        assert!(!format!("{push:?}").is_empty());
    }

    #[test]
    fn what_is_too_large_or_not_a_ref_is_refused() {
        let with = |change: fn(&mut PushDevice)| {
            let mut push = push();
            change(&mut push);
            PushDevice::from_metrics(&push.to_metrics()).unwrap_err().to_string()
        };
        let credential = with(|push| push.credential = vec![0; CREDENTIAL_BYTES_MAX + 1].into());
        assert!(credential.contains("\"Push/Credential\" has more"), "{credential}");
        let data = with(|push| push.data = vec![0; crate::pack::PART_BYTES_MAX + 1].into());
        assert!(data.contains("\"Pack/Data\" has more"), "{data}");
        let none = RefChange { before: None, after: None };
        let refs = with(|push| drop(push.refs.insert("HEAD".to_owned(), RefChange { before: None, after: None })));
        assert!(refs.contains("\"Push/Refs\" has a name"), "{refs}");
        let mut push = push();
        push.refs.insert("refs/heads/x".to_owned(), RefChange { after: Some("x".to_owned()), ..none });
        assert!(PushDevice::from_metrics(&push.to_metrics()).unwrap_err().to_string().contains("two objects"));
    }

    #[test]
    fn an_answer_travels() {
        for outcome in [None, Some(Ok(())), Some(Err("by-hand/ only".to_owned()))] {
            let answer = PushAnswer { received: 9, outcome };
            assert_eq!(PushAnswer::from_metrics(&answer.to_metrics()), Some(Ok(answer)));
        }
        let long = PushAnswer { received: 0, outcome: Some(Err("ä".repeat(2000))) };
        let read = PushAnswer::from_metrics(&long.to_metrics()).unwrap().unwrap();
        assert_eq!(read.outcome.unwrap().unwrap_err().chars().count(), REASON_CHARACTERS_MAX);
        assert_eq!(PushAnswer::from_metrics(&[]), None);
        let text = [Metric::new(names::ANSWER_RECEIVED, "9")];
        assert!(PushAnswer::from_metrics(&text).unwrap().unwrap_err().starts_with("Answer/Received"));
        let number = [Metric::new(names::ANSWER_RECEIVED, 9_u64), Metric::new(names::ANSWER_ACCEPTED, 1_u32)];
        assert_eq!(PushAnswer::from_metrics(&number), Some(Err("Answer/Accepted must be a Boolean".to_owned())));
    }
}
