//! Which users may push: the state decides. Who may read is decided where the copies are.

use git_hosting::gatekeeper::{Admission, AdmissionRequest, Denial, Gatekeeper, Push};
use git_hosting::repositories::{Kind, Open};
use identity_provider::{Identities, IdentityFault};
use manifests::git_address::HELM_PATH;
use uuid::Uuid;

use super::identities;
use super::state_client::StateClient;
use crate::git_users::{Credential, GitAccessError, GitOperation, GitOutcome, RepositoryPush};
use crate::shared_repository::ELSEWHERE;
use access::Denied;

/// Asks the state. Clones are the same.
#[derive(Debug, Clone)]
pub struct StateGatekeeper {
    /// Where users are known.
    pub state_client: StateClient,
    /// The identity provider, if one is configured.
    pub identities: Option<Identities>,
    /// Clusters follow their repositories on the site's server.
    pub has_external: bool,
}

impl Gatekeeper for StateGatekeeper {
    // Clusters read at the git server, which reports when they do.
    fn polled(&self, _: Uuid) {}

    async fn admit(&self, request: AdmissionRequest) -> Result<Admission, Denial> {
        let AdmissionRequest { repository, credential, from, push } = request;
        let credential = self.user(&credential).await?;
        let nowhere = (Uuid::nil(), false);
        let (uuid, shared) = repository.as_ref().map_or(nowhere, |open| (open.uuid, open.kind == Kind::Shared));
        let question = GitOperation::Repository { repository: uuid, shared, push };
        match self.state_client.ask(from, credential, question).await {
            Ok(GitOutcome::Repository { .. }) if push && repository.is_some_and(|open| self.is_elsewhere(&open)) => {
                Err(Denial::Forbidden(ELSEWHERE.to_owned()))
            }
            Ok(GitOutcome::Repository { who, pulled }) => Ok(Admission { who, pulled }),
            Ok(_) => Err(Denial::Broken("the state has answered another question".to_owned())),
            Err(GitAccessError::Unauthenticated(_)) => Err(Denial::Unknown),
            Err(GitAccessError::Forbidden(Denied::Cluster)) if !shared => Err(Denial::NotFound),
            Err(refusal) => Err(denial(&refusal)),
        }
    }

    async fn pushed(&self, push: Push) -> bool {
        let Push { repository, who, from, before, after } = push;
        let shared = repository.kind == Kind::Shared;
        let push = RepositoryPush { repository: repository.uuid, shared, before, after };
        self.state_client.ask(from, Credential::Verified(who), GitOperation::Pushed(push)).await.is_ok()
    }
}

impl StateGatekeeper {
    async fn user(&self, presented: &str) -> Result<Credential, Denial> {
        let identities = self.identities.as_ref().filter(|_| Identities::is_signed(presented));
        match identities::credential(identities, presented).await {
            Ok(Credential::None) => Err(Denial::NotACredential),
            Ok(credential) => Ok(credential),
            Err(IdentityFault::Away(reason)) => Err(Denial::NotAtPresent(reason)),
            Err(IdentityFault::NotAccepted(reason)) => Err(Denial::NotAccepted(reason)),
            Err(IdentityFault::NoScope(reason)) => Err(Denial::Forbidden(reason)),
        }
    }

    /// What is pushed to ours would be lost when that is brought to where the site's server is.
    fn is_elsewhere(&self, repository: &Open) -> bool {
        self.has_external && (repository.kind == Kind::Cluster || repository.path == HELM_PATH)
    }
}

fn denial(refusal: &GitAccessError) -> Denial {
    let reason = refusal.to_string();
    match refusal {
        GitAccessError::TooOften(_) => Denial::TooOften(reason),
        GitAccessError::NotAtPresent(_) => Denial::NotAtPresent(reason),
        _ => Denial::Forbidden(reason),
    }
}
