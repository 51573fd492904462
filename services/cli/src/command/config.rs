//! `sparkfleet config ...`: ConfigDB as it is, entry by entry.

mod objects;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::Path;

use anyhow::anyhow;
use configdb_contract::dump::{Dump, LoadOptions};
use configdb_contract::{HistoryEntry, WriteRequest};
use configdb_schema::APPLICATIONS;
use configdb_schema::application::{MEMBERSHIP_SLUG, REGISTRATION_SLUG};
use serde_json::{Value, json};
use service_runtime::atomic_file::{self, OWNER_ONLY};
use service_runtime::exit;
use uuid::Uuid;

use super::edit;
use crate::arguments::ConfigCommand;
use crate::client::{Client, Scope, request_id, writer};
use crate::console_api::ConsoleApi;
use crate::input::{etag_option, read, read_document};
use crate::listing;
use crate::load::{self, Deletion, Loss};
use crate::look_up;
use crate::one_object::{OneObject, Values};
use crate::options::{Options, ReadingSource};
use crate::output::outcome;
use crate::output::{self, Table};
use crate::usage_error::{not_found, usage};
use fleet_view::Fleet;

/// Carries out a config command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: ConfigCommand) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Get { object, application, source, options } => {
            get(&object, &application, &source, &options).await
        }
        ConfigCommand::Put { object, application, file, if_match, class, options } => {
            let value = read_document(&file)?;
            let change = Change { value: Some(value), patch: false, if_match, class };
            write(&object, Some(&application), change, &options).await
        }
        ConfigCommand::Edit { object, application, options } => {
            let find = |client: &Client| {
                let uuid = look_up::object(&client.fleet, &object)?;
                edit::entry_of(client, uuid, &slug(&client.fleet, &application)?, &object)
            };
            edit::run(find, &options).await
        }
        ConfigCommand::Patch { object, application, file, if_match, options } => {
            let value = read_document(&file)?;
            let change = Change { value: Some(value), patch: true, if_match, class: None };
            write(&object, Some(&application), change, &options).await
        }
        ConfigCommand::Delete { object, application, if_match, options } => {
            let change = Change { value: None, patch: false, if_match, class: None };
            write(&object, application.as_deref(), change, &options).await
        }
        ConfigCommand::List { application, class, source, options } => {
            objects::list(application.as_deref(), class.as_deref(), &source, &options).await
        }
        ConfigCommand::Load { file, dry_run, allow_delete, options } => {
            load(&read(&file)?, dry_run, allow_delete, &options).await
        }
        ConfigCommand::Dump { file, options } => dump_all(file.as_deref(), &options).await,
        ConfigCommand::History { object, application, since, limit, options } => {
            history(&object, application.as_deref(), since, limit, &options).await
        }
    }
}

struct Change {
    value: Option<Value>,
    patch: bool,
    if_match: Option<String>,
    class: Option<String>,
}

fn gone(error: anyhow::Error) -> anyhow::Error {
    exit::with_code(exit::NOT_FOUND, error)
}

/// The slug of an application given by slug or UUID.
fn slug(fleet: &Fleet, wanted: &str) -> anyhow::Result<String> {
    let by_uuid = Uuid::try_parse(wanted).ok().and_then(|uuid| fleet.config.slug_of(uuid));
    let found = by_uuid.or_else(|| fleet.config.applications().map(|(slug, _)| slug).find(|slug| *slug == wanted));
    let known = || fleet.config.applications().map(|(slug, _)| slug);
    found.map(str::to_owned).ok_or_else(|| not_found("application", wanted, known()))
}

/// The UUID of the object. A name is looked up in everything that ConfigDB has.
async fn uuid_of(wanted: &str, options: &Options) -> anyhow::Result<Uuid> {
    if let Ok(uuid) = Uuid::try_parse(wanted) {
        return Ok(uuid);
    }
    let client = Client::open(options, Scope::Config).await?;
    let found = look_up::object(&client.fleet, wanted);
    client.close().await;
    found
}

async fn get(wanted: &str, application: &str, source: &ReadingSource, options: &Options) -> anyhow::Result<()> {
    let ask_console = async |api: &ConsoleApi| from_console(api, wanted, application).await;
    let ask_broker = async || from_broker(options, wanted, application).await;
    let value = listing::of_either(source, options, ask_console, ask_broker).await?;
    // An entry is a document, not a row: people read it as YAML.
    output::print(options.presentation.output.of_document(), Vec::new, &value)
}

