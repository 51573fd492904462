//! What edges would delete, and what else would end or count again, because of writes that are not sent yet. Pure.

use std::collections::BTreeSet;

use configdb_contract::{Mode, RegistrationChange, WriteRequest};
use configdb_schema::Document;
use configdb_schema::document::{
    ApiToken, AttestationPolicy, EdgeCluster, EdgeClusterEnrolment, EdgeDeployment, EnrolledHost,
};
use serde::{Deserialize as _, Serialize};
use uuid::Uuid;

use fleet_view::Fleet;

/// Something that an edge would delete.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Deletion {
    /// Name of the cluster that has it now; its UUID if it has none.
    pub cluster: String,
    /// Name of the deployment.
    pub deployment: String,
    /// Its object.
    pub uuid: Uuid,
    /// Why it would be deleted there.
    pub reason: String,
}

/// What edges would delete if ConfigDB carried these writes out, sorted.
#[must_use]
pub(crate) fn deletions(fleet: &Fleet, writes: &[WriteRequest]) -> Vec<Deletion> {
    let mut deletions: Vec<Deletion> = writes.iter().filter_map(|write| deletion(fleet, write)).collect();
    deletions.sort();
    deletions
}

fn deletion(fleet: &Fleet, write: &WriteRequest) -> Option<Deletion> {
    let before: EdgeDeployment = fleet.config.document(write.object).ok().flatten()?;
    let cluster = |uuid| cluster_name(fleet, uuid);
    let reason = reason(&before, write, cluster)?;
    Some(Deletion { cluster: cluster(before.cluster), deployment: before.name, uuid: write.object, reason })
}

/// Something else than a deployment that ends by a write, or counts again although it had ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Loss {
    /// `certificate`, `cluster`, `host`, `policy` or `token`.
    pub kind: &'static str,
    /// Its name; a certificate's serial number.
    pub name: String,
    /// Name of the cluster that it belongs to; None: to all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Object that is written.
    pub uuid: Uuid,
    /// What becomes of it.
    pub reason: String,
}

/// What else ends or counts again if ConfigDB carries these writes out, sorted.
#[must_use]
pub(crate) fn losses(fleet: &Fleet, writes: &[WriteRequest]) -> Vec<Loss> {
    let mut losses = Vec::new();
    for write in writes {
        let cluster = cluster_name(fleet, write.object);
        let mut say = |kind: &'static str, name: &str, reason: String| {
            let cluster = Some(cluster.clone()).filter(|_| !matches!(kind, "cluster" | "token"));
            losses.push(Loss { kind, name: name.to_owned(), cluster, uuid: write.object, reason });
        };
        if let Some((before, after)) = change::<EdgeCluster>(fleet, write) {
            of_cluster(&before, after.as_ref(), |reason| say("cluster", &before.name, reason));
        }
        if let Some((before, after)) = change::<AttestationPolicy>(fleet, write) {
            of_policy(&before, after.as_ref(), |kind, name, reason| say(kind, name, reason));
        }
        if let Some((before, after)) = change::<EdgeClusterEnrolment>(fleet, write) {
            of_enrolment(&before, after.as_ref(), |name, reason| say("certificate", name, reason));
        }
        match change::<ApiToken>(fleet, write) {
            Some((before, after)) => of_token(&before, after.as_ref(), |reason| say("token", &before.name, reason)),
            None if fleet.config.entry(write.object, ApiToken::slug()).is_none() => {
                if let Some(token) = written::<ApiToken>(write) {
                    say("token", &token.name, "it is not there at present, and counts from then on".to_owned());
                }
            }
            None => {}
        }
    }
    losses.sort();
    losses
}

fn cluster_name(fleet: &Fleet, uuid: Uuid) -> String {
    let entry: Option<EdgeCluster> = fleet.config.document(uuid).ok().flatten();
    entry.map_or_else(|| uuid.to_string(), |entry| entry.name)
}

