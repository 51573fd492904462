//! Secrets of a repository: what is shown of them, and which certificate is taken. That a value leaves only sealed is tried on a whole site.

use super::*;
use configdb_schema::document::{EdgeClusterStatus, SealedSecret, SealedValue, SealingScope};
use fleet_view::bench::{Bench, CLUSTER, NAME};

const EARLY: &str = "2027-01-15T08:00:00.000Z";

#[test]
fn the_list_names_the_keys_that_are_not_there_yet_and_those_that_are_to_be_put_again() {
    let mut bench = Bench::with_cluster();
    let pem = simulator::sealed_secrets::CERTIFICATE.to_owned();
    let own = fingerprint(&pem).unwrap();
    let none = Secrets::of(&bench.fleet, CLUSTER).lines(NAME);
    assert_eq!(none.last().unwrap(), "Paint_Shop has published no sealing certificate yet");
    bench.entry(CLUSTER, &EdgeClusterStatus { kubeseal_cert: Some(pem), ..EdgeClusterStatus::default() });
    let value = |fingerprint: &str| SealedValue {
        value: Some("AAAA".to_owned()),
        sealed_for: Some(fingerprint.to_owned()),
        at: EARLY.to_owned(),
    };
    let secret = SealedSecret {
        cluster: CLUSTER,
        namespace: "n".to_owned(),
        name: "s".to_owned(),
        scope: SealingScope::Strict,
        secret_type: "Opaque".to_owned(),
        keys: [("a".to_owned(), value(&own)), ("b".to_owned(), value(&"0f".repeat(32)))].into(),
    };
    bench.entry(fleet_view::secrets::object(CLUSTER, "n", "s"), &secret);
    bench.cluster(CLUSTER, NAME, |device| {
        let keys = [("a", Some(EARLY)), ("c", None)].map(|(key, at)| {
            let sealed_for = at.map(|_| own.clone());
            (key.to_owned(), cluster_manager_contract::StoredKey { sealed_for, at: at.map(str::to_owned) })
        });
        let stored = cluster_manager_contract::StoredSecret {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
            scope: SealingScope::Strict,
            secret_type: "Opaque".to_owned(),
            keys: keys.into(),
        };
        device.secrets.stored = Some(cluster_manager_contract::StoredSecrets(vec![stored]));
        device.secrets.reason = Some("a file is foreign".to_owned());
    });
    let secrets = Secrets::of(&bench.fleet, CLUSTER);
    let shown = secrets.lines(NAME);
    let words: Vec<_> = shown[1].split_whitespace().collect();
    assert_eq!(words, ["n", "s", "strict", "Opaque", "a,b,c", "b", "b,c"]);
    assert_eq!(shown[2], "not in the repository: a file is foreign");
    assert_eq!(shown[3], format!("Paint_Shop seals for certificate {own}"));
    let value = secrets.value();
    assert_eq!(
        value["secrets"][0]["keys"][1],
        json!({"key": "b", "fingerprint": "0f".repeat(32), "state": "waits", "seal_again": true})
    );
}

#[test]
fn what_the_cluster_reported_last_is_sealed_for_where_its_edge_is_away() {
    let mut bench = Bench::with_cluster();
    let cluster = look_up::cluster(&bench.fleet, NAME).unwrap();
    let error = certificate_of(&bench.fleet, &cluster).unwrap_err();
    assert_eq!(exit::code_of(&error), exit::UNAVAILABLE);
    assert_eq!(error.to_string(), "Paint_Shop has published no sealing certificate yet: is its edge sync there?");
    let pem = simulator::sealed_secrets::CERTIFICATE.to_owned();
    bench.entry(CLUSTER, &EdgeClusterStatus { kubeseal_cert: Some(pem.clone()), ..EdgeClusterStatus::default() });
    assert_eq!(certificate_of(&bench.fleet, &cluster).unwrap(), pem);
}

#[test]
fn another_certificate_than_the_one_that_is_asked_for_is_refused() {
    let pem = simulator::sealed_secrets::CERTIFICATE;
    let bench = Bench::with_cluster();
    let cluster = look_up::cluster(&bench.fleet, NAME).unwrap();
    let own = fingerprint(pem).unwrap();
    assert_eq!(used_certificate(pem, None, &cluster).unwrap(), own);
    assert_eq!(used_certificate(pem, Some(&own), &cluster).unwrap(), own);
    let error = used_certificate(pem, Some(&"0f".repeat(32)), &cluster).unwrap_err();
    assert!(exit::code_of(&error) == exit::REFUSED && error.to_string().contains(&own), "{error}");
    assert!(used_certificate("no certificate", None, &cluster).is_err());
}
