//! `sparkfleet events --export FILE`: the console's export of its history, as it comes, into a file.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use fleet_view::history::export::{LINE_BYTES_MAX, Line};
use http_body_util::BodyExt as _;
use service_runtime::exit;

use crate::console_api::ConsoleApi;

/// How long the console may send nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Writes the export of a span (UTC ms) into a new file that its owner alone may read; returns how many changes it holds. A file that is not whole is removed.
///
/// # Errors
/// With [`exit::CONFIG`]: the file is there already, or cannot be written. With [`exit::UNAVAILABLE`]: there is no console, or it has broken off.
pub(super) async fn write(api: &ConsoleApi, (since, until): (u64, u64), path: &Path) -> anyhow::Result<u64> {
    let named = || format!("--export {}", path.display());
    let config = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    // Before the console is asked: it would send all of it for nothing.
    let mut file =
        File::options().write(true).create_new(true).mode(0o600).open(path).with_context(named).map_err(config)?;
    let copied = copy(api, (since, until), &mut file, path).await;
    if copied.is_err() {
        // What is not whole would be taken for all of it.
        let _ = std::fs::remove_file(path);
    }
    copied
}

/// Copies what the console sends; the number of changes that it says at the end.
async fn copy(api: &ConsoleApi, (since, until): (u64, u64), file: &mut File, path: &Path) -> anyhow::Result<u64> {
    let written = |result: std::io::Result<()>| {
        let named = || format!("--export {}", path.display());
        result.with_context(named).map_err(|error| exit::with_code(exit::CONFIG, error))
    };
    let broken = || exit::with_code(exit::UNAVAILABLE, anyhow!("{} has broken off the export", api.address()));
    let mut body =
        api.open_stream("/api/v1/export", &[("since", since.to_string()), ("until", until.to_string())]).await?;
    // The last line, of which the end may be still to come.
    let mut last = Vec::new();
    while let Some(part) = tokio::time::timeout(SILENCE_MAX, body.frame()).await.map_err(|_| broken())? {
        let bytes = part.map_err(|_| broken())?.into_data().unwrap_or_default();
        written(file.write_all(&bytes))?;
        last.extend_from_slice(&bytes);
        let line = last[..last.len().saturating_sub(1)].iter().rposition(|byte| *byte == b'\n');
        last.drain(..line.map_or(0, |end| end + 1));
        if last.len() > LINE_BYTES_MAX {
            return Err(exit::with_code(exit::UNAVAILABLE, anyhow!("{} sends no export", api.address())));
        }
    }
    match Line::parse(&last) {
        Ok(Line::End(changes)) => Ok(changes),
        _ => Err(broken()),
    }
}
