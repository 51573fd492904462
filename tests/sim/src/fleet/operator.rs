//! People: a program that writes to ConfigDB for them.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use configdb_contract::{ConfigReplica, Writer, WriterConfig, WriterOutput, configdb_node};
use sparkplug::Now;
use sparkplug::host::{HostConfig, HostRequest};

use crate::model::names::{host, organisation};
use crate::model::program::{Action, Boot, Input, Program};
use crate::model::script::{Fate, OperatorWrite};

/// Writes for people until ConfigDB answers.
#[derive(Debug)]
pub struct Operator {
    replica: ConfigReplica,
    writer: Writer,
    /// What became of each request.
    pub fates: BTreeMap<String, Fate>,
}

impl Operator {
    /// A new one.
    #[must_use]
    pub fn boot(seed: u64) -> Boot {
        let node = configdb_node(&organisation());
        let filter = format!("spBv1.0/{}/+/{}/#", node.group, node.edge_node);
        let filters = vec![(filter, sparkplug::session::QoS::AtLeastOnce)];
        let config = HostConfig { seed, filters, ..host("operator") };
        let program = Self {
            replica: ConfigReplica::new(node.clone()),
            writer: Writer::new(WriterConfig::new(node.clone()), seed),
            fates: BTreeMap::new(),
        };
        let actions = vec![Action::Host(HostRequest::Expect { node })];
        Boot { program: Box::new(program), node: None, host: Some(config), actions }
    }

    /// The copy of ConfigDB that people see.
    #[must_use]
    pub const fn replica(&self) -> &ConfigReplica {
        &self.replica
    }

    fn outputs(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(output) = self.writer.poll_output() {
            match output {
                WriterOutput::Send(request) => actions.push(Action::Host(request)),
                WriterOutput::Answered(result) => {
                    let fate = if result.is_applied() {
                        Fate::Applied
                    } else {
                        Fate::Refused(result.reason.unwrap_or_default())
                    };
                    self.fates.insert(result.id, fate);
                }
                WriterOutput::GaveUp { id, .. } => {
                    self.fates.insert(id, Fate::GaveUp);
                }
            }
        }
        actions
    }
}

impl Program for Operator {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        match input {
            Input::Timer => self.writer.handle_timeout(now),
            Input::Host(event) => {
                self.replica.on_event(&event);
                while let Some(change) = self.replica.poll_change() {
                    self.writer.on_change(&change, now);
                }
            }
            Input::Person(OperatorWrite(request)) => {
                self.fates.insert(request.id.clone(), Fate::Open);
                if self.writer.submit(request.clone(), now).is_err() {
                    self.fates.insert(request.id, Fate::GaveUp);
                }
            }
            _ => {}
        }
        self.outputs()
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.writer.next_deadline()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
