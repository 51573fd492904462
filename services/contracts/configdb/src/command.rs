//! Write and replay requests, to and from commands. Reading a command is total: whatever arrives is a request or an error that names the metric at fault.

use std::collections::{BTreeMap, BTreeSet};

use configdb_schema::Document;
use configdb_schema::address::Organisation;
use configdb_schema::application::{MEMBERSHIP_SLUG, REGISTRATION_SLUG};
use configdb_schema::known::service;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sparkplug::host::HostRequest;
use sparkplug::replication::Point;
use sparkplug::{DataType, DeviceId, EdgeNodeDescriptor, Metric};
use uuid::Uuid;

use crate::names;

/// How the values of a [`WriteRequest`] are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They replace the entries.
    #[default]
    Put,
    /// They are merge patches (RFC 7396) of the entries; an absent entry counts as `{}`.
    Patch,
}

/// What a request does to an object's registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RegistrationChange {
    /// Create the object, or see that it has this class and owner; a deleted object comes back.
    Register {
        /// Primary class.
        class: Uuid,
        /// Owner; None: Unowned, or as it is.
        owner: Option<Uuid>,
    },
    /// Mark the object deleted and remove its entries.
    Delete,
}

/// Which direct relations a request replaces; what is None stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MembershipChange {
    /// Classes to be a direct member of. The primary class need not be named and stays.
    #[serde(default, rename = "memberOf", skip_serializing_if = "Option::is_none")]
    pub member_of: Option<BTreeSet<Uuid>>,
    /// Classes to be a direct subclass of.
    #[serde(default, rename = "subclassOf", skip_serializing_if = "Option::is_none")]
    pub subclass_of: Option<BTreeSet<Uuid>>,
}

/// A transaction on one object: all of it happens, or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteRequest {
    /// Identity, made by the caller. The same id must always come with the same content.
    pub id: String,
    /// The object.
    pub object: Uuid,
    /// Who writes; recorded in the history.
    pub writer: Option<String>,
    /// What the values mean.
    pub mode: Mode,
    /// What happens to the registration.
    pub registration: Option<RegistrationChange>,
    /// What happens to the direct relations.
    pub membership: Option<MembershipChange>,
    /// Entries by slug (or by UUID of the application): a value, or None to delete the entry.
    pub entries: BTreeMap<String, Option<Value>>,
    /// ETags that entries must have, by slug (or UUID); None: the entry must not exist.
    pub if_match: BTreeMap<String, Option<Uuid>>,
    /// A state that the store must contain ([`crate::ConfigReplica::state`]); None: any.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "state_text")]
    pub if_contains: Option<Point>,
}

