//! Lists of the fleet: read from the web console or the broker, printed once, or followed.
//!
//! ```text
//! console.rs: HTTP API, stream of changes -\
//!                                           > rows -> screen.rs -> standard output
//! broker: client's replicas ---------------/
//! ```
//!
//! Both give the same rows: `-o json` does not depend on where a list was read.

mod console;
mod screen;

use std::collections::BTreeMap;

use anyhow::anyhow;
use serde::Serialize;
use serde_json::Value;
use service_runtime::exit;
use service_runtime::shutdown::Shutdown;
use uuid::Uuid;

use fleet_view::{AlertRow, ClusterRow, DeploymentRow, Fleet, JoiningHostRow};

use crate::client::{Client, Scope};
use crate::console_api::ConsoleApi;
use crate::look_up;
use crate::options::{ListOptions, Options, ReadingSource, Source};
use crate::output::page::{PACE, REDRAW};
use crate::output::{self, Table, remark};
use crate::selector::Selector;
use crate::tables;
use crate::usage_error::usage;
pub(crate) use console::ConsoleTables;
use screen::Screen;

/// Digits by which git shows a commit.
const COMMIT_DIGITS: usize = 12;

/// Identifies a row: cluster, name, UUID.
type Key = (String, String, Uuid);

/// Rows that a command lists.
pub(crate) trait Listed: Clone + PartialEq + Serialize {
    /// What of the fleet they are made of.
    const SCOPE: Scope;
    /// What is said where there is none; None: the header of the table says it.
    const NONE: Option<&'static str>;

    /// The rows of a fleet.
    fn of_fleet(fleet: &Fleet) -> Vec<Self>;
    /// Which one it is.
    fn key(&self) -> Key;
    /// Name of the cluster that it is in or is.
    fn cluster(&self) -> &str;
    /// Labels that it has.
    fn labels(&self) -> Option<&BTreeMap<String, String>> {
        None
    }
    /// What people call it.
    fn title(&self) -> String;
    /// Names it to another command.
    fn argument(&self) -> String {
        self.title()
    }
    /// For people, ages counted from `now` (UTC ms).
    fn table(rows: &[Self], now: u64) -> Table;
    /// Adds the columns that only a wide table has.
    fn widen(rows: &[Self], table: &mut Table);
}

/// Rows that the console has, too.
pub(crate) trait InConsole: Listed {
    /// The table.
    const TABLE: &'static str;
    /// What a row of the table was made of; None: it is one of another version.
    fn of_row(row: &Value) -> Option<Self>;
    /// Whether the list has a row of the table.
    fn has(_row: &Value) -> bool {
        true
    }
    /// Sorts rows as [`Listed::of_fleet`] does; the tables of the console are in another order.
    fn sort(rows: &mut [Self]) {
        rows.sort_by_cached_key(Self::key);
    }
}

impl InConsole for ClusterRow {
    const TABLE: &'static str = "clusters";

    fn of_row(row: &Value) -> Option<Self> {
        fleet_view::tables::cluster_row(row)
    }
}

impl InConsole for DeploymentRow {
    const TABLE: &'static str = "deployments";

    fn of_row(row: &Value) -> Option<Self> {
        fleet_view::tables::deployment_row(row)
    }
}

impl InConsole for JoiningHostRow {
    const TABLE: &'static str = "hosts";

    fn of_row(row: &Value) -> Option<Self> {
        fleet_view::tables::joining_host_row(row)
    }

    fn has(row: &Value) -> bool {
        fleet_view::tables::is_known_to_join(row)
    }
}

impl InConsole for AlertRow {
    const TABLE: &'static str = "alerts";

    fn of_row(row: &Value) -> Option<Self> {
        fleet_view::tables::alert_row(row)
    }

    fn sort(rows: &mut [Self]) {
        rows.sort_by(Self::by_age);
    }
}

impl Listed for ClusterRow {
    const SCOPE: Scope = Scope::Fleet;
    const NONE: Option<&'static str> = None;

    fn of_fleet(fleet: &Fleet) -> Vec<Self> {
        fleet.clusters()
    }

    fn key(&self) -> Key {
        (String::new(), self.name.clone(), self.uuid)
    }

    fn cluster(&self) -> &str {
        &self.name
    }

