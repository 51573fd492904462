//! Secrets of a repository: what is shown of them, and what is sent.

use super::*;
use crate::arguments::Command;
use crate::arguments::secret::SecretCommand;
use crate::served::{Answer, Served};

#[test]
fn the_list_names_the_keys_that_are_to_be_put_again() {
    let value = json!({"fingerprint": "f1", "secrets": [{"namespace": "n", "name": "s", "scope": "strict", "type": "Opaque",
        "keys": [{"key": "a", "seal_again": false}, {"key": "b", "seal_again": true}]}]});
    let secrets = Secrets::deserialize(&value).unwrap();
    let shown = lines(&secrets, "Paint_Shop");
    assert_eq!(shown[1].split_whitespace().collect::<Vec<_>>(), ["n", "s", "strict", "Opaque", "a,b", "b"]);
    assert_eq!(shown[2], "Paint_Shop seals for certificate f1");
}

#[test]
fn another_certificate_than_the_one_that_is_asked_for_is_refused() {
    let pem = simulator::sealed_secrets::CERTIFICATE;
    let cluster = ClusterRow { uuid: uuid::Uuid::nil(), name: "Paint_Shop".to_owned() };
    let own = fingerprint(pem).unwrap();
    assert_eq!(used_certificate(pem, None, &cluster).unwrap(), own);
    assert_eq!(used_certificate(pem, Some(&own), &cluster).unwrap(), own);
    let error = used_certificate(pem, Some(&"0f".repeat(32)), &cluster).unwrap_err();
    assert!(exit::code_of(&error) == exit::REFUSED && error.to_string().contains(&own), "{error}");
    assert!(used_certificate("no certificate", None, &cluster).is_err());
}

const CLUSTER: &str = "00000000-0000-0000-0000-0000000000c1";
const VALUE: &str = "correct horse battery staple";

fn clusters() -> Answer {
    ("/v1/clusters", 200, json!([{ "uuid": CLUSTER, "name": "Paint_Shop" }]).to_string())
}

/// Carries out a line with a token and a value in files.
async fn carried_out(served: &Served, line: &str) -> anyhow::Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (token, value) = (file("token", "sfp_abc\n"), file("value", VALUE));
    let line = line.replace("@value", &value);
    let options = ["--token-file", &token, "--url", &served.address];
    let words = ["sparkfleet", "secret"].into_iter().chain(line.split(' ')).chain(options);
    match crate::arguments::parsed(words)? {
        Command::Secret(SecretCommand::Put(arguments)) => put(arguments).await,
        Command::Secret(SecretCommand::List { cluster, api }) => list(&cluster, &api).await,
        Command::Secret(SecretCommand::Delete { place, keys, dry_run, api }) => {
            delete(&place, &keys, dry_run, &api).await
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_value_leaves_this_machine_only_sealed_and_with_what_it_is_bound_to() {
    let pem = simulator::sealed_secrets::CERTIFICATE;
    let certificate: Answer = (
        "/v1/cluster/00000000-0000-0000-0000-0000000000c1/sealing-certificate",
        200,
        json!({ "certificate": pem }).to_string(),
    );
    let written: Answer = (
        "/v1/cluster/00000000-0000-0000-0000-0000000000c1/sealed-secret/fplus-edge/press/password",
        200,
        "{}".to_owned(),
    );
    let served = Served::start(vec![clusters(), certificate, written]).await;
    carried_out(&served, "put Paint_Shop press password --file @value --scope cluster-wide --dry-run").await.unwrap();
    let asked = served.asked();
    assert!(asked.iter().all(|request| request.to_lowercase().contains("authorization: bearer sfp_abc")));
    assert!(!asked.concat().contains(VALUE));
    let own = fingerprint(pem).unwrap();
    let last = served.targets().pop().unwrap();
    assert!(last.starts_with("PUT ") && last.contains(&format!("?fingerprint={own}&scope=cluster-wide")), "{last}");
    assert!(last.ends_with("&type=Opaque&dryrun"), "{last}");
    let (_, sealed) = asked.last().unwrap().split_once("\r\n\r\n").unwrap();
    assert!(sealed.len() > 300, "{sealed}");
}

#[tokio::test]
async fn nothing_is_sent_for_a_certificate_that_is_not_the_one_that_was_asked_for() {
    let certificate: Answer = (
        "/v1/cluster/00000000-0000-0000-0000-0000000000c1/sealing-certificate",
        200,
        json!({ "certificate": simulator::sealed_secrets::CERTIFICATE }).to_string(),
    );
    let served = Served::start(vec![clusters(), certificate]).await;
    let line = format!("put Paint_Shop press password --file @value --fingerprint {}", "0f".repeat(32));
    let error = carried_out(&served, &line).await.unwrap_err();
    assert_eq!(exit::code_of(&error), exit::REFUSED);
    assert!(!served.targets().iter().any(|target| target.starts_with("PUT")));
}

#[tokio::test]
async fn keys_are_deleted_one_after_the_other_and_a_bad_name_is_not_sent() {
    let path = |key: &str| format!("/v1/cluster/{CLUSTER}/secret/shop/press/{key}");
    let served = Served::start(vec![
        clusters(),
        ("/v1/cluster/00000000-0000-0000-0000-0000000000c1/secret/shop/press/a", 200, String::new()),
        (
            "/v1/cluster/00000000-0000-0000-0000-0000000000c1/secret/shop/press/b",
            404,
            r#"{"error":"there is no key b"}"#.to_owned(),
        ),
    ])
    .await;
    let error = carried_out(&served, "delete Paint_Shop press a b c --namespace shop").await.unwrap_err();
    assert!(exit::code_of(&error) == exit::REFUSED && error.to_string() == "there is no key b", "{error}");
    let deleted: Vec<String> = ["a", "b"].map(|key| format!("DELETE {}", path(key))).to_vec();
    assert_eq!(served.targets()[1..], deleted, "what comes after a refusal is not tried");
    for line in
        ["delete Paint_Shop press ../x", "delete Paint_Shop Press a", "delete Paint_Shop press a --namespace A_B"]
    {
        assert_eq!(exit::code_of(&carried_out(&served, line).await.unwrap_err()), exit::USAGE, "{line}");
    }
    assert_eq!(served.targets().len(), 3);
}

#[tokio::test]
async fn a_cluster_that_the_token_is_not_for_is_not_found_and_a_list_that_is_none_not_shown() {
    let secrets: Answer =
        ("/v1/cluster/00000000-0000-0000-0000-0000000000c1/secrets", 200, json!({ "secrets": [{}] }).to_string());
    let served = Served::start(vec![clusters(), secrets]).await;
    let error = carried_out(&served, "list Paint_Shp").await.unwrap_err();
    assert_eq!(exit::code_of(&error), exit::NOT_FOUND);
    let text = format!("{error:#}");
    assert!(text.contains("among the clusters that the token is for") && text.contains("\"Paint_Shop\""), "{text}");
    let error = carried_out(&served, "list Paint_Shop").await.unwrap_err();
    assert!(error.to_string().contains("the list cannot be read"), "{error}");
}
