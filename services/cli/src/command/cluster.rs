//! `sparkfleet cluster ...`.

use anyhow::anyhow;
use configdb_schema::Document as _;
use configdb_schema::address::ClusterName;
use configdb_schema::document::{EdgeCluster, RecoveryDecision};
use serde_json::json;
use service_runtime::exit;
use sparkplug_mqtt::Clock;
use uuid::Uuid;

use super::{alert, edit, label};
use crate::arguments::ClusterCommand;
use crate::client::{Client, Scope, author};
use crate::console_api::ConsoleApi;
use crate::listing::Filter;
use crate::options::{Connection, Options, ReadingSource};
use crate::output;
use crate::output::outcome;
use crate::recovery::{self, Comparison};
use crate::usage_error::{of_request, usage};
use crate::{listing, look_up, tables};
use fleet_view::{AlertRow, ClusterRow, DeploymentRow, Fleet, HostRow, requests};

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
        ClusterCommand::List { selector, reading, options } => {
            let filter = Filter { selector: selector.as_ref(), ..Filter::default() };
            listing::run::<ClusterRow>(filter, &reading, &options).await.map(drop)
        }
        ClusterCommand::Label { cluster, labels, options } => {
            let find = |fleet: &Fleet| {
                let (uuid, entry) = look_up::cluster_entry(fleet, &cluster)?;
                Ok((uuid, entry.name))
            };
            label::run(find, &labels, Scope::Config, &options).await
        }
        ClusterCommand::Identity(command) => super::identity::run(command).await,
        ClusterCommand::Show { cluster, source, options } => show(&cluster, &source, &options).await,
        ClusterCommand::Edit { cluster, options } => {
            let find = |client: &Client| {
                let (uuid, entry) = look_up::cluster_entry(&client.fleet, &cluster)?;
                edit::entry_of(client, uuid, EdgeCluster::slug(), &entry.name)
            };
            edit::run(find, &options).await
        }
        ClusterCommand::Bootstrap { cluster, expires, revoke, options } => {
            super::bootstrap::run(&cluster, expires, revoke, &options).await
        }
        ClusterCommand::Rollout { cluster, wave, pin, unpin, options } => {
            super::rollout::run(&cluster, super::rollout::Change { wave, pin, unpin }, &options).await
        }
        ClusterCommand::Reconcile { cluster, options } => super::reconcile::cluster(&cluster, &options).await,
        ClusterCommand::Delete { cluster, with_deployments, wait, options } => {
            delete(&cluster, with_deployments, wait, &options).await
        }
    }
}

async fn create(entry: EdgeCluster, uuid: Option<Uuid>, wait: bool, options: &Options) -> anyhow::Result<()> {
    let name = ClusterName::new(entry.name.clone()).map_err(|error| usage(error.into()))?;
    let mut client = Client::open(options, if wait { Scope::Fleet } else { Scope::Config }).await?;
    let request = requests::put_cluster(&client.fleet, &entry, uuid, author()).map_err(of_request)?;
    let uuid = request.object;
    let before = client.fleet.config.entry(uuid, EdgeCluster::slug()).map(|entry| entry.etag);
    let result = client.write(request).await?;
    let done = outcome(before, result.etags.get(EdgeCluster::slug()).copied());
    if wait {
        client.expect_cluster(name.as_str()).await?;
        wait_alive(&mut client, uuid).await?;
    }
    let state = if wait { "alive" } else { done };
    let group = client.fleet.organisation().cluster_group(&name);
    let needed = broker_needs(&options.connection, &group);
    let value = json!({
        "uuid": uuid, "name": name.as_str(), "revision": result.revision, "change": done, "state": state, "broker": needed
    });
    let lines = || {
        let alive = if wait { ", alive" } else { "" };
        let mut lines = vec![format!("{} {done}{alive} ({uuid})", name.as_str())];
        lines
            .extend(needed.iter().filter(|_| done != "unchanged").flat_map(|needed| needed.lines().map(str::to_owned)));
        lines
    };
    output::print(options.presentation.output, lines, &value)?;
    client.close().await;
    Ok(())
}

