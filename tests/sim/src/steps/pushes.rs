//! Users who push: their pushes reach the git server, and the cluster manager decides over them. Git itself is not here: a push adds one commit to branch `main`, with a file of its own.

use std::collections::BTreeMap;

use cluster_manager::event::{PushResult, PushWork};
use cluster_manager::git_users::{
    Credential, GitOperation, GitOutcome, GitRequest as AdmissionRequest, GitResponse, RepositoryPush,
};
use configdb_schema::known::repository::HELM_CHARTS;
use git_hosting::gatekeeper::{Admission, Change, Denial};
use git_server::event::{Credential as Shown, Effect, Event, GitRequest, PushRequest};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::model::checks::Violation;
use crate::model::git::{MAIN, commit};
use crate::model::happening::Happening;
use crate::model::ids::ProcessId;
use crate::model::mutation::Mutation;
use crate::model::pack::Content;
use crate::model::program::Input;
use crate::model::pushing::{Deciding, Pusher, key_pair};
use crate::model::role::Role;
use crate::world::{World, trace};

/// Address of every user.
const FROM: &str = "192.0.2.1";

impl World {
    /// A user wants to push.
    pub(crate) fn push(&mut self) {
        let Some(id) = self.process_of(&Role::GitServer) else { return };
        let mut places: Vec<Uuid> = self.processes[&id].disk.with_copies(|copies| copies.open().collect());
        if self.random.chance(100) {
            places.extend(self.script.clusters.iter().map(|cluster| cluster.uuid));
        }
        let (Some(place), Some(other)) = (self.random.pick(&places).copied(), self.random.pick(&places).copied())
        else {
            return;
        };
        let pushers = [Pusher::Operator, Pusher::Operator, Pusher::Local(place), Pusher::Local(other), Pusher::Viewer];
        let pusher = self.random.pick(&pushers).copied().unwrap_or(Pusher::Viewer);
        self.people.next += 1;
        let number = self.people.next;
        self.pushing.asked.insert(number, (pusher, place));
        let asked = GitRequest {
            id: number,
            from: FROM.to_owned(),
            credential: Shown::Verified(pusher.principal()),
            repository: Some((place, place == HELM_CHARTS)),
            push: true,
        };
        self.give_git_server(id, Event::GitRequest(asked));
    }

    /// A cluster asks for its repository.
    pub(crate) fn poll(&mut self) {
        let clusters: Vec<Uuid> = self.clusters.values().map(|cluster| cluster.uuid).collect();
        let cluster = self.random.pick(&clusters).copied();
        if let (Some(id), Some(cluster)) = (self.process_of(&Role::GitServer), cluster) {
            self.give_git_server(id, Event::Polled(cluster));
        }
    }

    fn give_git_server(&mut self, id: ProcessId, event: Event) {
        let life = self.processes[&id].life;
        let lag = self.random.millis(0..50);
        self.after(lag, Happening::Input(id, life, Box::new(Input::GitServer(event))));
    }

    /// The git server wants something done.
    pub(crate) fn execute_git_server(&mut self, id: ProcessId, effect: Effect) {
        match effect {
            Effect::Copy(work) => {
                let life = self.processes[&id].life;
                let lag = self.random.millis(1..300);
                self.after(lag, Happening::Copying(id, life, work));
            }
            Effect::Answer(number, answer) => self.on_admitted(id, number, &answer),
            Effect::PushEnded(push, ended) => self.on_push_ended(push, &ended),
            Effect::Host(_) | Effect::Node(_) | Effect::Record(_) => {}
        }
    }

    /// A user may push, or not. What is pushed is made on what the copy has.
    fn on_admitted(&mut self, id: ProcessId, number: u64, answer: &Result<Admission, Denial>) {
        let Some((pusher, repository)) = self.pushing.asked.remove(&number) else {
            let detail = format!("question {number} is answered twice, or was never asked");
            return self.checks.fail_with(Violation::new("applied-or-visible", detail));
        };
        if answer.is_err() {
            return;
        }
        if !pusher.may(repository) {
            let detail = format!("{pusher:?} may push into {repository}");
            return self.checks.fail_with(Violation::new("group-is-isolated", detail));
        }
        let main = self.processes[&id].disk.with_copies(|copies| copies.main(repository));
        let Some(before) = main else { return };
        let after = self.git.new_commit(before);
        let bytes = self.pack_bytes();
        let base = (before != 0).then_some(before).into_iter().collect();
        let pack = Content { base, commits: [(after, before)].into() }.write(bytes);
        let change = Change { before: (before != 0).then(|| commit(before)), after: Some(commit(after)) };
        let mut randomness = [0; 32];
        randomness[..8].copy_from_slice(&self.random.number().to_be_bytes());
        let push = Uuid::from_u128(self.random.wide());
        let request = PushRequest {
            id: push,
            repository,
            from: FROM.to_owned(),
            credential: Zeroizing::new(pusher.credential()),
            changes: BTreeMap::from([(MAIN.to_owned(), change)]),
            pack: pack.bytes().to_vec(),
            randomness,
        };
        self.pushing.under_way.insert(push, (repository, after));
        self.give_git_server(id, Event::Pushed(request));
    }