    fn labels(&self) -> Option<&BTreeMap<String, String>> {
        Some(&self.labels)
    }

    fn title(&self) -> String {
        self.name.clone()
    }

    fn table(rows: &[Self], now: u64) -> Table {
        tables::clusters(rows, now)
    }

    fn widen(rows: &[Self], table: &mut Table) {
        table.column("GROUP", rows.iter().map(|row| row.group.clone()));
        let commit = |row: &Self| row.flux.as_ref().and_then(|flux| flux.commit.clone()).unwrap_or_default();
        table.column("COMMIT", rows.iter().map(|row| commit(row).chars().take(COMMIT_DIGITS).collect()));
        table.column("LABELS", rows.iter().map(|row| shown_labels(&row.labels)));
        table.column("UUID", rows.iter().map(|row| row.uuid.to_string()));
    }
}

impl Listed for DeploymentRow {
    const SCOPE: Scope = Scope::Fleet;
    const NONE: Option<&'static str> = None;

    fn of_fleet(fleet: &Fleet) -> Vec<Self> {
        fleet.deployments()
    }

    fn key(&self) -> Key {
        (self.cluster.clone(), self.name.clone(), self.uuid)
    }

    fn cluster(&self) -> &str {
        &self.cluster
    }

    fn labels(&self) -> Option<&BTreeMap<String, String>> {
        Some(&self.labels)
    }

    fn title(&self) -> String {
        format!("{}/{}", self.cluster, self.name)
    }

    fn table(rows: &[Self], now: u64) -> Table {
        tables::deployments(rows, now)
    }

    fn widen(rows: &[Self], table: &mut Table) {
        table.column(
            "VERSION",
            rows.iter().map(|row| row.version.map_or_else(String::new, |version| version.to_string())),
        );
        table.column("LABELS", rows.iter().map(|row| shown_labels(&row.labels)));
        table.column("UUID", rows.iter().map(|row| row.uuid.to_string()));
    }
}

impl Listed for JoiningHostRow {
    const SCOPE: Scope = Scope::Joining;
    const NONE: Option<&'static str> = Some("no host has proven its TPM to a join service");

    fn of_fleet(fleet: &Fleet) -> Vec<Self> {
        fleet.joining_hosts(None)
    }

    fn key(&self) -> Key {
        (self.cluster.clone(), self.name.clone(), self.id)
    }

    fn cluster(&self) -> &str {
        &self.cluster
    }

    fn title(&self) -> String {
        format!("{}/{}", self.cluster, self.title())
    }

    fn argument(&self) -> String {
        let has_name = !self.name.is_empty() && Uuid::try_parse(&self.name).is_err();
        let name = if has_name { self.name.clone() } else { self.id.to_string() };
        format!("{}/{name}", self.cluster)
    }

    fn table(rows: &[Self], now: u64) -> Table {
        tables::joining_hosts(rows, now)
    }

    fn widen(rows: &[Self], table: &mut Table) {
        table.column("ENDORSEMENT KEY", rows.iter().map(|row| row.endorsement_key.clone()));
        table.column("POLICY", rows.iter().map(|row| row.policy_revision.to_string()));
        table.column("FIRST SEEN", rows.iter().map(|row| output::moment(row.first_seen)));
    }
}

impl Listed for AlertRow {
    const SCOPE: Scope = Scope::Fleet;
    const NONE: Option<&'static str> = Some("no active alerts");

    fn of_fleet(fleet: &Fleet) -> Vec<Self> {
        fleet.alerts().into_iter().chain(fleet.central_monitor_away()).collect()
    }

    fn key(&self) -> Key {
        (self.cluster().to_owned(), format!("{}/{}/{}", self.subject(), self.alert, self.monitor), Uuid::nil())
    }

    fn cluster(&self) -> &str {
        self.cluster.as_deref().unwrap_or_default()
    }

    fn title(&self) -> String {
        format!("{} of {}", self.alert, self.subject())
    }

    fn argument(&self) -> String {
        self.subject()
    }

    fn table(rows: &[Self], now: u64) -> Table {
        tables::alerts(rows, now)
    }

    fn widen(rows: &[Self], table: &mut Table) {
        table.column("BEGAN", rows.iter().map(|row| row.since.map_or_else(String::new, output::moment)));
    }
}

