//! The principals of clusters in a real KDC.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use crate::kdc;

use cluster_manager::adapters::kdc::Realm;
use cluster_manager::config::KerberosConfig;
use cluster_manager::event::{Event, PrincipalsResult, PrincipalsWork};
use kdc::{REALM, TestKdc};
use uuid::Uuid;

const CLUSTER: Uuid = Uuid::from_u128(0xC1);

fn realm(kdc: &TestKdc, state_dir: &std::path::Path) -> Realm {
    let config = kdc.config_of_control_plane();
    let config = KerberosConfig {
        realm: Some(REALM.to_owned()),
        admin_principal: Some(config.admin_principal),
        keytab_file: Some(config.keytab_file),
        krb5_conf: config.krb5_conf,
        timeout_s: config.timeout_s,
    };
    Realm::open(&config, state_dir).unwrap()
}

async fn allow(realm: &Realm, allowed: bool) -> Result<(), String> {
    let principals = ["op1flux/Paint", "op1krbkeys/Paint"].map(|name| format!("{name}@{REALM}")).into();
    let event = realm.clone().carry_out(PrincipalsWork { cluster: CLUSTER, principals, allowed }).await;
    let Event::Principals(PrincipalsResult { cluster: CLUSTER, result, .. }) = event else { panic!("{event:?}") };
    result
}

#[tokio::test]
async fn principals_are_made_disabled_and_enabled_again_however_often_it_is_asked_for() {
    let mut kdc = TestKdc::start();
    let state_dir = tempfile::tempdir().unwrap();
    let realm = realm(&kdc, state_dir.path());
    let enabled = |kdc: &TestKdc| ["op1flux/Paint", "op1krbkeys/Paint"].map(|name| kdc.is_enabled(name));
    allow(&realm, false).await.unwrap();
    assert_eq!(enabled(&kdc), [None; 2], "nothing is made in order to be disabled");
    for wanted in [true, true, false, false, true] {
        allow(&realm, wanted).await.unwrap();
        assert_eq!(enabled(&kdc), [Some(wanted); 2]);
    }
    assert_eq!(kdc.key_version("op1flux/Paint"), Some(1), "the key is that of the beginning");
    kdc.stop();
    let error = allow(&realm, false).await.unwrap_err();
    assert!(error.contains("op1flux/Paint") && error.contains("not reachable"), "{error}");
}