    /// A push ends, and its user comes to know how.
    fn on_push_ended(&mut self, push: Uuid, ended: &Result<(), Denial>) {
        let Some((repository, commit)) = self.pushing.under_way.remove(&push) else {
            let detail = format!("push {push} ends twice, or was never begun");
            return self.checks.fail_with(Violation::new("applied-or-visible", detail));
        };
        trace!(self, "   push {commit} into {repository} ends: {ended:?}");
        if ended.is_ok() {
            self.pushing.taken += 1;
            self.git.acknowledge(repository, commit);
        }
    }

    /// A push reaches the disk of the cluster manager: its user is judged as one who comes there.
    pub(crate) fn on_push(&mut self, id: ProcessId, life: u64, work: PushWork) {
        let Some(seed) = self.pushing.seeds.get(&id).copied() else { return };
        if self.processes.get(&id).is_none_or(|process| process.life != life) {
            return;
        }
        let Ok(credential) = key_pair(seed).open((work.repository, work.push), &work.credential) else {
            return self.push_is_taken((id, life), &work, Err("it cannot be opened".to_owned()));
        };
        let (repository, shared) = (work.repository, work.repository == HELM_CHARTS);
        let credential = Credential::Verified(Pusher::of(&credential).principal());
        let question = GitOperation::Repository { repository, shared, push: true };
        self.decide_over(Deciding { of: (id, life), work, ended: None }, credential, question);
    }

    fn decide_over(&mut self, deciding: Deciding, credential: Credential, question: GitOperation) {
        self.people.next += 1;
        let (id, life) = deciding.of;
        let asked = AdmissionRequest { id: self.people.next, from: FROM.to_owned(), credential, question };
        self.pushing.decided.insert(asked.id, deciding);
        let lag = self.random.millis(1..50);
        self.after(lag, Happening::Input(id, life, Box::new(Input::GitRequest(asked))));
    }

    /// The cluster manager answers who pushes; false: the answer is to another question.
    pub(crate) fn on_decided(&mut self, answer: &GitResponse) -> bool {
        let Some(Deciding { of, work, ended }) = self.pushing.decided.remove(&answer.id) else { return false };
        if let Some(ended) = ended {
            self.push_is_taken(of, &work, ended);
            return true;
        }
        let who = match &answer.reply {
            Ok(GitOutcome::Repository { who, .. }) => who.clone(),
            Ok(GitOutcome::Recorded) => return true,
            Err(refusal) => {
                self.push_is_taken(of, &work, Err(refusal.to_string()));
                return true;
            }
        };
        let is_torn = self.is_git_torn();
        let loses = self.mutation == Some(Mutation::ForgetsPushes);
        let taken = self.git.take(work.repository, &work.refs, work.pack.as_deref(), (self.mono, loses));
        match taken {
            Ok((before, after)) => {
                let (repository, shared) = (work.repository, work.repository == HELM_CHARTS);
                let pushed = GitOperation::Pushed(RepositoryPush { repository, shared, before, after });
                let ended = if is_torn { Err("input/output error".to_owned()) } else { Ok(()) };
                let deciding = Deciding { of, work, ended: Some(ended) };
                self.decide_over(deciding, Credential::Verified(who), pushed);
            }
            Err(reason) => self.push_is_taken(of, &work, Err(reason)),
        }
        true
    }

    fn push_is_taken(&mut self, (id, life): (ProcessId, u64), work: &PushWork, outcome: Result<(), String>) {
        let result = PushResult { push: work.push, repository: work.repository, outcome };
        let lag = self.random.millis(1..50);
        self.after(lag, Happening::Input(id, life, Box::new(Input::PushTaken(result))));
    }
}
