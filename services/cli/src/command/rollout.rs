//! `sparkfleet cluster rollout`: the wave of a cluster, and where it stays in repositories of charts.

use anyhow::anyhow;
use configdb_schema::Document as _;
use configdb_schema::document::{EdgeClusterRollout, GitConfig, GitRef};
use serde_json::json;
use uuid::Uuid;

use super::{cluster, usage};
use crate::arguments::Options;
use crate::client::{Client, Scope};
use crate::output::{self, Table};
use fleet_view::Fleet;

/// What is to be changed.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// The wave.
    pub wave: Option<u8>,
    /// Repositories, each with its place.
    pub pin: Vec<(String, GitRef)>,
    /// Repositories that are followed as their templates say.
    pub unpin: Vec<String>,
}

/// Reads `REPOSITORY=KIND:PLACE`.
///
/// # Errors
/// Says the form.
pub fn pin(text: &str) -> Result<(String, GitRef), String> {
    let form = "write REPOSITORY=commit:HASH, REPOSITORY=tag:NAME, REPOSITORY=semver:RANGE or REPOSITORY=branch:NAME";
    let (repository, place) = text.split_once('=').ok_or(form)?;
    let (kind, place) = place.split_once(':').filter(|(_, place)| !place.is_empty()).ok_or(form)?;
    let place = place.to_owned();
    let pin = match kind {
        "commit" => GitRef::Commit(place),
        "tag" => GitRef::Tag(place),
        "semver" => GitRef::Semver(place),
        "branch" => GitRef::Branch(place),
        _ => return Err(form.to_owned()),
    };
    Ok((repository.to_owned(), pin))
}

/// Shows a cluster's part in rollouts, after the change if there is one.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(wanted: &str, change: Change, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Joining).await?;
    let (uuid, entry) = cluster::entry(&client.fleet, wanted)?;
    let mut rollout: EdgeClusterRollout = client.fleet.config.document(uuid)?.unwrap_or_default();
    let before = rollout.clone();
    apply(&mut rollout, change, &client.fleet)?;
    if rollout != before {
        let etag = client.fleet.config.entry(uuid, EdgeClusterRollout::slug()).map(|entry| entry.etag);
        client.write_document(uuid, &rollout, etag).await?;
    }
    let report = client.fleet.manager.cluster(uuid).map(|cluster| cluster.rollout.clone()).unwrap_or_default();
    let value = json!({ "uuid": uuid, "name": entry.name, "wave": rollout.wave, "pins": rollout.pins,
        "waiting": report.waiting, "reason": report.reason, "repository": report.repository,
        "unsettled": report.unsettled });
    let lines = || {
        let mut lines =
            vec![format!("{}: wave {} of {}", entry.name, rollout.wave, configdb_schema::document::WAVE_MAX)];
        if let Some(reason) = &report.reason {
            lines.push(format!("{} deployments wait: {reason}", report.waiting));
        }
        lines
            .extend(report.repository.iter().map(|reason| format!("its own repository keeps what it holds: {reason}")));
        lines
            .extend(report.unsettled.iter().map(|reason| format!("repositories of later waves wait for it: {reason}")));
        let mut pins = Table::new(&["REPOSITORY", "STAYS AT"]);
        for (repository, place) in &rollout.pins {
            pins.row([name(&client.fleet, *repository), told(place)]);
        }
        if !pins.is_empty() {
            lines.extend(pins.lines());
        }
        lines
    };
    let result = output::print(options.presentation.output, lines, &value);
    client.close().await;
    result
}

fn apply(rollout: &mut EdgeClusterRollout, change: Change, fleet: &Fleet) -> anyhow::Result<()> {
    rollout.wave = change.wave.unwrap_or(rollout.wave);
    for (repository, place) in change.pin {
        rollout.pins.insert(find(fleet, &repository)?, place);
    }
    for repository in change.unpin {
        let uuid = find(fleet, &repository)?;
        rollout.pins.remove(&uuid).ok_or_else(|| usage(anyhow!("the cluster has no pin for {repository}")))?;
    }
    Ok(())
}

fn repositories(fleet: &Fleet) -> Vec<(Uuid, String)> {
    let entries = fleet.config.entries(GitConfig::slug());
    entries.filter_map(|(uuid, entry)| Some((uuid, entry.parse::<GitConfig>().ok()?.path))).collect()
}

/// The repository with that UUID or path.
fn find(fleet: &Fleet, wanted: &str) -> anyhow::Result<Uuid> {
    let all = repositories(fleet);
    let uuid = Uuid::try_parse(wanted).ok();
    let found = all.iter().find(|(of, path)| Some(*of) == uuid || path == wanted).map(|(uuid, _)| *uuid);
    found.ok_or_else(|| super::not_found("git repository", wanted, all.iter().map(|(_, path)| path.as_str())))
}

fn name(fleet: &Fleet, repository: Uuid) -> String {
    let found = repositories(fleet).into_iter().find(|(uuid, _)| *uuid == repository);
    found.map_or_else(|| repository.to_string(), |(_, path)| path)
}

fn told(place: &GitRef) -> String {
    match place {
        GitRef::Commit(place) => format!("commit {place}"),
        GitRef::Tag(place) => format!("tag {place}"),
        GitRef::Semver(place) => format!("newest tag in {place}"),
        GitRef::Branch(place) => format!("branch {place}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_names_repository_kind_and_place() {
        let commit = pin("shared/helm=commit:0123456789012345678901234567890123456789").unwrap();
        assert_eq!(commit.0, "shared/helm");
        assert_eq!(told(&commit.1), "commit 0123456789012345678901234567890123456789");
        assert_eq!(pin("a=semver:>=1.0 <2").unwrap().1, GitRef::Semver(">=1.0 <2".to_owned()));
        for bad in ["shared/helm", "a=main", "a=commit:", "a=sha:1"] {
            assert!(pin(bad).unwrap_err().contains("REPOSITORY=tag:NAME"), "{bad}");
        }
    }
}
