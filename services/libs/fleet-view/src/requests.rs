//! The writes to ConfigDB by which people change the fleet. The command line and the web console send these, so that a button does what its command does.
//!
//! Pure: request ids, names of writers and times are arguments. Whether a user may write is judged elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster_manager_contract::api_token;
use configdb_contract::{Entry, WriteRequest};
use configdb_schema::address::{self, ClusterName, Organisation};
use configdb_schema::document::{
    AlertAcknowledgement, AlertAcknowledgements, ApiToken, ChartRollout, EdgeCluster, EdgeClusterEnrolment,
    EdgeDeployment, EnrolmentToken, HelmChartTemplate, Info, JsonObject, RolloutDecision, RolloutWithout, SealedSecret,
    SealingScope, TokenScope,
};
use configdb_schema::timestamp::{self, from_text, to_text};
use configdb_schema::{Document as _, application, known};
use serde_json::{Value, json};
use sparkplug::EdgeNodeId;
use uuid::Uuid;

use crate::{AlertRow, Fleet, secrets};

/// Most tokens of a cluster that count at the same time.
const TOKENS_MAX: usize = 32;

/// Records of alerts that are over are forgotten by the next one after this. Sooner one of them might only be unknown to who writes.
const ACKNOWLEDGEMENT_AGE_MS: u64 = 30 * 24 * 3_600 * 1_000;

/// Who writes, and by which id.
#[derive(Debug, Clone)]
pub struct Author {
    /// `Request/Id`: the same id always comes with the same content.
    pub id: String,
    /// `Request/Writer`.
    pub writer: String,
}

/// Why something cannot be asked of ConfigDB.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A value breaks a rule.
    #[error("{field}: {rule}")]
    Invalid {
        /// Which value.
        field: &'static str,
        /// The rule.
        rule: String,
    },
    /// There is nothing of that name.
    #[error("{field}: there is no {wanted:?}")]
    Missing {
        /// Which value names it.
        field: &'static str,
        /// What was named.
        wanted: String,
    },
    /// It cannot be done as things stand.
    #[error("{0}")]
    NotNow(String),
}

fn invalid(field: &'static str, rule: impl ToString) -> RequestError {
    RequestError::Invalid { field, rule: rule.to_string() }
}

impl Author {
    fn put(self, object: Uuid) -> WriteRequest {
        WriteRequest::put(self.id, object).by(self.writer)
    }
}

/// The UUID that a cluster gets if none is chosen: the same name is the same cluster.
#[must_use]
pub fn cluster_uuid(organisation: &Organisation, name: &str) -> Uuid {
    address::v5(&["EdgeCluster", organisation.as_str(), name])
}

/// Writes a cluster's entry. `uuid`: None chooses [`cluster_uuid`].
///
/// # Errors
/// Its name is not one for clusters.
pub fn put_cluster(
    fleet: &Fleet,
    entry: &EdgeCluster,
    uuid: Option<Uuid>,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    let name = ClusterName::new(entry.name.clone()).map_err(|rule| invalid("name", rule))?;
    let uuid = uuid.unwrap_or_else(|| cluster_uuid(fleet.organisation(), name.as_str()));
    let info = info(fleet, uuid, &entry.name);
    let request = author.put(uuid).create_object(known::class::EDGE_CLUSTER, None);
    request.document(&info).and_then(|request| request.document(entry)).map_err(|error| invalid("name", error))
}

/// Deletes a cluster's entry: its tear-down begins.
#[must_use]
pub fn delete_cluster(uuid: Uuid, author: Author) -> WriteRequest {
    author.put(uuid).delete(EdgeCluster::slug())
}

/// The general information of an object that is written: what there is, under this name.
fn info(fleet: &Fleet, object: Uuid, name: &str) -> Info {
    let known: Option<Info> = fleet.config.document(object).ok().flatten();
    Info { name: name.to_owned(), ..known.unwrap_or_default() }
}

/// Sets labels of an object, or takes them away (None); the others stay.
///
/// # Errors
/// There is no such object, or none of that label to be taken away.
pub fn label(
    fleet: &Fleet,
    object: Uuid,
    changes: &BTreeMap<String, Option<String>>,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    let missing = || RequestError::Missing { field: "object", wanted: object.to_string() };
    let known: Info = fleet.config.document(object).ok().flatten().ok_or_else(missing)?;
    let taken = changes.iter().filter(|(_, value)| value.is_none());
    if let Some((key, _)) = taken.clone().find(|(key, _)| !known.labels.contains_key(*key)) {
        return Err(RequestError::Missing { field: "label", wanted: key.clone() });
    }
    let request = WriteRequest::patch(author.id, object).by(author.writer);
    Ok(request.entry(Info::slug(), json!({ "labels": changes })))
}

/// A deployment that is wanted.
#[derive(Debug, Clone)]
pub struct NewDeployment {
    /// Its cluster.
    pub cluster: Uuid,
    /// Its name, unique in the cluster.
    pub name: String,
    /// Its chart template.
    pub chart: Uuid,
    /// The host that it is bound to; None: floating.
    pub host: Option<String>,
    /// Helm values.
    pub values: Option<JsonObject>,
}

/// Checks the name of a new deployment: it becomes an Edge Node id of its cluster, beside those of the services there. The cluster manager would never send another.
fn check_deployment_name(name: &str) -> Result<(), RequestError> {
    EdgeNodeId::new(name).map_err(|error| invalid("name", error))?;
    if name.contains('.') {
        let rule = "has a dot; it becomes an edge node id, in which some MQTT servers and Host Applications allow none";
        return Err(invalid("name", rule));
    }
    if address::CLUSTER_NODES_RESERVED.contains(&name) {
        return Err(invalid("name", format!("{name} is that of a service on every cluster; choose another")));
    }
    Ok(())
}

/// Writes a deployment's entry: that of the same name in the same cluster is replaced, and keeps when it was made and whether it is suspended. `wall`: UTC ms.
///
/// # Errors
/// The cluster does not have the host, or no deployment can have the name.
pub fn put_deployment(
    fleet: &Fleet,
    wanted: NewDeployment,
    wall: u64,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    let NewDeployment { cluster, name, chart, host, values } = wanted;
    check_host(fleet, cluster, host.as_deref())?;
    let existing = fleet.deployment_entries().find(|(_, entry)| entry.cluster == cluster && entry.name == name);
    let (uuid, before) = match existing {
        Some((uuid, entry)) => (uuid, entry),
        None => {
            check_deployment_name(&name)?;
            let uuid = address::v5(&["EdgeDeployment", &cluster.to_string(), &name]);
            (uuid, EdgeDeployment { created_at: to_text(wall), ..EdgeDeployment::default() })
        }
    };
    let class =
        if chart == known::chart::EDGE_AGENT { known::class::EDGE_AGENT } else { known::class::EDGE_DEPLOYMENT };
    let info = info(fleet, uuid, &name);
    let entry = EdgeDeployment {
        cluster,
        name,
        chart: Some(chart),
        hostname: host,
        values,
        suspend: before.suspend,
        reconcile_requested_at: before.reconcile_requested_at,
        created_at: before.created_at,
        ..EdgeDeployment::default()
    };
    let request = author.put(uuid).create_object(class, None);
    request.document(&info).and_then(|request| request.document(&entry)).map_err(|error| invalid("values", error))
}

