//! Times in entries: RFC 3339, whole seconds.

use jiff::Timestamp;

/// The time at `wall_ms`, UTC. None: it is out of range.
#[must_use]
pub fn at(wall_ms: u64) -> Option<Timestamp> {
    i64::try_from(wall_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok())
}

/// A time as entries hold it. None: it is out of range. `wall_ms`: UTC ms.
#[must_use]
pub fn to_text(wall_ms: u64) -> Option<String> {
    let seconds = i64::try_from(wall_ms / 1000).ok()?;
    Timestamp::from_second(seconds).ok().map(|time| time.to_string())
}

/// UTC ms of a time in an entry. None: the text is not a time.
#[must_use]
pub fn from_text(text: &str) -> Option<u64> {
    text.parse::<Timestamp>().ok().and_then(|time| u64::try_from(time.as_millisecond()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_whole_seconds_and_read_again() {
        assert_eq!(to_text(1_800_000_000_999).as_deref(), Some("2027-01-15T08:00:00Z"));
        assert_eq!(from_text("2027-01-15T08:00:00Z"), Some(1_800_000_000_000));
        assert_eq!((to_text(u64::MAX), from_text("tomorrow")), (None, None));
        assert_eq!(at(1_800_000_000_999).unwrap().to_string(), "2027-01-15T08:00:00.999Z");
        assert_eq!(at(u64::MAX), None);
    }
}
