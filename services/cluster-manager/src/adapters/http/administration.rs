//! The routes for administrators: tokens, and the record of writes.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use configdb_schema::document::TokenScope;
use schemars::JsonSchema;
use serde::Deserialize;
use service_runtime::config::ExposeSecret as _;
use service_runtime::record;
use uuid::Uuid;

use super::request::{Fault, RequestContext, Server, random, unexpected};
use super::shapes;
use crate::api::{Question, Reply};
use access::Grant;
use cluster_manager_contract::api_token::{self as token, RANDOM_BYTES, TokenHash};

/// How long a token lives if nothing else is said: 90 days, as on the command line.
const LIFETIME_S: u64 = 90 * 24 * 3600;

/// Records that are returned if the request names no limit.
const RECORDS: usize = 100;

/// A token that is asked for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewToken {
    /// Its name: 1 to 64 letters, digits, `.`, `_` and `-`, beginning with a letter or digit.
    name: String,
    /// `viewer`, `operator` or `administrator`.
    #[schemars(with = "String")]
    scope: TokenScope,
    /// UUIDs of the clusters that it is for; absent: all.
    #[schemars(with = "Option<Vec<String>>")]
    clusters: Option<Vec<Uuid>>,
    /// Seconds that it lives; absent: 90 days.
    expires_s: Option<u64>,
}

pub(super) async fn tokens(asker: RequestContext) -> Result<Json<Vec<shapes::Token>>, Fault> {
    match asker.ask(Question::Tokens).await? {
        Reply::Tokens(tokens) => Ok(Json(tokens.into_iter().map(shapes::Token::from).collect())),
        _ => Err(unexpected()),
    }
}

/// The text is made here: nothing but its hash goes further, and who asked has it alone.
pub(super) async fn create_token(
    asker: RequestContext,
    wanted: Result<Json<NewToken>, JsonRejection>,
) -> Result<Json<shapes::CreatedToken>, Fault> {
    let Json(wanted) = wanted.map_err(|error| Fault::Request(error.status(), error.body_text()))?;
    let bad = |reason: &str| Fault::Request(StatusCode::BAD_REQUEST, reason.to_owned());
    if wanted.clusters.as_ref().is_some_and(Vec::is_empty) {
        return Err(bad("clusters is empty; leave it out for all clusters"));
    }
    let lifetime = wanted.expires_s.unwrap_or(LIFETIME_S);
    if lifetime == 0 {
        return Err(bad("expires_s is 0; the token would be over at once"));
    }
    let bytes = random::<RANDOM_BYTES>()?;
    let text = token::text(&bytes);
    let hash = TokenHash::of(text.expose_secret()).ok_or_else(unexpected)?;
    let clusters = wanted.clusters.map(|clusters| clusters.into_iter().collect());
    let grant = Grant { scope: wanted.scope, clusters };
    let lifetime = Duration::from_secs(lifetime);
    let question = Question::CreateToken { name: wanted.name.clone(), hash, grant, lifetime };
    match asker.ask(question).await? {
        Reply::Created { expires } => {
            Ok(Json(shapes::CreatedToken { name: wanted.name, token: text.expose_secret().to_owned(), expires }))
        }
        _ => Err(unexpected()),
    }
}

pub(super) async fn revoke_token(asker: RequestContext, Path(name): Path<String>) -> Result<StatusCode, Fault> {
    asker.ask(Question::RevokeToken { name }).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
pub(super) struct AuditQuery {
    /// Most records.
    limit: Option<usize>,
}

pub(super) async fn audit(
    State(server): State<Server>,
    asker: RequestContext,
    Query(query): Query<AuditQuery>,
) -> Result<Json<Vec<serde_json::Value>>, Fault> {
    let limit = query.limit.unwrap_or(RECORDS);
    if !(1..=record::RECORDS_MAX).contains(&limit) {
        let reason = format!("limit must be from 1 to {}", record::RECORDS_MAX);
        return Err(Fault::Request(StatusCode::BAD_REQUEST, reason));
    }
    let Reply::Permitted = asker.ask(Question::Audit).await? else {
        return Err(unexpected());
    };
    record::newest(&server.audit, limit).await.map(Json).map_err(|error| {
        tracing::warn!(path = %server.audit.display(), error = %error, "the record of writes cannot be read");
        Fault::Request(StatusCode::INTERNAL_SERVER_ERROR, "the record of writes cannot be read; see the log".to_owned())
    })
}
