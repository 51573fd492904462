//! Renewal: who is certified by the certificate that they have. It is renewed once, into one key, and only when half of its validity period is over; one that has expired, only when an operator has
//! approved it.
//!
//! The certificate before it stays good until it ends, so that no session is cut off between the answer and the use of the new one; `revoke` ends both.

use configdb_schema::document::{
    CertificateState, EdgeClusterEnrolment, EdgeClusterIdentity, IdentityAlertKind, IssuedCertificate,
};
use enrolment_protocol::refusal::{Refusal, RefusalCode};

use super::{CertificateRequest, Terms, Verdict, alerted, authority_is_over, from_text, is_past, issue, refuse, short};

/// Judges a request by the certificate of that serial number and key.
pub(super) fn judge(
    recorded: &EdgeClusterIdentity,
    wanted: &EdgeClusterEnrolment,
    terms: &Terms,
    (serial, key): (&str, &str),
    asked: CertificateRequest<'_>,
    now_ms: u64,
) -> Verdict {
    // A cluster that asks again may not have received the answer, and then does not have the certificate that was issued.
    let own = recorded.certificates.iter().rev().find(|one| one.key == asked.key);
    let old = own.or_else(|| recorded.certificates.iter().find(|one| one.serial == serial && one.key == key));
    let Some(old) = old else {
        return refuse(
            RefusalCode::UnknownCertificate,
            "this cluster was given no such certificate; make a token with `sparkfleet cluster bootstrap`",
        );
    };
    let is_over = is_past(&old.expires, now_ms);
    match old.state {
        CertificateState::Revoked => {
            refuse(RefusalCode::Revoked, "the certificate is revoked; make a token with `sparkfleet cluster bootstrap`")
        }
        _ if own.is_some() && !is_over => Verdict::Grant(old.clone()),
        CertificateState::Renewed => renewed_before(recorded, old, own.is_none().then_some(asked.key), now_ms),
        CertificateState::Valid if is_over && !wanted.approved.contains(&old.serial) => waits(recorded, old, now_ms),
        CertificateState::Valid if !is_over && !is_half_over(old, now_ms) => refuse(
            RefusalCode::TooEarly,
            "half of the certificate's validity period is not over; is the clock of the cluster right?",
        ),
        CertificateState::Valid => {
            let mut record = recorded.clone();
            let renewed = record.certificates.iter_mut().filter(|one| one.serial == old.serial);
            renewed.for_each(|one| one.state = CertificateState::Renewed);
            match issue(&mut record, wanted, terms, asked, now_ms) {
                Some(_) => Verdict::Record(Box::new(record)),
                None => authority_is_over(),
            }
        }
    }
}

fn is_half_over(certificate: &IssuedCertificate, now_ms: u64) -> bool {
    let (issued, expires) = (from_text(&certificate.issued), from_text(&certificate.expires));
    issued.zip(expires).is_none_or(|(issued, expires)| now_ms >= issued + expires.saturating_sub(issued) / 2)
}

/// It has expired, and no operator has approved it.
fn waits(recorded: &EdgeClusterIdentity, old: &IssuedCertificate, now_ms: u64) -> Verdict {
    let text = format!(
        "certificate {} ended at {} and asks for renewal: `sparkfleet cluster identity approve` lets it, `revoke` ends it",
        old.serial, old.expires
    );
    let record = alerted(recorded, IdentityAlertKind::RenewalWaits, text, now_ms);
    let text =
        "the certificate has expired; an operator has to approve its renewal: `sparkfleet cluster identity approve`";
    Verdict::Refuse { refusal: Refusal { code: RefusalCode::ApprovalNeeded, text: text.to_owned() }, record }
}

/// Another certificate has followed it. `stranger`: a key that is asked for and that was never certified.
fn renewed_before(
    recorded: &EdgeClusterIdentity,
    old: &IssuedCertificate,
    stranger: Option<&str>,
    now_ms: u64,
) -> Verdict {
    let text = |key| {
        format!(
            "certificate {} was renewed, and another key, {}, asks to renew it again: if that was not you, revoke this cluster's identity",
            old.serial,
            short(key)
        )
    };
    let record = stranger.and_then(|key| alerted(recorded, IdentityAlertKind::RenewalReused, text(key), now_ms));
    let text = "the certificate was renewed before, with another key; make a token with `sparkfleet cluster bootstrap`";
    Verdict::Refuse { refusal: Refusal { code: RefusalCode::AlreadyRenewed, text: text.to_owned() }, record }
}

