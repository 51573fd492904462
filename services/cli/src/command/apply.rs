//! `sparkfleet apply` and `sparkfleet diff`: files that say what the fleet should have, and what differs from it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use cluster_manager_contract::SetupState;
use configdb_contract::WriteRequest;
use configdb_schema::Document as _;
use configdb_schema::document::EdgeDeployment;
use fleet_view::{DeploymentRow, Fleet};
use serde_json::{Value, json};
use service_runtime::exit;

use super::config::going;
use super::deployment::{End, is_gone};
use crate::arguments::apply::{ApplyArguments, DiffArguments};
use crate::client::{Client, Scope, author};
use crate::input::read;
use crate::load::{self, Deletion};
use crate::options::Options;
use crate::output::{self, visible};
use crate::wanted::{self, Change, Wanted};

/// Longest text of a value in a line.
const VALUE_CHARS_MAX: usize = 120;

/// `sparkfleet apply`.
///
/// # Errors
/// As documented for the exit codes.
pub async fn apply(arguments: &ApplyArguments) -> anyhow::Result<()> {
    let ApplyArguments { file, prune, dry_run, allow_delete, wait, options } = arguments;
    let wanted = read_all(file)?;
    let mut client = match wait {
        true => Client::open(options, Scope::Fleet).await?,
        false => open(options, &wanted).await?,
    };
    let changes = wanted::plan(&client.fleet, &wanted, *prune, client.wall(), author)?;
    let deletions = unasked(&client, &changes);
    if !dry_run && !deletions.is_empty() && !allow_delete {
        let error = anyhow!(
            "nothing was written: edges would delete something; add --allow-delete if they should: {}",
            going(&deletions).join("; ")
        );
        return Err(exit::with_code(exit::REFUSED, error));
    }
    let writes: Vec<WriteRequest> = changes.iter().filter_map(|change| change.write.clone()).collect();
    let before = client.fleet.deployments();
    let revision = if *dry_run || writes.is_empty() {
        client.fleet.config.revision()
    } else {
        client.write_transaction(writes, |_| {}).await?.revision
    };
    if *wait {
        settle(&mut client, &changes, &before).await?;
    }
    client.close().await;
    let lines = || [lines(&changes, *dry_run), going(&deletions)].concat();
    output::print(options.presentation.output, lines, &value(&changes, revision, &deletions, *dry_run))
}

/// Waits until edges report what the changes have made of them. `before`: deployments as they were.
async fn settle(client: &mut Client, changes: &[Change], before: &[DeploymentRow]) -> anyhow::Result<()> {
    for name in changes.iter().filter(|change| change.kind == "cluster" && change.change == "created") {
        client.expect_cluster(&name.name).await?;
    }
    let settled = client
        .until_or(
            "edges to report what was written",
            |fleet| match unsettled(fleet, changes, before) {
                Some(Unsettled { is_refused: true, what }) => Some(Err(what)),
                Some(_) => None,
                None => Some(Ok(())),
            },
            |fleet| unsettled(fleet, changes, before).map(|unsettled| unsettled.what),
        )
        .await?;
    settled.map_err(|what| exit::with_code(exit::REFUSED, anyhow!("{what}")))
}

/// A change that edges have not reported.
#[derive(Debug, PartialEq, Eq)]
struct Unsettled {
    /// How it stands, for people.
    what: String,
    /// It does not settle by itself.
    is_refused: bool,
}

