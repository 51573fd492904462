//! `sparkfleet deployment ...`.

use anyhow::anyhow;
use configdb_contract::WriteRequest;
use serde_json::{Value, json};
use service_runtime::exit;
use uuid::Uuid;

use super::{cluster, not_found, object, outcome, read_document, usage};
use crate::arguments::{DeploymentCommand, Options};
use crate::client::{Client, Scope, author};
use crate::output::{self, Table};
use fleet_view::requests::{self, NewDeployment};
use fleet_view::{DeploymentRow, Fleet, REMOVING};

/// Carries out a deployment command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: DeploymentCommand) -> anyhow::Result<()> {
    match command {
        DeploymentCommand::Create { name, cluster, chart, host, values, wait, options } => {
            let values = values.map(|file| read_document(&file)).transpose()?;
            create(&name, &cluster, &chart, host, values, wait, &options).await
        }
        DeploymentCommand::List { cluster, options } => list(cluster.as_deref(), &options).await,
        DeploymentCommand::Show { deployment, options } => show(&deployment, &options).await,
        DeploymentCommand::Move { deployment, host, wait, options } => {
            relocate(&deployment, host, wait, &options).await
        }
        DeploymentCommand::Delete { deployment, wait, options } => delete(&deployment, wait, &options).await,
    }
}

/// Deployments as a table, ages counted from `now` (UTC ms).
#[must_use]
pub fn table(rows: &[DeploymentRow], now: u64) -> Table {
    let mut table = Table::new(&["DEPLOYMENT", "CLUSTER", "CHART", "HOST", "STATE", "READY", "SINCE", "MESSAGE"]);
    for row in rows {
        table.row([
            row.name.clone(),
            row.cluster.clone(),
            row.chart.clone(),
            row.host.clone().unwrap_or_else(|| "(floating)".to_owned()),
            row.state.clone(),
            row.ready.map_or("", |ready| if ready { "yes" } else { "no" }).to_owned(),
            row.applied_at.map_or_else(String::new, |at| output::age(at, now)),
            // Flux' message about what is ready only takes room; `--output json` has it.
            row.trouble().unwrap_or_default().to_owned(),
        ]);
    }
    table
}

/// The request that deletes a deployment.
#[must_use]
pub fn deletion(uuid: Uuid) -> WriteRequest {
    requests::delete_deployment(uuid, author())
}

fn row(fleet: &Fleet, uuid: Uuid) -> Option<DeploymentRow> {
    fleet.deployments().into_iter().find(|row| row.uuid == uuid)
}

