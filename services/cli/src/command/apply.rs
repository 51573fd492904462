//! `sparkfleet apply` and `sparkfleet diff`: files that say what the fleet should have, and what differs from it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use configdb_contract::WriteRequest;
use serde_json::{Value, json};
use service_runtime::exit;

use super::config::going;
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
    let ApplyArguments { file, prune, dry_run, allow_delete, options } = arguments;
    let wanted = read_all(file)?;
    let mut client = open(options, &wanted).await?;
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
    let revision = if *dry_run || writes.is_empty() {
        client.fleet.config.revision()
    } else {
        client.write_transaction(writes, |_| {}).await?.revision
    };
    client.close().await;
    let lines = || [lines(&changes, *dry_run), going(&deletions)].concat();
    output::print(options.presentation.output, lines, &value(&changes, revision, &deletions, *dry_run))
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
