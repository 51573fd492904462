//! A cluster that enrols: what is recorded before what is answered, whatever is killed.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use enrolment_protocol::cluster::{Draft, Predecessor, RenewalDraft, Request, Seed};
use enrolment_protocol::manager::Manager;
use enrolment_protocol::metrics;
use enrolment_protocol::refusal::RefusalCode;
use enrolment_protocol::token::Token;

use configdb_schema::ClusterName;

use super::*;
use crate::authority::{Terms, to_text};

fn identity() -> Identity {
    let manager = Arc::new(Manager::new([3; 32]));
    let terms = Terms {
        key: manager.public().to_string(),
        authority: "-----BEGIN CERTIFICATE-----".to_owned(),
        authority_ends_ms: 4_000_000_000_000,
        lifetime: Duration::from_secs(3600),
    };
    Identity { manager, terms: Arc::new(terms) }
}

fn key() -> EcdsaKeyPair {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()
}

fn request(token: u8, seed: u8) -> Request {
    request_for(&key(), token, seed)
}

fn request_for(key: &EcdsaKeyPair, token: u8, seed: u8) -> Request {
    let (token, seed, manager) = (Token::new([token; 32]), Seed::new([seed; 32]), Manager::new([3; 32]).public());
    let draft = Draft::new(CLUSTER, &token, key.public_key().as_ref().try_into().unwrap(), &manager, &seed);
    let signature = key.sign(&SystemRandom::new(), &draft.to_sign()).unwrap();
    draft.seal(signature.as_ref().try_into().unwrap()).unwrap()
}

/// The holder of `old`, which is certified under that serial number, asks for a certificate of `new`.
fn renewal(old: &EcdsaKeyPair, serial: &str, new: &EcdsaKeyPair) -> Request {
    let point = |key: &EcdsaKeyPair| key.public_key().as_ref().try_into().unwrap();
    let predecessor = Predecessor { serial: hex::decode(serial).unwrap(), public_key: point(old) };
    let (seed, manager) = (Seed::new([9; 32]), Manager::new([3; 32]).public());
    let draft = RenewalDraft::new(CLUSTER, &predecessor, point(new), &manager, &seed);
    let hash = draft.to_sign();
    let [by_new, by_old] =
        [new, old].map(|key| key.sign(&SystemRandom::new(), &hash).unwrap().as_ref().try_into().unwrap());
    draft.seal(by_new, by_old).unwrap()
}

fn birth(request: &Request) -> HostEvent {
    birth_of(metrics::node(&organisation(), CLUSTER).unwrap(), request)
}

/// The birth of the node in the cluster's own group.
fn own_birth(request: &Request) -> HostEvent {
    birth_of(metrics::renewal_node(&organisation(), &ClusterName::new("Paint_Shop").unwrap()).unwrap(), request)
}

fn birth_of(node: EdgeNodeDescriptor, request: &Request) -> HostEvent {
    HostEvent::NodeBirth {
        node,
        bd_seq: BdSeq::ZERO,
        timestamp: 0,
        uuid: None,
        metrics: vec![metrics::metric(metrics::REQUEST, &request.bytes)].into(),
    }
}

/// A ready cluster with one token, whose manager has an authority.
fn enrolling(kill: Kill) -> World {
    let mut world = World::new(kill);
    world.identity = Some(identity());
    world.start();
    world.put_cluster(CLUSTER, "Paint_Shop");
    let (hash, end) = (Token::new([1; 32]).hash(), to_text(world.now.wall + 3_600_000).unwrap());
    let token = json!({"hash": hash.as_str(), "issued": end, "expires": end, "by": "ada"});
    world.put(CLUSTER, "EdgeClusterEnrolment", json!({"tokens": [token]}));
    world.settle();
    world
}

fn ask(world: &mut World, request: &Request) {
    ask_by(world, birth(request));
}

fn ask_by(world: &mut World, birth: HostEvent) {
    world.enrolling = Some(birth.clone());
    world.feed(vec![birth]);
    world.settle();
}

#[test]
fn only_clusters_that_are_known_become_nodes_of_the_quarantine_group() {
    let mut world = World::new(Kill::Never);
    world.identity = Some(identity());
    world.start();
    world.settle();
    assert_eq!(world.allowed, BTreeSet::new());
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.settle();
    assert_eq!(world.allowed, BTreeSet::from([format!("ACME-Enrol/{CLUSTER}")]));
    world.delete(CLUSTER, "EdgeCluster");
    world.run(Duration::from_secs(600));
    assert_eq!(world.allowed, BTreeSet::new());
}

#[test]
fn a_key_is_published_as_soon_as_the_cluster_is_set_up() {
    let world = enrolling(Kill::Never);
    let entry = world.db.json(CLUSTER, "EdgeClusterIdentity").unwrap();
    assert_eq!(entry["key"], json!(identity().terms.key));
    assert!(world.orders.is_empty() && entry.get("certificates").is_none());
}

