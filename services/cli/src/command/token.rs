//! `sparkfleet token ...`: the text of a token is made here and printed once; what is sent is its hash.

use std::time::Duration;

use anyhow::Context as _;
use cluster_manager_contract::api_token::{self as token, TokenHash};
use configdb_schema::Document as _;
use configdb_schema::document::{ApiToken, TokenScope};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use uuid::Uuid;

use crate::arguments::access::{Scope as WantedScope, TokenCommand};
use crate::client::{Client, Scope, author};
use crate::look_up;
use crate::options::Options;
use crate::output::{self, Table};
use crate::usage_error::{not_found, of_request};
use fleet_view::Fleet;
use fleet_view::requests::{self, NewToken, RequestError};
use join_trust::files as trust;

/// Carries out a token command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: TokenCommand) -> anyhow::Result<()> {
    match command {
        TokenCommand::Create { name, scope, cluster, expires, options } => {
            create(&name, scope.into(), &cluster, expires, &options).await
        }
        TokenCommand::List { options } => list(&options).await,
        TokenCommand::Revoke { name, options } => revoke(&name, &options).await,
    }
}

impl From<WantedScope> for TokenScope {
    fn from(scope: WantedScope) -> Self {
        match scope {
            WantedScope::Viewer => Self::Viewer,
            WantedScope::Operator => Self::Operator,
            WantedScope::Administrator => Self::Administrator,
        }
    }
}

async fn create(
    name: &str,
    scope: TokenScope,
    clusters: &[String],
    expires: Duration,
    options: &Options,
) -> anyhow::Result<()> {
    let (text, hash) = make()?;
    let mut client = Client::open(options, Scope::Config).await?;
    let wanted = clusters.iter().map(|wanted| Ok(look_up::cluster_entry(&client.fleet, wanted)?.0));
    let clusters = wanted.collect::<anyhow::Result<Vec<Uuid>>>()?;
    let clusters = Some(clusters).filter(|clusters| !clusters.is_empty());
    let wanted = NewToken { name, hash: hash.to_hex(), scope, clusters, lifetime: expires };
    let made = requests::create_token(&client.fleet, wanted, client.wall(), author());
    let (request, token) = made.map_err(of_request)?;
    client.write(request).await?;
    let value = json!({ "token": text.expose_secret(), "name": name, "scope": scope.as_str(), "clusters": token.clusters,
        "expires": token.expires });
    // The token alone on standard output: it can be piped into a file that no other user reads.
    output::print(options.presentation.output, || vec![text.expose_secret().to_owned()], &value)?;
    client.close().await;
    Ok(())
}

fn make() -> anyhow::Result<(SecretString, TokenHash)> {
    let text = token::text(trust::random()?.expose());
    let hash = TokenHash::of(text.expose_secret()).context("a token has the form of a token")?;
    Ok((text, hash))
}

/// The tokens, and what is in ConfigDB but cannot be read.
pub(super) fn tokens(fleet: &Fleet) -> Vec<ApiToken> {
    let mut tokens: Vec<ApiToken> =
        fleet.config.entries(ApiToken::slug()).filter_map(|(_, entry)| entry.parse().ok()).collect();
    tokens.sort_by(|a, b| a.name.cmp(&b.name));
    tokens
}

pub(super) fn table(tokens: &[ApiToken], fleet: &Fleet, now: jiff::Timestamp) -> Table {
    let named = |uuid: &Uuid| {
        let entry = fleet.cluster_entries().find(|(of, _)| of == uuid);
        entry.map_or_else(|| uuid.to_string(), |(_, entry)| entry.name)
    };
    let mut table = Table::new(&["TOKEN", "SCOPE", "CLUSTERS", "ISSUED", "EXPIRES", "BY"]);
    for token in tokens {
        let clusters = token.clusters.as_ref().map(|clusters| clusters.iter().map(named).collect::<Vec<_>>().join(","));
        let expired = token.expires.parse::<jiff::Timestamp>().is_ok_and(|end| end <= now);
        table.row([
            token.name.clone(),
            token.scope.as_str().to_owned(),
            clusters.unwrap_or_else(|| "all".to_owned()),
            token.issued.clone(),
            if expired { format!("{} (over)", token.expires) } else { token.expires.clone() },
            token.by.clone(),
        ]);
    }
    table
}

async fn list(options: &Options) -> anyhow::Result<()> {
    let client = Client::open(options, Scope::Config).await?;
    let tokens = tokens(&client.fleet);
    let shown = tokens.iter().map(|token| {
        json!({ "name": token.name, "scope": token.scope.as_str(), "clusters": token.clusters, "issued": token.issued,
            "expires": token.expires, "by": token.by })
    });
    let value = json!(shown.collect::<Vec<_>>());
    let lines = || table(&tokens, &client.fleet, jiff::Timestamp::now()).shown();
    let result = output::print(options.presentation.output, lines, &value);
    client.close().await;
    result
}

async fn revoke(name: &str, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Config).await?;
    let request = match requests::revoke_token(&client.fleet, name, author()) {
        Err(RequestError::Missing { .. }) => {
            return Err(not_found("token", name, tokens(&client.fleet).iter().map(|token| token.name.as_str())));
        }
        request => request.map_err(of_request)?,
    };
    let result = client.write(request).await?;
    let value = json!({ "name": name, "revision": result.revision, "state": "revoked" });
    output::print(options.presentation.output, || vec![format!("{name} revoked")], &value)?;
    client.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_token_is_known_by_its_hash_and_no_two_are_the_same() {
        let (text, hash) = make().unwrap();
        assert_eq!(TokenHash::of(text.expose_secret()), Some(hash));
        assert_ne!(make().unwrap().1, hash);
    }
}
