//! `sparkfleet cluster reconcile`: Flux is asked to reconcile all deployments of a cluster.

use serde_json::json;

use crate::client::{Client, Scope, author};
use crate::look_up;
use crate::options::Options;
use crate::output::{self, visible};
use crate::usage_error::of_request;
use fleet_view::requests;

/// Writes the entries of all deployments that are not suspended, in one transaction.
///
/// # Errors
/// As documented for the exit codes.
pub(super) async fn cluster(wanted: &str, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Config).await?;
    let (uuid, entry) = look_up::cluster_entry(&client.fleet, wanted)?;
    let writes = requests::reconcile_cluster(&client.fleet, uuid, client.wall(), |_| author()).map_err(of_request)?;
    let names: Vec<String> = writes.iter().map(|write| client.fleet.name_of(write.object)).collect();
    let revision = client.write_transaction(writes, |_| {}).await?.revision;
    let lines =
        || names.iter().map(|name| format!("{}/{} is reconciled", visible(&entry.name), visible(name))).collect();
    let value = json!({ "cluster": entry.name, "deployments": names, "revision": revision });
    output::print(options.presentation.output, lines, &value)?;
    client.close().await;
    Ok(())
}