#[test]
fn whatever_is_killed_a_token_certifies_one_key_and_is_recorded_before_the_answer() {
    for kill in [Kill::Never, Kill::AfterEach] {
        let mut world = enrolling(kill);
        let asked = request(1, 5);
        ask(&mut world, &asked);
        let order = world.orders.last().unwrap_or_else(|| panic!("{kill:?}: no answer"));
        let certificate = order.answer.clone().unwrap();
        assert_eq!(order.group, "ACME-Paint_Shop");
        let entry = world.db.json(CLUSTER, "EdgeClusterIdentity").unwrap();
        assert_eq!(entry["certificates"], json!([certificate]), "{kill:?}");
        assert_eq!(entry["tokens"][0]["key"], json!(certificate.key));
        assert_eq!(world.device().identity.serial, Some(certificate.serial.clone()));
        // It did not receive the answer and asks again.
        let again = HostEvent::NodeData { node: order.node.clone(), timestamp: 0, metrics: Vec::new() };
        world.feed(vec![again]);
        world.settle();
        assert!(world.orders.len() > 1 && world.orders.last().unwrap().answer == Ok(certificate));
    }
}

#[test]
fn a_second_user_of_a_token_is_refused_and_shows_as_an_alert() {
    let mut world = enrolling(Kill::Never);
    ask(&mut world, &request(1, 5));
    let first = world.db.json(CLUSTER, "EdgeClusterIdentity").unwrap()["certificates"].clone();
    assert_eq!(world.device().identity.alert, None);
    ask(&mut world, &request(1, 6));
    let refusal = world.orders.last().unwrap().answer.clone().unwrap_err();
    assert_eq!(refusal.code, RefusalCode::TokenUsed);
    assert_eq!(world.db.json(CLUSTER, "EdgeClusterIdentity").unwrap()["certificates"], first);
    assert!(world.device().identity.alert.clone().unwrap().contains("was used again"));
    // A wrong token says nothing to the operator: any client could make one up.
    ask(&mut world, &request(2, 7));
    assert_eq!(world.orders.last().unwrap().answer.clone().unwrap_err().code, RefusalCode::UnknownToken);
}

#[test]
fn a_revoked_certificate_is_reported_as_revoked_and_so_are_those_of_a_cluster_that_is_torn_down() {
    let mut world = enrolling(Kill::Never);
    ask(&mut world, &request(1, 5));
    assert_eq!(world.void, Some(BTreeMap::new()));
    let serial = world.device().identity.serial.clone().unwrap();
    world.put(CLUSTER, "EdgeClusterEnrolment", json!({"fence": 1}));
    world.settle();
    assert_eq!(world.void.clone().unwrap().into_keys().collect::<Vec<_>>(), [serial]);
    assert_eq!(world.device().identity.serial, None);

    let mut world = enrolling(Kill::Never);
    ask(&mut world, &request(1, 5));
    let serial = world.device().identity.serial.clone().unwrap();
    world.delete(CLUSTER, "EdgeCluster");
    world.run(Duration::from_secs(120));
    assert_eq!(world.void.clone().unwrap().into_keys().collect::<Vec<_>>(), [serial]);
}

#[test]
fn a_revocation_list_that_is_not_renewed_or_not_written_is_said_of_the_node_until_it_is() {
    let mut world = enrolling(Kill::Never);
    ask(&mut world, &request(1, 5));
    let list = |begins, ends| {
        Ok(RevocationList { file: "f".to_owned(), issuer: "CN=site".to_owned(), begins, ends: Some(ends) })
    };
    let day = 86_400_000;
    let now = world.now.wall;
    world.lists = vec![list(now, now + 4 * day)];
    world.run(Duration::from_secs(3 * 3600));
    assert_eq!((world.node.revocations_alert.clone(), world.node.revocations_next_update), (None, Some(now + 4 * day)));
    world.run(Duration::from_secs(2 * 86_400));
    assert!(world.node.revocations_alert.clone().unwrap().contains("is past half of its validity"));
    world.lists = vec![list(world.now.wall, world.now.wall + 4 * day)];
    world.run(Duration::from_secs(3601));
    assert_eq!(world.node.revocations_alert, None);
    // A revocation that no server reads yet.
    world.is_full = true;
    world.put(CLUSTER, "EdgeClusterEnrolment", json!({"fence": 1}));
    world.settle();
    assert!(world.node.revocations_alert.clone().unwrap().ends_with("no space left"));
    world.is_full = false;
    world.run(Duration::from_secs(61));
    assert_eq!((world.void.clone().unwrap().len(), world.node.revocations_alert.clone()), (1, None));
}

/// A cluster whose key was certified an hour's life and so long ago; and the serial number.
fn enrolled_for(kill: Kill, seconds: u64) -> (World, EcdsaKeyPair, String) {
    let (mut world, old) = (enrolling(kill), key());
    ask(&mut world, &request_for(&old, 1, 5));
    let serial = world.device().identity.serial.clone().unwrap();
    world.enrolling = None;
    world.orders.clear();
    world.now.wall += seconds * 1000;
    (world, old, serial)
}