/// The document that is there and what a write makes of it (None: nothing); None if there is none, or it stays, or it is patched.
fn change<T: Document>(fleet: &Fleet, write: &WriteRequest) -> Option<(T, Option<T>)> {
    let before: T = fleet.config.document(write.object).ok().flatten()?;
    let is_deleted = write.registration == Some(RegistrationChange::Delete)
        || write.entries.get(T::slug()).is_some_and(Option::is_none);
    if is_deleted { Some((before, None)) } else { Some((before, Some(written(write)?))) }
}

/// The document that a write puts. ConfigDB refuses what is none.
fn written<T: Document>(write: &WriteRequest) -> Option<T> {
    let value = write.entries.get(T::slug())?.as_ref().filter(|_| write.mode == Mode::Put)?;
    T::deserialize(value).ok()
}

fn of_cluster(before: &EdgeCluster, after: Option<&EdgeCluster>, mut say: impl FnMut(String)) {
    let Some(after) = after else { return say("it is torn down, and its repository is closed".to_owned()) };
    if after.name != before.name {
        say(format!("it is called {} from then on, and no edge follows that name yet", after.name));
    }
    if after.namespace != before.namespace {
        say(format!("its namespace {} is left for {}", before.namespace, after.namespace));
    }
    let keys = |cluster: &EdgeCluster| -> BTreeSet<String> {
        cluster.values.iter().flat_map(|values| values.keys().cloned()).collect()
    };
    let gone: Vec<String> = keys(before).difference(&keys(after)).cloned().collect();
    if !gone.is_empty() {
        say(format!("its values lose {}", gone.join(", ")));
    }
}

fn of_policy(
    before: &AttestationPolicy,
    after: Option<&AttestationPolicy>,
    mut say: impl FnMut(&'static str, &str, String),
) {
    let Some(after) = after else {
        return say("policy", "attestation", "it is gone; the join service keeps the one that it has".to_owned());
    };
    let serial = |policy: &AttestationPolicy| policy.signature.as_ref().map_or(0, |signature| signature.serial);
    if serial(after) < serial(before) {
        let reason =
            format!("its serial {} is lower than {}; the join service refuses it", serial(after), serial(before));
        say("policy", "attestation", reason);
    }
    let keys = |hosts: &[EnrolledHost]| -> BTreeSet<String> { hosts.iter().map(|host| host.ek.clone()).collect() };
    let enrolled = keys(&after.endorsement.enrolled);
    for host in before.endorsement.enrolled.iter().filter(|host| !enrolled.contains(&host.ek)) {
        say("host", host.host.as_ref().unwrap_or(&host.ek), "it is not enrolled any more".to_owned());
    }
    for ek in before.endorsement.revoked.iter().filter(|ek| !after.endorsement.revoked.contains(ek)) {
        say("host", ek, "its endorsement key is not revoked any more".to_owned());
    }
}

fn of_enrolment(
    before: &EdgeClusterEnrolment,
    after: Option<&EdgeClusterEnrolment>,
    mut say: impl FnMut(&str, String),
) {
    let after = after.cloned().unwrap_or_default();
    for serial in before.revoked.iter().filter(|serial| !after.revoked.contains(serial)) {
        say(serial, "ConfigDB does not have it as revoked any more".to_owned());
    }
    if after.fence < before.fence {
        say("all", format!("those that were issued under a fence below {} are not revoked any more", before.fence));
    }
}

fn of_token(before: &ApiToken, after: Option<&ApiToken>, mut say: impl FnMut(String)) {
    let Some(after) = after else { return say("it is revoked".to_owned()) };
    if after.hash != before.hash {
        say("it is another token of that name; the present one is refused".to_owned());
    }
    if after.scope < before.scope {
        say(format!("its scope {} becomes {}", before.scope.as_str(), after.scope.as_str()));
    }
    let is_narrower = match (&before.clusters, &after.clusters) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(before), Some(after)) => before.iter().any(|cluster| !after.contains(cluster)),
    };
    if is_narrower {
        say("it is for fewer clusters".to_owned());
    }
    if after.expires != before.expires {
        say(format!("it ends at {} instead of {}", after.expires, before.expires));
    }
}

