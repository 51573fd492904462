//! Which alerts an Alertmanager is sent, and when. Pure.
//!
//! It is sent every active alert again and again, as Prometheus does it: an Alertmanager that was away or has lost its state has all of them within a minute.
//! An alert that has ended is sent as such until the Alertmanager has taken it. While something was not received, no alert has ended: what is not known is not over.
//! For a minute no alert has begun then, either: behind a start or a lost session every edge seems to be away until its birth arrives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use configdb_schema::timestamp::to_text;
use fleet_view::deltas::Table;
use serde_json::Value;
use sparkplug::Now;

use crate::notice::Notice;

/// Active alerts are sent again after this time.
const RESEND: Duration = Duration::from_secs(60);

/// After a failure they are sent again after this time.
const RETRY: Duration = Duration::from_secs(10);

/// An Alertmanager that receives nothing for so long takes an alert for resolved, in ms: four sendings, as Prometheus has it.
const RESOLVED_AFTER_MS: u64 = 240_000;

/// Behind the start of a session, what was not received after this time is away, in ms.
const BIRTHS_MS: u64 = 60_000;

/// How far what alerts are made of was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// Births are on their way, or there is no session: alerts neither begin nor end.
    Little,
    /// What is missing was waited for: alerts begin.
    Enough,
    /// Alerts begin and end.
    Everything,
}

