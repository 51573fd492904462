//! From what a person has written to what the fleet has: objects, clusters, deployments and hosts by UUID or name.

use std::collections::BTreeSet;

use anyhow::anyhow;
use cluster_manager_contract::SetupState;
use configdb_schema::Document as _;
use configdb_schema::document::{EdgeCluster, HelmChartTemplate};
use fleet_view::{ClusterRow, DeploymentRow, Fleet, JoiningHostRow};
use uuid::Uuid;

use crate::usage_error::{candidates, not_found, usage};

/// The object with that UUID or that name; of several with one name the caller has to choose by UUID.
///
/// # Errors
/// With [`exit::NOT_FOUND`](service_runtime::exit::NOT_FOUND) when there is none, [`exit::USAGE`](service_runtime::exit::USAGE) when there is more than one.
pub fn object(fleet: &Fleet, wanted: &str) -> anyhow::Result<Uuid> {
    object_among("object named", fleet.named(wanted), || fleet.object_names(), wanted)
}

/// The chart template with that UUID or that name: no other object is taken for one that has its name, or one like it.
///
/// # Errors
/// As [`object`], naming the chart templates that there are.
pub fn chart(fleet: &Fleet, wanted: &str) -> anyhow::Result<Uuid> {
    let templates = || fleet.config.entries(HelmChartTemplate::slug()).map(|(uuid, _)| uuid);
    let named = fleet.named(wanted).filter(|uuid| templates().any(|template| template == *uuid));
    object_among("chart template", named, || templates().map(|uuid| fleet.name_of(uuid)), wanted)
}

/// The same among objects that are `named` so, of all that have `names`; `kind` is what they are, for an error.
///
/// # Errors
/// As [`object`].
pub fn object_among<N: Iterator<Item = String>>(
    kind: &str,
    named: impl Iterator<Item = Uuid>,
    names: impl FnOnce() -> N,
    wanted: &str,
) -> anyhow::Result<Uuid> {
    if let Ok(uuid) = Uuid::try_parse(wanted) {
        return Ok(uuid);
    }
    let named: Vec<Uuid> = named.collect();
    match named[..] {
        [uuid] => Ok(uuid),
        [] => Err(not_found(kind, wanted, names().collect::<BTreeSet<String>>())),
        _ => {
            let uuids = named.iter().map(Uuid::to_string).collect::<Vec<_>>().join(", ");
            Err(usage(anyhow!("{wanted:?} is the name of several objects; choose one by its UUID: {uuids}")))
        }
    }
}

/// The cluster with that UUID or name.
///
/// # Errors
/// With [`exit::NOT_FOUND`](service_runtime::exit::NOT_FOUND) when there is none, naming those that there are.
pub fn cluster(fleet: &Fleet, wanted: &str) -> anyhow::Result<ClusterRow> {
    cluster_among(fleet.clusters(), wanted)
}

/// The same among these rows.
///
/// # Errors
/// As [`cluster`].
pub fn cluster_among(mut rows: Vec<ClusterRow>, wanted: &str) -> anyhow::Result<ClusterRow> {
    let uuid = Uuid::try_parse(wanted).ok();
    // Of two clusters with one name the refused one has to be named by its UUID.
    rows.sort_by_key(|row| row.setup == SetupState::Refused.to_string());
    let found = rows.iter().find(|row| Some(row.uuid) == uuid || row.name == wanted).cloned();
    found.ok_or_else(|| not_found("cluster", wanted, rows.iter().map(|row| row.name.as_str())))
}

/// The cluster with that UUID or name as ConfigDB has it, whichever cluster is set up under the name.
///
/// # Errors
/// With [`exit::NOT_FOUND`](service_runtime::exit::NOT_FOUND) when there is none, naming those that there are; with [`exit::USAGE`](service_runtime::exit::USAGE) when the name is that of several.
pub fn cluster_entry(fleet: &Fleet, wanted: &str) -> anyhow::Result<(Uuid, EdgeCluster)> {
    let uuid = Uuid::try_parse(wanted).ok();
    let all: Vec<(Uuid, EdgeCluster)> = fleet.cluster_entries().collect();
    let found: Vec<&(Uuid, EdgeCluster)> =
        all.iter().filter(|(of, entry)| Some(*of) == uuid || entry.name == wanted).collect();
    match found[..] {
        [one] => Ok(one.clone()),
        [] => Err(not_found("cluster", wanted, all.iter().map(|(_, entry)| entry.name.as_str()))),
        _ => {
            let uuids = candidates(found.iter().map(|(uuid, _)| uuid.to_string()));
            Err(usage(anyhow!("{wanted:?} is the name of several clusters; choose one by its UUID: {uuids}")))
        }
    }
}

/// The deployment with that UUID, or `CLUSTER/NAME`, or a name that only one has; one that is being removed only where no other is meant.
///
/// # Errors
/// With [`exit::NOT_FOUND`](service_runtime::exit::NOT_FOUND) when there is none, [`exit::USAGE`](service_runtime::exit::USAGE) when there are several.
pub fn deployment(fleet: &Fleet, wanted: &str) -> anyhow::Result<DeploymentRow> {
    deployment_among(&fleet.deployments(), wanted)
}

