//! A file of recorded messages as they passed, undecoded: lines of JSON, of which the first says what the file is.
//!
//! ```text
//! {"sparkplugRecording":1}
//! {"time":"2026-11-24T08:00:00.000Z","topic":"spBv1.0/ACME-Plant/NDATA/Press","retain":false,"payload":"CAE="}
//! ```
//!
//! The payload is base64 (RFC 4648, section 4). Other programs can read and write it line by line; a line that was torn by a power cut costs that message only.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use configdb_schema::timestamp;
use serde::{Deserialize, Serialize};
use service_runtime::exit;

/// The version that is written.
const VERSION: u64 = 1;

/// Bytes of a line at most. A server does not let a longer message pass: the largest packet of MQTT is 256 MiB, and base64 adds a third.
const LINE_BYTES_MAX: u64 = 400 << 20;

/// A message as it passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// When it arrived, UTC ms.
    pub time: u64,
    /// Its topic.
    pub topic: String,
    /// Stored by the server, not sent just then.
    pub retain: bool,
    /// Its payload.
    pub payload: Bytes,
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    time: jiff::Timestamp,
    #[serde(borrow)]
    topic: std::borrow::Cow<'a, str>,
    #[serde(default)]
    retain: bool,
    #[serde(borrow)]
    payload: std::borrow::Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    #[serde(rename = "sparkplugRecording")]
    version: u64,
}

/// A recording that grows.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    path: PathBuf,
}

impl Recorder {
    /// Opens a recording for more: a new file, which its owner alone may read, or one that is a recording already.
    ///
    /// # Errors
    /// With [`exit::CONFIG`]: the file cannot be opened, or holds something else.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let named = || format!("--record {}", path.display());
        Self::open_or_create(path).with_context(named).map_err(|error| exit::with_code(exit::CONFIG, error))
    }

    fn open_or_create(path: &Path) -> anyhow::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let mut file = File::options().read(true).append(true).create(true).mode(0o600).open(path)?;
        if file.metadata()?.len() == 0 {
            let header = serde_json::to_string(&Header { version: VERSION })?;
            file.write_all(format!("{header}\n").as_bytes())?;
        } else {
            read_header(&mut BufReader::new(&file))?;
            file.seek(SeekFrom::End(-1))?;
            let mut last = [0];
            file.read_exact(&mut last)?;
            // The last line was torn: what follows begins a line of its own.
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// Adds a message.
    ///
    /// # Errors
    /// It cannot be written, for example because the disk is full.
    pub fn record(&mut self, message: &Recorded) -> anyhow::Result<()> {
        let line = Line {
            time: timestamp::at(message.time).unwrap_or_default(),
            topic: message.topic.as_str().into(),
            retain: message.retain,
            payload: STANDARD.encode(&message.payload).into(),
        };
        let line = format!("{}\n", serde_json::to_string(&line)?);
        self.file.write_all(line.as_bytes()).with_context(|| format!("--record {}", self.path.display()))
    }
}

/// A recording that is read.
#[derive(Debug)]
pub struct Recording<R> {
    reader: R,
    number: usize,
}

impl Recording<BufReader<File>> {
    /// Opens a recording.
    ///
    /// # Errors
    /// With [`exit::CONFIG`]: the file cannot be opened, or is not a recording.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let open = || Recording::new(BufReader::new(File::open(path)?));
        open().with_context(|| path.display().to_string()).map_err(|error| exit::with_code(exit::CONFIG, error))
    }
}

impl<R: BufRead> Recording<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// It does not begin a recording.
    pub fn new(mut reader: R) -> anyhow::Result<Self> {
        read_header(&mut reader)?;
        Ok(Self { reader, number: 1 })
    }

    /// The next message; None at the end. A line that is not a message is an error of its own, after which the next line follows.
    ///
    /// # Errors
    /// The number of the line, and what is wrong with it.
    pub fn next_message(&mut self) -> Option<anyhow::Result<Recorded>> {
        let mut line = Vec::new();
        self.number += 1;
        let number = self.number;
        match self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => Some(message(&line).map_err(|error| anyhow!("line {number} is left out: {error:#}"))),
            Err(error) => Some(Err(anyhow!("line {number}: {error}"))),
        }
    }
}

fn read_header(reader: &mut impl BufRead) -> anyhow::Result<()> {
    let mut line = Vec::new();
    reader.take(256).read_until(b'\n', &mut line)?;
    let header: Header = serde_json::from_slice(&line)
        .map_err(|_| anyhow!("is not a recording: its first line should be {{\"sparkplugRecording\":{VERSION}}}"))?;
    if header.version != VERSION {
        bail!("is a recording of version {}; this program reads version {VERSION}", header.version);
    }
    Ok(())
}

fn message(line: &[u8]) -> anyhow::Result<Recorded> {
    let line: Line<'_> = serde_json::from_slice(line)?;
    let payload = STANDARD.decode(line.payload.as_bytes()).context("payload")?;
    let time = u64::try_from(line.time.as_millisecond()).context("time")?;
    Ok(Recorded { time, topic: line.topic.into_owned(), retain: line.retain, payload: payload.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(time: u64, topic: &str) -> Recorded {
        Recorded { time, topic: topic.to_owned(), retain: time.is_multiple_of(2), payload: vec![0, 0xff, b'"'].into() }
    }

    fn all(path: &Path) -> Vec<anyhow::Result<Recorded>> {
        let mut recording = Recording::open(path).unwrap();
        std::iter::from_fn(|| recording.next_message()).collect()
    }

    #[test]
    fn what_was_recorded_is_read_and_a_second_start_adds_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.jsonl");
        let messages = [some(1_700_000_000_001, "a"), some(1_700_000_000_002, "b \"\n\u{7}"), some(0, "")];
        for message in &messages {
            Recorder::open(&path).unwrap().record(message).unwrap();
        }
        let read: Vec<Recorded> = all(&path).into_iter().map(Result::unwrap).collect();
        assert_eq!(read, messages);
    }

    #[test]
    fn a_torn_line_costs_its_message_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.jsonl");
        Recorder::open(&path).unwrap().record(&some(1, "a")).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        Recorder::open(&path).unwrap().record(&some(2, "b")).unwrap();
        let read = all(&path);
        assert!(read[0].as_ref().unwrap_err().to_string().starts_with("line 2 is left out: "), "{read:?}");
        assert_eq!(read[1].as_ref().unwrap(), &some(2, "b"));
        assert_eq!(read.len(), 2);
    }

    #[test]
    fn another_file_is_neither_read_nor_added_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.jsonl");
        for (text, rule) in [("password\n", "is not a recording"), ("{\"sparkplugRecording\":2}\n", "of version 2")] {
            std::fs::write(&path, text).unwrap();
            for error in [Recorder::open(&path).unwrap_err(), Recording::open(&path).unwrap_err()] {
                let text_of_error = format!("{error:#}");
                assert!(text_of_error.contains(rule) && text_of_error.contains("a.jsonl"), "{text_of_error}");
                assert_eq!(exit::code_of(&error), exit::CONFIG);
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
