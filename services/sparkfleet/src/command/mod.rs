//! What each command does: one module a noun.

pub mod acl;
pub mod administrator;
pub mod bootstrap;
pub mod capture;
pub mod cluster;
pub mod config;
pub mod deployment;
pub mod host;
pub mod identity;
pub mod policy;
pub mod recover;
pub mod rollout;
pub mod secret;
pub mod service;
pub mod simulate;
pub mod token;
pub mod trust;

use anyhow::{Context as _, anyhow};
use serde_json::Value;
use service_runtime::exit;
use std::io::Read as _;
use std::path::Path;
use uuid::Uuid;

use crate::fleet::Fleet;

/// Most names that an error lists.
const CANDIDATES_MAX: usize = 20;

/// Reads a file, or standard input for `-`.
///
/// # Errors
/// With [`exit::CONFIG`], naming the file.
pub(crate) fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(|_| ())
    } else {
        std::fs::read_to_string(file).map(|read| text = read)
    };
    read.with_context(|| format!("cannot read {}", file.display()))
        .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    Ok(text)
}

/// Reads a JSON or YAML document from a file, or standard input for `-`.
///
/// # Errors
/// With [`exit::CONFIG`], naming the file and the place in it.
fn read_document(file: &Path) -> anyhow::Result<Value> {
    let text = read(file)?;
    let document: Value = match serde_json::from_str(&text) {
        Ok(value) => value,
        Err(_) => serde_saphyr::from_str(&text)
            .with_context(|| format!("{} is neither JSON nor YAML", file.display()))
            .map_err(|error| exit::with_code(exit::CONFIG, error))?,
    };
    Ok(document)
}

/// The object with that UUID or that name; of several with one name the caller has to choose by UUID.
///
/// # Errors
/// With [`exit::USAGE`] when there is none or more than one.
fn object(fleet: &Fleet, wanted: &str) -> anyhow::Result<Uuid> {
    if let Ok(uuid) = Uuid::try_parse(wanted) {
        return Ok(uuid);
    }
    let named: Vec<Uuid> = fleet.named(wanted).collect();
    match named[..] {
        [uuid] => Ok(uuid),
        [] => Err(usage(anyhow!("there is no object named {wanted:?}; `sparkfleet config list` shows them"))),
        _ => {
            let uuids = named.iter().map(Uuid::to_string).collect::<Vec<_>>().join(", ");
            Err(usage(anyhow!("{wanted:?} is the name of several objects; choose one by its UUID: {uuids}")))
        }
    }
}

/// Names that could have been meant, for an error: not more than a person reads.
pub(crate) fn candidates<T: AsRef<str>>(names: impl Iterator<Item = T>) -> String {
    let mut names: Vec<String> = names.take(CANDIDATES_MAX + 1).map(|name| name.as_ref().to_owned()).collect();
    names.sort();
    match names.len() {
        0 => "none".to_owned(),
        n if n > CANDIDATES_MAX => format!("{}, ...", names[..CANDIDATES_MAX].join(", ")),
        _ => names.join(", "),
    }
}

/// What `--if-match` asks for: an ETag, or None for `none`.
fn etag_option(text: &str) -> anyhow::Result<Option<Uuid>> {
    match text {
        "none" => Ok(None),
        text => Uuid::try_parse(text).map(Some).context("--if-match is neither a UUID nor `none`").map_err(usage),
    }
}

pub(crate) fn usage(error: anyhow::Error) -> anyhow::Error {
    exit::with_code(exit::USAGE, error)
}
