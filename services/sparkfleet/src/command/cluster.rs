//! `sparkfleet cluster ...`.

use anyhow::anyhow;
use cluster_manager_contract::SetupState;
use configdb_contract::WriteRequest;
use configdb_schema::address::{self, ClusterName};
use configdb_schema::document::{EdgeCluster, Info};
use configdb_schema::known;
use serde_json::json;
use service_runtime::exit;
use uuid::Uuid;

use super::usage;
use crate::cli::{ClusterCommand, Options};
use crate::client::{Client, Scope, request_id, writer};
use crate::fleet::{AlertRow, ClusterRow, DeploymentRow, Fleet, HostRow};
use crate::output::{self, Table};

/// Carries out a cluster command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: ClusterCommand) -> anyhow::Result<()> {
    match command {
        ClusterCommand::Create { name, namespace, bare, uuid, wait, options } => {
            let entry = EdgeCluster { name, namespace, bare, ..EdgeCluster::default() };
            create(entry, uuid, wait, &options).await
        }
        ClusterCommand::List { options } => {
            let client = Client::open(&options, Scope::Fleet).await?;
            let rows = client.fleet.clusters();
            let result =
                output::print(options.presentation.output, || table(&rows, client.wall()).lines(), &json!(rows));
            client.close().await;
            result
        }
        ClusterCommand::Identity(command) => super::identity::run(command).await,
        ClusterCommand::Show { cluster, options } => show(&cluster, &options).await,
        ClusterCommand::Bootstrap { cluster, expires, revoke, options } => {
            super::bootstrap::run(&cluster, expires, revoke, &options).await
        }
        ClusterCommand::Rollout { cluster, wave, pin, unpin, options } => {
            super::rollout::run(&cluster, super::rollout::Change { wave, pin, unpin }, &options).await
        }
        ClusterCommand::Delete { cluster, with_deployments, wait, options } => {
            delete(&cluster, with_deployments, wait, &options).await
        }
    }
}

/// Clusters as a table, ages counted from `now` (UTC ms).
#[must_use]
pub fn table(rows: &[ClusterRow], now: u64) -> Table {
    let mut table = Table::new(&["CLUSTER", "SETUP", "EDGE", "SINCE", "HOSTS", "DEPLOYMENTS", "ALERTS", "REASON"]);
    for row in rows {
        let edge = match (row.alive, row.monitored) {
            (true, true) => "alive",
            (true, false) => "unmonitored",
            (false, _) => "away",
        };
        let edge = if row.simulated { format!("{edge} (simulated)") } else { edge.to_owned() };
        let since = row.alive_since.or(row.since).map_or_else(String::new, |since| output::age(since, now));
        let reason = row.reason.clone().unwrap_or_default();
        table.row([
            row.name.clone(),
            row.setup.clone(),
            edge,
            since,
            row.hosts.to_string(),
            row.deployments.to_string(),
            row.alerts.to_string(),
            reason,
        ]);
    }
    table
}

/// Hosts as a table.
#[must_use]
pub fn hosts_table(rows: &[HostRow]) -> Table {
    let mut table = Table::new(&[
        "HOST",
        "CLUSTER",
        "READY",
        "ROLE",
        "JOINED",
        "ARCH",
        "KUBERNETES",
        "OPERATING SYSTEM",
        "SPECIALISED",
    ]);
    for row in rows {
        table.row([
            row.hostname.as_str(),
            &row.cluster,
            if row.ready { "yes" } else { "no" },
            row.role,
            row.joined.as_deref().unwrap_or(""),
            &row.architecture,
            &row.kubernetes_version,
            &row.operating_system,
            row.specialised.as_deref().unwrap_or(""),
        ]);
    }
    table
}

/// Alerts as a table, ages counted from `now` (UTC ms).
#[must_use]
pub fn alerts_table(rows: &[AlertRow], now: u64) -> Table {
    let mut table = Table::new(&["ALERT", "NODE", "SINCE", "MONITOR"]);
    for row in rows {
        table.row([row.alert.to_owned(), row.node.clone(), output::age(row.since, now), row.monitor.clone()]);
    }
    table
}

