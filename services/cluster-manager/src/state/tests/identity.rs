//! A cluster that enrols: what is recorded before what is answered, whatever is killed.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use enrolment_protocol::cluster::{Draft, Request, Seed};
use enrolment_protocol::manager::Manager;
use enrolment_protocol::metrics;
use enrolment_protocol::refusal::RefusalCode;
use enrolment_protocol::token::Token;

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
    Identity { manager, terms }
}

fn request(token: u8, seed: u8) -> Request {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let (token, seed, manager) = (Token::new([token; 32]), Seed::new([seed; 32]), Manager::new([3; 32]).public());
    let draft = Draft::new(CLUSTER, &token, key.public_key().as_ref().try_into().unwrap(), &manager, &seed);
    let signature = key.sign(&SystemRandom::new(), &draft.to_sign()).unwrap();
    draft.seal(signature.as_ref().try_into().unwrap()).unwrap()
}

fn birth(request: &Request) -> HostEvent {
    HostEvent::NodeBirth {
        node: metrics::node(&organisation(), CLUSTER).unwrap(),
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
    world.enrolling = Some(birth(request));
    world.feed(vec![birth(request)]);
    world.settle();
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
        // It did not hear the answer and asks again.
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
    // A wrong token says nothing to the operator: anybody could make one up.
    ask(&mut world, &request(2, 7));
    assert_eq!(world.orders.last().unwrap().answer.clone().unwrap_err().code, RefusalCode::UnknownToken);
}

#[test]
fn a_revoked_certificate_is_told_as_void_and_so_are_those_of_a_cluster_that_is_torn_down() {
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
