//! Protocols whose answer is known, and the rules of a model's text.

use std::collections::BTreeSet;

use prove::verdict::{Report, Verdict, judge};

/// Needham and Schroeder's exchange with public keys; `lowe` is Lowe's correction of it.
const NEEDHAM_SCHROEDER: &str = "
private sk(x)
public a, b, m, nil
known sk(m), pk(sk(a)), pk(sk(b))
role alice(peer)
  in pk(peer)
  new na
  begin asked(pk(peer), na)
  new r1
  out encapsulated(pk(peer), r1), aead(shared(pk(peer), r1), tuple(na, pk(sk(a))), nil)
  in encapsulated(pk(sk(a)), r2), aead(shared(pk(sk(a)), r2), tuple(na, nb), nil)
!lowe in encapsulated(pk(sk(a)), r2), aead(shared(pk(sk(a)), r2), tuple(na, nb, pk(peer)), nil)
  new r3(nb)
  out encapsulated(pk(peer), r3), aead(shared(pk(peer), r3), nb, nil)
role bob(peer)
  in encapsulated(pk(sk(b)), s1), aead(shared(pk(sk(b)), s1), tuple(na, pk(peer)), nil)
  new nb(na, peer), s2(na)
  out encapsulated(pk(peer), s2), aead(shared(pk(peer), s2), tuple(na, nb), nil)
!lowe out encapsulated(pk(peer), s2), aead(shared(pk(peer), s2), tuple(na, nb, pk(sk(b))), nil)
  in encapsulated(pk(sk(b)), s3), aead(shared(pk(sk(b)), s3), nb, nil)
  end received(pk(peer), na)
agree agreement received(pk(sk(a)), n) => asked(pk(sk(b)), n)
secret nonce nb(s, sk(a), n, sk(a))
possible run received(pk(sk(a)), n)
";

fn report(text: &str, variants: &[&str]) -> Report {
    match judge(text, &variants.iter().copied().collect(), &BTreeSet::new()) {
        Ok(report) => report,
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn lowes_attack_is_found_and_his_correction_proven() {
    let broken = report(NEEDHAM_SCHROEDER, &[]);
    assert_eq!(broken.attacked(), BTreeSet::from(["agreement", "nonce"]));
    let Verdict::Attack(steps) = &broken.verdicts[1].1 else { panic!("{broken:?}") };
    assert!(steps.iter().any(|step| step == "alice sends aead") && steps.iter().any(|step| step == "bob sends aead"));
    assert!(report(NEEDHAM_SCHROEDER, &["lowe"]).unproven().is_empty());
}

#[test]
fn a_secret_that_is_lost_afterwards_is_kept_only_by_an_ephemeral_key() {
    let text = "
private k, e
+lost later k
+both later k, e
role sender(x)
  new secret
  new text
  out aead(hpke(k), secret, x), aead(hpke(k, e), text, x)
secret first secret(s, x)
secret second text(s, x)
";
    assert!(report(text, &[]).unproven().is_empty());
    assert_eq!(report(text, &["lost"]).attacked(), BTreeSet::from(["first"]));
    assert_eq!(report(text, &["both"]).attacked(), BTreeSet::from(["first", "second"]));
}

#[test]
fn a_claim_about_what_never_happens_is_not_a_proof() {
    let text = "
private k
role one
  in k
  begin started(k)
  end reached(k)
agree late reached(x) => started(x)
possible run reached(x)
";
    let report = report(text, &[]);
    assert_eq!(report.unproven(), BTreeSet::from(["late", "run"]));
    assert!(report.attacked().is_empty());
}

#[test]
fn what_a_model_gets_wrong_is_named_with_its_line() {
    let error = |text: &str| judge(text, &BTreeSet::new(), &BTreeSet::new()).unwrap_err().0;
    assert_eq!(error("role one\n  out x"), "line 2: x is not known here");
    assert_eq!(error("out x"), "line 1: out belongs into a role");
    assert_eq!(error("secret a nonce(x)"), "line 1: no role makes this secret");
    assert_eq!(error("known f(x"), "line 1: cannot read \"\"");
}
