//! What Sync is sent: the index of desired deployments, and the manifests of one. Both ways: to a Host Application's request,
//! and from an Edge Node's command event.
//!
//! Reading checks the shape and the digest. Which kinds and namespaces a manifest may have is not known here.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sparkplug::host::HostRequest;
use sparkplug::replication::{Origin, Point, Stamp};
use sparkplug::{DeviceId, EdgeNodeDescriptor, Metric};
use uuid::Uuid;

use crate::digest::Digest;
use crate::entries::Entries;
use crate::names::{DESIRED_INDEX, DESIRED_MANIFESTS, DESIRED_SOURCE, RECOVER_ENTRIES, SyncDevice};
pub use crate::provenance::CommandError;
use crate::provenance::{origin_of, put_origin};
use crate::source::DesiredSource;

/// What the index says of one deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DesiredDeployment {
    /// Version of its manifests; grows with every change of them.
    pub version: u64,
    /// Digest of its manifests.
    pub digest: Digest,
}

/// The complete set of desired deployments. What it does not list is to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredIndex {
    /// Grows with every change; at least 1.
    pub version: u64,
    /// Every deployment.
    pub deployments: BTreeMap<Uuid, DesiredDeployment>,
    /// State of the store that it was derived from; None: the sender does not say.
    pub origin: Option<Origin>,
    /// The last state, in that store, of the timeline that the receiver reported.
    pub follows: Option<Point>,
    /// Digest of the index that the receiver had accepted when an operator released it to the epoch of `origin`; None: the decision does not say, or there was none.
    pub decided_for: Option<Digest>,
    /// Entries that the cluster itself is made from; the digest does not depend on them.
    pub entries: Option<Entries>,
    /// Names of deployments that the receiver has not named yet; the digest does not depend on them.
    pub names: BTreeMap<Uuid, String>,
}

/// The manifests of one deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredManifests {
    /// As in the index; at least 1.
    pub version: u64,
    /// Name for people.
    pub name: String,
    /// Kubernetes objects, to be applied in this order. Never null.
    pub manifests: Vec<Value>,
    /// Entries that they are made from; the digest does not depend on them.
    pub entries: Option<Entries>,
    digest: Digest,
}

/// A command that Sync understands.
#[derive(Debug, Clone, PartialEq)]
pub enum SyncCommand {
    /// NCMD [`DESIRED_INDEX`].
    Index(DesiredIndex),
    /// NCMD [`RECOVER_ENTRIES`].
    GiveEntries(bool),
    /// NCMD [`DESIRED_SOURCE`].
    Source(DesiredSource),
    /// DCMD [`DESIRED_MANIFESTS`] to the device of a deployment.
    Manifests {
        /// Which deployment.
        deployment: Uuid,
        /// Its manifests.
        desired: DesiredManifests,
    },
}