#[cfg(test)]
mod tests {
    use super::super::{CLUSTER_NODE, judge, to_text, up_to_date};
    use super::*;
    use configdb_schema::document::CertificateKind;
    use enrolment_protocol::identity::ProofKind;
    use std::time::Duration;

    const NOW: u64 = 1_800_000_000_000;
    const DAY: u64 = 24 * 3600 * 1000;

    fn terms() -> Terms {
        Terms {
            key: "KEY".to_owned(),
            authority: "CA".to_owned(),
            authority_ends_ms: NOW + 3650 * DAY,
            lifetime: Duration::from_secs(30 * 24 * 3600),
        }
    }

    /// A cluster with certificate 4a01 of key `aa`, of 30 days from now on.
    fn enrolled() -> EdgeClusterIdentity {
        let certificate = IssuedCertificate {
            serial: "4a01".to_owned(),
            node: CLUSTER_NODE.to_owned(),
            kind: CertificateKind::Mqtt,
            key: "aa".to_owned(),
            issued: to_text(NOW).unwrap(),
            expires: to_text(NOW + 30 * DAY).unwrap(),
            fence: 0,
            state: CertificateState::Valid,
        };
        EdgeClusterIdentity { certificates: vec![certificate], ..EdgeClusterIdentity::default() }
    }

    fn ask(
        recorded: &EdgeClusterIdentity,
        wanted: &EdgeClusterEnrolment,
        by: (&str, &str),
        key: &str,
        now_ms: u64,
    ) -> Verdict {
        let recorded = up_to_date(Some(recorded), None, wanted, &terms(), false, now_ms);
        let by = ProofKind::Certificate { serial: by.0.to_owned(), key: by.1.to_owned() };
        let count = u8::try_from(recorded.certificates.len()).unwrap();
        judge(&recorded, wanted, &terms(), CertificateRequest { by: &by, key, serial: [0x50 + count; 16] }, now_ms)
    }

    fn code(verdict: &Verdict) -> RefusalCode {
        match verdict {
            Verdict::Refuse { refusal, .. } => refusal.code,
            other => panic!("{other:?}"),
        }
    }

    fn recorded(verdict: Verdict) -> EdgeClusterIdentity {
        match verdict {
            Verdict::Record(record) | Verdict::Refuse { record: Some(record), .. } => *record,
            other => panic!("{other:?}"),
        }
    }

    fn states(identity: &EdgeClusterIdentity) -> Vec<CertificateState> {
        identity.certificates.iter().map(|one| one.state).collect()
    }

    const OLD: (&str, &str) = ("4a01", "aa");

    #[test]
    fn a_certificate_is_renewed_once_into_one_key_and_a_second_request_gets_the_same() {
        let (wanted, late) = (EdgeClusterEnrolment::default(), NOW + 20 * DAY);
        let record = recorded(ask(&enrolled(), &wanted, OLD, "bb", late));
        assert_eq!(states(&record), [CertificateState::Renewed, CertificateState::Valid]);
        let Verdict::Grant(certificate) = ask(&record, &wanted, OLD, "bb", late) else { panic!() };
        assert_eq!((certificate.key.as_str(), from_text(&certificate.expires)), ("bb", Some(late + 30 * DAY)));
        // Also when the certificate that it asks by has ended meanwhile.
        assert_eq!(ask(&record, &wanted, OLD, "bb", NOW + 31 * DAY), Verdict::Grant(certificate));
        // Another key is refused, and that is reported once.
        let second = ask(&record, &wanted, OLD, "cc", late);
        assert_eq!(code(&second), RefusalCode::AlreadyRenewed);
        let alerted = recorded(second);
        assert_eq!((alerted.alerts[0].kind, states(&alerted)), (IdentityAlertKind::RenewalReused, states(&record)));
        assert!(matches!(ask(&alerted, &wanted, OLD, "cc", late), Verdict::Refuse { record: None, .. }));
        // The next one in turn.
        let next = (record.certificates[1].serial.as_str(), "bb");
        let record = recorded(ask(&record, &wanted, next, "dd", late + 20 * DAY));
        assert_eq!(states(&record), [CertificateState::Renewed, CertificateState::Renewed, CertificateState::Valid]);
        // What was overheard of an old renewal says nothing that an operator would have to know.
        let over = ask(&record, &wanted, OLD, "bb", late + 31 * DAY);
        assert!(
            matches!(over, Verdict::Refuse { ref refusal, record: None } if refusal.code == RefusalCode::AlreadyRenewed)
        );
    }