async fn from_broker(options: &Options, wanted: &str, application: &str) -> anyhow::Result<Value> {
    let uuid = uuid_of(wanted, options).await?;
    let mut session = OneObject::open(options, uuid)?;
    let read = session.read().await;
    session.close().await;
    let Values { object, applications } = read?.ok_or_else(|| no_object(uuid))?;
    if application == REGISTRATION_SLUG {
        return Ok(json!(object.registration));
    }
    if application == MEMBERSHIP_SLUG {
        return Ok(json!(object.membership));
    }
    let slug = slug_among(&applications, application)?;
    Ok(object.entry(slug).ok_or_else(|| no_entry(uuid, slug))?.value()?)
}

async fn from_console(api: &ConsoleApi, wanted: &str, application: &str) -> anyhow::Result<Value> {
    let uuid = match Uuid::try_parse(wanted) {
        Ok(uuid) => uuid,
        Err(_) => object_in(&listing::table(api, "objects").await?, wanted)?,
    };
    let entries = listing::entries(api, uuid).await?;
    if entries.is_empty() {
        return Err(no_object(uuid));
    }
    if let Some(entry) = entries.iter().find(|entry| entry.slug == application) {
        return Ok(entry.value.clone());
    }
    let known = APPLICATIONS.iter().map(|application| (application.slug.to_owned(), application.uuid));
    let of_site = listing::table(api, "applications").await?;
    let of_site =
        of_site.iter().filter_map(|row| Some((text(row, "key")?.to_owned(), text(row, "uuid")?.parse().ok()?)));
    let applications = known.chain(of_site).collect();
    let slug = slug_among(&applications, application)?;
    let entry = entries.into_iter().find(|entry| entry.slug == slug);
    Ok(entry.ok_or_else(|| no_entry(uuid, slug))?.value)
}

fn text<'a>(row: &'a Value, field: &str) -> Option<&'a str> {
    row.get(field)?.as_str()
}

/// The object of that name among the rows of the console's table of objects.
fn object_in(rows: &[Value], wanted: &str) -> anyhow::Result<Uuid> {
    let named = rows.iter().filter(|row| text(row, "name") == Some(wanted));
    let named = named.filter_map(|row| text(row, "key")?.parse().ok());
    let names = || rows.iter().filter_map(|row| text(row, "name").map(str::to_owned));
    look_up::object_among("object named", named, names, wanted)
}

fn no_object(uuid: Uuid) -> anyhow::Error {
    gone(anyhow!("there is no object {uuid}"))
}

fn no_entry(uuid: Uuid, slug: &str) -> anyhow::Error {
    gone(anyhow!("object {uuid} has no entry {slug}"))
}

/// The slug of an application given by slug or UUID.
pub(super) fn slug_among<'a>(applications: &'a BTreeMap<String, Uuid>, wanted: &str) -> anyhow::Result<&'a str> {
    let uuid = Uuid::try_parse(wanted).ok();
    let found = applications.iter().find(|(slug, of)| *slug == wanted || Some(**of) == uuid);
    found.map(|(slug, _)| slug.as_str()).ok_or_else(|| not_found("application", wanted, applications.keys()))
}

async fn write(wanted: &str, application: Option<&str>, change: Change, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Config).await?;
    let uuid = look_up::object(&client.fleet, wanted)?;
    let mut request =
        if change.patch { WriteRequest::patch(request_id(), uuid) } else { WriteRequest::put(request_id(), uuid) };
    request = request.by(writer());
    if let Some(class) = &change.class {
        request = request.create_object(look_up::object(&client.fleet, class)?, None);
    }
    let what = match application {
        Some(application) => {
            let slug = slug(&client.fleet, application)?;
            if let Some(wanted) = &change.if_match {
                request = request.if_match(slug.as_str(), etag_option(wanted)?);
            }
            request = match change.value {
                Some(value) => request.entry(slug.as_str(), value),
                None => request.delete(slug.as_str()),
            };
            slug
        }
        None => {
            if change.if_match.is_some() {
                return Err(usage(anyhow!("--if-match is about an entry; name the application")));
            }
            request = request.delete_object();
            "object".to_owned()
        }
    };
    let before = client.fleet.config.entry(uuid, &what).map(|entry| entry.etag);
    let result = client.write(request).await?;
    let etag = result.etags.get(&what).copied();
    let done = if etag.is_none() { "deleted" } else { outcome(before, etag) };
    let etag = etag.map_or_else(String::new, |etag| format!(", ETag {etag}"));
    let line = format!("{what} of {uuid} {done}: revision {}{etag}", result.revision);
    let mut value = json!(result);
    value["change"] = json!(done);
    output::print(options.presentation.output, || vec![line], &value)?;
    client.close().await;
    Ok(())
}

