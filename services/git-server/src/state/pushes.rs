//! Pushes under way. Each is a Device that holds its sealed credential and a part of its pack. It stays until the cluster manager has decided and the copy is as the decision says.

use std::collections::BTreeMap;
use std::time::Duration;

use git_hosting::copies::Refs;
use git_hosting::credential::CredentialKey;
use git_hosting::gatekeeper::{Change, Denial};
use git_server_contract::names::push_device;
use git_server_contract::pack::Pack;
use git_server_contract::push::RefChange;
use git_server_contract::{PushAnswer, PushDevice};
use sparkplug::edge_node::NodeUpdate;
use sparkplug::{Now, TypedMetrics as _};
use uuid::Uuid;

use crate::event::PushRequest;

/// Most bytes of packs that are held, for all pushes together.
pub(crate) const PUSHES_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// After what a part is sent again that is not answered.
const REPEAT: Duration = Duration::from_secs(2);

/// How long a push waits without any progress.
const STALLED_MAX: Duration = Duration::from_secs(60);

/// What becomes of a push.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PushEnd {
    /// The copy is as the push wants it.
    Done,
    /// Why nothing became of it.
    Denied(Denial),
}

/// One push.
#[derive(Debug)]
struct Push {
    device: PushDevice,
    pack: Option<Pack>,
    changes: BTreeMap<String, Change>,
    /// Bytes that have arrived.
    received: u64,
    /// `Now::mono` at which something last moved.
    moved_at: Duration,
    /// `Now::mono` at which the part is sent again.
    repeat_at: Duration,
    /// `Now::mono` at which it ends in any case.
    ends_at: Duration,
    /// The cluster manager has taken it over: the copy is waited for.
    is_accepted: bool,
}

/// All pushes under way.
#[derive(Debug)]
pub(crate) struct Pushes {
    by_id: BTreeMap<Uuid, Push>,
    /// How long one may take.
    limit: Duration,
}

impl Pushes {
    /// None is. `limit`: how long one may take.
    pub(crate) const fn new(limit: Duration) -> Self {
        Self { by_id: BTreeMap::new(), limit }
    }

    /// Pushes that have a Device.
    pub(crate) fn published(&self) -> usize {
        self.by_id.values().filter(|push| !push.is_accepted).count()
    }

    /// Begins a push: seals its credential, and publishes it.
    pub(crate) fn begin(&mut self, request: PushRequest, key: &CredentialKey, now: Now) -> Result<NodeUpdate, Denial> {
        let PushRequest { id, repository, from, credential, changes, pack, randomness } = request;
        let held: u64 = self.by_id.values().map(|push| push.device.total).sum();
        if held.saturating_add(pack.len() as u64) > PUSHES_BYTES_MAX {
            return Err(Denial::NotAtPresent("other large pushes are under way; try again".to_owned()));
        }
        if pack.len() as u64 > git_server_contract::pack::PACK_BYTES_MAX {
            return Err(Denial::Forbidden("the push is too large; push fewer commits at a time".to_owned()));
        }
        let sealed = key.seal((repository, id), &credential, randomness);
        let sealed = sealed.map_err(|error| Denial::Forbidden(error.to_string()))?;
        let refs = changes.iter().map(|(name, Change { before, after })| {
            (name.clone(), RefChange { before: before.clone(), after: after.clone() })
        });
        let mut device = PushDevice {
            since: now.wall,
            repository,
            from,
            credential: sealed.into(),
            refs: refs.collect(),
            ..PushDevice::default()
        };
        let pack = (!pack.is_empty()).then(|| Pack::new(pack.into()));
        if let Some(pack) = &pack {
            device.set_part(pack.part(0));
        }
        let update = NodeUpdate::DeviceBirth { device: push_device(id), metrics: device.to_metrics() };
        let push = Push {
            device,
            pack,
            changes,
            received: 0,
            moved_at: now.mono,
            repeat_at: now.mono + REPEAT,
            ends_at: now.mono + self.limit,
            is_accepted: false,
        };
        self.by_id.insert(id, push);
        Ok(update)
    }

