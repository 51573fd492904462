//! `sparkfleet cluster bootstrap`: the line that is pasted at the edge.
//!
//! The token is made here and printed once; ConfigDB, the broker and the cluster manager know its hash alone.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use configdb_contract::Entry;
use configdb_schema::Document as _;
use configdb_schema::document::EdgeClusterEnrolment;
use enrolment_protocol::bootstrap;
use enrolment_protocol::token::Token;
use serde_json::json;
use service_runtime::exit;
use uuid::Uuid;

use crate::client::{Client, Scope, author};
use crate::look_up;
use crate::options::Options;
use crate::output;
use crate::usage_error::{of_request, usage};
use fleet_view::{Fleet, requests};
use join_trust::files as trust;

/// Prints a line for a cluster, or revokes all that were printed.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(wanted: &str, expires: Duration, revoke: bool, options: &Options) -> anyhow::Result<()> {
    if !(bootstrap::LIFETIME_MIN..=bootstrap::LIFETIME_MAX).contains(&expires) {
        return Err(usage(anyhow!("--expires must be from 1m to 30d")));
    }
    let mut client = Client::open(options, Scope::Joining).await?;
    let (uuid, entry) = look_up::cluster_entry(&client.fleet, wanted)?;
    let (before, etag) = enrolment(&client.fleet, uuid)?;
    if revoke {
        let count = before.tokens.len();
        let enrolment = EdgeClusterEnrolment { tokens: Vec::new(), ..before };
        if count > 0 {
            client.write_document(uuid, &enrolment, etag).await?;
        }
        // A cluster that is not set up offers nothing in any case.
        let is_offered = |fleet: &Fleet| fleet.manager.cluster(uuid).is_some_and(|of| of.bootstrap.url.is_some());
        if count > 0 && is_offered(&client.fleet) {
            in_force(&mut client, uuid).await?;
        }
        let value = json!({ "uuid": uuid, "name": entry.name, "revoked": count });
        let lines = || {
            vec![format!(
                "{}: {count} tokens revoked; its script cannot be fetched, and no cluster can enrol as it",
                entry.name
            )]
        };
        output::print(options.presentation.output, lines, &value)?;
        client.close().await;
        return Ok(());
    }
    set_up(&mut client, uuid).await?;
    let token = Token::new(*trust::random()?.expose());
    let (hash, now) = (token.hash(), client.wall());
    let (request, expires) = requests::add_bootstrap_token(&client.fleet, uuid, hash.as_str(), expires, now, author())
        .map_err(of_request)?;
    client.write_until_published(request).await?;
    let url = in_force(&mut client, uuid).await?;
    let base = url
        .strip_suffix(&bootstrap::script_url("", uuid))
        .context("the cluster manager reports an address that is none")?;
    let line = bootstrap::command(base, uuid, &token);
    let missing = client.fleet.manager.cluster(uuid).and_then(|cluster| cluster.setup.reason.clone());
    if let Some(missing) = &missing {
        output::progress(&format!("before you paste the line: {missing}"));
    }
    let value =
        json!({ "uuid": uuid, "name": entry.name, "line": line, "url": url, "expires": expires, "missing": missing });
    output::print(options.presentation.output, || instructions(&entry.name, &line, &expires), &value)?;
    client.close().await;
    Ok(())
}

pub(super) fn instructions(name: &str, line: &str, expires: &str) -> Vec<String> {
    let text = format!(
        "Paste this where kubectl reaches the cluster that is to become {name}. It holds a token: a cluster that has it can become {name}, until {expires}.

{line}

It shows which Kubernetes cluster it has found, checks what it needs, and asks before it changes anything (without a terminal: ... | sh -s -- --yes).
Then it stores the credentials, installs Flux if there is none, and ends when edge sync and edge monitor are born and their release is ready; after a failure paste it again.
curl answers 503: the cluster manager is starting or sets the cluster up; paste it again. 404: the token has expired or was revoked, or this is not the address of the cluster manager. Revoke: sparkfleet cluster bootstrap {name} --revoke"
    );
    text.lines().map(str::to_owned).collect()
}

/// What an operator wants of a cluster's credentials, and the version of the entry, if there is one.
///
/// # Errors
/// The entry cannot be read.
pub(super) fn enrolment(fleet: &Fleet, cluster: Uuid) -> anyhow::Result<(EdgeClusterEnrolment, Option<Uuid>)> {
    let entry: Option<&Entry> = fleet.config.entry(cluster, EdgeClusterEnrolment::slug());
    Ok(match entry {
        Some(entry) => (entry.parse()?, Some(entry.etag)),
        None => Default::default(),
    })
}

async fn set_up(client: &mut Client, cluster: Uuid) -> anyhow::Result<()> {
    let settled = client
        .until("the cluster to be set up (sparkfleet cluster show says how far it is)", |fleet| {
            let setup = &fleet.manager.cluster(cluster)?.setup;
            match setup.state.as_str() {
                "ready" => Some(Ok(())),
                "refused" => Some(Err(setup.reason.clone().unwrap_or_default())),
                "deleting" => Some(Err("the cluster is being deleted".to_owned())),
                _ => None,
            }
        })
        .await?;
    settled.map_err(|reason| exit::with_code(exit::REFUSED, anyhow!("refused: {reason}")))
}

/// Waits until the cluster manager goes by the entry; where the script is fetched.
async fn in_force(client: &mut Client, cluster: Uuid) -> anyhow::Result<String> {
    let reported = |fleet: &Fleet| {
        let etag = fleet.config.entry(cluster, EdgeClusterEnrolment::slug())?.etag.to_string();
        let bootstrap = &fleet.manager.cluster(cluster)?.bootstrap;
        bootstrap.url.clone().filter(|_| bootstrap.enrolment.as_ref() == Some(&etag))
    };
    client.until("the cluster manager to offer the script", reported).await
}