/// Binds a deployment to a host, or to none, if its entry is still the one that is known.
///
/// # Errors
/// There is no such deployment, or its cluster does not have the host.
pub fn move_deployment(
    fleet: &Fleet,
    uuid: Uuid,
    host: Option<&str>,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    let (entry, request) = patch_deployment(fleet, uuid, &json!({ "hostname": host }), author)?;
    check_host(fleet, entry.cluster, host)?;
    Ok(request)
}

/// Binds all deployments that are bound to a host of a cluster to another one, or to none. `author`: of each write, by its place.
///
/// # Errors
/// The cluster does not have the other host, or nothing is bound to the first one.
pub fn move_host(
    fleet: &Fleet,
    cluster: Uuid,
    host: &str,
    to: Option<&str>,
    author: impl Fn(usize) -> Author,
) -> Result<Vec<WriteRequest>, RequestError> {
    let is_bound = |entry: &EdgeDeployment| entry.cluster == cluster && entry.hostname.as_deref() == Some(host);
    let bound = fleet.deployment_entries().filter(|(_, entry)| is_bound(entry));
    let moves = bound.zip(0..).map(|((uuid, _), place)| move_deployment(fleet, uuid, to, author(place)));
    let moves = moves.collect::<Result<Vec<_>, _>>()?;
    if moves.is_empty() {
        return Err(RequestError::NotNow(format!("no deployment is bound to {host}")));
    }
    Ok(moves)
}

/// Suspends a deployment, so that Flux changes nothing of it, or resumes it (`suspend`: false), if its entry is still the one that is known.
///
/// # Errors
/// There is no such deployment.
pub fn suspend_deployment(
    fleet: &Fleet,
    uuid: Uuid,
    suspend: bool,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    // A merge patch: null takes the key away, so that an entry that was resumed is as it was before.
    let (_, request) = patch_deployment(fleet, uuid, &json!({ "suspend": suspend.then_some(true) }), author)?;
    Ok(request)
}

/// Asks Flux to reconcile a deployment at once. `wall`: UTC ms; the same time asks once.
///
/// # Errors
/// There is no such deployment, or it is suspended.
pub fn reconcile_deployment(
    fleet: &Fleet,
    uuid: Uuid,
    wall: u64,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    let at = timestamp::at(wall).ok_or_else(|| invalid("deployment", "the time is out of range"))?;
    let patch = json!({ "reconcileRequestedAt": at.to_string() });
    let (entry, request) = patch_deployment(fleet, uuid, &patch, author)?;
    if entry.suspend {
        return Err(RequestError::NotNow(format!("{} is suspended; resume it first", entry.name)));
    }
    Ok(request)
}

/// Asks Flux to reconcile all deployments of a cluster at once, those left out that are suspended. `author`: of each write, by its place. `wall`: UTC ms.
///
/// # Errors
/// The cluster has none.
pub fn reconcile_cluster(
    fleet: &Fleet,
    cluster: Uuid,
    wall: u64,
    author: impl Fn(usize) -> Author,
) -> Result<Vec<WriteRequest>, RequestError> {
    let wanted = fleet.deployment_entries().filter(|(_, entry)| entry.cluster == cluster && !entry.suspend);
    let requests = wanted.zip(0..).map(|((uuid, _), place)| reconcile_deployment(fleet, uuid, wall, author(place)));
    let requests = requests.collect::<Result<Vec<_>, _>>()?;
    if requests.is_empty() {
        let reason = format!("{} has no deployment that is not suspended", fleet.name_of(cluster));
        return Err(RequestError::NotNow(reason));
    }
    Ok(requests)
}

fn patch_deployment(
    fleet: &Fleet,
    uuid: Uuid,
    patch: &Value,
    author: Author,
) -> Result<(EdgeDeployment, WriteRequest), RequestError> {
    let slug = EdgeDeployment::slug();
    let missing = || RequestError::Missing { field: "deployment", wanted: uuid.to_string() };
    let entry: EdgeDeployment = fleet.config.document(uuid).ok().flatten().ok_or_else(missing)?;
    let etag = fleet.config.entry(uuid, slug).map(|entry| entry.etag);
    let request = WriteRequest::patch(author.id, uuid).by(author.writer);
    Ok((entry, request.entry(slug, patch.clone()).if_match(slug, etag)))
}

/// Deletes a deployment: its entry and its configuration go, the object stays for the history.
#[must_use]
pub fn delete_deployment(uuid: Uuid, author: Author) -> WriteRequest {
    author.put(uuid).delete(EdgeDeployment::slug()).delete(application::AGENT_CONFIG.slug)
}

/// A token that is wanted. Its text is made where it is shown, and never comes here.
#[derive(Debug, Clone)]
pub struct NewToken<'a> {
    /// Its name.
    pub name: &'a str,
    /// SHA-256 of its text, hexadecimal.
    pub hash: String,
    /// What its holder may do.
    pub scope: TokenScope,
    /// The clusters that it is for; None: all.
    pub clusters: Option<Vec<Uuid>>,
    /// How long it lives.
    pub lifetime: Duration,
}

/// Makes a token. With its entry. `wall`: UTC ms.
///
/// # Errors
/// There is one of that name or no such cluster, or no token can have the name or live that long.
pub fn create_token(
    fleet: &Fleet,
    wanted: NewToken<'_>,
    wall: u64,
    author: Author,
) -> Result<(WriteRequest, ApiToken), RequestError> {
    let NewToken { name, hash, scope, clusters, lifetime } = wanted;
    let object = token_object(fleet, name)?;
    let mut clusters = clusters;
    for cluster in clusters.iter().flatten() {
        check_cluster(fleet, *cluster)?;
    }
    if let Some(clusters) = &mut clusters {
        clusters.sort_unstable();
        clusters.dedup();
        if clusters.is_empty() {
            return Err(invalid("clusters", "must name some; without it the token is for all clusters"));
        }
    }
    if fleet.config.entry(object, ApiToken::slug()).is_some() {
        let reason = format!("there is a token {name:?}; revoke it first, or choose another name");
        return Err(RequestError::NotNow(reason));
    }
    let lifetime = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
    let ends = wall.checked_add(lifetime).filter(|_| lifetime > 0);
    let range = || invalid("expires", "no token can be valid for that long");
    let issued = timestamp::at(wall).ok_or_else(range)?;
    let expires = ends.and_then(timestamp::at).ok_or_else(range)?;
    let token = ApiToken {
        name: name.to_owned(),
        hash,
        scope,
        clusters,
        issued: issued.to_string(),
        expires: expires.to_string(),
        by: author.writer.clone(),
    };
    let info = Info { name: format!("API token {name}"), ..Info::default() };
    let request = author.put(object).create_object(known::class::API_TOKEN, None).document(&info);
    let request = request.and_then(|request| request.document(&token)).map_err(|error| invalid("name", error))?;
    Ok((request.if_match(ApiToken::slug(), None), token))
}

