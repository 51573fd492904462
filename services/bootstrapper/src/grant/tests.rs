//! Tickets that are looked at before they cost a reboot.

use super::*;
use bootstrapper_contract::InitComponent;
use join_protocol::certificate::TrustAnchor;
use join_protocol::message::evidence::EvidenceBody;
use join_protocol::message::grant::{Component, Setup};
use join_protocol::secret::{Secret, SecretBytes};
use join_protocol::terms::{Address, Kind, Suite, Variant};
use uuid::Uuid;

fn settings(kind: Kind, role: Role) -> HostSettings {
    let disk = Uuid::from_u128(1);
    HostSettings {
        address: Address::of_disk("ACME-Cell-Join", disk),
        disk,
        kind,
        role,
        suites: vec![Suite::X25519],
        variant: Variant::Simulated,
        attestation_key: vec![1],
        endorsement_key: vec![1],
        endorsement_certificates: Vec::new(),
        lock_pcr: 15,
        body: EvidenceBody { node_name: "edge-1".to_owned(), ..EvidenceBody::default() },
        anchor: TrustAnchor { root: [0; 32], cluster: disk, epoch_min: 1 },
    }
}

fn grant(membership: Option<Membership>, setup: Option<Setup>) -> Grant {
    let secret = || Secret::new([1; 32]);
    let (disk_key, measurement_secret, measurement_salt) = (secret(), secret(), secret());
    Grant { disk_key, measurement_secret, measurement_salt, membership, setup, local_unlock: None }
}

fn good() -> Membership {
    let component =
        Component { url: "https://a/k3s".to_owned(), sha256: [1; 32], path: "/usr/local/bin/k3s".to_owned() };
    Membership {
        node_name: "edge-1".to_owned(),
        servers: vec!["https://10.0.0.1:6443".to_owned(), "https://[fd00::1]:6443".to_owned()],
        token: "abcdef.0123456789abcdef".into(),
        authority_pin: format!("sha256:{}", "ab".repeat(32)),
        components: vec![component],
        files: vec![("etcd/ca.key".to_owned(), "x".into())],
        ..Membership::default()
    }
}

#[test]
fn a_membership_that_could_not_be_used_is_refused_by_the_name_of_its_field() {
    type Change = fn(&mut Membership);
    let cases: [(Change, &str); 12] = [
        (|_| {}, ""),
        (
            |m| m.node_name = "edge-2".to_owned(),
            "membership.node_name is \"edge-2\", and the host asked for \"edge-1\"",
        ),
        (|m| m.servers.clear(), "membership.servers is empty"),
        (|m| m.servers.push("http://10.0.0.1:6443".to_owned()), "membership.servers holds \"http://10.0.0.1:6443\""),
        (|m| m.servers[0] = "https://10.0.0.1".to_owned(), "membership.servers holds \"https://10.0.0.1\""),
        (|m| m.servers[0] = "https://a b:1".to_owned(), "membership.servers holds \"https://a b:1\""),
        (|m| m.token = "".into(), "membership.token is missing"),
        (|m| m.authority_pin.clear(), "membership.authority_pin must be sha256:"),
        (|m| m.files[0].0 = "admin.conf".to_owned(), "membership.files holds \"admin.conf\""),
        (
            |m| m.components[0].path = "/etc/cron.d/x".to_owned(),
            "membership.components holds the path \"/etc/cron.d/x\"",
        ),
        (
            |m| m.components[0].path = "/opt/../etc/x".to_owned(),
            "membership.components holds the path \"/opt/../etc/x\"",
        ),
        (|m| m.components[0].url = "ftp://a/b".to_owned(), "membership.components holds \"ftp://a/b\"; only https://"),
    ];
    for (change, message) in cases {
        let mut membership = good();
        change(&mut membership);
        let checked = check_grant(&grant(Some(membership), None), &settings(Kind::Join, Role::ControlPlane));
        match checked {
            Ok(()) => assert_eq!(message, ""),
            Err(error) => assert!(!message.is_empty() && error.to_string().starts_with(message), "{error}"),
        }
    }
    // A token that pins the authority itself needs no pin.
    let pinned = Membership { token: "K10abc::x:y".into(), authority_pin: String::new(), ..good() };
    assert_eq!(check_grant(&grant(Some(pinned), None), &settings(Kind::Join, Role::ControlPlane)), Ok(()));
}

#[test]
fn parameters_that_could_not_be_used_are_refused() {
    let check = |text: &str| {
        let setup = Setup { result_key: vec![1; 32], parameters: SecretBytes::from(text) };
        let checked = check_grant(&grant(None, Some(setup)), &settings(Kind::Init, Role::ControlPlane));
        checked.map_err(|error| error.to_string())
    };
    assert_eq!(check(r#"{"nodeName": "first", "clusterName": "cell"}"#), Ok(()));
    let error = |text| check(text).unwrap_err();
    assert!(error("{").starts_with("parameters of the init: EOF"));
    assert_eq!(
        error(r#"{"nodeName": "../x", "clusterName": "c"}"#),
        "parameters of the init: nodeName is not an RFC 1123 subdomain"
    );
    assert_eq!(error(r#"{"nodeName": "a", "clusterName": ""}"#), "parameters of the init: clusterName is missing");
    let component = InitComponent { url: "https://a".to_owned(), sha256: "ab".repeat(32), path: "/boot/x".to_owned() };
    let component = serde_json::to_string(&component).unwrap();
    let text = format!(r#"{{"nodeName": "a", "clusterName": "c", "components": [{component}]}}"#);
    assert!(error(&text).starts_with("membership.components holds the path \"/boot/x\""));
}
