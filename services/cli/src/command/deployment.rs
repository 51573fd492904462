//! `sparkfleet deployment ...`.

use anyhow::anyhow;
use configdb_contract::WriteRequest;
use serde::Deserialize;
use serde_json::{Value, json};
use service_runtime::exit;
use sparkplug_mqtt::Clock;
use uuid::Uuid;

use super::{edit, label};
use crate::arguments::DeploymentCommand;
use crate::client::{Client, Scope, author};
use crate::console_api::ConsoleApi;
use crate::input::read_document;
use crate::listing::Filter;
use crate::options::{Options, ReadingSource};
use crate::output;
use crate::output::outcome;
use crate::usage_error::{not_found, of_request, usage};
use crate::{listing, look_up, tables};
use fleet_view::requests::{self, NewDeployment};
use fleet_view::{DeploymentRow, Fleet, REMOVING, SUSPENDED, rendered};

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
        DeploymentCommand::List { cluster, selector, reading, options } => {
            let filter = Filter { cluster: cluster.as_deref(), selector: selector.as_ref() };
            listing::run::<DeploymentRow>(filter, &reading, &options).await.map(drop)
        }
        DeploymentCommand::Label { deployment, labels, options } => {
            let find = |fleet: &Fleet| {
                let row = wanted_row(fleet, &deployment)?;
                Ok((row.uuid, format!("{}/{}", row.cluster, row.name)))
            };
            label::run(find, &labels, Scope::Fleet, &options).await
        }
        DeploymentCommand::Show { deployment, source, options } => show(&deployment, &source, &options).await,
        DeploymentCommand::Manifests { deployment, source, options } => {
            show_manifests(&deployment, &source, &options).await
        }
        DeploymentCommand::Edit { deployment, options } => {
            let find = |client: &Client| {
                let row = look_up::deployment(&client.fleet, &deployment)?;
                let title = format!("{}/{}", row.cluster, row.name);
                edit::entry_of(client, row.uuid, configdb_schema::application::EDGE_DEPLOYMENT.slug, &title)
            };
            edit::run(find, &options).await
        }
        DeploymentCommand::Move { deployment, host, wait, options } => {
            relocate(&deployment, host, wait, &options).await
        }
        DeploymentCommand::Suspend { deployment, wait, options } => suspend(&deployment, true, wait, &options).await,
        DeploymentCommand::Resume { deployment, wait, options } => suspend(&deployment, false, wait, &options).await,
        DeploymentCommand::Reconcile { deployment, wait, options } => reconcile(&deployment, wait, &options).await,
        DeploymentCommand::Delete { deployment, wait, options } => delete(&deployment, wait, &options).await,
    }
}

/// The request that deletes a deployment.
#[must_use]
pub fn deletion(uuid: Uuid) -> WriteRequest {
    requests::delete_deployment(uuid, author())
}

fn row(fleet: &Fleet, uuid: Uuid) -> Option<DeploymentRow> {
    fleet.deployments().into_iter().find(|row| row.uuid == uuid)
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
    let cluster = look_up::cluster(&client.fleet, cluster)?;
    check_host(&client.fleet, &cluster.name, host.as_deref())?;
    let chart = look_up::chart(&client.fleet, chart)?;
    let wanted = NewDeployment { cluster: cluster.uuid, name: name.to_owned(), chart, host, values };
    let request = requests::put_deployment(&client.fleet, wanted, client.wall(), author()).map_err(of_request)?;
    let uuid = request.object;
    let slug = configdb_schema::application::EDGE_DEPLOYMENT.slug;
    let before = client.fleet.config.entry(uuid, slug).map(|entry| entry.etag);
    let result = client.write(request).await?;
    let done = outcome(before, result.etags.get(slug).copied());
    finish(client, uuid, result.revision, wait.then_some(End::Ready), done, options).await
}