/// Revokes a token.
///
/// # Errors
/// There is none of that name.
pub fn revoke_token(fleet: &Fleet, name: &str, author: Author) -> Result<WriteRequest, RequestError> {
    let object = token_object(fleet, name)?;
    let missing = || RequestError::Missing { field: "name", wanted: name.to_owned() };
    fleet.config.entry(object, ApiToken::slug()).ok_or_else(missing)?;
    Ok(author.put(object).delete(ApiToken::slug()))
}

fn token_object(fleet: &Fleet, name: &str) -> Result<Uuid, RequestError> {
    api_token::object(fleet.organisation(), name).map_err(|error| invalid("name", format!("{name:?} {error}")))
}

/// A Secret, by its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretPlace<'a> {
    /// The cluster.
    pub cluster: Uuid,
    /// Namespace of the Secret.
    pub namespace: &'a str,
    /// Name of the Secret.
    pub name: &'a str,
}

/// A sealed value that is wanted as one key of a Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewSecretValue<'a> {
    /// The Secret.
    pub place: SecretPlace<'a>,
    /// What the value is bound to.
    pub scope: SealingScope,
    /// Type of the Secret.
    pub secret_type: &'a str,
    /// The key.
    pub key: &'a str,
    /// The sealed value, base64.
    pub sealed: &'a str,
    /// SHA-256 fingerprint of the certificate that it is sealed for, hexadecimal.
    pub fingerprint: &'a str,
}

/// Writes a sealed value as one key of a Secret; its other keys stay. `wall`: UTC ms.
///
/// # Errors
/// There is no such cluster, or the Secret has other keys with another scope or type.
pub fn put_secret_value(
    fleet: &Fleet,
    wanted: NewSecretValue<'_>,
    wall: u64,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    let NewSecretValue { place, scope, secret_type, key, sealed, fingerprint } = wanted;
    check_cluster(fleet, place.cluster)?;
    let known = fleet.known_secret(place.cluster, place.namespace, place.name);
    let others = |mut keys: std::collections::BTreeSet<&String>| {
        keys.retain(|known| *known != key);
        !keys.is_empty()
    };
    let of_entry = known.wanted.as_ref().filter(|entry| {
        others(entry.keys.iter().filter(|(_, value)| value.value.is_some()).map(|(key, _)| key).collect())
    });
    let of_repository = known.stored.as_ref().filter(|stored| others(stored.keys.keys().collect()));
    let shared = of_entry.map(|entry| (entry.scope, entry.secret_type.as_str()));
    let shared = shared.or_else(|| of_repository.map(|stored| (stored.scope, stored.secret_type.as_str())));
    if let Some((known_scope, known_type)) = shared {
        let differs = |field, known: &str, wanted: &str| {
            let rule = format!(
                "{}/{} has {known}, not {wanted}; all its keys share it: delete them first",
                place.namespace, place.name
            );
            if known == wanted { Ok(()) } else { Err(invalid(field, rule)) }
        };
        differs("scope", known_scope.as_str(), scope.as_str())?;
        differs("type", known_type, secret_type)?;
    }
    check_size(fleet, &known, key, sealed)?;
    let value = json!({ "value": sealed, "sealedFor": fingerprint, "at": later(&known, key, wall)? });
    let patch = json!({ "cluster": place.cluster, "namespace": place.namespace, "name": place.name,
        "scope": scope, "type": secret_type, "keys": { key: value } });
    Ok(patch_secret(place, patch, author))
}

/// Deletes keys of a Secret; with the last one the Secret goes. `wall`: UTC ms.
///
/// # Errors
/// There is no such cluster, or no such key.
pub fn delete_secret_keys(
    fleet: &Fleet,
    place: SecretPlace<'_>,
    keys: &[String],
    wall: u64,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    check_cluster(fleet, place.cluster)?;
    let known = fleet.known_secret(place.cluster, place.namespace, place.name);
    let mut deleted = JsonObject::new();
    for key in keys {
        let is_wanted = known.wanted.as_ref().and_then(|entry| entry.keys.get(key)).map(|value| value.value.is_some());
        let is_stored = known.stored.as_ref().is_some_and(|stored| stored.keys.contains_key(key));
        if !is_wanted.unwrap_or(is_stored) {
            let wanted = format!("{}/{}/{key}", place.namespace, place.name);
            return Err(RequestError::Missing { field: "key", wanted });
        }
        // A merge patch: what is not there any more has to be null.
        deleted.insert(key.clone(), json!({ "value": null, "sealedFor": null, "at": later(&known, key, wall)? }));
    }
    let mut patch =
        json!({ "cluster": place.cluster, "namespace": place.namespace, "name": place.name, "keys": deleted });
    if let (None, Some(stored)) = (&known.wanted, &known.stored) {
        patch["scope"] = json!(stored.scope);
        patch["type"] = json!(stored.secret_type);
    }
    Ok(patch_secret(place, patch, author))
}

/// Refuses a value with which the object of its Secret would not fit into a message. A server may drop the request in silence.
fn check_size(fleet: &Fleet, known: &secrets::Known, key: &str, sealed: &str) -> Result<(), RequestError> {
    let Some(max) = fleet.config.message_bytes_max().and_then(|max| usize::try_from(max).ok()) else { return Ok(()) };
    let others = known.wanted.iter().flat_map(|entry| &entry.keys).filter(|(other, _)| *other != key);
    let bytes: usize = others.filter_map(|(_, value)| value.value.as_deref()).map(str::len).sum();
    if bytes + sealed.len() <= max {
        return Ok(());
    }
    let secret = bytes + sealed.len();
    let rule = format!(
        "with it the sealed values of the Secret would take {secret} bytes, and ConfigDB takes objects of {max}; store less in one Secret, or put a SealedSecret into by-hand/ of the repository"
    );
    Err(invalid("value", rule))
}

fn patch_secret(place: SecretPlace<'_>, patch: Value, author: Author) -> WriteRequest {
    let object = secrets::object(place.cluster, place.namespace, place.name);
    let request = WriteRequest::patch(author.id, object).by(author.writer);
    let info = json!({ "name": format!("{}/{}", place.namespace, place.name) });
    let request = request.create_object(known::class::SEALED_SECRET, None).entry(Info::slug(), info);
    request.entry(SealedSecret::slug(), patch)
}

