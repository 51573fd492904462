//! `sparkfleet recover ...`: decides what clusters follow that hold what this control plane sends.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::anyhow;
use configdb_contract::WriteRequest;
use configdb_schema::document::RecoveryDecision;
use serde_json::json;
use service_runtime::exit;
use uuid::Uuid;

use crate::arguments::recover::RecoverCommand;
use crate::client::{Client, Scope, request_id, writer};
use crate::input::confirmed;
use crate::options::Options;
use crate::output::{self, Table, remark};
use crate::recovery::{self, Comparison, Named, names};
use crate::usage_error::usage;

/// Said where there is nothing to decide about.
const NO_EDGE: &str = "no edge sync is known to be alive; after a start of ConfigDB or the cluster manager an edge that ConfigDB does not have is seen within half a minute";

/// How long edges that ConfigDB does not know are waited for, and an edge that keeps no entries of something.
const RECEIVE: Duration = Duration::from_secs(3);

/// Carries out a recover command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: RecoverCommand) -> anyhow::Result<()> {
    match command {
        RecoverCommand::Status { cluster, options } => status(&cluster, &options).await,
        RecoverCommand::Adopt { cluster, all: _, options } => adopt(&cluster, &options).await,
        RecoverCommand::Discard { cluster, yes, options } => discard(&cluster, yes, &options).await,
    }
}

/// What the cluster manager says of edges whose cluster ConfigDB does not have is waited for no longer than this.
const UNKNOWN: Duration = Duration::from_millis(500);

/// The clusters, compared; their edges have been asked for the entries that they keep. Without names: all that are received.
async fn compared(client: &mut Client, names: &[String]) -> anyhow::Result<Vec<Comparison>> {
    for name in names {
        client.expect_cluster(name).await?;
    }
    let are_born = |fleet: &fleet_view::Fleet| {
        let is_born = |name: &String| fleet.sync(name).is_some_and(edge_sync_contract::SyncReplica::is_complete);
        (!names.is_empty() && names.iter().all(is_born)).then_some(())
    };
    if names.is_empty() {
        client.receive_for(UNKNOWN, |fleet| fleet.manager.is_complete().then_some(())).await?;
        let unknown: Vec<String> = client.fleet.manager.unknown_clusters().map(|(name, _)| name.to_owned()).collect();
        for name in &unknown {
            client.expect_cluster(name).await?;
        }
        client.receive_for(RECEIVE, are_born).await?;
    } else {
        client.until("the edge sync of each cluster to be born", are_born).await?;
    }
    let names: BTreeSet<String> = if names.is_empty() {
        let group = |node: &sparkplug::EdgeNodeDescriptor| {
            client.fleet.organisation().cluster_of_group(node.group.as_str()).map(String::from)
        };
        client.fleet.syncs.iter().filter(|(_, sync)| sync.is_alive()).filter_map(|(node, _)| group(node)).collect()
    } else {
        names.iter().cloned().collect()
    };
    for name in &names {
        client.give_entries(name, true).await?;
    }
    let given = |fleet: &fleet_view::Fleet| {
        names.iter().all(|name| fleet.sync(name).is_some_and(recovery::has_given)).then_some(())
    };
    client.receive_for(RECEIVE, given).await?;
    Ok(names.iter().filter_map(|name| recovery::compare(&client.fleet, name)).collect())
}

pub(super) fn table(rows: &[Comparison]) -> Table {
    let mut table = Table::new(&["CLUSTER", "ONLY HERE", "ONLY AT EDGE", "DIFFERENT", "STATE"]);
    for row in rows {
        table.row([
            row.cluster.clone(),
            names(&row.only_here),
            names(&row.only_at_edge),
            row.all_different(),
            row.described(),
        ]);
    }
    table
}

async fn status(wanted: &[String], options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Fleet).await?;
    let rows = compared(&mut client, wanted).await?;
    if rows.is_empty() {
        remark(NO_EDGE);
    }
    let result = output::print(options.presentation.output, || table(&rows).shown(), &json!(rows));
    finish(client, &rows).await?;
    result
}

/// The edges stop publishing the entries.
async fn finish(mut client: Client, rows: &[Comparison]) -> anyhow::Result<()> {
    for row in rows {
        client.give_entries(&row.cluster, false).await?;
    }
    client.close().await;
    Ok(())
}

