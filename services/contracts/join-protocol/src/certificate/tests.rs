//! Chains that are believed and chains that are not.

use super::*;

const CLUSTER: Uuid = Uuid::from_u128(7);

fn key(byte: u8) -> SigningKey {
    SigningKey::from_seed(&Secret::new([byte; 32])).unwrap()
}

fn certificate(of: &SigningKey, purpose: Purpose) -> IssuerCertificate {
    IssuerCertificate {
        public_key: of.public_key(),
        purpose,
        cluster: CLUSTER,
        not_before_ms: 1000,
        not_after_ms: 2000,
        epoch: 3,
    }
}

fn anchor() -> TrustAnchor {
    TrustAnchor { root: key(1).public_key(), cluster: CLUSTER, epoch_min: 3 }
}

fn check(chain: &[Vec<u8>]) -> Result<PublicKey, ChainError> {
    anchor().check(chain, Purpose::JoinIssuer, HostClock::Trusted(1500))
}

#[test]
fn a_chain_of_one_or_two_links_leads_to_the_root() {
    let (root, authority, issuer) = (key(1), key(2), key(3));
    let leaf = certificate(&issuer, Purpose::JoinIssuer);
    assert_eq!(check(&[leaf.sign(&root)]), Ok(issuer.public_key()));
    let chain = [leaf.sign(&authority), certificate(&authority, Purpose::Authority).sign(&root)];
    assert_eq!(check(&chain), Ok(issuer.public_key()));
    assert!(chain.iter().all(|link| link.len() < 180));
}

#[test]
fn each_rule_refuses_a_chain() {
    let (root, authority, issuer) = (key(1), key(2), key(3));
    let leaf = certificate(&issuer, Purpose::JoinIssuer);
    let good = leaf.sign(&root);
    assert_eq!(check(&[]), Err(ChainError::Empty));
    assert_eq!(check(&vec![good.clone(); 4]), Err(ChainError::TooLong(4)));
    assert_eq!(check(&[leaf.sign(&authority)]), Err(ChainError::Signature));
    let issuer_as_authority = certificate(&authority, Purpose::JoinIssuer).sign(&root);
    let wrong = ChainError::Purpose { found: Purpose::JoinIssuer, wanted: Purpose::Authority };
    assert_eq!(check(&[leaf.sign(&authority), issuer_as_authority]), Err(wrong));
    let admin = IssuerCertificate { purpose: Purpose::ClusterAdmin, ..leaf.clone() };
    assert!(matches!(check(&[admin.sign(&root)]), Err(ChainError::Purpose { .. })));
    let foreign = IssuerCertificate { cluster: Uuid::from_u128(8), ..leaf.clone() };
    assert!(matches!(check(&[foreign.sign(&root)]), Err(ChainError::Cluster { .. })));
    let revoked = IssuerCertificate { epoch: 2, ..leaf.clone() };
    assert_eq!(check(&[revoked.sign(&root)]), Err(ChainError::Epoch { found: 2, epoch_min: 3 }));
    let mut malformed = good.clone();
    malformed.push(0);
    assert!(matches!(check(&[malformed]), Err(ChainError::Malformed(_))));
    let mut tampered = good;
    let at = tampered.len() - 70;
    tampered[at] ^= 1;
    assert!(check(&[tampered]).is_err());
}

#[test]
fn a_host_without_a_clock_skips_time_and_nothing_else() {
    let chain = [certificate(&key(3), Purpose::JoinIssuer).sign(&key(1))];
    for now in [0, 999, 2001, u64::MAX] {
        let trusted = anchor().check(&chain, Purpose::JoinIssuer, HostClock::Trusted(now));
        assert_eq!(trusted, Err(ChainError::Time), "{now}");
    }
    assert!(anchor().check(&chain, Purpose::JoinIssuer, HostClock::Unset).is_ok());
    let strict = TrustAnchor { epoch_min: 4, ..anchor() };
    assert!(matches!(strict.check(&chain, Purpose::JoinIssuer, HostClock::Unset), Err(ChainError::Epoch { .. })));
}
