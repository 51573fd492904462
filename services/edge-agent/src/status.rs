//! Whether the host could be read, and since when. Pure.

use sparkplug::{Metric, Value};

use crate::reading::described;

/// What the Device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    /// Why the host could not be read at the last attempt; None: it could.
    reason: Option<String>,
    /// Since when it can, or cannot: UTC ms.
    since: u64,
}

impl Status {
    /// The host was read. `now`: UTC ms.
    pub(crate) const fn measured(now: u64) -> Self {
        Self { reason: None, since: now }
    }

    /// The status after another attempt, which failed for this reason or for none.
    #[must_use]
    pub(crate) fn after(&self, reason: Option<String>, now: u64) -> Self {
        let since = if reason.is_some() == self.reason.is_some() { self.since } else { now };
        Self { reason, since }
    }

    /// Why the host cannot be read; None: it can.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// The metrics of the Device.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let state = if self.reason.is_none() { "measured" } else { "not-measured" };
        let what = "Why the host cannot be read, and its values are old; null: it can.";
        let reason = described("Status/Reason", "", what);
        vec![
            described("Status/State", state, "measured or not-measured: whether the agent can read the host."),
            Metric { value: self.reason().map(Value::from), ..reason },
            described("Status/Since", Value::DateTime(self.since), "Since when it is in that state."),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_state_and_the_reason_the_last_one() {
        let failed = |text: &str| Some(text.to_owned());
        let status = Status::measured(5).after(None, 6);
        assert_eq!(status, Status::measured(5));
        let status = status.after(failed("a"), 7).after(failed("b"), 8);
        assert_eq!((status.reason(), status.since), (Some("b"), 7));
        assert_eq!(status.after(None, 9), Status::measured(9));
        let texts =
            |status: &Status| status.metrics().iter().map(|m| m.as_str().map(str::to_owned)).collect::<Vec<_>>();
        assert_eq!(texts(&status)[..2], [failed("not-measured"), failed("b")]);
        assert_eq!(texts(&Status::measured(9))[..2], [failed("measured"), None]);
    }
}
