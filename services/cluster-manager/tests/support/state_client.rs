//! A state client that knows users by three tokens and keeps the pushes that are reported to it.
#![allow(dead_code, reason = "not every test that has a state client pushes")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use access::{Grant, Principal};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use cluster_manager::adapters::gatekeeper::StateGatekeeper;
use cluster_manager::adapters::state_client::{QUESTIONS_MAX, StateClient};
use cluster_manager::git_users::{
    Credential, GitAccessError, GitOperation, GitOutcome, GitRequest, GitResponse, RepositoryPush,
};
use cluster_manager_contract::api_token::TokenHash;
use configdb_schema::document::TokenScope;
use git_hosting::http::{Anonymous, Settings};
use git_hosting::passwords::PasswordDigests;
use git_hosting::push::Hooks;
use tokio::sync::mpsc;
use uuid::Uuid;

/// A branch that takes no push.
pub const PULLED: &str = "upstream";

/// The token that the tests call `name`.
pub fn token(name: &str) -> String {
    let mut random = [0; 32];
    random[..name.len()].copy_from_slice(name.as_bytes());
    format!("sfp_{}", BASE64_URL_SAFE_NO_PAD.encode(random))
}

/// An operator of all, a viewer of all, and an operator of cluster 0xB alone.
fn principal(hash: &TokenHash) -> Option<Principal> {
    let known = [("operator", TokenScope::Operator), ("viewer", TokenScope::Viewer), ("b-only", TokenScope::Operator)];
    let (name, scope) = known.into_iter().find(|(name, _)| TokenHash::of(&token(name)).as_ref() == Some(hash))?;
    let clusters = (name == "b-only").then(|| [Uuid::from_u128(0xB)].into());
    Some(Principal { name: format!("token:{name}"), grants: vec![Grant { scope, clusters }] })
}

fn reply(
    credential: &Credential,
    question: GitOperation,
    pushes: &Mutex<Vec<RepositoryPush>>,
) -> Result<GitOutcome, GitAccessError> {
    if let GitOperation::Pushed(push) = question {
        assert!(matches!(credential, Credential::Verified(_)));
        pushes.lock().unwrap().push(push);
        return Ok(GitOutcome::Recorded);
    }
    let unknown = || GitAccessError::Unauthenticated("unknown".to_owned());
    let who = match credential {
        Credential::None => return Err(unknown()),
        Credential::Token(hash) => principal(hash).ok_or_else(unknown)?,
        Credential::Verified(who) => who.clone(),
    };
    who.may(question.operation(), question.cluster())?;
    Ok(GitOutcome::Repository { who, pulled: [PULLED.to_owned()].into() })
}

/// A gatekeeper that asks that state client, without a provider of identities.
pub fn gatekeeper(state_client: StateClient) -> StateGatekeeper {
    StateGatekeeper { state_client, identities: None, has_external: false }
}

/// How repositories are served.
pub fn settings(state_dir: &Path, anonymous: Anonymous) -> Settings {
    let (pushed, _) = mpsc::channel(1);
    let hooks = Hooks::install(state_dir).unwrap();
    let (request_timeout, passwords) = (Duration::from_secs(600), PasswordDigests::default());
    Settings { anonymous, children_max: 16, request_timeout, passwords, hooks, pushed, scratches: None }
}

pub fn start() -> (StateClient, Arc<Mutex<Vec<RepositoryPush>>>) {
    let (question_sender, mut questions) = mpsc::channel(QUESTIONS_MAX);
    let (records, _) = mpsc::channel(QUESTIONS_MAX);
    let state_client = StateClient::new(question_sender, records);
    let (answering, pushes) = (state_client.clone(), Arc::new(Mutex::new(Vec::new())));
    let kept = Arc::clone(&pushes);
    tokio::spawn(async move {
        while let Some(GitRequest { id, credential, question, .. }) = questions.recv().await {
            let reply = reply(&credential, question, &kept);
            answering.answer(GitResponse { id, reply, audit: None });
        }
    });
    (state_client, pushes)
}