/// Refuses a host that the cluster does not have.
///
/// # Errors
/// With [`exit::NOT_FOUND`], naming the hosts that there are.
pub(super) fn check_host(fleet: &Fleet, cluster: &str, host: Option<&str>) -> anyhow::Result<()> {
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
    let row = wanted_row(&client.fleet, wanted)?;
    check_host(&client.fleet, &row.cluster, host.as_deref())?;
    let request = requests::move_deployment(&client.fleet, row.uuid, host.as_deref(), author()).map_err(of_request)?;
    let (revision, done) = write(&mut client, request, "moved").await?;
    finish(client, row.uuid, revision, wait.then_some(End::Ready), done, options).await
}

/// A deployment that is wanted.
fn wanted_row(fleet: &Fleet, wanted: &str) -> anyhow::Result<DeploymentRow> {
    let row = look_up::deployment(fleet, wanted)?;
    if row.is_being_removed() {
        let error = anyhow!("{}/{} is being removed; create it again instead", row.cluster, row.name);
        return Err(exit::with_code(exit::REFUSED, error));
    }
    Ok(row)
}

async fn suspend(wanted: &str, is_suspended: bool, wait: bool, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Fleet).await?;
    let row = wanted_row(&client.fleet, wanted)?;
    let request = requests::suspend_deployment(&client.fleet, row.uuid, is_suspended, author()).map_err(of_request)?;
    let done = if is_suspended { "suspended" } else { "resumed" };
    let (revision, done) = write(&mut client, request, done).await?;
    let end = if is_suspended { End::Suspended } else { End::Ready };
    finish(client, row.uuid, revision, wait.then_some(end), done, options).await
}

async fn reconcile(wanted: &str, wait: bool, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Fleet).await?;
    let row = wanted_row(&client.fleet, wanted)?;
    let request = requests::reconcile_deployment(&client.fleet, row.uuid, client.wall(), author());
    let (revision, done) = write(&mut client, request.map_err(of_request)?, "is reconciled").await?;
    finish(client, row.uuid, revision, wait.then_some(End::Ready), done, options).await
}

/// Writes a change of a deployment's entry: the revision, and `done`, or that nothing has changed.
async fn write(client: &mut Client, request: WriteRequest, done: &'static str) -> anyhow::Result<(u64, &'static str)> {
    let slug = configdb_schema::application::EDGE_DEPLOYMENT.slug;
    let before = client.fleet.config.entry(request.object, slug).map(|entry| entry.etag);
    let result = client.write(request).await?;
    let is_unchanged = outcome(before, result.etags.get(slug).copied()) == "unchanged";
    Ok((result.revision, if is_unchanged { "unchanged" } else { done }))
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It is applied and ready.
    Ready,
    /// Its releases are suspended.
    Suspended,
}

impl End {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Suspended => SUSPENDED,
        }
    }

    /// Whether the edge reports that.
    pub(super) fn is_reached(self, row: &DeploymentRow) -> bool {
        match self {
            Self::Ready => row.state == "applied" && row.ready == Some(true),
            Self::Suspended => row.state == SUSPENDED,
        }
    }
}

