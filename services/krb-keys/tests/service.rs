//! The whole service: `run()` between a real KDC, a simulated Kubernetes API and a Mosquitto.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use crate::support;

use krb_keys_contract::{AccountDecision, KeysReplica};
use serde_json::{Value, json};
use simulator::kubernetes::faults::Fault;
use sparkplug::EdgeNodeDescriptor;
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug_mqtt::{Clock, HostHandle};
use support::kdc::{OTHER_REALM, REALM, TestKdc};
use support::{Running, Site, in_time};

const NODE: &str = "nd1/Test/Robot";

fn random(keep: bool) -> Value {
    let mut spec = json!({ "type": "Random", "principal": format!("{NODE}@{REALM}"), "secret": "robot/keytab" });
    if keep {
        spec["keepOldKeys"] = json!(true);
    }
    spec
}

fn entries(keytab: &[u8]) -> Vec<u32> {
    let keytab = krb_keys::keytab::Keytab::parse(keytab).unwrap();
    let mut versions: Vec<u32> = keytab.entries().map(|entry| entry.version).collect();
    versions.dedup();
    versions
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_random_key_works_a_second_start_changes_nothing_and_the_end_disables() {
    let site = Site::start().await;
    site.apply_key("robot", random(false));
    let running = site.run();
    site.until_in_step("robot").await;
    let keytab = site.secret("robot", "keytab").unwrap();
    assert!(site.works(NODE, &keytab).await);
    running.stop().await;
    assert_eq!(std::fs::read_dir(site.keys_directory()).unwrap().count(), 0, "files with keys");

    let (secret, version) = (site.get("Secret", "robot"), site.kdc.key_version(NODE));
    // Of two resources in one list the first by name is worked on first, so that it is done with when the second is.
    site.apply_key("zz", json!({ "type": "Disabled", "principal": format!("nd1/Test/Second@{REALM}") }));
    let running = site.run();
    site.until_in_step("zz").await;
    assert_eq!((site.get("Secret", "robot"), site.kdc.key_version(NODE)), (secret, version));

    site.delete("KerberosKey", "robot");
    site.until("the end of the resource", |site| site.get("KerberosKey", "robot").is_none()).await;
    assert_eq!(site.kdc.is_enabled(NODE), Some(false));
    assert!(site.get("Secret", "robot").is_none());
    site.apply_key("robot", random(false));
    site.until_in_step("robot").await;
    assert_eq!(site.kdc.is_enabled(NODE), Some(true));
    running.stop().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_are_made_and_preset_ones_are_followed() {
    let site = Site::start().await;
    let running = site.run();
    let spec = |key_type: &str, principal: &str, secret: &str| json!({ "type": key_type, "principal": format!("{principal}@{REALM}"), "secret": secret });
    site.apply_key("flux", spec("Password", "op1flux/Test", "flux-secrets/password"));
    site.until_in_step("flux").await;
    let password = site.secret("flux-secrets", "password").unwrap();
    assert!(site.password_works("op1flux/Test", &password).await);

    site.apply_key("preset", spec("PresetPassword", "op1preset/Test", "given/password"));
    let reason = site.until_is("KerberosKey", "preset", "Refused").await;
    assert!(reason.contains("given/password is missing"), "{reason}");
    site.write_secret("given", "password", "chosen by a person");
    site.until_in_step("preset").await;
    assert!(site.password_works("op1preset/Test", b"chosen by a person").await);

    site.apply("LocalSecret", "local", json!({ "secret": "local", "key": "value", "format": "Password" }));
    site.until_is("LocalSecret", "local", "InStep").await;
    assert_eq!(site.secret("local", "value").map(|value| value.len()), Some(43));
    site.delete("LocalSecret", "local");
    site.until("the end of the value", |site| site.get("Secret", "local").is_none()).await;

    site.annotate("flux", "force-rekey", json!("true"));
    site.until("another password", |site| {
        site.secret("flux-secrets", "password").is_some_and(|value| value != password)
    })
    .await;
    site.until("the end of the request", |site| {
        let annotations = site.get("KerberosKey", "flux").unwrap()["metadata"]["annotations"].clone();
        annotations.get("krbkeys.factoryplus.app.amrc.co.uk/force-rekey").is_none()
    })
    .await;
    let another = site.secret("flux-secrets", "password").unwrap();
    assert!(site.password_works("op1flux/Test", &another).await);
    running.stop().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_kdc_replaces_no_key() {
    let mut site = Site::start().await;
    site.apply_key("robot", random(false));
    let config = krb_keys::Config { verify_s: 1, ..site.config() };
    let running = Running::start(config.clone());
    site.until_in_step("robot").await;
    let (secret, version) = (site.get("Secret", "robot"), site.kdc.key_version(NODE));
    site.kdc.stop();
    let reason = site.until_is("KerberosKey", "robot", "KdcUnreachable").await;
    assert!(reason.contains("the KDC is not reachable"), "{reason}");
    running.stop().await;
    // Also one that starts during the outage.
    let running = Running::start(config);
    site.apply_key("second", json!({ "type": "Disabled", "principal": format!("nd1/Test/Second@{REALM}") }));
    site.until_is("KerberosKey", "second", "KdcUnreachable").await;
    site.kdc.run();
    site.until_in_step("robot").await;
    site.until_in_step("second").await;
    assert_eq!((site.get("Secret", "robot"), site.kdc.key_version(NODE)), (secret, version));
    assert_eq!(site.kdc.key_version("nd1/Test/Second"), None, "nothing is made in order to be disabled");
    running.stop().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_key_keeps_the_one_before_until_it_is_trimmed() {
    let site = Site::start().await;
    site.apply_key("robot", random(true));
    let running = site.run();
    site.until_in_step("robot").await;
    let first = site.secret("robot", "keytab").unwrap();
    site.annotate("robot", "force-rekey", json!("true"));
    let is_labelled = |site: &Site| {
        let resource = site.get("KerberosKey", "robot").unwrap();
        resource["metadata"]["labels"]["krbkeys.factoryplus.app.amrc.co.uk/has-old-keys"] == "true"
    };
    site.until("the label", is_labelled).await;
    let both = site.secret("robot", "keytab").unwrap();
    let versions = [entries(&first), entries(&both)];
    assert_eq!(versions, [vec![2], vec![2, 3]]);
    assert!(site.works(NODE, &both).await);
    running.stop().await;

    let running = Running::start(krb_keys::Config { expire_old_keys_s: 0, ..site.config() });
    site.until("the end of the label", |site| !is_labelled(site)).await;
    let trimmed = site.secret("robot", "keytab").unwrap();
    assert_eq!(entries(&trimmed), [3]);
    assert!(site.works(NODE, &trimmed).await);
    running.stop().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_cannot_be_written_is_made_once_and_a_foreign_secret_is_left_alone() {
    let site = Site::start().await;
    site.write_secret("robot", "other", "another owner's");
    let running = site.run();
    site.apply_key("robot", random(false));
    let reason = site.until_is("KerberosKey", "robot", "Refused").await;
    assert!(reason.contains("lacks the label"), "{reason}");
    assert_eq!(site.kdc.key_version(NODE), Some(1), "made, but given no key that any client has");

    let spec = json!({ "type": "Random", "principal": format!("nd1/Test/Other@{REALM}"), "secret": "other/keytab" });
    site.cluster.kubernetes().inject(Fault::next(3, 500).method("POST").path("/secrets"));
    site.apply_key("other", spec);
    site.until_in_step("other").await;
    assert_eq!(site.kdc.key_version("nd1/Test/Other"), Some(2), "one key, though three writes failed");
    running.stop().await;
    site.stop().await;
}

/// Runs the service again and again, each time a little longer, until all these are in step: it is killed before, within and after each step.
async fn run_and_kill(site: &Site, names: &[&str]) {
    let is_in_step = |name: &&str| {
        site.get("KerberosKey", name).is_some_and(|key| key["status"]["conditions"][0]["reason"] == "InStep")
    };
    for lifetime in 1..60 {
        let running = site.run();
        tokio::time::sleep(std::time::Duration::from_millis(lifetime * 4)).await;
        running.kill().await;
        if names.iter().all(is_in_step) {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_one_can_be_asked_about_is_delivered_whenever_the_service_is_killed() {
    let site = Site::start().await;
    let names = ["nd1/Test/A", "nd1/Test/B"];
    site.write_config_map("sealing", "cert.pem", simulator::cluster::SEALING_CERTIFICATE);
    let pair = json!({
        "type": "Random", "principal": format!("{}@{REALM}", names[0]),
        "additionalPrincipals": [format!("{}@{REALM}", names[1])], "secret": "pair/keytab", "sealWith": "sealing/cert.pem",
    });
    site.apply_key("pair", pair);
    // Its KDC is that of the other realm.
    let trust = format!("krbtgt/{REALM}@{OTHER_REALM}");
    let key = json!({ "password": "from there", "kvno": 7, "etypes": ["aes128-cts:normal"] });
    site.write_secret("trust", "key", &key.to_string());
    site.apply_key("trust", json!({ "type": "PresetTrust", "principal": trust, "secret": "trust/key" }));
    run_and_kill(&site, &["pair", "trust"]).await;
    let running = site.run();
    site.until_in_step("pair").await;
    site.until_in_step("trust").await;
    site.cluster.set_sealed_secrets(true).await.unwrap();
    site.until("the controller's Secret", |site| site.secret("pair", "keytab").is_some()).await;
    let keytab = site.secret("pair", "keytab").unwrap();
    for name in names {
        assert!(site.works(name, &keytab).await, "{name}");
    }
    assert_eq!(site.kdc.key_version(&trust), Some(7));
    running.stop().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_killed_at_any_time_ends_where_one_does_that_is_not() {
    let site = Site::start().await;
    let names = ["nd1/Test/A", "nd1/Test/B"];
    let spec = json!({
        "type": "Random", "principal": format!("{}@{REALM}", names[0]),
        "additionalPrincipals": [format!("{}@{REALM}", names[1])], "secret": "pair/keytab",
    });
    site.apply_key("pair", spec);
    run_and_kill(&site, &["pair"]).await;
    let running = site.run();
    site.until_in_step("pair").await;
    let keytab = site.secret("pair", "keytab").unwrap();
    for name in names {
        assert!(site.works(name, &keytab).await, "{name}");
    }
    site.delete("KerberosKey", "pair");
    site.until("the end of the resource", |site| site.get("KerberosKey", "pair").is_none()).await;
    assert_eq!(names.map(|name| site.kdc.is_enabled(name)), [Some(false); 2]);
    assert!(site.get("Secret", "pair").is_none());
    running.stop().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_realms_trust_each_other_by_one_secret() {
    let trust = format!("krbtgt/{OTHER_REALM}@{REALM}");
    let spec = |key_type: &str| json!({ "type": key_type, "principal": trust, "secret": "trust/key" });
    let (here, there) = (Site::start().await, Site::start_with(TestKdc::start_realm(OTHER_REALM)).await);
    let (running, running_there) = (here.run(), there.run());
    here.apply_key("robot", random(false));
    here.apply_key("trust", spec("Trust"));
    there.apply_key("http", json!({ "type": "Random", "principal": format!("http/Test@{OTHER_REALM}") }));
    there.apply_key("trust", spec("PresetTrust"));
    here.until_in_step("robot").await;
    here.until_in_step("trust").await;
    there.until_in_step("http").await;
    let reason = there.until_is("KerberosKey", "trust", "Refused").await;
    assert!(reason.contains("trust/key is missing"), "{reason}");

    let keytab = here.keys_directory().with_file_name("robot.keytab");
    std::fs::write(&keytab, here.secret("robot", "keytab").unwrap()).unwrap();
    let gets_ticket = || here.kdc.gets_ticket((NODE, &keytab), &there.kdc, "http/Test");
    assert!(!gets_ticket());
    let key = String::from_utf8(here.secret("trust", "key").unwrap()).unwrap();
    there.write_secret("trust", "key", &key);
    there.until_in_step("trust").await;
    assert!(gets_ticket(), "the same key is in both");
    let versions = || [here.kdc.key_version(&trust), there.kdc.key_version(&trust)];
    assert_eq!(versions(), [Some(2); 2]);

    // A restart changes nothing where the KDC can be asked, nor where it cannot.
    let changed = || [&here, &there].map(|site| site.kdc.administer(&format!("getprinc -terse {trust}")));
    let before = changed();
    running.stop().await;
    running_there.stop().await;
    let (running, running_there) = (here.run(), there.run());
    for site in [&here, &there] {
        site.apply_key("zz", json!({ "type": "Disabled", "principal": "nd1/Test/Second@X" }));
        // It is worked on after the others.
        site.until("the end of a round", |site| {
            site.get("KerberosKey", "zz").is_some_and(|key| key.pointer("/status/conditions/0").is_some())
        })
        .await;
    }
    assert_eq!(changed(), before);

    // What is wrong with a key is said by field and not shown.
    let bad = key.replace("aes256-cts-hmac-sha1-96:normal", "hunter2");
    there.write_secret("trust", "key", &bad);
    there.annotate("trust", "force-rekey", json!("true"));
    let reason = there.until_is("KerberosKey", "trust", "Failed").await;
    assert!(reason.contains("trust/key: etypes[0] must be one of"), "{reason}");
    assert!(!reason.contains("hunter2"), "{reason}");
    assert_eq!(changed(), before);

    // Another key: both realms have it when its JSON is in both.
    here.annotate("trust", "force-rekey", json!("true"));
    here.until("another key", |site| site.secret("trust", "key").is_some_and(|value| value != key.as_bytes())).await;
    let key = String::from_utf8(here.secret("trust", "key").unwrap()).unwrap();
    there.write_secret("trust", "key", &key);
    there.until("the key in the other realm", |site| site.kdc.key_version(&trust) == Some(3)).await;
    here.until_in_step("trust").await;
    there.until_in_step("trust").await;
    assert!(gets_ticket());
    running.stop().await;
    running_there.stop().await;
    here.stop().await;
    there.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_key_is_opened_by_the_controller_and_made_again_only_for_a_reason() {
    let site = Site::start().await;
    site.cluster.set_sealed_secrets(true).await.unwrap();
    let mut spec = random(false);
    spec["sealWith"] = json!("sealing/cert.pem");
    site.apply_key("robot", spec.clone());
    let config = krb_keys::Config { verify_s: 1, ..site.config() };
    let running = Running::start(config.clone());
    let reason = site.until_is("KerberosKey", "robot", "Refused").await;
    assert!(reason.contains("spec.sealWith: ConfigMap sealing has no key cert.pem"), "{reason}");
    site.write_config_map("sealing", "cert.pem", "hunter2");
    site.until("the reason", |site| {
        let robot = site.get("KerberosKey", "robot").unwrap();
        robot["status"]["conditions"][0]["message"]
            == "spec.sealWith: the sealing certificate is not an X.509 certificate in PEM"
    })
    .await;
    assert_eq!(site.kdc.key_version(NODE), Some(1), "made, but given no key");

    site.cluster.kubernetes().inject(Fault::next(3, 500).method("POST").path("/sealedsecrets"));
    site.write_config_map("sealing", "cert.pem", simulator::cluster::SEALING_CERTIFICATE);
    site.until_in_step("robot").await;
    assert_eq!(site.kdc.key_version(NODE), Some(2), "one key, though three writes failed");
    site.until("the controller's Secret", |site| site.secret("robot", "keytab").is_some()).await;
    assert!(site.works(NODE, &site.secret("robot", "keytab").unwrap()).await);

    let sealed = |site: &Site| Some(site.get("SealedSecret", "robot")?["spec"].clone());
    let before = sealed(&site).unwrap();
    running.stop().await;
    site.apply_key("zz", json!({ "type": "Disabled", "principal": format!("nd1/Test/Second@{REALM}") }));
    let running = Running::start(config);
    site.until_in_step("zz").await;
    assert_eq!((sealed(&site).unwrap(), site.kdc.key_version(NODE)), (before.clone(), Some(2)), "a restart makes none");

    // Someone gives the KDC another key; the SealedSecret goes.
    site.kdc.administer(&format!("cpw -randkey {NODE}@{REALM}"));
    site.until("another key", |site| sealed(site).is_some_and(|now| now != before)).await;
    site.until("its keytab", |site| site.secret("robot", "keytab").is_some_and(|keytab| entries(&keytab) == [4])).await;
    assert!(site.works(NODE, &site.secret("robot", "keytab").unwrap()).await);
    site.delete_sealed("robot");
    site.until("the SealedSecret", |site| sealed(site).is_some()).await;
    site.until("its keytab", |site| site.secret("robot", "keytab").is_some_and(|keytab| entries(&keytab) == [5])).await;
    assert_eq!(site.kdc.key_version(NODE), Some(5));

    // One of someone else is left alone.
    let stranger = json!({
        "apiVersion": "bitnami.com/v1alpha1", "kind": "SealedSecret",
        "metadata": { "name": "other", "namespace": site.cluster.namespace() }, "spec": { "encryptedData": { "keytab": "x" } },
    });
    site.cluster.kubernetes().apply("test", stranger).unwrap();
    let other = json!({ "type": "Password", "principal": format!("nd1/Test/Other@{REALM}"), "secret": "other/keytab", "sealWith": "sealing/cert.pem" });
    site.apply_key("other", other);
    let reason = site.until_is("KerberosKey", "other", "Refused").await;
    assert!(reason.contains("SealedSecret other is not written"), "{reason}");

    site.delete("KerberosKey", "robot");
    site.until("the end of the resource", |site| site.get("KerberosKey", "robot").is_none()).await;
    assert!(site.get("SealedSecret", "robot").is_none());
    assert_eq!(site.kdc.is_enabled(NODE), Some(false));
    running.stop().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_password_and_a_sealed_trust_are_those_of_the_kdc() {
    let site = Site::start().await;
    let running = site.run();
    site.write_config_map("sealing", "cert.pem", simulator::cluster::SEALING_CERTIFICATE);
    let trust = format!("krbtgt/{OTHER_REALM}@{REALM}");
    for (name, key_type, principal) in
        [("flux", "Password", format!("op1flux/Test@{REALM}")), ("trust", "Trust", trust.clone())]
    {
        let spec = json!({ "type": key_type, "principal": principal, "secret": format!("sealed/{name}"), "sealWith": "sealing/cert.pem" });
        site.apply_key(name, spec);
        site.until_in_step(name).await;
    }
    let label = &site.get("SealedSecret", "sealed").unwrap()["metadata"]["labels"]["app.kubernetes.io/managed-by"];
    assert_eq!(label, "krbkeys.factoryplus.app.amrc.co.uk");
    site.cluster.set_sealed_secrets(true).await.unwrap();
    let both = |site: &Site| site.secret("sealed", "flux").is_some() && site.secret("sealed", "trust").is_some();
    site.until("the controller's Secret", both).await;
    assert!(site.password_works("op1flux/Test", &site.secret("sealed", "flux").unwrap()).await);
    let key = krb_keys::trust::TrustKey::parse(&site.secret("sealed", "trust").unwrap()).unwrap();
    assert!(site.password_works(&format!("krbtgt/{OTHER_REALM}"), key.password.as_bytes()).await);
    assert_eq!(site.kdc.key_version(&trust), Some(u32::from(key.version)));
    // The end of one of two leaves the other.
    site.delete("KerberosKey", "flux");
    site.until("the end of the resource", |site| site.get("KerberosKey", "flux").is_none()).await;
    let left = site.get("SealedSecret", "sealed").unwrap()["spec"]["encryptedData"].clone();
    assert_eq!(left.as_object().unwrap().keys().collect::<Vec<_>>(), ["trust"]);
    running.stop().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_counted_and_problems_published_on_sparkplug_without_secrets() {
    let site = Site::start().await;
    let host = sparkplug_mqtt::spawn_host(HostConfig::of_contracts(None), &site.broker.config(), Clock::new());
    let mut host = host.unwrap();
    while !matches!(in_time("the host", host.recv()).await, Some(HostEvent::Online)) {}
    site.apply_key("good", random(false));
    site.apply_key(
        "bad",
        json!({ "type": "Trust", "principal": format!("nd1/Test/X@{REALM}"), "secret": "trust/key" }),
    );
    let running = site.run();
    let mut said = String::new();
    let published = async {
        loop {
            let event = host.recv().await.unwrap();
            said.push_str(&format!("{event:?}"));
            if said.contains("KerberosKey bad") && said.contains("spec.principal must be krbtgt") {
                return;
            }
        }
    };
    in_time("the problem", published).await;
    site.until_in_step("good").await;
    let reason = site.until_is("KerberosKey", "bad", "Refused").await;
    assert!(reason.contains("with a type of trust"), "{reason}");
    assert!(said.contains("Keys/Ready"), "{said}");
    running.stop().await;
    host.stop().await;
    site.stop().await;
}

/// Listens until the copy of Keys is as it should be.
async fn until(host: &mut HostHandle, keys: &mut KeysReplica, what: &str, is_so: impl Fn(&KeysReplica) -> bool) {
    let so = async {
        while !is_so(keys) {
            keys.on_event(&host.recv().await.unwrap());
        }
    };
    in_time(what, so).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_is_asked_for_recorded_when_it_is_answered_and_goes_with_its_resource() {
    const ACCOUNT: &str = "5b2e0d3c-7c3b-4c51-9a86-0f6a1c1f9a10";
    let site = Site::start().await;
    let host = sparkplug_mqtt::spawn_host(HostConfig::of_contracts(None), &site.broker.config(), Clock::new());
    let mut host = host.unwrap();
    while !matches!(in_time("the host", host.recv()).await, Some(HostEvent::Online)) {}
    let node = EdgeNodeDescriptor::parse("ACME-Test", "Keys").unwrap();
    let mut keys = KeysReplica::new(node.clone());
    let mut spec = random(false);
    spec["account"] = json!({ "class": "00da3c0b-f62b-4761-a689-39ad0c33f864", "name": "Robot", "aces": [{}] });
    site.apply_key("robot", spec);
    let running = site.run();
    site.until_is("KerberosKey", "robot", "AccountPending").await;
    until(&mut host, &mut keys, "the request", |keys| keys.is_complete() && keys.devices().contains_key("robot")).await;
    let request = keys.devices()["robot"].request.clone();
    assert_eq!((request.principal, request.name.as_deref()), (format!("{NODE}@{REALM}"), Some("Robot")));

    let request = keys.devices()["robot"].request.clone();
    let answer = |result| HostRequest::Command {
        node: node.clone(),
        device: krb_keys_contract::names::account_device("robot"),
        metrics: AccountDecision::new(&request, &result).to_metrics(),
    };
    host.request(answer(Err("not here".to_owned()))).await.unwrap();
    let reason = site.until_is("KerberosKey", "robot", "Refused").await;
    assert_eq!(reason, "the account is refused: not here");
    host.request(answer(Ok(ACCOUNT.parse().unwrap()))).await.unwrap();
    let remark = site.until_is("KerberosKey", "robot", "InStep").await;
    assert!(remark.contains("aces is ignored"), "{remark}");
    let annotations = site.get("KerberosKey", "robot").unwrap()["metadata"]["annotations"].clone();
    assert_eq!(annotations["krbkeys.factoryplus.app.amrc.co.uk/account-uuid"], ACCOUNT);
    running.stop().await;

    // A second start knows it, and asks no one.
    until(&mut host, &mut keys, "the end", |keys| !keys.is_complete()).await;
    let running = site.run();
    let shown = |keys: &KeysReplica| keys.devices().get("robot").is_some_and(|account| account.uuid.is_some());
    until(&mut host, &mut keys, "the account of before", |keys| keys.is_complete() && shown(keys)).await;
    site.delete("KerberosKey", "robot");
    until(&mut host, &mut keys, "the end of the request", |keys| keys.is_complete() && keys.devices().is_empty()).await;
    site.until("the end of the resource", |site| site.get("KerberosKey", "robot").is_none()).await;
    running.stop().await;
    host.stop().await;
    site.stop().await;
}
