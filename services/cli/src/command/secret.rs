//! `sparkfleet secret ...`: plain values go in, only sealed ones come out. Nothing of a value is printed, logged or sent.

mod repository;
mod sealing;

use std::path::Path;

use anyhow::anyhow;
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
    let row = look_up::cluster(&client.fleet, wanted);
    let published = row.and_then(|row| {
        let node = client.fleet.sync(&row.name).and_then(|sync| sync.node());
        let certificate = node.and_then(|node| node.sealing_certificate.clone());
        certificate.ok_or_else(|| {
            let reason =
                node.and_then(|node| node.sealing_error.clone()).unwrap_or_else(|| "its edge sync is away".to_owned());
            let help = "give the controller's certificate with --certificate";
            exit::with_code(exit::UNAVAILABLE, anyhow!("{wanted} publishes no sealing certificate: {reason}; {help}"))
        })
    });
    client.close().await;
    published
}

/// Reads `KEY=FILE`.
fn plain(text: &str) -> anyhow::Result<Plain> {
    let (key, file) = text
        .split_once('=')
        .ok_or_else(|| usage(anyhow!("--from-file {text:?} is not KEY=FILE, or KEY=- for standard input")))?;
    sealing::read_value(key, Path::new(file))
}
