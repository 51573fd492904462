//! The state of the service: which resource is worked on, step by step, and the state of each.
//!
//! One resource at a time, one step at a time: several resources may write into one Secret. A pass looks, decides, does one step and looks again, until nothing is left to do. When
//! it ends, the resource is due again. It is due at once if it changed meanwhile, and after a growing pause if the pass failed. It is also due from time to time, to see that KDC
//! and Secret still agree. Nothing begins before both kinds of resource are listed: what is absent from half a list may be wanted.

mod accounts;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use krb_keys_contract::KeysNode;
use krb_keys_contract::node::short;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::{Metric, Now, TypedMetrics};
use uuid::Uuid;

use crate::account::AccountState;
use crate::event::{Effect, Event, KeyError, ObservationRequest, Resource, Status};
use crate::reconcile::{Action, Decision, Delivery, Observed, OtherClaims, Record, Rules, decide};
use crate::spec::{Kind, ResourceId, Spec};
use accounts::Accounts;

/// Steps of one pass. More than any needs: a pass that finds more to do each time works against another client.
const STEPS_MAX: u32 = 300;
/// Characters of one reason that are published.
const REASON_CHARACTERS_MAX: usize = 300;

/// What a state needs to know before it starts.
#[derive(Debug, Clone)]
pub struct Settings {
    pub instance: Uuid,
    pub cluster: Uuid,
    pub version: String,
    /// Whom it administers the realm as.
    pub principal: String,
    /// First and longest pause before something is tried again.
    pub retry: (Duration, Duration),
    /// How often it is looked at what is as it shall be.
    pub verify: Duration,
    /// How long a key stays after another has followed it.
    pub expire_old: Duration,
}

/// The state of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ResourceState {
    /// As it shall be; perhaps with a remark.
    Ready(Option<&'static str>),
    /// Its keys are as they shall be, and its account is not known yet.
    AccountPending,
    /// It breaks a rule, or someone must do something.
    Refused(String),
    Failed(String),
    /// No one answered, so nothing is known.
    Unknown(String),
    Suspended,
}

#[derive(Debug)]
struct Entry {
    resource: Resource,
    /// When it is worked on next, monotonic.
    due: Duration,
    failures: u32,
    forced_done: bool,
    /// The last delivery, which may not be recorded yet.
    delivery: Option<Delivery>,
    state: Option<ResourceState>,
    /// What was answered to the account that is recorded.
    answer: Option<Result<Uuid, String>>,
}

#[derive(Debug)]
struct Pass {
    id: ResourceId,
    uid: String,
    steps: u32,
    /// The resource changed since the pass began.
    is_outdated: bool,
    /// What is being done; None: it is being looked.
    doing: Option<Action>,
}

#[derive(Debug)]
pub struct State {
    settings: Settings,
    listed: BTreeSet<Kind>,
    entries: BTreeMap<ResourceId, Entry>,
    pass: Option<Pass>,
    node: KeysNode,
    accounts: Accounts,
    effects: Vec<Effect>,
}

