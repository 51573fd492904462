//! Completion of names in a shell: what an argument may name, asked of the web console.
//!
//! A user waits for it between two keys, so it is quick and quiet: no session at the broker, and no candidates where names cannot be had soon. A name is text that others wrote: one with
//! characters that steer a terminal is left out.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use configdb_schema::Document as _;
use configdb_schema::document::{ApiToken, GitConfig};
use fleet_view::{AlertRow, ClusterRow, DeploymentRow, JoiningHostRow};
use serde_json::Value;

use crate::console_api::ConsoleApi;
use crate::context::{self, ConsoleOfContext};
use crate::listing::{self, InConsole};
use crate::output::visible;

/// How long a console may take; a user does not wait longer for a key.
const LIMIT: Duration = Duration::from_millis(500);

/// Most names that a shell is given.
const NAMES_MAX: usize = 10_000;

/// The object of a token is named after it, with this before its name.
const TOKEN: &str = "API token ";

/// Repositories whose paths are asked for: each is a request.
const REPOSITORIES_MAX: usize = 32;

/// What an argument names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// By name.
    Cluster,
    /// As `CLUSTER/NAME`.
    Deployment,
    /// A host that joins, as `CLUSTER/HOST`.
    JoiningHost,
    /// Any host, as `CLUSTER/HOST`.
    Host,
    /// Any host, by its name in its cluster.
    HostName,
    /// What alerts are about.
    Alert,
    /// A chart template that has a rollout, by name.
    Chart,
    /// An object of ConfigDB, by name.
    Object,
    /// A class of ConfigDB that has members, by name.
    Class,
    /// An application of ConfigDB, by slug.
    Application,
    /// A token of the organisation, by name.
    Token,
    /// A Secret of a cluster, by name.
    Secret,
    /// A key of a Secret of a cluster.
    SecretKey,
    /// A git repository whose charts clusters install, by path.
    Repository,
    /// The same as the beginning of a pin: `REPOSITORY=`.
    Pin,
    /// A context of this user.
    Context,
}

impl Kind {
    /// What the argument `id` of a command names; `path` are the names of the command, such as `deployment move`.
    fn of(path: &str, id: &str) -> Option<Self> {
        Some(match (path, id) {
            // The Job of a cluster, which knows itself by its UUID alone.
            ("enrol", _) => return None,
            (_, "cluster") | ("simulate-cluster", "name") => Self::Cluster,
            (_, "deployment") => Self::Deployment,
            ("deployment create" | "deployment move" | "host init" | "host recover", "host") | ("host move", "to") => {
                Self::HostName
            }
            ("host move", "host") => Self::Host,
            (_, "host") => Self::JoiningHost,
            (_, "about") => Self::Alert,
            (_, "chart") => Self::Chart,
            (_, "object") => Self::Object,
            (_, "class") => Self::Class,
            ("token revoke", "name") => Self::Token,
            ("secret delete", "name") => Self::Secret,
            ("secret delete", "keys") => Self::SecretKey,
            (_, "unpin") => Self::Repository,
            (_, "pin") => Self::Pin,
            (_, "application") => Self::Application,
            (_, "context")
            | ("context use" | "context show" | "context set" | "context rename" | "context delete", "name") => {
                Self::Context
            }
            _ => return None,
        })
    }
}

/// Where names come from, for one command line.
#[derive(Debug, Clone, Default)]
pub struct Names {
    console: Option<ConsoleOfContext>,
    contexts: Vec<String>,
}

impl Names {
    /// Those of the console and the contexts that a command line with these words would use. Nothing is asked yet.
    #[must_use]
    pub fn new(words: &[OsString]) -> Self {
        let (console, contexts) = context::for_completion(words);
        Self { console, contexts }
    }

    /// The command with the names that its arguments, and those of all commands below it, can have.
    #[must_use]
    pub fn complete(self, command: clap::Command) -> clap::Command {
        Arc::new(self).of_commands(command, "")
    }