async fn adopt(wanted: &[String], options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Fleet).await?;
    let all = compared(&mut client, wanted).await?;
    let (rows, following): (Vec<Comparison>, Vec<Comparison>) = all.into_iter().partition(Comparison::is_open);
    let mut lines: Vec<String> =
        following.iter().map(|row| format!("{} follows this control plane already", row.cluster)).collect();
    let obstacles: Vec<String> = rows
        .iter()
        .filter_map(|row| Some(format!("{}: {}", row.cluster, recovery::obstacle(&client.fleet, row)?)))
        .collect();
    if !obstacles.is_empty() {
        let error = anyhow!("nothing was changed: {}", obstacles.join("; "));
        return Err(exit::with_code(exit::REFUSED, error));
    }
    let request = |object: Uuid| WriteRequest::put(request_id(), object).by(writer());
    for row in &rows {
        let mut written = 0;
        for phase in recovery::adoption(&client.fleet, row, request) {
            written += phase.len();
            for request in phase {
                client.write(request).await?;
            }
        }
        let cluster = row.cluster.clone();
        // What is decided counts for the state that has it. A store that was restored meanwhile may have an older value of it.
        let known = |fleet: &fleet_view::Fleet| {
            let compared = recovery::compare(fleet, &cluster);
            let state = fleet.config.state()?;
            let is_known = compared.is_some_and(|compared| compared.has_all_of_edge());
            is_known.then(|| Comparison { state: Some(state), ..row.clone() })
        };
        let written_back = client.until("ConfigDB to publish what was written back", known).await?;
        release(&mut client, &written_back, RecoveryDecision::Adopt).await?;
        lines.push(format!("{} adopted: {written} written back, released to epoch {}", row.cluster, row.next_epoch));
    }
    if lines.is_empty() {
        lines.push(NO_EDGE.to_owned());
    }
    output::print(options.presentation.output, || lines, &json!(rows))?;
    finish(client, &rows).await
}

/// Writes the decision, and waits until the edge has received it.
async fn release(client: &mut Client, row: &Comparison, decision: RecoveryDecision) -> anyhow::Result<()> {
    let request = WriteRequest::put(request_id(), row.uuid).by(writer());
    let request = recovery::release(&client.fleet, row, decision, request)?;
    client.write(request).await?;
    let (cluster, epoch) = (row.cluster.clone(), row.next_epoch);
    let released = |fleet: &fleet_view::Fleet| {
        let node = fleet.sync(&cluster)?.node()?;
        let is_released = node.desired_origin.is_some_and(|origin| origin.epoch >= epoch);
        (is_released && node.desired_held != Some(true)).then_some(())
    };
    client.until("the edge to follow this control plane", released).await
}

async fn discard(wanted: &str, yes: bool, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Fleet).await?;
    let rows = compared(&mut client, std::slice::from_ref(&wanted.to_owned())).await?;
    let row = rows.first().ok_or_else(|| usage(anyhow!("no edge sync of cluster {wanted:?} is alive")))?;
    if !row.is_open() {
        return Err(usage(anyhow!("{wanted} follows this control plane already; nothing is held")));
    }
    let going = &row.only_at_edge;
    if !yes {
        let each = |named: &Named| format!("will be deleted at the edge: {} ({})", named.name, named.uuid);
        let changed = row.all_different();
        let changed = (!changed.is_empty()).then(|| format!("will be changed at the edge: {changed}"));
        let what: Vec<String> = going.iter().map(each).chain(changed).collect();
        let count = going.len();
        let instead = format!("add --yes to delete {count} deployments: {}", names(going));
        if !confirmed(&what, &format!("delete {count} deployments at {wanted}?"), &instead)? {
            return Err(exit::with_code(exit::REFUSED, anyhow!("nothing was changed")));
        }
    }
    release(&mut client, row, RecoveryDecision::Discard).await?;
    let line =
        format!("{wanted} released to epoch {}: {} deployments are deleted at its edge", row.next_epoch, going.len());
    output::print(options.presentation.output, || vec![line], &json!({ "cluster": row, "deleted": going }))?;
    finish(client, &rows).await
}
