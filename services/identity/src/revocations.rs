//! The list of revoked certificates, and whether the revocation lists that MQTT servers read are renewed in time.
//!
//! A server refuses every certificate whose authority has a list that has ended. So a list past half of its validity is an alert while there is still time.

use std::collections::BTreeMap;
use std::time::Duration;

use configdb_schema::timestamp;
use identity_contract::IdentityNode;
use sparkplug::Now;

use crate::event::{Effect, RevocationList, RevocationsReport};

/// How often the list of revoked certificates is made again, so that it never gets old.
const PUBLISHED_EVERY: Duration = Duration::from_secs(24 * 3600);
/// How long after a failure it is tried again: until then a revoked certificate counts.
const PUBLISHED_RETRY: Duration = Duration::from_secs(60);

/// How often the lists are read.
const READ_EVERY: Duration = Duration::from_secs(3600);
/// Longest alert, in characters.
const ALERT_CHARS_MAX: usize = 2_000;

/// What is revoked, and since when that was published.
#[derive(Debug, Default)]
pub(crate) struct OwnList {
    published: Option<BTreeMap<String, String>>,
    is_stale: bool,
    /// `Now::mono` at which it is published again.
    due: Option<Duration>,
}

impl OwnList {
    /// Something was revoked.
    pub(crate) const fn mark(&mut self) {
        self.is_stale = true;
    }

    /// It is to be published, if that has changed or was published long ago. `revoked`: serial numbers with the ends of the certificates.
    pub(crate) fn publish<'a>(
        &mut self,
        revoked: impl IntoIterator<Item = (&'a str, &'a str)>,
        now: Now,
    ) -> Option<Effect> {
        let is_due = self.due.is_none_or(|due| due <= now.mono);
        if !self.is_stale && !is_due {
            return None;
        }
        self.is_stale = false;
        let counts = |ends: &str| timestamp::from_text(ends).is_none_or(|ends| ends > now.wall);
        let revoked = revoked.into_iter().filter(|(_, ends)| counts(ends));
        let revoked: BTreeMap<String, String> =
            revoked.map(|(serial, ends)| (serial.to_owned(), ends.to_owned())).collect();
        if !is_due && self.published.as_ref() == Some(&revoked) {
            return None;
        }
        self.due = Some(now.mono + PUBLISHED_EVERY);
        self.published = Some(revoked.clone());
        Some(Effect::Revocations { revoked, at: now.wall })
    }

    /// It could not be written.
    pub(crate) fn on_not_written(&mut self, now: Now) {
        let retry = now.mono + PUBLISHED_RETRY;
        self.due = Some(self.due.map_or(retry, |due| due.min(retry)));
    }

    /// `Now::mono` at which it is published again.
    pub(crate) const fn next_deadline(&self) -> Option<Duration> {
        self.due
    }

    /// Revoked certificates as they were published last.
    pub(crate) fn count(&self) -> usize {
        self.published.as_ref().map_or(0, BTreeMap::len)
    }
}

/// The watched lists.
#[derive(Debug, Default)]
pub(crate) struct WatchedLists {
    /// As they were read last.
    lists: Vec<Result<RevocationList, String>>,
    /// Why the own list could not be written; None: it could.
    not_written: Option<String>,
    /// `Now::mono` at which they are read.
    due: Duration,
}

impl WatchedLists {
    /// Takes what was read.
    pub(crate) fn on_report(&mut self, report: RevocationsReport) {
        self.lists = report.lists;
        match report.written {
            Some(Ok(())) => self.not_written = None,
            Some(Err(reason)) => self.not_written = Some(reason),
            None => {}
        }
    }

    /// Has the lists read when they are due.
    pub(crate) fn reconcile(&mut self, now: Now) -> Option<Effect> {
        (self.due <= now.mono).then(|| {
            self.due = now.mono + READ_EVERY;
            Effect::ReadRevocations
        })
    }

    /// `Now::mono` at which the lists are read again.
    pub(crate) const fn next_deadline(&self) -> Duration {
        self.due
    }