/// A state is its text, as in the command.
mod state_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de};
    use sparkplug::replication::Point;

    pub(super) fn serialize<S: Serializer>(state: &Option<Point>, serializer: S) -> Result<S::Ok, S::Error> {
        match state {
            Some(state) => serializer.collect_str(state),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Point>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}

impl WriteRequest {
    /// A request that puts values.
    #[must_use]
    pub fn put(id: impl Into<String>, object: Uuid) -> Self {
        Self {
            id: id.into(),
            object,
            writer: None,
            mode: Mode::Put,
            registration: None,
            membership: None,
            entries: BTreeMap::new(),
            if_match: BTreeMap::new(),
            if_contains: None,
        }
    }

    /// A request whose values are merge patches.
    #[must_use]
    pub fn patch(id: impl Into<String>, object: Uuid) -> Self {
        Self { mode: Mode::Patch, ..Self::put(id, object) }
    }

    /// With the writer's name.
    #[must_use]
    pub fn by(mut self, writer: impl Into<String>) -> Self {
        self.writer = Some(writer.into());
        self
    }

    /// Write `value` (a document or a merge patch, as the request is one or the other) under the application with that slug or UUID.
    #[must_use]
    pub fn entry(mut self, slug: impl Into<String>, value: Value) -> Self {
        self.entries.insert(slug.into(), Some(value));
        self
    }

    /// Write a typed document.
    ///
    /// # Errors
    /// If the document has no JSON form.
    pub fn document<T: Document>(self, document: &T) -> Result<Self, serde_json::Error> {
        Ok(self.entry(T::slug(), serde_json::to_value(document)?))
    }

    /// Delete the entry under the application with that slug or UUID.
    #[must_use]
    pub fn delete(mut self, slug: impl Into<String>) -> Self {
        self.entries.insert(slug.into(), None);
        self
    }

    /// Create the object if it does not exist.
    #[must_use]
    pub const fn create_object(mut self, class: Uuid, owner: Option<Uuid>) -> Self {
        self.registration = Some(RegistrationChange::Register { class, owner });
        self
    }

    /// Mark the object deleted.
    #[must_use]
    pub const fn delete_object(mut self) -> Self {
        self.registration = Some(RegistrationChange::Delete);
        self
    }

    /// Replace the direct memberships.
    #[must_use]
    pub fn member_of(mut self, classes: impl IntoIterator<Item = Uuid>) -> Self {
        self.membership.get_or_insert_default().member_of = Some(classes.into_iter().collect());
        self
    }

    /// Replace the direct superclasses.
    #[must_use]
    pub fn subclass_of(mut self, classes: impl IntoIterator<Item = Uuid>) -> Self {
        self.membership.get_or_insert_default().subclass_of = Some(classes.into_iter().collect());
        self
    }

    /// Refuse the request unless the entry has this ETag; None: unless there is no entry.
    #[must_use]
    pub fn if_match(mut self, slug: impl Into<String>, etag: Option<Uuid>) -> Self {
        self.if_match.insert(slug.into(), etag);
        self
    }

    /// Refuse the request unless the store contains this state: it was decided on what the store held then.
    #[must_use]
    pub const fn if_contains(mut self, state: Point) -> Self {
        self.if_contains = Some(state);
        self
    }

    /// The metrics of the DCMD.
    #[must_use]
    pub fn to_metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![Metric::new(names::REQUEST_ID, self.id.as_str())];
        metrics.extend(self.writer.as_deref().map(|writer| Metric::new(names::REQUEST_WRITER, writer)));
        if self.mode == Mode::Patch {
            metrics.push(Metric::new(names::REQUEST_MODE, "patch"));
        }
        if !self.if_match.is_empty() {
            metrics.push(Metric::new(names::REQUEST_IF_MATCH, json(&self.if_match)));
        }
        metrics.extend(self.if_contains.map(|state| Metric::new(names::REQUEST_IF_CONTAINS, state.to_string())));
        metrics.extend(self.registration.as_ref().map(|change| match change {
            RegistrationChange::Register { class, owner } => {
                Metric::new(REGISTRATION_SLUG, json(&RegistrationForm { class: *class, owner: *owner }))
            }
            RegistrationChange::Delete => Metric::null(REGISTRATION_SLUG, DataType::String),
        }));
        metrics.extend(self.membership.as_ref().map(|change| Metric::new(MEMBERSHIP_SLUG, json(change))));
        metrics.extend(self.entries.iter().map(|(slug, value)| match value {
            Some(value) => Metric::new(slug.as_str(), value.to_string()),
            None => Metric::null(slug.as_str(), DataType::String),
        }));
        metrics
    }

    /// The DCMD to the object's device.
    #[must_use]
    pub fn to_command(&self, configdb: &EdgeNodeDescriptor) -> HostRequest {
        HostRequest::Command {
            node: configdb.clone(),
            device: Some(device_id(self.object)),
            metrics: self.to_metrics(),
        }
    }
}

/// Asks ConfigDB to publish the history of this object again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayRequest {
    /// Identity, made by the caller.
    pub id: String,
    /// The object.
    pub object: Uuid,
    /// Changes with this or a later revision.
    pub from_revision: u64,
    /// Only of this slug.
    pub slug: Option<String>,
    /// At most so many, the oldest first; ask again from the last revision + 1 for more.
    pub limit: u64,
    /// Publish all values that the object has, too.
    #[serde(default)]
    pub values: bool,
}

