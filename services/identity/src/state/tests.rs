//! The whole state against a ConfigDB, a cluster manager and a disk that live in this file: what is recorded before what is answered, whatever is killed.

mod world;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use configdb_schema::ClusterName;
use configdb_schema::timestamp::to_text;
use enrolment_protocol::cluster::{Draft, Predecessor, RenewalDraft, Request, Seed};
use enrolment_protocol::refusal::RefusalCode;
use enrolment_protocol::token::Token;
use serde_json::json;
use sparkplug::BdSeq;

use super::*;
use crate::event::RevocationList;
use world::{CLUSTER, Kill, World, key_pair, organisation};

fn key() -> EcdsaKeyPair {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()
}

fn request(token: u8, seed: u8) -> Request {
    request_for(&key(), token, seed)
}

fn request_for(key: &EcdsaKeyPair, token: u8, seed: u8) -> Request {
    let (token, seed, pinned) = (Token::new([token; 32]), Seed::new([seed; 32]), key_pair().public());
    let draft = Draft::new(CLUSTER, &token, key.public_key().as_ref().try_into().unwrap(), &pinned, &seed);
    let signature = key.sign(&SystemRandom::new(), &draft.to_sign()).unwrap();
    draft.seal(signature.as_ref().try_into().unwrap()).unwrap()
}

