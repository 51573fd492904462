//! `sparkfleet secret ...`: plain values go in, only sealed ones come out. Nothing of a value is printed, logged or sent.

mod repository;
mod sealing;

use std::path::Path;

use anyhow::anyhow;
use fleet_view::{ClusterRow, Fleet};
use sealed_secrets::{Plain, Request};
use service_runtime::exit;

use crate::arguments::secret::SecretCommand;
use crate::client::{Client, Scope as Subscribed};
use crate::input::read;
use crate::look_up;
use crate::options::{Options, OutputForm};
use crate::output;
use crate::usage_error::usage;

/// Carries out a secret command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: SecretCommand) -> anyhow::Result<()> {
    let (cluster, name, namespace, from_file, scope, secret_type, certificate, options) = match command {
        SecretCommand::Seal { cluster, name, namespace, from_file, scope, secret_type, certificate, options } => {
            (cluster, name, namespace, from_file, scope, secret_type, certificate, options)
        }
        SecretCommand::Put(arguments) => return repository::put(arguments).await,
        SecretCommand::List { cluster, options } => return repository::list(&cluster, &options).await,
        SecretCommand::Delete { place, keys, dry_run, no_wait, options } => {
            return repository::delete(&place, &keys, (dry_run, no_wait), &options).await;
        }
    };
    let pem = match (certificate, cluster) {
        (Some(file), _) => read(&file)?,
        (None, Some(cluster)) => published_certificate(&cluster, &options).await?,
        (None, None) => return Err(usage(anyhow!("name a cluster, or a certificate with --certificate"))),
    };
    let values = from_file.iter().map(|text| plain(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let request = Request { namespace: &namespace, name: &name, scope: scope.into(), secret_type: &secret_type };
    let object = sealing::seal(&pem, request, &values)?;
    // A manifest is a document: YAML unless JSON is asked for.
    let form = if options.presentation.output == OutputForm::Json { OutputForm::Json } else { OutputForm::Yaml };
    output::print(form, Vec::new, &object)
}

async fn published_certificate(wanted: &str, options: &Options) -> anyhow::Result<String> {
    let client = Client::open(options, Subscribed::Fleet).await?;
    let help = "give the controller's certificate with --certificate";
    let published = look_up::cluster(&client.fleet, wanted).and_then(|row| {
        let with_help = |error| exit::with_code(exit::UNAVAILABLE, anyhow!("{error}; {help}"));
        certificate_of(&client.fleet, &row).map_err(with_help)
    });
    client.close().await;
    published
}

/// The certificate that secrets of a cluster are sealed for, PEM.
///
/// # Errors
/// With [`exit::UNAVAILABLE`] and the reason where the cluster has reported none.
fn certificate_of(fleet: &Fleet, cluster: &ClusterRow) -> anyhow::Result<String> {
    fleet.sealing_certificate(cluster.uuid).ok_or_else(|| {
        let reported = fleet.sync(&cluster.name).and_then(|sync| sync.node());
        let reason = reported.and_then(|node| node.sealing_error.as_deref()).unwrap_or("is its edge sync there?");
        let error = anyhow!("{} has published no sealing certificate yet: {reason}", cluster.name);
        exit::with_code(exit::UNAVAILABLE, error)
    })
}

/// Reads `KEY=FILE`.
fn plain(text: &str) -> anyhow::Result<Plain> {
    let (key, file) = text
        .split_once('=')
        .ok_or_else(|| usage(anyhow!("--from-file {text:?} is not KEY=FILE, or KEY=- for standard input")))?;
    sealing::read_value(key, Path::new(file))
}
