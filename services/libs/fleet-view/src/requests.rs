//! The writes to ConfigDB by which people change the fleet. The command line and the web console send these, so that a button does what its command does.
//!
//! Pure: request ids, names of writers and times are arguments. Whether a user may write is judged elsewhere.

use std::time::Duration;

use configdb_contract::{Entry, WriteRequest};
use configdb_schema::address::{self, ClusterName, Organisation};
use configdb_schema::document::{
    AlertAcknowledgement, AlertAcknowledgements, ChartRollout, EdgeCluster, EdgeClusterEnrolment, EdgeDeployment,
    EnrolmentToken, HelmChartTemplate, Info, JsonObject, RolloutDecision, RolloutWithout,
};
use configdb_schema::{Document as _, application, known};
use jiff::Timestamp;
use serde_json::{Value, json};
use sparkplug::EdgeNodeId;
use uuid::Uuid;

use crate::{AlertRow, Fleet};

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
    organisation: &Organisation,
    entry: &EdgeCluster,
    uuid: Option<Uuid>,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    let name = ClusterName::new(entry.name.clone()).map_err(|rule| invalid("name", rule))?;
    let uuid = uuid.unwrap_or_else(|| cluster_uuid(organisation, name.as_str()));
    let info = Info { name: entry.name.clone(), ..Info::default() };
    let request = author.put(uuid).create_object(known::class::EDGE_CLUSTER, None);
    request.document(&info).and_then(|request| request.document(entry)).map_err(|error| invalid("name", error))
}

/// Deletes a cluster's entry: its tear-down begins.
#[must_use]
pub fn delete_cluster(uuid: Uuid, author: Author) -> WriteRequest {
    author.put(uuid).delete(EdgeCluster::slug())
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
            (uuid, EdgeDeployment { created_at: moment(wall), ..EdgeDeployment::default() })
        }
    };
    let class =
        if chart == known::chart::EDGE_AGENT { known::class::EDGE_AGENT } else { known::class::EDGE_DEPLOYMENT };
    let info = Info { name: name.clone(), ..Info::default() };
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
    let at = i64::try_from(wall).ok().and_then(|wall| Timestamp::from_millisecond(wall).ok());
    let at = at.ok_or_else(|| invalid("deployment", "the time is out of range"))?;
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
    let (issued, expires) = (moment(wall).ok_or_else(range)?, moment(ends).ok_or_else(range)?);
    enrolment.tokens.retain(|token| ms(&token.expires).is_some_and(|ends| ends > wall));
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
    let at = moment(wall).ok_or_else(|| invalid("template", "the time is out of range"))?;
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
    let until = silence.map(|silence| wall.saturating_add(silence.as_secs().saturating_mul(1_000))).and_then(moment);
    if note.is_some_and(|note| note.is_empty() || note.chars().count() > AlertAcknowledgement::NOTE_CHARS) {
        return Err(invalid("note", format!("must have 1 to {} characters", AlertAcknowledgement::NOTE_CHARS)));
    }
    let at = moment(wall).ok_or_else(|| invalid("alert", "the time is out of range"))?;
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
    let is_old =
        |known: &AlertAcknowledgement| ms(&known.at).is_none_or(|at| at.saturating_add(ACKNOWLEDGEMENT_AGE_MS) < wall);
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

/// RFC 3339, to the second; None: out of range.
fn moment(wall_ms: u64) -> Option<String> {
    let seconds = i64::try_from(wall_ms / 1000).ok()?;
    Timestamp::from_second(seconds).ok().map(|time| time.to_string())
}

fn ms(text: &str) -> Option<u64> {
    text.parse::<Timestamp>().ok().and_then(|time| u64::try_from(time.as_millisecond()).ok())
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
        let put = |name| put_cluster(bench.fleet.organisation(), &entry(name), None, author());
        assert_eq!(put("Paint_Shop").unwrap().object, put("Paint_Shop").unwrap().object);
        assert_eq!(put("Paint_Shop").unwrap().writer.unwrap(), "console/token:ada");
        assert!(put("Paint Shop").unwrap_err().to_string().starts_with("name: "));
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
}