impl DesiredIndex {
    /// Digest of the canonical map of deployments.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.deployments_json())
    }

    /// As on the wire.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut value = json!({"version": self.version, "digest": self.digest().to_string(), "deployments": self.deployments_json()});
        put_origin(&mut value, self.origin, self.follows);
        if let Some(digest) = self.decided_for {
            value["decidedFor"] = json!(digest.to_string());
        }
        put_entries(&mut value, self.entries.as_ref());
        for (uuid, name) in self.names.iter().filter(|(uuid, _)| self.deployments.contains_key(uuid)) {
            value["deployments"][uuid.to_string()]["name"] = json!(name);
        }
        value
    }

    /// What a receiver judges it by.
    #[must_use]
    pub fn stamp(&self) -> Stamp<Digest> {
        let Self { origin, follows, decided_for, version, .. } = *self;
        Stamp { origin, follows, decided_for, version, digest: self.digest() }
    }

    fn deployments_json(&self) -> Value {
        let entry = |entry: &DesiredDeployment| json!({"version": entry.version, "digest": entry.digest.to_string()});
        Value::Object(self.deployments.iter().map(|(uuid, deployment)| (uuid.to_string(), entry(deployment))).collect())
    }

    /// From the wire. The digest must be that of the deployments.
    ///
    /// # Errors
    /// [`CommandError`] names the field and the rule.
    pub fn from_json(text: &str) -> Result<Self, CommandError> {
        let document = Document::parse(DESIRED_INDEX, text)?;
        let listed = match document.members.get("deployments") {
            Some(Value::Object(listed)) => listed,
            Some(_) => return Err(document.error("deployments", "must be an object of deployments by UUID")),
            None => return Err(document.error("deployments", "is missing")),
        };
        let (mut deployments, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (key, value) in listed {
            let at = |member: &str| format!("deployments.{key}{member}");
            let uuid = Uuid::try_parse(key).ok().filter(|uuid| uuid.to_string() == *key);
            let uuid = uuid.ok_or_else(|| document.error(&at(""), "is not a lower-case hyphenated UUID"))?;
            let version = value.get("version").and_then(Value::as_u64).filter(|version| *version > 0);
            let version = version.ok_or_else(|| document.error(&at(".version"), "must be an integer of at least 1"))?;
            let digest = value.get("digest").and_then(Value::as_str).unwrap_or_default();
            let digest = digest.parse().map_err(|e| document.error(&at(".digest"), e))?;
            deployments.insert(uuid, DesiredDeployment { version, digest });
            if let Some(name) = value.get("name") {
                let name = name.as_str().ok_or_else(|| document.error(&at(".name"), "must be a text"))?;
                names.insert(uuid, name.to_owned());
            }
        }
        let (origin, follows) = origin_of(&document.members).map_err(|(member, rule)| document.error(member, rule))?;
        let entries = document.entries()?;
        let decided_for = document.members.get("decidedFor").map(|text| text.as_str().unwrap_or_default().parse());
        let decided_for = decided_for.transpose().map_err(|rule| document.error("decidedFor", rule))?;
        let index = Self { version: document.version, deployments, origin, follows, decided_for, entries, names };
        document.check_digest(index.digest(), "deployments")?;
        Ok(index)
    }

    /// The request to a Host Application that sends it.
    #[must_use]
    pub fn to_request(&self, sync: EdgeNodeDescriptor) -> HostRequest {
        let metrics = vec![Metric::new(DESIRED_INDEX, self.to_json().to_string())];
        HostRequest::Command { node: sync, device: None, metrics }
    }
}

impl DesiredManifests {
    /// Manifests with the digest that belongs to them.
    #[must_use]
    pub fn new(version: u64, name: impl Into<String>, manifests: Vec<Value>) -> Self {
        let digest = Digest::of_manifests(&manifests);
        Self { version, name: name.into(), manifests, entries: None, digest }
    }

    /// Digest of the manifests.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// What the index says of them.
    #[must_use]
    pub const fn entry(&self) -> DesiredDeployment {
        DesiredDeployment { version: self.version, digest: self.digest }
    }

    /// As on the wire.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut value = json!({"version": self.version, "digest": self.digest.to_string(), "name": self.name, "manifests": self.manifests});
        put_entries(&mut value, self.entries.as_ref());
        value
    }

    /// From the wire, with the deployment that they are of. The digest must be that of the manifests.
    ///
    /// # Errors
    /// [`CommandError`] names the field and the rule.
    pub fn from_json(text: &str) -> Result<(Uuid, Self), CommandError> {
        let mut document = Document::parse(DESIRED_MANIFESTS, text)?;
        let deployment = document.deployment.ok_or_else(|| document.error("deployment", "must be a UUID"))?;
        let name = document.members.get("name").and_then(Value::as_str).map(str::to_owned);
        let name = name.ok_or_else(|| document.error("name", "must be a text"))?;
        let manifests = match document.members.get_mut("manifests").map(Value::take) {
            Some(Value::Array(manifests)) => manifests,
            Some(_) => return Err(document.error("manifests", "must be an array of Kubernetes objects")),
            None => return Err(document.error("manifests", "is missing")),
        };
        if let Some(position) = manifests.iter().position(|manifest| !manifest.is_object()) {
            return Err(document.error(&format!("manifests[{position}]"), "must be a Kubernetes object"));
        }
        let desired = Self { entries: document.entries()?, ..Self::new(document.version, name, manifests) };
        document.check_digest(desired.digest, "manifests")?;
        Ok((deployment, desired))
    }

    /// The request to a Host Application that sends them to `device`, that of `deployment`.
    #[must_use]
    pub fn to_request(&self, sync: EdgeNodeDescriptor, device: DeviceId, deployment: Uuid) -> HostRequest {
        let mut value = self.to_json();
        value["deployment"] = json!(deployment.to_string());
        let metrics = vec![Metric::new(DESIRED_MANIFESTS, value.to_string())];
        HostRequest::Command { node: sync, device: Some(device), metrics }
    }
}