/// Which rows a list shows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Filter<'a> {
    /// Of this cluster (name or UUID); None: of all.
    pub cluster: Option<&'a str>,
    /// With these labels; None: with any.
    pub selector: Option<&'a Selector>,
}

impl<'a> Filter<'a> {
    /// Rows of a cluster, or of all.
    #[must_use]
    pub(crate) const fn of_cluster(cluster: Option<&'a str>) -> Self {
        Self { cluster, selector: None }
    }

    /// The rows that are shown; `cluster`: by its name.
    fn chosen<L: Listed>(&self, mut rows: Vec<L>, cluster: Option<&str>) -> Vec<L> {
        rows.retain(|row| cluster.is_none_or(|name| row.cluster() == name));
        if let Some(selector) = self.selector {
            rows.retain(|row| row.labels().is_some_and(|labels| selector.selects(labels)));
        }
        rows
    }
}

/// Labels as people read them, and as `-l` takes them.
#[must_use]
pub(crate) fn shown_labels(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// Prints a list, and follows it if that is asked for: of the console where there is one, else of the broker. The number of rows that it showed last.
///
/// # Errors
/// As documented for the exit codes.
pub(crate) async fn run<L: InConsole>(
    filter: Filter<'_>,
    reading: &ListOptions,
    options: &Options,
) -> anyhow::Result<usize> {
    let mut screen = Screen::<L>::new(options.presentation.output, reading.watch);
    if let Some(address) = console_of(&reading.source)? {
        match console::run(address, filter, reading, options, &mut screen).await {
            Err(error) if reading.source.from.is_none() && is_away(&error) => {
                remark(&format!("{error:#}; reading from the broker instead"));
            }
            ended => return ended.map(|()| screen.rows()),
        }
    }
    from_broker(filter, reading, options, &mut screen).await?;
    Ok(screen.rows())
}

/// What the console says to `ask_console`, where there is one that is to be read and is there; else what the broker says to `ask_broker`.
///
/// # Errors
/// As documented for the exit codes.
pub(crate) async fn of_either<T>(
    source: &ReadingSource,
    options: &Options,
    ask_console: impl AsyncFnOnce(&ConsoleApi) -> anyhow::Result<T>,
    ask_broker: impl AsyncFnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some(address) = console_of(source)? else { return ask_broker().await };
    let api = ConsoleApi::open(address, &source.access, options.presentation.timeout)?;
    let asked = async {
        console::complete(&api).await?;
        ask_console(&api).await
    };
    match asked.await {
        Err(error) if source.from.is_none() && is_away(&error) => {
            remark(&format!("{error:#}; reading from the broker instead"));
            ask_broker().await
        }
        asked => asked,
    }
}

/// The rows of a table of the console, sorted as those of the broker.
///
/// # Errors
/// As documented for the exit codes.
pub(crate) async fn rows<L: InConsole>(api: &ConsoleApi) -> anyhow::Result<Vec<L>> {
    console::rows(api).await
}

/// What rows of a table of the console at `address` were made of, sorted as those of the broker.
///
/// # Errors
/// They are of another version.
pub(crate) fn read<'a, L: InConsole>(rows: impl Iterator<Item = &'a Value>, address: &str) -> anyhow::Result<Vec<L>> {
    console::read(rows, address)
}

/// The rows of a table of the console as they are.
///
/// # Errors
/// As documented for the exit codes.
pub(crate) async fn table(api: &ConsoleApi, name: &str) -> anyhow::Result<Vec<Value>> {
    console::table(api, name).await
}

/// A row of the console cannot be read.
#[must_use]
pub(crate) fn of_another_version(address: &str) -> anyhow::Error {
    console::of_another_version(address)
}

/// An entry of an object of ConfigDB, as the console has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Slug of its application.
    pub slug: String,
    /// As it was written.
    pub value: Value,
    /// ETag; None: it is computed and not written.
    pub etag: Option<Uuid>,
    /// Revision at which it was written; None: it is computed.
    pub revision: Option<u64>,
}

