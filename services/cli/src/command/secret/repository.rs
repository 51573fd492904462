//! Secrets in a cluster's repository, by entries of ConfigDB. A value is sealed here: nothing else leaves this machine.

use std::io::IsTerminal as _;
use std::path::Path;

use anyhow::anyhow;
use fleet_view::requests::{self, NewSecretValue, SecretPlace};
use fleet_view::{ClusterRow, Fleet, SecretKeyRow, SecretRow, SecretState};
use sealed_secrets::{Request, check_key, check_names, fingerprint};
use serde_json::{Value, json};
use service_runtime::exit;
use uuid::Uuid;

use super::{certificate_of, sealing};
use crate::arguments::secret::{PutArguments, SecretRef};
use crate::client::{Client, Scope, author};
use crate::look_up;
use crate::options::Options;
use crate::output::{self, Table};
use crate::usage_error::{of_request, usage};

/// What a list shows.
#[derive(Debug)]
struct Secrets {
    /// Of the certificate that the cluster has; None: it has reported none.
    fingerprint: Option<String>,
    /// Why something is not in the repository.
    reason: Option<String>,
    secrets: Vec<SecretRow>,
}

impl Secrets {
    fn of(fleet: &Fleet, cluster: Uuid) -> Self {
        Self {
            fingerprint: fleet.sealing_certificate(cluster).and_then(|pem| fingerprint(&pem)),
            reason: fleet.secrets_reason(cluster).map(str::to_owned),
            secrets: fleet.secrets(cluster),
        }
    }

    /// Whether the cluster has another certificate than the one that a key was sealed for.
    fn is_to_be_sealed_again(&self, key: &SecretKeyRow) -> bool {
        self.fingerprint.is_some() && key.fingerprint != self.fingerprint
    }

    /// For programs: the rows, each key with whether it is to be sealed again.
    fn value(&self) -> Value {
        let key = |key: &SecretKeyRow| {
            let mut value = json!(key);
            value["seal_again"] = json!(self.is_to_be_sealed_again(key));
            value
        };
        let secret = |secret: &SecretRow| {
            let mut value = json!(secret);
            value["keys"] = secret.keys.iter().map(key).collect();
            value
        };
        let secrets: Vec<Value> = self.secrets.iter().map(secret).collect();
        json!({ "fingerprint": self.fingerprint, "reason": self.reason, "secrets": secrets })
    }

    fn lines(&self, cluster: &str) -> Vec<String> {
        let mut table = Table::new(&["NAMESPACE", "NAME", "SCOPE", "TYPE", "KEYS", "NOT YET", "PUT AGAIN"]);
        for secret in &self.secrets {
            let keys = |of: &dyn Fn(&SecretKeyRow) -> bool| {
                secret.keys.iter().filter(|key| of(key)).map(|key| key.key.as_str()).collect::<Vec<_>>().join(",")
            };
            let all = keys(&|_| true);
            let (not_yet, again) =
                (keys(&|key| key.state != SecretState::Written), keys(&|key| self.is_to_be_sealed_again(key)));
            let scope = secret.scope.as_str();
            table.row([&secret.namespace, &secret.name, scope, &secret.secret_type, &all, &not_yet, &again]);
        }
        let certificate = match &self.fingerprint {
            Some(fingerprint) => format!("{cluster} seals for certificate {fingerprint}"),
            None => format!("{cluster} has published no sealing certificate yet"),
        };
        let reason = self.reason.iter().map(|reason| format!("not in the repository: {reason}"));
        [table.shown(), reason.chain([certificate]).collect()].concat()
    }
}

