//! `sparkfleet config backup` and `restore`: the files of ConfigDB's store, on the machine where they are.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use configdb::store::backup::{self, BackupError, Restore, StoreInfo};
use configdb_schema::address::SERVICES;
use serde_json::json;
use service_runtime::state_dir::StateDir;
use service_runtime::{config, exit};
use sparkfleet_cli::input::confirmed;
use sparkfleet_cli::output;

use crate::arguments::StoreArguments;

/// What an operator does after a restore.
const NEXT: &str = "next: start ConfigDB. A cluster that follows a newer state, or another store, holds: nothing is deleted there. \
                    Then compare with `sparkfleet recover status`, and end each hold with `recover adopt` or `recover discard`";

/// Where the store is.
fn state_dir(arguments: &StoreArguments) -> anyhow::Result<StateDir> {
    if let Some(directory) = &arguments.state {
        return Ok(directory.as_path().into());
    }
    let config: configdb::Config = config::load("configdb", SERVICES, arguments.config.as_deref())?;
    Ok(config.state_dir)
}

fn coded(error: BackupError) -> anyhow::Error {
    let code = match &error {
        BackupError::Missing { .. } | BackupError::File { .. } | BackupError::Sync(_) => exit::CONFIG,
        BackupError::Exists { .. } | BackupError::NoStore { .. } | BackupError::Store(_) => exit::REFUSED,
    };
    exit::with_code(code, anyhow::Error::new(error))
}

fn now() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// Carries out `config backup`.
///
/// # Errors
/// As documented for the exit codes.
pub async fn backup(file: &Path, arguments: &StoreArguments) -> anyhow::Result<()> {
    let state = state_dir(arguments)?;
    if file == Path::new("-") {
        let (info, mut copy) = backup::backup_to_unnamed(&state, now()).await.map_err(coded)?;
        std::io::copy(&mut copy, &mut std::io::stdout().lock()).context("cannot write the backup")?;
        eprintln!("{}", described(&info));
        return Ok(());
    }
    let info = backup::backup(&state, file, now()).await.map_err(coded)?;
    let lines = || vec![format!("{}: {}", file.display(), described(&info))];
    output::print(arguments.printing.output, lines, &json!({ "file": file, "backup": info }))
}

/// Carries out `config restore`.
///
/// # Errors
/// As documented for the exit codes.
pub async fn restore(file: &Path, yes: bool, arguments: &StoreArguments) -> anyhow::Result<()> {
    let state = state_dir(arguments)?;
    let made = state.create().with_context(|| format!("the state directory {} cannot be made", state.display()));
    made.map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let restore = Restore::prepare(&state, file).await.map_err(coded)?;
    let tokens: Vec<String> = restore.tokens_that_return().into_iter().map(str::to_owned).collect();
    let lines = comparison(&restore, &tokens);
    if !yes {
        let instead = format!("add --yes to restore: {}", lines.join("; "));
        if !confirmed(&lines, "put the backup in its place?", &instead)? {
            return Err(exit::with_code(exit::REFUSED, anyhow!("nothing was changed")));
        }
    }
    let (backup, present) = (restore.backup.clone(), restore.present.clone());
    let stamp = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.6fZ").to_string();
    let kept = restore.finish(&stamp).map_err(coded)?;
    let value = json!({
        "restored": backup,
        "replaced": present.as_ref().map(|present| match present {
            Ok(info) => json!(info),
            Err(reason) => json!({ "error": reason }),
        }),
        "kept": kept,
        "tokens": tokens,
    });
    let lines = || {
        let mut lines = if yes { lines } else { Vec::new() };
        lines.push(format!("restored into {}", state.display()));
        lines.extend(kept.map(|kept| format!("what was there is kept: {}", kept.display())));
        lines.push(NEXT.to_owned());
        lines
    };
    output::print(arguments.printing.output, lines, &value)
}

/// The backup, what it replaces, and how the two stand to each other. `tokens`: those that count again.
fn comparison(restore: &Restore, tokens: &[String]) -> Vec<String> {
    let mut lines = vec![format!("backup: {}", described(&restore.backup))];
    match &restore.present {
        None => lines.push("present: there is no store".to_owned()),
        Some(Err(reason)) => lines.push(format!("present: cannot be read: {reason}")),
        Some(Ok(present)) => {
            lines.push(format!("present: {}", described(present)));
            let lost = present.revision.saturating_sub(restore.backup.revision);
            if present.store != restore.backup.store {
                lines.push("the backup is of another store".to_owned());
            } else if lost > 0 {
                lines.push(format!("the backup is {lost} revisions older"));
            }
        }
    }
    if !tokens.is_empty() {
        let names = tokens.join(", ");
        lines.push(format!("tokens that were revoked after the backup count again: {names}; revoke each with `sparkfleet token revoke NAME`"));
    }
    lines
}

fn described(info: &StoreInfo) -> String {
    let StoreInfo { store, epoch, revision, objects, written, backed_up, tokens: _ } = info;
    let written = written.map_or_else(|| "never".to_owned(), output::moment);
    let made = backed_up.map_or_else(String::new, |at| format!(", backed up {}", output::moment(at)));
    format!("store {store}, epoch {epoch}, revision {revision}, {objects} objects, last written {written}{made}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_described_by_what_distinguishes_it() {
        let info = StoreInfo {
            store: uuid::Uuid::from_u128(7),
            epoch: 2,
            revision: 40,
            objects: 3,
            written: Some(0),
            backed_up: None,
            tokens: std::collections::BTreeMap::new(),
        };
        let text = "store 00000000-0000-0000-0000-000000000007, epoch 2, revision 40, 3 objects, last written 1970-01-01T00:00:00Z";
        assert_eq!(described(&info), text);
        let made = StoreInfo { written: None, backed_up: Some(1_000), ..info };
        assert!(described(&made).ends_with("last written never, backed up 1970-01-01T00:00:01Z"));
    }
}
