//! Pushes that the git server has received, taken over with real git: who pushes is judged by the sealed credential, what is pushed by the rules of every push.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster_manager::adapters::gatekeeper::StateGatekeeper;
use cluster_manager::adapters::git_pushes::PushTaker;
use cluster_manager::event::{Event, PushResult, PushWork};
use cluster_manager::git_users::RepositoryPush;
use git_hosting::credential::CredentialKeyPair;
use git_hosting::originals;
use git_hosting::push::{Hooks, Receiver};
use git_hosting::repositories::{Kind, Repositories, RepositoryFiles, RepositoryRecord};
use git_server_contract::push::RefChange;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::state_client;
use crate::there::git;

const A: Uuid = Uuid::from_u128(0xA);
const B: Uuid = Uuid::from_u128(0xB);
const PUSH: Uuid = Uuid::from_u128(0x9A);
const MAIN: &str = "refs/heads/main";

struct Site {
    state_dir: tempfile::TempDir,
    repositories: Repositories,
    key: Arc<CredentialKeyPair>,
    receiver: Receiver<StateGatekeeper>,
    taker: PushTaker,
    pushes: Arc<Mutex<Vec<RepositoryPush>>>,
}

impl Site {
    fn new() -> Self {
        let state_dir = tempfile::tempdir().unwrap();
        let repositories = Repositories::load(state_dir.path()).unwrap();
        for (uuid, path) in [(A, "cluster/A"), (B, "cluster/B")] {
            let place =
                RepositoryRecord { path: path.to_owned(), kind: Kind::Cluster, store: Uuid::nil(), origin: None };
            let files = RepositoryFiles {
                initial: [("edo/a.yaml".to_owned(), b"a: 1\n".to_vec())].into(),
                message: "x".to_owned(),
                ..RepositoryFiles::default()
            };
            repositories.write(uuid, &place, &files, 0).unwrap();
        }
        let (state_client, pushes) = state_client::start();
        let (pushed, _) = mpsc::channel(1);
        let receiver = Receiver {
            hooks: Hooks::install(state_dir.path()).unwrap(),
            gatekeeper: state_client::gatekeeper(state_client),
            repositories: repositories.clone(),
            limit: Duration::from_secs(60),
            pushed,
        };
        let key = Arc::new(CredentialKeyPair::new([7; 32]));
        let taker = PushTaker::new(Arc::clone(&key), receiver.clone());
        Self { state_dir, repositories, key, receiver, taker, pushes }
    }

    fn directory(&self, uuid: Uuid) -> PathBuf {
        self.repositories.by_uuid(uuid).unwrap().directory
    }

    fn main(&self, uuid: Uuid) -> String {
        self.repositories.main(uuid).unwrap().unwrap()
    }

    /// A commit that changes `path`, and its pack, as the git server makes it.
    async fn commit(&self, uuid: Uuid, path: &str) -> (String, Arc<[u8]>) {
        let checkout = self.state_dir.path().join(Uuid::new_v4().to_string());
        let (from, to) = (self.directory(uuid).display().to_string(), checkout.display().to_string());
        git(self.state_dir.path(), &["clone", "--quiet", &from, &to]).await.unwrap();
        let file = checkout.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "b: 1\n").unwrap();
        git(&checkout, &["add", "."]).await.unwrap();
        git(&checkout, &["commit", "--quiet", "-m", "by hand"]).await.unwrap();
        let commit = git(&checkout, &["rev-parse", "HEAD"]).await.unwrap();
        let pack = pack(&checkout.join(".git"), &commit, &self.main(uuid)).await;
        (commit, pack)
    }

    fn work(&self, uuid: Uuid, token: &str, after: &str, pack: Option<Arc<[u8]>>) -> PushWork {
        let credential = self.key.public().seal((uuid, PUSH), token, [9; 32]).unwrap().into();
        let before = self.repositories.by_uuid(uuid).map(|_| self.main(uuid));
        let change = RefChange { before, after: Some(after.to_owned()) };
        let refs = [(MAIN.to_owned(), change)].into();
        PushWork { push: PUSH, repository: uuid, from: "10.0.0.7".to_owned(), credential, refs, pack }
    }

    async fn take(&self, work: PushWork) -> Result<(), String> {
        let repository = work.repository;
        let Event::PushTaken(PushResult { push, repository: of, outcome }) = self.taker.clone().take(work).await else {
            panic!("it is answered")
        };
        assert_eq!((push, of), (PUSH, repository));
        outcome
    }
}

