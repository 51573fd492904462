//! Accounts that an edge cluster wants for its Kerberos principals: what is wanted, compared with what ConfigDB has -> writes and answers.
//!
//! Level-triggered: what was made for an account is recorded in its `EdgeAccount` entry, in the same transaction. So a manager that is killed continues where it was, and no object
//! is left behind. Ids of objects are derived from cluster and principal, so making one twice is making it once. This module must not know how a request travels.
//!
//! A cluster is trusted with its own things only: principals of its own name, addresses in its own group, and objects that no other account has. Classes must be those of accounts,
//! and groups must be made for edges.

use std::collections::{BTreeMap, BTreeSet};

use configdb_contract::WriteRequest;
use configdb_schema::document::{EdgeAccount, Info, JsonObject, SparkplugAddress};
use configdb_schema::{Document, address, known};
use krb_keys_contract::AccountRequest;
use serde_json::Value;
use uuid::Uuid;

use crate::setup::json;

/// Classes of which an edge may have accounts.
pub(crate) const CLASSES: [Uuid; 2] = [known::class::EDGE_AGENT, known::class::EDGE_SERVICE_ACCOUNT];

/// Longest principal, as the KDC's administrators write them.
const PRINCIPAL_CHARACTERS_MAX: usize = 255;

/// An object as ConfigDB has it, as far as accounts are concerned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Object {
    /// Classes that it is a direct member of.
    pub member_of: BTreeSet<Uuid>,
    /// Its `Info` entry.
    pub info: Option<Value>,
    /// Its `SparkplugAddress` entry.
    pub address: Option<SparkplugAddress>,
    /// Its `EdgeAccount` entry; Err: what is wrong with it.
    pub account: Option<Result<EdgeAccount, String>>,
    /// ETag of that.
    pub etag: Option<Uuid>,
    /// The cluster that it is a deployment of.
    pub deployment_of: Option<Uuid>,
    /// The cluster whose own account it is, from its set-up.
    pub set_up_for: Option<Uuid>,
}

/// Everything that a plan needs.
pub(crate) struct AccountInputs<'a> {
    /// The cluster.
    pub cluster: Uuid,
    /// Its name, as it is set up.
    pub name: &'a str,
    /// Its group.
    pub group: &'a str,
    /// Realm of the site, if that is known.
    pub realm: Option<&'a str>,
    /// What is wanted, by the name of the KerberosKey: all of it.
    pub requests: BTreeMap<&'a str, &'a AccountRequest>,
    /// Objects whose `EdgeAccount` entry names the cluster.
    pub recorded: BTreeSet<Uuid>,
    /// The objects of ConfigDB.
    pub object: &'a dyn Fn(Uuid) -> Option<Object>,
}

impl std::fmt::Debug for AccountInputs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountInputs")
            .field("cluster", &self.cluster)
            .field("requests", &self.requests)
            .finish_non_exhaustive()
    }
}

/// What to do, and what to say.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Plan {
    /// Writes to ConfigDB by object. Their ids are still to be given.
    pub writes: BTreeMap<Uuid, WriteRequest>,
    /// The accounts that are as wanted, and what is refused, by the name of the KerberosKey. Of one that is still to be written nothing is said.
    pub answers: BTreeMap<String, Result<Uuid, String>>,
    /// Whose account an object of `writes` shall be, by the name of the KerberosKey.
    pub written_for: BTreeMap<Uuid, String>,
    /// Objects that the plan depends on.
    pub depends_on: BTreeSet<Uuid>,
}

/// What earlier requests of the same cluster have claimed.
#[derive(Default)]
struct ClaimedIdentifiers<'a> {
    principals: BTreeSet<&'a str>,
    objects: BTreeSet<Uuid>,
    nodes: BTreeSet<&'a str>,
}

/// The object of a request.
#[must_use]
pub(crate) fn object_of(cluster: Uuid, request: &AccountRequest) -> Uuid {
    request.uuid.unwrap_or_else(|| address::v5(&["Account", &cluster.to_string(), &request.principal]))
}