    #[test]
    fn only_a_certificate_of_this_cluster_and_its_own_key_counts() {
        let (wanted, late) = (EdgeClusterEnrolment::default(), NOW + 20 * DAY);
        for by in [("4a02", "aa"), ("4a01", "ff"), ("", "aa")] {
            assert_eq!(code(&ask(&enrolled(), &wanted, by, "bb", late)), RefusalCode::UnknownCertificate, "{by:?}");
        }
        assert_eq!(code(&ask(&enrolled(), &wanted, OLD, "bb", NOW + 14 * DAY)), RefusalCode::TooEarly);
        let fenced = EdgeClusterEnrolment { fence: 1, ..wanted.clone() };
        assert_eq!(code(&ask(&enrolled(), &fenced, OLD, "bb", late)), RefusalCode::Revoked);
        let revoked = EdgeClusterEnrolment { revoked: vec!["4a01".to_owned()], ..wanted.clone() };
        assert_eq!(code(&ask(&enrolled(), &revoked, OLD, "bb", late)), RefusalCode::Revoked);
        // A fence that is raised between record and answer voids what was recorded.
        let record = recorded(ask(&enrolled(), &wanted, OLD, "bb", late));
        assert_eq!(code(&ask(&record, &fenced, OLD, "bb", late)), RefusalCode::Revoked);
        let over = Terms { authority_ends_ms: late, ..terms() };
        let by = ProofKind::Certificate { serial: "4a01".to_owned(), key: "aa".to_owned() };
        let asked = CertificateRequest { by: &by, key: "bb", serial: [0x50; 16] };
        assert_eq!(code(&judge(&enrolled(), &wanted, &over, asked, late)), RefusalCode::Other(0));
    }

    #[test]
    fn an_expired_certificate_waits_for_approval_and_is_then_renewed_once() {
        let (wanted, late) = (EdgeClusterEnrolment::default(), NOW + 40 * DAY);
        let waiting = ask(&enrolled(), &wanted, OLD, "bb", late);
        assert_eq!(code(&waiting), RefusalCode::ApprovalNeeded);
        let waiting = recorded(waiting);
        assert_eq!((waiting.alerts[0].kind, states(&waiting)), (IdentityAlertKind::RenewalWaits, states(&enrolled())));
        assert!(matches!(ask(&waiting, &wanted, OLD, "bb", late), Verdict::Refuse { record: None, .. }));
        // Approval of another one is none; revocation and a raised fence win over it.
        let approving = |serial: &str| EdgeClusterEnrolment { approved: vec![serial.to_owned()], ..wanted.clone() };
        assert_eq!(code(&ask(&waiting, &approving("4a02"), OLD, "bb", late)), RefusalCode::ApprovalNeeded);
        let fenced = EdgeClusterEnrolment { fence: 1, ..approving("4a01") };
        assert_eq!(code(&ask(&waiting, &fenced, OLD, "bb", late)), RefusalCode::Revoked);
        let approved = approving("4a01");
        let record = recorded(ask(&waiting, &approved, OLD, "bb", late));
        let Verdict::Grant(certificate) = ask(&record, &approved, OLD, "bb", late) else { panic!() };
        let shown = up_to_date(Some(&record), None, &approved, &terms(), false, late);
        assert!(shown.alerts.is_empty(), "nothing waits any longer: {:?}", shown.alerts);
        assert_eq!(code(&ask(&record, &approved, OLD, "cc", late)), RefusalCode::AlreadyRenewed);
        // The answer was never received, and its certificate has expired in turn: that waits for an approval of its own.
        let later = late + 40 * DAY;
        assert_eq!(code(&ask(&record, &approved, OLD, "bb", later)), RefusalCode::ApprovalNeeded);
        let again = EdgeClusterEnrolment { approved: vec![certificate.serial.clone()], ..wanted };
        let record = recorded(ask(&record, &again, OLD, "bb", later));
        let Verdict::Grant(second) = ask(&record, &again, OLD, "bb", later) else { panic!() };
        assert!(second.serial != certificate.serial && second.key == "bb");
    }
}
