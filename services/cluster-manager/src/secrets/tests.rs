//! Files of secrets as they follow from each other. No ciphertext here is one: what is sealed is the business of the package `sealed-secrets`.

use super::*;
use serde_json::json;

fn key(key: &str) -> SecretKey {
    SecretKey::new("fplus-edge", "press-login", key).unwrap()
}

/// As the package `sealed-secrets` makes it.
fn sealed(key: &str, ciphertext: &str, scope: Scope) -> Box<Value> {
    let mut metadata = json!({"name": "press-login", "namespace": "fplus-edge"});
    if let Some(annotation) = scope.annotation() {
        metadata["annotations"] = json!({ annotation: "true" });
    }
    Box::new(json!({"apiVersion": "bitnami.com/v1alpha1", "kind": "SealedSecret", "metadata": metadata,
        "spec": {"encryptedData": {key: ciphertext}, "template": {"metadata": metadata, "type": "Opaque"}}}))
}

fn put(before: Option<&[u8]>, name: &str, text: &str, fingerprint: &str) -> Vec<u8> {
    let sealed = sealed(name, text, Scope::Strict);
    let change = SecretChange::Put { key: key(name), sealed, fingerprint: fingerprint.to_owned() };
    change.apply(before).unwrap().unwrap()
}

fn listed(file: &[u8]) -> Vec<StoredSecret> {
    stored(&[("fplus-edge/press-login.yaml".to_owned(), file.to_vec())].into())
}

#[test]
fn a_key_is_written_beside_the_others_and_its_certificate_is_recorded() {
    let first = put(None, "password", "AAAA", "f1");
    let second = put(Some(&first), "user", "BBBB", "f2");
    let object: Value = serde_saphyr::from_str(std::str::from_utf8(&second).unwrap()).unwrap();
    assert_eq!(object["spec"]["encryptedData"], json!({"password": "AAAA", "user": "BBBB"}));
    assert!(object["spec"]["template"]["metadata"].get("annotations").is_none(), "the Secret itself has no annotation");
    let secrets = listed(&second);
    let keys = [("password".to_owned(), Some("f1".to_owned())), ("user".to_owned(), Some("f2".to_owned()))];
    assert_eq!(secrets[0].keys, keys.into());
    assert_eq!((secrets[0].scope, secrets[0].secret_type.as_str()), ("strict", "Opaque"));
    let again = put(Some(&second), "password", "CCCC", "f2");
    assert_eq!(listed(&again)[0].keys["password"].as_deref(), Some("f2"));
}

#[test]
fn the_last_key_takes_the_file_with_it() {
    let file = put(Some(&put(None, "password", "AAAA", "f1")), "user", "BBBB", "f1");
    let delete = |before: Option<&[u8]>, name: &str| SecretChange::Delete { key: key(name) }.apply(before);
    let left = delete(Some(&file), "password").unwrap().unwrap();
    assert_eq!(listed(&left)[0].keys.keys().collect::<Vec<_>>(), ["user"]);
    assert_eq!(delete(Some(&left), "user"), Ok(None));
    let missing = SecretFault::Missing("fplus-edge/press-login/password".to_owned());
    assert_eq!(delete(Some(&left), "password"), Err(missing.clone()));
    assert_eq!(delete(None, "password"), Err(missing));
}

#[test]
fn a_key_with_another_scope_or_type_is_refused_because_all_share_it() {
    let file = put(None, "password", "AAAA", "f1");
    let sealed = sealed("user", "BBBB", Scope::ClusterWide);
    let change = SecretChange::Put { key: key("user"), sealed, fingerprint: "f1".to_owned() };
    let error = change.apply(Some(&file)).unwrap_err().to_string();
    assert!(error.starts_with("fplus-edge/press-login is there with scope strict, not cluster-wide"), "{error}");
}

#[test]
fn a_foreign_file_is_neither_changed_nor_listed() {
    for (text, reason) in [
        ("a: [", "not YAML"),
        ("kind: ConfigMap", "another kind"),
        ("kind: SealedSecret\nmetadata: {name: other, namespace: fplus-edge}", "another name"),
        ("kind: SealedSecret\nmetadata: {name: press-login, namespace: fplus-edge}", "no encryptedData"),
    ] {
        let error = SecretChange::Delete { key: key("k") }.apply(Some(text.as_bytes())).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(listed(text.as_bytes()), []);
    }
}

#[test]
fn names_that_could_leave_the_directory_are_refused() {
    for (namespace, name, key) in [
        ("..", "a", "k"),
        ("a/b", "a", "k"),
        ("a", "../../x", "k"),
        ("a", "..", "k"),
        ("a", "b", "../k"),
        ("a", "b", ""),
        ("", "b", "k"),
        ("a", "b\0", "k"),
    ] {
        assert!(SecretKey::new(namespace, name, key).is_err(), "{namespace} {name} {key}");
    }
    assert_eq!(key("k").path(), "edo/secrets/fplus-edge/press-login.yaml");
}

#[test]
fn a_large_value_is_read_again_and_a_larger_one_is_refused() {
    let large = "QUJD".repeat(350_000);
    let file = put(None, "password", &large, "f1");
    let file = put(Some(&file), "user", "BBBB", "f1");
    assert_eq!(listed(&file)[0].keys.len(), 2);
    let sealed = sealed("more", &large, Scope::Strict);
    let change = SecretChange::Put { key: key("more"), sealed, fingerprint: "f1".to_owned() };
    assert!(matches!(change.apply(Some(&file)), Err(SecretFault::TooLarge { .. })));
}
