//! Where the bdSeq of the next session is kept, so that it continues to count over restarts (tck-id-topics-nbirth-bdseq-increment,
//! tck-id-message-flow-edge-node-birth-publish-will-message-payload-bdSeq).
//!
//! The number is stored before the CONNECT that makes it necessary, and replaced whole: a process killed at any moment finds a number that no
//! session has used. The file always has the same length and is overwritten in place, which works on a full disk, and within one sector, which a disk writes whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use sparkplug::{BdSeq, EdgeNodeDescriptor};

use crate::plain_name::plain_name;

/// Bytes of the file: three digits and a line break.
const FILE_BYTES: usize = 4;

/// Storage of one Edge Node's next bdSeq.
#[derive(Debug, Clone)]
pub enum BdSeqStore {
    /// Forgotten with the process: for tests and for nodes that live once.
    Memory,
    /// A file that holds the decimal number.
    File(PathBuf),
}

/// Why the number cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum BdSeqError {
    /// Reading or writing failed.
    #[error("cannot {step} the bdSeq file {}", path.display())]
    Io {
        /// What was tried.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file holds something else.
    #[error("the bdSeq file {} holds no number 0..=255; delete it to begin at 0", path.display())]
    NotANumber {
        /// The file.
        path: PathBuf,
    },
}

impl BdSeqStore {
    /// A file in `directory` whose name is made of the node's. The directory is created when the number is first stored.
    #[must_use]
    pub fn in_directory(directory: &Path, node: &EdgeNodeDescriptor) -> Self {
        let (group, edge_node) = (plain_name(node.group.as_str()), plain_name(node.edge_node.as_str()));
        Self::File(directory.join(format!("{group}.{edge_node}.bd_seq")))
    }

    /// Whether a session was ever begun from here: a number is stored, whichever it is.
    #[must_use]
    pub fn is_used(&self) -> bool {
        matches!(self, Self::File(path) if path.exists())
    }

    /// The number for the next session; 0 if none was ever stored.
    ///
    /// # Errors
    /// The file exists, but cannot be read or holds no number.
    pub fn load(&self) -> Result<BdSeq, BdSeqError> {
        let Self::File(path) = self else {
            return Ok(BdSeq::ZERO);
        };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BdSeq::ZERO),
            Err(source) => return Err(BdSeqError::Io { step: "read", path: path.clone(), source }),
        };
        let number: Option<i64> = text.trim().parse().ok();
        number
            .and_then(|number| BdSeq::from_wire(number).ok())
            .ok_or_else(|| BdSeqError::NotANumber { path: path.clone() })
    }

    /// Stores the number; it survives a crash of the machine once this returns. Blocks on the disk.
    ///
    /// # Errors
    /// A step failed; the old number is still there.
    pub fn store(&self, next: BdSeq) -> Result<(), BdSeqError> {
        let Self::File(path) = self else {
            return Ok(());
        };
        let failed = |step| move |source| BdSeqError::Io { step, path: path.clone(), source };
        let text = format!("{:03}\n", next.get());
        match OpenOptions::new().write(true).open(path) {
            Ok(file) if file.metadata().is_ok_and(|there| there.len() == FILE_BYTES as u64) => {
                file.write_all_at(text.as_bytes(), 0).map_err(failed("write"))?;
                return file.sync_all().map_err(failed("sync"));
            }
            _ => {}
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(directory).map_err(failed("create the directory of"))?;
        let temporary = path.with_extension("bd_seq.tmp");
        let mut file = File::create(&temporary).map_err(failed("create"))?;
        file.write_all(text.as_bytes()).map_err(failed("write"))?;
        file.sync_all().map_err(failed("sync"))?;
        fs::rename(&temporary, path).map_err(failed("replace"))?;
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed("sync the directory of"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(group: &str, edge_node: &str) -> EdgeNodeDescriptor {
        EdgeNodeDescriptor::parse(group, edge_node).unwrap()
    }

    #[test]
    fn a_stored_number_is_found_again_and_nothing_else_is_left_in_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("deep/er");
        let store = BdSeqStore::in_directory(&state, &node("ACME-Plant 1", "Sync"));
        assert_eq!((store.load().unwrap(), store.is_used()), (BdSeq::ZERO, false));
        store.store(BdSeq::from_wire(254).unwrap()).unwrap();
        store.store(BdSeq::from_wire(255).unwrap()).unwrap();
        assert_eq!((store.load().unwrap().get(), store.is_used()), (255, true));
        let names: Vec<_> = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["ACME-Plant=201.Sync.bd_seq"]);
    }

    #[test]
    fn the_file_is_overwritten_in_place_and_one_of_another_length_is_replaced() {
        use std::os::unix::fs::MetadataExt as _;
        let directory = tempfile::tempdir().unwrap();
        let store = BdSeqStore::in_directory(directory.path(), &node("g", "e"));
        let file = directory.path().join("g.e.bd_seq");
        fs::write(&file, "7\n").unwrap();
        assert_eq!(store.load().unwrap().get(), 7);
        let inode_after = |number| {
            store.store(BdSeq::from_wire(number).unwrap()).unwrap();
            assert_eq!(store.load().unwrap().get(), number);
            fs::metadata(&file).unwrap().ino()
        };
        let place = inode_after(8);
        assert_eq!((inode_after(255), inode_after(0)), (place, place));
        assert_eq!(fs::metadata(&file).unwrap().len(), FILE_BYTES as u64);
    }

    #[test]
    fn nodes_never_share_a_file() {
        let path = |node| match BdSeqStore::in_directory(Path::new("d"), &node) {
            BdSeqStore::File(path) => path,
            BdSeqStore::Memory => unreachable!(),
        };
        assert_ne!(path(node("a.b", "c")), path(node("a", "b.c")));
        assert_ne!(path(node("a=20", "c")), path(node("a ", "c")));
    }

    #[test]
    fn a_damaged_file_is_refused_with_the_way_out() {
        let directory = tempfile::tempdir().unwrap();
        let store = BdSeqStore::in_directory(directory.path(), &node("g", "e"));
        for damaged in ["", "256", "-1", "seven"] {
            fs::write(directory.path().join("g.e.bd_seq"), damaged).unwrap();
            let error = store.load().unwrap_err().to_string();
            assert!(error.ends_with("holds no number 0..=255; delete it to begin at 0"), "{error}");
        }
    }
}
