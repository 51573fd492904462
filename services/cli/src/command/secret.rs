//! `sparkfleet secret ...`: plain values go in, only sealed ones come out. Nothing of a value is printed, logged or sent.

mod repository;

use std::io::Read as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use sealed_secrets::{Plain, Request, SESSION_KEY_BYTES, Scope, SealingCertificate, sealed_secret};
use serde_json::Value;
use service_runtime::exit;
use zeroize::Zeroizing;

use super::{cluster, read, usage};
use crate::arguments::secret::{SealingScope, SecretCommand};
use crate::arguments::{Options, OutputForm};
use crate::client::{Client, Scope as Subscribed};
use crate::output;

/// Bytes that are read of a value: one more than a Secret holds, so that a larger one is refused and not cut.
const VALUE_BYTES_READ: usize = 1024 * 1024 + 1;

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
        SecretCommand::List { cluster, api } => return repository::list(&cluster, &api).await,
        SecretCommand::Delete { place, keys, dry_run, api } => {
            return repository::delete(&place, &keys, dry_run, &api).await;
        }
    };
    let pem = match (certificate, cluster) {
        (Some(file), _) => read(&file)?,
        (None, Some(cluster)) => published_certificate(&cluster, &options).await?,
        (None, None) => return Err(usage(anyhow!("name a cluster, or a certificate with --certificate"))),
    };
    let values = from_file.iter().map(|text| plain(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let request = Request { namespace: &namespace, name: &name, scope: scope.into(), secret_type: &secret_type };
    let object = seal(&pem, request, &values)?;
    // A manifest is a document: YAML unless JSON is asked for.
    let form = if options.presentation.output == OutputForm::Json { OutputForm::Json } else { OutputForm::Yaml };
    output::print(form, Vec::new, &object)
}

/// The SealedSecret of these values for the certificate in `pem`.
fn seal(pem: &str, request: Request<'_>, values: &[Plain]) -> anyhow::Result<Value> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock of this machine is before 1970")?;
    let certificate = SealingCertificate::from_pem(pem, now).map_err(|error| exit::with_code(exit::CONFIG, error))?;
    sealed_secret(&certificate, request, values).map_err(|error| usage(error.into()))
}

impl From<SealingScope> for Scope {
    fn from(scope: SealingScope) -> Self {
        match scope {
            SealingScope::Strict => Self::Strict,
            SealingScope::NamespaceWide => Self::NamespaceWide,
            SealingScope::ClusterWide => Self::ClusterWide,
        }
    }
}

async fn published_certificate(wanted: &str, options: &Options) -> anyhow::Result<String> {
    let client = Client::open(options, Subscribed::Fleet).await?;
    let row = cluster::find(&client.fleet, wanted);
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
    read_value(key, Path::new(file))
}

/// The value in a file, or on standard input for `-`.
fn read_value(key: &str, file: &Path) -> anyhow::Result<Plain> {
    // All the room at once: a buffer that grows leaves copies of the value behind.
    let mut value = Zeroizing::new(Vec::with_capacity(VALUE_BYTES_READ));
    let limit = VALUE_BYTES_READ as u64;
    let got = if file == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_end(&mut value).map(|_| ())
    } else {
        std::fs::File::open(file).and_then(|file| file.take(limit).read_to_end(&mut value)).map(|_| ())
    };
    got.with_context(|| format!("cannot read {}", file.display()))
        .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let mut session_key = Zeroizing::new([0; SESSION_KEY_BYTES]);
    aws_lc_rs::rand::fill(&mut session_key[..]).map_err(|_| anyhow!("this machine gives no random numbers"))?;
    Ok(Plain { key: key.to_owned(), value, session_key })
}