/// The same among these rows.
///
/// # Errors
/// As [`deployment`].
pub fn deployment_among(rows: &[DeploymentRow], wanted: &str) -> anyhow::Result<DeploymentRow> {
    let uuid = Uuid::try_parse(wanted).ok();
    let matches = |row: &&DeploymentRow| match wanted.split_once('/') {
        Some((cluster, name)) => row.cluster == cluster && row.name == name,
        // What reads as a UUID is one: no edge takes the place of another's deployment by the name of its own.
        None => uuid.map_or_else(|| row.name == wanted, |uuid| row.uuid == uuid),
    };
    let mut found: Vec<&DeploymentRow> = rows.iter().filter(matches).collect();
    if found.iter().any(|row| !row.is_being_removed()) {
        found.retain(|row| !row.is_being_removed());
    }
    match found[..] {
        [row] => Ok(row.clone()),
        [] => Err(not_found("deployment", wanted, rows.iter().map(|row| format!("{}/{}", row.cluster, row.name)))),
        _ => {
            let choices =
                found.iter().map(|row| format!("{}/{}", row.cluster, row.name)).collect::<Vec<_>>().join(", ");
            Err(usage(anyhow!(
                "{wanted:?} is the name of several deployments: {choices}; name one with its cluster or by UUID"
            )))
        }
    }
}

/// The host with that id, which is its state disk, or that name; of several with one name the caller has to choose by cluster or id.
///
/// # Errors
/// With [`exit::NOT_FOUND`](service_runtime::exit::NOT_FOUND) when there is none, [`exit::USAGE`](service_runtime::exit::USAGE) when there is more than one, naming the candidates.
pub fn host(fleet: &Fleet, wanted: &str) -> anyhow::Result<JoiningHostRow> {
    host_among(&fleet.joining_hosts(None), wanted)
}