/// The first change of these that edges have not reported, one that is refused before others.
fn unsettled(fleet: &Fleet, changes: &[Change], before: &[DeploymentRow]) -> Option<Unsettled> {
    let (clusters, deployments) = (fleet.clusters(), fleet.deployments());
    let of_cluster = |change: &Change| {
        let row = clusters.iter().find(|row| row.uuid == change.uuid);
        let setup = row.map_or("unknown", |row| row.setup.as_str());
        let is_refused = setup == SetupState::Refused.to_string();
        let what = format!("cluster {}: set-up is {setup}", visible(&change.name));
        (setup != SetupState::Ready.to_string()).then_some(Unsettled { what, is_refused })
    };
    let of_deployment = |change: &Change| {
        let row = deployments.iter().find(|row| row.uuid == change.uuid);
        if change.change == "deleted" {
            let is_gone = before.iter().find(|row| row.uuid == change.uuid).is_none_or(|row| is_gone(fleet, row));
            let what = format!("deployment {} is being removed", visible(&change.name));
            return (!is_gone).then_some(Unsettled { what, is_refused: false });
        }
        let entry = fleet.config.entry(change.uuid, EdgeDeployment::slug());
        let revision = entry.map_or(u64::MAX, |entry| entry.revision);
        let suspend =
            fleet.config.document(change.uuid).ok().flatten().is_some_and(|entry: EdgeDeployment| entry.suspend);
        let end = if suspend { End::Suspended } else { End::Ready };
        let is_reached = row.is_some_and(|row| end.is_reached(row) && row.version >= Some(revision));
        let described = row.map_or_else(|| "not known yet".to_owned(), DeploymentRow::described);
        let what = format!("deployment {} is {described}", visible(&change.name));
        (!is_reached).then(|| Unsettled { what, is_refused: row.is_some_and(|row| row.state == "refused") })
    };
    let written = changes.iter().filter(|change| change.write.is_some());
    let open = written.filter_map(|change| match change.kind {
        "cluster" => of_cluster(change),
        "deployment" => of_deployment(change),
        _ => None,
    });
    open.min_by_key(|unsettled| !unsettled.is_refused)
}

/// `sparkfleet diff`.
///
/// # Errors
/// With [`exit::FAILURE`] if something differs; else as documented for the exit codes.
pub async fn diff(arguments: &DiffArguments) -> anyhow::Result<()> {
    let DiffArguments { file, prune, options } = arguments;
    let wanted = read_all(file)?;
    let client = open(options, &wanted).await?;
    let changes = wanted::plan(&client.fleet, &wanted, *prune, client.wall(), author)?;
    let (deletions, revision) = (unasked(&client, &changes), client.fleet.config.revision());
    client.close().await;
    let different = changes.iter().filter(|change| change.write.is_some()).count();
    let shown: Vec<Change> = changes.into_iter().filter(|change| change.write.is_some()).collect();
    let lines = || [lines(&shown, true), going(&deletions)].concat();
    output::print(options.presentation.output, lines, &value(&shown, revision, &deletions, true))?;
    if different > 0 {
        return Err(exit::with_code(exit::FAILURE, anyhow!("{different} of what the files name differ")));
    }
    Ok(())
}

/// A session that knows what the plan needs: which hosts a cluster has says its edge alone.
async fn open(options: &Options, wanted: &[Wanted]) -> anyhow::Result<Client> {
    let names_host = |wanted: &Wanted| matches!(wanted, Wanted::Deployment { host: Some(Some(_)), .. });
    Client::open(options, if wanted.iter().any(names_host) { Scope::Fleet } else { Scope::Config }).await
}

/// What edges would delete although it is not in the plan as deleted.
fn unasked(client: &Client, changes: &[Change]) -> Vec<Deletion> {
    let kept = changes.iter().filter(|change| change.change != "deleted");
    let writes: Vec<WriteRequest> = kept.filter_map(|change| change.write.clone()).collect();
    load::deletions(&client.fleet, &writes)
}

/// The documents of files and of all YAML and JSON files of directories, in the order of their names.
fn read_all(paths: &[PathBuf]) -> anyhow::Result<Vec<Wanted>> {
    let mut wanted = Vec::new();
    for path in paths {
        for file in files(path)? {
            wanted.extend(wanted::read(&read(&file)?, &file.display().to_string())?);
        }
    }
    Ok(wanted)
}

fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let read = || -> std::io::Result<Vec<PathBuf>> {
        std::fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect()
    };
    let all = read().with_context(|| format!("cannot read {}", path.display()));
    let mut found = all.map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let is_document = |file: &PathBuf| {
        file.is_file() && file.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known))
    };
    found.retain(is_document);
    found.sort();
    Ok(found)
}

fn lines(changes: &[Change], with_differences: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for change in changes {
        lines.push(format!("{} {} {}", change.kind, visible(&change.name), change.change));
        for difference in change.differences.iter().filter(|_| with_differences) {
            let side = |value: &Option<Value>| value.as_ref().map_or_else(|| "(none)".to_owned(), short);
            let (before, after) = (side(&difference.before), side(&difference.after));
            lines.push(format!("  {}: {before} -> {after}", visible(&difference.place)));
        }
    }
    if lines.is_empty() { vec!["nothing differs".to_owned()] } else { lines }
}