/// Compares.
#[must_use]
pub(crate) fn plan(inputs: &AccountInputs<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut claimed = ClaimedIdentifiers::default();
    let mut wanted = BTreeSet::new();
    for (resource, request) in &inputs.requests {
        let uuid = object_of(inputs.cluster, request);
        wanted.insert(uuid);
        plan.depends_on.insert(uuid);
        plan.depends_on.extend(&request.groups);
        let object = (inputs.object)(uuid);
        let judged =
            judge(inputs, request, &claimed).and_then(|()| judge_object(inputs, request, uuid, object.as_ref()));
        let Err(reason) = judged else {
            claimed.principals.insert(&request.principal);
            claimed.objects.insert(uuid);
            claimed.nodes.extend(request.sparkplug.as_ref().map(|address| address.node.as_str()));
            match write(inputs, request, uuid, object) {
                Some(write) => {
                    plan.writes.insert(uuid, write);
                    plan.written_for.insert(uuid, (*resource).to_owned());
                }
                None => drop(plan.answers.insert((*resource).to_owned(), Ok(uuid))),
            }
            continue;
        };
        plan.answers.insert((*resource).to_owned(), Err(reason));
    }
    for uuid in inputs.recorded.difference(&wanted) {
        plan.depends_on.insert(*uuid);
        let removal = (inputs.object)(*uuid).and_then(|object| removal(inputs.cluster, *uuid, &object));
        plan.writes.extend(removal.map(|write| (*uuid, write)));
    }
    plan
}

/// What the request says, without its object.
fn judge(inputs: &AccountInputs<'_>, request: &AccountRequest, claimed: &ClaimedIdentifiers<'_>) -> Result<(), String> {
    request.check().map_err(|error| format!("account.{error}"))?;
    judge_principal(inputs, &request.principal)?;
    if claimed.principals.contains(request.principal.as_str()) {
        return Err(format!("principal {} has an account by another resource", request.principal));
    }
    let uuid = object_of(inputs.cluster, request);
    if claimed.objects.contains(&uuid) {
        return Err(format!("account.uuid {uuid} is the account of another principal of this cluster"));
    }
    if let Some(class) = request.class.filter(|class| !CLASSES.contains(class)) {
        return Err(format!(
            "account.class {class} is not a class that an edge may use: it may have Edge Agents and Edge service accounts"
        ));
    }
    if let Some(address) = &request.sparkplug {
        if let Some(group) = address.group.as_ref().filter(|group| *group != inputs.group) {
            return Err(format!(
                "account.sparkplug.group {group:?} is not the group of this cluster, {}",
                inputs.group
            ));
        }
        if claimed.nodes.contains(address.node.as_str()) {
            return Err(format!(
                "account.sparkplug.node {:?} is that of another account of this cluster",
                address.node
            ));
        }
    }
    let is_group =
        |group: &Uuid| (inputs.object)(*group).is_some_and(|o| o.member_of.contains(&known::class::EDGE_GROUP));
    match request.groups.iter().find(|group| !is_group(group)) {
        Some(group) => Err(format!("account.groups: {group} is not an Edge group")),
        None => Ok(()),
    }
}

/// A principal is a cluster's if its second component is the cluster's name.
fn judge_principal(inputs: &AccountInputs<'_>, principal: &str) -> Result<(), String> {
    let broken = |rule: &str| {
        let principal: String = principal.chars().take(PRINCIPAL_CHARACTERS_MAX).collect();
        Err(format!("principal {principal:?} {rule}"))
    };
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '.' | '-' | '@');
    if principal.len() > PRINCIPAL_CHARACTERS_MAX || !principal.chars().all(is_good) {
        return broken("has more than 255 characters, or others than letters, digits, `_`, `.` and `-`");
    }
    let Some((name, realm)) = principal.split_once('@').filter(|(_, realm)| !realm.is_empty() && !realm.contains('@'))
    else {
        return broken("has no realm");
    };
    if name.split('/').any(str::is_empty) || name.split('/').nth(1) != Some(inputs.name) {
        return broken(&format!("is not this cluster's: its second component must be {}", inputs.name));
    }
    match inputs.realm.filter(|own| *own != realm) {
        Some(own) => broken(&format!("is not of the site's realm {own}")),
        None => Ok(()),
    }
}

