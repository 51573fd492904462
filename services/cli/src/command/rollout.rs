//! `sparkfleet cluster rollout`: the wave of a cluster, and where it stays in repositories of charts.

use anyhow::anyhow;
use configdb_schema::Document as _;
use configdb_schema::document::{EdgeClusterRollout, GitConfig, GitRef};
use serde_json::json;
use uuid::Uuid;

use crate::client::{Client, Scope};
use crate::look_up;
use crate::options::Options;
use crate::output::{self, Table};
use crate::usage_error::{not_found, usage};
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

/// Shows a cluster's part in rollouts, after the change if there is one.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(wanted: &str, change: Change, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Joining).await?;
    let (uuid, entry) = look_up::cluster_entry(&client.fleet, wanted)?;
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
            pins.row([name(&client.fleet, *repository), described(place)]);
        }
        if !pins.is_empty() {
            lines.extend(pins.shown());
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
    found.ok_or_else(|| not_found("git repository", wanted, all.iter().map(|(_, path)| path.as_str())))
}

fn name(fleet: &Fleet, repository: Uuid) -> String {
    let found = repositories(fleet).into_iter().find(|(uuid, _)| *uuid == repository);
    found.map_or_else(|| repository.to_string(), |(_, path)| path)
}

fn described(place: &GitRef) -> String {
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
    fn a_place_is_named_with_its_kind() {
        assert_eq!(described(&GitRef::Commit("0123".to_owned())), "commit 0123");
        assert_eq!(described(&GitRef::Semver(">=1.0 <2".to_owned())), "newest tag in >=1.0 <2");
    }
}
