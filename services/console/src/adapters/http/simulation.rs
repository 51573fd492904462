//! What another attestation policy would say of the hosts that are known. Nothing is written: a policy is signed on its signer's machine.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use configdb_schema::document::AttestationPolicy;
use serde_json::json;
use uuid::Uuid;

use super::acting::RequestContext;
use super::{Site, acting, answer, reading, refused};
use crate::api::{ApiOperation, ApiOutcome};

/// `POST /api/v1/policies/{cluster}/simulation`
pub(super) async fn simulate(
    State(site): State<Site>,
    Path(cluster): Path<String>,
    caller: RequestContext,
    body: Bytes,
) -> Response {
    let Ok(cluster) = Uuid::try_parse(&cluster) else {
        return refused(StatusCode::BAD_REQUEST, "cluster", "must be the UUID of a cluster");
    };
    let policy: AttestationPolicy = match serde_json::from_slice(&body) {
        Ok(policy) => policy,
        Err(error) => return refused(StatusCode::BAD_REQUEST, "body", error),
    };
    match reading::sight(&site, &caller).await {
        Ok(Some(sight)) if !sight.sees(cluster) => return reading::unseen(),
        Ok(_) => {}
        Err(response) => return response,
    }
    match acting::ask(&site, &caller, ApiOperation::Simulate { cluster, policy: Box::new(policy) }).await {
        Ok(ApiOutcome::Simulated(hosts)) => answer(&json!({ "hosts": hosts }), None),
        Ok(_) => acting::unexpected(),
        Err(refusal) => acting::answer_refusal(&refusal),
    }
}