/// The UUID that a cluster gets when nobody chooses one: the same name is the same cluster.
#[must_use]
pub fn uuid_of(organisation: &str, name: &str) -> Uuid {
    address::v5(&["EdgeCluster", organisation, name])
}

/// The cluster with that UUID or name.
///
/// # Errors
/// With [`exit::USAGE`] when there is none.
pub fn find(fleet: &Fleet, wanted: &str) -> anyhow::Result<ClusterRow> {
    let uuid = Uuid::try_parse(wanted).ok();
    let mut rows = fleet.clusters();
    // Of two clusters with one name the refused one has to be named by its UUID.
    rows.sort_by_key(|row| row.setup == SetupState::Refused.to_string());
    let found = rows.into_iter().find(|row| Some(row.uuid) == uuid || row.name == wanted);
    found.ok_or_else(|| usage(anyhow!("there is no cluster {wanted:?}; `sparkfleet cluster list` shows them")))
}

/// The cluster with that UUID or name as ConfigDB has it, whoever is set up under the name.
///
/// # Errors
/// With [`exit::USAGE`] when there is none, naming those that there are, or when the name is that of several.
pub fn entry(fleet: &Fleet, wanted: &str) -> anyhow::Result<(Uuid, EdgeCluster)> {
    let uuid = Uuid::try_parse(wanted).ok();
    let all: Vec<(Uuid, EdgeCluster)> = fleet.cluster_entries().collect();
    let found: Vec<&(Uuid, EdgeCluster)> =
        all.iter().filter(|(of, entry)| Some(*of) == uuid || entry.name == wanted).collect();
    match found[..] {
        [one] => Ok(one.clone()),
        [] => {
            let names = super::candidates(all.iter().map(|(_, entry)| entry.name.as_str()));
            Err(usage(anyhow!("there is no cluster {wanted:?}; there are: {names}")))
        }
        _ => {
            let uuids = super::candidates(found.iter().map(|(uuid, _)| uuid.to_string()));
            Err(usage(anyhow!("{wanted:?} is the name of several clusters; choose one by its UUID: {uuids}")))
        }
    }
}

async fn create(entry: EdgeCluster, uuid: Option<Uuid>, wait: bool, options: &Options) -> anyhow::Result<()> {
    let name = ClusterName::new(entry.name.clone()).map_err(|error| usage(error.into()))?;
    let mut client = Client::open(options, if wait { Scope::Fleet } else { Scope::Config }).await?;
    let uuid = uuid.unwrap_or_else(|| uuid_of(client.fleet.organisation().as_str(), name.as_str()));
    let request = WriteRequest::put(request_id(), uuid)
        .by(writer())
        .create_object(known::class::EDGE_CLUSTER, None)
        .document(&Info { name: entry.name.clone(), ..Info::default() })?
        .document(&entry)?;
    let result = client.write(request).await?;
    if wait {
        client.expect_cluster(name.as_str()).await?;
        wait_alive(&mut client, uuid).await?;
    }
    let state = if wait { "alive" } else { "created" };
    let value = json!({ "uuid": uuid, "name": name.as_str(), "revision": result.revision, "state": state });
    output::print(options.presentation.output, || vec![format!("{} {state} ({uuid})", name.as_str())], &value)?;
    client.close().await;
    Ok(())
}

fn row(fleet: &Fleet, uuid: Uuid) -> Option<ClusterRow> {
    fleet.clusters().into_iter().find(|row| row.uuid == uuid)
}

async fn wait_alive(client: &mut Client, uuid: Uuid) -> anyhow::Result<()> {
    let settled = client
        .until_or(
            "the cluster to be set up and its edge sync to be born",
            |fleet| {
                let row = row(fleet, uuid)?;
                match row.setup.as_str() {
                    "refused" => Some(Err(row.reason.unwrap_or_default())),
                    "ready" if row.alive && row.hosts.total > 0 => Some(Ok(())),
                    _ => None,
                }
            },
            |fleet| row(fleet, uuid).map(|row| format!("cluster {}: {}", row.name, row.described())),
        )
        .await?;
    settled.map_err(|reason| exit::with_code(exit::REFUSED, anyhow!("refused: {reason}")))
}

