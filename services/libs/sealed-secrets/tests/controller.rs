//! What is sealed here opens in a controller, under its scope and nowhere else.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use configdb_schema::document::SealingScope;
use sealed_secrets::{
    CertificateError, ManifestError, Plain, Request, SealedError, SealingCertificate, of_sealed, sealed_secret,
};
use serde_json::Value;
use simulator::kubernetes::{Kubernetes, KubernetesOptions};
use simulator::sealed_secrets::{CERTIFICATE, SealedSecrets};
use zeroize::Zeroizing;

const VALUE: &[u8] = b"pa\"ss\n\0word";

fn now() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap()
}

fn plain(key: &str, value: &[u8]) -> Plain {
    let mut session_key = [0; 32];
    aws_lc_rs::rand::fill(&mut session_key).unwrap();
    Plain { key: key.to_owned(), value: Zeroizing::new(value.to_vec()), session_key: Zeroizing::new(session_key) }
}

fn request(name: &str, scope: SealingScope) -> Request<'_> {
    Request { namespace: "fplus-edge", name, scope, secret_type: "Opaque" }
}

/// What the controller makes of it: the Secret's value `k`, or the message of its refusal.
async fn opened(object: Value) -> Result<Vec<u8>, String> {
    let kubernetes = Kubernetes::new(KubernetesOptions::default());
    let (namespace, name) = (object["metadata"]["namespace"].clone(), object["metadata"]["name"].clone());
    let (namespace, name) = (namespace.as_str().unwrap(), name.as_str().unwrap());
    kubernetes.ensure_namespace(namespace);
    let controller = SealedSecrets::start(kubernetes.clone());
    let mut changes = kubernetes.changes();
    kubernetes.apply("test", object).unwrap();
    let condition = loop {
        let seen = kubernetes.get("bitnami.com/v1alpha1", "SealedSecret", namespace, name).unwrap();
        let condition = seen["status"]["conditions"][0].clone();
        if condition.is_object() {
            break condition;
        }
        tokio::time::timeout(Duration::from_secs(60), changes.changed()).await.expect("in time").unwrap();
    };
    controller.stop().await;
    if condition["status"] != "True" {
        return Err(condition["message"].as_str().unwrap().to_owned());
    }
    let secret = kubernetes.get("v1", "Secret", namespace, name).unwrap();
    let value = secret["data"]["k"].as_str().unwrap();
    Ok(STANDARD.decode(value).unwrap())
}

#[tokio::test]
async fn a_value_of_each_scope_opens_where_it_belongs_and_nowhere_else() {
    let certificate = SealingCertificate::from_pem(CERTIFICATE, now()).unwrap();
    let moved = |mut object: Value, field: &str, to: &str| {
        object["metadata"][field] = to.into();
        object
    };
    for (scope, other_name, other_namespace) in [
        (SealingScope::Strict, false, false),
        (SealingScope::NamespaceWide, true, false),
        (SealingScope::ClusterWide, true, true),
    ] {
        let object = sealed_secret(&certificate, request("press", scope), &[plain("k", VALUE)]).unwrap();
        let text = object.to_string();
        assert!(!text.contains("word") && !text.contains(&STANDARD.encode(VALUE)), "the value is not in it");
        assert_eq!(opened(object.clone()).await.as_deref(), Ok(VALUE), "{scope:?}");
        assert_eq!(opened(moved(object.clone(), "name", "oven")).await.is_ok(), other_name, "{scope:?}");
        assert_eq!(opened(moved(object, "namespace", "other")).await.is_ok(), other_namespace, "{scope:?}");
    }
}

#[test]
fn the_same_value_never_looks_the_same() {
    let certificate = SealingCertificate::from_pem(CERTIFICATE, now()).unwrap();
    let sealed = || {
        let object = sealed_secret(&certificate, request("press", SealingScope::Strict), &[plain("k", VALUE)]).unwrap();
        object["spec"]["encryptedData"]["k"].as_str().unwrap().to_owned()
    };
    assert_ne!(sealed(), sealed());
}

