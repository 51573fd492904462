//! Takes over pushes that the git server has received. Who pushes is judged by the credential that was sealed to us there. What is pushed is judged by the rules of every push.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use git_hosting::credential::CredentialKeyPair;
use git_hosting::gatekeeper::{Admission, AdmissionRequest, Denial, Gatekeeper as _};
use git_hosting::originals::{self, NO_OBJECT, PushOutcome, RefChanges};
use git_hosting::places::Places;
use git_hosting::push::{Allowed, Receiver};

use super::gatekeeper::StateGatekeeper;
use crate::event::{Event, PushResult, PushWork};

/// Pushes that are taken over at the same time; of one user a quarter.
const PLACES: usize = 8;

/// How long a push waits until it is its turn.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// What takes pushes over. Clones are the same.
#[derive(Debug, Clone)]
pub struct PushTaker {
    key: Arc<CredentialKeyPair>,
    gatekeeper: StateGatekeeper,
    receiver: Receiver<StateGatekeeper>,
    places: Places,
}

impl PushTaker {
    /// `key`: opens the credentials.
    #[must_use]
    pub fn new(key: Arc<CredentialKeyPair>, receiver: Receiver<StateGatekeeper>) -> Self {
        Self { key, gatekeeper: receiver.gatekeeper.clone(), receiver, places: Places::new(PLACES) }
    }

    /// Takes a push over, or says why not.
    pub async fn take(self, work: PushWork) -> Event {
        let (push, repository) = (work.push, work.repository);
        let outcome = self.judge(work).await;
        if let Err(reason) = &outcome {
            tracing::info!(%repository, push_id = %push, reason, "a push is refused");
        }
        Event::PushTaken(PushResult { push, repository, outcome })
    }

    async fn judge(self, work: PushWork) -> Result<(), String> {
        let PushWork { push, repository, from, credential, refs, pack } = work;
        let from: IpAddr = from.parse().map_err(|_| "the git server does not say from where the push comes")?;
        let object = |id: Option<String>| id.unwrap_or_else(|| NO_OBJECT.to_owned());
        let changes: RefChanges =
            refs.into_iter().map(|(name, change)| (name, (object(change.before), object(change.after)))).collect();
        let open = self.receiver.repositories.by_uuid(repository);
        let Ok(credential) = self.key.open((repository, push), &credential) else {
            // The key is another after each start. A push that was taken over right before it has not failed.
            return match open {
                Some(open) if originals::is_taken(&open.directory, &changes).await == Ok(true) => Ok(()),
                _ => Err("the cluster manager cannot open the credential of this push; push again".to_owned()),
            };
        };
        let request = AdmissionRequest { repository: open.clone(), credential, from, push: true };
        let Admission { who, pulled } = self.gatekeeper.admit(request).await.map_err(refusal)?;
        let repository = open.ok_or_else(|| refusal(Denial::NotFound))?;
        let place = self.places.take(&who.name, WAIT_MAX).await.ok_or("too many pushes at a time; try again")?;
        let pack = pack.map_or_else(Bytes::new, Bytes::from_owner);
        let allowed = Allowed { repository, who, from, pulled };
        match originals::take(self.receiver, allowed, &changes, pack, place).await {
            Ok(PushOutcome::Accepted) => Ok(()),
            Ok(PushOutcome::Refused(reason)) => Err(reason),
            Err(reason) => Err(refusal(Denial::Broken(reason))),
        }
    }
}

fn refusal(denial: Denial) -> String {
    match denial {
        Denial::NotACredential | Denial::Unknown => "the credential is not accepted any more".to_owned(),
        Denial::NotFound => "there is no such repository, or it is not for this user".to_owned(),
        Denial::NotAccepted(reason)
        | Denial::Forbidden(reason)
        | Denial::TooOften(reason)
        | Denial::NotAtPresent(reason) => reason,
        Denial::Broken(reason) => {
            tracing::warn!(reason, "a push cannot be judged");
            "the push cannot be judged; see the log of the cluster manager".to_owned()
        }
    }
}
