//! Which users may read and push over git: the state decides. Here is found out who they are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster_manager_contract::api_token::TokenHash;
use git_hosting::gatekeeper::{Admission, AdmissionRequest, Denial, Gatekeeper, Push, ReceivedPush};
use git_hosting::repositories::Kind;
use identity_provider::{Identities, IdentityFault};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use uuid::Uuid;

use crate::event::{Credential, GitRequest, PushRequest};

/// Questions under way at the same time.
pub const QUESTIONS_MAX: usize = 64;

type AdmissionResult = Result<Admission, Denial>;

/// Asks the state. Clones are the same.
#[derive(Debug, Clone)]
pub struct StateGatekeeper {
    questions: mpsc::Sender<GitRequest>,
    pushes: mpsc::Sender<PushRequest>,
    polls: mpsc::Sender<Uuid>,
    identities: Option<Identities>,
    places: Arc<Semaphore>,
    waiting: Arc<Mutex<Waiting>>,
}

/// Requests that wait for the state.
#[derive(Debug, Default)]
struct Waiting {
    asked: u64,
    answers: BTreeMap<u64, (oneshot::Sender<AdmissionResult>, OwnedSemaphorePermit)>,
    pushes: BTreeMap<Uuid, oneshot::Sender<Result<(), Denial>>>,
    /// The state is gone.
    has_stopped: bool,
}

fn stopping() -> Denial {
    Denial::NotAtPresent("The git server is stopping".to_owned())
}

impl StateGatekeeper {
    /// `questions` and `pushes` lead to the state and need room for [`QUESTIONS_MAX`]; `polls` receives which clusters ask, and while it is full it does not. `identities`: None if no provider is configured.
    #[must_use]
    pub fn new(
        questions: mpsc::Sender<GitRequest>,
        pushes: mpsc::Sender<PushRequest>,
        polls: mpsc::Sender<Uuid>,
        identities: Option<Identities>,
    ) -> Self {
        let places = Arc::new(Semaphore::new(QUESTIONS_MAX));
        Self { questions, pushes, polls, identities, places, waiting: Arc::default() }
    }

    /// Brings the end of a push to the request that waits for it.
    pub fn end_push(&self, id: Uuid, ended: Result<(), Denial>) {
        let waiting = self.waiting().pushes.remove(&id);
        // A client that has gone away does not get it.
        let _ = waiting.map(|waiting| waiting.send(ended));
    }

    /// Brings an answer to the request that waits for it.
    pub fn answer(&self, id: u64, answer: AdmissionResult) {
        let waiting = self.waiting().answers.remove(&id);
        if let Some((sender, _place)) = waiting {
            // A client that has gone away does not get it.
            let _ = sender.send(answer);
        }
    }

    /// The state is gone: no request waits for it any more.
    pub fn stop(&self) {
        let mut waiting = self.waiting();
        waiting.has_stopped = true;
        waiting.answers.clear();
        waiting.pushes.clear();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, request: &AdmissionRequest, credential: Credential) -> AdmissionResult {
        let not_now = |reason: &str| Denial::NotAtPresent(reason.to_owned());
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| not_now("Too many requests are under way; try again"))?;
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut waiting = self.waiting();
            if waiting.has_stopped {
                return Err(stopping());
            }
            waiting.asked += 1;
            let id = waiting.asked;
            waiting.answers.insert(id, (sender, place));
            id
        };
        let repository = request.repository.as_ref().map(|open| (open.uuid, open.kind == Kind::Shared));
        let asked = GitRequest { id, from: request.from.to_string(), credential, repository, push: request.push };
        if self.questions.try_send(asked).is_err() {
            self.answer(id, Err(stopping()));
        }
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    async fn credential(&self, presented: &str) -> Result<Credential, Denial> {
        if let Some(hash) = TokenHash::of(presented) {
            return Ok(Credential::Token(hash));
        }
        let identities = self.identities.as_ref().filter(|_| Identities::is_signed(presented));
        let principal = identities.ok_or(Denial::NotACredential)?.principal(presented).await;
        let principal = principal.map_err(|fault| match fault {
            IdentityFault::Away(reason) => Denial::NotAtPresent(reason),
            IdentityFault::NotAccepted(reason) => Denial::NotAccepted(reason),
            IdentityFault::NoScope(reason) => Denial::Forbidden(reason),
        })?;
        Ok(Credential::Verified(principal))
    }
}

impl Gatekeeper for StateGatekeeper {
    fn polled(&self, cluster: Uuid) {
        // A poll that is lost is followed by another.
        let _ = self.polls.try_send(cluster);
    }

    async fn admit(&self, request: AdmissionRequest) -> AdmissionResult {
        let credential = self.credential(&request.credential).await?;
        self.ask(&request, credential).await
    }

    /// Every push is handed over instead.
    async fn pushed(&self, _: Push) -> bool {
        true
    }

    async fn hand_over(&self, push: ReceivedPush) -> Result<(), Denial> {
        let ReceivedPush { repository, from, credential, changes, pack, .. } = push;
        let from = from.to_string();
        let mut randomness = [0; 32];
        let no_random = |_| Denial::NotAtPresent("the system yields no random numbers".to_owned());
        aws_lc_rs::rand::fill(&mut randomness).map_err(no_random)?;
        let id = Uuid::new_v4();
        let (sender, ended) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.has_stopped {
                return Err(stopping());
            }
            waiting.pushes.insert(id, sender);
        }
        let request = PushRequest { id, repository: repository.uuid, from, credential, changes, pack, randomness };
        if self.pushes.try_send(request).is_err() {
            self.end_push(id, Err(stopping()));
        }
        ended.await.unwrap_or_else(|_| Err(stopping()))
    }
}
