//! The whole: a store, the cluster manager that reads it, the edge, the channel between them, and everything that happens to them.

use std::collections::BTreeSet;
use std::sync::Arc;

use edge_sync_contract::{DesiredIndex, Digest};
use sparkplug::replication::Point;
use uuid::Uuid;

use crate::edge::{Edge, Report};
use crate::fault::Fault;
use crate::manager::{Manager, Message, object};
use crate::store::{Change, Deployment, Store, Transaction};

/// How often each thing may happen in one run; the checker tries every order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    /// An operator writes or deletes a deployment.
    pub writes: u8,
    /// ConfigDB writes something that changes no desired state.
    pub status: u8,
    /// ConfigDB starts again.
    pub restarts: u8,
    /// The store is replaced: by an older state of itself, by an empty one, by the one that was replaced before.
    pub restores: u8,
    /// An operator compares the store with the edge, and then decides.
    pub decisions: u8,
    /// The edge is killed.
    pub edge_crashes: u8,
    /// The cluster manager is killed.
    pub manager_crashes: u8,
    /// Messages that are sent before the channel is fair.
    pub messages: usize,
}

impl Budget {
    /// What each fault needs to be found: seconds.
    pub const SHORT: Self = Self {
        writes: 0,
        status: 1,
        restarts: 0,
        restores: 1,
        decisions: 1,
        edge_crashes: 1,
        manager_crashes: 0,
        messages: 2,
    };
    /// What is restored again between an operator's comparison and the decision: seconds.
    pub const RESTORED_AGAIN: Self = Self {
        writes: 0,
        status: 0,
        restarts: 0,
        restores: 2,
        decisions: 1,
        edge_crashes: 0,
        manager_crashes: 0,
        messages: 2,
    };
    /// Minutes on two cores.
    pub const LONG: Self = Self {
        writes: 1,
        status: 1,
        restarts: 0,
        restores: 1,
        decisions: 1,
        edge_crashes: 1,
        manager_crashes: 1,
        messages: 2,
    };
}

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// An operator writes a deployment.
    Write(Deployment),
    /// An operator deletes a deployment.
    Delete(Deployment),
    /// A transaction that changes no desired state.
    Status,
    /// ConfigDB starts again.
    Restart,
    /// The store is restored from a backup of that revision.
    Restore(usize),
    /// An empty store takes the place of the store.
    Replace,
    /// What was replaced last comes back.
    PutBack,
    /// An operator compares the store with what the edge reports.
    Compare,
    /// The operator writes back what runs at the edge alone.
    WriteBack,
    /// The operator releases the cluster: it follows the store as far as it was compared.
    Release,
    /// The cluster manager knows the present state of the store completely.
    Learn,
    /// The cluster manager receives what the edge reports.
    Receive,
    /// The cluster manager sends what the edge shall have.
    Send,
    /// A message arrives; it may arrive again, or never.
    Deliver(usize),
    /// The edge stores what it took over.
    Save,
    /// The edge is killed and starts again.
    CrashEdge,
    /// The cluster manager is killed and starts again.
    CrashManager,
}

/// What an operator has seen of store and edge. The store may be replaced before the decision arrives.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Comparison {
    /// The store; every request names it.
    pub store: Uuid,
    /// Its state.
    pub seen: Point,
    /// Deployments that run at the edge alone.
    pub only_at_edge: BTreeSet<Deployment>,
    /// The epoch of the decision.
    pub epoch: u64,
    /// Digest of the index that the edge had accepted.
    pub accepted: Option<Digest>,
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct System {
    /// ConfigDB's store.
    pub store: Arc<Store>,
    /// The store that was replaced last.
    pub shelf: Option<Arc<Store>>,
    /// The sender.
    pub manager: Manager,
    /// The receiver.
    pub edge: Edge,
    /// All messages that were sent: each may arrive in any order, at any time, never, or more than once.
    pub channel: BTreeSet<Message>,
    /// Log of the store that the accepted index was derived from.
    pub known: Arc<[Transaction]>,
    /// What an operator has compared, and decides by.
    pub comparison: Option<Comparison>,
    /// What may still happen.
    pub left: Budget,
    /// The highest version that the edge reported, with its digest.
    reported: (u64, Option<Digest>),
    /// The first rule that was broken.
    pub broken: Option<&'static str>,
    next_transaction: u8,
    next_timeline: u64,
    next_store: u8,
}

/// Nothing is removed from incomplete, older or foreign knowledge.
pub const NO_PRUNE: &str = "no-prune-from-ignorance";
/// What was accepted is contained in everything that is accepted later, unless an operator decided otherwise.
pub const KEPT: &str = "acknowledged-is-kept";
/// A version that was reported never falls.
pub const VERSION: &str = "version-never-falls";

