//! Reads an export at the pace at which it was recorded, or another one. Its size does not matter: one line is held at a time, and the rows that it leads to.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use fleet_view::history::export::{Header, LINE_BYTES_MAX, Line, LineError, Replayed};
use service_runtime::exit;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::replay::{Progress, Step};

/// Lines of one step: few enough that the state is not kept busy by one.
const STEP_LINES: usize = 256;

/// Steps that wait for the state.
const STEPS: usize = 2;

/// The longest wait for a line: a history with a hole of weeks continues after a day.
const WAIT_MAX: Duration = Duration::from_secs(86_400);

/// An export, and how it is played.
#[derive(Debug)]
pub struct Source {
    /// The file.
    pub file: PathBuf,
    /// How many times as fast as it was; None: as fast as it goes.
    pub speed: Option<f64>,
    /// Begin again when it ends.
    pub repeat: bool,
    /// Where its progress is published.
    pub progress: watch::Sender<Progress>,
}

/// What an export holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// Its first line.
    pub header: Header,
    /// Its changes.
    pub changes: u64,
    /// Its last line is there.
    pub is_whole: bool,
}

/// Reads an export from its first line to its last one.
///
/// # Errors
/// With [`exit::CONFIG`]: the file cannot be read, or a line of it is not one of an export; the message names file, line and what is wrong.
pub async fn check(file: &std::path::Path) -> anyhow::Result<Contents> {
    let checked = async {
        let mut lines = Lines::open(file).await?;
        let (mut replayed, mut is_whole) = (Replayed::default(), false);
        while let Some(line) = lines.next().await? {
            is_whole = matches!(line, Line::End(_));
            replayed.apply(&line).map_err(|error| lines.wrong(&error))?;
        }
        anyhow::Ok(Contents { header: lines.header, changes: replayed.changes(), is_whole })
    };
    checked.await.with_context(|| file.display().to_string()).map_err(|error| exit::with_code(exit::CONFIG, error))
}

/// Starts to play an export; what comes of it arrives in the channel. After its end nothing does.
#[must_use]
pub fn start(source: Source) -> mpsc::Receiver<Step> {
    let (sender, receiver) = mpsc::channel(STEPS);
    tokio::spawn(async move {
        if let Err(error) = play(&source, &sender).await {
            tracing::error!(error = format!("{error:#}"), file = %source.file.display(), "the replay has broken off");
        }
        let _ = sender.send(Step::Ended).await;
        // Who waits for more waits until the console stops.
        sender.closed().await;
    });
    receiver
}

/// What comes next of a replay; never, if there is none.
pub async fn next(steps: &mut Option<mpsc::Receiver<Step>>) -> Option<Step> {
    match steps {
        Some(steps) => steps.recv().await,
        None => std::future::pending().await,
    }
}

/// Ends when the export does, or the state is gone.
async fn play(source: &Source, steps: &mpsc::Sender<Step>) -> anyhow::Result<()> {
    let mut ended = 0;
    loop {
        let mut lines = Lines::open(&source.file).await?;
        let (since, began, mut changes) = (lines.header.since, Instant::now(), 0);
        let due = |at: u64| {
            let wait = Duration::from_millis(at.saturating_sub(since));
            source.speed.map_or(began, |speed| {
                began + Duration::try_from_secs_f64(wait.as_secs_f64() / speed).unwrap_or(WAIT_MAX).min(WAIT_MAX)
            })
        };
        let mut step = vec![];
        if steps.send(Step::Began(lines.header.clone())).await.is_err() {
            return Ok(());
        }
        while let Some(line) = lines.next().await? {
            let Line::Changed(changed) = &line else { continue };
            let (at, due) = (changed.at, due(changed.at));
            let is_later = due > Instant::now();
            let is_due = (is_later || step.len() >= STEP_LINES) && !step.is_empty();
            if is_due && steps.send(Step::Lines(std::mem::take(&mut step))).await.is_err() {
                return Ok(());
            }
            if is_later {
                tokio::select! {
                    () = tokio::time::sleep_until(due) => {}
                    () = steps.closed() => return Ok(()),
                }
            }
            changes += 1;
            source.progress.send_replace(Progress { at, changes, ended });
            step.push(line);
        }
        if !step.is_empty() && steps.send(Step::Lines(step)).await.is_err() {
            return Ok(());
        }
        ended += 1;
        source.progress.send_modify(|progress| progress.ended = ended);
        if !source.repeat || changes == 0 {
            return Ok(());
        }
    }
}

/// The lines of an export.
struct Lines {
    reader: BufReader<File>,
    header: Header,
    number: u64,
}

impl Lines {
    async fn open(file: &std::path::Path) -> anyhow::Result<Self> {
        let mut reader = BufReader::new(File::open(file).await?);
        let line = read_line(&mut reader).await?;
        let header = Header::parse(&line)?;
        Ok(Self { reader, header, number: 1 })
    }

    /// None: the file has ended.
    async fn next(&mut self) -> anyhow::Result<Option<Line>> {
        let line = read_line(&mut self.reader).await?;
        self.number += 1;
        if line.is_empty() {
            return Ok(None);
        }
        Line::parse(&line).map(Some).map_err(|error| self.wrong(&error))
    }

    fn wrong(&self, error: &LineError) -> anyhow::Error {
        anyhow!("line {}: {error}", self.number)
    }
}

/// The next line without its end; empty: the file has ended. One that is too long is cut, and no longer a line of an export.
async fn read_line(reader: &mut BufReader<File>) -> anyhow::Result<Vec<u8>> {
    let mut line = Vec::new();
    reader.take(LINE_BYTES_MAX as u64 + 2).read_until(b'\n', &mut line).await?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(line)
}

#[cfg(test)]
mod tests;