impl ReplayRequest {
    /// Everything from `from_revision` on, up to the default limit.
    #[must_use]
    pub fn new(id: impl Into<String>, object: Uuid, from_revision: u64) -> Self {
        Self { id: id.into(), object, from_revision, slug: None, limit: names::HISTORY_LIMIT_DEFAULT, values: false }
    }

    /// The metrics of the DCMD.
    #[must_use]
    pub fn to_metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![
            Metric::new(names::REQUEST_ID, self.id.as_str()),
            Metric::new(names::HISTORY_REPLAY, self.from_revision),
        ];
        metrics.extend(self.slug.as_deref().map(|slug| Metric::new(names::HISTORY_APPLICATION, slug)));
        metrics.push(Metric::new(names::HISTORY_LIMIT, self.limit));
        metrics.extend(self.values.then(|| Metric::new(names::REQUEST_VALUES, true)));
        metrics
    }

    /// The DCMD to the object's device.
    #[must_use]
    pub fn to_command(&self, configdb: &EdgeNodeDescriptor) -> HostRequest {
        HostRequest::Command {
            node: configdb.clone(),
            device: Some(device_id(self.object)),
            metrics: self.to_metrics(),
        }
    }
}

/// A write that waits in ConfigDB's memory for the commit of its transaction. It is answered with [`crate::Outcome::Staged`], or refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRequest {
    /// Identity of the transaction, made by the caller.
    pub transaction: String,
    /// Place in the transaction, from 0. Parts are carried out in this order, and may arrive in any.
    pub position: u64,
    /// The write.
    pub write: WriteRequest,
}

impl PartRequest {
    /// The DCMD to the device of the write's object.
    #[must_use]
    pub fn to_command(&self, configdb: &EdgeNodeDescriptor) -> HostRequest {
        let mut metrics = self.write.to_metrics();
        metrics.push(Metric::new(names::TRANSACTION_ID, self.transaction.as_str()));
        metrics.push(Metric::new(names::TRANSACTION_POSITION, self.position));
        HostRequest::Command { node: configdb.clone(), device: Some(device_id(self.write.object)), metrics }
    }
}

/// "Carry out all parts of this transaction, or none."
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRequest {
    /// Identity of this request, made by the caller.
    pub id: String,
    /// Identity of the transaction.
    pub transaction: String,
    /// How many parts it has.
    pub parts: u64,
}

impl CommitRequest {
    /// The DCMD to the device of ConfigDB itself.
    #[must_use]
    pub fn to_command(&self, configdb: &EdgeNodeDescriptor) -> HostRequest {
        let metrics = vec![
            Metric::new(names::REQUEST_ID, self.id.as_str()),
            Metric::new(names::TRANSACTION_ID, self.transaction.as_str()),
            Metric::new(names::TRANSACTION_COMMIT, self.parts),
        ];
        HostRequest::Command { node: configdb.clone(), device: Some(device_id(service::CONFIGDB)), metrics }
    }
}

/// To which Device of ConfigDB someone sends commands.
///
/// Access rules of an MQTT server go by topics. An operator with a user of their own may send to the Device of that name alone: then the server vouches for who wrote. Every other client sends to the Device of the object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sender(Option<DeviceId>);

impl Sender {
    /// A client with that user. Only people who have one of their own send by their name.
    #[must_use]
    pub fn new(organisation: &Organisation, user: &str) -> Self {
        Self(organisation.operator_of(user).and_then(|_| DeviceId::new(user).ok()))
    }

    /// Whether commands go to the Device of a user.
    #[must_use]
    pub const fn is_user(&self) -> bool {
        self.0.is_some()
    }

    /// The Device and the metrics of a command about an object.
    #[must_use]
    pub fn address(&self, object: Uuid, mut metrics: Vec<Metric>) -> (DeviceId, Vec<Metric>) {
        match &self.0 {
            None => (device_id(object), metrics),
            Some(user) => {
                metrics.push(Metric::new(names::REQUEST_OBJECT, object.to_string()));
                (user.clone(), metrics)
            }
        }
    }