/// Seals a value and writes it.
///
/// # Errors
/// As documented for the exit codes.
pub(super) async fn put(arguments: PutArguments) -> anyhow::Result<()> {
    let PutArguments { place, key, file, fingerprint: pinned, scope, secret_type, dry_run, no_wait, options } =
        arguments;
    check_names(&place.namespace, &place.name).and_then(|()| check_key(&key)).map_err(|error| usage(error.into()))?;
    if file == Path::new("-") && std::io::stdin().is_terminal() {
        let help = "pipe the value in, or name a file with --file";
        return Err(usage(anyhow!("standard input is a terminal, which shows what is typed: {help}")));
    }
    let mut client = Client::open(&options, Scope::Managed).await?;
    let cluster = look_up::cluster(&client.fleet, &place.cluster)?;
    let pem = certificate_of(&client.fleet, &cluster)?;
    let used = used_certificate(&pem, pinned.as_deref(), &cluster)?;
    let value = sealing::read_value(&key, &file)?;
    let (namespace, name) = (place.namespace.as_str(), place.name.as_str());
    let request = Request { namespace, name, scope: scope.into(), secret_type: &secret_type };
    let sealed = sealing::seal(&pem, request, &[value])?;
    let sealed = sealed["spec"]["encryptedData"][&key].as_str().unwrap_or_default();
    let wanted = NewSecretValue {
        place: SecretPlace { cluster: cluster.uuid, namespace, name },
        scope: scope.into(),
        secret_type: &secret_type,
        key: &key,
        sealed,
        fingerprint: &used,
    };
    let request = requests::put_secret_value(&client.fleet, wanted, client.wall(), author()).map_err(of_request)?;
    if !dry_run {
        client.write(request).await?;
        if !no_wait {
            arrived(&mut client, cluster.uuid, (namespace, name), std::slice::from_ref(&key)).await?;
        }
    }
    client.close().await;
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

/// Waits until the repository has what ConfigDB has of these keys.
async fn arrived(
    client: &mut Client,
    cluster: Uuid,
    (namespace, name): (&str, &str),
    keys: &[String],
) -> anyhow::Result<()> {
    let waits = |fleet: &Fleet| {
        let rows = fleet.secrets(cluster);
        let row = rows.into_iter().find(|row| row.namespace == namespace && row.name == name);
        let open = row.into_iter().flat_map(|row| row.keys);
        let mut open = open.filter(|key| keys.contains(&key.key) && key.state != SecretState::Written);
        open.next().is_some()
    };
    let stands = |fleet: &Fleet| {
        let reason = fleet.secrets_reason(cluster).map(|reason| format!("the cluster manager says: {reason}"));
        reason.filter(|_| waits(fleet))
    };
    let what = "the cluster manager to write it into the repository; ConfigDB has it, so that it comes there by itself";
    client.until_or(what, |fleet| (!waits(fleet)).then_some(()), stands).await
}

/// The fingerprint of the certificate that is sealed for, if it is the one that it should be.
fn used_certificate(pem: &str, pinned: Option<&str>, cluster: &ClusterRow) -> anyhow::Result<String> {
    let name = &cluster.name;
    let used = fingerprint(pem).ok_or_else(|| anyhow!("what is known as the certificate of {name} is none"))?;
    match pinned {
        Some(pinned) if pinned != used => {
            let help = "nothing was sent; ask the administrator of the cluster which one is right";
            let error = anyhow!("the certificate of {name} is {used}, and --fingerprint asks for {pinned}: {help}");
            Err(exit::with_code(exit::REFUSED, error))
        }
        _ => Ok(used),
    }
}

/// Lists the secrets.
///
/// # Errors
/// As documented for the exit codes.
pub(super) async fn list(cluster: &str, options: &Options) -> anyhow::Result<()> {
    let client = Client::open(options, Scope::Managed).await?;
    let cluster = look_up::cluster(&client.fleet, cluster)?;
    let secrets = Secrets::of(&client.fleet, cluster.uuid);
    client.close().await;
    output::print(options.presentation.output, || secrets.lines(&cluster.name), &secrets.value())
}

/// Deletes keys of a Secret, in one write.
///
/// # Errors
/// As documented for the exit codes; then none is deleted.
pub(super) async fn delete(
    place: &SecretRef,
    keys: &[String],
    (dry_run, no_wait): (bool, bool),
    options: &Options,
) -> anyhow::Result<()> {
    let SecretRef { cluster, name, namespace } = place;
    check_names(namespace, name)
        .and_then(|()| keys.iter().try_for_each(|key| check_key(key)))
        .map_err(|error| usage(error.into()))?;
    let mut client = Client::open(options, Scope::Managed).await?;
    let cluster = look_up::cluster(&client.fleet, cluster)?;
    let of = SecretPlace { cluster: cluster.uuid, namespace, name };
    let request = requests::delete_secret_keys(&client.fleet, of, keys, client.wall(), author()).map_err(of_request)?;
    if !dry_run {
        client.write(request).await?;
        if !no_wait {
            arrived(&mut client, cluster.uuid, (namespace, name), keys).await?;
        }
    }
    client.close().await;
    let done = if dry_run { "could be deleted" } else { "deleted" };
    let value =
        json!({ "cluster": cluster.name, "namespace": namespace, "name": name, "keys": keys, "dry_run": dry_run });
    let lines = || keys.iter().map(|key| format!("{namespace}/{name}/{key} {done} for {}", cluster.name)).collect();
    output::print(options.presentation.output, lines, &value)
}

#[cfg(test)]
mod tests;