fn reason(before: &EdgeDeployment, write: &WriteRequest, cluster: impl Fn(Uuid) -> String) -> Option<String> {
    if write.registration == Some(RegistrationChange::Delete) {
        return Some("its object is deleted".to_owned());
    }
    let Some(value) = write.entries.get(EdgeDeployment::slug())? else {
        return Some("its entry is deleted".to_owned());
    };
    let value = match write.mode {
        Mode::Put => value.clone(),
        Mode::Patch => return Some("its entry is patched".to_owned()),
    };
    // ConfigDB refuses what is not a deployment.
    let after = EdgeDeployment::deserialize(&value).ok()?;
    if after.cluster != before.cluster {
        return Some(format!("it moves to cluster {}", cluster(after.cluster)));
    }
    let gone: Vec<String> = before
        .chart_templates()
        .iter()
        .filter(|chart| !after.chart_templates().contains(chart))
        .map(Uuid::to_string)
        .collect();
    (!gone.is_empty()).then(|| format!("it no longer has chart template {}", gone.join(", ")))
}

#[cfg(test)]
mod tests {
    use configdb_schema::document::JsonObject;
    use serde_json::json;

    use super::*;

    fn put(value: serde_json::Value) -> WriteRequest {
        WriteRequest::put("r", Uuid::from_u128(1)).entry(EdgeDeployment::slug(), value)
    }

    #[test]
    fn what_edges_would_delete_is_named_by_cluster_and_sorted() {
        let mut bench = fleet_view::bench::Bench::with_cluster();
        let (oven, press) = (Uuid::from_u128(0x10), Uuid::from_u128(0x11));
        bench.deployment(press, "Press", None);
        bench.deployment(oven, "Oven", None);
        let writes = [
            WriteRequest::put("a", press).delete_object(),
            WriteRequest::put("b", oven).delete(EdgeDeployment::slug()),
            WriteRequest::put("c", Uuid::from_u128(0x12)).delete_object(),
        ];
        let found = deletions(&bench.fleet, &writes);
        let named: Vec<(&str, &str)> = found.iter().map(|one| (one.deployment.as_str(), one.reason.as_str())).collect();
        assert_eq!(named, [("Oven", "its entry is deleted"), ("Press", "its object is deleted")]);
        assert!(found.iter().all(|one| one.cluster == fleet_view::bench::NAME), "{found:?}");
        assert_eq!(json!(found[0])["uuid"], oven.to_string(), "programs get the object");
        let patched = WriteRequest::patch("d", oven).entry(EdgeDeployment::slug(), json!({ "hostname": "paint-1" }));
        assert_eq!(
            deletions(&bench.fleet, &[patched])[0].reason,
            "its entry is patched",
            "it is not known what comes of it"
        );
    }