/// The same among these rows.
///
/// # Errors
/// As [`host`].
pub fn host_among(all: &[JoiningHostRow], wanted: &str) -> anyhow::Result<JoiningHostRow> {
    let (cluster, name) = match wanted.split_once('/') {
        Some((cluster, name)) => (Some(cluster), name),
        None => (None, wanted),
    };
    let id = Uuid::try_parse(name).ok();
    // What reads as a UUID is one: a host that calls itself by the id of another is not taken for it, be that one there or not yet.
    let is_called = |row: &JoiningHostRow| id.map_or_else(|| row.name == name, |id| row.id == id);
    let is_meant = |row: &&JoiningHostRow| cluster.is_none_or(|cluster| row.cluster == cluster) && is_called(row);
    let mut found: Vec<&JoiningHostRow> = all.iter().filter(is_meant).collect();
    if found.iter().any(|row| !row.has_foreign_disk) {
        // A host with the disk of another one may have its name as well, and is chosen by its own id.
        found.retain(|row| !row.has_foreign_disk);
    }
    match found[..] {
        [one] => Ok(one.clone()),
        [] => {
            // A host that is missing has not reached a join service, or not shown that it owns its TPM.
            let error = not_found("host", wanted, all.iter().map(|row| format!("{}/{}", row.cluster, row.title())));
            Err(error.context("among the hosts that have proven their TPM to a join service"))
        }
        _ => {
            let meant = candidates(found.iter().map(|row| format!("{}/{}", row.cluster, row.id)));
            Err(usage(anyhow!("{wanted:?} is the name of several hosts; choose one: {meant}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use configdb_schema::document::Info;
    use fleet_view::bench::{Bench, CLUSTER, NAME};
    use join_service_contract::JoinHost;
    use proptest::prelude::*;
    use service_runtime::exit;

    use super::*;
    use crate::listing::Listed as _;

    const FIRST: Uuid = Uuid::from_u128(0xA1);
    const SECOND: Uuid = Uuid::from_u128(0xA2);

    fn named(names: &[(Uuid, &str)]) -> Bench {
        let mut bench = Bench::with_cluster();
        for (uuid, name) in names {
            bench.entry(*uuid, &Info { name: (*name).to_owned(), ..Info::default() });
        }
        bench
    }

    #[test]
    fn an_object_is_found_by_its_name_and_taken_as_it_is_by_uuid() {
        let bench = named(&[(FIRST, "Edge agent"), (SECOND, "Historian")]);
        assert_eq!(object(&bench.fleet, "Historian").unwrap(), SECOND);
        let unknown = Uuid::from_u128(0xFF);
        assert_eq!(object(&bench.fleet, &unknown.to_string()).unwrap(), unknown, "it may be about to be written");
        let error = object(&bench.fleet, "Histroian").unwrap_err();
        assert_eq!(exit::code_of(&error), exit::NOT_FOUND);
        assert!(error.to_string().contains("did you mean \"Historian\"?"), "{error}");
    }

    #[test]
    fn a_chart_is_a_template_and_no_other_object_of_its_name() {
        let mut bench = named(&[(FIRST, "Edge agent"), (SECOND, "Edge agent")]);
        let none = chart(&bench.fleet, "Edge agent").unwrap_err();
        assert_eq!(exit::code_of(&none), exit::NOT_FOUND);
        assert_eq!(none.to_string(), "there is no chart template \"Edge agent\"; there are: none");
        bench.entry(SECOND, &HelmChartTemplate::default());
        assert_eq!(chart(&bench.fleet, "Edge agent").unwrap(), SECOND);
        assert_eq!(chart(&bench.fleet, &FIRST.to_string()).unwrap(), FIRST, "a UUID is taken as it is");
        let near = chart(&bench.fleet, "Edge Agnt").unwrap_err().to_string();
        assert_eq!(
            near,
            "there is no chart template \"Edge Agnt\"; did you mean \"Edge agent\"? there are: Edge agent"
        );
    }

    #[test]
    fn of_objects_with_one_name_the_caller_chooses() {
        let error = object(&named(&[(FIRST, "Edge agent"), (SECOND, "Edge agent")]).fleet, "Edge agent").unwrap_err();
        assert_eq!(exit::code_of(&error), exit::USAGE);
        assert!([FIRST, SECOND].iter().all(|uuid| error.to_string().contains(&uuid.to_string())), "{error}");
    }

    #[test]
    fn a_cluster_of_the_console_is_found_as_one_of_the_broker_is() {
        let rows = Bench::with_cluster().fleet.clusters();
        assert_eq!(cluster_among(rows.clone(), "Paint_Shop").unwrap().uuid, CLUSTER);
        assert_eq!(cluster_among(rows.clone(), &CLUSTER.to_string()).unwrap().name, "Paint_Shop");
        assert_eq!(exit::code_of(&cluster_among(rows, "Body_Shop").unwrap_err()), exit::NOT_FOUND);
    }

    fn joining(name: &str) -> JoinHost {
        JoinHost { name: name.to_owned(), ..JoinHost::default() }
    }

    #[test]
    fn a_host_or_a_deployment_that_calls_itself_by_the_id_of_another_is_not_taken_for_it() {
        let mut bench = Bench::with_cluster();
        bench.join(NAME, &[(SECOND, joining(&FIRST.to_string()))]);
        let error = host(&bench.fleet, &FIRST.to_string()).unwrap_err();
        assert_eq!(exit::code_of(&error), exit::NOT_FOUND, "who is expected is not there yet: {error}");
        bench.join(NAME, &[(SECOND, joining(&FIRST.to_string())), (FIRST, joining("paint-2"))]);
        for wanted in [FIRST.to_string(), format!("{NAME}/{FIRST}"), FIRST.simple().to_string()] {
            assert_eq!(host(&bench.fleet, &wanted).unwrap().name, "paint-2", "{wanted}");
        }
        assert_eq!(host(&bench.fleet, &SECOND.to_string()).unwrap().id, SECOND);
        bench.deployment(SECOND, &FIRST.to_string(), None);
        let error = deployment(&bench.fleet, &FIRST.to_string()).unwrap_err();
        assert_eq!(exit::code_of(&error), exit::NOT_FOUND, "{error}");
        bench.deployment(FIRST, "Oven_1", None);
        assert_eq!(deployment(&bench.fleet, &FIRST.to_string()).unwrap().name, "Oven_1");
    }

    proptest! {
        #[test]
        fn what_a_list_names_is_the_row_or_has_to_be_chosen_and_each_choice_is_one(names in proptest::collection::vec(0..6_usize, 1..6)) {
            let ids: Vec<Uuid> = (0..names.len()).map(|n| Uuid::from_u128(0xB0 + n as u128)).collect();
            // Some are called by the id of another, or have a slash or nothing as their name.
            let called = ["paint-1", "paint-2", "", "a/b", &Uuid::from_u128(0xB0).to_string(), &Uuid::from_u128(0xB1).simple().to_string()].map(str::to_owned);
            let hosts: Vec<(Uuid, JoinHost)> = ids.iter().zip(&names).map(|(id, name)| (*id, joining(&called[*name]))).collect();
            let mut bench = Bench::with_cluster();
            bench.join(NAME, &hosts);
            let rows = bench.fleet.joining_hosts(None);
            prop_assert_eq!(rows.len(), ids.len());
            for row in &rows {
                match host_among(&rows, &row.argument()) {
                    Ok(found) => prop_assert_eq!(found.id, row.id),
                    Err(error) => {
                        prop_assert_eq!(exit::code_of(&error), exit::USAGE, "{}", error);
                        let text = error.to_string();
                        let (_, choices) = text.split_once("choose one: ").unwrap();
                        let found: Vec<Uuid> = choices.split(", ").map(|choice| host_among(&rows, choice).unwrap().id).collect();
                        prop_assert!(found.contains(&row.id) && found.len() > 1, "{}", error);
                    }
                }
                prop_assert_eq!(host_among(&rows, &row.id.to_string()).unwrap().id, row.id);
            }
        }
    }
}
