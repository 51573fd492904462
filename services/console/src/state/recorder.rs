//! Decides what is recorded: when the tables can be trusted, what changed since the last record, and where nothing was received.
//!
//! One record is on its way at a time. What changes meanwhile is not queued: it is the difference that the next record finds. So a slow disk makes records coarser, and never many.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fleet_view::deltas::Table;
use fleet_view::history::{self, Transition, View};
use sparkplug::Now;

use crate::record::{HistoryStatus, Record, StoreEvent, StoredEvent, Tables};

/// A fleet that is not complete is recorded nevertheless after this time: what is missing may never come.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// Rows whose births are missing are recorded as they are after this time.
const HOLD_MAX: Duration = Duration::from_secs(30);

/// That nothing was missed is recorded so often.
const QUIET_MS: u64 = 10_000;

/// Transitions between two snapshots, at least. For large fleets it is a multiple of the rows, so that snapshots take a bounded part of the store.
const SNAPSHOT_MIN: u64 = 1_000;
const SNAPSHOT_ROWS: u64 = 4;

/// Between two snapshots, if anything changed: what is older than the history is forgotten by snapshots.
const SNAPSHOT_MS: u64 = 24 * 3_600 * 1_000;

/// Events that are shown live.
const EVENTS_MAX: usize = 500;

/// Writes to ConfigDB whose effect on the tables is still to come, and how long that may take.
const CAUSES_MAX: usize = 256;
const CAUSE_AGE: Duration = Duration::from_secs(5);

/// What is known of the fleet beside its tables.
#[derive(Debug, Clone, Default)]
pub(super) struct Outlook {
    /// There is a session with the broker.
    pub online: bool,
    /// Nothing is missing.
    pub complete: bool,
    /// ConfigDB and the cluster manager are complete.
    pub central: bool,
    /// Clusters whose edge sync is alive, and of which births are missing.
    pub unborn: BTreeSet<String>,
}

/// What led to a change, or may lead to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    /// `Request/Id` of the write to ConfigDB.
    pub request: String,
    /// The user who asked for it here; None: it was asked for elsewhere.
    pub who: Option<String>,
    /// ConfigDB has answered that it is carried out. Its effect can be received before that answer.
    pub is_applied: bool,
}

/// A cause whose effect is looked for.
#[derive(Debug)]
struct KnownCause {
    /// Of the row that it can change.
    key: String,
    cause: Cause,
    /// An event has it.
    is_used: bool,
    since: Duration,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Recorder {
    status: HistoryStatus,
    recorded: Tables,
    at: u64,
    since_snapshot: u64,
    snapshot_at: Option<u64>,
    /// Between the end of a gap and the beginning of the next.
    listening: bool,
    on_its_way: Option<Arc<Record>>,
    /// Why a gap began that is not stored yet.
    lost: Option<String>,
    online_since: Option<Duration>,
    central_missing: Option<Duration>,
    unborn: BTreeMap<String, Duration>,
    events: VecDeque<StoredEvent>,
    causes: VecDeque<KnownCause>,
}

impl Recorder {
    /// Nothing is recorded before the store has said what it holds.
    #[must_use]
    pub(super) fn new(status: HistoryStatus) -> Self {
        Self {
            status,
            recorded: Tables::new(),
            at: 0,
            since_snapshot: 0,
            snapshot_at: None,
            listening: false,
            on_its_way: None,
            lost: None,
            online_since: None,
            central_missing: None,
            unborn: BTreeMap::new(),
            events: VecDeque::new(),
            causes: VecDeque::new(),
        }
    }

    /// Whether there is a history.
    #[must_use]
    pub(super) const fn status(&self) -> &HistoryStatus {
        &self.status
    }

    /// Whether tables are worth computing for it.
    #[must_use]
    pub(super) fn is_open(&self) -> bool {
        self.status == HistoryStatus::Open
    }

    /// Whether what happens is being recorded now.
    #[must_use]
    pub(super) const fn is_listening(&self) -> bool {
        self.listening
    }

    /// Table `events`.
    #[must_use]
    pub(super) fn events(&self) -> Table {
        self.events.iter().map(|event| (event.number.to_string(), event.to_row())).collect()
    }