#[test]
fn whatever_is_killed_a_certificate_is_renewed_into_one_key_and_recorded_before_the_answer() {
    for kill in [Kill::Never, Kill::AfterEach] {
        let (mut world, old, serial) = enrolled_for(kill, 2_400);
        let new = key();
        let asked = renewal(&old, &serial, &new);
        ask_by(&mut world, own_birth(&asked));
        let order = world.orders.last().unwrap_or_else(|| panic!("{kill:?}: no answer"));
        let certificate = order.answer.clone().unwrap();
        assert_eq!((order.node.to_string().as_str(), &*order.group), ("ACME-Paint_Shop/Identity", "ACME-Paint_Shop"));
        assert!(world.orders.iter().all(|order| order.answer == Ok(certificate.clone())), "{kill:?}");
        let entry = world.db.json(CLUSTER, "EdgeClusterIdentity").unwrap();
        assert_eq!(entry["certificates"][0]["state"], "renewed");
        assert_eq!(entry["certificates"][1], json!(certificate), "{kill:?}");
        assert_eq!(entry["certificates"].as_array().unwrap().len(), 2, "{kill:?}");
        assert_eq!(world.device().identity.serial, Some(certificate.serial.clone()));
        assert_eq!(world.void, Some(BTreeMap::new()), "the one before it stays good until it ends");
        // The cluster was killed and asks again, with the keys that it has kept.
        ask_by(&mut world, own_birth(&renewal(&old, &serial, &new)));
        assert_eq!(world.orders.last().unwrap().answer, Ok(certificate.clone()), "{kill:?}");
        // Who has the old key and another new one is refused, and shows.
        ask_by(&mut world, own_birth(&renewal(&old, &serial, &key())));
        let refusal = world.orders.last().unwrap().answer.clone().unwrap_err();
        assert_eq!(refusal.code, RefusalCode::AlreadyRenewed, "{kill:?}");
        assert!(world.device().identity.alert.clone().unwrap().contains("asks to renew it again"), "{kill:?}");
    }
}

#[test]
fn an_expired_certificate_is_renewed_through_the_quarantine_when_it_is_approved() {
    for kill in [Kill::Never, Kill::AfterEach] {
        let (mut world, old, serial) = enrolled_for(kill, 7_200);
        let asked = renewal(&old, &serial, &key());
        ask(&mut world, &asked);
        let refusal = world.orders.last().unwrap().answer.clone().unwrap_err();
        assert_eq!(refusal.code, RefusalCode::ApprovalNeeded, "{kill:?}");
        assert!(world.device().identity.alert.clone().unwrap().contains(&serial), "{kill:?}");
        world.put(CLUSTER, "EdgeClusterEnrolment", json!({"approved": [serial]}));
        world.settle();
        ask(&mut world, &asked);
        let certificate = world.orders.last().unwrap().answer.clone().unwrap();
        assert_eq!(world.device().identity.serial, Some(certificate.serial), "{kill:?}");
        assert_eq!(world.device().identity.alert, None, "{kill:?}");
    }
}

#[test]
fn a_key_that_this_cluster_was_never_given_renews_nothing() {
    let (mut world, _, serial) = enrolled_for(Kill::Never, 2_400);
    let before = world.db.json(CLUSTER, "EdgeClusterIdentity");
    // Another cluster's key, under this one's serial number.
    ask_by(&mut world, own_birth(&renewal(&key(), &serial, &key())));
    let refusal = world.orders.last().unwrap().answer.clone().unwrap_err();
    assert_eq!(refusal.code, RefusalCode::UnknownCertificate);
    assert_eq!(world.db.json(CLUSTER, "EdgeClusterIdentity"), before);
    // The same by the node of a group that no cluster has is not even read.
    let stranger = EdgeNodeDescriptor::parse("ACME-Elsewhere", metrics::RENEWAL_NODE).unwrap();
    world.orders.clear();
    ask_by(&mut world, birth_of(stranger, &renewal(&key(), &serial, &key())));
    assert!(world.orders.is_empty());
}

#[test]
fn the_end_of_the_node_in_one_group_does_not_end_the_question_in_the_other() {
    let (mut world, old, serial) = enrolled_for(Kill::Never, 2_400);
    let own = metrics::renewal_node(&organisation(), &ClusterName::new("Paint_Shop").unwrap()).unwrap();
    world.feed(vec![
        own_birth(&renewal(&old, &serial, &key())),
        HostEvent::NodeStale { node: metrics::node(&organisation(), CLUSTER).unwrap(), reason: "lost".to_owned() },
    ]);
    world.settle();
    assert!(world.orders.last().unwrap().answer.is_ok() && world.orders.last().unwrap().node == own);
}