    /// A command as it is sent: one to an object of this ConfigDB goes to the Device of the user.
    #[must_use]
    pub fn send(&self, request: HostRequest, configdb: &EdgeNodeDescriptor) -> HostRequest {
        match request {
            HostRequest::Command { node, device: Some(device), metrics } if node == *configdb => {
                let (device, metrics) = match object_of(&device) {
                    Some(object) => self.address(object, metrics),
                    None => (device, metrics),
                };
                HostRequest::Command { node, device: Some(device), metrics }
            }
            other => other,
        }
    }
}

/// The user of the MQTT server whose name the Device of a command is; None: it is an object's.
#[must_use]
pub fn user_of(device: &DeviceId) -> Option<&str> {
    object_of(device).is_none().then(|| device.as_str())
}

/// Device id of an object: its UUID, lower case, hyphenated.
#[must_use]
pub fn device_id(object: Uuid) -> DeviceId {
    DeviceId::new(object.to_string()).expect("the text of a UUID holds only hexadecimal digits and hyphens")
}

/// The object of a device id; None if it is not the lower-case hyphenated form of a UUID.
#[must_use]
pub fn object_of(device: &DeviceId) -> Option<Uuid> {
    device.as_str().parse().ok().filter(|uuid: &Uuid| uuid.to_string() == device.as_str())
}

/// Everything that ConfigDB takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Write.
    Write(WriteRequest),
    /// Write with the rest of a transaction.
    Part(PartRequest),
    /// Carry a transaction out.
    Commit(CommitRequest),
    /// Replay history.
    Replay(ReplayRequest),
}

/// Why a command is not a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct CommandError {
    /// Id of the request, if it could be read: it is to be answered then.
    pub id: Option<String>,
    /// The addressed object, if the device id is one.
    pub object: Option<Uuid>,
    /// The metric at fault, or `device id`.
    pub field: String,
    /// The rule that it breaks.
    pub reason: String,
}

impl Command {
    /// The store that a command is for, if it names one that can be read.
    #[must_use]
    pub fn store(metrics: &[Metric]) -> Option<Uuid> {
        metrics.iter().find(|metric| &*metric.name == names::REQUEST_STORE).and_then(|metric| store(metric).ok())
    }

