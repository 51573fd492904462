//! The mirror of an Edge Node's store on disk: what was appended and forgotten, one entry after the other, in segment files.
//!
//! An entry is its length and CRC-32 (each four bytes, little-endian) and a body: a kind, a record's number (eight bytes, little-endian), and the record. Entries are only ever
//! added at the end, so a process that is killed leaves at worst a torn last entry; reading stops there. What was written survives a kill of the process at any moment; when the
//! machine itself loses power, what the operating system had not yet written is lost. A segment is deleted when none of its records is needed any more.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::{Buf, Bytes};
use sparkplug::EdgeNodeDescriptor;
use sparkplug::edge_node::StoreAction;

use crate::plain_name::plain_name;

/// A segment that has grown to this is followed by the next.
const SEGMENT_BYTES: usize = 1024 * 1024;
/// No segment of ours is larger: the largest store, all in one action.
const SEGMENT_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// Length and checksum.
const HEAD_BYTES: usize = 8;
/// Kind and number.
const BODY_BYTES_MIN: usize = 9;

const APPEND: u8 = 1;
const FORGET: u8 = 2;

/// Why a store on disk cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("mqtt.store_directory: cannot {step} {}", path.display())]
pub struct StoreError {
    step: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    /// Records below it are in this segment or in earlier ones.
    end: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Journal {
    directory: PathBuf,
    /// Oldest first; the last one is written to.
    segments: VecDeque<Segment>,
    serial: u64,
    file: File,
    bytes: usize,
    /// Records below it are not needed.
    needed_from: u64,
}

/// A record with its number.
pub(crate) type Stored = (u64, Bytes);

impl Journal {
    /// The directory of a node's store within `directory`.
    pub(crate) fn directory_of(directory: &Path, node: &EdgeNodeDescriptor) -> PathBuf {
        let (group, edge_node) = (plain_name(node.group.as_str()), plain_name(node.edge_node.as_str()));
        directory.join(format!("{group}.{edge_node}.store"))
    }

    /// Reads what an earlier process left, and begins a segment of its own. Blocks on the disk.
    pub(crate) fn open(directory: &Path) -> Result<(Self, Vec<Stored>), StoreError> {
        fs::create_dir_all(directory).map_err(failed("create", directory))?;
        let mut contents = Contents::default();
        let mut segments = VecDeque::new();
        let mut serial = 0;
        for (number, path) in segment_files(directory)? {
            serial = number + 1;
            contents.read(&path)?;
            segments.push_back(Segment { path, end: contents.end });
        }
        let records = contents.records.into_iter().filter(|(number, _)| *number >= contents.needed_from).collect();
        let (path, file) = create(directory, serial)?;
        segments.push_back(Segment { path, end: contents.end });
        let mut journal = Self { directory: directory.to_owned(), segments, serial, file, bytes: 0, needed_from: 0 };
        let records: Vec<Stored> = records;
        // Without records numbers begin again, and what is left of earlier ones must not forget them.
        journal.needed_from = if records.is_empty() { u64::MAX } else { contents.needed_from };
        journal.delete_unneeded()?;
        if records.is_empty() {
            journal.needed_from = 0;
            journal.segments.iter_mut().for_each(|segment| segment.end = 0);
        }
        Ok((journal, records))
    }

    /// Writes. Blocks on the disk. After an error the journal is of no use any more.
    pub(crate) fn apply(&mut self, actions: &[StoreAction]) -> Result<(), StoreError> {
        let mut buffer = Vec::new();
        for action in actions {
            let last = self.segments.back_mut();
            match action {
                StoreAction::Append { number, record } => {
                    put(&mut buffer, APPEND, *number, record);
                    if let Some(segment) = last {
                        segment.end = number + 1;
                    }
                }
                StoreAction::Forget { below } => {
                    put(&mut buffer, FORGET, *below, &[]);
                    self.needed_from = self.needed_from.max(*below);
                }
            }
        }
        self.file.write_all(&buffer).map_err(failed("write to", &self.directory))?;
        self.bytes += buffer.len();
        if self.bytes >= SEGMENT_BYTES {
            self.file.sync_data().map_err(failed("sync", &self.directory))?;
            self.serial += 1;
            let (path, file) = create(&self.directory, self.serial)?;
            let end = self.segments.back().map_or(0, |segment| segment.end);
            self.segments.push_back(Segment { path, end });
            (self.file, self.bytes) = (file, 0);
        }
        self.delete_unneeded()
    }