    /// A write to ConfigDB was sent or applied: what follows on the row of that key comes from it.
    pub(super) fn note_cause(&mut self, key: String, cause: Cause, now: Now) {
        if let Some(known) = self.causes.iter_mut().find(|known| known.cause.request == cause.request) {
            known.cause = cause;
            known.since = now.mono;
            return;
        }
        if self.causes.len() >= CAUSES_MAX {
            self.causes.pop_front();
        }
        self.causes.push_back(KnownCause { key, cause, is_used: false, since: now.mono });
    }

    /// A write was refused: nothing follows from it.
    pub(super) fn forget_cause(&mut self, request: &str) {
        self.causes.retain(|known| known.cause.request != request);
    }

    /// Takes what the store says. True: table `events` is another one.
    pub(super) fn on_answer(&mut self, answer: StoreEvent) -> bool {
        match answer {
            StoreEvent::Opened(known) => {
                self.status = HistoryStatus::Open;
                self.recorded = known.tables.into_iter().map(|(view, table)| (view, Arc::new(table))).collect();
                (self.at, self.since_snapshot) = (known.at, known.since_snapshot);
                self.snapshot_at = known.snapshot_at;
                self.events = known.events.into();
                (self.listening, self.on_its_way, self.lost) = (false, None, None);
                true
            }
            StoreEvent::Stored { first } => {
                let Some(record) = self.on_its_way.take() else { return false };
                let mut is_new = false;
                for (number, transition) in (first..).zip(&record.transitions) {
                    let Some(event) = transition.event.clone() else { continue };
                    is_new = true;
                    self.events.push_back(StoredEvent { number, at: record.at, event });
                }
                while self.events.len() > EVENTS_MAX {
                    self.events.pop_front();
                }
                is_new
            }
            StoreEvent::Failed { reason } => {
                self.status = HistoryStatus::Failed(reason);
                (self.listening, self.on_its_way, self.lost) = (false, None, None);
                false
            }
        }
    }

    /// The next record, if there is something to record. `live`: the tables as they are shown.
    pub(super) fn poll(&mut self, live: &Tables, outlook: &Outlook, now: Now) -> Option<Arc<Record>> {
        self.note_outlook(outlook, now);
        if !self.is_open() || self.on_its_way.is_some() {
            return None;
        }
        let at = now.wall.max(self.at);
        if let Some(reason) = self.lost.take() {
            return Some(self.send(Record { begins_gap: Some(reason), ..Record::of_time(at) }));
        }
        let ends_gap = !self.listening;
        if ends_gap && !self.is_settled(outlook, now) {
            return None;
        }
        let tables = self.trusted(live, outlook, now);
        let mut transitions = self.transitions(&tables);
        let is_quiet = transitions.is_empty() && !ends_gap;
        if is_quiet && at < self.at.saturating_add(QUIET_MS) {
            return None;
        }
        self.explain(&mut transitions, now);
        // What is there at the very beginning did not happen then.
        if self.snapshot_at.is_none() {
            transitions.iter_mut().for_each(|transition| transition.event = None);
        }
        self.listening = true;
        self.since_snapshot += transitions.len() as u64;
        self.recorded = tables;
        let snapshot = self.is_snapshot_due(at).then(|| self.recorded.clone());
        if snapshot.is_some() {
            (self.since_snapshot, self.snapshot_at) = (0, Some(at));
        }
        Some(self.send(Record { at, ends_gap, transitions, snapshot, begins_gap: None }))
    }

    /// The last record: from now on nothing is received.
    #[must_use]
    pub(super) fn farewell(&self, reason: &str, now: Now) -> Option<Record> {
        let is_gap = self.is_open() && self.listening;
        let at = now.wall.max(self.at);
        is_gap.then(|| Record { begins_gap: Some(reason.to_owned()), ..Record::of_time(at) })
    }

    /// The session with the broker ended.
    pub(super) fn lose(&mut self, reason: &str) {
        if std::mem::take(&mut self.listening) {
            self.lost = Some(format!("no session with the broker: {reason}"));
        }
    }