async fn pack(directory: &Path, wanted: &str, has: &str) -> Arc<[u8]> {
    let into = directory.join("x.pack");
    let (refs, has) = ([("x".to_owned(), wanted.to_owned())].into(), BTreeSet::from([has.to_owned()]));
    originals::pack(directory, &refs, &has, &into, Duration::from_secs(60)).await.unwrap();
    std::fs::read(into).unwrap().into()
}

#[tokio::test]
async fn an_operator_pushes_below_by_hand_and_it_is_reported_once() {
    let site = Site::new();
    let before = site.main(A);
    let (commit, pack) = site.commit(A, "by-hand/b.yaml").await;
    let work = site.work(A, &state_client::token("operator"), &commit, Some(pack));
    assert_eq!(site.take(work.clone()).await, Ok(()));
    assert_eq!(site.main(A), commit);
    let push = RepositoryPush { repository: A, shared: false, before: Some(before), after: Some(commit) };
    assert_eq!(*site.pushes.lock().unwrap(), [push]);
    assert_eq!(site.take(work).await, Ok(()), "it was taken before");
    assert_eq!(site.pushes.lock().unwrap().len(), 1);
}

/// The manager stopped between the disk and its answer: the next one has another key.
#[tokio::test]
async fn a_push_that_was_taken_over_before_a_restart_is_not_refused_after_it() {
    let site = Site::new();
    let (commit, pack) = site.commit(A, "by-hand/b.yaml").await;
    let work = site.work(A, &state_client::token("operator"), &commit, Some(pack));
    let next = PushTaker::new(Arc::new(CredentialKeyPair::new([8; 32])), site.receiver.clone());
    let outcome = async |work| match next.clone().take(work).await {
        Event::PushTaken(result) => result.outcome,
        event => panic!("{event:?}"),
    };
    let reason = outcome(work.clone()).await.unwrap_err();
    assert!(reason.contains("push again"), "{reason}");
    assert_eq!(site.take(work.clone()).await, Ok(()));
    assert_eq!(outcome(work).await, Ok(()));
    assert_eq!(site.main(A), commit);
}

#[tokio::test]
async fn who_may_not_push_and_what_may_not_be_pushed_is_refused_with_the_reason() {
    let site = Site::new();
    let before = site.main(A);
    let (commit, pack) = site.commit(A, "by-hand/b.yaml").await;
    let (bad, bad_pack) = site.commit(A, "edo/b.yaml").await;
    let token = state_client::token;
    let good = || site.work(A, &token("operator"), &commit, Some(Arc::clone(&pack)));
    let replayed = site.key.public().seal((A, Uuid::nil()), &token("operator"), [9; 32]).unwrap().into();
    let absent = Uuid::from_u128(0xF);
    let cases = [
        (site.work(A, &token("viewer"), &commit, Some(Arc::clone(&pack))), "push needs the scope operator"),
        (site.work(A, &token("b-only"), &commit, Some(Arc::clone(&pack))), "no such repository"),
        (site.work(absent, &token("operator"), &commit, None), "no such repository"),
        (site.work(A, &token("unknown"), &commit, Some(Arc::clone(&pack))), "not accepted any more"),
        (site.work(A, "geheim", &commit, Some(Arc::clone(&pack))), "not accepted any more"),
        (site.work(A, &token("operator"), &bad, Some(bad_pack)), "only what is below by-hand/ is yours"),
        (PushWork { credential: replayed, ..good() }, "cannot open the credential"),
        (PushWork { credential: Arc::from([1, 2, 3]), ..good() }, "cannot open the credential"),
        (PushWork { from: "nowhere".to_owned(), ..good() }, "from where"),
        (PushWork { pack: None, ..good() }, ""),
        (PushWork { pack: Some(Arc::from(*b"PACK")), ..good() }, ""),
    ];
    for (work, expected) in cases {
        let reason = site.take(work).await.unwrap_err();
        assert!(reason.contains(expected) && !reason.is_empty(), "{reason:?} should say {expected:?}");
        assert!(!reason.contains("sfp_"), "{reason}");
        assert_eq!(site.main(A), before);
    }
    assert_eq!(site.take(good()).await, Ok(()));
}
