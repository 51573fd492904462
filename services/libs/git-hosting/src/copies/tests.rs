//! Copies against the real git.

use std::path::PathBuf;

use uuid::Uuid;

use super::*;
use crate::client::bare::{git, text};
use crate::repositories::Repositories;

const MAIN: &str = "refs/heads/main";

/// A repository that is copied, and its copy.
struct World {
    _state_dir: tempfile::TempDir,
    original: PathBuf,
    copy: PathBuf,
    scratches: Scratches,
}

impl World {
    fn new() -> Self {
        let state_dir = tempfile::tempdir().unwrap();
        let repositories = Repositories::load(state_dir.path()).unwrap();
        let [original, copy] = [1, 2].map(|n| repositories.make(Uuid::from_u128(n)).unwrap());
        let scratches = Scratches::open(state_dir.path()).unwrap();
        Self { _state_dir: state_dir, original, copy, scratches }
    }

    /// A commit of one file in the original, on a branch.
    fn commit(&self, branch: &str, content: &str) -> String {
        let blob = text(&self.original, &["hash-object", "-w", "--stdin"], content.as_bytes());
        let tree = text(&self.original, &["mktree"], format!("100644 blob {blob}\ta\n").as_bytes());
        let parent = refs(&self.original).unwrap().get(branch).cloned();
        let parent: Vec<&str> = parent.iter().flat_map(|parent| ["-p", parent]).collect();
        let commit = text(&self.original, &[&["commit-tree", "-m", content], &parent[..], &[&tree]].concat(), b"");
        git(&self.original, &["update-ref", branch, &commit], b"");
        commit
    }

    /// A pack of what the original has and the copy has not.
    fn pack(&self) -> Vec<u8> {
        let wanted = refs(&self.original).unwrap().into_values().map(|id| id + "\n");
        let had = refs(&self.copy).unwrap().into_values().map(|id| format!("^{id}\n"));
        let revisions: String = wanted.chain(had).collect();
        git(&self.original, &["pack-objects", "--revs", "--stdout", "--thin", "-q"], revisions.as_bytes())
    }

    async fn take(&self, pack: &[u8]) -> Result<(), CopyError> {
        take_pack(&self.copy, true, &self.scratches, Input::Bytes(pack)).await
    }

    async fn apply(&self) -> Result<Applied, CopyError> {
        apply(&self.copy, &refs(&self.original).unwrap(), Connectivity::Unknown).await
    }

    fn is_same(&self) -> bool {
        refs(&self.original).unwrap() == refs(&self.copy).unwrap()
    }

    fn packs(&self) -> usize {
        fs::read_dir(self.copy.join("objects/pack")).unwrap().count()
    }

    fn scratch_is_empty(&self) -> bool {
        fs::read_dir(self.copy.parent().unwrap().parent().unwrap().join("scratch")).unwrap().next().is_none()
    }
}

#[tokio::test]
async fn a_copy_follows_commit_by_commit() {
    let world = World::new();
    for n in 0..5 {
        world.commit(MAIN, &format!("{n} {}", "long ".repeat(1000)));
        if n == 2 {
            world.commit("refs/heads/next", "n");
            git(&world.original, &["tag", "-a", "-m", "x", "v1", MAIN], b"");
        }
        assert_eq!(world.apply().await.unwrap(), Applied::Missing);
        assert!(!world.is_same());
        world.take(&world.pack()).await.unwrap();
        assert_eq!(world.apply().await.unwrap(), Applied::Done);
        assert!(world.is_same());
        git(&world.copy, &["fsck", "--strict", "--full"], b"");
    }
    git(&world.original, &["update-ref", "-d", "refs/heads/next"], b"");
    assert_eq!(world.apply().await.unwrap(), Applied::Done);
    assert!(world.is_same() && world.scratch_is_empty());
    // Nothing to do, and nothing is missing.
    assert_eq!(world.apply().await.unwrap(), Applied::Done);
    world.take(&world.pack()).await.unwrap();
}

#[tokio::test]
async fn nothing_of_a_pack_is_taken_that_is_damaged_malformed_or_leaves_something_out() {
    let world = World::new();
    world.commit(MAIN, "1");
    let whole = world.pack();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    for bad in [&whole[..whole.len() - 1], &whole[..20], &changed, b"", b"PACK", &[0; 4096]] {
        let error = world.take(bad).await.unwrap_err();
        assert!(matches!(error, CopyError::Pack(_)), "{error}");
    }
    // The commit without its tree.
    let commit = refs(&world.original).unwrap()[MAIN].clone() + "\n";
    let lacking = git(&world.original, &["pack-objects", "--stdout", "-q"], commit.as_bytes());
    let error = world.take(&lacking).await.unwrap_err();
    assert!(matches!(error, CopyError::Pack(_)), "{error}");
    // A thin one for a copy that has more.
    world.take(&whole).await.unwrap();
    assert_eq!(world.apply().await.unwrap(), Applied::Done);
    let second = world.commit(MAIN, &"2".repeat(10));
    let thin = world.pack();
    let other = World { original: world.original.clone(), ..World::new() };
    assert!(other.take(&thin).await.is_err());
    assert_eq!((other.apply().await.unwrap(), other.packs()), (Applied::Missing, 0));
    // The same for one that is to be whole by itself.
    let alone = take_pack(&world.copy, false, &world.scratches, Input::Bytes(&thin)).await;
    assert!(matches!(alone, Err(CopyError::Pack(_))));
    take_pack(&world.copy, false, &world.scratches, Input::Bytes(&whole)).await.unwrap();
    // A tree whose entry a checkout would place into the repository itself.
    let blob = text(&world.original, &["hash-object", "-w", "--stdin"], b"evil");
    let tree = text(&world.original, &["mktree"], format!("100644 blob {blob}\t.git\n").as_bytes());
    let evil = text(&world.original, &["commit-tree", "-m", "x", "-p", &second, &tree], b"");
    git(&world.original, &["update-ref", MAIN, &evil], b"");
    let error = world.take(&world.pack()).await.unwrap_err();
    assert!(error.to_string().contains("hasDotgit"), "{error}");
    assert_eq!(world.apply().await.unwrap(), Applied::Missing);
    assert!(world.scratch_is_empty());
}

