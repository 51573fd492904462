//! What Identity needs of the manager: the sealed login of each cluster's repository; and what the manager waits for at the end of a cluster.

use identity_contract::{IdentityNode, names as identity_names};

use super::*;

fn identity_birth(key: &str) -> HostEvent {
    let node = identity_names::node("ACME").unwrap();
    let metrics = IdentityNode { key: key.to_owned(), ..IdentityNode::default() }.to_metrics().into();
    HostEvent::NodeBirth { node, bd_seq: BdSeq::ZERO, timestamp: 0, uuid: None, metrics }
}

fn login(world: &World) -> Option<&[u8]> {
    world.device().login.as_ref().map(|login| &*login.0)
}

#[test]
fn a_login_is_sealed_once_for_each_key_and_is_gone_with_the_cluster() {
    let mut world = running();
    assert_eq!(login(&world), None, "Identity was never there");
    assert!(world.expected.contains("ACME-Central/Identity"));
    world.feed(vec![identity_birth("one")]);
    world.settle();
    assert_eq!(login(&world), Some(&b"one"[..]));
    // It comes again with the same key, and is away for a while.
    let node = identity_names::node("ACME").unwrap();
    world.feed(vec![identity_birth("one"), HostEvent::NodeDeath { node, timestamp: 1 }]);
    world.settle();
    assert_eq!((world.sealed.len(), login(&world)), (1, Some(&b"one"[..])));
    world.feed(vec![identity_birth("two")]);
    world.settle();
    assert_eq!(login(&world), Some(&b"two"[..]));
    world.delete(CLUSTER, "EdgeCluster");
    world.run(Duration::from_secs(120));
    assert!(!world.devices.contains_key(&CLUSTER));
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.run(Duration::from_secs(120));
    assert_eq!(world.sealed.len(), 3, "its repository has another password");
}

/// A start does both for each of thousands of clusters.
#[test]
fn a_login_that_is_sealed_while_the_repository_is_compared_is_published_with_its_commit() {
    let mut world = running();
    world.feed(vec![identity_birth("one")]);
    world.settle();
    let (before, births) = (world.device().clone(), world.db.birth());
    world.manager = ClusterManager::new(settings(), PersistedRepositories::default(), 5, world.now);
    world.feed(births);
    world.feed(vec![identity_birth("one")]);
    let mut work = None;
    let mut published = Vec::new();
    let device = names::device(CLUSTER, "Paint_Shop");
    let shown = |device: &ClusterDevice| (device.git_commit.clone(), device.login.clone());
    for turn in 0..3 {
        if turn == 2 {
            assert_eq!(published, [(None, None)], "the repository is compared still");
            let result = world.disk.carry_out(work.take().expect("the repository is compared"));
            world.manager.on_event(Event::Git(result), world.now);
        }
        for effect in world.manager.poll_effects() {
            match effect {
                Effect::Git(git) => work = Some(git),
                Effect::SealLogin { cluster, key } => {
                    let sealed = Ok(SealedLogin(key.as_bytes().into()));
                    let sealed = Event::LoginSealed(LoginResult { cluster, key, sealed });
                    world.manager.on_event(sealed, world.now);
                }
                Effect::Node(NodeUpdate::DeviceBirth { device: born, metrics }) if born == device => {
                    published.push(shown(&ClusterDevice::from_metrics(&metrics).unwrap()));
                }
                _ => {}
            }
        }
    }
    assert!(before.login.is_some());
    assert_eq!(published, [(None, None), shown(&before)]);
}

#[test]
fn without_identity_deployments_go_on_and_a_tear_down_waits_at_its_end() {
    let mut world = running();
    let certificate = |state: &str| {
        json!({"serial": "4a01", "node": "cluster", "kind": "mqtt", "key": "aa", "fence": 0, "state": state,
            "issued": "2026-01-01T00:00:00Z", "expires": "2099-01-01T00:00:00Z"})
    };
    let identity = |state| json!({"key": "k", "authority": "", "certificates": [certificate(state)]});
    world.put(CLUSTER, "EdgeClusterIdentity", identity("valid"));
    world.put_deployment(Uuid::from_u128(0xD2), "Robot_Cell_4");
    world.settle();
    assert_eq!(world.device().identity.serial.as_deref(), Some("4a01"));
    assert_eq!(world.edges["Paint_Shop"].deployments.len(), 2);
    world.delete(CLUSTER, "EdgeCluster");
    world.run(Duration::from_secs(120));
    assert_eq!(world.state(), SetupState::Deleting);
    assert!(world.device().setup.reason.as_ref().unwrap().starts_with("waiting for Identity"));
    assert!(world.disk.open.is_empty() && world.edges["Paint_Shop"].deployments.is_empty());
    world.put(CLUSTER, "EdgeClusterIdentity", identity("revoked"));
    world.run(Duration::from_secs(120));
    assert!(!world.devices.contains_key(&CLUSTER));
}