/// When something of a key is decided: now, but after all that is known of it, whatever the clocks of those who wrote that say.
fn later(known: &secrets::Known, key: &str, wall: u64) -> Result<String, RequestError> {
    let of_entry = known.wanted.as_ref().and_then(|entry| entry.keys.get(key)).and_then(|value| from_text(&value.at));
    let stored = known.stored.as_ref().and_then(|stored| stored.keys.get(key)?.at.as_deref().and_then(from_text));
    let before = of_entry.max(stored);
    let at = before.map_or(wall, |before| wall.max(before.saturating_add(1)));
    timestamp::at(at).map(|at| format!("{at:.3}")).ok_or_else(|| invalid("key", "the time is out of range"))
}

/// Refuses a cluster of which there is no entry.
///
/// # Errors
/// There is none.
pub fn check_cluster(fleet: &Fleet, cluster: Uuid) -> Result<(), RequestError> {
    let missing = || RequestError::Missing { field: "cluster", wanted: cluster.to_string() };
    fleet.config.entry(cluster, EdgeCluster::slug()).map(|_| ()).ok_or_else(missing)
}

/// Adds a one-time token to those by which a cluster is bootstrapped, by its hash; tokens that have expired go. `wall`: UTC ms. With the time at which it ends.
///
/// # Errors
/// The entry cannot be read, or there are too many tokens.
pub fn add_bootstrap_token(
    fleet: &Fleet,
    cluster: Uuid,
    hash: &str,
    lifetime: Duration,
    wall: u64,
    author: Author,
) -> Result<(WriteRequest, String), RequestError> {
    let entry = fleet.config.entry(cluster, EdgeClusterEnrolment::slug());
    let before: Option<EdgeClusterEnrolment> =
        entry.map(Entry::parse).transpose().map_err(|error| RequestError::NotNow(error.to_string()))?;
    let mut enrolment = before.unwrap_or_default();
    let range = || invalid("expires", "the time is out of range");
    let ends = wall.saturating_add(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX));
    let (issued, expires) = (to_text(wall).ok_or_else(range)?, to_text(ends).ok_or_else(range)?);
    enrolment.tokens.retain(|token| from_text(&token.expires).is_some_and(|ends| ends > wall));
    if enrolment.tokens.len() >= TOKENS_MAX {
        let reason = format!("the cluster has {TOKENS_MAX} tokens already; revoke those that are not used");
        return Err(RequestError::NotNow(reason));
    }
    let by = author.writer.clone();
    enrolment.tokens.push(EnrolmentToken { hash: hash.to_owned(), issued, expires: expires.clone(), by });
    let request = author.put(cluster).if_match(EdgeClusterEnrolment::slug(), entry.map(|entry| entry.etag));
    let request = request.document(&enrolment).map_err(|error| invalid("cluster", error))?;
    Ok((request, expires))
}

/// What an operator decides about the rollout of a chart template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutChange {
    /// A change reaches no deployment that runs another one.
    Hold,
    /// It does again, in its waves.
    Resume,
    /// Later waves do not wait for this cluster, as long as the chart template is the one of now.
    Pass(Uuid),
    /// They do again.
    WaitFor(Uuid),
}

/// Writes what an operator decides about the rollout of a chart template, if the decision is still the one that is known. `note`: why. `wall`: UTC ms.
///
/// # Errors
/// There is no such chart template or cluster, the note is too long or empty, or there is nothing to take back.
pub fn decide_rollout(
    fleet: &Fleet,
    template: Uuid,
    change: RolloutChange,
    note: Option<&str>,
    wall: u64,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    if note.is_some_and(|note| note.is_empty() || note.chars().count() > RolloutDecision::NOTE_CHARS) {
        return Err(invalid("note", format!("must have 1 to {} characters", RolloutDecision::NOTE_CHARS)));
    }
    let missing = |field, of: Uuid| RequestError::Missing { field, wanted: of.to_string() };
    let etag = fleet.config.entry(template, HelmChartTemplate::slug()).map(|entry| entry.etag);
    let etag = etag.ok_or_else(|| missing("template", template))?;
    let slug = ChartRollout::slug();
    let entry = fleet.config.entry(template, slug);
    let before: Option<ChartRollout> =
        entry.map(Entry::parse).transpose().map_err(|error| RequestError::NotNow(error.to_string()))?;
    let mut after = before.unwrap_or_default();
    let at = to_text(wall).ok_or_else(|| invalid("template", "the time is out of range"))?;
    let decision = RolloutDecision { by: author.writer.clone(), at, note: note.map(str::to_owned) };
    let name = fleet.name_of(template);
    match change {
        RolloutChange::Hold => after.hold = Some(decision),
        RolloutChange::Resume => {
            after.hold.take().ok_or_else(|| RequestError::NotNow(format!("the rollout of {name} is not held")))?;
        }
        RolloutChange::Pass(cluster) => {
            fleet.config.entry(cluster, EdgeCluster::slug()).ok_or_else(|| missing("cluster", cluster))?;
            let known = after.without.take().filter(|without| without.template == etag);
            let mut clusters = known.map(|without| without.clusters).unwrap_or_default();
            clusters.insert(cluster, decision);
            after.without = Some(RolloutWithout { template: etag, clusters });
        }
        RolloutChange::WaitFor(cluster) => {
            let clusters = after.without.as_mut().and_then(|without| {
                without.clusters.remove(&cluster)?;
                Some(without.clusters.len())
            });
            let left = clusters.ok_or_else(|| {
                RequestError::NotNow(format!("the rollout of {name} waits for {} already", fleet.name_of(cluster)))
            })?;
            after.without = after.without.filter(|_| left > 0);
        }
    }
    let request = author.put(template).if_match(slug, entry.map(|entry| entry.etag));
    if after == ChartRollout::default() {
        return Ok(request.delete(slug));
    }
    request.document(&after).map_err(|error| invalid("template", error))
}

/// Says that the author looks after these alerts, with what they do about it; they are of one cluster, or of the central services. `silence`: they are silenced for this time, also
/// where they end meanwhile and become active again; None: until they end. `wall`: UTC ms.
///
/// # Errors
/// The cluster is not known, the note is too long or empty, or the time is too long or zero.
pub fn acknowledge_alerts(
    fleet: &Fleet,
    alerts: &[&AlertRow],
    note: Option<&str>,
    silence: Option<Duration>,
    wall: u64,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    let longest = AlertAcknowledgement::SILENCE_SECONDS;
    if silence.is_some_and(|silence| !(1..=longest).contains(&silence.as_secs())) {
        return Err(invalid("silence", format!("must be from 1 s to {} days", longest / (24 * 3_600))));
    }
    let until = silence.map(|silence| wall.saturating_add(silence.as_secs().saturating_mul(1_000))).and_then(to_text);
    if note.is_some_and(|note| note.is_empty() || note.chars().count() > AlertAcknowledgement::NOTE_CHARS) {
        return Err(invalid("note", format!("must have 1 to {} characters", AlertAcknowledgement::NOTE_CHARS)));
    }
    let at = to_text(wall).ok_or_else(|| invalid("alert", "the time is out of range"))?;
    let by = author.writer.clone();
    // A merge patch: what is not there any more has to be null.
    let record = |alert: &AlertRow| json!({ "by": by, "at": at, "note": note, "since": alert.since, "reason": alert.sign(), "until": until });
    let changes = alerts.iter().map(|alert| (alert.key(), record(alert))).collect();
    write_acknowledgements(fleet, alerts, changes, wall, author)
}

