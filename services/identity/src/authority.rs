//! What the fleet's authority decides: who is certified, and which certificates are revoked. Pure: the entries of ConfigDB and the time in, entries and answers out.
//!
//! A cluster that is not in asks by a token, one that is in by the certificate that it has ([`renewal`]). Either is used by recording it: [`judge`] asks for the record first
//! ([`Verdict::Record`]) and grants only what is recorded ([`Verdict::Grant`]). So whatever is killed in between, it certifies one key, and who asks again with that key gets the same
//! certificate.

pub mod renewal;

use std::time::Duration;

use configdb_schema::document::{
    CertificateKind, CertificateState, EdgeClusterEnrolment, EdgeClusterIdentity, IdentityAlert, IdentityAlertKind,
    IssuedCertificate, UsedToken,
};
pub use configdb_schema::timestamp::{from_text, to_text};
use enrolment_protocol::identity::ProofKind;
use enrolment_protocol::refusal::{Refusal, RefusalCode};
use enrolment_protocol::token::TokenHash;

use crate::issued::Issued;

/// What the one certificate of a cluster speaks for: every node of its group. On the MQTT server a group is one user.
pub const CLUSTER_NODE: &str = "cluster";

/// Most used tokens, certificates and alerts that are remembered of a cluster beyond those that still matter.
const REMEMBERED_MAX: usize = 32;
/// How long an alert is shown.
const ALERT_SHOWN: Duration = Duration::from_secs(7 * 24 * 3600);

/// What does not change while Identity runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The public enrolment key, as a text.
    pub key: String,
    /// The authority's certificate, PEM.
    pub authority: String,
    /// UTC ms at which that ends: nothing is certified for longer.
    pub authority_ends_ms: u64,
    /// How long a certificate lives.
    pub lifetime: Duration,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct CertificateRequest<'a> {
    /// By what.
    pub by: &'a ProofKind,
    /// For which key: hash of the public key.
    pub key: &'a str,
    /// Serial number of the certificate, if there will be one.
    pub serial: [u8; 16],
}

/// What is decided about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Record this first, then ask again.
    Record(Box<EdgeClusterIdentity>),
    /// The certificate that is recorded.
    Grant(IssuedCertificate),
    /// No.
    Refuse {
        /// What the cluster gets as its answer.
        refusal: Refusal,
        /// Record this, for the operator.
        record: Option<Box<EdgeClusterIdentity>>,
    },
}

fn is_past(text: &str, now_ms: u64) -> bool {
    from_text(text).is_none_or(|time| time <= now_ms)
}

/// The entry as it should be: key and authority of this process, everything that was once issued, fenced and revoked certificates marked, what is long over forgotten. `gone`: the cluster is
/// torn down.
#[must_use]
pub fn up_to_date(
    recorded: Option<&EdgeClusterIdentity>,
    issued: Option<&Issued>,
    wanted: &EdgeClusterEnrolment,
    terms: &Terms,
    gone: bool,
    now_ms: u64,
) -> EdgeClusterIdentity {
    let mut identity = recorded.cloned().unwrap_or_default();
    identity.key.clone_from(&terms.key);
    identity.authority.clone_from(&terms.authority);
    if let Some(issued) = issued {
        issued.merge_into(&mut identity);
    }
    for certificate in &mut identity.certificates {
        if gone || certificate.fence < wanted.fence || wanted.revoked.contains(&certificate.serial) {
            certificate.state = CertificateState::Revoked;
        }
    }
    forget(&mut identity.certificates, |certificate| is_past(&certificate.expires, now_ms));
    // A token that could still be presented must be known as used.
    forget(&mut identity.tokens, |used| !wanted.tokens.iter().any(|token| token.hash == used.hash));
    forget(&mut identity.alerts, |_| true);
    let waits = |alert: &IdentityAlert| {
        let mut certificates = identity.certificates.iter();
        certificates.any(|one| one.state == CertificateState::Valid && alert.text.contains(&one.serial))
    };
    identity.alerts.retain(|alert| alert.kind != IdentityAlertKind::RenewalWaits || waits(alert));
    identity.alerts.retain(|alert| {
        let shown = from_text(&alert.at).map(|at| at.saturating_add(millis(ALERT_SHOWN)));
        shown.is_some_and(|until| until > now_ms)
    });
    identity
}

