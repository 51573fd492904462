//! Repositories on a real disk, read back with the real git: what a commit holds, what a killed process leaves, what a closed one keeps.

use super::*;
use std::process::Command;

const CLUSTER: Uuid = Uuid::from_u128(0xC1);

fn files(release: &str) -> RepositoryFiles {
    RepositoryFiles {
        initial: [("README.md".to_owned(), b"read\n".to_vec()), ("by-hand/.gitkeep".to_owned(), Vec::new())].into(),
        directory: Some("edo/cluster".to_owned()),
        owned: [("a.yaml".to_owned(), release.as_bytes().to_vec()), ("b.yaml".to_owned(), b"b: 1\n".to_vec())].into(),
        message: "Cluster flux update".to_owned(),
    }
}

fn place(path: &str) -> RepositoryRecord {
    RepositoryRecord { path: path.to_owned(), kind: Kind::Cluster, store: Uuid::from_u128(7), origin: None }
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", directory)
        .args(["-c", "user.name=operator", "-c", "user.email=o@example", "-c", "safe.directory=*"])
        .arg("-C")
        .arg(directory)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

struct Fixture {
    state_dir: tempfile::TempDir,
    repositories: Repositories,
}

impl Fixture {
    fn new() -> Self {
        let state_dir = tempfile::tempdir().unwrap();
        let repositories = Repositories::load(state_dir.path()).unwrap();
        Self { state_dir, repositories }
    }

    fn write(&self, release: &str) -> Written {
        self.repositories.write(CLUSTER, &place("cluster/A"), &files(release), 1_700_000_000_000).unwrap()
    }

    fn bare(&self) -> PathBuf {
        self.repositories.directory(CLUSTER)
    }

    fn tree(&self) -> Vec<String> {
        git(&self.bare(), &["ls-tree", "-r", "--name-only", "main"]).lines().map(str::to_owned).collect()
    }
}

#[test]
fn a_repository_is_made_once_and_committed_to_only_when_something_changed() {
    let fixture = Fixture::new();
    let first = fixture.write("a: 1\n");
    assert!(first.changed);
    assert_eq!(fixture.write("a: 1\n"), Written { changed: false, ..first.clone() });
    let second = fixture.write("a: 2\n");
    assert!(second.changed && second.commit != first.commit);
    assert_eq!(git(&fixture.bare(), &["rev-list", "--count", "main"]).trim(), "2");
    assert_eq!(git(&fixture.bare(), &["rev-parse", "main"]).trim(), second.commit);
    assert_eq!(git(&fixture.bare(), &["symbolic-ref", "HEAD"]).trim(), "refs/heads/main");
    assert_eq!(fixture.tree(), ["README.md", "by-hand/.gitkeep", "edo/cluster/a.yaml", "edo/cluster/b.yaml"]);
    git(&fixture.bare(), &["fsck", "--strict"]);
    let log = git(&fixture.bare(), &["log", "-1", "--format=%an|%s|%at", "main"]);
    assert_eq!(log.trim(), "Sparkfleet cluster manager|Cluster flux update|1700000000");
    let mut found: Vec<_> = fs::read_dir(fixture.bare()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    found.sort();
    assert_eq!(found, ["HEAD", "config", "objects", "refs"], "nothing that it does not need");
    assert_eq!(git(&fixture.bare(), &["config", "core.bare"]).trim(), "true");
    assert_eq!(git(&fixture.bare(), &["remote"]), "", "git takes it for a repository");
}

#[test]
fn what_an_operator_pushed_on_the_disk_stays_and_what_is_ours_is_restored() {
    let fixture = Fixture::new();
    fixture.write("a: 1\n");
    let work = tempfile::tempdir().unwrap();
    let bare = fixture.bare();
    git(work.path(), &["clone", "-q", bare.to_str().unwrap(), "."]);
    fs::write(work.path().join("by-hand/mine.yaml"), "mine: 1\n").unwrap();
    fs::write(work.path().join("README.md"), "my own words\n").unwrap();
    fs::create_dir_all(work.path().join("edo/secrets/ns")).unwrap();
    fs::write(work.path().join("edo/secrets/ns/s.yaml"), "sealed: 1\n").unwrap();
    fs::write(work.path().join("edo/cluster/a.yaml"), "tampered: 1\n").unwrap();
    fs::write(work.path().join("edo/cluster/extra.yaml"), "extra: 1\n").unwrap();
    git(work.path(), &["rm", "-q", "by-hand/.gitkeep"]);
    git(work.path(), &["add", "-A"]);
    git(work.path(), &["commit", "-q", "-m", "by hand"]);
    git(work.path(), &["push", "-q", "origin", "HEAD:main"]);
    assert!(fixture.write("a: 1\n").changed);
    assert_eq!(
        fixture.tree(),
        ["README.md", "by-hand/mine.yaml", "edo/cluster/a.yaml", "edo/cluster/b.yaml", "edo/secrets/ns/s.yaml"]
    );
    assert_eq!(git(&bare, &["show", "main:edo/cluster/a.yaml"]), "a: 1\n");
    assert_eq!(git(&bare, &["show", "main:README.md"]), "my own words\n");
    assert!(!fixture.write("a: 1\n").changed);
}

#[test]
fn a_file_that_is_not_wanted_any_more_is_gone() {
    let fixture = Fixture::new();
    fixture.write("a: 1\n");
    let mut fewer = files("a: 1\n");
    fewer.owned.remove("b.yaml");
    assert!(fixture.repositories.write(CLUSTER, &place("cluster/A"), &fewer, 0).unwrap().changed);
    assert_eq!(fixture.tree(), ["README.md", "by-hand/.gitkeep", "edo/cluster/a.yaml"]);
}

#[test]
fn a_closed_repository_is_not_served_and_comes_back_with_its_history() {
    let fixture = Fixture::new();
    fixture.write("a: 1\n");
    fixture.repositories.close(CLUSTER).unwrap();
    fixture.repositories.close(CLUSTER).unwrap();
    assert!(fixture.bare().is_dir() && !fixture.repositories.record(CLUSTER).exists());
    assert!(fixture.repositories.by_uuid(CLUSTER).is_none() && fixture.repositories.by_path("cluster/A").is_none());
    fixture.write("a: 2\n");
    assert_eq!(git(&fixture.bare(), &["rev-list", "--count", "main"]).trim(), "2", "the history came back");
}

#[test]
fn a_restart_finds_open_repositories_and_only_those() {
    let fixture = Fixture::new();
    fixture.write("a: 1\n");
    let closed = Uuid::from_u128(0xC2);
    fixture.repositories.write(closed, &place("cluster/B"), &files("x"), 0).unwrap();
    fixture.repositories.close(closed).unwrap();
    let shared =
        RepositoryRecord { path: "shared/helm".to_owned(), kind: Kind::Shared, store: Uuid::nil(), origin: None };
    fixture.repositories.write(Uuid::from_u128(3), &shared, &files("x"), 0).unwrap();
    let again = Repositories::load(fixture.state_dir.path()).unwrap();
    assert_eq!(again.open_of(Kind::Cluster), [(CLUSTER, place("cluster/A"))]);
    assert_eq!(again.open_of(Kind::Shared), [(Uuid::from_u128(3), shared)]);
    assert_eq!(again.by_path("cluster/A").unwrap().uuid, CLUSTER);
    assert_eq!(again.by_path("shared/helm").unwrap().kind, Kind::Shared);
    assert!(again.by_path("cluster/B").is_none());
}

#[test]
fn an_origin_is_that_of_the_last_change_and_is_never_older_than_what_is_there() {
    let fixture = Fixture::new();
    let at = |origin: &str| RepositoryRecord { origin: Some(origin.to_owned()), ..place("cluster/A") };
    let recorded = || Repositories::load(fixture.state_dir.path()).unwrap().place(CLUSTER).unwrap().origin;
    let write = |origin: &str, release: &str| fixture.repositories.write(CLUSTER, &at(origin), &files(release), 0);
    write("first", "a: 1\n").unwrap();
    write("second", "a: 1\n").unwrap();
    assert_eq!(recorded().as_deref(), Some("first"), "nothing was changed");
    write("third", "a: 2\n").unwrap();
    assert_eq!(recorded().as_deref(), Some("third"));
    let held = fixture.repositories.hold(CLUSTER, &at("fourth"), &files("a: 1\n"), 0).unwrap();
    assert!(held.held);
    assert_eq!(recorded().as_deref(), Some("third"), "what is there is of the third");
    // A write that fails after its record.
    fs::write(fixture.bare().join("refs/heads/main.lock"), "").unwrap();
    assert!(write("fifth", "a: 3\n").is_err());
    assert_eq!(recorded().as_deref(), Some("fifth"));
}

#[test]
fn a_record_without_an_origin_is_read_and_written_as_before() {
    let fixture = Fixture::new();
    fixture.write("a: 1\n");
    let record = fixture.state_dir.path().join(format!("git/{CLUSTER}.json"));
    let text = format!(r#"{{"path":"cluster/A","kind":"cluster","store":"{}"}}"#, Uuid::from_u128(7));
    assert_eq!(fs::read_to_string(&record).unwrap(), text);
    assert_eq!(Repositories::load(fixture.state_dir.path()).unwrap().place(CLUSTER), Some(place("cluster/A")));
}

#[test]
fn a_renamed_place_is_served_at_the_other_path_only() {
    let fixture = Fixture::new();
    fixture.write("a: 1\n");
    fixture.repositories.write(CLUSTER, &place("cluster/B"), &files("a: 1\n"), 0).unwrap();
    assert!(fixture.repositories.by_path("cluster/A").is_none());
    assert_eq!(fixture.repositories.by_path("cluster/B").unwrap().uuid, CLUSTER);
}

#[test]
fn of_two_with_one_path_the_one_that_was_opened_last_is_served_also_after_a_restart() {
    for other in [Uuid::from_u128(1), Uuid::from_u128(u128::MAX)] {
        let fixture = Fixture::new();
        fixture.write("a: 1\n");
        let record = std::fs::File::options().append(true).open(fixture.repositories.record(CLUSTER)).unwrap();
        record.set_modified(std::time::UNIX_EPOCH).unwrap();
        fixture.repositories.write(other, &place("cluster/A"), &files("b: 1\n"), 0).unwrap();
        let owner = |repositories: &Repositories| repositories.by_path("cluster/A").map(|open| open.uuid);
        assert_eq!(owner(&fixture.repositories), Some(other));
        let again = Repositories::load(fixture.state_dir.path()).unwrap();
        assert_eq!(owner(&again), Some(other));
        again.close(other).unwrap();
        assert_eq!(owner(&again), Some(CLUSTER), "it was there before, and was not closed");
    }
}

#[test]
fn what_a_killed_process_left_is_cleared_away_at_the_start() {
    let fixture = Fixture::new();
    // Killed while making a repository: the directory aside is half there.
    let aside = fixture.state_dir.path().join("git").join(format!("{CLUSTER}.git.new"));
    fs::create_dir_all(aside.join("objects")).unwrap();
    let repositories = Repositories::load(fixture.state_dir.path()).unwrap();
    assert!(!aside.exists());
    // Killed between the repository and its first commit.
    repositories.create(&fixture.bare()).unwrap();
    assert!(repositories.write(CLUSTER, &place("cluster/A"), &files("a: 1\n"), 0).unwrap().changed);
    // Killed while it held the lock of the branch.
    fs::write(fixture.bare().join("refs/heads/main.lock"), "").unwrap();
    // Killed between the commit and the record.
    fs::remove_file(fixture.state_dir.path().join("git").join(format!("{CLUSTER}.json"))).unwrap();
    let repositories = Repositories::load(fixture.state_dir.path()).unwrap();
    assert!(repositories.by_uuid(CLUSTER).is_none());
    assert!(repositories.write(CLUSTER, &place("cluster/A"), &files("a: 2\n"), 0).unwrap().changed);
    assert!(repositories.by_uuid(CLUSTER).is_some());
    assert_eq!(fixture.tree().len(), 4);
}

#[test]
fn a_damaged_repository_is_named_and_nothing_is_overwritten() {
    let fixture = Fixture::new();
    fixture.write("a: 1\n");
    fs::write(fixture.bare().join("refs/heads/main"), "0123456789012345678901234567890123456789\n").unwrap();
    let error = fixture.repositories.write(CLUSTER, &place("cluster/A"), &files("a: 2\n"), 0).unwrap_err().to_string();
    assert!(error.contains("move it away") && error.contains(&CLUSTER.to_string()), "{error}");
}

#[test]
fn a_whole_tree_can_be_owned() {
    let fixture = Fixture::new();
    let mut whole = files("a: 1\n");
    whole.directory = Some(String::new());
    fixture.repositories.write(CLUSTER, &place("shared/x"), &whole, 0).unwrap();
    assert_eq!(fixture.tree(), ["a.yaml", "b.yaml"]);
    let nothing = RepositoryFiles { initial: whole.initial.clone(), ..RepositoryFiles::default() };
    assert!(!fixture.repositories.write(CLUSTER, &place("shared/x"), &nothing, 0).unwrap().changed);
}

#[test]
fn what_is_held_is_compared_and_served_but_not_written() {
    let fixture = Fixture::new();
    let hold = |release: &str| {
        let (place, files) = (place("cluster/A"), files(release));
        fixture.repositories.hold(CLUSTER, &place, &files, 1_700_000_000_000).unwrap()
    };
    let first = hold("a: 1\n");
    assert!(first.changed && !first.held, "where there is nothing, there is nothing to hold");
    assert_eq!(hold("a: 1\n"), Written { commit: first.commit.clone(), changed: false, held: false });
    fixture.repositories.close(CLUSTER).unwrap();
    assert_eq!(hold("a: 2\n"), Written { commit: first.commit.clone(), changed: false, held: true });
    assert!(fixture.repositories.by_path("cluster/A").is_some());
    assert_eq!(git(&fixture.bare(), &["show", "main:edo/cluster/a.yaml"]), "a: 1\n");
    assert!(fixture.write("a: 2\n").changed);
}

#[test]
fn what_a_commit_holds_is_known_after_a_restart_of_the_process_but_not_of_the_machine() {
    let fixture = Fixture::new();
    let first = fixture.write("a: 1\n");
    assert!(fixture.repositories.read(CLUSTER, "edo/secrets", 100).unwrap().is_empty());
    // Reading an object fails from here on.
    fs::rename(fixture.bare().join("objects"), fixture.state_dir.path().join("objects")).unwrap();
    fs::create_dir(fixture.bare().join("objects")).unwrap();
    let again = Repositories::load(fixture.state_dir.path()).unwrap();
    let write = |repositories: &Repositories, release: &str| {
        repositories.write(CLUSTER, &place("cluster/A"), &files(release), 1_700_000_000_000)
    };
    let unchanged = Written { changed: false, ..first };
    assert_eq!(write(&again, "a: 1\n").unwrap(), unchanged);
    assert_eq!(again.hold(CLUSTER, &place("cluster/A"), &files("a: 1\n"), 0).unwrap(), unchanged);
    assert!(again.read(CLUSTER, "edo/secrets", 100).unwrap().is_empty());
    assert!(again.read(CLUSTER, "edo", 100).is_err(), "of that directory nothing is known");
    assert!(write(&again, "a: 2\n").is_err(), "other files");
    let booted = Repositories { boot: Some("another start".into()), ..again.clone() };
    assert!(write(&booted, "a: 1\n").is_err() && booted.read(CLUSTER, "edo/secrets", 100).is_err());
    let file = fixture.state_dir.path().join(format!("git/{CLUSTER}.compared"));
    fs::write(&file, &fs::read(&file).unwrap()[..20]).unwrap();
    assert!(write(&again, "a: 1\n").is_err(), "half a file says nothing");
}

#[test]
fn what_a_commit_holds_is_not_believed_of_another_commit() {
    let fixture = Fixture::new();
    fixture.write("a: 1\n");
    assert!(fixture.repositories.read(CLUSTER, "edo/secrets", 100).unwrap().is_empty());
    let work = tempfile::tempdir().unwrap();
    git(work.path(), &["clone", "-q", fixture.bare().to_str().unwrap(), "."]);
    fs::create_dir_all(work.path().join("edo/secrets/ns")).unwrap();
    fs::write(work.path().join("edo/secrets/ns/s.yaml"), "sealed: 1\n").unwrap();
    git(work.path(), &["add", "-A"]);
    git(work.path(), &["commit", "-q", "-m", "by hand"]);
    git(work.path(), &["push", "-q", "origin", "HEAD:main"]);
    let found = fixture.repositories.read(CLUSTER, "edo/secrets", 100).unwrap();
    assert_eq!(found, [("ns/s.yaml".to_owned(), b"sealed: 1\n".to_vec())].into());
    let pushed = git(&fixture.bare(), &["rev-parse", "main"]);
    assert_eq!(fixture.write("a: 1\n"), Written { commit: pushed.trim().to_owned(), changed: false, held: false });
}

#[test]
fn references_are_read_as_git_reads_them() {
    let fixture = Fixture::new();
    let commit = fixture.write("a: 1\n").commit;
    let bare = fixture.bare();
    git(&bare, &["branch", "night/shift", "main"]);
    git(&bare, &["tag", "-a", "-m", "x", "v1", "main"]);
    git(&bare, &["pack-refs", "--all"]);
    git(&bare, &["tag", "v2", "main"]);
    git(&bare, &["symbolic-ref", "refs/heads/other", "refs/heads/main"]);
    let listed = git(&bare, &["for-each-ref", "--format=%(refname) %(objectname) %(symref)"]);
    let expected: Refs = listed
        .lines()
        .filter_map(|line| line.strip_suffix(' ')?.split_once(' '))
        .map(|(name, object)| (name.to_owned(), object.to_owned()))
        .collect();
    assert_eq!(expected.len(), 4);
    assert_eq!(refs(&bare, &["refs/heads/", "refs/tags/"]).unwrap(), expected);
    assert_eq!(fixture.repositories.main(CLUSTER).unwrap(), Some(commit.clone()));
    git(&bare, &["symbolic-ref", "refs/heads/main", "refs/heads/night/shift"]);
    assert_eq!(fixture.repositories.main(CLUSTER).unwrap(), Some(commit));
    fs::remove_file(bare.join("HEAD")).unwrap();
    let error = refs(&bare, &["refs/heads/"]).unwrap_err().to_string();
    assert!(error.contains("it has no HEAD"), "{error}");
}