/// Waits until the edge reports the deployment as it is wanted now, and prints it. `wait`: None waits for nothing.
async fn finish(
    mut client: Client,
    uuid: Uuid,
    revision: u64,
    wait: Option<End>,
    done: &str,
    options: &Options,
) -> anyhow::Result<()> {
    if let Some(end) = wait {
        let slug = configdb_schema::application::EDGE_DEPLOYMENT.slug;
        // A write that changes nothing leaves the entry at its older revision, and the edge at the version made from it.
        let wanted = client.fleet.config.entry(uuid, slug).map_or(revision, |entry| entry.revision);
        let settled = client
            .until_or(
                match end {
                    End::Ready => "the edge to report the deployment applied and ready",
                    End::Suspended => "the edge to report the deployment suspended",
                },
                |fleet| {
                    let row = row(fleet, uuid)?;
                    let is_reached = end.is_reached(&row) && row.version.is_some_and(|version| version >= wanted);
                    match row.state.as_str() {
                        "refused" => Some(Err(row.message.unwrap_or_default())),
                        _ => is_reached.then_some(Ok(())),
                    }
                },
                |fleet| row(fleet, uuid).map(|row| format!("deployment {} is {}", row.name, row.described())),
            )
            .await?;
        settled.map_err(|reason| exit::with_code(exit::REFUSED, anyhow!("refused: {reason}")))?;
    }
    let row = row(&client.fleet, uuid);
    let state = wait.map_or(done, |end| end.as_str());
    let value = json!({ "uuid": uuid, "revision": revision, "change": done, "state": state, "deployment": row });
    let name = row.as_ref().map_or_else(|| uuid.to_string(), |row| format!("{}/{}", row.cluster, row.name));
    let name = output::visible(&name);
    let line = if state == done { format!("{name} {done}") } else { format!("{name} {done}, {state}") };
    output::print(options.presentation.output, || vec![line], &value)?;
    client.close().await;
    Ok(())
}

/// A deployment with its entry as it was written.
type Entered = (DeploymentRow, Option<Value>);

async fn from_console(api: &ConsoleApi, wanted: &str) -> anyhow::Result<Entered> {
    let row = look_up::deployment_among(&listing::rows(api).await?, wanted)?;
    let entry = listing::entry(api, row.uuid, configdb_schema::application::EDGE_DEPLOYMENT.slug).await;
    // What an edge still removes has no object any more.
    match entry {
        Err(error) if exit::code_of(&error) == exit::NOT_FOUND => Ok((row, None)),
        entry => Ok((row, entry?.map(|entry| entry.value))),
    }
}

async fn from_broker(options: &Options, wanted: &str) -> anyhow::Result<Entered> {
    let client = Client::open(options, Scope::Fleet).await?;
    let entered = || {
        let row = look_up::deployment(&client.fleet, wanted)?;
        let slug = configdb_schema::application::EDGE_DEPLOYMENT.slug;
        let entry = client.fleet.config.entry(row.uuid, slug).map(configdb_contract::Entry::value).transpose()?;
        Ok((row, entry))
    };
    let entered = entered();
    client.close().await;
    entered
}

async fn show(wanted: &str, source: &ReadingSource, options: &Options) -> anyhow::Result<()> {
    let ask_console = async |api: &ConsoleApi| from_console(api, wanted).await;
    let ask_broker = async || from_broker(options, wanted).await;
    let (row, entry) = listing::of_either(source, options, ask_console, ask_broker).await?;
    let now = Clock::new().now().wall;
    let value = json!({ "deployment": row, "entry": entry });
    let lines = || {
        let mut lines = tables::deployments(std::slice::from_ref(&row), now).shown();
        lines.push(String::new());
        lines.push(format!("uuid   {}", row.uuid));
        lines.extend(
            entry.as_ref().and_then(|entry| output::yaml(entry).ok()).map(|yaml| format!("\n{}", yaml.trim_end())),
        );
        lines
    };
    output::print(options.presentation.output, lines, &value)
}