    /// Identity of the request.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Write(write) => &write.id,
            Self::Part(part) => &part.write.id,
            Self::Commit(commit) => &commit.id,
            Self::Replay(replay) => &replay.id,
        }
    }

    /// The object that is addressed.
    #[must_use]
    pub const fn object(&self) -> Uuid {
        match self {
            Self::Write(write) => write.object,
            Self::Part(part) => part.write.object,
            Self::Commit(_) => service::CONFIGDB,
            Self::Replay(replay) => replay.object,
        }
    }

    /// Says who writes, whatever the request says.
    pub fn set_writer(&mut self, writer: String) {
        match self {
            Self::Write(write) => write.writer = Some(writer),
            Self::Part(part) => part.write.writer = Some(writer),
            Self::Commit(_) | Self::Replay(_) => {}
        }
    }

    /// Who writes, as the request says; None: it does not, or writes nothing.
    #[must_use]
    pub fn writer(&self) -> Option<&str> {
        match self {
            Self::Write(write) => write.writer.as_deref(),
            Self::Part(part) => part.write.writer.as_deref(),
            Self::Commit(_) | Self::Replay(_) => None,
        }
    }

    /// The DCMD for the ConfigDB with that store; None: for whichever answers.
    #[must_use]
    pub fn to_command(&self, configdb: &EdgeNodeDescriptor, store: Option<Uuid>) -> HostRequest {
        let mut command = match self {
            Self::Write(write) => write.to_command(configdb),
            Self::Part(part) => part.to_command(configdb),
            Self::Commit(commit) => commit.to_command(configdb),
            Self::Replay(replay) => replay.to_command(configdb),
        };
        if let (HostRequest::Command { metrics, .. }, Some(store)) = (&mut command, store) {
            metrics.push(Metric::new(names::REQUEST_STORE, store.to_string()));
        }
        command
    }

    /// Reads an NCMD or DCMD as it comes from [`sparkplug::edge_node::NodeEvent::Command`].
    ///
    /// # Errors
    /// [`CommandError`] names the metric at fault.
    pub fn parse(device: Option<&DeviceId>, metrics: &[Metric]) -> Result<Self, CommandError> {
        let id = metrics.iter().find(|m| &*m.name == names::REQUEST_ID).and_then(Metric::as_str).map(str::to_owned);
        let by_user = device.is_some_and(|device| user_of(device).is_some());
        let named = metrics.iter().find(|metric| by_user && &*metric.name == names::REQUEST_OBJECT);
        let object = device.and_then(object_of).or_else(|| named.and_then(Metric::as_str)?.parse().ok());
        let addressed = object.ok_or_else(|| not_addressed(device.is_some()));
        addressed.and_then(|object| Self::parse_fields(by_user, object, metrics)).map_err(|Fault { field, reason }| {
            CommandError {
                id: id.filter(|id| check_text(names::REQUEST_ID, id, names::REQUEST_ID_BYTES_MAX).is_ok()),
                object,
                field,
                reason,
            }
        })
    }

    fn parse_fields(by_user: bool, object: Uuid, metrics: &[Metric]) -> Result<Self, Fault> {
        let mut seen = BTreeSet::new();
        let mut write = WriteRequest::put("", object);
        let mut id = None;
        let (mut replay, mut slug, mut limit, mut values) = (None, None, None, false);
        let (mut transaction, mut position, mut commit) = (None, None, None);
        for metric in metrics {
            let name = &*metric.name;
            if !seen.insert(name) {
                return Err(fault(name, "stands twice in the command"));
            }
            match name {
                names::REQUEST_ID => id = Some(text(metric, names::REQUEST_ID_BYTES_MAX)?),
                names::REQUEST_WRITER => write.writer = Some(text(metric, names::WRITER_BYTES_MAX)?),
                names::REQUEST_STORE => drop(store(metric)?),
                // Read before.
                names::REQUEST_OBJECT if by_user => {}
                names::REQUEST_VALUES => values = flag(metric)?,
                names::REQUEST_MODE => write.mode = mode(metric)?,
                names::REQUEST_IF_MATCH => write.if_match = from_json(metric)?,
                names::REQUEST_IF_CONTAINS => write.if_contains = Some(state(metric)?),
                names::TRANSACTION_ID => transaction = Some(text(metric, names::REQUEST_ID_BYTES_MAX)?),
                names::TRANSACTION_POSITION => position = Some(number(metric)?),
                names::TRANSACTION_COMMIT => commit = Some(number(metric)?),
                names::HISTORY_REPLAY => replay = Some(number(metric)?),
                names::HISTORY_APPLICATION => slug = Some(text(metric, names::WRITER_BYTES_MAX)?),
                names::HISTORY_LIMIT => limit = Some(number(metric)?),
                REGISTRATION_SLUG => write.registration = Some(registration(metric)?),
                MEMBERSHIP_SLUG => write.membership = Some(from_json(metric)?),
                _ if name.contains('/') => return Err(fault(name, "is neither an application nor part of a request")),
                _ => drop(write.entries.insert(name.to_owned(), entry(metric)?)),
            }
        }
        let id = id.ok_or_else(|| fault(names::REQUEST_ID, "is missing; give every request an id of its own"))?;
        let writes = !write.entries.is_empty() || write.registration.is_some() || write.membership.is_some();
        if let Some(transaction) = transaction {
            return match (position, commit) {
                (Some(position), None) if writes && replay.is_none() => {
                    Ok(Self::Part(PartRequest { transaction, position, write: WriteRequest { id, ..write } }))
                }
                (None, Some(parts)) if !writes && replay.is_none() => {
                    Ok(Self::Commit(CommitRequest { id, transaction, parts }))
                }
                _ => Err(fault(
                    names::TRANSACTION_ID,
                    "goes with a write and Transaction/Position, or alone with Transaction/Commit",
                )),
            };
        }
        if position.is_some() || commit.is_some() {
            return Err(fault(names::TRANSACTION_ID, "is missing; name the transaction"));
        }
        match replay {
            Some(_) if writes => {
                Err(fault(names::HISTORY_REPLAY, "cannot be combined with writing; send two commands"))
            }
            Some(from_revision) => {
                let limit = limit.unwrap_or(names::HISTORY_LIMIT_DEFAULT).min(names::HISTORY_LIMIT_MAX);
                Ok(Self::Replay(ReplayRequest { id, object, from_revision, slug, limit, values }))
            }
            None if !writes => {
                Err(fault(names::REQUEST_ID, "the request writes nothing; name an entry, Registration or Membership"))
            }
            None => Ok(Self::Write(WriteRequest { id, ..write })),
        }
    }
}