    fn send(&mut self, record: Record) -> Arc<Record> {
        self.at = record.at;
        let record = Arc::new(record);
        self.on_its_way = Some(Arc::clone(&record));
        record
    }

    fn note_outlook(&mut self, outlook: &Outlook, now: Now) {
        let since = |known: Option<Duration>, is: bool| is.then(|| known.unwrap_or(now.mono));
        self.online_since = since(self.online_since, outlook.online);
        self.central_missing = since(self.central_missing, !outlook.central);
        self.unborn.retain(|cluster, _| outlook.unborn.contains(cluster));
        for cluster in &outlook.unborn {
            self.unborn.entry(cluster.clone()).or_insert(now.mono);
        }
    }

    fn is_settled(&self, outlook: &Outlook, now: Now) -> bool {
        let waited = |since: Duration| now.mono.saturating_sub(since) >= SETTLE_MAX;
        outlook.online && (outlook.complete || self.online_since.is_some_and(waited))
    }

    /// The tables as they are shown, but for the rows of whom births are missing: what is absent there may exist. Those stay as they were recorded.
    fn trusted(&self, live: &Tables, outlook: &Outlook, now: Now) -> Tables {
        let is_held = |since: &Duration| now.mono.saturating_sub(*since) < HOLD_MAX;
        if self.listening && !outlook.central && self.central_missing.as_ref().is_some_and(is_held) {
            return self.recorded.clone();
        }
        let held: BTreeSet<&str> =
            self.unborn.iter().filter(|(_, since)| is_held(since)).map(|(cluster, _)| cluster.as_str()).collect();
        if held.is_empty() {
            return live.clone();
        }
        let empty = Arc::new(Table::new());
        let of = |(view, table): (&View, &Arc<Table>)| {
            let known = self.recorded.get(view).unwrap_or(&empty);
            if view.is_joint() && self.recorded.contains_key(view) {
                return (*view, Arc::clone(known));
            }
            let is_held = |row| view.cluster_of(row).is_some_and(|cluster| held.contains(cluster));
            let kept = known.iter().filter(|(_, row)| is_held(row));
            let shown = table.iter().filter(|(key, row)| !is_held(row) && !known.get(*key).is_some_and(is_held));
            (*view, Arc::new(kept.chain(shown).map(|(key, row)| (key.clone(), row.clone())).collect()))
        };
        live.iter().map(of).collect()
    }

    fn transitions(&self, tables: &Tables) -> Vec<Transition> {
        let empty = Arc::new(Table::new());
        let changed = tables.iter().filter_map(|(view, table)| {
            let known = self.recorded.get(view).unwrap_or(&empty);
            (!Arc::ptr_eq(known, table)).then(|| history::transitions(*view, known, table))
        });
        changed.flatten().collect()
    }

    /// Says which write led to what, and who asked for it: the last one that was applied, or else the last one that was sent.
    fn explain(&mut self, transitions: &mut [Transition], now: Now) {
        self.causes.retain(|known| now.mono.saturating_sub(known.since) < CAUSE_AGE);
        for transition in transitions {
            let Some(event) = &mut transition.event else { continue };
            let candidates = self.causes.iter_mut().enumerate();
            let of_row = candidates.filter(|(_, known)| known.key == transition.key && !known.is_used);
            let Some((at, known)) = of_row.max_by_key(|(at, known)| (known.cause.is_applied, *at)) else { continue };
            known.is_used = true;
            event.request = Some(known.cause.request.clone());
            event.who = event.who.take().or_else(|| known.cause.who.clone());
            // An earlier one has had its effect, and it was seen together with this.
            for earlier in self.causes.iter_mut().take(at).filter(|known| known.key == transition.key) {
                earlier.is_used = true;
            }
        }
    }

    fn is_snapshot_due(&self, at: u64) -> bool {
        let Some(last) = self.snapshot_at else { return true };
        let rows: usize = self.recorded.values().map(|table| table.len()).sum();
        let many = SNAPSHOT_MIN.max(SNAPSHOT_ROWS * rows as u64);
        self.since_snapshot >= many || (self.since_snapshot > 0 && at.saturating_sub(last) >= SNAPSHOT_MS)
    }
}

#[cfg(test)]
mod tests;