impl SyncCommand {
    /// Reads the device and metrics of a `NodeEvent::Command`. None: nothing in it is for Sync.
    ///
    /// # Errors
    /// [`CommandError`] names the field and the rule.
    pub fn from_event(device: Option<&DeviceId>, metrics: &[Metric]) -> Result<Option<Self>, CommandError> {
        let target = device.map(SyncDevice::parse);
        match target {
            None => {
                let give = metrics.iter().find(|metric| &*metric.name == RECOVER_ENTRIES);
                if let Some(give) = give.and_then(Metric::as_bool) {
                    return Ok(Some(Self::GiveEntries(give)));
                }
                let Some(metric) = metrics.iter().find(|metric| &*metric.name == DESIRED_INDEX) else {
                    let Some(metric) = metrics.iter().find(|metric| &*metric.name == DESIRED_SOURCE) else {
                        return Ok(None);
                    };
                    return DesiredSource::from_json(text_of(metric)?).map(Self::Source).map(Some);
                };
                DesiredIndex::from_json(text_of(metric)?).map(Self::Index).map(Some)
            }
            Some(Some(SyncDevice::Deployment(_))) => {
                let Some(metric) = metrics.iter().find(|metric| &*metric.name == DESIRED_MANIFESTS) else {
                    return Ok(None);
                };
                let (deployment, desired) = DesiredManifests::from_json(text_of(metric)?)?;
                Ok(Some(Self::Manifests { deployment, desired }))
            }
            Some(_) => Ok(None),
        }
    }
}

fn put_entries(value: &mut Value, entries: Option<&Entries>) {
    if let Some(text) = entries.and_then(Entries::to_text) {
        value["entries"] = json!(text);
    }
}

fn text_of(metric: &Metric) -> Result<&str, CommandError> {
    metric.as_str().ok_or_else(|| CommandError {
        deployment: None,
        version: None,
        digest: None,
        field: metric.name.to_string(),
        rule: "must be a String that holds JSON".to_owned(),
    })
}

/// What both commands have: an object with a version and a digest.
struct Document {
    metric: &'static str,
    deployment: Option<Uuid>,
    members: Map<String, Value>,
    version: u64,
    digest: Digest,
}

impl Document {
    fn parse(metric: &'static str, text: &str) -> Result<Self, CommandError> {
        let error = |deployment: Option<Uuid>, field: String, rule: String| CommandError {
            deployment,
            version: None,
            digest: None,
            field,
            rule,
        };
        let members = match serde_json::from_str(text) {
            Ok(Value::Object(members)) => members,
            Ok(_) => return Err(error(None, metric.to_owned(), "must be a JSON object".to_owned())),
            Err(e) => return Err(error(None, metric.to_owned(), format!("is not JSON: {e}"))),
        };
        let deployment = members.get("deployment").and_then(Value::as_str).unwrap_or_default();
        let deployment = Uuid::try_parse(deployment).ok();
        let error = |field: String, rule: String| error(deployment, field, rule);
        let digest = members.get("digest").and_then(Value::as_str).unwrap_or_default().parse::<Digest>();
        let digest = digest.map_err(|e| error(format!("{metric} digest"), e.to_string()))?;
        let version = members.get("version").and_then(Value::as_u64).filter(|version| *version > 0);
        let version = version.ok_or_else(|| CommandError {
            digest: Some(digest),
            ..error(format!("{metric} version"), "must be an integer of at least 1".to_owned())
        })?;
        Ok(Self { metric, deployment, members, version, digest })
    }