/// Drops the oldest that are over, down to the number that is remembered.
fn forget<T>(all: &mut Vec<T>, is_over: impl Fn(&T) -> bool) {
    let mut surplus = all.len().saturating_sub(REMEMBERED_MAX);
    all.retain(|one| {
        let drop = surplus > 0 && is_over(one);
        surplus -= usize::from(drop);
        !drop
    });
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn refuse(code: RefusalCode, text: &str) -> Verdict {
    Verdict::Refuse { refusal: Refusal { code, text: text.to_owned() }, record: None }
}

/// Judges a request. `recorded` must be up to date ([`up_to_date`]).
#[must_use]
pub fn judge(
    recorded: &EdgeClusterIdentity,
    wanted: &EdgeClusterEnrolment,
    terms: &Terms,
    asked: CertificateRequest<'_>,
    now_ms: u64,
) -> Verdict {
    match asked.by {
        ProofKind::Token(token) => judge_token(recorded, wanted, terms, token, asked, now_ms),
        ProofKind::Certificate { serial, key } => renewal::judge(recorded, wanted, terms, (serial, key), asked, now_ms),
    }
}

fn judge_token(
    recorded: &EdgeClusterIdentity,
    wanted: &EdgeClusterEnrolment,
    terms: &Terms,
    by: &TokenHash,
    asked: CertificateRequest<'_>,
    now_ms: u64,
) -> Verdict {
    if let Some(used) = recorded.tokens.iter().find(|used| by.is(&used.hash)) {
        return if used.key == asked.key {
            again(recorded, asked, now_ms)
        } else {
            reused(recorded, by, asked, now_ms)
        };
    }
    let Some(token) = wanted.tokens.iter().find(|token| by.is(&token.hash)) else {
        return refuse(
            RefusalCode::UnknownToken,
            "this cluster has no such token; make one with `sparkfleet cluster bootstrap`",
        );
    };
    if is_past(&token.expires, now_ms) {
        return refuse(
            RefusalCode::TokenExpired,
            "the token has expired; make another one with `sparkfleet cluster bootstrap`",
        );
    }
    let mut record = recorded.clone();
    let Some(issued) = issue(&mut record, wanted, terms, asked, now_ms) else { return authority_is_over() };
    record.tokens.push(UsedToken { hash: by.as_str().to_owned(), used: issued, key: asked.key.to_owned() });
    Verdict::Record(Box::new(record))
}

/// Adds a certificate to the record; when it is issued. None: the authority lives no longer.
fn issue(
    record: &mut EdgeClusterIdentity,
    wanted: &EdgeClusterEnrolment,
    terms: &Terms,
    asked: CertificateRequest<'_>,
    now_ms: u64,
) -> Option<String> {
    let expires = now_ms.saturating_add(millis(terms.lifetime)).min(terms.authority_ends_ms);
    let (issued, expires) = (to_text(now_ms)?, to_text(expires).filter(|_| expires > now_ms)?);
    record.certificates.push(IssuedCertificate {
        serial: hex::encode(asked.serial),
        node: CLUSTER_NODE.to_owned(),
        kind: CertificateKind::Mqtt,
        key: asked.key.to_owned(),
        issued: issued.clone(),
        expires,
        fence: wanted.fence,
        state: CertificateState::Valid,
    });
    Some(issued)
}

fn authority_is_over() -> Verdict {
    refuse(RefusalCode::Other(0), "the fleet's authority has expired; the operator has to replace it")
}

/// The first user of a token asks again.
fn again(recorded: &EdgeClusterIdentity, asked: CertificateRequest<'_>, now_ms: u64) -> Verdict {
    match recorded.certificates.iter().rev().find(|certificate| certificate.key == asked.key) {
        Some(certificate) if certificate.state == CertificateState::Revoked => refuse(
            RefusalCode::Revoked,
            "the certificate that this token gave is revoked; make another token with `sparkfleet cluster bootstrap`",
        ),
        Some(certificate) if !is_past(&certificate.expires, now_ms) => Verdict::Grant(certificate.clone()),
        _ => refuse(
            RefusalCode::TokenExpired,
            "the certificate that this token gave has expired; make another token with `sparkfleet cluster bootstrap`",
        ),
    }
}

/// The request is not from the first user of the token.
fn reused(recorded: &EdgeClusterIdentity, token: &TokenHash, asked: CertificateRequest<'_>, now_ms: u64) -> Verdict {
    let text = format!(
        "token {} was used again, by key {}: if that was not you, revoke this cluster's identity",
        short(token.as_str()),
        short(asked.key)
    );
    let record = alerted(recorded, IdentityAlertKind::TokenReused, text, now_ms);
    let text = "the token was used before, with another key; make another one with `sparkfleet cluster bootstrap`";
    Verdict::Refuse { refusal: Refusal { code: RefusalCode::TokenUsed, text: text.to_owned() }, record }
}

fn short(hash: &str) -> String {
    hash.chars().take(16).collect()
}

/// The record with that alert. None: it has it.
fn alerted(
    recorded: &EdgeClusterIdentity,
    kind: IdentityAlertKind,
    text: String,
    now_ms: u64,
) -> Option<Box<EdgeClusterIdentity>> {
    let at = to_text(now_ms).filter(|_| recorded.alerts.iter().all(|alert| alert.text != text))?;
    let mut record = recorded.clone();
    if record.alerts.len() >= REMEMBERED_MAX {
        record.alerts.remove(0);
    }
    record.alerts.push(IdentityAlert { kind, at, text });
    Some(Box::new(record))
}

#[cfg(test)]
mod tests;