/// The deployment with that UUID, or `CLUSTER/NAME`, or a name that only one has; one that is being removed only where no other is meant.
///
/// # Errors
/// With [`exit::NOT_FOUND`] when there is none, [`exit::USAGE`] when there are several.
fn find(fleet: &Fleet, wanted: &str) -> anyhow::Result<DeploymentRow> {
    let rows = fleet.deployments();
    let uuid = Uuid::try_parse(wanted).ok();
    let matches = |row: &&DeploymentRow| match wanted.split_once('/') {
        Some((cluster, name)) => row.cluster == cluster && row.name == name,
        None => Some(row.uuid) == uuid || row.name == wanted,
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

async fn create(
    name: &str,
    cluster: &str,
    chart: &str,
    host: Option<String>,
    values: Option<Value>,
    wait: bool,
    options: &Options,
) -> anyhow::Result<()> {
    let values = match values {
        None => None,
        Some(Value::Object(values)) => Some(values),
        Some(_) => return Err(usage(anyhow!("--values: the document must be an object of Helm values"))),
    };
    let mut client = Client::open(options, Scope::Fleet).await?;
    let cluster = cluster::find(&client.fleet, cluster)?;
    check_host(&client.fleet, &cluster.name, host.as_deref())?;
    let chart = object(&client.fleet, chart)?;
    let wanted = NewDeployment { cluster: cluster.uuid, name: name.to_owned(), chart, host, values };
    let request = requests::put_deployment(&client.fleet, wanted, client.wall(), author())?;
    let uuid = request.object;
    let slug = configdb_schema::application::EDGE_DEPLOYMENT.slug;
    let before = client.fleet.config.entry(uuid, slug).map(|entry| entry.etag);
    let result = client.write(request).await?;
    let done = outcome(before, result.etags.get(slug).copied());
    finish(client, uuid, result.revision, wait, done, options).await
}

/// Refuses a host that the cluster does not have.
///
/// # Errors
/// With [`exit::NOT_FOUND`], naming the hosts that there are.
fn check_host(fleet: &Fleet, cluster: &str, host: Option<&str>) -> anyhow::Result<()> {
    let Some(host) = host else { return Ok(()) };
    let hosts = fleet.hosts(Some(cluster));
    // A cluster that reports no host at all may be away; then the host cannot be checked.
    if hosts.is_empty() || hosts.iter().any(|known| known.hostname == host) {
        return Ok(());
    }
    let names = hosts.iter().map(|known| known.hostname.as_str());
    Err(not_found("host", host, names).context(format!("cluster {cluster}")))
}

async fn relocate(wanted: &str, host: Option<String>, wait: bool, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Fleet).await?;
    let row = find(&client.fleet, wanted)?;
    if row.is_being_removed() {
        let error = anyhow!("{}/{} is being removed; create it again instead", row.cluster, row.name);
        return Err(exit::with_code(exit::REFUSED, error));
    }
    check_host(&client.fleet, &row.cluster, host.as_deref())?;
    let slug = configdb_schema::application::EDGE_DEPLOYMENT.slug;
    let etag = client.fleet.config.entry(row.uuid, slug).map(|entry| entry.etag);
    let request = requests::move_deployment(&client.fleet, row.uuid, host.as_deref(), author())?;
    let result = client.write(request).await?;
    let done = if outcome(etag, result.etags.get(slug).copied()) == "unchanged" { "unchanged" } else { "moved" };
    finish(client, row.uuid, result.revision, wait, done, options).await
}

/// Waits until the edge reports the deployment as it is wanted now, and prints it.
async fn finish(
    mut client: Client,
    uuid: Uuid,
    revision: u64,
    wait: bool,
    done: &str,
    options: &Options,
) -> anyhow::Result<()> {
    if wait {
        let slug = configdb_schema::application::EDGE_DEPLOYMENT.slug;
        // A write that changes nothing leaves the entry at its older revision, and the edge at the version made from it.
        let wanted = client.fleet.config.entry(uuid, slug).map_or(revision, |entry| entry.revision);
        let settled = client
            .until_or(
                "the edge to report the deployment applied and ready",
                |fleet| {
                    let row = row(fleet, uuid)?;
                    match (row.state.as_str(), row.ready) {
                        ("refused", _) => Some(Err(row.message.unwrap_or_default())),
                        ("applied", Some(true)) if row.version.is_some_and(|version| version >= wanted) => Some(Ok(())),
                        _ => None,
                    }
                },
                |fleet| row(fleet, uuid).map(|row| format!("deployment {} is {}", row.name, row.described())),
            )
            .await?;
        settled.map_err(|reason| exit::with_code(exit::REFUSED, anyhow!("refused: {reason}")))?;
    }
    let row = row(&client.fleet, uuid);
    let state = if wait { "ready" } else { done };
    let value = json!({ "uuid": uuid, "revision": revision, "change": done, "state": state, "deployment": row });
    let name = row.as_ref().map_or_else(|| uuid.to_string(), |row| format!("{}/{}", row.cluster, row.name));
    let line = if wait { format!("{name} {done}, {state}") } else { format!("{name} {done}") };
    output::print(options.presentation.output, || vec![line], &value)?;
    client.close().await;
    Ok(())
}

async fn list(cluster: Option<&str>, options: &Options) -> anyhow::Result<()> {
    let client = Client::open(options, Scope::Fleet).await?;
    let mut rows = client.fleet.deployments();
    if let Some(wanted) = cluster {
        let cluster = cluster::find(&client.fleet, wanted)?;
        rows.retain(|row| row.cluster == cluster.name);
    }
    let now = client.wall();
    let result = output::print(options.presentation.output, || table(&rows, now).lines(), &json!(rows));
    client.close().await;
    result
}

async fn show(wanted: &str, options: &Options) -> anyhow::Result<()> {
    let client = Client::open(options, Scope::Fleet).await?;
    let row = find(&client.fleet, wanted)?;
    let slug = configdb_schema::application::EDGE_DEPLOYMENT.slug;
    let entry = client.fleet.config.entry(row.uuid, slug).map(configdb_contract::Entry::value).transpose()?;
    let now = client.wall();
    let value = json!({ "deployment": row, "entry": entry });
    let lines = || {
        let mut lines = table(std::slice::from_ref(&row), now).lines();
        lines.push(String::new());
        lines.push(format!("uuid   {}", row.uuid));
        lines.extend(
            entry.as_ref().and_then(|entry| output::yaml(entry).ok()).map(|yaml| format!("\n{}", yaml.trim_end())),
        );
        lines
    };
    let result = output::print(options.presentation.output, lines, &value);
    client.close().await;
    result
}

async fn delete(wanted: &str, wait: bool, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Fleet).await?;
    let row = find(&client.fleet, wanted)?;
    let revision = match row.is_being_removed() {
        true => client.fleet.config.revision(),
        false => client.write(deletion(row.uuid)).await?.revision,
    };
    if wait {
        let stands = |fleet: &Fleet| match is_gone(fleet, &row) {
            true => None,
            false => Some(format!("deployment {} is {}", row.name, standing(fleet, &row))),
        };
        let gone = |fleet: &Fleet| is_gone(fleet, &row).then_some(());
        client.until_or("the edge to report the deployment gone", gone, stands).await?;
    }
    let state = if wait { "deleted" } else { REMOVING };
    let value = json!({ "uuid": row.uuid, "revision": revision, "state": state });
    output::print(options.presentation.output, || vec![format!("{}/{} {state}", row.cluster, row.name)], &value)?;
    client.close().await;
    Ok(())
}

/// Whether the edge has reported a deployment gone. Silence is no report, but from an edge that was never born: nothing has reached it.
fn is_gone(fleet: &Fleet, row: &DeploymentRow) -> bool {
    let Some(cluster) = fleet.clusters().into_iter().find(|cluster| cluster.name == row.cluster) else { return true };
    match fleet.sync(&row.cluster) {
        Some(sync) => sync.is_alive() && !sync.devices().deployments.contains_key(&row.uuid),
        None => !cluster.seen,
    }
}

/// What keeps a deployment from being gone, for people.
fn standing(fleet: &Fleet, row: &DeploymentRow) -> String {
    let now = self::row(fleet, row.uuid).filter(DeploymentRow::is_being_removed);
    now.map_or_else(|| format!("{REMOVING} (its cluster is away)"), |now| now.described())
}

#[cfg(test)]
mod tests;