async fn load(text: &str, dry_run: bool, allow_delete: bool, options: &Options) -> anyhow::Result<()> {
    let dump = Dump::parse(text).map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let mut client = Client::open(options, Scope::Config).await?;
    let load_options = LoadOptions { id_prefix: request_id(), writer: writer() };
    let phases = dump.requests(&client.fleet.config, &load_options);
    let writes = phases.map_err(|error| exit::with_code(exit::CONFIG, error))?.concat();
    let deletions = load::deletions(&client.fleet, &writes);
    let losses = load::losses(&client.fleet, &writes);
    if dry_run {
        let lines = || [planned(&writes), going(&deletions), lost(&losses)].concat();
        let value = json!({ "writes": writes, "deletes": deletions, "ends": losses });
        let result = output::print(options.presentation.output, lines, &value);
        client.close().await;
        return result;
    }
    if !deletions.is_empty() && !allow_delete {
        let error = anyhow!(
            "nothing was written: edges would delete something; add --allow-delete if they should: {}",
            going(&deletions).join("; ")
        );
        return Err(exit::with_code(exit::REFUSED, error));
    }
    [going(&deletions), lost(&losses)].concat().iter().for_each(|line| output::progress(line));
    let total = writes.len();
    let revision =
        if total == 0 { client.fleet.config.revision() } else { stage_and_commit(&mut client, writes).await? };
    client.close().await;
    let value = json!({ "writes": total, "revision": revision, "deletes": deletions, "ends": losses });
    output::print(options.presentation.output, || vec![format!("{total} writes: revision {revision}")], &value)
}

/// The revision after the load.
async fn stage_and_commit(client: &mut Client, writes: Vec<WriteRequest>) -> anyhow::Result<u64> {
    let total = writes.len();
    let shown = std::io::stderr().is_terminal() && total > 100;
    let progress = |done: usize| {
        if shown && (done.is_multiple_of(50) || done == total) {
            eprint!("\r{done} of {total} writes");
        }
    };
    let written = client.write_transaction(writes, progress).await;
    if shown {
        eprintln!();
    }
    Ok(written?.revision)
}

/// What a load would write, a line an object and phase.
pub(super) fn planned(writes: &[WriteRequest]) -> Vec<String> {
    let mut table = Table::new(&["OBJECT", "WRITES"]);
    for write in writes {
        let mut slugs: Vec<&str> = write.entries.keys().map(String::as_str).collect();
        slugs.extend(write.registration.as_ref().map(|_| REGISTRATION_SLUG));
        slugs.extend(write.membership.as_ref().map(|_| MEMBERSHIP_SLUG));
        table.row([write.object.to_string(), slugs.join(",")]);
    }
    table.shown()
}

/// What edges would delete, a line each.
pub(super) fn going(deletions: &[Deletion]) -> Vec<String> {
    let line = |deletion: &Deletion| {
        let Deletion { cluster, deployment, uuid, reason } = deletion;
        format!("deleted at the edge of {cluster}: {deployment} ({uuid}), because {reason}")
    };
    deletions.iter().map(line).collect()
}

/// What else ends or counts again, a line each.
pub(super) fn lost(losses: &[Loss]) -> Vec<String> {
    let line = |loss: &Loss| {
        let of = loss.cluster.as_ref().map(|cluster| format!(" of {cluster}")).unwrap_or_default();
        format!("{} {}{of} ({}): {}", loss.kind, loss.name, loss.uuid, loss.reason)
    };
    losses.iter().map(line).collect()
}

async fn dump_all(file: Option<&Path>, options: &Options) -> anyhow::Result<()> {
    let client = Client::open(options, Scope::Config).await?;
    let dump = Dump::from_replica(&client.fleet.config).map(|dump| dump.to_value());
    client.close().await;
    let (form, dump) = (options.presentation.output.of_document(), dump?);
    let Some(file) = file.filter(|file| *file != Path::new("-")) else {
        return output::print(form, Vec::new, &dump);
    };
    let text = format!("{}\n", output::text(form, Vec::new, &dump)?.trim_end());
    // Passwords that someone wrote into an entry are in it, too.
    atomic_file::create(file, text.as_bytes(), Some(OWNER_ONLY)).map_err(|error| {
        let (code, advice) = if error.is_taken() { (exit::REFUSED, "; name another file") } else { (exit::CONFIG, "") };
        exit::with_code(code, anyhow!("{:#}{advice}", anyhow::Error::from(error)))
    })?;
    output::print_text(&format!("{}: everything that ConfigDB has", file.display()))
}

