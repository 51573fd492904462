//! Secrets in a cluster's repository, over the cluster manager's HTTP API. A value is sealed here: the cluster manager gets nothing else.

use std::io::IsTerminal as _;
use std::path::Path;

use anyhow::anyhow;
use hyper::Method;
use sealed_secrets::{Request, check_key, check_names, fingerprint};
use serde::Deserialize;
use serde_json::{Value, json};
use service_runtime::exit;

use super::sealing;
use crate::arguments::secret::{ApiOptions, Place, PutArguments};
use crate::http_api::{Api, ClusterRow};
use crate::output::{self, Table};
use crate::usage_error::usage;

/// What values are sealed with for a cluster.
#[derive(Deserialize)]
struct Certificate {
    certificate: String,
}

/// The secrets in a repository.
#[derive(Deserialize)]
struct Secrets {
    #[serde(default)]
    fingerprint: Option<String>,
    secrets: Vec<Secret>,
}

#[derive(Deserialize)]
struct Secret {
    namespace: String,
    name: String,
    scope: String,
    #[serde(rename = "type")]
    secret_type: String,
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    key: String,
    seal_again: bool,
}

/// Seals a value and writes it.
///
/// # Errors
/// As documented for the exit codes.
pub(super) async fn put(arguments: PutArguments) -> anyhow::Result<()> {
    let PutArguments { place, key, file, fingerprint: pinned, scope, secret_type, dry_run, api: options } = arguments;
    check_names(&place.namespace, &place.name).and_then(|()| check_key(&key)).map_err(|error| usage(error.into()))?;
    if file == Path::new("-") && std::io::stdin().is_terminal() {
        let help = "pipe the value in, or name a file with --file";
        return Err(usage(anyhow!("standard input is a terminal, which shows what is typed: {help}")));
    }
    let api = Api::open(&options)?;
    let cluster = api.cluster(&place.cluster).await?;
    let path = format!("/v1/cluster/{}/sealing-certificate", cluster.uuid);
    let Certificate { certificate } = api.get(&path).await?;
    let used = used_certificate(&certificate, pinned.as_deref(), &cluster)?;
    let value = sealing::read_value(&key, &file)?;
    let (namespace, name) = (place.namespace.as_str(), place.name.as_str());
    let request = Request { namespace, name, scope: scope.into(), secret_type: &secret_type };
    let sealed = sealing::seal(&certificate, request, &[value])?;
    let sealed = sealed["spec"]["encryptedData"][&key].as_str().unwrap_or_default().to_owned();
    let query = format!(
        "fingerprint={used}&scope={}&type={secret_type}{}",
        sealed_secrets::Scope::from(scope).name(),
        dry(dry_run, "&")
    );
    let path = format!("/v1/cluster/{}/sealed-secret/{namespace}/{name}/{key}?{query}", cluster.uuid);
    api.send(Method::PUT, &path, sealed).await?;
    let value = json!({ "cluster": cluster.name, "namespace": namespace, "name": name, "key": key, "fingerprint": used,
        "pinned": pinned.is_some(), "dry_run": dry_run });
    let how =
        if pinned.is_some() { "which was asked for".to_owned() } else { format!("not pinned: --fingerprint {used}") };
    let done = if dry_run { "could be written" } else { "written" };
    let lines = || {
        vec![
            format!("{namespace}/{name}/{key} {done} for {}", cluster.name),
            format!("sealed for certificate {used} ({how})"),
        ]
    };
    output::print(options.presentation.output, lines, &value)
}

/// The fingerprint of the certificate that is sealed for, if it is the one that it should be.
fn used_certificate(pem: &str, pinned: Option<&str>, cluster: &ClusterRow) -> anyhow::Result<String> {
    let name = &cluster.name;
    let used =
        fingerprint(pem).ok_or_else(|| anyhow!("what the cluster manager gives for {name} is not a certificate"))?;
    match pinned {
        Some(pinned) if pinned != used => {
            let help = "nothing was sent; ask the administrator of the cluster which one is right";
            let error = anyhow!("the certificate of {name} is {used}, and --fingerprint asks for {pinned}: {help}");
            Err(exit::with_code(exit::REFUSED, error))
        }
        _ => Ok(used),
    }
}

fn dry(dry_run: bool, before: &str) -> String {
    if dry_run { format!("{before}dryrun") } else { String::new() }
}

/// Lists the secrets.
///
/// # Errors
/// As documented for the exit codes.
pub(super) async fn list(cluster: &str, options: &ApiOptions) -> anyhow::Result<()> {
    let api = Api::open(options)?;
    let cluster = api.cluster(cluster).await?;
    let value: Value = api.get(&format!("/v1/cluster/{}/secrets", cluster.uuid)).await?;
    let secrets = Secrets::deserialize(&value).map_err(|error| anyhow!("the list cannot be read: {error}"))?;
    output::print(options.presentation.output, || lines(&secrets, &cluster.name), &value)
}

fn lines(secrets: &Secrets, cluster: &str) -> Vec<String> {
    let mut table = Table::new(&["NAMESPACE", "NAME", "SCOPE", "TYPE", "KEYS", "PUT AGAIN"]);
    for secret in &secrets.secrets {
        let keys = |of: &dyn Fn(&Key) -> bool| {
            secret.keys.iter().filter(|key| of(key)).map(|key| key.key.as_str()).collect::<Vec<_>>().join(",")
        };
        let (all, again) = (keys(&|_| true), keys(&|key| key.seal_again));
        table.row([&secret.namespace, &secret.name, &secret.scope, &secret.secret_type, &all, &again]);
    }
    let certificate = match &secrets.fingerprint {
        Some(fingerprint) => format!("{cluster} seals for certificate {fingerprint}"),
        None => format!("{cluster} has published no sealing certificate yet"),
    };
    [table.shown(), vec![certificate]].concat()
}

/// Deletes keys of a Secret, one after the other.
///
/// # Errors
/// As documented for the exit codes; keys before the one that it is about are deleted.
pub(super) async fn delete(place: &Place, keys: &[String], dry_run: bool, options: &ApiOptions) -> anyhow::Result<()> {
    let Place { cluster, name, namespace } = place;
    check_names(namespace, name)
        .and_then(|()| keys.iter().try_for_each(|key| check_key(key)))
        .map_err(|error| usage(error.into()))?;
    let api = Api::open(options)?;
    let cluster = api.cluster(cluster).await?;
    for key in keys {
        let path = format!("/v1/cluster/{}/secret/{namespace}/{name}/{key}{}", cluster.uuid, dry(dry_run, "?"));
        api.send(Method::DELETE, &path, String::new()).await?;
    }
    let done = if dry_run { "could be deleted" } else { "deleted" };
    let value =
        json!({ "cluster": cluster.name, "namespace": namespace, "name": name, "keys": keys, "dry_run": dry_run });
    let lines = || keys.iter().map(|key| format!("{namespace}/{name}/{key} {done} for {}", cluster.name)).collect();
    output::print(options.presentation.output, lines, &value)
}

#[cfg(test)]
mod tests;
