//! The git server: its real state. What it asks of its disk and of users is carried out by [`crate::steps::copies`] and [`crate::steps::pushes`].

use std::any::Any;
use std::time::Duration;

use access::rate::Rate;
use git_server::adapters::sparkplug::{host_config, node_config, own_descriptor};
use git_server::event::{Effect, Event};
use git_server::state::{Settings, State};
use sparkplug::Now;
use sparkplug::edge_node::EdgeNodeConfig;
use sparkplug::host::HostConfig;

use crate::model::disk::Disk;
use crate::model::names::organisation;
use crate::model::program::{Action, Boot, Input, Program};

/// The program.
#[derive(Debug)]
pub struct GitServer(State);

/// Starts it.
pub(crate) fn boot(disk: &Disk, seed: u64, now: Now) -> Boot {
    let settings = Settings {
        organisation: organisation(),
        version: "sim".to_owned(),
        url: "http://git.example:8480".to_owned(),
        rate: Rate::per_minute(300),
        retry: (Duration::from_secs(1), Duration::from_secs(60)),
        push_limit: Duration::from_secs(600),
    };
    let mut state = State::new(settings, disk.with_copies(crate::model::copies::Copies::load), now);
    let node = own_descriptor(&organisation()).expect("ACME is a name");
    let host = host_config(&organisation()).expect("ACME is a name");
    let node = Some((EdgeNodeConfig { seed, ..node_config(node) }, state.node_metrics()));
    let actions = actions(&mut state);
    let host = Some(HostConfig { seed: seed ^ 1, ..host });
    Boot { program: Box::new(GitServer(state)), node, host, actions }
}

fn actions(state: &mut State) -> Vec<Action> {
    let effects = state.poll_effects().into_iter();
    effects
        .filter_map(|effect| match effect {
            Effect::Node(update) => Some(Action::Node(update)),
            Effect::Host(request) => Some(Action::Host(request)),
            // No one keeps records here.
            Effect::Record(_) => None,
            other => Some(Action::GitServer(Box::new(other))),
        })
        .collect()
}

impl GitServer {
    /// Copies that are not as they shall be.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.waiting()
    }
}

impl Program for GitServer {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        let event = match input {
            Input::Timer => Event::DeadlineReached,
            Input::Node(event) => Event::Node(event),
            Input::Host(event) => Event::Host(event),
            Input::GitServer(event) => event,
            _ => return Vec::new(),
        };
        self.0.on_event(event, now);
        actions(&mut self.0)
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.0.next_deadline()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
