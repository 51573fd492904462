//! How much room a file system has, and what a service's Edge Node says of it. This module must not know what is kept there.

use std::cmp::min;
use std::path::Path;

use sparkplug::{DataType, Metric, Properties};

/// Metric of a service's node, UInt64, bytes: size of the disk that has its state directory.
pub const TOTAL: &str = "Disk/Total";
/// Metric of a service's node, UInt64, bytes: room that is left on that disk, to about a hundredth of its size.
pub const AVAILABLE: &str = "Disk/Available";
/// Metric of a service's node, String: what an operator has to do about that disk; null: nothing. Its timestamp is the moment since when.
pub const ALERT: &str = "Disk/Alert";

/// There is little room with less than this, bytes, or with less than a tenth of the disk.
const LOW: u64 = 1024 * MEBIBYTE;
/// There is hardly room with less than this, bytes, or with less than a hundredth of the disk.
const FULL: u64 = 64 * MEBIBYTE;
const MEBIBYTE: u64 = 1024 * 1024;

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

    /// How little room there is. A shortage ends with an eighth more than it began with, so that it does not come and go with each file.
    fn shortage(self, before: Shortage) -> Shortage {
        let is_below = |shortage: Shortage| {
            let limit = shortage.limit(self.total);
            self.available < if before >= shortage { limit + limit / 8 } else { limit }
        };
        [Shortage::Full, Shortage::Low].into_iter().find(|shortage| is_below(*shortage)).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Shortage {
    #[default]
    None,
    Low,
    Full,
}

impl Shortage {
    /// With less room than this it begins, bytes.
    fn limit(self, total: u64) -> u64 {
        match self {
            Self::None => 0,
            Self::Low => min(total / 10, LOW),
            Self::Full => min(total / 100, FULL),
        }
    }

    fn alert(self, total: u64) -> Option<String> {
        let meaning = match self {
            Self::None => return None,
            Self::Low => "make room before writes fail",
            Self::Full => "writes fail, or soon will: make room",
        };
        let limit = self.limit(total);
        let (number, unit) = if limit < MEBIBYTE { (limit / 1024, "KiB") } else { (limit / MEBIBYTE, "MiB") };
        Some(format!("less than {number} {unit} are free on the disk of its state directory; {meaning}"))
    }
}

/// What a node says of a disk in the course of time.
#[derive(Debug, Default)]
pub(crate) struct DiskReport {
    reported: Option<Room>,
    shortage: Shortage,
    /// UTC ms.
    since: u64,
}

impl DiskReport {
    /// Metrics of the node that are to be published, at `wall` (UTC ms); none while nothing has changed that matters.
    pub(crate) fn update(&mut self, room: Room, wall: u64) -> Vec<Metric> {
        let shortage = room.shortage(self.shortage);
        let is_near = |reported: Room| {
            reported.total == room.total && reported.available.abs_diff(room.available) < room.total / 100
        };
        if shortage == self.shortage && self.reported.is_some_and(is_near) {
            return Vec::new();
        }
        if shortage != self.shortage || self.reported.is_none() {
            (self.shortage, self.since) = (shortage, wall);
        }
        self.reported = Some(room);
        let bytes = |name, bytes: u64, meaning| {
            let properties = Properties::described(&[meaning], true).with("engUnit", "B");
            Metric::new(name, bytes).with_properties(properties).at(wall)
        };
        let alert = shortage.alert(room.total);
        let alert = alert.map_or_else(|| Metric::null(ALERT, DataType::String), |text| Metric::new(ALERT, text));
        let meaning = "What an operator has to do about that disk; null: nothing.";
        vec![
            bytes(TOTAL, room.total, "Size of the disk that has the state directory."),
            bytes(AVAILABLE, room.available, "Room that is left on it."),
            alert.with_properties(Properties::described(&[meaning], true)).at(self.since),
        ]
    }

    /// What an operator has to do, as it was published last.
    pub(crate) fn alert(&self) -> Option<String> {
        self.shortage.alert(self.reported?.total)
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

    const GIBIBYTE: u64 = 1024 * MEBIBYTE;

    fn alert(metrics: &[Metric]) -> (Option<&str>, Option<u64>) {
        let metric = metrics.iter().find(|metric| &*metric.name == ALERT).expect("the alert");
        (metric.as_str(), metric.timestamp)
    }

    #[test]
    fn a_disk_with_little_room_is_an_alert_until_there_is_clearly_more() {
        let mut report = DiskReport::default();
        let mut at = |mebibytes: u64, wall| {
            let metrics = report.update(Room { total: 100 * GIBIBYTE, available: mebibytes * MEBIBYTE }, wall);
            (!metrics.is_empty()).then(|| alert(&metrics)).map(|(text, since)| (text.map(str::to_owned), since))
        };
        let text = |text: &str| Some(format!("less than {text}"));
        let low = "1024 MiB are free on the disk of its state directory; make room before writes fail";
        let full = "64 MiB are free on the disk of its state directory; writes fail, or soon will: make room";
        assert_eq!(at(1024, 1), Some((None, Some(1))));
        assert_eq!(at(1023, 2), Some((text(low), Some(2))));
        assert_eq!(at(1100, 3), None, "hardly more room is still little");
        assert_eq!(at(63, 4), Some((text(full), Some(4))));
        assert_eq!(at(73, 5), Some((text(low), Some(5))));
        assert_eq!(at(1152, 6), Some((None, Some(6))));
    }

    #[test]
    fn a_small_disk_has_limits_by_its_size() {
        let shortage = |available| Room { total: 1000, available }.shortage(Shortage::None);
        assert_eq!([100, 99, 10, 9].map(shortage), [Shortage::None, Shortage::Low, Shortage::Low, Shortage::Full]);
        let small = DiskReport {
            reported: Some(Room { total: 8 * MEBIBYTE, available: 0 }),
            shortage: Shortage::Full,
            since: 0,
        };
        assert!(small.alert().is_some_and(|text| text.starts_with("less than 81 KiB are free")), "{small:?}");
    }

    #[test]
    fn room_is_published_when_it_has_changed_by_a_hundredth_of_the_disk() {
        let mut report = DiskReport::default();
        let mut is_published =
            |gibibytes| !report.update(Room { total: 1000 * GIBIBYTE, available: gibibytes * GIBIBYTE }, 1).is_empty();
        assert_eq!([500, 495, 509, 490, 499, 500].map(&mut is_published), [true, false, false, true, false, true]);
    }
}
