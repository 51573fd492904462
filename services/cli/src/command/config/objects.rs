//! `sparkfleet config list`: objects of ConfigDB, of the console where there is one, else of the broker.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::client::{Client, Scope};
use crate::console_api::ConsoleApi;
use crate::options::{Options, ReadingSource};
use crate::output::{self, Table};
use crate::usage_error::not_found;
use crate::{listing, look_up};
use fleet_view::{Fleet, config};

/// An object, as table `objects` of the console has it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct ObjectRow {
    key: Uuid,
    name: Option<String>,
    class: Option<Uuid>,
    class_name: Option<String>,
    deleted: bool,
    /// Classes that it is a direct member of.
    classes: BTreeSet<Uuid>,
    /// ETag and revision of each entry, by slug.
    versions: BTreeMap<String, Value>,
}

/// Prints objects: those that have an entry of an application, and are members of a class.
///
/// # Errors
/// As documented for the exit codes.
pub(super) async fn list(
    application: Option<&str>,
    class: Option<&str>,
    source: &ReadingSource,
    options: &Options,
) -> anyhow::Result<()> {
    let ask_console = async |api: &ConsoleApi| {
        let rows = listing::table(api, "objects").await?;
        let applications = match application {
            Some(_) => listing::table(api, "applications").await?,
            None => Vec::new(),
        };
        chosen(&rows, &applications, application, class, api.address())
    };
    let ask_broker = async || {
        let client = Client::open(options, Scope::Config).await?;
        let rows = of_fleet(&client.fleet, application, class);
        client.close().await;
        rows
    };
    let rows = listing::of_either(source, options, ask_console, ask_broker).await?;
    let values: Vec<Value> = rows.iter().map(ObjectRow::described).collect();
    output::print(options.presentation.output, || table(&rows).shown(), &json!(values))
}

fn of_fleet(fleet: &Fleet, application: Option<&str>, class: Option<&str>) -> anyhow::Result<Vec<ObjectRow>> {
    let rows: Vec<Value> = config::objects(fleet).into_values().collect();
    let applications: Vec<Value> = config::applications(fleet).into_values().collect();
    chosen(&rows, &applications, application, class, "this program")
}

/// The rows that are meant, of tables `objects` and `applications` of `whose`.
fn chosen(
    rows: &[Value],
    applications: &[Value],
    application: Option<&str>,
    class: Option<&str>,
    whose: &str,
) -> anyhow::Result<Vec<ObjectRow>> {
    let slug = application.map(|wanted| slug(applications, wanted)).transpose()?;
    let rows: Result<Vec<ObjectRow>, _> = rows.iter().map(ObjectRow::deserialize).collect();
    let mut rows = rows.map_err(|_| listing::of_another_version(whose))?;
    let class = class
        .map(|wanted| {
            let live = || rows.iter().filter(|row| !row.deleted);
            let named = live().filter(|row| row.name.as_deref() == Some(wanted)).map(|row| row.key);
            look_up::object_among("object named", named, || live().filter_map(|row| row.name.clone()), wanted)
        })
        .transpose()?;
    rows.retain(|row| {
        let is_member = |class| row.class == Some(class) || row.classes.contains(&class);
        !row.deleted && slug.is_none_or(|slug| row.versions.contains_key(slug)) && class.is_none_or(is_member)
    });
    Ok(rows)
}

/// The slug of an application given by slug or UUID.
fn slug<'a>(applications: &'a [Value], wanted: &str) -> anyhow::Result<&'a str> {
    let known = || applications.iter().filter_map(|row| Some((row["key"].as_str()?, row["uuid"].as_str()?)));
    let found = known().find(|(slug, uuid)| *slug == wanted || *uuid == wanted);
    found.map(|(slug, _)| slug).ok_or_else(|| not_found("application", wanted, known().map(|(slug, _)| slug)))
}

impl ObjectRow {
    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.key.to_string())
    }

    fn described(&self) -> Value {
        json!({ "uuid": self.key, "name": self.name(), "class": self.class, "entries": self.versions })
    }
}

fn table(rows: &[ObjectRow]) -> Table {
    let mut table = Table::new(&["OBJECT", "NAME", "CLASS", "ENTRIES"]);
    for row in rows {
        let class = row.class_name.clone().or_else(|| row.class.map(|class| class.to_string()));
        let entries: Vec<&str> = row.versions.keys().map(String::as_str).collect();
        table.row([row.key.to_string(), row.name(), class.unwrap_or_default(), entries.join(",")]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_view::bench::{Bench, CLUSTER, NAME};
    use service_runtime::exit;

    #[test]
    fn objects_are_chosen_by_application_and_class_and_what_is_mistyped_is_suggested() {
        let mut bench = Bench::with_cluster();
        bench.deployment(Uuid::from_u128(1), "Oven", None);
        let chosen = |application: Option<&str>, class: Option<&str>| of_fleet(&bench.fleet, application, class);
        let all = chosen(None, None).unwrap();
        let clusters = chosen(Some("EdgeCluster"), None).unwrap();
        assert_eq!(clusters.iter().map(|row| row.key).collect::<Vec<_>>(), [CLUSTER]);
        assert!(all.len() > 1, "{all:?}");
        let entry = bench.fleet.config.entry(CLUSTER, "EdgeCluster").unwrap();
        let expected = json!({ "etag": entry.etag, "revision": entry.revision });
        assert_eq!(clusters[0].described()["entries"]["EdgeCluster"], expected);
        for (application, class) in [(Some("EdgeClustr"), None), (None, Some("No_Class"))] {
            let error = chosen(application, class).unwrap_err();
            assert_eq!(exit::code_of(&error), exit::NOT_FOUND, "{error}");
        }
        assert!(chosen(None, Some(&CLUSTER.to_string())).unwrap().is_empty(), "{NAME} has no members");
    }

    #[test]
    fn rows_of_a_console_of_another_version_are_not_shown_in_part() {
        let error = super::chosen(&[json!({ "key": CLUSTER })], &[], None, None, "http://c").unwrap_err();
        assert!(error.to_string().contains("another version"), "{error}");
    }
}