impl System {
    /// A store with two deployments, neither of which the edge has received.
    #[must_use]
    pub(crate) fn new(fault: Option<Fault>, budget: Budget) -> Self {
        let mut system = Self {
            store: Arc::new(Store::new(1, 1)),
            shelf: None,
            manager: Manager::default(),
            edge: Edge::new(fault),
            channel: BTreeSet::new(),
            known: Vec::new().into(),
            comparison: None,
            left: budget,
            reported: (0, None),
            broken: None,
            next_transaction: 0,
            next_timeline: 2,
            next_store: 2,
        };
        for deployment in [0, 1] {
            system.commit(Change::Put(deployment));
        }
        system
    }

    /// One transaction of the store.
    fn commit(&mut self, change: Change) {
        Arc::make_mut(&mut self.store).log.push(Transaction { id: self.next_transaction, change });
        self.next_transaction += 1;
    }

    /// Another store, or another state of it, takes the place of the store.
    fn replace_store(&mut self, store: Store) {
        self.shelf = Some(std::mem::replace(&mut self.store, Arc::new(store)));
        self.next_timeline += 1;
    }

    /// An operator looks at store and edge.
    fn compare(&mut self) -> Option<()> {
        let report = self.edge.report();
        let here = self.store.deployments();
        let reported = report.origin.map_or(0, |origin| origin.epoch);
        self.comparison = Some(Comparison {
            store: self.store.identity,
            seen: self.store.state()?,
            only_at_edge: runs(&report).difference(&here).copied().collect(),
            epoch: reported.max(self.store.release().unwrap_or(0)) + 1,
            accepted: report.digest,
        });
        Some(())
    }

    /// The operator writes what runs at the edge alone into the store, and looks at both again: where something is missing the store was restored meanwhile, and the command ends. Another store refuses.
    fn write_back(&mut self, fault: Option<Fault>) -> Option<()> {
        let mut comparison = self.comparison.take().filter(|comparison| comparison.store == self.store.identity)?;
        std::mem::take(&mut comparison.only_at_edge)
            .into_iter()
            .for_each(|deployment| self.commit(Change::Put(deployment)));
        let has_all = runs(&self.edge.report()).is_subset(&self.store.deployments());
        if !has_all && fault != Some(Fault::BlindWriteBack) {
            return None;
        }
        comparison.seen = self.store.state()?;
        self.comparison = Some(comparison);
        Some(())
    }

    /// The operator's decision arrives. A store that is another one, or that was restored to a state before the one that was compared, refuses it.
    fn release(&mut self, fault: Option<Fault>) {
        let Some(comparison) = self.comparison.take() else { return };
        let Comparison { store, seen, only_at_edge, epoch, accepted } = comparison;
        let is_judged = fault != Some(Fault::UnconditionalDecision);
        if store != self.store.identity || (is_judged && !self.store.contains(seen)) {
            return;
        }
        let discards = only_at_edge.iter().fold(0, |bits, deployment| bits | 1 << deployment);
        self.commit(Change::Release { store, epoch, seen, discards, accepted });
    }

    /// The edge stores what waits; the rules are checked with what its sender knew.
    pub(crate) fn save(&mut self) {
        let Some((before, after)) = self.edge.save() else { return };
        let sent = |message: &&Message| {
            DesiredIndex { follows: None, decided_for: None, ..message.index.clone() } == after.index
        };
        let Some(log) = self.channel.iter().rfind(sent).map(|message| message.log.clone()) else {
            self.broken = Some("an index is stored that was never sent");
            return;
        };
        if let Some(before) = before {
            let decision = |log: &[Transaction]| {
                log.iter().rev().find_map(|transaction| match transaction.change {
                    Change::Release { epoch, seen, discards, .. } => Some((epoch, seen, discards)),
                    _ => None,
                })
            };
            let (old, new) = (decision(&self.known), decision(&log));
            let decided = new.filter(|(epoch, ..)| *epoch > old.map_or(0, |(epoch, ..)| epoch));
            // What was deleted after the operator looked is known to be deleted, and what the operator has seen at the edge alone may go.
            let since = match decided {
                Some((_, seen, _)) => usize::try_from(seen.revision).unwrap_or(usize::MAX).min(log.len()),
                None => self.known.len().min(log.len()),
            };
            let discards = decided.map_or(0, |(_, _, discards)| discards);
            let is_deleted =
                |deployment: Deployment| log[since..].iter().any(|t| t.change == Change::Delete(deployment));
            let is_lost = |deployment: Deployment| {
                let listed = |record: &edge_sync::record::IndexRecord| record.entry(object(deployment)).is_some();
                let is_discarded = discards & (1 << deployment) != 0;
                listed(&before) && !listed(&after) && !is_discarded && !is_deleted(deployment)
            };
            if [0, 1, 2].into_iter().any(is_lost) {
                self.broken = self.broken.or(Some(NO_PRUNE));
            }
            if decided.is_none() && !log.starts_with(&self.known) {
                self.broken = self.broken.or(Some(KEPT));
            }
        }
        self.known = log;
    }