/// No object is known that the command is about.
fn not_addressed(has_device: bool) -> Fault {
    let rule = if has_device {
        "is neither the lower-case hyphenated UUID of an object, nor does Request/Object name one"
    } else {
        "requests go to the device of an object (DCMD), not to the node"
    };
    fault("device id", rule)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistrationForm {
    class: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<Uuid>,
}

struct Fault {
    field: String,
    reason: String,
}

fn fault(field: &str, reason: impl Into<String>) -> Fault {
    Fault { field: field.to_owned(), reason: reason.into() }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("maps with text keys, UUIDs and texts have a JSON form")
}

fn string(metric: &Metric) -> Result<&str, Fault> {
    match metric.value.as_ref() {
        Some(sparkplug::Value::String(text) | sparkplug::Value::Text(text)) => Ok(text),
        Some(other) => Err(fault(&metric.name, format!("is {:?}; it must be a String", other.datatype()))),
        None => Err(fault(&metric.name, "is null; it must be a String")),
    }
}

fn check_text(name: &str, text: &str, bytes_max: usize) -> Result<(), Fault> {
    if text.is_empty() || text.len() > bytes_max {
        return Err(fault(name, format!("has {} bytes; 1 to {bytes_max} are allowed", text.len())));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(c) => Err(fault(name, format!("contains the control character {c:?}"))),
        None => Ok(()),
    }
}

fn text(metric: &Metric, bytes_max: usize) -> Result<String, Fault> {
    let text = string(metric)?;
    check_text(&metric.name, text, bytes_max)?;
    Ok(text.to_owned())
}

fn flag(metric: &Metric) -> Result<bool, Fault> {
    match metric.value {
        Some(sparkplug::Value::Boolean(value)) => Ok(value),
        _ => Err(fault(&metric.name, "is not a Boolean")),
    }
}

fn number(metric: &Metric) -> Result<u64, Fault> {
    metric.as_u64().ok_or_else(|| fault(&metric.name, "is not an unsigned number"))
}

fn store(metric: &Metric) -> Result<Uuid, Fault> {
    let text = string(metric)?;
    text.parse().map_err(|_| fault(&metric.name, format!("is {text:?}; it must be the UUID of a store")))
}

fn state(metric: &Metric) -> Result<Point, Fault> {
    string(metric)?.parse().map_err(|rule| fault(&metric.name, format!("{rule}")))
}

fn mode(metric: &Metric) -> Result<Mode, Fault> {
    match string(metric)? {
        "put" => Ok(Mode::Put),
        "patch" => Ok(Mode::Patch),
        other => Err(fault(&metric.name, format!("is {other:?}; it must be put or patch"))),
    }
}

fn from_json<T: serde::de::DeserializeOwned>(metric: &Metric) -> Result<T, Fault> {
    serde_json::from_str(string(metric)?).map_err(|e| fault(&metric.name, format!("is not what it must be: {e}")))
}

fn registration(metric: &Metric) -> Result<RegistrationChange, Fault> {
    if metric.value.is_none() {
        return Ok(RegistrationChange::Delete);
    }
    let RegistrationForm { class, owner } = from_json(metric)?;
    Ok(RegistrationChange::Register { class, owner })
}

fn entry(metric: &Metric) -> Result<Option<Value>, Fault> {
    if metric.value.is_none() {
        return Ok(None);
    }
    serde_json::from_str(string(metric)?)
        .map(Some)
        .map_err(|e| fault(&metric.name, format!("is not JSON: {e}; to delete the entry, send null")))
}

#[cfg(test)]
mod tests;
