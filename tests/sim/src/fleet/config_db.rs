//! ConfigDB on its simulated disk: what its service does around the state, as far as the disk is concerned.

use std::any::Any;
use std::sync::OnceLock;
use std::time::Duration;

use configdb::model::Limits;
use configdb::store::MemoryStore;
use configdb::{Effect, Event, State, Turn};
use configdb_contract::configdb_node;
use sparkplug::Now;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent};
use uuid::Uuid;

use crate::model::disk::{CommitError, Disk};
use crate::model::mutation::Mutation;
use crate::model::names::organisation;
use crate::model::program::{Action, Boot, Input, Program};

/// While nothing can be stored it is looked so often whether it can.
const ROOM_LOOK: Duration = Duration::from_secs(5);

/// After a disk that fails the process starts again so late.
const AGAIN: Duration = Duration::from_secs(3);

const NO_ROOM: &str = "the disk of the database is full";

/// Starts ConfigDB.
pub(crate) fn boot(disk: &Disk, mutation: Option<Mutation>, seed: u64, now: Now) -> Boot {
    let limits = Limits::default();
    disk.open(seed);
    let config = EdgeNodeConfig {
        seed,
        message_bytes_max: limits.message_bytes_max,
        commands_wait: true,
        ..EdgeNodeConfig::for_one_speaker(configdb_node(&organisation()))
    };
    let forgets = mutation == Some(Mutation::PublishesBeforeItStores);
    let state = load(disk, seed, None, now);
    let mut program = ConfigDb { state, disk: disk.clone(), forgets, turns: 0, next_look: None, timeline: seed };
    let actions = match program.try_turn(now) {
        Ok(actions) => actions,
        Err(CommitError::Full) => {
            program.state = load(disk, seed, Some(NO_ROOM), now);
            program.next_look = Some(now.mono + ROOM_LOOK);
            program.turn(now)
        }
        Err(CommitError::Unknown) => {
            let exit = vec![Action::Exit { again_after: Some(AGAIN) }];
            return Boot { program: Box::new(program), node: None, host: None, actions: exit };
        }
    };
    let metrics = program.state.node_metrics();
    Boot { program: Box::new(program), node: Some((config, metrics)), host: None, actions }
}

fn load(disk: &Disk, timeline: u64, read_only: Option<&str>, now: Now) -> State {
    let store = disk.store().expect("ConfigDB's disk has a database");
    let mut state = State::new(&store.load_now(), Limits::default()).expect("the database was written by this program");
    if let Some(reason) = read_only {
        state.set_read_only(reason.to_owned());
    }
    state.on_event(Event::Start { timeline }, now);
    state
}

/// ConfigDB.
#[derive(Debug)]
pub(crate) struct ConfigDb {
    state: State,
    disk: Disk,
    forgets: bool,
    turns: u64,
    /// When it is looked whether writes can be carried out again.
    next_look: Option<Duration>,
    timeline: u64,
}

impl ConfigDb {
    fn turn(&mut self, now: Now) -> Vec<Action> {
        self.try_turn(now).unwrap_or_else(|_| vec![Action::Exit { again_after: Some(AGAIN) }])
    }

    /// Takes the state's turn. What does not fit is taken back and refused; an error that is yielded ends the process.
    fn try_turn(&mut self, now: Now) -> Result<Vec<Action>, CommitError> {
        self.turns += 1;
        let Turn { commit, effects } = self.state.take_turn();
        let is_forgotten = self.forgets && self.turns.is_multiple_of(3);
        let stored =
            effects.commit(|| if is_forgotten || commit.is_empty() { Ok(()) } else { self.disk.commit(&commit) });
        let saved = match stored {
            Ok(((), saved)) => saved,
            Err((CommitError::Full, _)) if self.turns > 1 => {
                let answers: Vec<_> = commit.requests.into_iter().map(|request| request.result).collect();
                let store = self.disk.store().expect("ConfigDB's disk has a database");
                let rolled_back = self.state.roll_back(&store.load_now(), &answers, NO_ROOM, now);
                rolled_back.expect("the database was written by this program");
                self.next_look = Some(now.mono + ROOM_LOOK);
                self.state.take_turn().effects.nothing_to_save()
            }
            Err((error, _)) => return Err(error),
        };
        let mut actions = Vec::new();
        let mut histories = Vec::new();
        for effect in saved {
            match effect {
                Effect::Node(update) => actions.push(Action::Node(update)),
                // A simulated disk has no record of writes beside its history.
                Effect::Record => {}
                Effect::ReadHistory(request) => {
                    let history = self.disk.store().map(|store| store.history_now(&request)).unwrap_or_default();
                    histories.push((request, history));
                }
            }
        }
        if !histories.is_empty() {
            for (request, history) in histories {
                self.state.on_event(Event::History { request, history: Ok(history) }, now);
            }
            actions.extend(self.try_turn(now)?);
        }
        Ok(actions)
    }

    /// What is written from here on is of another timeline.
    fn begin_session(&mut self, now: Now) {
        // Another number that no other run has, as far as runs have random ones.
        self.timeline = self.timeline.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        self.disk.open(self.timeline);
        self.state.on_event(Event::SessionEnded { timeline: self.timeline }, now);
    }

    /// Looks whether there is room again.
    fn look(&mut self, now: Now) {
        if self.next_look.is_some_and(|at| at <= now.mono) {
            let is_writable = self.disk.is_writable();
            self.next_look = (!is_writable).then_some(now.mono + ROOM_LOOK);
            if is_writable {
                self.state.set_writable(now);
            }
        }
    }
}

impl Program for ConfigDb {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        self.look(now);
        if let Input::Node(event) = input {
            let is_over = matches!(event, NodeEvent::Offline { .. });
            self.state.on_event(Event::Node(event), now);
            if is_over {
                self.begin_session(now);
            }
        }
        self.turn(now)
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.state.next_deadline().into_iter().chain(self.next_look).min()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What ConfigDB writes into an empty database; it is always the same, so it is made once.
pub(crate) fn fresh_store() -> &'static MemoryStore {
    static FRESH: OnceLock<MemoryStore> = OnceLock::new();
    FRESH.get_or_init(|| {
        let store = MemoryStore::new(Uuid::nil());
        drop(crate::fleet::config_db::boot(&Disk::with_store(store.clone()), None, 0, Now::default()));
        store
    })
}