    /// From the oldest on, because an entry that forgets speaks of records in its own segment and in earlier ones.
    fn delete_unneeded(&mut self) -> Result<(), StoreError> {
        while self.segments.len() > 1
            && let Some(segment) = self.segments.front().filter(|segment| segment.end <= self.needed_from)
        {
            fs::remove_file(&segment.path).map_err(failed("delete", &segment.path))?;
            self.segments.pop_front();
        }
        Ok(())
    }
}

#[derive(Default)]
struct Contents {
    records: VecDeque<Stored>,
    needed_from: u64,
    /// One more than the highest number.
    end: u64,
}

impl Contents {
    fn read(&mut self, path: &Path) -> Result<(), StoreError> {
        let length = fs::metadata(path).map_err(failed("read", path))?.len();
        if length > SEGMENT_BYTES_MAX {
            tracing::warn!(path = %path.display(), bytes = length, "no segment of a store is so large; it is left out");
            return Ok(());
        }
        let mut rest = Bytes::from(fs::read(path).map_err(failed("read", path))?);
        while !rest.is_empty() {
            let Some((kind, number, record)) = take(&mut rest) else {
                tracing::warn!(path = %path.display(), bytes = rest.len(), "the end of a segment is torn; it is dropped");
                return Ok(());
            };
            match kind {
                APPEND => {
                    self.end = self.end.max(number + 1);
                    self.records.push_back((number, record));
                }
                _ => {
                    self.needed_from = self.needed_from.max(number);
                    while self.records.front().is_some_and(|(number, _)| *number < self.needed_from) {
                        self.records.pop_front();
                    }
                }
            }
        }
        Ok(())
    }
}

fn put(buffer: &mut Vec<u8>, kind: u8, number: u64, record: &[u8]) {
    let mut body = Vec::with_capacity(BODY_BYTES_MIN + record.len());
    body.push(kind);
    body.extend_from_slice(&number.to_le_bytes());
    body.extend_from_slice(record);
    // A record is not larger than the store, which has 1 GiB at most.
    buffer.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    buffer.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
    buffer.extend_from_slice(&body);
}

/// The next entry; None, and nothing is taken, if what is there is no whole entry.
fn take(rest: &mut Bytes) -> Option<(u8, u64, Bytes)> {
    let head = rest.get(..HEAD_BYTES)?;
    let length = usize::try_from(u32::from_le_bytes(head[..4].try_into().ok()?)).ok()?;
    let checksum = u32::from_le_bytes(head[4..].try_into().ok()?);
    let body = rest.get(HEAD_BYTES..HEAD_BYTES.checked_add(length)?)?;
    if length < BODY_BYTES_MIN || crc32fast::hash(body) != checksum || !matches!(body[0], APPEND | FORGET) {
        return None;
    }
    let mut body = rest.slice(HEAD_BYTES..HEAD_BYTES + length);
    rest.advance(HEAD_BYTES + length);
    let kind = body.get_u8();
    // The number after the highest is needed as well.
    let number = Some(body.get_u64_le()).filter(|number| *number < u64::MAX)?;
    Some((kind, number, body))
}

fn create(directory: &Path, serial: u64) -> Result<(PathBuf, File), StoreError> {
    let path = directory.join(format!("{serial:020}.segment"));
    let file = File::create_new(&path).map_err(failed("create", &path))?;
    Ok((path, file))
}

/// Segments with their serial numbers, oldest first.
fn segment_files(directory: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed("read", directory))? {
        let path = entry.map_err(failed("read", directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(serial) = name.strip_suffix(".segment").and_then(|serial| serial.parse().ok()) {
            files.push((serial, path));
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError { step, path, source }
}

#[cfg(test)]
mod tests;
