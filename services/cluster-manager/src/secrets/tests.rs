//! Files of secrets as they follow from each other. No ciphertext here is one: what is sealed is the business of the package `sealed-secrets`.

use super::*;
use serde_json::json;
use uuid::Uuid;

const EARLY: &str = "2027-01-15T08:00:00.000Z";
const LATE: &str = "2027-01-15T08:00:00.001Z";

fn value(value: Option<&str>, fingerprint: &str, at: &str) -> SealedValue {
    let sealed_for = value.map(|_| fingerprint.to_owned());
    SealedValue { value: value.map(str::to_owned), sealed_for, at: at.to_owned() }
}

fn wanted(keys: &[(&str, SealedValue)]) -> SealedSecret {
    SealedSecret {
        cluster: Uuid::nil(),
        namespace: "fplus-edge".to_owned(),
        name: "press-login".to_owned(),
        scope: SealingScope::Strict,
        secret_type: "Opaque".to_owned(),
        keys: keys.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
    }
}

fn put(before: Option<&[u8]>, key: &str, text: &str, fingerprint: &str) -> Vec<u8> {
    let file = bring(&wanted(&[(key, value(Some(text), fingerprint, EARLY))]), before).unwrap();
    assert_eq!(file.fault, None);
    file.content.unwrap()
}

fn listed(file: &[u8]) -> Vec<StoredSecret> {
    stored(&[("fplus-edge/press-login.yaml".to_owned(), file.to_vec())].into())
}

fn read(file: &[u8]) -> Value {
    serde_saphyr::from_str(std::str::from_utf8(file).unwrap()).unwrap()
}

#[test]
fn a_key_is_written_beside_the_others_and_its_certificate_is_recorded() {
    let first = put(None, "password", "AAAA", "f1");
    let second = put(Some(&first), "user", "BBBB", "f2");
    let object = read(&second);
    assert_eq!(object["spec"]["encryptedData"], json!({"password": "AAAA", "user": "BBBB"}));
    assert!(object["spec"]["template"]["metadata"].get("annotations").is_none(), "the Secret itself has no annotation");
    let secrets = listed(&second);
    let key = |fingerprint: &str| StoredKey { sealed_for: Some(fingerprint.to_owned()), at: Some(EARLY.to_owned()) };
    assert_eq!(secrets[0].keys, [("password".to_owned(), key("f1")), ("user".to_owned(), key("f2"))].into());
    assert_eq!((secrets[0].scope, secrets[0].secret_type.as_str()), (SealingScope::Strict, "Opaque"));
    let again = put(Some(&second), "password", "CCCC", "f2");
    assert_eq!(listed(&again)[0].keys["password"], key("f2"));
    assert_eq!(put(Some(&again), "password", "CCCC", "f2"), again, "the same again changes nothing");
}

#[test]
fn the_last_key_takes_the_file_with_it_and_what_is_gone_may_be_deleted_again() {
    let file = put(Some(&put(None, "password", "AAAA", "f1")), "user", "BBBB", "f1");
    let delete = |before: Option<&[u8]>, key: &str| bring(&wanted(&[(key, value(None, "", LATE))]), before).unwrap();
    let left = delete(Some(&file), "password").content.unwrap();
    assert_eq!(listed(&left)[0].keys.keys().collect::<Vec<_>>(), ["user"]);
    let gone = WantedFile { content: None, fault: None };
    assert_eq!((delete(Some(&left), "user"), delete(None, "user")), (gone.clone(), gone));
    assert_eq!(delete(Some(&left), "password").content.unwrap(), left);
}

#[test]
fn what_a_backup_brings_goes_over_nothing_later() {
    let late = bring(&wanted(&[("password", value(Some("NEW"), "f2", LATE))]), None).unwrap().content.unwrap();
    let backup = wanted(&[("password", value(Some("OLD"), "f1", EARLY)), ("user", value(Some("USER"), "f1", EARLY))]);
    let file = bring(&backup, Some(&late)).unwrap();
    let content = file.content.unwrap();
    assert_eq!(read(&content)["spec"]["encryptedData"], json!({"password": "NEW", "user": "USER"}));
    let fault = file.fault.unwrap().to_string();
    assert!(fault.starts_with("the repository has later values of fplus-edge/press-login (password)"), "{fault}");
    let deleted = wanted(&[("password", value(None, "", EARLY))]);
    assert_eq!(bring(&deleted, Some(&late)).unwrap().content.unwrap(), late, "nor does it delete");
}

#[test]
fn a_key_with_another_scope_or_type_is_refused_while_others_share_it() {
    let file = put(None, "password", "AAAA", "f1");
    let mut wide = wanted(&[("user", value(Some("BBBB"), "f1", LATE))]);
    wide.scope = SealingScope::ClusterWide;
    let error = bring(&wide, Some(&file)).unwrap_err().to_string();
    assert!(error.starts_with("fplus-edge/press-login is in the repository with scope strict, not cluster"), "{error}");
    wide.keys.insert("password".to_owned(), value(Some("CCCC"), "f1", LATE));
    let all = bring(&wide, Some(&file)).unwrap().content.unwrap();
    assert_eq!(listed(&all)[0].scope, SealingScope::ClusterWide, "all its keys are written");
    let typed = SealedSecret { secret_type: "kubernetes.io/tls".to_owned(), ..wide };
    assert_eq!(listed(&bring(&typed, None).unwrap().content.unwrap())[0].secret_type, "kubernetes.io/tls");
}

#[test]
fn a_file_of_another_make_keeps_its_keys_and_a_foreign_one_is_neither_changed_nor_listed() {
    let made =
        "kind: SealedSecret\nmetadata: {name: press-login, namespace: fplus-edge}\nspec: {encryptedData: {old: XXXX}}";
    assert_eq!(listed(made.as_bytes())[0].keys["old"], StoredKey::default());
    let both = put(Some(made.as_bytes()), "password", "AAAA", "f1");
    assert_eq!(read(&both)["spec"]["encryptedData"], json!({"old": "XXXX", "password": "AAAA"}));
    for (text, reason) in [
        ("a: [", "not YAML"),
        ("kind: ConfigMap", "another kind"),
        ("kind: SealedSecret\nmetadata: {name: other, namespace: fplus-edge}", "another name"),
        ("kind: SealedSecret\nmetadata: {name: press-login, namespace: fplus-edge}", "no encryptedData"),
    ] {
        let error = bring(&wanted(&[("k", value(None, "", LATE))]), Some(text.as_bytes())).unwrap_err();
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
        let mut secret = wanted(&[(key, value(Some("AAAA"), "f1", EARLY))]);
        (secret.namespace, secret.name) = (namespace.to_owned(), name.to_owned());
        assert!(bring(&secret, None).is_err(), "{namespace} {name} {key}");
    }
    assert_eq!(path(&wanted(&[])).unwrap(), "fplus-edge/press-login.yaml");
}

#[test]
fn a_large_value_is_read_again_and_a_larger_one_is_refused() {
    let large = "QUJD".repeat(350_000);
    let file = put(None, "password", &large, "f1");
    let file = put(Some(&file), "user", "BBBB", "f1");
    assert_eq!(listed(&file)[0].keys.len(), 2);
    let more = wanted(&[("more", value(Some(&large), "f1", EARLY))]);
    assert!(matches!(bring(&more, Some(&file)), Err(SecretFault::TooLarge { .. })));
}
