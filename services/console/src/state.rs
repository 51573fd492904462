//! The console's state: takes events, keeps replicas, and makes tables of them when a client looks.

mod actions;
mod asking;
mod notifier;
mod recorder;
mod replayed;
mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use configdb_contract::Change;
use fleet_view::Fleet;
use fleet_view::config::{self, Past};
use fleet_view::deltas::Table;
use fleet_view::explorer::Explorer;
use fleet_view::health::Health;
use fleet_view::history::View;
use fleet_view::tables::Rows;
use fleet_view::{policy, rendered};
use serde_json::json;
use sparkplug::edge_node::NodeUpdate;
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::{EdgeNodeDescriptor, Metric, NameError, Now, TypedMetrics};

use crate::action::is_own_service;
use crate::config::{Role, Settings};
use crate::event::{Effect, Event};
use crate::kept::KeptSession;
use crate::node::ConsoleNode;
use crate::published::{Published, TableName};
use crate::reconcile;
use crate::record::{HistoryStatus, Record, StoreEvent, Tables};
use actions::Actions;
use notifier::{Notifier, Received};
use recorder::{Cause, Outlook, Recorder};
use replayed::Replay;
pub(crate) use users::AGE_MAX as SESSION_AGE_MAX;
use users::Users;

/// Shortest time between two computations of a table.
const PACE_MIN: Duration = Duration::from_millis(100);

/// Longest, however long a computation takes.
const PACE_MAX: Duration = Duration::from_secs(5);

/// Shortest time between two computations of a table that is only recorded.
const PACE_OF_RECORDS: Duration = Duration::from_millis(250);

/// A computation takes this part of the time at most.
const PACE_OF_COST: u32 = 10;

/// How often own metrics, rates and expected nodes are looked at.
const UPKEEP: Duration = Duration::from_secs(1);

/// How often it is kept when sessions were used.
const KEEP_SESSIONS: Duration = Duration::from_secs(60);

/// Sentences on what is missing.
const MISSING_MAX: usize = 5;

/// What a table is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// The own session.
    Own,
    /// Replicas of the project's services.
    Fleet,
    /// The replica of ConfigDB alone.
    Config,
    /// Every Edge Node.
    Nodes,
}

const fn source(table: &TableName) -> Source {
    match table {
        TableName::Console | TableName::Events | TableName::Actions => Source::Own,
        TableName::Fleet
        | TableName::Clusters
        | TableName::Hosts
        | TableName::Deployments
        | TableName::Alerts
        | TableName::Rollout
        | TableName::Policies
        | TableName::Secrets
        | TableName::Manifests(_) => Source::Fleet,
        TableName::Objects | TableName::Applications | TableName::Entries(_) => Source::Config,
        TableName::History(_) => Source::Config,
        TableName::Services | TableName::Nodes | TableName::Metrics(_) | TableName::Messages(_) => Source::Nodes,
    }
}

/// Whether a change of ConfigDB's replica may change a table that is made of it.
fn concerns(change: &Change, table: &TableName) -> bool {
    let object = match change {
        Change::Result(_) | Change::Malformed { .. } => return false,
        Change::History(past) => return matches!(table, TableName::History(shown) if *shown == past.object),
        Change::ObjectBorn { object } | Change::ObjectChanged { object } | Change::ObjectGone { object } => *object,
        Change::Entry { object, .. } => *object,
        Change::StoreReplaced { .. }
        | Change::BecameComplete { .. }
        | Change::BecameIncomplete { .. }
        | Change::Contradicted { .. } => return true,
    };
    !matches!(table, TableName::Entries(shown) if *shown != object) && !matches!(table, TableName::History(_))
}

#[derive(Debug)]
struct Slot {
    watchers: usize,
    /// Its past is recorded, so that it is computed although no client follows it.
    recorded: bool,
    dirty: bool,
    published: Option<Arc<Published>>,
    computed: Option<Duration>,
}

impl Slot {
    const fn new() -> Self {
        Self { watchers: 0, recorded: false, dirty: true, published: None, computed: None }
    }

    const fn is_wanted(&self) -> bool {
        self.watchers > 0 || self.recorded
    }

