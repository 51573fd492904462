//! The state of the git server: what the copies shall be and are, and who may use them.
//!
//! The cluster manager says what each copy shall be. It is recorded on the disk before anything of it counts, so that clusters read after a restart although the manager is away.
//! A push that was received goes to the cluster manager, which decides over it; its copy moves when the cluster manager says so.
//!
//! Users are known from ConfigDB. While that is not known completely no user is admitted: a token may have been revoked meanwhile.

mod copies;
mod pushes;
mod users;

use std::time::Duration;

use access::rate::Rate;
use cluster_manager_contract::ManagerReplica;
use configdb_contract::{Change, ConfigReplica, configdb_node};
use configdb_schema::address::CLUSTER_MANAGER_NODE;
use configdb_schema::document::ApiToken;
use configdb_schema::{Document as _, Organisation};
use git_hosting::credential::CredentialKey;
use git_hosting::gatekeeper::{Admission, Denial};
use git_server_contract::names::{push_of, repository_of};
use git_server_contract::{DesiredRepository, GitNode, PackPart, PushAnswer};
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::{DeviceId, EdgeNodeDescriptor, EdgeNodeId, Metric, Now, TypedMetrics as _};
use uuid::Uuid;

use crate::event::{Effect, Event, GitRequest, PersistedCopies, PushRequest};
use copies::Copies;
use pushes::{PushEnd, Pushes};
use users::Users;

/// What the state goes by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Prefix of all groups.
    pub organisation: Organisation,
    /// Version of the program.
    pub version: String,
    /// Base URL under which clients reach the repositories, without a slash at its end.
    pub url: String,
    /// How often one user may ask.
    pub rate: Rate,
    /// First and longest pause after work on a copy that failed.
    pub retry: (Duration, Duration),
    /// How long a push may wait for the cluster manager in all.
    pub push_limit: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct State {
    config: ConfigReplica,
    /// The replica was complete once, with this store.
    is_known: bool,
    manager: ManagerReplica,
    users: Users,
    copies: Copies,
    pushes: Pushes,
    node: GitNode,
    published: GitNode,
    effects: Vec<Effect>,
}

impl State {
    /// Knows nothing yet but what is on the disk.
    #[must_use]
    pub fn new(settings: Settings, persisted: PersistedCopies, now: Now) -> Self {
        let configdb = configdb_node(&settings.organisation);
        let manager = EdgeNodeId::new(CLUSTER_MANAGER_NODE).expect("a constant without forbidden characters is an id");
        let manager = EdgeNodeDescriptor { edge_node: manager, ..configdb.clone() };
        let copies = Copies::new(persisted, settings.retry, now);
        let repositories = u32::try_from(copies.len()).unwrap_or(u32::MAX);
        let node = GitNode { version: settings.version, url: settings.url, repositories, ..GitNode::default() };
        let mut state = Self {
            config: ConfigReplica::new(configdb.clone()),
            is_known: false,
            manager: ManagerReplica::new(manager.clone()),
            users: Users::new(settings.rate),
            copies,
            pushes: Pushes::new(settings.push_limit),
            published: node.clone(),
            node,
            effects: [configdb, manager].map(|node| Effect::Host(HostRequest::Expect { node })).into(),
        };
        state.reconcile(now);
        state
    }

    /// Metrics that the node is born with.
    #[must_use]
    pub fn node_metrics(&self) -> Vec<Metric> {
        self.published.to_metrics()
    }

    /// What the node says.
    #[must_use]
    pub const fn node(&self) -> &GitNode {
        &self.node
    }

