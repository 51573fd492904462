//! The record of actions and sign-ins, for administrators of all clusters. `sparkfleet audit verify` checks its chain; here it is only read.

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::json;
use service_runtime::record;

use access::Operation;

use super::acting::RequestContext;
use super::{Site, acting, answer_unless_known, parameter, reading, refused};
use crate::api::{ApiError, ApiOperation, ApiOutcome};
use crate::config::Role;

/// Records of an answer, unless the request says.
const RECORDS: usize = 200;

/// `GET /api/v1/audit`
pub(super) async fn audit(
    State(site): State<Site>,
    caller: RequestContext,
    query: RawQuery,
    headers: HeaderMap,
) -> Response {
    if site.role != Role::Console {
        return refused(StatusCode::NOT_FOUND, "path", "only the console of a fleet records actions");
    }
    let limit = match parameter(&query, "limit").map(|text| text.parse()) {
        None => RECORDS,
        Some(Ok(limit)) if (1..=record::RECORDS_MAX).contains(&limit) => limit,
        Some(_) => {
            let rule = format!("must be a number from 1 to {}", record::RECORDS_MAX);
            return refused(StatusCode::BAD_REQUEST, "limit", rule);
        }
    };
    let principal = match acting::ask(&site, &caller, ApiOperation::Watches).await {
        Ok(ApiOutcome::Who(Some(principal))) => principal,
        Ok(ApiOutcome::Who(None)) if caller.shows_token() => {
            return acting::answer_refusal(&acting::not_known(&caller));
        }
        Ok(ApiOutcome::Who(None)) => {
            let reason = "sign in; administrators of all clusters read the record".to_owned();
            return acting::answer_refusal(&ApiError::Unauthenticated(reason));
        }
        Ok(_) => return acting::unexpected(),
        Err(refusal) => return acting::answer_refusal(&refusal),
    };
    if let Err(denied) = principal.may(Operation::ReadAudit, None) {
        return acting::answer_refusal(&ApiError::Forbidden(denied));
    }
    match record::newest(&site.audit, limit).await {
        Ok(rows) => {
            let body = json!({ "rows": rows });
            let tag = reading::tag("audit", &[&body]);
            answer_unless_known(&headers, tag, || body)
        }
        Err(error) => {
            tracing::warn!(path = %site.audit.display(), error = %error, "the record of actions cannot be read");
            refused(StatusCode::INTERNAL_SERVER_ERROR, "audit", "the record of actions cannot be read; see the log")
        }
    }
}
