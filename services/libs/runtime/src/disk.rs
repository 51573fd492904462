//! How much room a file system has. This module must not know what is kept there.

use std::path::Path;

/// Room on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Size, bytes.
    pub total: u64,
    /// What programs without special rights could have, bytes.
    pub available: u64,
}

impl Room {
    /// That of the file system which a file or directory is on; None: the system does not say.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        let system = rustix::fs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(system.f_frsize);
        Some(Self { total: bytes(system.f_blocks), available: bytes(system.f_bavail) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_no_more_room_than_its_size_and_what_is_not_there_has_none() {
        let directory = tempfile::tempdir().unwrap();
        let room = Room::at(directory.path()).unwrap();
        assert!(room.total > 0 && room.available <= room.total, "{room:?}");
        assert_eq!(Room::at(&directory.path().join("nothing")), None);
    }
}
