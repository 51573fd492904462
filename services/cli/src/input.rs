//! What a command reads: files, standard input, and what a person answers on the terminal.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde_json::Value;
use service_runtime::exit;
use uuid::Uuid;

use crate::output::visible;
use crate::usage_error::usage;

/// Reads a file, or standard input for `-`.
///
/// # Errors
/// With [`exit::CONFIG`], naming the file.
pub fn read(file: &Path) -> anyhow::Result<String> {
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
pub(crate) fn read_document(file: &Path) -> anyhow::Result<Value> {
    let text = read(file)?;
    let document: Value = match serde_json::from_str(&text) {
        Ok(value) => value,
        Err(_) => serde_saphyr::from_str(&text)
            .with_context(|| format!("{} is neither JSON nor YAML", file.display()))
            .map_err(|error| exit::with_code(exit::CONFIG, error))?,
    };
    Ok(document)
}

/// What `--if-match` asks for: an ETag, or None for `none`.
pub(crate) fn etag_option(text: &str) -> anyhow::Result<Option<Uuid>> {
    match text {
        "none" => Ok(None),
        text => Uuid::try_parse(text).map(Some).context("--if-match is neither a UUID nor `none`").map_err(usage),
    }
}

/// Shows a person on the terminal what is going to happen, and asks.
///
/// # Errors
/// With [`exit::USAGE`] if there is no terminal: `instead` says what to give the command then.
pub fn confirmed(what: &[String], question: &str, instead: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(usage(anyhow!("there is no terminal to ask on; {instead}")));
    }
    what.iter().for_each(|line| eprintln!("{}", visible(line)));
    eprint!("{} [y/N] ", visible(question));
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_an_uuid_or_none() {
        assert_eq!(etag_option("none").unwrap(), None);
        assert_eq!(etag_option(&Uuid::nil().to_string()).unwrap(), Some(Uuid::nil()));
        assert_eq!(exit::code_of(&etag_option("7").unwrap_err()), exit::USAGE);
    }
}