/// Prints what a deployment is rendered to, and says whether the edge runs it.
async fn show_manifests(wanted: &str, source: &ReadingSource, options: &Options) -> anyhow::Result<()> {
    let ask_console = async |api: &ConsoleApi| {
        let row = look_up::deployment_among(&listing::rows(api).await?, wanted)?;
        let rows = listing::table(api, &format!("manifests:{}", row.uuid)).await?;
        let manifests = Manifests::of_rows(&rows).ok_or_else(|| listing::of_another_version(api.address()))?;
        Ok((row, manifests))
    };
    let ask_broker = async || {
        let client = Client::open(options, Scope::Fleet).await?;
        let found = look_up::deployment(&client.fleet, wanted).and_then(|row| {
            let rows: Vec<Value> = rendered::table(&client.fleet, row.uuid).into_values().collect();
            Ok((row, Manifests::of_rows(&rows).ok_or_else(|| anyhow!("its manifests cannot be read"))?))
        });
        client.close().await;
        found
    };
    let (row, Manifests { summary, manifests }) = listing::of_either(source, options, ask_console, ask_broker).await?;
    let title = format!("{}/{}", row.cluster, row.name);
    if let Some(reason) = summary.reason {
        let error = anyhow!("deployment {title} cannot be rendered: {reason}");
        return Err(exit::with_code(exit::REFUSED, error));
    }
    let runs = match &summary.applied {
        Some(applied) if summary.digest.as_ref() == Some(applied) => "the edge has applied these manifests",
        Some(_) => "the edge has applied other manifests, and keeps them until these reach it",
        None => "the edge reports no manifests of it yet",
    };
    let value = json!({
        "cluster": row.cluster, "name": row.name, "uuid": row.uuid,
        "digest": summary.digest, "applied": summary.applied, "manifests": manifests,
    });
    let documents: Vec<String> = manifests.iter().map(output::yaml_document).collect::<anyhow::Result<_>>()?;
    output::print(options.presentation.output, || documents, &value)?;
    output::remark(runs);
    Ok(())
}

/// What the manifests of a deployment are compared with.
#[derive(Debug, Deserialize)]
struct Summary {
    digest: Option<String>,
    applied: Option<String>,
    reason: Option<String>,
}

/// The rows of table `manifests` of a deployment.
struct Manifests {
    summary: Summary,
    manifests: Vec<Value>,
}

impl Manifests {
    /// From the rows of their table; None: they are of another version.
    fn of_rows(rows: &[Value]) -> Option<Self> {
        let (summary, manifests) = rows.split_first()?;
        let manifests = manifests.iter().map(|row| serde_json::from_str(row.get("json")?.as_str()?).ok());
        Some(Self { summary: Summary::deserialize(summary).ok()?, manifests: manifests.collect::<Option<_>>()? })
    }
}

async fn delete(wanted: &str, wait: bool, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Fleet).await?;
    let row = look_up::deployment(&client.fleet, wanted)?;
    let revision = match row.is_being_removed() {
        true => client.fleet.config.revision(),
        false => client.write(deletion(row.uuid)).await?.revision,
    };
    if wait {
        let stands = |fleet: &Fleet| match is_gone(fleet, &row) {
            true => None,
            false => Some(format!("deployment {} is {}", row.name, status(fleet, &row))),
        };
        let gone = |fleet: &Fleet| is_gone(fleet, &row).then_some(());
        client.until_or("the edge to report the deployment gone", gone, stands).await?;
    }
    let state = if wait { "deleted" } else { REMOVING };
    let value = json!({ "uuid": row.uuid, "revision": revision, "state": state });
    let line = output::visible(&format!("{}/{} {state}", row.cluster, row.name));
    output::print(options.presentation.output, || vec![line], &value)?;
    client.close().await;
    Ok(())
}

/// Whether the edge has reported a deployment gone. Silence is not a report, but from an edge that was never born: nothing has reached it.
pub(super) fn is_gone(fleet: &Fleet, row: &DeploymentRow) -> bool {
    let Some(cluster) = fleet.clusters().into_iter().find(|cluster| cluster.name == row.cluster) else { return true };
    match fleet.sync(&row.cluster) {
        Some(sync) => sync.is_alive() && !sync.devices().deployments.contains_key(&row.uuid),
        None => !cluster.seen,
    }
}

/// What keeps a deployment from being gone, for people.
fn status(fleet: &Fleet, row: &DeploymentRow) -> String {
    let now = self::row(fleet, row.uuid).filter(DeploymentRow::is_being_removed);
    now.map_or_else(|| format!("{REMOVING} (its cluster is away)"), |now| now.described())
}

#[cfg(test)]
mod tests;