    /// The cluster manager receives what the edge reports.
    pub(crate) fn receive(&mut self) {
        let report = self.edge.report();
        let now = (report.version, report.digest);
        if now.0 < self.reported.0 || now.0 == self.reported.0 && now.1 != self.reported.1 {
            self.broken = self.broken.or(Some(VERSION));
        }
        self.reported = now;
        if self.manager.report.as_deref() != Some(&report) {
            self.manager.report = Some(Arc::new(report));
        }
    }

    /// The cluster manager knows the present state of the store.
    pub(crate) fn learn(&mut self) {
        if self.manager.replica.as_ref() != Some(&self.store) {
            self.manager.replica = Some(Arc::clone(&self.store));
        }
    }

    /// A message of the channel arrives.
    pub(crate) fn deliver(&mut self, message: &Message) {
        self.edge.receive(message.index.clone());
    }

    fn actions_of_stores(&self, actions: &mut Vec<Action>) {
        let here = self.store.deployments();
        if self.left.writes > 0 {
            actions.extend((0..3).map(|n| if here.contains(&n) { Action::Delete(n) } else { Action::Write(n) }));
        }
        if self.left.status > 0 {
            actions.push(Action::Status);
        }
        if self.left.restarts > 0 {
            actions.push(Action::Restart);
        }
        if self.left.restores > 0 {
            actions.extend((0..self.store.log.len()).map(Action::Restore));
            actions.push(Action::Replace);
            if self.shelf.is_some() {
                actions.push(Action::PutBack);
            }
        }
        let report = self.edge.report();
        let is_other = report.origin.is_some_and(|origin| origin.store != self.store.identity);
        match &self.comparison {
            None if self.left.decisions > 0 && (report.held || is_other) => actions.push(Action::Compare),
            None => {}
            Some(comparison) => {
                if !comparison.only_at_edge.is_empty() {
                    actions.push(Action::WriteBack);
                }
                actions.push(Action::Release);
            }
        }
    }

    /// What can happen next.
    pub(crate) fn actions(&self, actions: &mut Vec<Action>) {
        if self.broken.is_some() {
            return;
        }
        self.actions_of_stores(actions);
        actions.extend([Action::Learn, Action::Receive]);
        if self.channel.len() < self.left.messages {
            actions.push(Action::Send);
        }
        actions.extend((0..self.channel.len()).map(Action::Deliver));
        if self.edge.is_waiting() {
            actions.push(Action::Save);
        }
        if self.left.edge_crashes > 0 {
            actions.push(Action::CrashEdge);
        }
        if self.left.manager_crashes > 0 {
            actions.push(Action::CrashManager);
        }
    }

    /// After that has happened; none if it cannot.
    // long: an arm for each thing that can happen
    pub(crate) fn after(&self, action: Action, fault: Option<Fault>) -> Option<Self> {
        let mut next = self.clone();
        let timeline = next.next_timeline;
        match action {
            Action::Write(deployment) => {
                next.left.writes -= 1;
                next.commit(Change::Put(deployment));
            }
            Action::Delete(deployment) => {
                next.left.writes -= 1;
                next.commit(Change::Delete(deployment));
            }
            Action::Status => {
                next.left.status -= 1;
                next.commit(Change::Status);
            }
            Action::Restart => {
                next.left.restarts -= 1;
                next.store = Arc::new(next.store.restored(next.store.log.len(), timeline));
                next.next_timeline += 1;
            }
            Action::Restore(revision) => {
                next.left.restores -= 1;
                let kept = self.store.timelines.at(revision as u64).filter(|_| fault == Some(Fault::TimelineKept));
                let timeline = kept.map_or(timeline, |kept| kept.timeline);
                next.replace_store(self.store.restored(revision, timeline));
            }
            Action::Replace => {
                next.left.restores -= 1;
                next.replace_store(Store::new(next.next_store, timeline));
                next.next_store += 1;
            }
            Action::PutBack => {
                next.left.restores -= 1;
                let shelf = self.shelf.as_ref()?;
                next.replace_store(shelf.restored(shelf.log.len(), timeline));
            }
            Action::Compare => {
                next.left.decisions -= 1;
                next.compare()?;
            }
            Action::WriteBack => {
                // What was not written is compared again.
                let _ = next.write_back(fault);
            }
            Action::Release => next.release(fault),
            Action::Learn => next.learn(),
            Action::Receive => next.receive(),
            Action::Send => {
                let message = next.manager.plan(fault)?;
                next.channel.insert(message);
            }
            Action::Deliver(position) => {
                let message = self.channel.iter().nth(position)?;
                next.deliver(message);
            }
            Action::Save => next.save(),
            Action::CrashEdge => {
                next.left.edge_crashes -= 1;
                next.edge.restart();
            }
            Action::CrashManager => {
                next.left.manager_crashes -= 1;
                next.manager = Manager::default();
            }
        }
        Some(next)
    }
}

/// Whether two reports say the same of what runs.
#[must_use]
pub fn runs(report: &Report) -> BTreeSet<Deployment> {
    [0, 1, 2].into_iter().filter(|deployment| report.deployments.contains_key(&object(*deployment))).collect()
}
