//! Reads as the one who asks sees them: whose credential is for some clusters gets tables of these alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use access::Principal;
use axum::response::Response;
use fleet_view::deltas::Table;
use serde_json::Value;
use service_runtime::shutdown::Shutdown;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinHandle;

use super::acting::{self, RequestContext};
use super::{Site, refused};
use crate::adapters::hub::Stopping;
use crate::api::{ApiError, ApiOperation, ApiOutcome};
use crate::published::TableName;
use crate::sight::Sight;

/// How often it is looked whether the client of a stream may still see what it sees.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What a caller sees; None: everything.
///
/// # Errors
/// The answer: who they are is not known now, or reads are for who has signed in, and they have not.
pub(super) async fn sight(site: &Site, caller: &RequestContext) -> Result<Option<Sight>, Response> {
    let known = principal(site, caller).await.map_err(|refusal| acting::answer_refusal(&refusal))?;
    Ok(known.and_then(|known| Sight::of(&known, &site.organisation, site.marks)))
}

/// Who asks; None: a caller who has not signed in, and reads are open.
async fn principal(site: &Site, caller: &RequestContext) -> Result<Option<Principal>, ApiError> {
    if !caller.shows_something() && !site.private {
        return Ok(None);
    }
    match acting::ask(site, caller, ApiOperation::Watches).await {
        // A program that shows a token must learn that it does not count. A browser whose session has ended continues to look.
        Ok(ApiOutcome::Who(None)) if site.private || caller.shows_token() => Err(acting::not_known(caller)),
        Ok(ApiOutcome::Who(known)) => Ok(known),
        // Who would see everything without a credential sees it also where that cannot be looked up, such as while ConfigDB is away.
        _ if !site.private => Ok(None),
        Ok(_) => Err(ApiError::NotNow("who asks is not known".to_owned())),
        Err(refusal) => Err(refusal),
    }
}

/// A table as the caller sees it at present.
///
/// # Errors
/// [`Stopping`]
pub(super) async fn table(site: &Site, sight: &Sight, name: &TableName) -> Result<Table, Stopping> {
    let mut known = BTreeMap::<TableName, Arc<Table>>::new();
    for name in Sight::needs(name).iter().chain([name]) {
        known.insert(name.clone(), Arc::clone(&site.hub.read(name.clone()).await?.rows));
    }
    Ok(sight.table(name, &known))
}

/// An entity tag that depends on the rows alone: a revision would show that something changed that the caller does not see.
pub(super) fn tag(name: &str, rows: &[&Value]) -> String {
    let mut hash = Sha256::new();
    for row in rows {
        hash.update(row.to_string());
        hash.update([0]);
    }
    format!("\"{name}-{}\"", hex::encode(&hash.finalize()[..16]))
}

/// Ends a stream when the one who follows it may no longer see what they see: their session or token has ended, or is for other clusters. Dropped with the stream.
#[derive(Debug)]
pub(super) struct Guard(JoinHandle<()>);

impl Guard {
    /// Looks again from time to time; `end` is triggered.
    pub(super) fn start(site: Site, caller: RequestContext, end: Shutdown) -> Self {
        Self(tokio::spawn(async move {
            let Ok(first) = principal(&site, &caller).await else { return end.trigger() };
            // Who has shown nothing has nothing that could end.
            while first.is_some() {
                tokio::time::sleep(LOOK_AGAIN).await;
                match principal(&site, &caller).await {
                    Ok(known) if known == first => {}
                    // While ConfigDB is away no token can be checked, and nothing new is shown.
                    Err(ApiError::NotNow(_)) => {}
                    _ => return end.trigger(),
                }
            }
        }))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// There is no such thing for this caller: the answer is the same whether there is for others.
pub(super) fn unseen() -> Response {
    refused(axum::http::StatusCode::FORBIDDEN, "cluster", access::Denied::Cluster)
}
