//! Pushes that the git server has received: each is answered until it ends. What a push changes arrives as a pack, a part at a time; then the disk takes it over, or says why not.

use std::collections::BTreeMap;
use std::sync::Arc;

use git_server_contract::pack::{PACK_BYTES_MAX, Received};
use git_server_contract::{GitDevice, PackPart, PackReceiver, PushAnswer, PushDevice};
use sparkplug::replication::ReplicaChange;
use uuid::Uuid;

use crate::event::{Effect, PushResult, PushWork};
use crate::fleet::FleetView;

/// Most bytes of packs that are held at the same time.
const HELD_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// How often a pack may arrive damaged.
const DAMAGED_MAX: u32 = 3;

/// All pushes under way, by their ids.
#[derive(Debug, Default)]
pub(crate) struct GitPushesController(BTreeMap<Uuid, Push>);

/// One push.
#[derive(Debug)]
struct Push {
    /// Bytes of its pack.
    total: u64,
    damaged: u32,
    state: State,
}

/// How far a push is.
#[derive(Debug)]
enum State {
    Receiving(PackReceiver),
    /// The disk has it.
    Judged,
    Done(Result<(), String>),
}

impl Push {
    /// Its answer at present.
    fn answer(&self) -> PushAnswer {
        match &self.state {
            State::Receiving(receiver) => {
                PushAnswer { received: receiver.progress().map_or(0, |(_, received)| received), outcome: None }
            }
            State::Judged => PushAnswer { received: self.total, outcome: None },
            State::Done(outcome) => PushAnswer { received: self.total, outcome: Some(outcome.clone()) },
        }
    }

    /// Bytes that it holds, or will.
    const fn held(&self) -> u64 {
        match self.state {
            State::Receiving(_) | State::Judged => self.total,
            State::Done(_) => 0,
        }
    }

    fn refuse(&mut self, reason: &str) {
        self.state = State::Done(Err(reason.to_owned()));
    }

    /// Takes the part that the push shows. Ok: all of it has arrived, or there is nothing to arrive.
    fn receive(&mut self, part: Option<&PackPart>) -> Result<Option<Arc<[u8]>>, ()> {
        let State::Receiving(receiver) = &mut self.state else { return Err(()) };
        let Some(part) = part else { return Ok(None) };
        match receiver.receive(part) {
            Received::Whole(pack) => return Ok(Some(Arc::clone(pack.bytes()))),
            Received::Wrong if self.damaged + 1 >= DAMAGED_MAX => self.refuse("the pack arrived damaged; push again"),
            Received::Wrong => self.damaged += 1,
            Received::More | Received::Repeated => {}
        }
        Err(())
    }
}

impl GitPushesController {
    /// The git server has said something.
    pub(crate) fn on_git_change(&mut self, fleet: &FleetView, change: &ReplicaChange<GitDevice>) -> Vec<Effect> {
        let git = fleet.git();
        match change {
            // Its pushes end with it. What the disk has of one is carried out nevertheless.
            ReplicaChange::Dead => self.0.clear(),
            ReplicaChange::Device(GitDevice::Push(push)) => match git.devices().pushes.get(push) {
                Some(device) if git.is_current() => return self.on_push(fleet, *push, device),
                Some(_) => {}
                None => drop(self.0.remove(push)),
            },
            _ if git.is_complete() => self.0.retain(|push, _| git.devices().pushes.contains_key(push)),
            _ => {}
        }
        Vec::new()
    }

    fn on_push(&mut self, fleet: &FleetView, id: Uuid, device: &PushDevice) -> Vec<Effect> {
        let part = device.part();
        let total = part.as_ref().map_or(0, |part| part.total);
        if !self.0.contains_key(&id) {
            let held: u64 = self.0.values().map(Push::held).sum();
            if total <= PACK_BYTES_MAX && held + total > HELD_BYTES_MAX {
                // It shows its first part again, until there is room or it gives up.
                return vec![answer(fleet, id, &PushAnswer { received: 0, outcome: None })];
            }
            let state = State::Receiving(PackReceiver::default());
            self.0.insert(id, Push { total, damaged: 0, state });
        }
        let Some(push) = self.0.get_mut(&id) else { return Vec::new() };
        if total > PACK_BYTES_MAX || total != push.total {
            push.refuse("the pack is larger than a push may be, or another than before");
        }
        let mut effects = Vec::new();
        if let Ok(pack) = push.receive(part.as_ref()) {
            push.state = State::Judged;
            let PushDevice { repository, from, credential, refs, .. } = device.clone();
            effects.push(Effect::Push(Box::new(PushWork { push: id, repository, from, credential, refs, pack })));
        }
        effects.push(answer(fleet, id, &push.answer()));
        effects
    }

    /// The disk has taken a push over, or not.
    pub(crate) fn on_result(&mut self, fleet: &FleetView, result: PushResult) -> Option<Effect> {
        let PushResult { push: id, outcome, .. } = result;
        let push = self.0.get_mut(&id)?;
        push.state = State::Done(outcome);
        fleet.git().is_current().then(|| answer(fleet, id, &push.answer()))
    }
}

fn answer(fleet: &FleetView, push: Uuid, answer: &PushAnswer) -> Effect {
    Effect::Host(answer.to_request(fleet.git().address().clone(), push))
}