/// What an MQTT server with access rules needs before it lets a new cluster in. None: who connects without a name meets no such rules.
fn broker_needs(connection: &Connection, group: &str) -> Option<String> {
    let is_known_by_name = connection.cert_file.is_some() || connection.username.is_some();
    is_known_by_name.then(|| {
        format!(
            "The MQTT server must let the cluster publish and subscribe in group {group}. Where its rules are files, write them again, and have it read them:\n  \
             sparkfleet cluster list -o json | sparkfleet acl generate --broker mosquitto --organisation {} --clusters-from - --directory DIRECTORY\n  \
             kill -HUP $(pidof mosquitto)",
            connection.organisation
        )
    })
}

/// What a tear-down leaves at the edge, where no command reaches it from here, and how it is removed.
fn left_at_the_edge(namespace: &str) -> Vec<String> {
    vec![
        format!(
            "At the edge namespace {namespace} stays, with the cluster's credentials, Flux' link to its repository, and what of it still runs there."
        ),
        "This removes it, with kubectl on that cluster:".to_owned(),
        format!("  {}", removal(namespace)),
        "Flux itself stays; `flux uninstall` removes it where nothing else needs it.".to_owned(),
    ]
}

/// Takes a cluster's own services off its Kubernetes. Flux takes down what it has installed before the namespace goes with the credentials that it needs for that.
fn removal(namespace: &str) -> String {
    format!(
        "kubectl delete -n {namespace} --ignore-not-found kustomizations.kustomize.toolkit.fluxcd.io self-link && \
         kubectl delete -n {namespace} --all helmreleases.helm.toolkit.fluxcd.io && kubectl delete --ignore-not-found namespace {namespace} && \
         kubectl delete --ignore-not-found clusterrolebinding sparkfleet-flux-{namespace}"
    )
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
            |fleet| {
                row(fleet, uuid).map(|row| {
                    let next = if row.setup == "ready" && !row.alive {
                        format!("; a Kubernetes cluster becomes {0} by `sparkfleet cluster bootstrap {0}`", row.name)
                    } else {
                        String::new()
                    };
                    let step = fleet.manager.cluster(uuid).map(|cluster| cluster.setup.step);
                    let step = step.filter(|_| row.setup != "ready");
                    let step = step.map_or_else(String::new, |step| format!(", after step {}", step.as_str()));
                    format!("cluster {}: {}{step}{next}", row.name, row.described())
                })
            },
        )
        .await?;
    settled.map_err(|reason| exit::with_code(exit::REFUSED, anyhow!("refused: {reason}")))
}

/// A cluster with everything that is shown of it.
struct Shown {
    row: ClusterRow,
    hosts: Vec<HostRow>,
    deployments: Vec<DeploymentRow>,
    alerts: Vec<AlertRow>,
    git: Option<String>,
    namespace: Option<String>,
}

impl Shown {
    async fn from_console(api: &ConsoleApi, wanted: &str) -> anyhow::Result<Self> {
        let row = look_up::cluster_among(listing::rows(api).await?, wanted)?;
        let is_own = |cluster: &str| cluster == row.name;
        let hosts = listing::table(api, "hosts").await?;
        let hosts =
            hosts.iter().filter_map(fleet_view::tables::host_row).filter(|host| is_own(&host.cluster)).collect();
        let mut deployments: Vec<DeploymentRow> = listing::rows(api).await?;
        deployments.retain(|deployment| is_own(&deployment.cluster));
        let mut alerts: Vec<AlertRow> = listing::rows(api).await?;
        alerts.retain(|alert| alert.cluster.as_deref().is_some_and(is_own));
        let clusters = listing::table(api, "clusters").await?;
        let of_manager = clusters.iter().find(|other| other["key"] == row.uuid.to_string());
        let text = |field: &str| of_manager.and_then(|row| row.pointer(field)?.as_str()).map(str::to_owned);
        Ok(Self { git: text("/git/url"), namespace: text("/namespace"), hosts, deployments, alerts, row })
    }

    async fn from_broker(options: &Options, wanted: &str) -> anyhow::Result<Self> {
        let client = Client::open(options, Scope::Fleet).await?;
        let fleet = &client.fleet;
        let shown = look_up::cluster(fleet, wanted).map(|row| {
            let managed = fleet.manager.cluster(row.uuid);
            Self {
                hosts: fleet.hosts(Some(&row.name)),
                deployments: fleet.deployments().into_iter().filter(|one| one.cluster == row.name).collect(),
                alerts: alert::rows(fleet, Some(&row.name)),
                git: managed.and_then(|cluster| cluster.git_url.clone()),
                namespace: managed.map(|cluster| cluster.namespace.clone()),
                row,
            }
        });
        client.close().await;
        shown
    }
}