impl State {
    /// Knows no resource yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let node = KeysNode {
            instance: settings.instance,
            cluster: settings.cluster,
            version: settings.version.clone(),
            principal: settings.principal.clone(),
            ..KeysNode::default()
        };
        let (listed, entries) = (BTreeSet::new(), BTreeMap::new());
        Self { settings, listed, entries, pass: None, node, accounts: Accounts::default(), effects: Vec::new() }
    }

    /// The metrics with which the own Edge Node begins.
    #[must_use]
    pub fn node_metrics(&self) -> Vec<Metric> {
        self.node.to_metrics()
    }

    /// What the service says about itself.
    #[must_use]
    pub const fn node(&self) -> &KeysNode {
        &self.node
    }

    pub fn on_event(&mut self, event: Event, now: Now) {
        match event {
            Event::DeadlineReached => {}
            Event::Node(NodeEvent::Command { device: Some(device), metrics, .. }) => {
                self.on_account_command(&device, &metrics, now);
            }
            Event::Node(event) => on_node(&event),
            Event::Listed(kind, resources) => self.on_listed(kind, resources, now),
            Event::Applied(id, resource) => self.on_applied(id, resource, now),
            Event::Deleted(id) => self.on_deleted(&id, now),
            Event::Seen(id, seen) => self.on_seen(&id, seen, now),
            Event::Acted(id, result) => self.on_acted(&id, result, now),
            Event::StatusLost(id) => self.on_status_lost(&id, now),
        }
        self.begin(now);
        self.settle(now);
    }

    /// `Now::mono` at which [`Event::DeadlineReached`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let idle = self.pass.is_none() && self.is_complete();
        idle.then(|| self.entries.values().map(|entry| entry.due).min()).flatten()
    }

    /// What is to be done, in order.
    pub fn poll_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn is_complete(&self) -> bool {
        self.listed.len() == 2
    }

    fn on_listed(&mut self, kind: Kind, mut resources: BTreeMap<String, Resource>, now: Now) {
        self.listed.insert(kind);
        let gone: Vec<ResourceId> =
            self.entries.keys().filter(|id| id.kind == kind && !resources.contains_key(&id.name)).cloned().collect();
        for id in gone {
            self.on_deleted(&id, now);
        }
        while let Some((name, resource)) = resources.pop_first() {
            self.on_applied(ResourceId { kind, name }, resource, now);
        }
    }

    fn on_applied(&mut self, id: ResourceId, resource: Resource, now: Now) {
        let before = self.entries.get_mut(&id);
        let Some(entry) = before.filter(|entry| entry.resource.uid == resource.uid) else {
            let entry = Entry {
                resource,
                due: now.mono,
                failures: 0,
                forced_done: false,
                delivery: None,
                state: None,
                answer: None,
            };
            self.entries.insert(id, entry);
            self.reconsider(now);
            return;
        };
        let changed = entry.resource.key_spec != resource.key_spec || entry.resource.generation != resource.generation;
        entry.forced_done &= resource.key_spec.meta.force_rekey;
        if accounts::published(&entry.resource) != accounts::published(&resource) {
            entry.answer = None;
        }
        entry.resource = resource;
        if changed {
            (entry.due, entry.failures) = (now.mono, 0);
            if let Some(pass) = self.pass.as_mut().filter(|pass| pass.id == id) {
                pass.is_outdated = true;
            }
            self.reconsider(now);
        }
    }

    fn on_deleted(&mut self, id: &ResourceId, now: Now) {
        if self.entries.remove(id).is_some() {
            self.reconsider(now);
        }
    }

    /// What was refused may have waited for another resource.
    fn reconsider(&mut self, now: Now) {
        for entry in self.entries.values_mut().filter(|entry| matches!(entry.state, Some(ResourceState::Refused(_)))) {
            entry.due = entry.due.min(now.mono);
        }
    }

    /// Begins a pass over the resource that has waited longest.
    fn begin(&mut self, now: Now) {
        if self.pass.is_some() || !self.is_complete() {
            return;
        }
        let due = self.entries.iter().filter(|(_, entry)| entry.due <= now.mono);
        let Some((id, entry)) = due.min_by_key(|(_, entry)| entry.due) else { return };
        let (id, uid) = (id.clone(), entry.resource.uid.clone());
        self.pass = Some(Pass { id: id.clone(), uid, steps: 0, is_outdated: false, doing: None });
        self.look(id);
    }

    fn look(&mut self, id: ResourceId) {
        let Some(entry) = self.entries.get(&id) else { return };
        let key_spec = &entry.resource.key_spec;
        let spec = key_spec.spec.as_ref().ok().filter(|_| !key_spec.deleting);
        let idle = key_spec.suspended || key_spec.spec.is_err() && !key_spec.deleting;
        let request = match spec {
            _ if idle => ObservationRequest::default(),
            spec => {
                let (record, wanted) = (&key_spec.meta.record, spec.map(Record::of).unwrap_or_default());
                ObservationRequest {
                    principals: record.principals.union(&wanted.principals).cloned().collect(),
                    spec: spec.cloned(),
                    stale: record.secrets.difference(&wanted.secrets).cloned().collect(),
                    stale_sealed: record.sealed.difference(&wanted.sealed).cloned().collect(),
                }
            }
        };
        self.effects.push(Effect::Observe(id, request));
    }

    /// The pass and the entry that an answer is about; None: the pass is over, its resource is gone.
    fn under_way(&mut self, id: &ResourceId) -> Option<(&mut Pass, &mut Entry)> {
        let is_same = |pass: &Pass, entry: &Entry| pass.uid == entry.resource.uid;
        let pass = self.pass.as_mut().filter(|pass| pass.id == *id)?;
        match self.entries.get_mut(id).filter(|entry| is_same(pass, entry)) {
            // Borrowed again, because the other arm ends the pass.
            Some(_) => Some((self.pass.as_mut()?, self.entries.get_mut(id)?)),
            None => {
                self.pass = None;
                None
            }
        }
    }

    fn on_seen(&mut self, id: &ResourceId, seen: Result<Observed, KeyError>, now: Now) {
        let others = self.others(id);
        let expire_old_s = self.settings.expire_old.as_secs();
        let Some((pass, entry)) = self.under_way(id) else { return };
        let observed = match seen {
            Ok(observed) => Observed { account: entry.answer.clone(), ..observed },
            Err(error) => return self.fail(id, &error, now),
        };
        let (forced_done, delivery) = (entry.forced_done, entry.delivery.clone());
        let rules = Rules { expire_old_s, now_s: now.wall / 1000, forced_done, delivery };
        match decide(&entry.resource.key_spec, &observed, &others, &rules) {
            Decision::Do(_) if pass.steps >= STEPS_MAX => {
                let reason = "it does not settle: another client changes the same principals or Secrets";
                self.end(id, ResourceState::Failed(reason.to_owned()), None, now);
            }
            Decision::Do(action) => {
                pass.steps += 1;
                pass.doing = Some(action.clone());
                let uid = pass.uid.clone();
                tracing::info!(resource = %id, action = word(&action), "step");
                self.effects.push(Effect::Act { id: id.clone(), uid, action });
            }
            Decision::Done { trim_at_s, account } => {
                let trim_in = trim_at_s.map(|at| Duration::from_secs(at.saturating_sub(now.wall / 1000)));
                let state = match account {
                    AccountState::InStep => ResourceState::Ready(remark(entry)),
                    AccountState::Pending => ResourceState::AccountPending,
                    AccountState::Refused(reason) => {
                        ResourceState::Refused(format!("the account is refused: {reason}"))
                    }
                };
                self.end(id, state, trim_in, now);
            }
            Decision::Refused(reason) => self.end(id, ResourceState::Refused(reason), None, now),
            Decision::Suspended => self.end(id, ResourceState::Suspended, None, now),
            // Kubernetes says when it is gone.
            Decision::Released => self.end(id, ResourceState::Ready(None), None, now),
        }
    }

    fn on_acted(&mut self, id: &ResourceId, result: Result<Option<Delivery>, KeyError>, now: Now) {
        let (first, _) = self.settings.retry;
        let Some((pass, entry)) = self.under_way(id) else { return };
        let doing = pass.doing.take();
        match result {
            // Kubernetes reports the resource with the mark; nothing is taken for granted before, because other clients may have changed it, too.
            Ok(_) if matches!(doing, Some(Action::Mark { .. })) => {
                let is_outdated = pass.is_outdated;
                entry.due = if is_outdated { now.mono } else { now.mono + first };
                self.pass = None;
            }
            Ok(delivery) => {
                entry.delivery = delivery.or(entry.delivery.take());
                let key_spec = &entry.resource.key_spec;
                entry.forced_done |=
                    key_spec.meta.force_rekey && doing.is_some_and(|action| action.is_another_key(key_spec));
                self.look(id.clone());
            }
            // Someone else was faster; what there is now decides.
            Err(KeyError::Conflict(_)) => self.look(id.clone()),
            Err(error) => self.fail(id, &error, now),
        }
    }

    /// The next pass writes it, because the watch says that it is another one.
    fn on_status_lost(&mut self, id: &ResourceId, now: Now) {
        let (_, longest) = self.settings.retry;
        if let Some(entry) = self.entries.get_mut(id) {
            entry.due = entry.due.min(now.mono + longest);
        }
    }

    fn fail(&mut self, id: &ResourceId, error: &KeyError, now: Now) {
        let reason = error.to_string().chars().take(REASON_CHARACTERS_MAX).collect();
        let state = if error.is_outage() { ResourceState::Unknown(reason) } else { ResourceState::Failed(reason) };
        self.end(id, state, None, now);
    }

    /// Ends the pass over a resource and reports its state.
    fn end(&mut self, id: &ResourceId, state: ResourceState, trim_in: Option<Duration>, now: Now) {
        let pass = self.pass.take();
        let (first, longest) = self.settings.retry;
        let Some(entry) = self.entries.get_mut(id) else { return };
        let wait = match state {
            ResourceState::Ready(_) | ResourceState::AccountPending => {
                entry.failures = 0;
                trim_in.map_or(self.settings.verify, |trim| trim.min(self.settings.verify))
            }
            ResourceState::Suspended => self.settings.verify,
            ResourceState::Refused(_) | ResourceState::Failed(_) | ResourceState::Unknown(_) => {
                entry.failures = entry.failures.saturating_add(1);
                first.saturating_mul(1 << (entry.failures - 1).min(20)).min(longest)
            }
        };
        let is_outdated = pass.is_some_and(|pass| pass.is_outdated);
        entry.due = if is_outdated { now.mono } else { now.mono + wait };
        if entry.state.as_ref() != Some(&state) {
            match &state {
                ResourceState::Ready(_) | ResourceState::AccountPending | ResourceState::Suspended => {
                    tracing::info!(resource = %id, ?state, "resource");
                }
                other => tracing::warn!(resource = %id, state = ?other, "resource"),
            }
        }
        let status = status(&state, entry.resource.generation);
        entry.state = Some(state);
        if entry.resource.status.as_ref() != Some(&status) && !entry.resource.key_spec.deleting {
            self.effects.push(Effect::WriteStatus { id: id.clone(), status });
        }
    }

    /// What other resources own and want. Of what no one has recorded the first by kind and name is the owner.
    fn others(&self, id: &ResourceId) -> OtherClaims {
        let mut others = OtherClaims::default();
        let own = self.entries.get(id).map(|entry| &entry.resource.key_spec.meta.record);
        for (other, entry) in self.entries.iter().filter(|(other, _)| *other != id) {
            let key_spec = &entry.resource.key_spec;
            let spec = key_spec.spec.as_ref().ok().filter(|_| !key_spec.deleting).map(claims).unwrap_or_default();
            let is_first = other < id;
            let (theirs, none) = (&key_spec.meta.record, Record::default());
            let ours = own.unwrap_or(&none);
            let owned = &mut others.owned;
            claim(&mut owned.principals, &spec.principals, (&theirs.principals, &ours.principals), is_first);
            claim(&mut owned.secrets, &spec.secrets, (&theirs.secrets, &ours.secrets), is_first);
            claim(&mut owned.sealed, &spec.sealed, (&theirs.sealed, &ours.sealed), is_first);
            others.wanted.principals.extend(spec.principals);
            others.wanted.secrets.extend(spec.secrets);
            others.wanted.sealed.extend(spec.sealed);
        }
        others
    }

    /// Says what follows from the turn.
    fn settle(&mut self, now: Now) {
        let before = self.node.clone();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let is_ready = |entry: &&Entry| matches!(entry.state, Some(ResourceState::Ready(_)));
        let problems: BTreeMap<String, String> = self
            .entries
            .iter()
            .filter_map(|(id, entry)| Some((id.to_string(), problem(entry.state.as_ref()?)?)))
            .collect();
        self.node.total = count(self.entries.len());
        self.node.ready = count(self.entries.values().filter(is_ready).count());
        self.node.failed = count(problems.len());
        self.node.problems = short(problems);
        self.publish_accounts(now);
        let metrics = self.node.changes_since(&before);
        if !metrics.is_empty() {
            self.effects.push(Effect::Node(NodeUpdate::Set { device: None, metrics }));
        }
    }
}

