//! The client against a real KDC.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

#[allow(dead_code, reason = "tests of other packages look at more")]
#[path = "support/kdc.rs"]
mod kdc;

use kdc::{OTHER_REALM, REALM, TestKdc};
use kerberos_client::{EncryptionType, Kdc, KdcError, Presence, Principal};
use tempfile::TempDir;

fn principal(name: &str) -> Principal {
    format!("{name}@{REALM}").parse().unwrap()
}

fn client(kdc: &TestKdc) -> (Kdc, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    (Kdc::open(kdc.config(), &directory.path().join("keys")).unwrap(), directory)
}

#[tokio::test]
async fn a_principal_is_made_once_disabled_and_enabled() {
    let kdc = TestKdc::start();
    let (client, _directory) = client(&kdc);
    let node = principal("nd1/Test/Robot");
    assert_eq!(client.presence(&node).await, Ok(Presence::Absent));
    client.create(&node).await.unwrap();
    client.create(&node).await.unwrap();
    assert_eq!(client.presence(&node).await, Ok(Presence::Enabled));
    client.allow(&node, false).await.unwrap();
    assert_eq!(client.presence(&node).await, Ok(Presence::Disabled));
    client.allow(&node, true).await.unwrap();
    assert_eq!(client.presence(&node).await, Ok(Presence::Enabled));
    assert_eq!(kdc.key_version("nd1/Test/Robot"), Some(1));
    let foreign = client.create(&principal("nd1/Other/Robot")).await;
    assert!(matches!(&foreign, Err(KdcError::Refused(text)) if text.contains("privilege")), "{foreign:?}");
}

#[tokio::test]
async fn keys_and_passwords_are_valid_until_there_are_others() {
    let kdc = TestKdc::start();
    let (client, directory) = client(&kdc);
    let (node, other) = (principal("nd1/Test/Robot"), principal("nd1/Test/Other"));
    for principal in [&node, &other] {
        client.create(principal).await.unwrap();
    }
    let first = client.new_keys(&[node.clone(), other.clone()]).await.unwrap();
    assert_eq!(client.is_keytab_valid(&node, &first).await, Ok(true));
    assert_eq!(client.is_keytab_valid(&other, &first).await, Ok(true));
    let second = client.new_keys(std::slice::from_ref(&node)).await.unwrap();
    assert_eq!(client.is_keytab_valid(&node, &first).await, Ok(false));
    assert_eq!(client.is_keytab_valid(&other, &second).await, Ok(false), "it is not in there");
    client.set_password(&node, b"-pw \"quoted\" \\ $(x)").await.unwrap();
    assert_eq!(client.is_password_valid(&node, b"-pw \"quoted\" \\ $(x)").await, Ok(true));
    assert_eq!(client.is_password_valid(&node, b"another").await, Ok(false));
    assert_eq!(client.is_keytab_valid(&node, &second).await, Ok(false));
    assert!(matches!(client.set_password(&node, b"two\nlines").await, Err(KdcError::Password(_))));
    let left = std::fs::read_dir(directory.path().join("keys")).unwrap().count();
    assert_eq!(left, 0, "files with keys");
}

#[tokio::test]
async fn two_realms_with_the_same_keys_trust_each_other() {
    let (ours, theirs) = (TestKdc::start(), TestKdc::start_realm(OTHER_REALM));
    let ((here, directory), (there, _directory)) = (client(&ours), client(&theirs));
    let trust: Principal = format!("krbtgt/{OTHER_REALM}@{REALM}").parse().unwrap();
    let user = principal("nd1/Test/Robot");
    here.create(&user).await.unwrap();
    let keytab = directory.path().join("robot.keytab");
    std::fs::write(&keytab, here.new_keys(std::slice::from_ref(&user)).await.unwrap()).unwrap();
    there.create(&format!("http/Test@{OTHER_REALM}").parse().unwrap()).await.unwrap();
    let gets_ticket = || ours.gets_ticket(("nd1/Test/Robot", &keytab), &theirs, "http/Test");
    assert!(!gets_ticket(), "there is no trust");

    for kdc in [&here, &there] {
        kdc.create(&trust).await.unwrap();
    }
    let types: Vec<EncryptionType> = ["aes256-sha2", "aes128-cts"].map(|name| name.parse().unwrap()).into();
    let password = b"one \"quoted\" secret";
    let info = here.set_keys(&trust, password, 300, &types).await.unwrap();
    assert!(info.is_exactly(300, &types) && here.key_info(&trust).await == Ok(info.clone()), "{info:?}");
    assert_eq!(info.types(), types, "in that order");
    assert!(here.is_home(&trust) && !there.is_home(&trust));
    assert_eq!(here.is_password_valid(&trust, password).await, Ok(true));
    assert_eq!(here.is_password_valid(&trust, b"another").await, Ok(false));
    there.set_keys(&trust, b"another", 300, &types).await.unwrap();
    assert!(!gets_ticket(), "they have different keys");
    there.set_keys(&trust, password, 300, &types).await.unwrap();
    assert!(gets_ticket());
    let own: Result<Principal, _> = format!("krbtgt/{REALM}@{REALM}").parse();
    assert!(own.is_err(), "the key of all tickets");
}

#[tokio::test]
async fn an_outage_says_nothing_about_a_key() {
    let mut kdc = TestKdc::start();
    let (client, _directory) = client(&kdc);
    let node = principal("nd1/Test/Robot");
    client.create(&node).await.unwrap();
    let keys = client.new_keys(std::slice::from_ref(&node)).await.unwrap();
    kdc.stop();
    let unreachable = |error: Option<KdcError>| assert!(matches!(&error, Some(KdcError::Unreachable(_))), "{error:?}");
    unreachable(client.is_keytab_valid(&node, &keys).await.err());
    unreachable(client.is_password_valid(&node, b"x").await.err());
    unreachable(client.presence(&node).await.err());
    unreachable(client.new_keys(std::slice::from_ref(&node)).await.err());
    unreachable(client.key_info(&node).await.err());
    kdc.run();
    assert_eq!(client.is_keytab_valid(&node, &keys).await, Ok(true));
}
