//! A value and how it is sealed on this machine.

use std::io::Read as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use sealed_secrets::{Plain, Request, SESSION_KEY_BYTES, SealingCertificate, sealed_secret};
use serde_json::Value;
use service_runtime::exit;
use zeroize::Zeroizing;

use crate::usage_error::usage;

/// Bytes that are read of a value: one more than a Secret holds, so that a larger one is refused and not cut.
const VALUE_BYTES_READ: usize = 1024 * 1024 + 1;

/// The SealedSecret of these values for the certificate in `pem`.
pub(super) fn seal(pem: &str, request: Request<'_>, values: &[Plain]) -> anyhow::Result<Value> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock of this machine is before 1970")?;
    let certificate = SealingCertificate::from_pem(pem, now).map_err(|error| exit::with_code(exit::CONFIG, error))?;
    sealed_secret(&certificate, request, values).map_err(|error| usage(error.into()))
}

/// The value in a file, or on standard input for `-`.
pub(super) fn read_value(key: &str, file: &Path) -> anyhow::Result<Plain> {
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