async fn show(wanted: &str, options: &Options) -> anyhow::Result<()> {
    let client = Client::open(options, Scope::Fleet).await?;
    let now = client.wall();
    let row = find(&client.fleet, wanted)?;
    let hosts = client.fleet.hosts(Some(&row.name));
    let deployments: Vec<DeploymentRow> =
        client.fleet.deployments().into_iter().filter(|deployment| deployment.cluster == row.name).collect();
    let mut alerts = client.fleet.alerts();
    alerts.retain(|alert| alert.monitor.split('/').next() == Some(&row.group));
    let git = client.fleet.manager.cluster(row.uuid).and_then(|cluster| cluster.git_url.clone());
    let value = json!({ "cluster": row, "git": git, "hosts": hosts, "deployments": deployments, "alerts": alerts });
    let lines = || {
        let mut lines = table(std::slice::from_ref(&row), now).lines();
        lines.push(String::new());
        lines.push(format!("uuid   {}", row.uuid));
        lines.push(format!("group  {}", row.group));
        lines.push(format!("git    {}", git.as_deref().unwrap_or("not yet")));
        let parts = [hosts_table(&hosts), super::deployment::table(&deployments, now), alerts_table(&alerts, now)];
        for part in parts.iter().filter(|part| !part.is_empty()) {
            lines.push(String::new());
            lines.extend(part.lines());
        }
        lines
    };
    let result = output::print(options.presentation.output, lines, &value);
    client.close().await;
    result
}

async fn delete(wanted: &str, with_deployments: bool, wait: bool, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Fleet).await?;
    let row = find(&client.fleet, wanted)?;
    let entry = client.fleet.cluster_entries().find(|(uuid, _)| *uuid == row.uuid);
    let left = entry.map(|(_, entry)| removal_at_the_edge(&entry.namespace)).unwrap_or_default();
    let deployments: Vec<(Uuid, String)> = client
        .fleet
        .deployment_entries()
        .filter(|(_, entry)| entry.cluster == row.uuid)
        .map(|(uuid, entry)| (uuid, entry.name))
        .collect();
    if !deployments.is_empty() && !with_deployments {
        let names = deployments.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(", ");
        let error = anyhow!("{} has deployments: {names}; delete them first, or add --with-deployments", row.name);
        return Err(exit::with_code(exit::REFUSED, error));
    }
    for (uuid, _) in deployments {
        client.write(super::deployment::deletion(uuid)).await?;
    }
    let request =
        WriteRequest::put(request_id(), row.uuid).by(writer()).delete(configdb_schema::application::EDGE_CLUSTER.slug);
    let result = client.write(request).await?;
    if wait {
        let gone = |fleet: &Fleet| fleet.manager.cluster(row.uuid).is_none().then_some(());
        client.until("the tear-down to be complete", gone).await?;
    }
    let state = if wait { "deleted" } else { "deleting" };
    let value =
        json!({ "uuid": row.uuid, "name": row.name, "revision": result.revision, "state": state, "at_the_edge": left });
    let lines = || {
        let mut lines = vec![format!("{} {state}", row.name)];
        if !left.is_empty() {
            lines.push(
                "What runs there of Sparkfleet itself, and its credentials, stay. To remove them, on that cluster:"
                    .to_owned(),
            );
            lines.extend(left.iter().map(|command| format!("  {command}")));
        }
        lines
    };
    output::print(options.presentation.output, lines, &value)?;
    client.close().await;
    Ok(())
}

/// Commands that remove from a Kubernetes cluster what the bootstrap script and the cluster's repository have brought. What Flux has applied goes before the account by which it does so.
fn removal_at_the_edge(namespace: &str) -> Vec<String> {
    vec![
        format!("kubectl delete kustomizations.kustomize.toolkit.fluxcd.io self-link -n {namespace}"),
        format!("kubectl wait --for=delete helmreleases.helm.toolkit.fluxcd.io --all -n {namespace} --timeout=5m"),
        format!("kubectl delete namespace {namespace}"),
        format!("kubectl delete clusterrolebinding sparkfleet-flux-{namespace}"),
    ]
}