    /// Copies that are not as they shall be.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.copies.waiting()
    }

    /// Everything about ConfigDB is known.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.is_known && self.config.is_complete()
    }

    /// Takes one event.
    pub fn on_event(&mut self, event: Event, now: Now) {
        match event {
            Event::Host(event) => self.on_host_event(&event),
            Event::Node(NodeEvent::Command { device, metrics, .. }) => self.on_command(device.as_ref(), &metrics, now),
            Event::Node(_) => {}
            Event::DeadlineReached => {
                let (updates, ended) = self.pushes.on_deadline(now);
                self.effects.extend(updates.into_iter().map(Effect::Node));
                ended.into_iter().for_each(|(push, ended)| self.end(push, ended));
            }
            Event::Pushed(request) => self.on_pushed(request, now),
            Event::GitRequest(asked) => {
                let answer = self.admit(&asked, now);
                let refused = self.users.take_refused();
                self.effects.extend(refused.into_iter().map(|record| Effect::Record(Box::new(record))));
                self.effects.push(Effect::Answer(asked.id, answer));
            }
            Event::Polled(cluster) => self.copies.on_polled(cluster, now),
            Event::Copied(result) => {
                let repository = result.repository;
                self.copies.on_copied(result, now);
                self.end_pushes(repository);
            }
        }
        self.reconcile(now);
    }

    /// `Now::mono` at which [`Event::DeadlineReached`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.copies.next_deadline().into_iter().chain(self.pushes.next_deadline()).min()
    }

    /// What is to be done, in order.
    pub fn poll_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn on_host_event(&mut self, event: &HostEvent) {
        match event {
            HostEvent::HostServed { .. } => self.effects.push(Effect::Node(NodeUpdate::Rebirth)),
            HostEvent::Rejected { topic, reason } => tracing::debug!(topic, reason, "a message could not be used"),
            _ => {}
        }
        self.manager.on_event(event);
        self.config.on_event(event);
        while let Some(change) = self.config.poll_change() {
            self.on_change(&change);
        }
    }

    fn on_change(&mut self, change: &Change) {
        match change {
            Change::StoreReplaced { old, new } => {
                tracing::warn!(%old, %new, "another ConfigDB answers; no user is admitted until it is known completely");
                self.is_known = false;
                self.users.forget();
            }
            Change::BecameComplete { .. } if !self.is_known => {
                self.is_known = true;
                self.users.learn(&self.config);
            }
            Change::BecameIncomplete { reason } => tracing::info!(reason, "ConfigDB is not known completely any more"),
            Change::Contradicted { reason } => {
                tracing::warn!(reason, "another process speaks for ConfigDB; its births are asked for");
                let node = self.config.node().clone();
                self.effects.push(Effect::Host(HostRequest::Rebirth { node }));
            }
            Change::Malformed { reason } => tracing::warn!(reason, "something of ConfigDB cannot be read"),
            Change::Entry { object, slug, .. } if self.is_known && **slug == *ApiToken::slug() => {
                let entry = self.config.entry(*object, slug).map(|entry| entry.json.clone());
                self.users.set(*object, entry.as_deref());
            }
            _ => {}
        }
    }

    fn on_command(&mut self, device: Option<&DeviceId>, metrics: &[Metric], now: Now) {
        let Some(device) = device else {
            match DesiredRepository::from_metrics(metrics) {
                Some(Ok(desired)) => self.copies.on_desired(desired, now),
                Some(Err(error)) => tracing::warn!(error = %error, "a desired state cannot be used"),
                None => tracing::debug!("a command to the node is ignored: it holds no desired state"),
            }
            return;
        };
        if let Some(repository) = repository_of(device) {
            match PackPart::from_metrics(metrics) {
                Some(Ok(part)) => self.copies.on_part(repository, &part, now),
                Some(Err(error)) => tracing::warn!(%repository, error = %error, "a part of a pack cannot be used"),
                None => tracing::debug!(%repository, "a command is ignored: it holds no part of a pack"),
            }
        } else if let Some(push) = push_of(device) {
            match PushAnswer::from_metrics(metrics) {
                Some(Ok(answer)) => self.on_answer(push, answer, now),
                Some(Err(reason)) => tracing::warn!(%push, reason, "an answer to a push cannot be used"),
                None => tracing::debug!(%push, "a command is ignored: it holds no answer"),
            }
        }
    }

    /// The key that credentials are sealed to, while the cluster manager is there.
    fn key(&self) -> Result<CredentialKey, Denial> {
        let away = || "The cluster manager is away, and it decides over pushes; try again when it is back".to_owned();
        let key = self.manager.git_key().filter(|_| self.manager.is_alive());
        let key = key.ok_or_else(|| Denial::NotAtPresent(away()))?;
        key.parse().map_err(|_| Denial::NotAtPresent(away()))
    }

    fn on_pushed(&mut self, request: PushRequest, now: Now) {
        let id = request.id;
        let (repository, refs, bytes) = (request.repository, request.changes.len(), request.pack.len());
        match self.key().and_then(|key| self.pushes.begin(request, &key, now)) {
            Ok(update) => {
                tracing::info!(push = %id, %repository, refs, bytes, "a push is handed to the cluster manager");
                self.effects.push(Effect::Node(update));
            }
            Err(denial) => self.effects.push(Effect::PushEnded(id, Err(denial))),
        }
    }

    fn on_answer(&mut self, push: Uuid, answer: PushAnswer, now: Now) {
        let answered = self.pushes.on_answer(push, answer, now);
        self.effects.extend(answered.updates.into_iter().map(Effect::Node));
        if let Some((repository, pack)) = answered.pack {
            self.copies.on_pushed(repository, pack, now);
        }
        if let Some(repository) = answered.repository {
            self.end_pushes(repository);
        }
        if let Some(ended) = answered.ended {
            self.end(push, ended);
        }
    }

    /// Ends the pushes that a copy shows.
    fn end_pushes(&mut self, repository: Uuid) {
        let Some(refs) = self.copies.refs(repository) else { return };
        for push in self.pushes.on_refs(repository, refs) {
            self.end(push, PushEnd::Done);
        }
    }

    fn end(&mut self, push: Uuid, ended: PushEnd) {
        let result = match ended {
            PushEnd::Done => Ok(()),
            PushEnd::Denied(denial) => Err(denial),
        };
        tracing::info!(%push, refused = result.as_ref().err().map(Denial::reason), "a push has ended");
        self.effects.push(Effect::PushEnded(push, result));
    }

    fn admit(&mut self, asked: &GitRequest, now: Now) -> Result<Admission, Denial> {
        if !self.is_ready() {
            let reason = "ConfigDB is not known completely; no user is admitted until it is";
            return Err(Denial::NotAtPresent(reason.to_owned()));
        }
        let desired = asked.repository.and_then(|(repository, _)| self.copies.desired(repository));
        let admission = self.users.admit(asked, desired, now)?;
        if asked.push {
            self.key()?;
        }
        Ok(admission)
    }

    fn reconcile(&mut self, now: Now) {
        let (works, updates) = self.copies.reconcile(now);
        self.effects.extend(updates.into_iter().map(Effect::Node));
        self.effects.extend(works.into_iter().map(|work| Effect::Copy(Box::new(work))));
        self.node.repositories = u32::try_from(self.copies.len()).unwrap_or(u32::MAX);
        self.node.pushes = u32::try_from(self.pushes.published()).unwrap_or(u32::MAX);
        if self.node != self.published {
            let metrics = self.node.changes_since(&self.published);
            self.published = self.node.clone();
            self.effects.push(Effect::Node(NodeUpdate::Set { device: None, metrics }));
        }
    }
}

#[cfg(test)]
mod tests;