    fn error(&self, member: &str, rule: impl ToString) -> CommandError {
        CommandError {
            deployment: self.deployment,
            version: Some(self.version),
            digest: Some(self.digest),
            field: format!("{} {member}", self.metric),
            rule: rule.to_string(),
        }
    }

    fn entries(&self) -> Result<Option<Entries>, CommandError> {
        let read = |text: &Value| Entries::from_text(text.as_str().unwrap_or_default());
        self.members.get("entries").map(read).transpose().map_err(|rule| self.error("entries", rule))
    }

    fn check_digest(&self, digest: Digest, of: &str) -> Result<(), CommandError> {
        if digest == self.digest {
            return Ok(());
        }
        Err(self.error("digest", format!("is not that of the {of}, which is {digest}; send the command again whole")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::GroupId;

    fn manifests() -> DesiredManifests {
        DesiredManifests::new(
            3,
            "Robot_Cell_3",
            vec![json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"n": 0.1}})],
        )
    }

    fn index() -> DesiredIndex {
        let other = DesiredManifests::new(1, "x", vec![]).entry();
        DesiredIndex {
            version: 9,
            deployments: [(Uuid::from_u128(1), manifests().entry()), (Uuid::from_u128(2), other)].into(),
            origin: "00000000-0000-0000-0000-000000000007/2/00000000000000ab/12".parse().ok(),
            follows: "00000000000000aa/9".parse().ok(),
            decided_for: Some(manifests().digest()),
            entries: Some(Entries([("EdgeCluster".to_owned(), json!({"name": "Cell"}))].into())),
            names: [(Uuid::from_u128(1), "Robot_Cell_3".to_owned())].into(),
        }
    }

    fn sync() -> EdgeNodeDescriptor {
        crate::names::sync_node(GroupId::new("ACME-Cell").unwrap())
    }

    fn received(request: HostRequest) -> Result<Option<SyncCommand>, CommandError> {
        let HostRequest::Command { node, device, metrics } = request else { panic!("a command") };
        assert_eq!(node, sync());
        assert_eq!(metrics.len(), 1);
        SyncCommand::from_event(device.as_ref(), &metrics)
    }

    #[test]
    fn what_is_sent_is_what_is_read() {
        assert_eq!(received(index().to_request(sync())), Ok(Some(SyncCommand::Index(index()))));
        let deployment = Uuid::from_u128(1);
        let wanted = SyncCommand::Manifests { deployment, desired: manifests() };
        let device = SyncDevice::deployment_id(deployment, "Robot_Cell_3");
        assert_eq!(received(manifests().to_request(sync(), device, deployment)), Ok(Some(wanted)));
    }

    #[test]
    fn the_digest_of_an_index_does_not_depend_on_names_and_names_of_what_it_does_not_list_stay_away() {
        let named = DesiredIndex { names: [(Uuid::from_u128(9), "other".to_owned())].into(), ..index() };
        assert_eq!(named.digest(), index().digest());
        assert_eq!(
            DesiredIndex::from_json(&named.to_json().to_string()),
            Ok(DesiredIndex { names: BTreeMap::new(), ..index() })
        );
    }

    #[test]
    fn commands_for_others_are_left_alone() {
        let metrics = [Metric::new("Other", true)];
        let host = SyncDevice::Host("a".to_owned()).id().unwrap();
        let foreign = DeviceId::new("foreign").unwrap();
        let deployment = SyncDevice::deployment_id(Uuid::nil(), "");
        for device in [None, Some(&host), Some(&foreign), Some(&deployment)] {
            assert_eq!(SyncCommand::from_event(device, &metrics), Ok(None));
        }
        let to_host = [Metric::new(DESIRED_MANIFESTS, "{}")];
        assert_eq!(SyncCommand::from_event(Some(&host), &to_host), Ok(None));
    }