#[tokio::test]
async fn what_packs_have_brought_into_an_empty_copy_is_connected() {
    let world = World::new();
    let known = || connectivity(&world.copy).unwrap();
    assert_eq!(known(), Connectivity::Known);
    let first = world.commit(MAIN, "1");
    let pack = world.pack();
    let second = world.commit(MAIN, "2");
    // A pack that leaves something out is not taken, so nothing of it is in the copy.
    let revisions = format!("{second}\n^{first}\n");
    let rest = git(&world.original, &["pack-objects", "--revs", "--stdout", "-q"], revisions.as_bytes());
    assert!(world.take(&rest).await.is_err());
    assert_eq!(known(), Connectivity::Known);
    world.take(&pack).await.unwrap();
    world.take(&rest).await.unwrap();
    let applied = apply(&world.copy, &refs(&world.original).unwrap(), Connectivity::Known).await;
    assert_eq!(applied.unwrap(), Applied::Done);
    git(&world.copy, &["fsck", "--strict", "--full", "--connectivity-only"], b"");
    assert_eq!(known(), Connectivity::Unknown, "there are objects that it may not have brought");
    // One object that git was not asked about.
    let other = World::new();
    git(&other.copy, &["hash-object", "-w", "--stdin"], b"1");
    assert_eq!(connectivity(&other.copy).unwrap(), Connectivity::Unknown);
}

#[tokio::test]
async fn a_reference_whose_history_has_a_hole_does_not_move() {
    let world = World::new();
    world.commit(MAIN, "1");
    let second = world.commit(MAIN, "2");
    // As if an unreferenced object had been removed: its own objects are there, its parent is not.
    for object in [format!("{second}^{{tree}}"), second.clone(), format!("{second}:a")] {
        let id = text(&world.original, &["rev-parse", &object], b"");
        let path = format!("objects/{}/{}", &id[..2], &id[2..]);
        fs::create_dir_all(world.copy.join(&path).parent().unwrap()).unwrap();
        fs::copy(world.original.join(&path), world.copy.join(&path)).unwrap();
    }
    assert_eq!(world.apply().await.unwrap(), Applied::Missing);
    assert!(refs(&world.copy).unwrap().is_empty());
    world.take(&world.pack()).await.unwrap();
    assert_eq!(world.apply().await.unwrap(), Applied::Done);
}

#[tokio::test]
async fn names_that_are_in_each_others_way_and_references_of_other_writers_hold_nothing_up() {
    let world = World::new();
    world.commit("refs/heads/a", "1");
    world.commit("refs/heads/d/e", "1");
    world.take(&world.pack()).await.unwrap();
    assert_eq!(world.apply().await.unwrap(), Applied::Done);
    for name in ["refs/heads/a", "refs/heads/d/e"] {
        git(&world.original, &["update-ref", "-d", name], b"");
    }
    world.commit("refs/heads/a/b", "2");
    world.commit("refs/heads/d", "2");
    git(&world.copy, &["update-ref", "refs/heads/x", "refs/heads/a"], b"");
    fs::write(world.copy.join("refs/heads/a.lock"), "").unwrap();
    world.take(&world.pack()).await.unwrap();
    assert_eq!(world.apply().await.unwrap(), Applied::Done);
    assert!(world.is_same());
}

#[tokio::test]
async fn other_names_than_those_of_branches_and_tags_are_refused() {
    let world = World::new();
    let commit = world.commit(MAIN, "1");
    world.take(&world.pack()).await.unwrap();
    for name in
        ["HEAD", "refs/sparkfleet/x", "refs/heads/../../config", "refs/heads/a\0b", "refs/heads/a b", "refs/heads/", ""]
    {
        let error =
            apply(&world.copy, &[(name.to_owned(), commit.clone())].into(), Connectivity::Unknown).await.unwrap_err();
        assert!(matches!(error, CopyError::Name(_)), "{name:?}: {error}");
    }
    for id in ["", "x", "0123", "HEAD"] {
        let error =
            apply(&world.copy, &[(MAIN.to_owned(), id.to_owned())].into(), Connectivity::Unknown).await.unwrap_err();
        assert!(matches!(error, CopyError::Name(_)), "{id:?}: {error}");
    }
    assert!(refs(&world.copy).unwrap().is_empty());
}

#[tokio::test]
async fn thousands_of_references_are_read_and_moved() {
    let world = World::new();
    let commit = world.commit(MAIN, "1");
    let orders: String = (0..5_000).map(|n| format!("create refs/tags/release-{n:05} {commit}\n")).collect();
    git(&world.original, &["update-ref", "--stdin"], orders.as_bytes());
    world.take(&world.pack()).await.unwrap();
    assert_eq!(world.apply().await.unwrap(), Applied::Done);
    assert!(world.is_same() && refs(&world.copy).unwrap().len() == 5_001);
}

#[test]
fn what_a_killed_process_left_in_scratch_is_removed() {
    let world = World::new();
    let left = world.scratches.make(Some(&world.copy), &Refs::new()).unwrap();
    let directory = left.directory().to_owned();
    std::mem::forget(left);
    assert!(directory.is_dir());
    Scratches::open(directory.parent().unwrap().parent().unwrap()).unwrap();
    assert!(!directory.exists());
}