async fn show(wanted: &str, source: &ReadingSource, options: &Options) -> anyhow::Result<()> {
    let ask_console = async |api: &ConsoleApi| Shown::from_console(api, wanted).await;
    let ask_broker = async || Shown::from_broker(options, wanted).await;
    let Shown { row, hosts, deployments, alerts, git, namespace } =
        listing::of_either(source, options, ask_console, ask_broker).await?;
    let now = Clock::new().now().wall;
    let value = json!({ "cluster": row, "git": git, "hosts": hosts, "deployments": deployments, "alerts": alerts });
    let lines = || {
        let mut lines = tables::clusters(std::slice::from_ref(&row), now).shown();
        lines.push(String::new());
        lines.push(format!("uuid   {}", row.uuid));
        lines.push(format!("group  {}", row.group));
        lines.push(format!("git    {}", output::visible(git.as_deref().unwrap_or("not yet"))));
        lines.push(format!("flux   {}", output::visible(&flux(&row, namespace.as_deref().unwrap_or("fplus-edge")))));
        let parts = [tables::hosts(&hosts), tables::deployments(&deployments, now), tables::alerts(&alerts, now)];
        for part in parts.iter().filter(|part| !part.is_empty()) {
            lines.push(String::new());
            lines.extend(part.shown());
        }
        lines
    };
    output::print(options.presentation.output, lines, &value)
}

/// What is known of Flux at the edge, and where to look when nothing is.
fn flux(row: &ClusterRow, namespace: &str) -> String {
    let at_the_edge = format!(
        "kubectl get -n {namespace} kustomizations.kustomize.toolkit.fluxcd.io,helmreleases.helm.toolkit.fluxcd.io"
    );
    match &row.flux {
        Some(flux) => {
            let commit = flux.commit.as_ref().map_or_else(String::new, |commit| format!(" at commit {commit}"));
            let message = flux.message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
            format!("{}{commit}{message}", flux.state())
        }
        None if row.seen => format!("not known while edge sync is away; at the edge: {at_the_edge}"),
        None => format!(
            "not known: edge sync was never born; `sparkfleet cluster bootstrap {}` prints what installs it; at the edge: {at_the_edge}",
            row.name
        ),
    }
}

async fn delete(wanted: &str, with_deployments: bool, wait: bool, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Fleet).await?;
    let row = look_up::cluster(&client.fleet, wanted)?;
    let namespace =
        client.fleet.cluster_entries().find(|(uuid, _)| *uuid == row.uuid).map(|(_, entry)| entry.namespace);
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
    // An edge that holds what it is sent would hold the end of its cluster, too: who deletes the cluster decides that.
    let open = recovery::compare(&client.fleet, &row.name).filter(Comparison::is_open);
    let unknown = open.as_ref().map(|open| recovery::names(&open.only_at_edge)).unwrap_or_default();
    if !unknown.is_empty() && !with_deployments {
        let error = anyhow!(
            "{name} runs deployments that this control plane does not know: {unknown}; look at them with `sparkfleet recover status {name}`, or add --with-deployments to remove them",
            name = row.name
        );
        return Err(exit::with_code(exit::REFUSED, error));
    }
    let mut request = requests::delete_cluster(row.uuid, author());
    if let Some(open) = &open {
        request = recovery::decided(&client.fleet, open, RecoveryDecision::Discard, request)?;
    }
    for (uuid, _) in deployments {
        client.write(super::deployment::deletion(uuid)).await?;
    }
    let result = client.write(request).await?;
    if wait {
        let gone = |fleet: &Fleet| fleet.manager.cluster(row.uuid).is_none().then_some(());
        client.until("the tear-down to be complete", gone).await?;
    }
    let state = if wait { "deleted" } else { "deleting" };
    let mut value = json!({ "uuid": row.uuid, "name": row.name, "revision": result.revision, "state": state });
    let namespace = namespace.filter(|_| row.seen);
    if let Some(namespace) = &namespace {
        value["at_edge"] = json!({ "namespace": namespace, "remove": removal(namespace) });
    }
    let lines = || {
        let mut lines = vec![format!("{} {state}", row.name)];
        lines.extend(namespace.iter().flat_map(|namespace| left_at_the_edge(namespace)));
        lines
    };
    output::print(options.presentation.output, lines, &value)?;
    client.close().await;
    Ok(())
}

#[cfg(test)]
mod tests;
