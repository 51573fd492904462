//! What was issued, on the disk: one line of JSON for each change, of which the last of a cluster counts.
//!
//! ```text
//! <state_dir>/identity/issued.jsonl    {"cluster": UUID, "origin": .., "tokens": [..], "certificates": [..]}
//! ```
//!
//! No secret is in it. A line that a loss of power has cut was not synced, so nothing rests on it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use service_runtime::atomic_file::{self, AtomicFileError};
use uuid::Uuid;

use crate::issued::Issued;

/// The file.
const FILE: &str = "issued.jsonl";
/// Lines that are appended before the file is compacted to one line for each cluster.
const APPENDED_MAX: usize = 10_000;

/// The ledger cannot be read or written. Holds nothing secret.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A line before the last one cannot be understood.
    #[error("{}, line {line}, is damaged; restore the file from a backup, or take the line out if it is known what it said", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
    },
    /// It cannot be appended to.
    #[error("cannot append to {}", path.display())]
    Append {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It cannot be compacted.
    #[error(transparent)]
    Write(#[from] AtomicFileError),
}

#[derive(Serialize, Deserialize)]
struct Line {
    cluster: Uuid,
    #[serde(flatten)]
    issued: Issued,
}

/// The ledger of one state directory.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    /// What is not written yet.
    unwritten: BTreeMap<Uuid, Issued>,
    /// Lines since the file was compacted.
    appended: usize,
}

impl Ledger {
    /// Reads it, leaves out what is over, and compacts it. Blocks. `now_ms`: UTC.
    ///
    /// # Errors
    /// [`LedgerError`]; a damaged ledger is not overwritten.
    pub fn load(directory: &Path, now_ms: u64) -> Result<(Self, BTreeMap<Uuid, Issued>), LedgerError> {
        let path = directory.join(FILE);
        let mut all = read(&path)?;
        all.retain(|_, issued| !issued.is_over(now_ms));
        compact(&path, &all)?;
        Ok((Self { path, unwritten: BTreeMap::new(), appended: 0 }, all))
    }

    /// Takes over what is to be written.
    pub fn remember(&mut self, issued: BTreeMap<Uuid, Issued>) {
        self.unwritten.extend(issued);
    }

    /// Writes everything that is not written yet, so that it outlives a loss of power. Blocks.
    ///
    /// # Errors
    /// [`LedgerError`]; it is tried again with the next call.
    pub fn write(&mut self) -> Result<(), LedgerError> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let at_start = self.appended == 0;
        if self.appended + self.unwritten.len() > APPENDED_MAX && !at_start {
            let mut all = read(&self.path)?;
            all.append(&mut self.unwritten.clone());
            compact(&self.path, &all)?;
            self.appended = 0;
        } else {
            let text: String = self.unwritten.iter().map(|(cluster, issued)| line(*cluster, issued)).collect();
            self.append(&text).map_err(|source| LedgerError::Append { path: self.path.clone(), source })?;
            self.appended += self.unwritten.len();
        }
        self.unwritten.clear();
        Ok(())
    }

    fn append(&self, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.path)?;
        let length = file.metadata()?.len();
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        if written.is_err() {
            // Half a line must not stand before the next one.
            file.set_len(length)?;
        }
        written
    }
}

fn line(cluster: Uuid, issued: &Issued) -> String {
    let line = serde_json::to_string(&Line { cluster, issued: issued.clone() });
    line.map(|line| line + "\n").expect("a struct with text keys has a JSON form")
}

fn read(path: &Path) -> Result<BTreeMap<Uuid, Issued>, LedgerError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(LedgerError::Read { path: path.to_owned(), source }),
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let lines = whole.lines().enumerate().map(|(at, text)| {
        let damaged = |_| LedgerError::Line { path: path.to_owned(), line: at + 1 };
        serde_json::from_str::<Line>(text).map(|line| (line.cluster, line.issued)).map_err(damaged)
    });
    lines.collect()
}

fn compact(path: &Path, all: &BTreeMap<Uuid, Issued>) -> Result<(), LedgerError> {
    let text: String = all.iter().map(|(cluster, issued)| line(*cluster, issued)).collect();
    Ok(atomic_file::write(path, text.as_bytes(), None)?)
}