    #[test]
    fn what_else_ends_or_counts_again_is_named_by_kind_and_cluster() {
        let mut bench = fleet_view::bench::Bench::with_cluster();
        let (paint, ci, gone) = (fleet_view::bench::CLUSTER, Uuid::from_u128(0x20), Uuid::from_u128(0x21));
        let token = |name: &str, scope: &str| json!({ "name": name, "hash": "h", "scope": scope, "issued": "i", "expires": "e", "by": "ada" });
        let policy = |serial: u64, hosts: &[&str], revoked: &[&str]| {
            json!({
                "bank": "sha256", "pcrs": {}, "lock": { "pcr": 12 },
                "endorsement": {
                    "require": "enrolment", "revoked": revoked,
                    "enrolled": hosts.iter().map(|host| json!({ "ek": format!("{host}-ek"), "host": host })).collect::<Vec<_>>(),
                },
                "signature": { "cluster": paint, "serial": serial, "notAfterMs": 1, "certificates": [], "value": "" },
            })
        };
        let document = |value: serde_json::Value| serde_json::from_value(value).unwrap();
        let cluster =
            |name: &str, values: serde_json::Value| json!({ "name": name, "namespace": "edge", "values": values });
        bench.entry::<EdgeCluster>(
            paint,
            &serde_json::from_value(cluster("Paint_Shop", json!({"a": 1, "b": 2}))).unwrap(),
        );
        bench.entry::<AttestationPolicy>(paint, &document(policy(5, &["p-1", "p-2"], &["bad"])));
        let enrolment = json!({ "fence": 2, "revoked": ["0a", "0b"] });
        bench.entry::<EdgeClusterEnrolment>(paint, &serde_json::from_value(enrolment).unwrap());
        bench.entry::<ApiToken>(ci, &serde_json::from_value(token("ci", "operator")).unwrap());
        let writes = [
            WriteRequest::put("a", paint)
                .entry("EdgeCluster", cluster("Paint", json!({"b": 2})))
                .entry("AttestationPolicy", policy(4, &["p-1"], &[]))
                .entry("EdgeClusterEnrolment", json!({ "fence": 1, "revoked": ["0b"] })),
            WriteRequest::put("b", ci).entry("ApiToken", token("ci", "viewer")),
            WriteRequest::put("c", gone).entry("ApiToken", token("old", "viewer")),
        ];
        let found = losses(&bench.fleet, &writes);
        let said: Vec<String> = found
            .iter()
            .map(|one| format!("{} {} {}: {}", one.kind, one.name, one.cluster.as_deref().unwrap_or("-"), one.reason))
            .collect();
        assert_eq!(
            said,
            [
                "certificate 0a Paint_Shop: ConfigDB does not have it as revoked any more",
                "certificate all Paint_Shop: those that were issued under a fence below 2 are not revoked any more",
                "cluster Paint_Shop -: it is called Paint from then on, and no edge follows that name yet",
                "cluster Paint_Shop -: its values lose a",
                "host bad Paint_Shop: its endorsement key is not revoked any more",
                "host p-2 Paint_Shop: it is not enrolled any more",
                "policy attestation Paint_Shop: its serial 4 is lower than 5; the join service refuses it",
                "token ci -: its scope operator becomes viewer",
                "token old -: it is not there at present, and counts from then on",
            ]
        );
        let same = [
            WriteRequest::put("a", paint).entry("AttestationPolicy", policy(5, &["p-1", "p-2"], &["bad"])),
            WriteRequest::put("b", ci).entry("ApiToken", token("ci", "administrator")),
        ];
        assert_eq!(losses(&bench.fleet, &same), []);
        let deleted = losses(
            &bench.fleet,
            &[WriteRequest::put("d", ci).delete_object(), WriteRequest::put("e", paint).delete_object()],
        );
        let kinds: Vec<&str> = deleted.iter().map(|one| one.kind).collect();
        assert_eq!(kinds, ["certificate", "certificate", "certificate", "cluster", "policy", "token"]);
    }

    #[test]
    fn a_deployment_that_moves_changes_its_chart_or_goes_is_deleted_where_it_is() {
        let (here, there, one, two) =
            (Uuid::from_u128(10), Uuid::from_u128(11), Uuid::from_u128(20), Uuid::from_u128(21));
        let before = json!({"cluster": here, "name": "Oven", "charts": [one, two]});
        let before = EdgeDeployment { extra: JsonObject::default(), ..EdgeDeployment::deserialize(&before).unwrap() };
        let reason = |write: WriteRequest| {
            reason(&before, &write, |uuid| if uuid == there { "B".to_owned() } else { String::new() })
        };
        let moved = put(json!({"cluster": there, "name": "Oven", "charts": [one, two]}));
        assert_eq!(reason(moved).as_deref(), Some("it moves to cluster B"));
        let other = put(json!({"cluster": here, "name": "Oven", "chart": one}));
        assert_eq!(reason(other), Some(format!("it no longer has chart template {two}")));
        assert!(reason(put(json!(null)).delete(EdgeDeployment::slug())).is_some());
        assert!(reason(WriteRequest::put("r", Uuid::nil()).delete_object()).is_some());
        let changed =
            json!({"cluster": here, "name": "Oven", "charts": [two, one], "values": {"a": 1}, "hostname": "h"});
        assert_eq!(reason(put(changed)), None);
        assert_eq!(reason(WriteRequest::put("r", Uuid::nil()).entry("Info", json!({"name": "x"}))), None);
    }
}