#[test]
fn what_kubernetes_would_refuse_is_refused_before_anything_is_sealed() {
    let certificate = SealingCertificate::from_pem(CERTIFICATE, now()).unwrap();
    let refused = |request: Request<'_>, values: &[Plain]| sealed_secret(&certificate, request, values).unwrap_err();
    let good = request("press", SealingScope::Strict);
    let long = "a".repeat(254);
    for (request, field) in [
        (Request { name: "../etc", ..good }, "name"),
        (Request { name: "", ..good }, "name"),
        (Request { name: &long, ..good }, "name"),
        (Request { namespace: "Fplus", ..good }, "namespace"),
        (Request { namespace: "-a", ..good }, "namespace"),
        (Request { secret_type: "a b", ..good }, "type"),
    ] {
        let error = refused(request, &[plain("k", VALUE)]);
        assert!(matches!(&error, ManifestError::Name { field: named, .. } if *named == field), "{error}");
    }
    assert!(matches!(refused(good, &[plain("a/b", VALUE)]), ManifestError::Name { field: "key", .. }));
    assert_eq!(refused(good, &[]), ManifestError::Empty);
    assert_eq!(refused(good, &[plain("k", b"1"), plain("k", b"2")]), ManifestError::Twice { key: "k".to_owned() });
    let large = vec![0; 1024 * 1024 + 1];
    assert_eq!(refused(good, &[plain("k", &large)]), ManifestError::TooLarge { bytes: large.len() });
}

#[test]
fn a_certificate_that_the_controller_does_not_use_any_more_is_refused() {
    let refused = |pem: &str, now| SealingCertificate::from_pem(pem, now).unwrap_err();
    let century = Duration::from_secs(100 * 366 * 86_400);
    assert_eq!(refused(CERTIFICATE, now() + century), CertificateError::Time { rule: "has expired" });
    assert_eq!(refused(CERTIFICATE, Duration::ZERO), CertificateError::Time { rule: "is not valid yet" });
    assert_eq!(refused("no certificate", now()), CertificateError::Form);
    assert_eq!(refused(&" ".repeat(70_000), now()), CertificateError::TooLarge { bytes: 70_000 });
}

#[test]
fn what_was_sealed_elsewhere_makes_the_same_object_and_nothing_else_is_taken() {
    let certificate = SealingCertificate::from_pem(CERTIFICATE, now()).unwrap();
    for scope in [SealingScope::Strict, SealingScope::NamespaceWide, SealingScope::ClusterWide] {
        let sealed = sealed_secret(&certificate, request("s", scope), &[plain("k", VALUE)]).unwrap();
        let text = sealed["spec"]["encryptedData"]["k"].as_str().unwrap();
        assert_eq!(of_sealed(&certificate, request("s", scope), "k", text).unwrap(), sealed);
    }
    let refused = |text: &str| match of_sealed(&certificate, request("s", SealingScope::Strict), "k", text).unwrap_err()
    {
        ManifestError::Sealed { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    let bytes = |length: u16, rest: usize| STANDARD.encode([&length.to_be_bytes()[..], &vec![7; rest]].concat());
    let mebibyte = 1024 * 1024;
    for (text, reason) in [
        ("correct horse battery staple".to_owned(), SealedError::Encoding),
        (String::new(), SealedError::Form),
        (STANDARD.encode(VALUE), SealedError::Form),
        (bytes(256, 256 + 15), SealedError::Form),
        (bytes(512, 512 + 16), SealedError::Form),
        (bytes(256, 256 + 16 + mebibyte + 1), SealedError::TooLarge),
        ("A".repeat(4 * mebibyte), SealedError::TooLarge),
    ] {
        assert_eq!(refused(&text), reason);
    }
    assert!(of_sealed(&certificate, request("s", SealingScope::Strict), "k", &bytes(256, 256 + 16 + mebibyte)).is_ok());
    let text = bytes(256, 256 + 16);
    let error = of_sealed(&certificate, request("s", SealingScope::Strict), "a/b", &text).unwrap_err().to_string();
    assert!(error.starts_with("key \"a/b\" must be"), "{error}");
    let error = of_sealed(&certificate, request("S", SealingScope::Strict), "k", &text).unwrap_err().to_string();
    assert!(error.starts_with("name \"S\" must be"), "{error}");
}