    /// Brings what the node says of the lists up to date.
    pub(crate) fn report(&self, node: &mut IdentityNode, now: Now) {
        let known = self.lists.iter().flatten();
        node.revocations_next_update = known.filter_map(|list| list.ends).min();
        let not_written = self.not_written.iter();
        let mut problems: Vec<String> =
            not_written.map(|reason| format!("the list of revoked certificates is not written: {reason}")).collect();
        problems.extend(self.lists.iter().filter_map(|list| match list {
            Ok(list) => problem(list, now.wall),
            Err(error) => Some(error.clone()),
        }));
        let alert = Some(problems.join("; ")).filter(|alert| !alert.is_empty());
        node.revocations_alert = alert.map(|alert| alert.chars().take(ALERT_CHARS_MAX).collect());
    }
}

/// What is wrong with a list at that time. The text stays the same until the list ends, so that an alert can be acknowledged.
fn problem(list: &RevocationList, now_ms: u64) -> Option<String> {
    let RevocationList { file, issuer, begins, ends } = list;
    let ends = (*ends)?;
    let half = begins.saturating_add(ends.saturating_sub(*begins) / 2);
    let at = timestamp::to_text(ends).unwrap_or_default();
    let what = format!("the revocation list of {issuer} in {file}");
    if now_ms >= ends {
        Some(format!("{what} ended at {at}: an MQTT server that has read it refuses every certificate of {issuer}"))
    } else {
        (now_ms > half).then(|| {
            format!("{what} is past half of its validity: renew it before {at}, when it locks out every certificate of {issuer}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;

    fn list(begins: u64, ends: u64) -> RevocationList {
        RevocationList { file: "site.pem".to_owned(), issuer: "CN=site".to_owned(), begins, ends: Some(ends) }
    }

    fn at(wall: u64) -> Now {
        Now { mono: Duration::from_millis(wall), wall }
    }

    fn alert(controller: &WatchedLists, wall: u64) -> Option<String> {
        let mut totals = IdentityNode::default();
        controller.report(&mut totals, at(wall));
        totals.revocations_alert
    }

    #[test]
    fn a_list_past_half_of_its_validity_is_an_alert_until_it_is_renewed() {
        let mut controller = WatchedLists::default();
        let read = |list| RevocationsReport { written: None, lists: vec![Ok(list)] };
        controller.on_report(read(list(0, 30 * DAY_MS)));
        assert_eq!(alert(&controller, 15 * DAY_MS), None);
        let half = alert(&controller, 15 * DAY_MS + 1).unwrap();
        assert!(half.contains("CN=site in site.pem is past half") && half.contains("1970-01-31T00:00:00Z"), "{half}");
        assert_eq!(alert(&controller, 29 * DAY_MS), Some(half), "it stays the same alert");
        let ended = alert(&controller, 30 * DAY_MS).unwrap();
        assert!(ended.contains("ended at 1970-01-31T00:00:00Z"), "{ended}");
        controller.on_report(read(list(20 * DAY_MS, 50 * DAY_MS)));
        assert_eq!(alert(&controller, 30 * DAY_MS), None);
        let mut totals = IdentityNode::default();
        controller.on_report(RevocationsReport {
            written: None,
            lists: vec![Ok(list(0, 9 * DAY_MS)), Ok(list(0, 4 * DAY_MS)), Err("cannot read b.pem".to_owned())],
        });
        controller.report(&mut totals, at(DAY_MS));
        assert_eq!(totals.revocations_next_update, Some(4 * DAY_MS));
        assert_eq!(totals.revocations_alert.as_deref(), Some("cannot read b.pem"));
    }

    #[test]
    fn a_list_that_cannot_be_written_is_an_alert_until_it_can() {
        let mut controller = WatchedLists::default();
        let written = |written| RevocationsReport { written, lists: Vec::new() };
        controller.on_report(written(Some(Err("no space left".to_owned()))));
        controller.on_report(written(None));
        assert!(alert(&controller, 1).unwrap().ends_with("is not written: no space left"));
        controller.on_report(written(Some(Ok(()))));
        assert_eq!(alert(&controller, 1), None);
    }

    #[test]
    fn lists_are_read_at_once_and_then_every_hour() {
        let mut controller = WatchedLists::default();
        assert_eq!(controller.reconcile(at(5)), Some(Effect::ReadRevocations));
        assert_eq!(controller.reconcile(at(6)), None);
        let due = controller.next_deadline();
        assert_eq!(controller.reconcile(Now { mono: due, wall: 0 }), Some(Effect::ReadRevocations));
    }
}
