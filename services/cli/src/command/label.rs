//! `sparkfleet cluster label` and `sparkfleet deployment label`.

use std::collections::BTreeMap;

use configdb_schema::Document as _;
use configdb_schema::document::Info;
use fleet_view::{Fleet, requests};
use serde_json::json;
use uuid::Uuid;

use crate::client::{Client, Scope, author};
use crate::listing::shown_labels;
use crate::options::Options;
use crate::output::{self, outcome};
use crate::usage_error::of_request;

/// Sets labels of what `find` finds (its object and its name), or takes them away.
///
/// # Errors
/// As documented for the exit codes.
pub(super) async fn run(
    find: impl FnOnce(&Fleet) -> anyhow::Result<(Uuid, String)>,
    labels: &[(String, Option<String>)],
    scope: Scope,
    options: &Options,
) -> anyhow::Result<()> {
    let mut client = Client::open(options, scope).await?;
    let (object, name) = find(&client.fleet)?;
    let changes: BTreeMap<String, Option<String>> = labels.iter().cloned().collect();
    let request = requests::label(&client.fleet, object, &changes, author()).map_err(of_request)?;
    let before = client.fleet.config.entry(object, Info::slug()).map(|entry| entry.etag);
    let result = client.write_until_published(request).await?;
    let labels = client.fleet.labels_of(object);
    client.close().await;
    let is_unchanged = outcome(before, result.etags.get(Info::slug()).copied()) == "unchanged";
    let change = if is_unchanged { "unchanged" } else { "labelled" };
    let value = json!({ "uuid": object, "revision": result.revision, "change": change, "labels": labels });
    let line = output::visible(&format!("{name} {change}: {}", shown_labels(&labels)));
    output::print(options.presentation.output, || vec![line], &value)
}