    /// Takes an answer of the cluster manager over: what is to be published, and how the push ended, or the objects for the copy.
    pub(crate) fn on_answer(&mut self, id: Uuid, answer: PushAnswer, now: Now) -> Answered {
        let Some(push) = self.by_id.get_mut(&id).filter(|push| !push.is_accepted) else { return Answered::default() };
        let death = NodeUpdate::DeviceDeath { device: push_device(id) };
        match answer.outcome {
            Some(Ok(())) => {
                push.is_accepted = true;
                push.moved_at = now.mono;
                let repository = push.device.repository;
                let pack = push.pack.take().map(|pack| (repository, pack));
                push.device.data = std::sync::Arc::from([]);
                Answered { updates: vec![death], ended: None, pack, repository: Some(repository) }
            }
            Some(Err(reason)) => {
                self.by_id.remove(&id);
                Answered {
                    updates: vec![death],
                    ended: Some(PushEnd::Denied(Denial::Forbidden(reason))),
                    ..Answered::default()
                }
            }
            None => {
                let received = answer.received.min(push.device.total);
                // While it decides, an answer is all that there is of progress.
                if received > push.received || received == push.device.total {
                    push.moved_at = now.mono;
                }
                let has_moved = received != push.received;
                push.received = received;
                let update = has_moved.then(|| push.send(id, now)).flatten();
                Answered { updates: update.into_iter().collect(), ..Answered::default() }
            }
        }
    }

    /// The references of a copy: pushes that are there now have ended.
    pub(crate) fn on_refs(&mut self, repository: Uuid, refs: &Refs) -> Vec<Uuid> {
        let is_there = |push: &Push| {
            // Another push may have moved it on since.
            push.changes.iter().all(|(name, change)| refs.get(name) != change.before.as_ref())
        };
        let of = self.by_id.iter().filter(|(_, push)| push.is_accepted && push.device.repository == repository);
        let ended: Vec<Uuid> = of.filter(|(_, push)| is_there(push)).map(|(id, _)| *id).collect();
        for id in &ended {
            self.by_id.remove(id);
        }
        ended
    }

    /// What is due: parts to be sent again, and pushes that have waited too long.
    pub(crate) fn on_deadline(&mut self, now: Now) -> (Vec<NodeUpdate>, Vec<(Uuid, PushEnd)>) {
        let (mut updates, mut ended) = (Vec::new(), Vec::new());
        for (id, push) in &mut self.by_id {
            if push.gives_up_at() <= now.mono {
                ended.push((*id, push.is_accepted));
            } else if push.repeat_at <= now.mono && !push.is_accepted {
                push.device.attempt += 1;
                let attempt = PushDevice { attempt: push.device.attempt - 1, ..push.device.clone() };
                push.repeat_at = now.mono + REPEAT;
                let metrics = push.device.changes_since(&attempt);
                updates.push(NodeUpdate::Set { device: Some(push_device(*id)), metrics });
            }
        }
        let end = |(id, is_accepted)| {
            self.by_id.remove(&id);
            if is_accepted {
                tracing::warn!(push = %id, "a push is accepted, and the copy does not show it yet");
                return (id, PushEnd::Done);
            }
            updates.push(NodeUpdate::DeviceDeath { device: push_device(id) });
            let reason = "the cluster manager does not answer; whether it took the push shows a fetch";
            (id, PushEnd::Denied(Denial::NotAtPresent(reason.to_owned())))
        };
        let ended = ended.into_iter().map(end).collect();
        (updates, ended)
    }

    /// `Now::mono` at which [`Pushes::on_deadline`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let next = |push: &Push| match push.is_accepted {
            true => push.gives_up_at(),
            false => push.repeat_at.min(push.gives_up_at()),
        };
        self.by_id.values().map(next).min()
    }
}

/// What an answer of the cluster manager comes to.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    /// To be published.
    pub(crate) updates: Vec<NodeUpdate>,
    /// How the push ended; None: it has not.
    pub(crate) ended: Option<PushEnd>,
    /// Objects for a copy.
    pub(crate) pack: Option<(Uuid, Pack)>,
    /// The push is accepted, into this repository.
    pub(crate) repository: Option<Uuid>,
}

impl Push {
    fn gives_up_at(&self) -> Duration {
        self.ends_at.min(self.moved_at + STALLED_MAX)
    }

    /// Publishes the part that is to follow.
    fn send(&mut self, id: Uuid, now: Now) -> Option<NodeUpdate> {
        let part = self.pack.as_ref()?.part(self.received);
        let before = self.device.clone();
        self.device.set_part(part);
        self.repeat_at = now.mono + REPEAT;
        Some(NodeUpdate::Set { device: Some(push_device(id)), metrics: self.device.changes_since(&before) })
    }
}
