//! What is judged: tokens, keys, fences and times. Knows no wire and no disk.

use super::*;
use configdb_schema::document::EnrolmentToken;
use enrolment_protocol::token::Token;

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

fn hash(number: u8) -> TokenHash {
    Token::new([number; 32]).hash()
}

fn wanted(tokens: &[u8], fence: u32) -> EdgeClusterEnrolment {
    let token = |number: &u8| EnrolmentToken {
        hash: hash(*number).as_str().to_owned(),
        issued: to_text(NOW).unwrap(),
        expires: to_text(NOW + DAY).unwrap(),
        by: "ada".to_owned(),
    };
    EdgeClusterEnrolment { tokens: tokens.iter().map(token).collect(), fence, ..EdgeClusterEnrolment::default() }
}

fn ask(recorded: &EdgeClusterIdentity, wanted: &EdgeClusterEnrolment, token: u8, key: &str, now_ms: u64) -> Verdict {
    let recorded = up_to_date(Some(recorded), None, wanted, &terms(), false, now_ms);
    let by = ProofKind::Token(hash(token));
    judge(&recorded, wanted, &terms(), CertificateRequest { by: &by, key, serial: [0x4a; 16] }, now_ms)
}

fn code(verdict: &Verdict) -> RefusalCode {
    match verdict {
        Verdict::Refuse { refusal, .. } => refusal.code,
        other => panic!("{other:?}"),
    }
}

/// Asks until it is granted or refused, recording what is to be recorded.
fn enrolled(wanted: &EdgeClusterEnrolment, token: u8, key: &str) -> (EdgeClusterIdentity, IssuedCertificate) {
    let Verdict::Record(record) = ask(&EdgeClusterIdentity::default(), wanted, token, key, NOW) else { panic!() };
    let Verdict::Grant(certificate) = ask(&record, wanted, token, key, NOW) else { panic!() };
    (*record, certificate)
}

#[test]
fn a_token_is_recorded_before_it_is_granted_and_certifies_one_key() {
    let wanted = wanted(&[1], 0);
    let (record, certificate) = enrolled(&wanted, 1, "aa");
    assert_eq!((certificate.key.as_str(), certificate.serial.as_str()), ("aa", "4a".repeat(16).as_str()));
    assert_eq!(from_text(&certificate.expires), Some(NOW + 30 * DAY));
    // The same key is answered alike, also when the token has expired or was taken out meanwhile.
    let late = NOW + 2 * DAY;
    assert_eq!(ask(&record, &wanted, 1, "aa", late), Verdict::Grant(certificate.clone()));
    assert_eq!(ask(&record, &EdgeClusterEnrolment::default(), 1, "aa", late), Verdict::Grant(certificate));
    // Another one is refused, and that is recorded once.
    let second = ask(&record, &wanted, 1, "bb", NOW);
    assert_eq!(code(&second), RefusalCode::TokenUsed);
    let Verdict::Refuse { record: Some(alerted), .. } = second else { panic!() };
    assert_eq!(alerted.certificates, record.certificates);
    assert_eq!(alerted.alerts[0].kind, IdentityAlertKind::TokenReused);
    let Verdict::Refuse { record: None, .. } = ask(&alerted, &wanted, 1, "bb", NOW + 5) else { panic!() };
}

#[test]
fn a_wrong_an_expired_and_a_revoked_token_are_refused() {
    let none = EdgeClusterIdentity::default();
    assert_eq!(code(&ask(&none, &wanted(&[1], 0), 2, "aa", NOW)), RefusalCode::UnknownToken);
    assert_eq!(code(&ask(&none, &wanted(&[], 0), 1, "aa", NOW)), RefusalCode::UnknownToken);
    assert_eq!(code(&ask(&none, &wanted(&[1], 0), 1, "aa", NOW + DAY)), RefusalCode::TokenExpired);
    let mut broken = wanted(&[1], 0);
    broken.tokens[0].expires = "soon".to_owned();
    assert_eq!(code(&ask(&none, &broken, 1, "aa", NOW)), RefusalCode::TokenExpired);
}

#[test]
fn a_raised_fence_voids_what_was_issued_before_and_lets_a_new_token_in() {
    let (record, certificate) = enrolled(&wanted(&[1], 0), 1, "aa");
    let fenced = wanted(&[1, 2], 1);
    assert_eq!(code(&ask(&record, &fenced, 1, "aa", NOW)), RefusalCode::Revoked);
    let record = up_to_date(Some(&record), None, &fenced, &terms(), false, NOW);
    assert_eq!(record.certificates[0].state, CertificateState::Revoked);
    let Verdict::Record(record) = ask(&record, &fenced, 2, "bb", NOW) else { panic!() };
    let Verdict::Grant(second) = ask(&record, &fenced, 2, "bb", NOW) else { panic!() };
    assert_eq!((second.fence, second.state), (1, CertificateState::Valid));
    // A serial number revokes that certificate alone; a tear-down all.
    let mut revoking = fenced;
    revoking.revoked.push(second.serial);
    assert_eq!(code(&ask(&record, &revoking, 2, "bb", NOW)), RefusalCode::Revoked);
    let (gone, _) = (up_to_date(Some(&record), None, &wanted(&[], 0), &terms(), true, NOW), certificate);
    assert!(gone.certificates.iter().all(|certificate| certificate.state == CertificateState::Revoked));
}

#[test]
fn nothing_is_certified_for_longer_than_the_authority_lives() {
    let short = Terms { authority_ends_ms: NOW + DAY, ..terms() };
    let (wanted, by) = (wanted(&[1], 0), ProofKind::Token(hash(1)));
    let asked = CertificateRequest { by: &by, key: "aa", serial: [0x4a; 16] };
    let Verdict::Record(record) = judge(&EdgeClusterIdentity::default(), &wanted, &short, asked, NOW) else { panic!() };
    assert_eq!(from_text(&record.certificates[0].expires), Some(NOW + DAY));
    let over = Terms { authority_ends_ms: NOW, ..terms() };
    assert_eq!(code(&judge(&EdgeClusterIdentity::default(), &wanted, &over, asked, NOW)), RefusalCode::Other(0));
}

#[test]
fn what_is_over_is_forgotten_and_what_matters_is_kept() {
    let (record, certificate) = enrolled(&wanted(&[1], 0), 1, "aa");
    let mut long = record.clone();
    long.certificates =
        (0..100).map(|_| IssuedCertificate { expires: to_text(NOW - 1000).unwrap(), ..certificate.clone() }).collect();
    long.certificates.push(certificate);
    long.tokens.extend((0..100).map(|number| UsedToken { hash: format!("{number}"), ..record.tokens[0].clone() }));
    let kept = up_to_date(Some(&long), None, &wanted(&[1], 0), &terms(), false, NOW);
    assert_eq!((kept.certificates.len(), kept.tokens.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
    assert_eq!(kept.certificates.last(), long.certificates.last());
    assert_eq!(kept.tokens[0], record.tokens[0], "its token is still listed");
}