    #[test]
    fn an_index_names_the_field_at_fault() {
        let good = index().to_json();
        let cases: [(&str, Value, &str); 14] = [
            (
                "/deployments/00000000-0000-0000-0000-000000000001/name",
                json!(1),
                "Desired/Index deployments.00000000-0000-0000-0000-000000000001.name must be a text",
            ),
            ("/entries", json!("[]"), "Desired/Index entries must be a JSON object"),
            ("/origin", json!("x"), "Desired/Index origin must be STORE/EPOCH/TIMELINE/REVISION"),
            ("/decidedFor", json!("x"), "Desired/Index decidedFor must be the 64 lower-case hex digits"),
            ("/follows", json!(1), "Desired/Index follows must be TIMELINE/REVISION"),
            ("/version", json!(0), "Desired/Index version must be an integer of at least 1"),
            ("/version", json!("1"), "Desired/Index version must be an integer of at least 1"),
            ("/digest", json!("abc"), "Desired/Index digest must be the 64 lower-case hex digits of a SHA-256 digest"),
            ("/digest", json!("0".repeat(64)), "Desired/Index digest is not that of the deployments"),
            ("/deployments", json!([]), "Desired/Index deployments must be an object of deployments by UUID"),
            ("/deployments", json!({"x": {}}), "Desired/Index deployments.x is not a lower-case hyphenated UUID"),
            (
                "/deployments/00000000-0000-0000-0000-000000000001/version",
                json!(-1),
                "Desired/Index deployments.00000000-0000-0000-0000-000000000001.version must be",
            ),
            (
                "/deployments/00000000-0000-0000-0000-000000000001/digest",
                json!(1),
                "Desired/Index deployments.00000000-0000-0000-0000-000000000001.digest must be",
            ),
            (
                "/deployments/00000000-0000-0000-0000-000000000001/version",
                json!(4),
                "Desired/Index digest is not that of the deployments",
            ),
        ];
        for (pointer, value, message) in cases {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).unwrap() = value;
            let error = DesiredIndex::from_json(&bad.to_string()).unwrap_err();
            assert!(error.to_string().starts_with(message), "{error}");
            assert_eq!(error.deployment, None);
        }
        assert!(
            DesiredIndex::from_json("[]").unwrap_err().to_string().starts_with("Desired/Index must be a JSON object")
        );
        assert!(DesiredIndex::from_json("{").unwrap_err().to_string().starts_with("Desired/Index is not JSON"));
        assert_eq!(DesiredIndex::from_json(&good.to_string()), Ok(index()));
    }

    #[test]
    fn refused_manifests_report_the_version_and_the_digest_that_the_sender_waits_for() {
        let deployment = Uuid::from_u128(1);
        let mut good = manifests().to_json();
        assert!(
            DesiredManifests::from_json(&good.to_string())
                .unwrap_err()
                .to_string()
                .contains("deployment must be a UUID")
        );
        good["deployment"] = json!(deployment.to_string());
        let mut bad = good.clone();
        bad["manifests"][0]["data"]["n"] = json!(0.2);
        let error = DesiredManifests::from_json(&bad.to_string()).unwrap_err();
        assert_eq!(
            (error.deployment, error.version, error.digest),
            (Some(deployment), Some(3), Some(manifests().digest()))
        );
        assert!(error.to_string().starts_with("Desired/Manifests digest is not that of the manifests"), "{error}");
        for (member, value, message) in [
            ("name", json!(1), "Desired/Manifests name must be a text"),
            ("manifests", json!({}), "Desired/Manifests manifests must be an array"),
            ("manifests", json!([{}, 1]), "Desired/Manifests manifests[1] must be a Kubernetes object"),
        ] {
            let mut bad = good.clone();
            bad[member] = value;
            let error = DesiredManifests::from_json(&bad.to_string()).unwrap_err();
            assert!(error.to_string().starts_with(message), "{error}");
        }
    }

    #[test]
    fn a_command_that_is_not_text_is_refused_by_name() {
        let error = SyncCommand::from_event(None, &[Metric::new(DESIRED_INDEX, 1_u64)]).unwrap_err();
        assert_eq!(error.to_string(), "Desired/Index must be a String that holds JSON");
    }
}
