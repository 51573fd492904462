//! Principals of a cluster's accounts: made with it, disabled with it, and what an outage of the KDC holds up.

use super::tear_down::{death, life};
use super::*;

const FLUX: &str = "op1flux/Paint_Shop@ACME.EXAMPLE";
const KRBKEYS: &str = "op1krbkeys/Paint_Shop@ACME.EXAMPLE";

fn all(allowed: bool) -> BTreeMap<String, bool> {
    [FLUX, KRBKEYS].map(|name| (name.to_owned(), allowed)).into()
}

#[test]
fn the_principals_of_a_cluster_live_as_long_as_it_and_are_never_deleted() {
    let world = life(Kill::Never);
    assert_eq!(world.kdc, all(true));
    let world = death(Kill::Never);
    assert_eq!(world.kdc, all(false));
}

#[test]
fn an_outage_of_the_kdc_holds_up_a_new_cluster_and_the_end_of_one_and_is_reported() {
    let mut world = World::new(Kill::Never);
    world.kdc_is_away = true;
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.settle();
    let setup = &world.devices[&CLUSTER].setup;
    assert_eq!((setup.state, setup.reason.as_deref()), (SetupState::SettingUp, Some("the KDC is not reachable")));
    assert!(world.disk.open.contains_key(&CLUSTER), "the repository does not wait for it");
    world.kdc_is_away = false;
    world.run(Duration::from_secs(120));
    assert_eq!((world.devices[&CLUSTER].setup.state, &world.kdc), (SetupState::Ready, &all(true)));

    world.kdc_is_away = true;
    world.delete(CLUSTER, "EdgeCluster");
    world.settle();
    let setup = &world.devices[&CLUSTER].setup;
    assert_eq!((setup.state, setup.reason.as_deref()), (SetupState::Deleting, Some("the KDC is not reachable")));
    assert!(world.db.objects.contains_key(&World::account("flux")), "accounts go after their principals");
    world.kdc_is_away = false;
    world.run(Duration::from_secs(120));
    assert_eq!((world.devices.get(&CLUSTER), &world.kdc), (None, &all(false)));
}