async fn history(
    wanted: &str,
    application: Option<&str>,
    since: u64,
    limit: u64,
    options: &Options,
) -> anyhow::Result<()> {
    let uuid = uuid_of(wanted, options).await?;
    let mut session = OneObject::open(options, uuid)?;
    let read = history_of(&mut session, application, since).await;
    session.close().await;
    let all = read?;
    let newest = all.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    let entries = &all[newest..];
    let value: Vec<Value> = entries.iter().map(described).collect();
    let lines = || {
        let mut table = Table::new(&["REVISION", "TIME", "WRITER", "APPLICATION", "VALUE"]);
        for entry in entries {
            let value = entry.json.as_deref().unwrap_or("(deleted)");
            table.row([&entry.revision.to_string(), &output::moment(entry.time), &*entry.writer, &*entry.slug, value]);
        }
        table.shown()
    };
    output::print(options.presentation.output, lines, &json!(value))
}

async fn history_of(
    session: &mut OneObject,
    application: Option<&str>,
    since: u64,
) -> anyhow::Result<Vec<HistoryEntry>> {
    let slug = match application {
        // ConfigDB refuses a slug that there is not; a UUID needs the object to say what it stands for.
        Some(wanted) if Uuid::try_parse(wanted).is_ok() => {
            let Values { applications, .. } =
                session.read().await?.ok_or_else(|| gone(anyhow!("there is no such object")))?;
            Some(slug_among(&applications, wanted)?.to_owned())
        }
        other => other.map(str::to_owned),
    };
    session.history(slug, since).await
}

pub(super) fn described(entry: &HistoryEntry) -> Value {
    let value: Option<Value> = entry.json.as_deref().and_then(|json| serde_json::from_str(json).ok());
    json!({
        "revision": entry.revision,
        "time": output::moment(entry.time),
        "writer": &*entry.writer,
        "request": &*entry.request,
        "application": &*entry.slug,
        "etag": entry.etag,
        "value": value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_view::bench::Bench;

    #[test]
    fn an_application_is_named_by_slug_or_uuid_and_one_that_is_mistyped_is_suggested() {
        let (info, cluster) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let applications = BTreeMap::from([("Info".to_owned(), info), ("EdgeCluster".to_owned(), cluster)]);
        assert_eq!(slug_among(&applications, "Info").unwrap(), "Info");
        assert_eq!(slug_among(&applications, &cluster.to_string()).unwrap(), "EdgeCluster");
        for (wanted, part) in [("EdgeClustr", "did you mean \"EdgeCluster\"?"), ("x", "there are:")] {
            let error = slug_among(&applications, wanted).unwrap_err();
            assert!(exit::code_of(&error) == exit::NOT_FOUND && error.to_string().contains(part), "{wanted}: {error}");
        }
        let bench = Bench::with_cluster();
        assert_eq!(slug(&bench.fleet, "EdgeCluster").unwrap(), "EdgeCluster");
        let error = slug(&bench.fleet, &Uuid::from_u128(9).to_string()).unwrap_err();
        assert_eq!(exit::code_of(&error), exit::NOT_FOUND, "{error}");
    }

    #[test]
    fn what_a_load_writes_and_what_goes_by_it_is_said_in_lines() {
        let object = Uuid::from_u128(7);
        let write = WriteRequest::put("r", object).entry("Info", json!({})).entry("EdgeCluster", json!({}));
        let lines = planned(&[write]);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].starts_with(&object.to_string()) && lines[1].ends_with("EdgeCluster,Info"), "{lines:?}");
        let reason = "its object is deleted".to_owned();
        let deletion = Deletion { cluster: "Paint".to_owned(), deployment: "Oven".to_owned(), uuid: object, reason };
        let line = format!("deleted at the edge of Paint: Oven ({object}), because its object is deleted");
        assert_eq!(going(&[deletion]), [line]);
        let loss =
            |kind, cluster| Loss { kind, name: "x".to_owned(), cluster, uuid: object, reason: "it ends".to_owned() };
        let lines = lost(&[loss("host", Some("Paint".to_owned())), loss("token", None)]);
        assert_eq!(lines, [format!("host x of Paint ({object}): it ends"), format!("token x ({object}): it ends")]);
    }
}
