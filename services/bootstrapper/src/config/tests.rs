//! Keys and rules.

use super::*;

fn good() -> Config {
    Config {
        cluster: ClusterConfig { name: "Paint".to_owned(), uuid: Some(Uuid::from_u128(5)) },
        trust: TrustConfig { root: Some("ab".repeat(32)), ..TrustConfig::default() },
        ..Config::default()
    }
}

#[test]
fn the_host_speaks_in_the_quarantine_group_of_its_cluster_and_believes_one_root() {
    let checked = good().validate().unwrap();
    assert_eq!(checked.group.to_string(), "ACME-Paint-Join");
    assert_eq!(checked.settings.anchor.root, [0xab; 32]);
    assert_eq!(checked.settings.suites, [Suite::XWing, Suite::X25519]);
}

#[test]
fn a_file_and_the_environment_configure_a_host() {
    let directory = tempfile::tempdir().unwrap();
    let (file, root) = (directory.path().join("bootstrapper.toml"), directory.path().join("root.hex"));
    std::fs::write(&root, format!("{}\n", "cd".repeat(32))).unwrap();
    let text = format!(
        "role = \"control-plane\"\n[cluster]\nname = \"Paint\"\nuuid = \"00000000-0000-0000-0000-000000000005\"\n\
         [trust]\nroot_file = \"{}\"\n[kubernetes]\ndistribution = \"kubeadm\"\n[attestation]\nlock_pcr = 12\n",
        root.display()
    );
    std::fs::write(&file, text).unwrap();
    let environment = [("SPARKFLEET__DISK__DEVICE".into(), "/dev/vdb".into())];
    let config: Config = service_runtime::config::load_with("bootstrapper", &[], Some(&file), environment).unwrap();
    let checked = config.validate().unwrap();
    assert_eq!((checked.settings.role, checked.settings.distribution), (Role::ControlPlane, "kubeadm"));
    assert_eq!(checked.settings.anchor.root, [0xcd; 32]);
    assert_eq!((config.disk.device.to_str(), config.attestation.lock_pcr), (Some("/dev/vdb"), 12));
}

#[test]
fn a_wrong_value_is_refused_by_the_name_of_its_key() {
    type Change = fn(&mut Config);
    let table: [(Change, &str); 17] = [
        (|config| config.organisation = "A-B".to_owned(), "organisation: "),
        (|config| config.cluster.name.clear(), "cluster.name: "),
        (|config| config.cluster.uuid = None, "cluster.uuid is missing"),
        (|config| config.trust.root = None, "trust.root is missing"),
        (|config| config.trust.root = Some("xy".to_owned()), "trust.root must have 64 hexadecimal digits"),
        (|config| config.suites = vec!["rot13".to_owned()], "suites holds \"rot13\"; write"),
        (|config| config.suites.clear(), "suites must name"),
        (|config| config.node_name = Some("Edge 1".to_owned()), "node_name \"Edge 1\" is not an RFC 1123"),
        (|config| config.addresses = vec!["edge-1".to_owned()], "addresses holds \"edge-1\""),
        (|config| config.attestation.bank = "sha1".to_owned(), "attestation.bank must be"),
        (|config| config.attestation.lock_pcr = 16, "attestation.lock_pcr is 16; it must be at most 15"),
        (|config| config.attestation.lock_before = Some("00".to_owned()), "attestation.lock_before must have 64"),
        (|config| config.disk.device = "vdb".into(), "disk.device must be"),
        (|config| config.disk.uuid = Some(Uuid::nil()), "disk.uuid must not be zero"),
        (
            |config| {
                config.disk.uuid = Some(Uuid::from_u128(1));
                config.mqtt.username = Some(Uuid::from_u128(2).to_string());
            },
            "mqtt.username is another UUID than disk.uuid",
        ),
        (
            |config| config.kubernetes.container_runtime_unit = "crio.service".to_owned(),
            "disk.directories must hold /var/lib/containers",
        ),
        (|config| config.kubernetes.attempts_max = 0, "kubernetes.attempts_max is 0; it must be between 1 and 10"),
    ];
    for (change, message) in table {
        let mut config = good();
        change(&mut config);
        let error = config.validate().unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn the_directory_of_cri_o_lies_on_the_state_disk_by_itself_or_within_another() {
    for directory in ["/var/lib/containers", "/var/lib"] {
        let mut config = good();
        config.kubernetes.container_runtime_unit = "crio.service".to_owned();
        config.disk.directories = vec![directory.into()];
        config.validate().unwrap();
    }
}
