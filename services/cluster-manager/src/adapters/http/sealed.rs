//! Values that were sealed where they were typed: their plain text is never here. What can be checked without the controller's key is checked.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query};
use axum::http::{HeaderMap, StatusCode};
use sealed_secrets::of_sealed;

use super::request::{Fault, RequestContext, unexpected, uuid};
use super::secrets::{Place, PutQuery, Wanted, fingerprint, read};
use super::shapes;
use crate::api::{Question, Reply};

/// Most bytes of a sealed value: one of a MiB in base64, with its session key.
pub(super) const SEALED_BYTES_MAX: usize = 3 * 1024 * 1024 / 2;

pub(super) async fn certificate(
    asker: RequestContext,
    Path(cluster): Path<String>,
) -> Result<Json<shapes::SealingCertificate>, Fault> {
    let question = Question::SealingCertificate { cluster: uuid(&cluster)? };
    match asker.ask(question).await? {
        Reply::Certificate(certificate) => {
            let fingerprint = fingerprint(&certificate)?;
            Ok(Json(shapes::SealingCertificate { certificate, fingerprint }))
        }
        _ => Err(unexpected()),
    }
}

/// The manifest is made here, so that nothing but the value comes from outside.
pub(super) async fn put(
    asker: RequestContext,
    place: Place,
    Query(query): Query<PutQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Fault> {
    let bad = |reason: String| Fault::Request(StatusCode::BAD_REQUEST, reason);
    let Some(sealed_for) = query.fingerprint.clone() else {
        let reason = "fingerprint must say for which certificate the value is sealed: the SHA-256 that sealing-certificate gives";
        return Err(bad(reason.to_owned()));
    };
    let wanted = Wanted::read(asker, place, query).await?;
    let fingerprint = fingerprint(&wanted.pem)?;
    if !sealed_for.eq_ignore_ascii_case(&fingerprint) {
        let reason =
            format!("the cluster seals with another certificate, {fingerprint}: fetch it and seal the value again");
        return Err(Fault::Request(StatusCode::CONFLICT, reason));
    }
    let sealed = read(body, &headers, SEALED_BYTES_MAX).await?;
    let sealed = std::str::from_utf8(&sealed).map_err(|_| bad("the sealed value is not base64".to_owned()))?;
    let manifest = of_sealed(&wanted.certificate()?, wanted.request(), wanted.key(), sealed.trim());
    let manifest = manifest.map_err(|error| bad(error.to_string()))?;
    wanted.write(manifest).await
}