/// What a resource would have for itself; also what it only reads.
fn claims(spec: &Spec) -> Record {
    let mut claims = Record::of(spec);
    claims.secrets.extend(spec.secret.clone().filter(|_| spec.seal_with.is_none()));
    claims
}

/// Adds to `owned` what another resource owns of what it wants or has recorded; `recorded`: theirs and ours.
fn claim<T: Ord + Clone>(
    owned: &mut BTreeSet<T>,
    wanted: &BTreeSet<T>,
    recorded: (&BTreeSet<T>, &BTreeSet<T>),
    is_first: bool,
) {
    let (theirs, ours) = recorded;
    let all = wanted.iter().chain(theirs);
    owned.extend(all.filter(|one| owns(theirs.contains(one), ours.contains(one), is_first)).cloned());
}

fn remark(entry: &Entry) -> Option<&'static str> {
    entry.resource.key_spec.spec.as_ref().ok()?.remark
}

const fn owns(recorded: bool, recorded_here: bool, is_first: bool) -> bool {
    if recorded == recorded_here { is_first } else { recorded }
}

fn problem(state: &ResourceState) -> Option<String> {
    match state {
        ResourceState::Ready(_) | ResourceState::Suspended => None,
        ResourceState::AccountPending => {
            Some("waiting for the answer of the cluster manager about the account".to_owned())
        }
        ResourceState::Refused(reason) | ResourceState::Failed(reason) | ResourceState::Unknown(reason) => {
            Some(reason.clone())
        }
    }
}