/// The holder of `old`, which is certified under that serial number, asks for a certificate of `new`.
fn renewal(old: &EcdsaKeyPair, serial: &str, new: &EcdsaKeyPair) -> Request {
    let point = |key: &EcdsaKeyPair| key.public_key().as_ref().try_into().unwrap();
    let predecessor = Predecessor { serial: hex::decode(serial).unwrap(), public_key: point(old) };
    let (seed, pinned) = (Seed::new([9; 32]), key_pair().public());
    let draft = RenewalDraft::new(CLUSTER, &predecessor, point(new), &pinned, &seed);
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

/// A cluster that is set up, with one token.
fn enrolling(kill: Kill) -> World {
    let mut world = World::new(kill);
    world.put_cluster("Paint_Shop");
    world.put("EdgeClusterEnrolment", tokens(&world, &[1]));
    world.settle();
    world
}

fn tokens(world: &World, numbers: &[u8]) -> serde_json::Value {
    let end = to_text(world.now.wall + 3_600_000).unwrap();
    let token = |number: &u8| {
        let hash = Token::new([*number; 32]).hash();
        json!({"hash": hash.as_str(), "issued": end, "expires": end, "by": "ada"})
    };
    json!({"tokens": numbers.iter().map(token).collect::<Vec<_>>()})
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
    world.settle();
    assert!(world.allowed.is_empty());
    world.put_cluster("Paint_Shop");
    world.settle();
    assert_eq!(world.allowed, BTreeSet::from([format!("ACME-Enrol/{CLUSTER}")]));
    world.delete("EdgeCluster");
    world.delete("EdgeClusterSetup");
    world.settle();
    assert!(world.allowed.is_empty());
}

#[test]
fn a_key_is_published_as_soon_as_the_cluster_is_set_up() {
    let world = enrolling(Kill::Never);
    let entry = world.db.json("EdgeClusterIdentity").unwrap();
    assert_eq!(entry["key"], json!(key_pair().public().to_string()));
    assert!(world.orders.is_empty() && entry.get("certificates").is_none());
    assert_eq!(world.node.key, key_pair().public().to_string());
}

#[test]
fn whatever_is_killed_a_token_certifies_one_key_and_is_recorded_before_the_answer() {
    for kill in [Kill::Never, Kill::AfterEach] {
        let mut world = enrolling(kill);
        let asked = request(1, 5);
        ask(&mut world, &asked);
        let order = world.orders.last().unwrap_or_else(|| panic!("{kill:?}: no answer")).clone();
        let certificate = world.answer().unwrap();
        assert_eq!(order.group, "ACME-Paint_Shop");
        let entry = world.db.json("EdgeClusterIdentity").unwrap();
        assert_eq!(entry["certificates"], json!([certificate]), "{kill:?}");
        assert_eq!(entry["tokens"][0]["key"], json!(certificate.key));
        assert_eq!(world.ledger[&CLUSTER].certificates, std::slice::from_ref(&certificate));
        // It did not receive the answer and asks again.
        let again = HostEvent::NodeData { node: order.node, timestamp: 0, metrics: Vec::new() };
        world.feed(vec![again]);
        world.settle();
        assert!(world.orders.len() > 1 && world.answer() == Ok(certificate));
    }
}

#[test]
fn a_second_user_of_a_token_is_refused_and_shows_as_an_alert() {
    let mut world = enrolling(Kill::Never);
    ask(&mut world, &request(1, 5));
    let first = world.db.json("EdgeClusterIdentity").unwrap()["certificates"].clone();
    assert_eq!(world.alert(), None);
    ask(&mut world, &request(1, 6));
    let refusal = world.answer().unwrap_err();
    assert_eq!(refusal.code, RefusalCode::TokenUsed);
    assert_eq!(world.db.json("EdgeClusterIdentity").unwrap()["certificates"], first);
    assert!(world.alert().unwrap().contains("was used again"));
    // A wrong token says nothing to the operator: any client could make one up.
    ask(&mut world, &request(2, 7));
    assert_eq!(world.answer().unwrap_err().code, RefusalCode::UnknownToken);
}

#[test]
fn a_revoked_certificate_is_reported_as_revoked_and_so_are_those_of_a_cluster_that_is_torn_down() {
    let mut world = enrolling(Kill::Never);
    ask(&mut world, &request(1, 5));
    assert_eq!(world.revoked, Some(BTreeMap::new()));
    let serial = world.serial().unwrap();
    world.put("EdgeClusterEnrolment", json!({"fence": 1}));
    world.settle();
    assert_eq!(world.revoked.clone().unwrap().into_keys().collect::<Vec<_>>(), [serial]);
    assert_eq!(world.serial(), None);

    let mut world = enrolling(Kill::Never);
    ask(&mut world, &request(1, 5));
    let serial = world.serial().unwrap();
    world.delete("EdgeCluster");
    world.run(Duration::from_secs(120));
    assert_eq!(world.revoked.clone().unwrap().into_keys().collect::<Vec<_>>(), [serial]);
}

#[test]
fn a_revocation_list_that_is_not_renewed_or_not_written_is_said_of_the_node_until_it_is() {
    let mut world = enrolling(Kill::Never);
    ask(&mut world, &request(1, 5));
    let list = |begins, ends| {
        Ok(RevocationList { file: "f".to_owned(), issuer: "CN=site".to_owned(), begins, ends: Some(ends) })
    };
    // A revocation that no server reads yet.
    world.is_full = true;
    world.put("EdgeClusterEnrolment", json!({"fence": 1}));
    world.settle();
    assert!(world.node.revocations_alert.clone().unwrap().ends_with("no space left"));
    world.is_full = false;
    world.run(Duration::from_secs(61));
    assert_eq!((world.revoked.clone().unwrap().len(), world.node.revocations_alert.clone()), (1, None));
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
}

/// A cluster whose key was certified an hour's life and so long ago; and the serial number.
fn enrolled_for(kill: Kill, seconds: u64) -> (World, EcdsaKeyPair, String) {
    let (mut world, old) = (enrolling(kill), key());
    ask(&mut world, &request_for(&old, 1, 5));
    let serial = world.serial().unwrap();
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
        let order = world.orders.last().unwrap_or_else(|| panic!("{kill:?}: no answer")).clone();
        let certificate = world.answer().unwrap();
        assert_eq!((order.node.to_string().as_str(), &*order.group), ("ACME-Paint_Shop/Identity", "ACME-Paint_Shop"));
        assert!(world.answers().all(|answer| answer == Ok(certificate.clone())), "{kill:?}");
        let entry = world.db.json("EdgeClusterIdentity").unwrap();
        assert_eq!(entry["certificates"][0]["state"], "renewed");
        assert_eq!(entry["certificates"][1], json!(certificate), "{kill:?}");
        assert_eq!(entry["certificates"].as_array().unwrap().len(), 2, "{kill:?}");
        assert_eq!(world.serial(), Some(certificate.serial.clone()));
        assert_eq!(world.revoked, Some(BTreeMap::new()), "the one before it stays good until it ends");
        // The cluster was killed and asks again, with the keys that it has kept.
        ask_by(&mut world, own_birth(&renewal(&old, &serial, &new)));
        assert_eq!(world.answer(), Ok(certificate.clone()), "{kill:?}");
        // Who has the old key and another new one is refused, and shows.
        ask_by(&mut world, own_birth(&renewal(&old, &serial, &key())));
        let refusal = world.answer().unwrap_err();
        assert_eq!(refusal.code, RefusalCode::AlreadyRenewed, "{kill:?}");
        assert!(world.alert().unwrap().contains("asks to renew it again"), "{kill:?}");
    }
}

#[test]
fn an_expired_certificate_is_renewed_through_the_quarantine_when_it_is_approved() {
    for kill in [Kill::Never, Kill::AfterEach] {
        let (mut world, old, serial) = enrolled_for(kill, 7_200);
        let asked = renewal(&old, &serial, &key());
        ask(&mut world, &asked);
        let refusal = world.answer().unwrap_err();
        assert_eq!(refusal.code, RefusalCode::ApprovalNeeded, "{kill:?}");
        assert!(world.alert().unwrap().contains(&serial), "{kill:?}");
        world.put("EdgeClusterEnrolment", json!({"approved": [serial]}));
        world.settle();
        ask(&mut world, &asked);
        let certificate = world.answer().unwrap();
        assert_eq!(world.serial(), Some(certificate.serial), "{kill:?}");
        assert_eq!(world.alert(), None, "{kill:?}");
    }
}

#[test]
fn a_key_that_this_cluster_was_never_given_renews_nothing() {
    let (mut world, _, serial) = enrolled_for(Kill::Never, 2_400);
    let before = world.db.json("EdgeClusterIdentity");
    // Another cluster's key, under this one's serial number.
    ask_by(&mut world, own_birth(&renewal(&key(), &serial, &key())));
    let refusal = world.answer().unwrap_err();
    assert_eq!(refusal.code, RefusalCode::UnknownCertificate);
    assert_eq!(world.db.json("EdgeClusterIdentity"), before);
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
    assert!(world.answer().is_ok() && world.orders.last().unwrap().node == own);
}