/// Whether the cluster may have that object for an account.
fn judge_object(
    inputs: &AccountInputs<'_>,
    request: &AccountRequest,
    uuid: Uuid,
    object: Option<&Object>,
) -> Result<(), String> {
    let Some(object) = object else {
        return match request.uuid {
            Some(uuid) => Err(format!("account.uuid: there is no object {uuid}; leave uuid out to have one made")),
            None => Ok(()),
        };
    };
    match &object.account {
        Some(Err(reason)) => return Err(format!("the EdgeAccount entry of {uuid} cannot be read: {reason}")),
        Some(Ok(account)) if account.cluster != inputs.cluster => {
            return Err(format!("account.uuid: {uuid} is an account of another cluster"));
        }
        _ => {}
    }
    let is_elsewhere = |cluster: Option<Uuid>| cluster.is_some_and(|cluster| cluster != inputs.cluster);
    let is_foreign = object.address.as_ref().is_some_and(|address| address.group_id != inputs.group);
    if is_foreign || is_elsewhere(object.deployment_of) || is_elsewhere(object.set_up_for) {
        return Err(format!("account.uuid: {uuid} belongs to another cluster"));
    }
    let is_account = CLASSES.iter().any(|class| object.member_of.contains(class));
    if !is_account && object.deployment_of.is_none() {
        return Err(format!(
            "account.uuid: {uuid} is neither an Edge Agent, nor an Edge service account, nor a deployment of this cluster"
        ));
    }
    match request.class.filter(|class| !object.member_of.contains(class)) {
        Some(class) => Err(format!("account.class: {uuid} exists and is not of class {class}")),
        None => Ok(()),
    }
}

/// What brings the object to what is wanted; None: it is so.
fn write(
    inputs: &AccountInputs<'_>,
    request: &AccountRequest,
    uuid: Uuid,
    object: Option<Object>,
) -> Option<WriteRequest> {
    let exists = object.is_some();
    let object = object.unwrap_or_default();
    let before = object.account.and_then(Result::ok);
    let account = EdgeAccount {
        cluster: inputs.cluster,
        principal: request.principal.clone(),
        managed: before.as_ref().map_or(request.uuid.is_none(), |before| before.managed),
        groups: request.groups.iter().copied().collect(),
        node: request.sparkplug.as_ref().map(|address| address.node.clone()),
    };
    let mut write = WriteRequest::put("", uuid).if_match(EdgeAccount::slug(), object.etag);
    let mut is_so = exists;
    if let Some(class) = request.class.filter(|_| !exists) {
        write = write.create_object(class, None);
    }
    let left: BTreeSet<Uuid> = before.iter().flat_map(|before| &before.groups).copied().collect();
    let mut member_of: BTreeSet<Uuid> = object.member_of.difference(&left).copied().collect();
    member_of.extend(&account.groups);
    if member_of != object.member_of {
        is_so = false;
        write = write.member_of(member_of);
    }
    let name = object.info.as_ref().and_then(|info| info["name"].as_str());
    if let Some(wanted) = request.name.as_deref().filter(|wanted| name != Some(wanted)) {
        is_so = false;
        let mut info = object.info.filter(Value::is_object).unwrap_or_else(|| Value::Object(JsonObject::default()));
        info["name"] = wanted.into();
        write = write.entry(Info::slug(), info);
    }
    let address = account.node.as_ref().map(|node| SparkplugAddress::node(inputs.group, node));
    let was_ours = before.as_ref().is_some_and(|before| before.node.is_some());
    match address {
        Some(address) if object.address.as_ref() != Some(&address) => {
            is_so = false;
            write = write.entry(SparkplugAddress::slug(), json(&address));
        }
        None if was_ours && object.address.is_some() => {
            is_so = false;
            write = write.delete(SparkplugAddress::slug());
        }
        _ => {}
    }
    if before.as_ref() != Some(&account) {
        is_so = false;
        write = write.entry(EdgeAccount::slug(), json(&account));
    }
    (!is_so).then_some(write)
}

/// The end of an account: what was made for it goes, and the object itself if that was. None: it is not an account of the cluster.
#[must_use]
pub(crate) fn removal(cluster: Uuid, uuid: Uuid, object: &Object) -> Option<WriteRequest> {
    let account = object.account.as_ref()?.as_ref().ok().filter(|account| account.cluster == cluster)?;
    let write = WriteRequest::put("", uuid).if_match(EdgeAccount::slug(), object.etag);
    if account.managed {
        return Some(write.delete_object());
    }
    let mut write = write.delete(EdgeAccount::slug());
    if account.groups.iter().any(|group| object.member_of.contains(group)) {
        write = write.member_of(object.member_of.difference(&account.groups).copied());
    }
    if account.node.is_some() && object.address.is_some() {
        write = write.delete(SparkplugAddress::slug());
    }
    Some(write)
}

#[cfg(test)]
mod tests;