fn short(value: &Value) -> String {
    let text = visible(&value.to_string());
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn value(changes: &[Change], revision: u64, deletions: &[Deletion], dry_run: bool) -> Value {
    json!({ "changes": changes, "revision": revision, "deletes": deletions, "dry_run": dry_run })
}

#[cfg(test)]
mod tests {
    use edge_sync_contract::{DeploymentDevice, DeploymentState, SyncNode};
    use fleet_view::bench::{Bench, CLUSTER, NAME, reported};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_directory_is_read_in_the_order_of_names_and_other_files_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write("20.yml", "kind: Cluster\nname: B\n");
        write("10.yaml", "kind: Cluster\nname: A\n");
        write("30.json", r#"{ "kind": "Cluster", "name": "C" }"#);
        write("README.md", "kind: [");
        let wanted = read_all(&[directory.path().to_owned()]).unwrap();
        let names: Vec<&str> = wanted
            .iter()
            .map(|wanted| match wanted {
                Wanted::Cluster { name, .. } => name.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(names, ["A", "B", "C"]);
        let error = read_all(&[directory.path().join("missing.yaml")]).unwrap_err();
        assert_eq!(exit::code_of(&error), exit::CONFIG);
    }

    #[test]
    fn what_edges_have_not_reported_is_waited_for_and_what_is_refused_is_not() {
        let oven = Uuid::from_u128(0x0E);
        let mut bench = Bench::with_cluster();
        bench.deployment(oven, "Oven", None);
        let write = Some(WriteRequest::put("r", oven));
        let change = |kind, uuid, change| Change {
            kind,
            name: "x".to_owned(),
            uuid,
            change,
            differences: Vec::new(),
            write: write.clone(),
        };
        let changes = [change("cluster", CLUSTER, "changed"), change("deployment", oven, "changed")];
        let first = |bench: &Bench, changes: &[Change]| {
            unsettled(&bench.fleet, changes, &bench.fleet.deployments()).map(|open| (open.what, open.is_refused))
        };
        let sending = Some(("deployment x is sending".to_owned(), false));
        assert_eq!(first(&bench, &changes), sending);
        let revision = bench.fleet.config.entry(oven, EdgeDeployment::slug()).unwrap().revision;
        let mut report = |version: u64, suspended: bool| {
            let device = DeploymentDevice {
                version,
                suspended,
                ..reported("Oven", DeploymentState::Applied, (!suspended).then_some(true))
            };
            bench.sync(NAME, &SyncNode::default(), &[(oven, device)]);
            first(&bench, &changes)
        };
        assert!(report(revision - 1, false).is_some(), "that is what ran before");
        assert_eq!(report(revision, false), None);
        assert!(report(revision, true).is_some(), "its entry does not ask for that");
        assert!(first(&bench, &[change("deployment", oven, "deleted")]).unwrap().0.ends_with("is being removed"));
        bench.cluster(CLUSTER, NAME, |device| {
            device.deployments_refused.0.insert(oven, "no such chart".to_owned());
        });
        let refused = Some(("deployment x is refused, no such chart".to_owned(), true));
        assert_eq!(
            first(&bench, &changes).map(|(_, is_refused)| is_refused),
            refused.map(|(_, is_refused)| is_refused)
        );
        let unchanged = Change { write: None, ..change("deployment", oven, "unchanged") };
        assert_eq!(first(&bench, &[unchanged]), None);
    }

    #[test]
    fn a_difference_is_a_line_that_cannot_steer_the_terminal() {
        let difference = wanted::Difference {
            place: "Info.name".to_owned(),
            before: None,
            after: Some(json!(format!("a\u{1b}[2J{}", "x".repeat(500)))),
        };
        let change = Change {
            kind: "entry",
            name: "x".to_owned(),
            uuid: uuid::Uuid::nil(),
            change: "changed",
            differences: vec![difference],
            write: None,
        };
        let shown = lines(std::slice::from_ref(&change), true);
        assert_eq!(shown[0], "entry x changed");
        assert!(shown[1].starts_with(r#"  Info.name: (none) -> "a"#) && shown[1].ends_with("..."), "{shown:#?}");
        assert!(shown[1].chars().count() < 160 && !shown[1].contains('\u{1b}'), "{shown:#?}");
        assert_eq!(lines(&[change], false).len(), 1);
        assert_eq!(lines(&[], true), ["nothing differs"]);
    }
}