/// Writes that these alerts are not acknowledged any more.
///
/// # Errors
/// The cluster is not known.
pub fn withdraw_acknowledgements(
    fleet: &Fleet,
    alerts: &[&AlertRow],
    wall: u64,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    let changes = alerts.iter().map(|alert| (alert.key(), Value::Null)).collect();
    write_acknowledgements(fleet, alerts, changes, wall, author)
}

fn write_acknowledgements(
    fleet: &Fleet,
    alerts: &[&AlertRow],
    mut changes: JsonObject,
    wall: u64,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    let first = alerts.first().ok_or_else(|| invalid("alert", "names none"))?;
    if alerts.iter().any(|alert| alert.cluster != first.cluster) {
        return Err(invalid("alert", "must be of one cluster"));
    }
    let wanted = first.cluster.clone().unwrap_or_default();
    let object = fleet.alert_object(first).ok_or(RequestError::Missing { field: "alert", wanted })?;
    let is_old = |known: &AlertAcknowledgement| {
        from_text(&known.at).is_none_or(|at| at.saturating_add(ACKNOWLEDGEMENT_AGE_MS) < wall)
    };
    let active: Vec<String> = fleet.alerts().iter().map(AlertRow::key).collect();
    for (key, _) in fleet.acknowledgements(object).alerts.iter().filter(|(_, known)| is_old(known)) {
        if !active.contains(key) && !changes.contains_key(key) {
            changes.insert(key.clone(), Value::Null);
        }
    }
    let patch = json!({ "alerts": changes });
    Ok(WriteRequest::patch(author.id, object).by(author.writer).entry(AlertAcknowledgements::slug(), patch))
}