fn status(state: &ResourceState, generation: i64) -> Status {
    let (status, reason) = match state {
        ResourceState::Ready(_) => ("True", "InStep"),
        ResourceState::AccountPending => ("False", "AccountPending"),
        ResourceState::Refused(_) => ("False", "Refused"),
        ResourceState::Failed(_) => ("False", "Failed"),
        ResourceState::Unknown(_) => ("Unknown", "KdcUnreachable"),
        ResourceState::Suspended => ("Unknown", "Suspended"),
    };
    let message = match state {
        ResourceState::Ready(remark) => remark.map(str::to_owned),
        other => problem(other),
    };
    let message = message.unwrap_or_default();
    Status { status: status.to_owned(), reason: reason.to_owned(), message, observed_generation: generation }
}

const fn word(action: &Action) -> &'static str {
    match action {
        Action::Mark { .. } => "record",
        Action::Create(_) => "create principal",
        Action::Allow(_, true) => "enable principal",
        Action::Allow(_, false) => "disable principal",
        Action::MakeKeys { .. } => "make keys",
        Action::MakeValue(_) => "make value",
        Action::MakeTrust(..) => "make trust key",
        Action::MakeSealed(_) => "make sealed key",
        Action::SetPassword(..) => "set password",
        Action::SetTrust(..) => "set trust key",
        Action::Trim(..) => "trim old keys",
        Action::Clear(_) => "clear secret",
        Action::ClearSealed(_) => "clear sealed secret",
    }
}

fn on_node(event: &NodeEvent) {
    match event {
        NodeEvent::Born { bd_seq, rebirth } => tracing::debug!(bd_seq = bd_seq.get(), rebirth, "krb-keys is born"),
        NodeEvent::Offline { reason } => tracing::warn!(reason, "krb-keys lost its session as edge node"),
        NodeEvent::Forwarded { sent, dropped } => tracing::info!(sent, dropped, "stored values were forwarded"),
        NodeEvent::Command { metrics, .. } => {
            tracing::debug!(
                metrics = metrics.len(),
                "command ignored: it is neither rebirth nor the answer to an account"
            )
        }
        NodeEvent::Rejected { topic, reason } => tracing::debug!(topic, reason, "message dropped"),
        NodeEvent::Displaced(_)
        | NodeEvent::Contested(_)
        | NodeEvent::BirthNotReceived(_)
        | NodeEvent::BirthReceived
        | NodeEvent::Stopped => tracing::debug!(?event, "edge node"),
    }
}

#[cfg(test)]
mod tests;