    fn due(&self, pace: Duration) -> Option<Duration> {
        let pace = if self.watchers > 0 || !self.recorded { pace } else { pace.max(PACE_OF_RECORDS) };
        self.dirty.then(|| self.computed.map_or(Duration::ZERO, |at| at + pace))
    }
}

/// See the module.
#[derive(Debug)]
pub struct State {
    settings: Settings,
    fleet: Fleet,
    explorer: Explorer,
    online: Result<(), String>,
    online_since: u64,
    expected: BTreeSet<EdgeNodeDescriptor>,
    slots: BTreeMap<TableName, Slot>,
    viewers: u32,
    rev: u64,
    pace: Duration,
    upkeep: Duration,
    /// When sessions that were only used are kept again.
    keep_sessions: Duration,
    node: ConsoleNode,
    recorder: Recorder,
    /// What is shown in place of the replicas.
    replay: Option<Replay>,
    users: Users,
    actions: Actions,
    past: Past,
    /// None: alerts are not passed on.
    notifier: Option<Notifier>,
    effects: Vec<Effect>,
}

impl State {
    /// Nothing was received yet.
    ///
    /// # Errors
    /// The organisation makes no Sparkplug group; an [`configdb_schema::Organisation`] always does.
    pub fn new(settings: Settings, now: Now) -> Result<Self, NameError> {
        let fleet = Fleet::new(settings.organisation.clone())?;
        let mut state = Self {
            actions: Actions::new(&fleet, settings.rev),
            users: Users::new(access::token::Tokens::default()),
            fleet,
            explorer: Explorer::default(),
            online: Err("connecting".to_owned()),
            online_since: now.wall,
            expected: BTreeSet::new(),
            slots: TableName::FIXED.into_iter().map(|name| (name, Slot::new())).collect(),
            viewers: 0,
            rev: settings.rev,
            pace: PACE_MIN,
            upkeep: now.mono,
            keep_sessions: now.mono + KEEP_SESSIONS,
            past: Past::default(),
            node: ConsoleNode { version: settings.version.clone(), ..ConsoleNode::default() },
            recorder: Recorder::new(if settings.history.is_some() {
                HistoryStatus::Opening
            } else {
                HistoryStatus::Off
            }),
            effects: Vec::new(),
            notifier: settings
                .notifies
                .then(|| Notifier::new(settings.organisation.to_string(), settings.link.clone())),
            replay: (settings.role == Role::Replay).then(Replay::default),
            settings,
        };
        state.keep_alerts();
        Ok(state)
    }

    /// The metrics with which the own Edge Node begins.
    #[must_use]
    pub fn first_metrics(settings: &Settings) -> Vec<Metric> {
        ConsoleNode { version: settings.version.clone(), ..ConsoleNode::default() }.to_metrics()
    }

    /// Clients that follow tables.
    #[must_use]
    pub const fn viewers(&self) -> u32 {
        self.viewers
    }