impl Received {
    /// `online_ms`: how long the session lasts; None: there is none.
    pub(super) fn of(complete: bool, online_ms: Option<u64>) -> Self {
        match online_ms {
            Some(_) if complete => Self::Everything,
            Some(ms) if ms >= BIRTHS_MS => Self::Enough,
            _ => Self::Little,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Notifier {
    organisation: String,
    /// Address of the console as people open it.
    link: Option<String>,
    seen: Option<(Arc<Table>, Received)>,
    active: BTreeMap<String, Notice>,
    /// With the time at which they ended, UTC ms.
    ended: BTreeMap<String, (Notice, u64)>,
    /// What the sending that is under way says of alerts that have ended.
    sent: Vec<(String, u64)>,
    is_under_way: bool,
    due: Duration,
    failure: Option<String>,
}

impl Notifier {
    pub(super) fn new(organisation: String, link: Option<String>) -> Self {
        Self {
            organisation,
            link: link.map(|link| link.trim_end_matches('/').to_owned()),
            seen: None,
            active: BTreeMap::new(),
            ended: BTreeMap::new(),
            sent: Vec::new(),
            is_under_way: false,
            due: Duration::ZERO,
            failure: None,
        }
    }

    /// Takes table `alerts`.
    pub(super) fn on_table(&mut self, alerts: &Arc<Table>, received: Received, now: Now) {
        if self.seen.as_ref().is_some_and(|(seen, was)| Arc::ptr_eq(seen, alerts) && *was == received) {
            return;
        }
        let is_sent = |key: &String| received != Received::Little || self.active.contains_key(key);
        let active = alerts.iter().filter(|(key, row)| is_sent(key) && !is_silenced(row, now.wall));
        let mut active: BTreeMap<String, Notice> = active.map(|(key, row)| (key.clone(), self.notice(row))).collect();
        for (key, notice) in std::mem::take(&mut self.active) {
            match active.get(&key) {
                Some(_) => {}
                None if received == Received::Everything => drop(self.ended.insert(key, (notice, now.wall))),
                None => drop(active.insert(key, notice)),
            }
        }
        self.ended.retain(|key, _| !active.contains_key(key));
        self.active = active;
        self.seen = Some((Arc::clone(alerts), received));
        // What changed is sent at once; where the Alertmanager refuses, as often as it is asked again.
        if self.failure.is_none() {
            self.due = now.mono;
        }
    }

    fn notice(&self, row: &Value) -> Notice {
        let text = |field: &str| row.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let owned = |field: &str| text(field).map(str::to_owned);
        let labels = [
            ("alertname", owned("alert")),
            ("organisation", Some(self.organisation.clone())),
            ("cluster", owned("cluster")),
            ("node", owned("node")),
            ("monitor", owned("monitor")),
        ];
        let by = row.pointer("/acknowledged/by").and_then(Value::as_str).map(str::to_owned);
        let note = row.pointer("/acknowledged/note").and_then(Value::as_str).map(str::to_owned);
        let page = |path: String| self.link.as_ref().map(|link| format!("{link}/{path}"));
        let runbook = text("alert").and_then(|alert| page(format!("runbook/{alert}")));
        let annotations = [
            ("description", owned("reason")),
            ("runbook_url", runbook),
            ("acknowledged_by", by),
            ("acknowledged_note", note),
        ];
        let present = |(name, text): (&'static str, Option<String>)| Some((name, text?));
        Notice {
            labels: labels.into_iter().filter_map(present).collect(),
            annotations: annotations.into_iter().filter_map(present).collect(),
            starts_at: row.get("since").and_then(Value::as_u64).and_then(to_text),
            ends_at: None,
            generator_url: page("alerts".to_owned()),
        }
    }

    /// What is to be sent now, if it is time.
    pub(super) fn poll(&mut self, now: Now) -> Option<Vec<Notice>> {
        if self.is_under_way || self.seen.is_none() || now.mono < self.due {
            return None;
        }
        self.due = now.mono + RESEND;
        if self.active.is_empty() && self.ended.is_empty() {
            return None;
        }
        let until = to_text(now.wall + RESOLVED_AFTER_MS);
        let active = self.active.values().map(|notice| Notice { ends_at: until.clone(), ..notice.clone() });
        let ended = self.ended.values().map(|(notice, at)| Notice { ends_at: to_text(*at), ..notice.clone() });
        self.sent = self.ended.iter().map(|(key, (_, at))| (key.clone(), *at)).collect();
        self.is_under_way = true;
        Some(active.chain(ended).collect())
    }

    /// The Alertmanager has taken what was sent, or not. True: the result has changed.
    pub(super) fn on_answer(&mut self, answer: Result<(), String>, now: Now) -> bool {
        self.is_under_way = false;
        let sent = std::mem::take(&mut self.sent);
        if answer.is_ok() {
            // One that was active again meanwhile, and has ended again, is not what was sent.
            self.ended.retain(|key, (_, at)| !sent.contains(&(key.clone(), *at)));
        } else {
            self.due = now.mono + RETRY;
        }
        let is_changed = self.failure != answer.clone().err();
        self.failure = answer.err();
        is_changed
    }

    /// When [`Self::poll`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        (!self.is_under_way && self.seen.is_some()).then_some(self.due)
    }

    /// Why the Alertmanager does not have the alerts; None: it has.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

fn is_silenced(row: &Value, wall: u64) -> bool {
    row.pointer("/acknowledged/until").and_then(Value::as_u64).is_some_and(|until| until > wall)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(s: u64) -> Now {
        Now::new(Duration::from_secs(s), 1_700_000_000_000 + s * 1_000)
    }

    fn notifier() -> Notifier {
        Notifier::new("ACME".to_owned(), Some("https://console.example/".to_owned()))
    }

    fn table(rows: &[(&str, Value)]) -> Arc<Table> {
        Arc::new(rows.iter().map(|(key, row)| ((*key).to_owned(), row.clone())).collect())
    }

    fn offline() -> Value {
        json!({ "alert": "Offline", "cluster": "Paint_Shop", "node": "Sync", "monitor": "Paint_Shop", "reason": "silent", "since": 1_699_999_000_000_u64, "acknowledged": null })
    }

    fn names(sent: Option<Vec<Notice>>) -> Vec<(String, String)> {
        let name = |notice: Notice| (notice.labels["alertname"].clone(), notice.ends_at.unwrap());
        sent.into_iter().flatten().map(name).collect()
    }

    fn of(name: &str, s: u64) -> (String, String) {
        (name.to_owned(), to_text(at(s).wall).unwrap())
    }

    #[test]
    fn an_alert_is_sent_with_its_labels_and_again_every_minute_and_when_it_has_ended_once() {
        let mut notifier = notifier();
        assert_eq!(notifier.poll(at(0)), None, "nothing was received yet");
        notifier.on_table(&table(&[]), Received::Everything, at(0));
        assert_eq!(notifier.poll(at(0)), None, "there is nothing to send");
        notifier.on_table(&table(&[("a", offline())]), Received::Everything, at(1));
        let sent = notifier.poll(at(1)).unwrap();
        let expected = json!([{
            "labels": { "alertname": "Offline", "organisation": "ACME", "cluster": "Paint_Shop", "node": "Sync", "monitor": "Paint_Shop" },
            "annotations": { "description": "silent", "runbook_url": "https://console.example/runbook/Offline" },
            "startsAt": "2023-11-14T21:56:40Z",
            "endsAt": to_text(at(241).wall), "generatorURL": "https://console.example/alerts",
        }]);
        assert_eq!(serde_json::to_value(&sent).unwrap(), expected);
        assert_eq!((notifier.poll(at(2)), notifier.next_deadline()), (None, None), "one sending is under way");
        assert!(!notifier.on_answer(Ok(()), at(2)));
        assert_eq!(notifier.next_deadline(), Some(at(61).mono));
        assert_eq!(names(notifier.poll(at(61))), [of("Offline", 301)]);
        notifier.on_table(&table(&[]), Received::Everything, at(62));
        notifier.on_answer(Ok(()), at(62));
        assert_eq!(names(notifier.poll(at(62))), [of("Offline", 62)], "what was under way knew nothing of the end");
        notifier.on_answer(Ok(()), at(63));
        assert_eq!(notifier.poll(at(200)), None);
    }

    #[test]
    fn what_is_not_known_has_not_ended() {
        let mut notifier = notifier();
        notifier.on_table(&table(&[("a", offline())]), Received::Everything, at(0));
        notifier.poll(at(0)).unwrap();
        notifier.on_answer(Ok(()), at(0));
        let nothing = table(&[]);
        notifier.on_table(&nothing, Received::Little, at(1));
        assert_eq!(names(notifier.poll(at(1))), [of("Offline", 241)]);
        notifier.on_answer(Ok(()), at(1));
        notifier.on_table(&nothing, Received::Everything, at(5));
        assert_eq!(names(notifier.poll(at(5))), [of("Offline", 5)]);
    }

    #[test]
    fn behind_a_start_no_alert_has_begun_until_births_were_waited_for() {
        assert_eq!(Received::of(true, None), Received::Little);
        assert_eq!(Received::of(true, Some(0)), Received::Everything);
        assert_eq!(Received::of(false, Some(BIRTHS_MS - 1)), Received::Little);
        assert_eq!(Received::of(false, Some(BIRTHS_MS)), Received::Enough);
        let mut notifier = notifier();
        let alerts = table(&[("a", offline())]);
        notifier.on_table(&alerts, Received::Little, at(0));
        assert_eq!(notifier.poll(at(0)), None);
        notifier.on_table(&alerts, Received::Enough, at(60));
        assert_eq!(names(notifier.poll(at(60))), [of("Offline", 300)]);
        notifier.on_answer(Ok(()), at(60));
        // It ends once all is known, and is sent again meanwhile.
        notifier.on_table(&table(&[]), Received::Enough, at(70));
        assert_eq!(names(notifier.poll(at(70))), [of("Offline", 310)]);
    }

    #[test]
    fn what_is_refused_is_sent_again_and_the_refusal_is_said_once() {
        let mut notifier = notifier();
        notifier.on_table(&table(&[("a", offline())]), Received::Everything, at(0));
        notifier.poll(at(0)).unwrap();
        assert!(notifier.on_answer(Err("it answered 500".to_owned()), at(1)));
        assert_eq!(notifier.failure(), Some("it answered 500"));
        notifier.on_table(&table(&[]), Received::Everything, at(2));
        assert_eq!(notifier.poll(at(2)), None, "it is not asked more often than that");
        assert_eq!(names(notifier.poll(at(11))), [of("Offline", 2)]);
        assert!(!notifier.on_answer(Err("it answered 500".to_owned()), at(12)));
        notifier.on_table(&table(&[("a", offline())]), Received::Everything, at(13));
        assert_eq!(names(notifier.poll(at(22))), [of("Offline", 262)], "it is active again, so it has not ended");
        assert!(notifier.on_answer(Ok(()), at(22)));
        assert_eq!(notifier.failure(), None);
    }

    #[test]
    fn a_silenced_alert_ends_and_who_looks_after_one_is_named() {
        let mut notifier = notifier();
        let mut row = offline();
        row["acknowledged"] = json!({ "by": "ada", "note": "on my way", "until": null });
        notifier.on_table(&table(&[("a", row.clone())]), Received::Everything, at(0));
        let sent = notifier.poll(at(0)).unwrap();
        assert_eq!(
            (&*sent[0].annotations["acknowledged_by"], &*sent[0].annotations["acknowledged_note"]),
            ("ada", "on my way")
        );
        notifier.on_answer(Ok(()), at(0));
        row["acknowledged"]["until"] = json!(at(100).wall);
        notifier.on_table(&table(&[("a", row.clone())]), Received::Everything, at(1));
        assert_eq!(names(notifier.poll(at(1))), [of("Offline", 1)]);
        notifier.on_answer(Ok(()), at(1));
        notifier.on_table(&table(&[("a", row)]), Received::Everything, at(101));
        assert_eq!(names(notifier.poll(at(101))), [of("Offline", 341)]);
    }
}
