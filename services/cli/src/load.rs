//! What edges would delete because of writes that are not sent yet. Pure.

use configdb_contract::{Mode, RegistrationChange, WriteRequest};
use configdb_schema::Document;
use configdb_schema::document::{EdgeCluster, EdgeDeployment};
use serde::{Deserialize as _, Serialize};
use uuid::Uuid;

use fleet_view::Fleet;

/// Something that an edge would delete.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Deletion {
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
pub fn deletions(fleet: &Fleet, writes: &[WriteRequest]) -> Vec<Deletion> {
    let mut deletions: Vec<Deletion> = writes.iter().filter_map(|write| deletion(fleet, write)).collect();
    deletions.sort();
    deletions
}

fn deletion(fleet: &Fleet, write: &WriteRequest) -> Option<Deletion> {
    let before: EdgeDeployment = fleet.config.document(write.object).ok().flatten()?;
    let cluster = |uuid| {
        let entry: Option<EdgeCluster> = fleet.config.document(uuid).ok().flatten();
        entry.map_or_else(|| uuid.to_string(), |entry| entry.name)
    };
    let reason = reason(&before, write, cluster)?;
    Some(Deletion { cluster: cluster(before.cluster), deployment: before.name, uuid: write.object, reason })
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