    /// What is to be done.
    pub fn poll_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// When [`Event::DeadlineReached`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let wanted = self.slots.values().filter(|slot| slot.is_wanted());
        wanted
            .filter_map(|slot| slot.due(self.pace))
            .chain([self.upkeep])
            .chain(self.actions.next_deadline())
            .chain(self.notifier.as_ref().and_then(Notifier::next_deadline))
            .min()
    }

    /// Takes one event.
    pub fn on_event(&mut self, event: Event, now: Now) {
        match event {
            Event::Started => self.upkeep(now),
            Event::DeadlineReached => {
                if now.mono >= self.upkeep {
                    self.upkeep(now);
                }
                self.compute_due(now);
                if self.recorder.is_open() || self.notifier.is_some() {
                    let outlook = self.outlook();
                    self.record_by(&outlook, now);
                    self.notify(&outlook, now);
                }
                self.poll_actions(now);
            }
            Event::Computed { cost } => self.pace = (cost * PACE_OF_COST).clamp(PACE_MIN, PACE_MAX),
            Event::Host(event) => self.on_host(&event, now),
            Event::Node(_) => {}
            Event::Read { id, table } => {
                let table = self.read(&table, now);
                self.effects.push(Effect::Rows { id, table });
            }
            Event::History(answer) => self.on_history(answer, now),
            Event::Notified(answer) => self.on_notified(answer, now),
            Event::Replayed(step) => self.on_replayed(step, now),
            Event::ApiRequest(asked) => self.on_asked(*asked, now),
            Event::Watch(tables) => {
                self.viewers += 1;
                self.mark(|name, _| *name == TableName::Console);
                for table in tables {
                    match &table {
                        TableName::Metrics(node) => self.explorer.watch(node),
                        TableName::Messages(node) if self.explorer.follow(node) => {
                            self.effects.push(Effect::Host(HostRequest::Follow { node: node.clone() }));
                        }
                        _ => {}
                    }
                    self.slots.entry(table).or_insert_with(Slot::new).watchers += 1;
                }
                self.compute_due(now);
            }
            Event::Unwatch(tables) => {
                self.viewers = self.viewers.saturating_sub(1);
                self.mark(|name, _| *name == TableName::Console);
                for table in tables {
                    self.unwatch(&table);
                }
            }
        }
    }

    fn on_history(&mut self, answer: StoreEvent, now: Now) {
        let is_stored = matches!(answer, StoreEvent::Stored { .. });
        if let StoreEvent::Opened(known) = &answer
            && let Some(deployments) = known.tables.get(&View::Deployments)
        {
            self.fleet.recall_intents(deployments);
            self.mark(|name, _| *name == TableName::Deployments);
        }
        if self.recorder.on_answer(answer) {
            self.mark(|name, _| *name == TableName::Events);
        }
        if !is_stored {
            let is_open = self.recorder.is_open();
            for (name, slot) in &mut self.slots {
                slot.recorded = is_open && name.view().is_some();
            }
            self.keep_alerts();
            self.mark(|name, _| *name == TableName::Console);
        }
        self.record(now);
    }

    /// How far what the tables are made of was received.
    fn outlook(&self) -> Outlook {
        let central = self.replay.is_some() || (self.fleet.config.is_complete() && self.fleet.manager.is_complete());
        let unborn = reconcile::unborn(&self.fleet);
        Outlook { online: self.online.is_ok(), complete: self.is_complete(), central, unborn }
    }

    /// Gives the history what changed in the tables that it records.
    fn record(&mut self, now: Now) {
        if self.recorder.is_open() {
            self.record_by(&self.outlook(), now);
        }
    }

    fn record_by(&mut self, outlook: &Outlook, now: Now) {
        if !self.recorder.is_open() {
            return;
        }
        let shown =
            |(name, slot): (&TableName, &Slot)| Some((name.view()?, Arc::clone(&slot.published.as_ref()?.rows)));
        let live: Tables = self.slots.iter().filter_map(shown).collect();
        // Before the first computation of all of them a table would seem empty.
        if live.len() < View::ALL.len() {
            return;
        }
        self.effects.extend(self.recorder.poll(&live, outlook, now).map(Effect::Record));
    }

    /// The table of alerts is made although no client looks at it, where they are passed on.
    fn keep_alerts(&mut self) {
        if self.notifier.is_some()
            && let Some(slot) = self.slots.get_mut(&TableName::Alerts)
        {
            slot.recorded = true;
        }
    }

    /// Sends the Alertmanager what it does not have.
    fn notify(&mut self, outlook: &Outlook, now: Now) {
        let Some(notifier) = &mut self.notifier else { return };
        let online_ms = outlook.online.then(|| now.wall.saturating_sub(self.online_since));
        let received = Received::of(outlook.complete && outlook.unborn.is_empty(), online_ms);
        // A table of before the last birth may have alerts that this birth ends.
        let current = self.slots.get(&TableName::Alerts).filter(|slot| !slot.dirty);
        if let Some(alerts) = current.and_then(|slot| slot.published.as_ref()) {
            notifier.on_table(&alerts.rows, received, now);
        }
        self.effects.extend(notifier.poll(now).map(Effect::Notify));
    }

    fn on_notified(&mut self, answer: Result<(), String>, now: Now) {
        let Some(notifier) = &mut self.notifier else { return };
        if notifier.on_answer(answer, now) {
            match notifier.failure() {
                Some(reason) => tracing::warn!(reason, "the Alertmanager does not take the alerts"),
                None => tracing::info!("the Alertmanager takes the alerts"),
            }
            self.mark(|name, _| *name == TableName::Console);
        }
    }

    /// What the history is given when the console stops.
    #[must_use]
    pub fn last_record(&self, now: Now) -> Option<Arc<Record>> {
        self.recorder.farewell("the console was stopped", now).map(Arc::new)
    }

    /// Takes over the sessions of an earlier process.
    pub fn restore_sessions(&mut self, kept: Vec<KeptSession>, now: Now) {
        self.users.restore(kept, now);
    }

    /// What is to be kept of the sessions when the console stops.
    pub fn take_sessions(&mut self, now: Now) -> Option<Vec<KeptSession>> {
        self.users.take_kept(true, now).filter(|_| self.settings.role == Role::Console)
    }

    /// Keeps the sessions for the next process: at once what began or ended, now and then when they were used.
    fn keep_sessions(&mut self, is_time: bool, now: Now) {
        if self.settings.role == Role::Console {
            self.effects.extend(self.users.take_kept(is_time, now).map(Effect::KeepSessions));
        }
    }

    /// Whether everything that the tables are made of has arrived: what is recorded now is what is shown.
    #[must_use]
    pub fn shows_everything(&self) -> bool {
        self.is_complete() && reconcile::unborn(&self.fleet).is_empty()
    }

    fn is_complete(&self) -> bool {
        self.online.is_ok() && self.missing(1).is_empty()
    }

    fn unwatch(&mut self, table: &TableName) {
        let Some(slot) = self.slots.get_mut(table) else { return };
        slot.watchers = slot.watchers.saturating_sub(1);
        let is_last = slot.watchers == 0;
        match table {
            TableName::Metrics(node) => self.explorer.unwatch(node),
            TableName::Messages(node) if self.explorer.unfollow(node) => {
                self.effects.push(Effect::Host(HostRequest::Unfollow { node: node.clone() }));
            }
            _ => {}
        }
        if is_last && table.is_of_one() {
            self.slots.remove(table);
            self.effects.push(Effect::Retire(table.clone()));
        }
    }

    /// A table as it is now, or as it was a moment ago.
    pub fn read(&mut self, table: &TableName, now: Now) -> Arc<Published> {
        let Some(slot) = self.slots.get(table) else {
            // No client follows it: it is made for this one reader, and nothing is kept.
            let rows = self.rows(table, &mut None);
            return Arc::new(Published::first(table.clone(), self.rev, rows));
        };
        let is_due = slot.due(self.pace).is_some_and(|due| due <= now.mono);
        match &slot.published {
            Some(published) if !is_due => Arc::clone(published),
            _ => {
                let rows = self.rows(table, &mut None);
                let published = self.publish(table, rows, now);
                self.record(now);
                published
            }
        }
    }

    fn on_host(&mut self, event: &HostEvent, now: Now) {
        match event {
            HostEvent::Message { node, .. } => {
                // What it means for the replicas comes behind it.
                self.explorer.on_event(event, now.wall);
                return self.mark(|name, _| matches!(name, TableName::Messages(shown) if shown == node));
            }
            HostEvent::Online => {
                (self.online, self.online_since) = (Ok(()), now.wall);
                self.mark(|_, _| true);
            }
            HostEvent::Offline { reason } => {
                if self.online.is_ok() {
                    self.online_since = now.wall;
                }
                self.online = Err(reason.clone());
                self.recorder.lose(reason);
                self.mark(|_, _| true);
            }
            _ => {}
        }
        for change in self.fleet.on_event(event) {
            self.mark(|name, source| source == Source::Config && concerns(&change, name));
            match &change {
                Change::History(past) => drop(self.past.take(past)),
                Change::StoreReplaced { .. } => self.past.clear(),
                Change::Contradicted { reason } => {
                    tracing::warn!(reason, "another process speaks for ConfigDB; its births are asked for");
                    let node = self.fleet.config.node().clone();
                    self.effects.push(Effect::Host(HostRequest::Rebirth { node }));
                }
                _ => {}
            }
            self.actions.on_change(&change, now);
            self.users.on_change(&change, &self.fleet.config);
            match change {
                Change::Result(result) if result.is_applied() => {
                    let who = self.actions.who(&result.id).map(str::to_owned);
                    let cause = Cause { request: result.id, who, is_applied: true };
                    self.recorder.note_cause(result.object.to_string(), cause, now);
                }
                Change::Result(result) => self.recorder.forget_cause(&result.id),
                _ => {}
            }
        }
        self.explorer.on_event(event, now.wall);
        if event.node().is_some_and(|node| self.actions.awaits(node)) {
            self.poll_actions(now);
        }
        if let Some(node) = event.node() {
            let of_fleet = self.settings.organisation.cluster_of_group(node.group.as_str()).is_some()
                || node.group.as_str() == self.settings.node.group.as_str();
            // Ten thousand clusters send hundreds of heartbeats a second.
            let is_change = !event.is_heartbeat();
            // What the console says of itself changes no table but those of nodes.
            let of_fleet = of_fleet && *node != self.settings.node && is_change;
            self.mark(|name, source| match (source, name) {
                (Source::Own | Source::Config, _) => false,
                (Source::Fleet, _) => of_fleet,
                (Source::Nodes, TableName::Metrics(shown)) => shown == node,
                (Source::Nodes, TableName::Messages(_)) => false,
                (Source::Nodes, TableName::Services) => is_change,
                (Source::Nodes, _) => true,
            });
        }
    }

    fn mark(&mut self, is_changed: impl Fn(&TableName, Source) -> bool) {
        for (name, slot) in &mut self.slots {
            slot.dirty |= is_changed(name, source(name));
        }
    }

    fn upkeep(&mut self, now: Now) {
        self.upkeep = now.mono + UPKEEP;
        let is_time = now.mono >= self.keep_sessions;
        if is_time {
            self.keep_sessions = now.mono + KEEP_SESSIONS;
        }
        self.keep_sessions(is_time, now);
        let expected = match self.settings.role {
            Role::Console => reconcile::expected(&self.fleet),
            Role::Explorer { .. } | Role::Replay => BTreeSet::new(),
        };
        for node in expected.difference(&self.expected) {
            self.effects.push(Effect::Host(HostRequest::Expect { node: node.clone() }));
        }
        self.expected.extend(expected);
        self.explorer.handle_time(now.wall);
        self.fleet.set_time(now.wall);
        if self.has_silence_ended(now) {
            self.mark(|name, _| matches!(name, TableName::Alerts | TableName::Fleet));
        }
        self.mark(|name, _| matches!(name, TableName::Nodes | TableName::Console));
        let complete = self.is_complete();
        let node = ConsoleNode { viewers: self.viewers, complete, version: self.settings.version.clone() };
        if node != self.node {
            let metrics = node.to_metrics();
            self.effects.push(Effect::Node(NodeUpdate::Set { device: None, metrics }));
            self.node = node;
        }
    }

    /// Whether an alert is shown as silenced that is not any more.
    fn has_silence_ended(&self, now: Now) -> bool {
        let shown = self.slots.get(&TableName::Alerts).and_then(|slot| slot.published.as_ref());
        let until = |row: &serde_json::Value| row.pointer("/acknowledged/until").and_then(serde_json::Value::as_u64);
        shown.is_some_and(|shown| shown.rows.values().filter_map(until).any(|until| until <= now.wall))
    }

    /// What is missing before the tables are complete; an explorer expects nothing.
    fn missing(&self, max: usize) -> Vec<String> {
        match self.settings.role {
            Role::Console => reconcile::missing(&self.fleet, max),
            Role::Explorer { .. } | Role::Replay => Vec::new(),
        }
    }

    fn compute_due(&mut self, now: Now) {
        let is_due = |slot: &Slot| slot.is_wanted() && slot.due(self.pace).is_some_and(|due| due <= now.mono);
        let due: Vec<TableName> =
            self.slots.iter().filter(|(_, slot)| is_due(slot)).map(|(name, _)| name.clone()).collect();
        let tables: Vec<(TableName, Table)> = {
            let mut rows = None;
            due.into_iter().map(|name| (name.clone(), self.rows(&name, &mut rows))).collect()
        };
        for (name, rows) in tables {
            self.publish(&name, rows, now);
        }
    }

    fn publish(&mut self, table: &TableName, rows: Table, now: Now) -> Arc<Published> {
        let slot = self.slots.entry(table.clone()).or_insert_with(Slot::new);
        (slot.dirty, slot.computed) = (false, Some(now.mono));
        let next = match &slot.published {
            Some(known) => match known.changed(self.rev + 1, rows) {
                Some(changed) => changed,
                None => return Arc::clone(known),
            },
            None => Published::first(table.clone(), self.rev + 1, rows),
        };
        self.rev += 1;
        let next = Arc::new(next);
        slot.published = Some(Arc::clone(&next));
        self.effects.push(Effect::Publish(Arc::clone(&next)));
        next
    }

    /// The rows of a table. `shared`: those of the fleet, if another table of the same turn has made them.
    fn rows<'a>(&'a self, table: &TableName, shared: &mut Option<Rows<'a>>) -> Table {
        if let (Some(replay), Some(view)) = (&self.replay, table.view()) {
            return (*replay.table(view)).clone();
        }
        let has_own_rows = matches!(table, TableName::Policies | TableName::Manifests(_));
        if source(table) == Source::Fleet && !has_own_rows {
            let rows = shared.get_or_insert_with(|| Rows::of(&self.fleet));
            return match table {
                TableName::Clusters => rows.clusters(),
                TableName::Hosts => rows.hosts().clone(),
                TableName::Deployments => rows.deployments(),
                TableName::Alerts => rows.alerts(),
                TableName::Rollout => rows.rollout(),
                TableName::Secrets => rows.secrets(),
                _ => rows.fleet(),
            };
        }
        match table {
            TableName::Console => self.own_row(),
            TableName::Services => self.explorer.services(),
            TableName::Nodes => self.explorer.nodes(),
            TableName::Metrics(node) => self.metrics(node),
            TableName::Messages(node) => self.explorer.messages(node),
            TableName::Events => self.recorder.events(),
            TableName::Actions => self.actions.rows(),
            TableName::Objects => config::objects(&self.fleet),
            TableName::Applications => config::applications(&self.fleet),
            TableName::Policies => policy::policies(&self.fleet),
            TableName::Entries(object) => config::entries(&self.fleet, *object),
            TableName::Manifests(deployment) => rendered::table(&self.fleet, *deployment),
            TableName::History(object) => self.past.rows(*object),
            _ => Table::new(),
        }
    }

    /// The metrics of a node. What is said to a service of the fleet are other actions.
    fn metrics(&self, node: &EdgeNodeDescriptor) -> Table {
        let mut rows = self.explorer.metrics(node);
        if is_own_service(&self.fleet, node) {
            rows.values_mut().for_each(|row| row["writable"] = json!(false));
        }
        rows
    }

    fn own_row(&self) -> Table {
        let missing = self.missing(MISSING_MAX);
        let online = self.online.is_ok();
        let replayed = self.replay.as_ref().map(|replay| (Health::Working, vec![replay.sentence()]));
        let (health, reasons) = replayed.unwrap_or_else(|| match &self.online {
            Err(reason) => (Health::Away, vec![format!("no session with the broker: {reason}")]),
            Ok(()) if missing.is_empty() => match self.recorder.status() {
                HistoryStatus::Failed(_) => (Health::Attention, self.recorder.status().reason().into_iter().collect()),
                _ => match self.notifier.as_ref().and_then(Notifier::failure) {
                    Some(reason) => {
                        (Health::Attention, vec![format!("the Alertmanager does not take the alerts: {reason}")])
                    }
                    None => (Health::Good, Vec::new()),
                },
            },
            Ok(()) => (Health::Working, missing.clone()),
        });
        let row = json!({
            "key": "console", "health": health, "reasons": reasons, "broker": self.settings.broker,
            "organisation": self.settings.organisation.to_string(), "online": online,
            "since": self.online_since, "complete": online && missing.is_empty(), "missing": missing,
            "history": { "recording": self.recorder.is_listening(), "reason": self.recorder.status().reason() },
            "sessions": self.viewers, "version": self.settings.version, "host_id": self.settings.host_id.as_str(),
        });
        [("console".to_owned(), row)].into()
    }
}

#[cfg(test)]
mod tests;
