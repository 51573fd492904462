//! The web console: its real state, with a history in memory that outlives it. What it showed is kept beside what it recorded.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use console::State;
use console::config::{Role, Settings};
use console::event::{Effect, Event};
use console::record::{Record, Retention, StoreEvent, Tables};
use fleet_view::deltas::Table;
use fleet_view::history::{Change, View};
use sparkplug::edge_node::EdgeNodeConfig;
use sparkplug::host::{HostConfig, HostEvent};
use sparkplug::{EdgeNodeDescriptor, HostId, Now};

use crate::model::disk::Disk;
use crate::model::mutation::Mutation;
use crate::model::names::organisation;
use crate::model::program::{Action, Boot, Input, Program};

/// The program.
#[derive(Debug)]
pub struct Console {
    state: State,
    disk: Disk,
    mutation: Option<Mutation>,
    shown: Tables,
}

impl Console {
    /// A table as it is shown.
    #[must_use]
    pub fn table(&self, view: View) -> Option<&Table> {
        self.shown.get(&view).map(Arc::as_ref)
    }

    fn take(&mut self, event: Event, now: Now) -> Vec<Action> {
        self.state.on_event(event, now);
        let mut actions = Vec::new();
        loop {
            let effects = self.state.poll_effects();
            if effects.is_empty() {
                return actions;
            }
            for effect in effects {
                match effect {
                    Effect::Node(update) => actions.push(Action::Node(update)),
                    Effect::Host(request) => actions.push(Action::Host(request)),
                    Effect::Publish(published) => {
                        if let Some(view) = published.name.view() {
                            self.shown.insert(view, Arc::clone(&published.rows));
                        }
                    }
                    Effect::Record(record) => {
                        let first = self.store(record);
                        self.state.on_event(Event::History(StoreEvent::Stored { first }), now);
                    }
                    // There is no Alertmanager, no one looks at it, and no one acts.
                    Effect::ApiResponse(_)
                    | Effect::Keep(_)
                    | Effect::KeepSessions(_)
                    | Effect::Notify(_)
                    | Effect::Retire(_)
                    | Effect::Rows { .. } => {}
                }
            }
        }
    }

    fn store(&self, record: Arc<Record>) -> u64 {
        let mut record = Record::clone(&record);
        if self.mutation == Some(Mutation::HistoryLosesChanges) {
            record.transitions.retain(|transition| !matches!(transition.change, Change::Gone));
        }
        let shows_everything = self.state.shows_everything();
        self.disk.with_past(|past| past.store(record, shows_everything.then(|| self.shown.clone())))
    }
}

/// Starts it.
pub fn boot(disk: &Disk, mutation: Option<Mutation>, seed: u64, now: Now) -> Boot {
    let group = organisation().central_group();
    let node = EdgeNodeDescriptor::parse(&group, "Console").expect("ACME is a name");
    let settings = Settings {
        role: Role::Console,
        organisation: organisation(),
        node: node.clone(),
        host_id: HostId::new("ACME-Central-Console").expect("it is an id"),
        broker: "mqtt://broker.example:1883".to_owned(),
        version: "sim".to_owned(),
        read_only: None,
        history: Some(Retention { days: 30, bytes: u64::MAX }),
        notifies: false,
        link: None,
        rules: String::new(),
        rev: 0,
    };
    let config = EdgeNodeConfig { seed, ..EdgeNodeConfig::for_one_speaker(node) };
    let node = Some((config, State::first_metrics(&settings)));
    let host = HostConfig { seed: seed ^ 1, ..HostConfig::of_contracts(Some(settings.host_id.clone())) };
    let state = State::new(settings, now).expect("ACME is a name");
    let mut program = Console { state, disk: disk.clone(), mutation, shown: Tables::new() };
    let known = disk.with_past(|past| past.known());
    let mut actions = program.take(Event::History(StoreEvent::Opened(Box::new(known))), now);
    actions.extend(program.take(Event::Started, now));
    Boot { program: Box::new(program), node, host: Some(host), actions }
}

impl Program for Console {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        let event = match input {
            Input::Timer => Event::DeadlineReached,
            Input::Node(event) => Event::Node(event),
            Input::Host(HostEvent::DeviceDeath { .. }) if self.mutation == Some(Mutation::ConsoleMissesDeaths) => {
                return Vec::new();
            }
            Input::Host(event) => Event::Host(event),
            _ => return Vec::new(),
        };
        self.take(event, now)
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.state.next_deadline()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