/// The entries of an object; none: there is no such object, or the user may not see it.
///
/// # Errors
/// As documented for the exit codes.
pub(crate) async fn entries(api: &ConsoleApi, object: Uuid) -> anyhow::Result<Vec<Entry>> {
    let rows = console::table(api, &format!("entries:{object}")).await?;
    let entry = |row: &Value| {
        let text = |field: &str| row.get(field)?.as_str();
        Some(Entry {
            slug: text("key")?.to_owned(),
            value: serde_json::from_str(text("json")?).ok()?,
            etag: text("etag").and_then(|etag| etag.parse().ok()),
            revision: row.get("revision").and_then(Value::as_u64),
        })
    };
    let entries = rows.iter().map(|row| entry(row).ok_or_else(|| console::of_another_version(api.address())));
    entries.collect()
}

/// An entry of an object; None: the object has none of that application.
///
/// # Errors
/// As documented for the exit codes.
pub(crate) async fn entry(api: &ConsoleApi, object: Uuid, slug: &str) -> anyhow::Result<Option<Entry>> {
    Ok(entries(api, object).await?.into_iter().find(|entry| entry.slug == slug))
}

/// Gives `show` tables of the console whenever one of them has changed, until it returns false or a signal comes; also when the console has gone and comes again.
///
/// # Errors
/// As documented for the exit codes.
pub(crate) async fn follow(
    api: &ConsoleApi,
    tables: &[&str],
    mut show: impl FnMut(&ConsoleTables) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    console::again_and_again(async || console::follow_tables(api, tables, &mut show).await).await
}

/// The console to read from; None: it is the broker.
///
/// # Errors
/// With [`exit::USAGE`] where only a console is to be read, and none is named.
pub(crate) fn console_of(source: &ReadingSource) -> anyhow::Result<Option<&str>> {
    match (source.from, source.console.as_deref()) {
        (Some(Source::Broker), _) => Ok(None),
        (Some(Source::Console), None) => {
            let help = "add --console http://HOST:PORT, or use a context that has one";
            Err(usage(anyhow!("no console is named; {help}")))
        }
        (_, console) => Ok(console),
    }
}

/// Whether an error says that something is not there, or not at present.
fn is_away(error: &anyhow::Error) -> bool {
    matches!(exit::code_of(error), exit::UNAVAILABLE | exit::TIMEOUT)
}

async fn from_broker<L: Listed>(
    filter: Filter<'_>,
    reading: &ListOptions,
    options: &Options,
    screen: &mut Screen<L>,
) -> anyhow::Result<()> {
    let mut client = if reading.complete {
        Client::open(options, L::SCOPE).await?
    } else {
        let (client, missing) = Client::open_known(options, L::SCOPE).await?;
        if let Some(missing) = missing {
            remark(&format!(
                "not received in time: {missing}; what only they know is missing or marked with ?; --complete waits for them"
            ));
        }
        client
    };
    let name = filter.cluster.map(|wanted| look_up::cluster(&client.fleet, wanted)).transpose();
    let shown = match name {
        Ok(cluster) => {
            let name = cluster.map(|row| row.name);
            let rows = |fleet: &Fleet| filter.chosen(L::of_fleet(fleet), name.as_deref());
            follow_broker(&mut client, reading.watch, rows, screen).await
        }
        Err(error) => Err(error),
    };
    client.close().await;
    shown
}

async fn follow_broker<L: Listed>(
    client: &mut Client,
    is_followed: bool,
    rows: impl Fn(&Fleet) -> Vec<L>,
    screen: &mut Screen<L>,
) -> anyhow::Result<()> {
    // Before the first rows are shown: who has seen them may end the command at once.
    let shutdown = is_followed.then(Shutdown::on_signals).transpose()?;
    let is_read = screen.show(rows(&client.fleet), client.wall())?;
    let Some(shutdown) = shutdown.filter(|_| is_read) else { return Ok(()) };
    let mut was_current = client.is_current();
    loop {
        tokio::select! {
            followed = client.follow(REDRAW, PACE) => followed?,
            () = shutdown.wait() => return Ok(()),
        }
        let is_current = client.is_current();
        if was_current != is_current {
            let text =
                if is_current { "all births are here again" } else { "births are missing; what is shown is older" };
            remark(text);
            was_current = is_current;
        }
        if is_current && !screen.show(rows(&client.fleet), client.wall())? {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
