//! Packs and pushes against the real git.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use uuid::Uuid;

use super::*;
use crate::gatekeeper::fake::{FakeGatekeeper, PULLED, Pushed};
use crate::places::Places;
use crate::push::Hooks;
use crate::repositories::{Kind, Repositories, RepositoryFiles, RepositoryRecord};
use access::Principal;

const CLUSTER: Uuid = Uuid::from_u128(0xC1);
const SHARED: Uuid = Uuid::from_u128(0x5);
const LIMIT: Duration = Duration::from_secs(60);
const MAIN: &str = "refs/heads/main";

struct Site {
    state_dir: tempfile::TempDir,
    repositories: Repositories,
    pushes: Arc<Mutex<Vec<Pushed>>>,
}

fn git(directory: &Path, arguments: &[&str]) -> Output {
    Command::new("git")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "safe.directory=*", "-c", "user.name=x", "-c", "user.email=x@example", "-C"])
        .arg(directory)
        .args(arguments)
        .output()
        .unwrap()
}

fn ok(directory: &Path, arguments: &[&str]) -> String {
    let output = git(directory, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Site {
    fn new() -> Self {
        let state_dir = tempfile::tempdir().unwrap();
        let repositories = Repositories::load(state_dir.path()).unwrap();
        let site = Self { state_dir, repositories, pushes: Arc::default() };
        for (uuid, path, kind) in [(CLUSTER, "cluster/A", Kind::Cluster), (SHARED, "shared/helm", Kind::Shared)] {
            site.write(uuid, path, kind, "a: 1\n");
        }
        site
    }

    fn write(&self, uuid: Uuid, path: &str, kind: Kind, content: &str) -> String {
        let files = RepositoryFiles {
            directory: Some("edo".to_owned()),
            owned: [("a.yaml".to_owned(), content.as_bytes().to_vec())].into(),
            message: "x".to_owned(),
            ..RepositoryFiles::default()
        };
        let place = RepositoryRecord { path: path.to_owned(), kind, store: Uuid::nil(), origin: None };
        self.repositories.write(uuid, &place, &files, 0).unwrap().commit
    }

    fn commit(&self, content: &str) -> String {
        self.write(CLUSTER, "cluster/A", Kind::Cluster, content)
    }

    fn directory(&self, uuid: Uuid) -> PathBuf {
        self.repositories.by_uuid(uuid).unwrap().directory
    }

    fn refs(&self, uuid: Uuid) -> BTreeMap<String, String> {
        refs(&self.directory(uuid)).unwrap()
    }

    /// An empty repository, as a copy begins.
    fn copy(&self) -> PathBuf {
        let directory = self.state_dir.path().join("copy.git");
        ok(self.state_dir.path(), &["init", "--quiet", "--bare", "copy.git"]);
        directory
    }

    async fn pack(&self, has: &[&str]) -> Option<(PathBuf, Packed)> {
        let into = self.state_dir.path().join("x.pack");
        let has = has.iter().map(|id| (*id).to_owned()).collect();
        let packed = pack(&self.directory(CLUSTER), &self.refs(CLUSTER), &has, &into, LIMIT).await.unwrap()?;
        Some((into, packed))
    }

    /// A checkout of a repository, in which a user commits.
    fn checkout(&self, uuid: Uuid) -> PathBuf {
        let target = self.state_dir.path().join(format!("work-{uuid}"));
        let source = self.directory(uuid);
        ok(self.state_dir.path(), &["clone", "--quiet", source.to_str().unwrap(), target.to_str().unwrap()]);
        target
    }

    /// The pack of what a checkout has more than the repository, as the process with the copy makes it.
    async fn pack_of(&self, checkout: &Path, uuid: Uuid, wanted: &str) -> Bytes {
        let into = self.state_dir.path().join("push.pack");
        let refs = [("x".to_owned(), wanted.to_owned())].into();
        let has = self.refs(uuid).into_values().collect();
        pack(&checkout.join(".git"), &refs, &has, &into, LIMIT).await.unwrap();
        std::fs::read(into).unwrap().into()
    }

    async fn take(&self, uuid: Uuid, changes: &[(&str, &str, &str)], pack: Bytes) -> PushOutcome {
        let (polls, _) = mpsc::channel(1);
        let (pushed, _) = mpsc::channel(1);
        let receiver = Receiver {
            hooks: Hooks::install(self.state_dir.path()).unwrap(),
            gatekeeper: FakeGatekeeper { pushes: Arc::clone(&self.pushes), polls },
            repositories: self.repositories.clone(),
            limit: LIMIT,
            pushed,
        };
        let allowed = Allowed {
            repository: self.repositories.by_uuid(uuid).unwrap(),
            who: Principal { name: "token:ada".to_owned(), grants: Vec::new() },
            from: [127, 0, 0, 1].into(),
            pulled: [PULLED.to_owned()].into(),
        };
        let place = Places::new(1).take("ada", Duration::ZERO).await.unwrap();
        let change = |(name, before, after): &(&str, &str, &str)| {
            ((*name).to_owned(), ((*before).to_owned(), (*after).to_owned()))
        };
        let changes = changes.iter().map(change).collect();
        take(receiver, allowed, &changes, pack, place).await.unwrap()
    }

    fn pushes(&self) -> usize {
        self.pushes.lock().unwrap().len()
    }
}

fn commit_file(checkout: &Path, path: &str) -> String {
    let file = checkout.join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, "b: 1\n").unwrap();
    ok(checkout, &["add", "."]);
    ok(checkout, &["commit", "--quiet", "-m", "by hand"]);
    ok(checkout, &["rev-parse", "HEAD"])
}

fn index(copy: &Path, pack: &Path) -> bool {
    let file = std::fs::File::open(pack).unwrap();
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*", "--git-dir"]).arg(copy);
    command.args(["index-pack", "--strict", "--stdin", "--fix-thin"]).stdin(file).stdout(Stdio::null());
    command.status().unwrap().success()
}

#[tokio::test]
async fn a_copy_is_filled_by_a_pack_and_follows_by_smaller_ones() {
    let site = Site::new();
    let first = site.refs(CLUSTER)[MAIN].clone();
    let copy = site.copy();
    let (file, packed) = site.pack(&[]).await.unwrap();
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(packed.bytes, bytes.len() as u64);
    assert_eq!(packed.digest, hex::encode(aws_lc_rs::digest::digest(&SHA256, &bytes).as_ref()));
    assert!(index(&copy, &file));
    ok(&copy, &["update-ref", MAIN, &first]);
    ok(&copy, &["fsck", "--strict", "--connectivity-only"]);

    let second = site.commit(&"a: 2\n".repeat(1000));
    ok(&site.directory(CLUSTER), &["tag", "-a", "-m", "x", "v1", &second]);
    let (file, smaller) = site.pack(&[&first, &"ab".repeat(20), "not an object"]).await.unwrap();
    assert!(index(&copy, &file), "what the repository does not know is not taken as known");
    for (name, object) in site.refs(CLUSTER) {
        ok(&copy, &["update-ref", &name, &object]);
    }
    ok(&copy, &["fsck", "--strict"]);
    assert_eq!(ok(&copy, &["cat-file", "-t", "refs/tags/v1"]), "tag");
    let (_, whole) = site.pack(&[]).await.unwrap();
    assert!(smaller.bytes < whole.bytes, "{} {}", smaller.bytes, whole.bytes);
    let all: Vec<String> = site.refs(CLUSTER).into_values().collect();
    assert_eq!(site.pack(&all.iter().map(String::as_str).collect::<Vec<_>>()).await, None);
}

#[tokio::test]
async fn refs_that_clients_do_not_see_are_not_copied_and_a_damaged_repository_is_an_error() {
    let site = Site::new();
    let main = site.refs(CLUSTER)[MAIN].clone();
    let directory = site.directory(CLUSTER);
    for name in ["refs/sparkfleet/external", "refs/heads/next", "refs/notes/x"] {
        ok(&directory, &["update-ref", name, &main]);
    }
    ok(&directory, &["pack-refs", "--all"]);
    let refs = site.refs(CLUSTER);
    assert_eq!(refs.keys().collect::<Vec<_>>(), [MAIN, "refs/heads/next"]);
    let into = site.state_dir.path().join("x.pack");
    let absent = [(MAIN.to_owned(), "ab".repeat(20))].into();
    let error = pack(&directory, &absent, &BTreeSet::new(), &into, LIMIT).await.unwrap_err();
    assert!(error.contains("pack-objects"), "{error}");
    assert!(super::refs(&site.state_dir.path().join("none")).is_err());
}

#[tokio::test]
async fn a_push_is_taken_by_the_rules_of_one_over_http_and_once() {
    let site = Site::new();
    let before = site.refs(CLUSTER)[MAIN].clone();
    let work = site.checkout(CLUSTER);
    let after = commit_file(&work, "by-hand/b.yaml");
    let pack = site.pack_of(&work, CLUSTER, &after).await;
    assert_eq!(site.take(CLUSTER, &[(MAIN, &before, &after)], pack.clone()).await, PushOutcome::Accepted);
    assert_eq!(site.refs(CLUSTER)[MAIN], after);
    ok(&site.directory(CLUSTER), &["fsck", "--strict"]);
    assert_eq!(*site.pushes.lock().unwrap(), [(CLUSTER, Some(before.clone()), Some(after.clone()))]);
    assert_eq!(site.take(CLUSTER, &[(MAIN, &before, &after)], pack).await, PushOutcome::Accepted, "it is there");
    assert_eq!(site.pushes(), 1);
}

#[tokio::test]
async fn what_a_push_may_not_change_is_refused_with_the_words_of_the_hook_and_nothing_stays() {
    let site = Site::new();
    let before = site.refs(CLUSTER)[MAIN].clone();
    let work = site.checkout(CLUSTER);
    let bad = commit_file(&work, "edo/b.yaml");
    let pack = site.pack_of(&work, CLUSTER, &bad).await;
    let refused = |taken| match taken {
        PushOutcome::Refused(reason) => reason,
        PushOutcome::Accepted => panic!("accepted"),
    };
    let reason = refused(site.take(CLUSTER, &[(MAIN, &before, &bad)], pack.clone()).await);
    assert!(reason.contains("only what is below by-hand/ is yours") && reason.contains("edo/b.yaml"), "{reason}");
    assert_eq!(site.refs(CLUSTER)[MAIN], before);
    assert!(!git(&site.directory(CLUSTER), &["cat-file", "-e", &bad]).status.success(), "its objects are gone");
    // The branch has moved since.
    let moved = site.commit("a: 3\n");
    let reason = refused(site.take(CLUSTER, &[(MAIN, &before, &bad)], pack).await);
    assert!(!reason.is_empty() && site.refs(CLUSTER)[MAIN] == moved, "{reason}");
    for (name, from, to) in [
        (MAIN, before.as_str(), before.as_str()),
        ("refs/heads/a b", NO_OBJECT, &before),
        ("refs/heads/a\0atomic", NO_OBJECT, &before),
        ("HEAD", NO_OBJECT, &before),
        (MAIN, "0", &before),
    ] {
        let reason = refused(site.take(CLUSTER, &[(name, from, to)], Bytes::new()).await);
        assert!(reason.contains("not a change of a ref"), "{reason}");
    }
    refused(site.take(CLUSTER, &[], Bytes::new()).await);
}

#[tokio::test]
async fn objects_that_are_missing_or_damaged_are_refused() {
    let site = Site::new();
    let before = site.refs(CLUSTER)[MAIN].clone();
    let work = site.checkout(CLUSTER);
    let after = commit_file(&work, "by-hand/b.yaml");
    let pack = site.pack_of(&work, CLUSTER, &after).await;
    let mut damaged = pack.to_vec();
    damaged[20] ^= 1;
    let cut = pack.slice(..pack.len() - 30);
    let empty = site.pack_of(&work, CLUSTER, &before).await;
    for bad in [damaged.into(), cut, empty, Bytes::new(), Bytes::from_static(b"PACK")] {
        let taken = site.take(CLUSTER, &[(MAIN, &before, &after)], bad).await;
        assert!(matches!(taken, PushOutcome::Refused(_)), "{taken:?}");
        assert_eq!(site.refs(CLUSTER)[MAIN], before);
    }
    assert_eq!(site.take(CLUSTER, &[(MAIN, &before, &after)], pack).await, PushOutcome::Accepted);
}

#[tokio::test]
async fn of_several_refs_all_move_or_none() {
    let site = Site::new();
    let main = site.refs(SHARED)[MAIN].clone();
    let work = site.checkout(SHARED);
    let after = commit_file(&work, "charts/b.yaml");
    let pack = site.pack_of(&work, SHARED, &after).await;
    let pulled = format!("refs/heads/{PULLED}");
    let both = [(MAIN, main.as_str(), after.as_str()), (pulled.as_str(), NO_OBJECT, after.as_str())];
    let taken = site.take(SHARED, &both, pack.clone()).await;
    assert!(
        matches!(&taken, PushOutcome::Refused(reason) if reason.contains("is pulled from another server")),
        "{taken:?}"
    );
    assert_eq!(site.refs(SHARED)[MAIN], main);
    let two = [(MAIN, main.as_str(), after.as_str()), ("refs/tags/v1", NO_OBJECT, after.as_str())];
    assert_eq!(site.take(SHARED, &two, pack).await, PushOutcome::Accepted);
    assert_eq!(
        site.refs(SHARED),
        [(MAIN.to_owned(), after.clone()), ("refs/tags/v1".to_owned(), after.clone())].into()
    );
    let known = [("refs/heads/next", NO_OBJECT, main.as_str())];
    assert_eq!(site.take(SHARED, &known, Bytes::new()).await, PushOutcome::Accepted, "its objects are there");
    let gone = [("refs/heads/next", main.as_str(), NO_OBJECT)];
    assert_eq!(site.take(SHARED, &gone, Bytes::new()).await, PushOutcome::Accepted);
    let deleted = [("refs/tags/v1", after.as_str(), NO_OBJECT)];
    assert_eq!(site.take(SHARED, &deleted, Bytes::new()).await, PushOutcome::Accepted);
    assert_eq!(site.refs(SHARED).keys().collect::<Vec<_>>(), [MAIN]);
}