/// Refuses a host that the cluster does not have. One that reports no host at all may be away; then the host cannot be checked.
fn check_host(fleet: &Fleet, cluster: Uuid, host: Option<&str>) -> Result<(), RequestError> {
    let Some(host) = host else { return Ok(()) };
    let name = fleet.clusters().into_iter().find(|row| row.uuid == cluster).map(|row| row.name);
    let hosts = name.map(|name| fleet.hosts(Some(&name))).unwrap_or_default();
    if hosts.is_empty() || hosts.iter().any(|known| known.hostname == host) {
        return Ok(());
    }
    Err(RequestError::Missing { field: "host", wanted: host.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, CLUSTER, NAME};
    use configdb_schema::document::Document;

    const WALL: u64 = 1_800_000_000_000;

    fn author() -> Author {
        Author { id: "r1".to_owned(), writer: "console/token:ada".to_owned() }
    }

    fn written<T: Document>(request: &WriteRequest) -> T {
        serde_json::from_value(request.entries[T::slug()].clone().unwrap()).unwrap()
    }

    #[test]
    fn a_cluster_of_the_same_name_is_the_same_object_and_a_bad_name_is_refused() {
        let bench = Bench::new();
        let entry = |name: &str| EdgeCluster { name: name.to_owned(), ..EdgeCluster::default() };
        let put = |name| put_cluster(&bench.fleet, &entry(name), None, author());
        assert_eq!(put("Paint_Shop").unwrap().object, put("Paint_Shop").unwrap().object);
        assert_eq!(put("Paint_Shop").unwrap().writer.unwrap(), "console/token:ada");
        assert!(put("Paint Shop").unwrap_err().to_string().starts_with("name: "));
    }

    #[test]
    fn labels_are_set_and_taken_away_and_stay_when_their_object_is_created_again() {
        let mut bench = Bench::with_cluster();
        let none = label(&bench.fleet, Uuid::nil(), &BTreeMap::new(), author()).unwrap_err();
        assert!(none.to_string().starts_with("object: there is no "), "{none}");
        let labels = [("site".to_owned(), "Graz".to_owned())].into();
        let location = Some("hall 2".to_owned());
        bench.entry(CLUSTER, &Info { name: NAME.to_owned(), labels, location, ..Info::default() });
        let row = bench.fleet.clusters().remove(0);
        assert_eq!((row.labels["site"].as_str(), row.labels["location"].as_str()), ("Graz", "hall 2"));
        let shown = crate::tables::Rows::of(&bench.fleet).clusters();
        assert_eq!(crate::tables::cluster_row(shown.values().next().unwrap()), Some(row), "the console has the same");
        let changes = [("line".to_owned(), Some("2".to_owned())), ("site".to_owned(), None)].into();
        let request = label(&bench.fleet, CLUSTER, &changes, author()).unwrap();
        assert_eq!(request.entries["Info"], Some(json!({ "labels": { "line": "2", "site": null } })));
        let changes = [("hall".to_owned(), None)].into();
        let error = label(&bench.fleet, CLUSTER, &changes, author()).unwrap_err();
        assert_eq!(error.to_string(), "label: there is no \"hall\"");
        let entry = EdgeCluster { name: NAME.to_owned(), ..EdgeCluster::default() };
        let again: Info = written(&put_cluster(&bench.fleet, &entry, Some(CLUSTER), author()).unwrap());
        assert_eq!((again.labels.len(), again.location.as_deref()), (1, Some("hall 2")));
    }

    #[test]
    fn no_new_deployment_has_a_name_that_its_edge_would_never_get() {
        let bench = Bench::with_cluster();
        let of = |name: &str| NewDeployment {
            cluster: CLUSTER,
            name: name.to_owned(),
            chart: known::chart::EDGE_AGENT,
            host: None,
            values: None,
        };
        for (name, rule) in
            [("", ""), ("a/b", ""), ("a+", ""), ("a.b", "has a dot"), ("Sync", "service"), ("Keys", "service")]
        {
            let error = put_deployment(&bench.fleet, of(name), WALL, author()).unwrap_err();
            assert!(matches!(&error, RequestError::Invalid { field: "name", .. }), "{name}: {error}");
            assert!(error.to_string().contains(rule), "{name}: {error}");
        }
        assert!(put_deployment(&bench.fleet, of("Oven_1"), WALL, author()).is_ok());
    }

    #[test]
    fn a_deployment_goes_to_a_host_that_there_is() {
        let mut bench = Bench::new();
        bench.cluster(CLUSTER, NAME, |_| {});
        let wanted = NewDeployment {
            cluster: CLUSTER,
            name: "Oven_1".to_owned(),
            chart: known::chart::EDGE_AGENT,
            host: None,
            values: None,
        };
        let request = put_deployment(&bench.fleet, wanted, WALL, author()).unwrap();
        let entry: EdgeDeployment = written(&request);
        assert_eq!(entry.created_at.as_deref(), Some("2027-01-15T08:00:00Z"));
        let missing = move_deployment(&bench.fleet, request.object, None, author()).unwrap_err();
        assert!(missing.to_string().starts_with("deployment: there is no "), "{missing}");
    }

    #[test]
    fn a_rollout_is_held_and_freed_for_the_template_of_now() {
        let mut bench = Bench::with_cluster();
        let chart = known::chart::EDGE_AGENT;
        let decide = |bench: &Bench, change| decide_rollout(&bench.fleet, chart, change, None, WALL, author());
        let missing = decide(&bench, RolloutChange::Hold).unwrap_err().to_string();
        assert!(missing.starts_with("template: there is no "), "{missing}");
        bench.entry(chart, &HelmChartTemplate::default());
        let etag = bench.fleet.config.entry(chart, HelmChartTemplate::slug()).unwrap().etag;
        assert!(decide(&bench, RolloutChange::Resume).unwrap_err().to_string().ends_with("is not held"));
        let held: ChartRollout = written(&decide(&bench, RolloutChange::Hold).unwrap());
        assert_eq!(held.hold.as_ref().unwrap().by, "console/token:ada");
        bench.entry(chart, &held);
        let both: ChartRollout = written(&decide(&bench, RolloutChange::Pass(CLUSTER)).unwrap());
        assert!(both.hold.is_some() && both.passed(Some(etag)).any(|(cluster, _)| cluster == CLUSTER));
        bench.entry(chart, &both);
        let resumed: ChartRollout = written(&decide(&bench, RolloutChange::Resume).unwrap());
        assert!(resumed.hold.is_none() && resumed.without.is_some());
        bench.entry(chart, &resumed);
        let none = decide(&bench, RolloutChange::WaitFor(CLUSTER)).unwrap();
        assert!(none.entries.is_empty() || none.entries.values().all(Option::is_none), "{none:?}");
        // Another template begins without the old decisions.
        bench.entry(chart, &HelmChartTemplate { chart: "other".to_owned(), ..HelmChartTemplate::default() });
        let etag = bench.fleet.config.entry(chart, HelmChartTemplate::slug()).unwrap().etag;
        let again: ChartRollout = written(&decide(&bench, RolloutChange::Pass(CLUSTER)).unwrap());
        assert_eq!((again.without.unwrap().template, again.hold), (etag, None));
    }

    #[test]
    fn all_that_is_bound_to_a_host_goes_to_another_one_and_nothing_else() {
        let mut bench = Bench::with_cluster();
        let deployments = [(1, Some("paint-9")), (2, Some("paint-1")), (3, None), (4, Some("paint-9"))];
        for (n, host) in deployments {
            bench.deployment(Uuid::from_u128(n), &format!("D{n}"), host);
        }
        let by = |place: usize| Author { id: format!("r-{place}"), writer: "x".to_owned() };
        let moved = |host: &str, to| move_host(&bench.fleet, CLUSTER, host, to, by);
        let all = moved("paint-9", Some("paint-1")).unwrap();
        let objects: Vec<(u128, &str)> = all.iter().map(|write| (write.object.as_u128(), write.id.as_str())).collect();
        assert_eq!(objects, [(1, "r-0"), (4, "r-1")]);
        assert_eq!(moved("paint-9", Some("paint-8")).unwrap_err().to_string(), "host: there is no \"paint-8\"");
        assert_eq!(moved("paint-5", None).unwrap_err().to_string(), "no deployment is bound to paint-5");
    }

    #[test]
    fn an_acknowledgement_counts_for_the_alert_that_was_meant_and_no_other() {
        let mut bench = Bench::with_cluster();
        bench.monitor(NAME, &["Oven_1"]);
        let alerts = bench.fleet.alerts();
        let oven = &alerts[0];
        assert_eq!((oven.key().as_str(), oven.since), ("Paint_Shop/Oven_1/Offline/ACME-Paint_Shop/Monitor", Some(5)));
        let request = acknowledge_alerts(&bench.fleet, &[oven], Some("on it"), None, WALL, author()).unwrap();
        assert_eq!(request.object, CLUSTER);
        let patch = request.entries[AlertAcknowledgements::slug()].clone().unwrap();
        let record = json!({ "by": "console/token:ada", "at": "2027-01-15T08:00:00Z", "note": "on it", "since": 5, "reason": null, "until": null });
        assert_eq!(patch, json!({ "alerts": { oven.key(): record } }));
        // As ConfigDB merges it.
        let acknowledgement = |since| AlertAcknowledgement {
            by: "console/token:ada".to_owned(),
            at: "2027-01-15T08:00:00Z".to_owned(),
            note: None,
            since,
            reason: None,
            until: None,
        };
        let mut write = |since| {
            let alerts = [(oven.key(), acknowledgement(since)), ("over".to_owned(), acknowledgement(None))].into();
            bench.entry(CLUSTER, &AlertAcknowledgements { alerts });
            let rows = crate::tables::Rows::of(&bench.fleet);
            (bench.fleet.alerts()[0].acknowledged.clone(), rows.fleet()["fleet"]["acknowledged"].clone())
        };
        assert_eq!(write(Some(4)), (None, json!(0)), "it has become active again since");
        let (acknowledged, count) = write(Some(5));
        assert_eq!((acknowledged.unwrap().at, count), (Some(WALL), json!(1)));
        let undo = |wall| withdraw_acknowledgements(&bench.fleet, &[oven], wall, author()).unwrap();
        let withdrawn = |wall| undo(wall).entries[AlertAcknowledgements::slug()].clone().unwrap();
        assert_eq!(withdrawn(WALL), json!({ "alerts": { oven.key(): null } }));
        let later = WALL + 31 * 24 * 3_600_000;
        assert_eq!(
            withdrawn(later),
            json!({ "alerts": { oven.key(): null, "over": null } }),
            "what is over goes in the end"
        );
    }

    #[test]
    fn an_alert_of_no_known_beginning_is_recognised_by_its_reason_and_a_note_has_bounds() {
        let mut bench = Bench::with_cluster();
        bench.cluster(CLUSTER, NAME, |device| device.identity.alert = Some("a token was used again".to_owned()));
        let alerts = bench.fleet.alerts();
        let identity = alerts.iter().find(|row| row.alert == "Identity").unwrap();
        let put = |note| acknowledge_alerts(&bench.fleet, &[identity], note, None, WALL, author());
        let entry = put(None).unwrap().entries[AlertAcknowledgements::slug()].clone().unwrap();
        assert_eq!(entry["alerts"][identity.key()]["reason"], "a token was used again");
        assert!(put(Some("")).unwrap_err().to_string().starts_with("note: "));
        assert!(put(Some(&"x".repeat(1_001))).is_err());
        let unknown = AlertRow { cluster: Some("Other".to_owned()), ..identity.clone() };
        let error = acknowledge_alerts(&bench.fleet, &[&unknown], None, None, WALL, author()).unwrap_err();
        assert_eq!(error.to_string(), "alert: there is no \"Other\"");
    }

    #[test]
    fn a_silence_counts_for_its_time_also_where_the_alert_comes_again_and_ends_by_itself() {
        let mut bench = Bench::with_cluster();
        bench.monitor(NAME, &["Oven_1"]);
        let alerts = bench.fleet.alerts();
        let silence = |silence| {
            let silence = Some(Duration::from_secs(silence));
            acknowledge_alerts(&bench.fleet, &[&alerts[0]], None, silence, WALL, author())
        };
        let hour = silence(3_600).unwrap().entries[AlertAcknowledgements::slug()].clone().unwrap();
        let mut record = hour["alerts"][alerts[0].key()].clone();
        assert_eq!(record["until"], "2027-01-15T09:00:00Z");
        for bad in [0, AlertAcknowledgement::SILENCE_SECONDS + 1] {
            assert!(silence(bad).unwrap_err().to_string().starts_with("silence: must be"), "{bad}");
        }
        // It became active again since.
        record["since"] = json!(4);
        record.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let record: AlertAcknowledgement = serde_json::from_value(record).unwrap();
        bench.entry(CLUSTER, &AlertAcknowledgements { alerts: [(alerts[0].key(), record)].into() });
        let mut until_at = |wall| {
            bench.fleet.set_time(wall);
            bench.fleet.alerts()[0].acknowledged.clone().and_then(|known| known.until)
        };
        let hour = 3_600_000;
        assert_eq!(until_at(WALL + hour - 1), Some(WALL + hour));
        assert_eq!(until_at(WALL + hour), None);
    }

    #[test]
    fn a_deployment_is_suspended_resumed_and_reconciled_by_its_entry_as_it_is_known() {
        let mut bench = Bench::with_cluster();
        let (oven, press) = (Uuid::from_u128(1), Uuid::from_u128(2));
        bench.deployment(oven, "Oven", None);
        bench.deployment(press, "Press", None);
        let etag = bench.fleet.config.entry(oven, EdgeDeployment::slug()).map(|entry| entry.etag);
        let patched = |request: &WriteRequest| {
            assert_eq!(request.if_match[EdgeDeployment::slug()], etag);
            request.entries[EdgeDeployment::slug()].clone().unwrap()
        };
        let suspend = |suspend| suspend_deployment(&bench.fleet, oven, suspend, author()).unwrap();
        assert_eq!(patched(&suspend(true)), json!({ "suspend": true }));
        assert_eq!(patched(&suspend(false)), json!({ "suspend": null }));
        let asked = reconcile_deployment(&bench.fleet, oven, WALL + 5, author()).unwrap();
        assert_eq!(patched(&asked), json!({ "reconcileRequestedAt": "2027-01-15T08:00:00.005Z" }));
        let by = |place: usize| Author { id: format!("r-{place}"), writer: "x".to_owned() };
        assert_eq!(reconcile_cluster(&bench.fleet, CLUSTER, WALL, by).unwrap().len(), 2);
        let none = suspend_deployment(&bench.fleet, CLUSTER, true, author()).unwrap_err();
        assert!(none.to_string().starts_with("deployment: there is no "), "{none}");
        let mut entry: EdgeDeployment = bench.fleet.config.document(oven).unwrap().unwrap();
        entry.suspend = true;
        bench.entry(oven, &entry);
        let refused = reconcile_deployment(&bench.fleet, oven, WALL, author()).unwrap_err();
        assert_eq!(refused.to_string(), "Oven is suspended; resume it first");
        assert_eq!(reconcile_cluster(&bench.fleet, CLUSTER, WALL, by).unwrap()[0].object, press);
        // The same deployment is created once more, as a script does.
        let wanted = NewDeployment {
            cluster: CLUSTER,
            name: "Oven".to_owned(),
            chart: known::chart::EDGE_AGENT,
            host: None,
            values: None,
        };
        let again: EdgeDeployment = written(&put_deployment(&bench.fleet, wanted, WALL, author()).unwrap());
        assert!(again.suspend);
    }

    #[test]
    fn a_token_is_made_once_for_clusters_that_there_are_and_revoked_by_its_name() {
        let mut bench = Bench::with_cluster();
        bench.entry(CLUSTER, &EdgeCluster::default());
        let create = |bench: &Bench, name: &'static str, clusters: Option<&[Uuid]>, seconds: u64| {
            let clusters = clusters.map(<[Uuid]>::to_vec);
            let (hash, lifetime) = ("0f".repeat(32), Duration::from_secs(seconds));
            let wanted = NewToken { name, hash, scope: TokenScope::Operator, clusters, lifetime };
            create_token(&bench.fleet, wanted, WALL, author())
        };
        let (request, token) = create(&bench, "ci", Some(&[CLUSTER, CLUSTER]), 60).unwrap();
        assert_eq!(token, written::<ApiToken>(&request));
        assert_eq!((token.clusters.as_deref(), &*token.expires), (Some(&[CLUSTER][..]), "2027-01-15T08:01:00Z"));
        for (name, clusters, seconds, reason) in [
            ("../ci", None, 60, "name: "),
            ("ci", Some(&[][..]), 60, "clusters: must name some"),
            ("ci", Some(&[Uuid::nil()][..]), 60, "cluster: there is no "),
            ("ci", None, 0, "expires: "),
            ("ci", None, u64::MAX / 1_000, "expires: "),
        ] {
            let error = create(&bench, name, clusters, seconds).unwrap_err().to_string();
            assert!(error.starts_with(reason), "{error}");
        }
        let revoke = |bench: &Bench| revoke_token(&bench.fleet, "ci", author());
        assert_eq!(revoke(&bench).unwrap_err().to_string(), "name: there is no \"ci\"");
        bench.apply(&request);
        assert!(create(&bench, "ci", None, 60).unwrap_err().to_string().starts_with("there is a token \"ci\""));
        bench.apply(&revoke(&bench).unwrap());
        assert!(create(&bench, "ci", None, 60).is_ok());
    }

    const PLACE: SecretPlace<'static> = SecretPlace { cluster: CLUSTER, namespace: "fplus-edge", name: "login" };

    fn put_value(bench: &Bench, key: &str, scope: SealingScope, wall: u64) -> Result<WriteRequest, RequestError> {
        let (secret_type, sealed, fingerprint) = ("Opaque", "AAAA", "f1");
        let wanted = NewSecretValue { place: PLACE, scope, secret_type, key, sealed, fingerprint };
        put_secret_value(&bench.fleet, wanted, wall, author())
    }

    /// As ConfigDB merges it.
    fn merged(bench: &mut Bench, request: &WriteRequest) {
        let patch = request.entries[SealedSecret::slug()].clone().unwrap();
        let known: Option<SealedSecret> = bench.fleet.config.document(request.object).unwrap();
        let mut entry = known.map_or_else(|| json!({}), |known| serde_json::to_value(known).unwrap());
        merge(&mut entry, patch);
        bench.entry(request.object, &serde_json::from_value::<SealedSecret>(entry).unwrap());
    }

    fn merge(target: &mut Value, patch: Value) {
        let Value::Object(patch) = patch else { return *target = patch };
        if !target.is_object() {
            *target = json!({});
        }
        for (key, value) in patch {
            match value {
                Value::Null => drop(target.as_object_mut().unwrap().remove(&key)),
                value => merge(&mut target[key], value),
            }
        }
    }

    /// Each key with its state, as rows spell it.
    fn states(bench: &Bench) -> Value {
        let keys = |row: crate::SecretRow| row.keys.into_iter().map(|key| (key.key, key.state));
        json!(bench.fleet.secrets(CLUSTER).into_iter().flat_map(keys).collect::<Vec<_>>())
    }

    #[test]
    fn a_value_of_a_secret_waits_until_the_repository_has_it_and_goes_when_it_is_deleted() {
        let mut bench = Bench::with_cluster();
        bench.entry(CLUSTER, &EdgeCluster::default());
        let password = put_value(&bench, "password", SealingScope::Strict, WALL).unwrap();
        merged(&mut bench, &password);
        assert_eq!(states(&bench), json!([["password", "waits"]]));
        let stored = |bench: &mut Bench, keys: &[(&str, Option<&str>)]| {
            let key = |(key, at): &(&str, Option<&str>)| {
                let at = at.map(str::to_owned);
                ((*key).to_owned(), cluster_manager_contract::StoredKey { sealed_for: Some("f1".to_owned()), at })
            };
            let secret = cluster_manager_contract::StoredSecret {
                namespace: "fplus-edge".to_owned(),
                name: "login".to_owned(),
                scope: SealingScope::Strict,
                secret_type: "Opaque".to_owned(),
                keys: keys.iter().map(key).collect(),
            };
            bench.cluster(CLUSTER, NAME, |device| {
                device.secrets.stored = Some(cluster_manager_contract::StoredSecrets(vec![secret]));
            });
        };
        // Another key was in the repository before ConfigDB had secrets.
        stored(&mut bench, &[("password", Some("2027-01-15T08:00:00.000Z")), ("old", None)]);
        assert_eq!(states(&bench), json!([["old", "written"], ["password", "written"]]));
        let error = put_value(&bench, "password", SealingScope::ClusterWide, WALL).unwrap_err().to_string();
        assert!(error.starts_with("scope: fplus-edge/login has strict, not cluster-wide"), "{error}");
        let gone =
            |bench: &Bench, key: &str| delete_secret_keys(&bench.fleet, PLACE, &[key.to_owned()], WALL, author());
        assert_eq!(gone(&bench, "other").unwrap_err().to_string(), "key: there is no \"fplus-edge/login/other\"");
        for key in ["password", "old"] {
            let request = gone(&bench, key).unwrap();
            merged(&mut bench, &request);
        }
        assert_eq!(states(&bench), json!([["old", "goes"], ["password", "goes"]]));
        assert!(gone(&bench, "old").is_err(), "it is deleted already");
        stored(&mut bench, &[]);
        assert_eq!(states(&bench), json!([]));
        assert!(put_value(&bench, "password", SealingScope::ClusterWide, WALL).is_ok());
    }

    #[test]
    fn a_secret_that_fits_into_no_message_is_refused_before_it_is_sent() {
        let mut bench = Bench::with_cluster();
        let put = |bench: &Bench, key: &str, length: usize| {
            let (scope, secret_type, sealed) = (SealingScope::Strict, "Opaque", "A".repeat(length));
            let wanted = NewSecretValue { place: PLACE, scope, secret_type, key, sealed: &sealed, fingerprint: "f1" };
            put_secret_value(&bench.fleet, wanted, WALL, author())
        };
        let first = put(&bench, "a", 200_000).unwrap();
        merged(&mut bench, &first);
        let error = put(&bench, "b", 100_000).unwrap_err().to_string();
        assert!(error.starts_with("value: with it the sealed values of the Secret would take 300000 bytes"), "{error}");
        assert!(put(&bench, "a", 250_000).is_ok(), "it takes the place of the one before");
        assert!(put(&bench, "a", 300_000).is_err());
    }

    #[test]
    fn what_is_decided_of_a_key_is_later_than_what_was_whatever_the_clock_says() {
        let missing = put_value(&Bench::new(), "password", SealingScope::Strict, WALL).unwrap_err().to_string();
        let mut bench = Bench::with_cluster();
        assert!(missing.starts_with("cluster: there is no "), "{missing}");
        bench.entry(CLUSTER, &EdgeCluster::default());
        let first = put_value(&bench, "password", SealingScope::Strict, WALL).unwrap();
        merged(&mut bench, &first);
        let again = put_value(&bench, "password", SealingScope::Strict, WALL - 1_000_000).unwrap();
        assert_eq!(again.object, first.object);
        merged(&mut bench, &again);
        let entry: SealedSecret = bench.fleet.config.document(first.object).unwrap().unwrap();
        assert_eq!(entry.keys["password"].at, "2027-01-15T08:00:00.001Z");
    }

    #[test]
    fn a_bootstrap_token_is_added_by_its_hash_until_it_ends() {
        let mut bench = Bench::new();
        bench.cluster(CLUSTER, NAME, |_| {});
        let hour = Duration::from_secs(3600);
        let (request, expires) = add_bootstrap_token(&bench.fleet, CLUSTER, "abcd", hour, WALL, author()).unwrap();
        assert_eq!(expires, "2027-01-15T09:00:00Z");
        let entry: EdgeClusterEnrolment = written(&request);
        assert_eq!((entry.tokens.len(), entry.tokens[0].hash.as_str()), (1, "abcd"));
        assert_eq!(request.if_match[EdgeClusterEnrolment::slug()], None);
    }

    #[test]
    fn a_cluster_has_no_more_tokens_than_the_limit_of_which_those_that_expired_do_not_count() {
        let mut bench = Bench::new();
        bench.cluster(CLUSTER, NAME, |_| {});
        let token = |at: usize, expires: &str| EnrolmentToken {
            hash: format!("{at}"),
            issued: "2027-01-01T00:00:00Z".to_owned(),
            expires: expires.to_owned(),
            by: String::new(),
        };
        let alive = (1..TOKENS_MAX).map(|at| token(at, "2027-02-01T00:00:00Z"));
        let tokens: Vec<EnrolmentToken> = alive.chain([token(0, "2027-01-02T00:00:00Z")]).collect();
        bench.entry(CLUSTER, &EdgeClusterEnrolment { tokens, ..EdgeClusterEnrolment::default() });
        let hour = Duration::from_secs(3600);
        let add = |bench: &Bench| add_bootstrap_token(&bench.fleet, CLUSTER, "abcd", hour, WALL, author());
        let (request, _) = add(&bench).unwrap();
        let full: EdgeClusterEnrolment = written(&request);
        assert!(full.tokens.len() == TOKENS_MAX && full.tokens.iter().all(|token| token.hash != "0"));
        bench.entry(CLUSTER, &full);
        let refused = add(&bench).unwrap_err();
        assert_eq!(refused.to_string(), "the cluster has 32 tokens already; revoke those that are not used");
    }
}