#[test]
fn an_older_configdb_gives_no_token_serial_number_or_certificate_back() {
    let (mut world, old, serial) = enrolled_for(Kill::Never, 2_400);
    let backup = world.db.clone();
    ask_by(&mut world, own_birth(&renewal(&old, &serial, &key())));
    world.put("EdgeClusterEnrolment", json!({"fence": 1}));
    world.settle();
    let revoked = world.revoked.clone().unwrap();
    assert_eq!(revoked.len(), 2);
    // The backup knows neither the renewal nor the revocation. Identity is started again with it, and then continues with it.
    for restarts in [true, false] {
        world.restore(backup.clone(), restarts);
        world.settle();
        let entry = world.db.json("EdgeClusterIdentity").unwrap();
        let states: Vec<_> = entry["certificates"].as_array().unwrap().iter().map(|one| one["state"].clone()).collect();
        assert_eq!(states, ["revoked", "revoked"], "{restarts}");
        assert_eq!(world.revoked.as_ref(), Some(&revoked));
        ask_by(&mut world, own_birth(&renewal(&old, &serial, &key())));
        assert_eq!(world.answer().unwrap_err().code, RefusalCode::Revoked);
        // The token was used, whatever the backup says, and by another key.
        world.put("EdgeClusterEnrolment", tokens(&world, &[1]));
        ask(&mut world, &request(1, 7));
        assert_eq!(world.answer().unwrap_err().code, RefusalCode::TokenUsed, "{restarts}");
    }
}

#[test]
fn a_backup_from_before_a_cluster_enrolled_revokes_nothing_and_a_deletion_does() {
    let mut world = World::new(Kill::Never);
    world.settle();
    let empty = world.db.clone();
    world.put_cluster("Paint_Shop");
    world.put("EdgeClusterEnrolment", tokens(&world, &[1]));
    world.settle();
    ask(&mut world, &request(1, 5));
    let serial = world.serial().unwrap();
    let enrolled = world.db.clone();
    for restarts in [true, false] {
        world.restore(empty.clone(), restarts);
        world.run(Duration::from_secs(300));
        assert_eq!(world.revoked, Some(BTreeMap::new()), "the cluster is unknown, not deleted");
        world.restore(enrolled.clone(), restarts);
        world.settle();
        assert_eq!(world.serial(), Some(serial.clone()));
    }
    // Deleted while Identity is down.
    world.delete_object();
    world.start();
    world.settle();
    assert!(world.revoked.clone().unwrap().into_keys().eq([serial]));
    assert!(!world.ledger[&CLUSTER].has_valid());
    // And it stays revoked if the object comes back.
    world.restore(enrolled, true);
    world.settle();
    assert_eq!((world.serial(), world.revoked.clone().unwrap().len()), (None, 1));
}

#[test]
fn keys_that_configdb_does_not_name_issue_nothing_until_an_operator_says_so() {
    let mut world = enrolling(Kill::Never);
    // Another Identity was there for a moment, and issued nothing.
    world.put("EdgeClusterIdentity", json!({"key": "another", "authority": "A"}));
    world.settle();
    assert_eq!(world.db.json("EdgeClusterIdentity").unwrap()["key"], world.node.key);
    let used = json!({"hash": "ab", "used": "1970-01-01T00:00:00Z", "key": "aa"});
    let entry = json!({"key": "another", "authority": "A", "tokens": [used]});
    world.put("EdgeClusterIdentity", entry.clone());
    world.settle();
    ask(&mut world, &request(1, 5));
    assert!(world.orders.is_empty());
    assert_eq!(world.db.json("EdgeClusterIdentity"), Some(entry));
    assert!(world.node.authority_alert.clone().unwrap().contains("names another enrolment key"));
    world.replaces_keys = true;
    world.start();
    world.settle();
    assert!(world.answer().is_ok());
    assert_eq!(world.node.authority_alert, None);
}

#[test]
fn without_the_login_of_the_repository_a_cluster_waits_and_is_answered_when_it_comes() {
    let mut world = World::new(Kill::Never);
    world.has_login = false;
    world.start();
    world.put_cluster("Paint_Shop");
    world.put("EdgeClusterEnrolment", tokens(&world, &[1]));
    world.settle();
    ask(&mut world, &request(1, 5));
    assert!(world.orders.is_empty());
    assert_eq!((world.node.waiting, world.node.clusters), (1, 1), "it is recorded");
    world.has_login = true;
    let births = world.manager_births();
    world.feed(births);
    world.settle();
    assert!(world.answer().is_ok());
    assert_eq!(world.node.waiting, 0);
    // Who is refused waits for nothing.
    world.has_login = false;
    world.start();
    ask(&mut world, &request(2, 7));
    assert_eq!(world.answer().unwrap_err().code, RefusalCode::UnknownToken);
}