    fn of_commands(self: &Arc<Self>, command: clap::Command, path: &str) -> clap::Command {
        let below: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
        let command = below.into_iter().fold(command, |command, name| {
            let path = format!("{path} {name}");
            command.mut_subcommand(name, |below| self.of_commands(below, path.trim_start()))
        });
        // Of the visible names of a command the engine offers the first by alphabet alone. clap keeps names for as long as the process lives, which is one key.
        let aliases: Vec<&'static str> =
            command.get_all_aliases().map(|alias| &*Box::leak(alias.to_owned().into_boxed_str())).collect();
        let command = command.visible_alias(None::<&'static str>).aliases(aliases);
        command.mut_args(|argument| match Kind::of(path, argument.get_id().as_str()) {
            Some(kind) => {
                let names = Arc::clone(self);
                argument.add(ArgValueCompleter::new(move |current: &OsStr| names.candidates(kind, current)))
            }
            None => argument,
        })
    }

    /// The names that begin with what is typed already.
    fn candidates(&self, kind: Kind, current: &OsStr) -> Vec<CompletionCandidate> {
        let Some(current) = current.to_str().filter(|current| !current.starts_with('-')) else { return Vec::new() };
        let names = match kind {
            Kind::Context => self.contexts.iter().cloned().collect(),
            kind => self.asked(kind).unwrap_or_default(),
        };
        let fits = |name: &String| name.starts_with(current) && is_usable(name);
        names.into_iter().filter(fits).take(NAMES_MAX).map(CompletionCandidate::new).collect()
    }

    /// What the console says; None: there is no console, or it does not say it in time.
    fn asked(&self, kind: Kind) -> Option<BTreeSet<String>> {
        let console = self.console.as_ref()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let names = runtime.block_on(async {
            let api = ConsoleApi::open(&console.address, &console.access, LIMIT).ok()?;
            names_of(&api, kind).await.ok()
        });
        // The name of a host may still be looked up, which nothing ends.
        runtime.shutdown_background();
        names
    }
}

/// What a shell may be given as a word: it is not empty, not taken for an option, and does nothing to a terminal.
fn is_usable(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('-') && visible(name) == name
}

async fn names_of(api: &ConsoleApi, kind: Kind) -> anyhow::Result<BTreeSet<String>> {
    Ok(match kind {
        Kind::Cluster => arguments::<ClusterRow>(api).await?,
        Kind::Deployment => arguments::<DeploymentRow>(api).await?,
        Kind::JoiningHost => arguments::<JoiningHostRow>(api).await?,
        Kind::Alert => arguments::<AlertRow>(api).await?,
        Kind::Host => {
            texts(api, "hosts", |row| Some(format!("{}/{}", text(row, "cluster")?, text(row, "name")?))).await?
        }
        Kind::HostName => texts(api, "hosts", |row| text(row, "name").map(str::to_owned)).await?,
        Kind::Chart => texts(api, "rollout", |row| text(row, "template").map(str::to_owned)).await?,
        Kind::Object => {
            let is_there = |row: &Value| row.get("deleted") != Some(&Value::Bool(true));
            texts(api, "objects", |row| text(row, "name").filter(|_| is_there(row)).map(str::to_owned)).await?
        }
        Kind::Class => texts(api, "objects", |row| text(row, "class_name").map(str::to_owned)).await?,
        Kind::Application => texts(api, "applications", |row| text(row, "key").map(str::to_owned)).await?,
        Kind::Token => {
            let name = |row: &Value| Some(text(row, "name")?.strip_prefix(TOKEN)?.to_owned());
            texts(api, "objects", |row| name(row).filter(|_| has_entry(row, ApiToken::slug()))).await?
        }
        Kind::Secret => texts(api, "secrets", |row| text(row, "name").map(str::to_owned)).await?,
        Kind::SecretKey => {
            let keys = |row: &Value| row.get("keys").and_then(Value::as_array).cloned().unwrap_or_default();
            let rows = listing::table(api, "secrets").await?;
            rows.iter().flat_map(keys).filter_map(|key| text(&key, "key").map(str::to_owned)).collect()
        }
        Kind::Repository => repositories(api).await?,
        Kind::Pin => repositories(api).await?.into_iter().map(|name| format!("{name}=")).collect(),
        Kind::Context => BTreeSet::new(),
    })
}

/// Whether an object of table `objects` has an entry, and is there.
fn has_entry(row: &Value, slug: &str) -> bool {
    let entries = row.get("entries").and_then(Value::as_array);
    row.get("deleted") != Some(&Value::Bool(true)) && entries.is_some_and(|slugs| slugs.iter().any(|one| one == slug))
}

/// Repositories by path, which is in an entry of each.
async fn repositories(api: &ConsoleApi) -> anyhow::Result<BTreeSet<String>> {
    let objects = listing::table(api, "objects").await?;
    let mut paths = BTreeSet::new();
    for object in objects.iter().filter(|row| has_entry(row, GitConfig::slug())).take(REPOSITORIES_MAX) {
        let entries = format!("entries:{}", text(object, "key").unwrap_or_default());
        let rows = listing::table(api, &entries).await?;
        let entry = rows.iter().find(|row| text(row, "key") == Some(GitConfig::slug()));
        let entry = entry.and_then(|entry| serde_json::from_str::<GitConfig>(text(entry, "json")?).ok());
        paths.extend(entry.map(|entry| entry.path));
    }
    Ok(paths)
}

/// How other commands take the rows of a list.
async fn arguments<L: InConsole>(api: &ConsoleApi) -> anyhow::Result<BTreeSet<String>> {
    Ok(listing::rows::<L>(api).await?.iter().map(L::argument).collect())
}

async fn texts(
    api: &ConsoleApi,
    table: &str,
    of_row: impl Fn(&Value) -> Option<String>,
) -> anyhow::Result<BTreeSet<String>> {
    Ok(listing::table(api, table).await?.iter().filter_map(of_row).collect())
}

/// The text of a field, if it has one.
fn text<'a>(row: &'a Value, field: &str) -> Option<&'a str> {
    row.get(field)?.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
