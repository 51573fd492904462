//! Carries out work on repositories, away from the threads that must not wait for a disk: on one repository one piece after the other, on several at the same time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use cluster_manager_contract::{SecretsReport, StoredSecrets};
use configdb_schema::document::SealedSecret;
use configdb_schema::known;
use manifests::git_address::HELM_PATH;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::passwords::ClusterPasswords;
use crate::event::{
    Event, GitAction, GitOutcome, GitResult, GitWork, SharedAction, SharedOutcome, SharedResult, SharedWork,
};
use crate::secrets::{self, WantedFile};
use crate::wanted_by::WantedBy;
use git_hosting::external::External;
use git_hosting::pulls::chain;
use git_hosting::repositories::{
    Edit, Kind, Open, Repositories, RepositoryError, RepositoryFiles, RepositoryRecord, Written,
};
use git_hosting::upkeep::Upkeep;
use sparkplug::replication::Origin;

/// Largest file, and largest number of files, taken from the directory of charts.
const CHART_BYTES_MAX: u64 = 4 * 1024 * 1024;
const CHART_FILES_MAX: usize = 5_000;

/// Repositories that are worked on at the same time. A piece of work waits most of its time until the disk has synced a file.
const PLACES: usize = 4;

/// Longest text about what of a cluster's secrets is not in its repository.
const REASON_BYTES_MAX: usize = 2_000;

/// When the shared charts are brought to the site's server again, first and at most.
const SHARE_AGAIN: std::time::Duration = std::time::Duration::from_secs(5);
const SHARE_AGAIN_MAX: std::time::Duration = std::time::Duration::from_secs(600);

const SHARED_README: &str = "# Shared charts

Every edge cluster may read this repository. A chart template names a directory in it.
";

/// A piece of work.
#[derive(Debug)]
pub enum Work {
    /// On what the manager itself keeps in a repository.
    Git(GitWork),
    /// On a shared repository, as far as it needs the disk alone.
    Shared(SharedWork),
}

/// What is done with a repository.
#[derive(Debug)]
enum Task {
    /// It is worked on, and looked after.
    Work(Work),
    /// A user pushed to it: it is looked after.
    Upkeep(Uuid),
}

impl Task {
    const fn repository(&self) -> Uuid {
        match self {
            Self::Work(Work::Git(GitWork { cluster, .. })) => *cluster,
            Self::Work(Work::Shared(SharedWork { repository, .. })) | Self::Upkeep(repository) => *repository,
        }
    }
}

/// What is worked on. Clones are the same.
#[derive(Debug, Clone)]
pub struct Hosted {
    /// The repositories.
    pub repositories: Repositories,
    /// With which clusters read theirs.
    pub passwords: ClusterPasswords,
    /// The git server of the site, which has to have what counts as written; None: ours is the server.
    pub external: Option<External>,
}

/// Answers each piece of work with one result, until nothing gives work any more, and looks after the repositories that were worked on, or `pushed` to. No two pieces change a
/// repository at the same time, and those of one repository keep their order.
pub async fn run(
    hosted: Hosted,
    mut work: mpsc::Receiver<Work>,
    mut pushed: mpsc::Receiver<Uuid>,
    results: mpsc::Sender<Event>,
) {
    let upkeep = Upkeep::default();
    let mut running = JoinSet::new();
    // Those that wait are of repositories that are worked on.
    let (mut busy, mut waiting) = (BTreeSet::new(), VecDeque::new());
    loop {
        let has_place = busy.len() < PLACES && waiting.len() < PLACES;
        tokio::select! {
            biased;
            Some(done) = running.join_next() => {
                busy.remove(&done.expect("work on a repository does not panic"));
            }
            work = work.recv(), if has_place => match work {
                Some(work) => waiting.push_back(Task::Work(work)),
                None => break,
            },
            Some(repository) = pushed.recv(), if has_place => waiting.push_back(Task::Upkeep(repository)),
        }
        while busy.len() < PLACES
            && let Some(next) = waiting.iter().position(|task: &Task| !busy.contains(&task.repository()))
            && let Some(task) = waiting.remove(next)
        {
            busy.insert(task.repository());
            running.spawn(carry_out_task(hosted.clone(), upkeep.clone(), task, results.clone()));
        }
    }
    while running.join_next().await.is_some() {}
}

/// The repository, when it is free again.
async fn carry_out_task(hosted: Hosted, upkeep: Upkeep, task: Task, results: mpsc::Sender<Event>) -> Uuid {
    let repository = task.repository();
    if let Task::Work(work) = task {
        let result = carry_out(&hosted, work).await;
        let has_written = !matches!(&result, Event::Git(GitResult { is_as_before: true, .. }));
        if results.send(result).await.is_err() || !has_written {
            return repository;
        }
    }
    tokio::select! {
        () = upkeep.look_after(&hosted.repositories, repository) => {}
        // A manager that stops does not wait for it: the next upkeep does it.
        () = results.closed() => {}
    }
    repository
}

async fn carry_out(hosted: &Hosted, work: Work) -> Event {
    match work {
        Work::Git(GitWork { cluster, action }) => {
            let done = work_on_git(hosted, cluster, action).await;
            let (outcome, is_as_before) = done.unwrap_or_else(|reason| (GitOutcome::Failed { reason }, false));
            Event::Git(GitResult { cluster, outcome, is_as_before })
        }
        Work::Shared(SharedWork { repository, action }) => {
            let repositories = hosted.repositories.clone();
            let done = tokio::task::spawn_blocking(move || carry_out_shared(&repositories, repository, action));
            let outcome = done.await.unwrap_or_else(|error| Err(error.to_string()));
            Event::Shared(SharedResult { repository, branch: None, outcome })
        }
    }
}

/// Work on what the manager keeps in a repository, which the site's server has to have in the end. Whether all is as before on our own disk.
async fn work_on_git(hosted: &Hosted, cluster: Uuid, action: GitAction) -> Result<(GitOutcome, bool), String> {
    let path = match &action {
        GitAction::Write { path, .. } => Some(path.clone()),
        GitAction::Close => None,
    };
    let (own, repositories) = (hosted.clone(), hosted.repositories.clone());
    let work = async move {
        let done = tokio::task::spawn_blocking(move || carry_out_observed(&own, cluster, action)).await;
        done.map_err(|error| error.to_string())
    };
    let Some((external, path)) = hosted.external.as_ref().zip(path) else { return work.await };
    let directory = tokio::task::spawn_blocking(move || repositories.make(cluster)).await;
    let directory = directory.map_err(|error| error.to_string())?.map_err(|error| chain(&error))?;
    // What was taken over of the site's server may be another commit than before.
    let (outcome, _) = external.around(&directory, &path, work).await??;
    Ok((outcome, false))
}

/// Brings the shared charts to the site's server, as often as it takes. The charts there are the site's if `charts_dir` is not configured: then they are not touched.
pub async fn share(repositories: Repositories, external: External) {
    let mut pause = SHARE_AGAIN;
    while let Some(Open { directory, path, .. }) = repositories.by_uuid(known::repository::HELM_CHARTS) {
        let shared = async {
            let there = external.reach(&directory, &path).await?;
            external.push(&directory, &path, there.as_ref()).await
        };
        match shared.await {
            Ok(()) => return,
            Err(reason) => tracing::warn!(error = reason, "the shared charts are not on the site's git server yet"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(SHARE_AGAIN_MAX);
    }
}

/// Brings what ConfigDB has of a cluster's secrets into its repository. The commit of the last change, if there was one, and what is there then.
fn bring_secrets(
    repositories: &Repositories,
    cluster: Uuid,
    wanted: &[Arc<SealedSecret>],
) -> Result<(Option<String>, SecretsReport), RepositoryError> {
    let read = || repositories.read(cluster, secrets::DIRECTORY, secrets::FILE_BYTES_MAX);
    let before = read()?;
    let (mut commit, mut faults) = (None, Vec::new());
    for secret in wanted {
        let brought = secrets::path(secret).and_then(|path| {
            let before = before.get(&path).map(Vec::as_slice);
            let WantedFile { content, fault } = secrets::bring(secret, before)?;
            faults.extend(fault);
            Ok((content.as_deref() != before).then_some(path))
        });
        let path = match brought {
            Ok(Some(path)) => format!("{}/{path}", secrets::DIRECTORY),
            Ok(None) => continue,
            Err(fault) => {
                faults.push(fault);
                continue;
            }
        };
        let edit = Edit { path, message: secrets::message(secret), wall: wall() };
        // It is read again: a user may have pushed meanwhile.
        match repositories.edit(cluster, &edit, |before| secrets::bring(secret, before).map(|file| file.content))? {
            Ok(written) => commit = Some(written),
            Err(fault) => faults.push(fault),
        }
    }
    let there = if commit.is_some() { read()? } else { before };
    let (stored, left_out) = StoredSecrets::bounded(secrets::stored(&there));
    let mut reasons: Vec<String> = faults.iter().map(ToString::to_string).collect();
    if left_out > 0 {
        reasons.push(format!("{left_out} more secrets are in the repository and not listed"));
    }
    let mut reason = reasons.join("; ");
    reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
    Ok((commit, SecretsReport { stored, reason: (!reason.is_empty()).then_some(reason) }))
}

fn carry_out_shared(
    repositories: &Repositories,
    repository: Uuid,
    action: SharedAction,
) -> Result<SharedOutcome, String> {
    let main = match action {
        SharedAction::Open { path, origin } => {
            let place = place(path, Kind::Shared, origin);
            repositories.open(repository, &place)
        }
        SharedAction::Close => repositories.close(repository).map(|()| None),
        SharedAction::Pull { .. } => return Err("a pull is not the disk's work".to_owned()),
    };
    main.map(|main| SharedOutcome { main, ..SharedOutcome::default() }).map_err(|error| chain(&error))
}

/// Also says whether all that copies have of the repository is as before.
fn carry_out_observed(hosted: &Hosted, cluster: Uuid, action: GitAction) -> (GitOutcome, bool) {
    let place = || {
        let RepositoryRecord { path, kind, .. } = hosted.repositories.place(cluster)?;
        Some((path, kind, hosted.passwords.get(cluster).is_some()))
    };
    let (place_before, main) = (place(), hosted.repositories.main(cluster).ok().flatten());
    let outcome = carry_out_git(hosted, cluster, action);
    let is_as_before =
        outcome.commit().is_some_and(|commit| main.as_deref() == Some(commit)) && place_before == place();
    (outcome, is_as_before)
}

fn carry_out_git(hosted: &Hosted, cluster: Uuid, action: GitAction) -> GitOutcome {
    let Hosted { repositories, passwords, .. } = hosted;
    match action {
        GitAction::Write { path, origin, renews, files, hold, secrets } => {
            let place = place(path, Kind::Cluster, origin);
            let write = if hold { Repositories::hold } else { Repositories::write };
            let Written { commit, changed, held } = match write(repositories, cluster, &place, &files, wall()) {
                Ok(written) => written,
                Err(error) => return failed(&error),
            };
            let (commit, secrets) = match bring_secrets(repositories, cluster, &secrets) {
                Ok((commit_of_secrets, secrets)) => (commit_of_secrets.unwrap_or(commit), secrets),
                Err(error) => return failed(&error),
            };
            let wanted_by = match brought_to(repositories, cluster, &place, (origin, renews, held)) {
                Ok(wanted_by) => wanted_by,
                Err(error) => return failed(&error),
            };
            if changed {
                tracing::info!(cluster_id = %cluster, commit, "repository written");
            }
            match passwords.ensure(cluster) {
                Ok(()) if held => GitOutcome::Held { commit, wanted_by, secrets },
                Ok(()) => GitOutcome::Written { commit, wanted_by, secrets },
                Err(error) => failed(&error),
            }
        }
        // The record is removed last: as long as it is there, a start finds the repository open and the tear-down continues. Without it a password that stayed would count again for the
        // next cluster of this UUID.
        GitAction::Close => match passwords.forget(cluster) {
            Ok(()) => repositories.close(cluster).map_or_else(|error| failed(&error), |()| GitOutcome::Closed),
            Err(error) => failed(&error),
        },
    }
}

fn place(path: String, kind: Kind, origin: Origin) -> RepositoryRecord {
    RepositoryRecord { path, kind, store: origin.store, origin: Some(origin.to_string()) }
}

/// The state of ConfigDB that is recorded beside a repository.
#[must_use]
pub fn wanted_by(place: &RepositoryRecord) -> WantedBy {
    WantedBy { store: place.store, origin: place.origin.as_ref().and_then(|origin| origin.parse().ok()) }
}

/// The state of ConfigDB that a repository was brought to, after it was written or compared. The one that is recorded stays, where it is of this store and epoch: it holds the same files since.
fn brought_to(
    repositories: &Repositories,
    cluster: Uuid,
    place: &RepositoryRecord,
    (origin, renews, held): (Origin, bool, bool),
) -> Result<WantedBy, RepositoryError> {
    let recorded = repositories.place(cluster).map_or(origin.into(), |recorded| wanted_by(&recorded));
    if held || !renews && recorded.origin.is_some_and(|recorded| recorded.is_of(origin)) {
        return Ok(recorded);
    }
    repositories.serve(cluster, place)?;
    Ok(origin.into())
}

fn failed(error: &dyn std::error::Error) -> GitOutcome {
    GitOutcome::Failed { reason: chain(error) }
}

/// Makes the shared repository, with the charts `shipped`. Brings it to the charts in `charts_dir` if there is one. Returns the commit that its branch is at, and the directories
/// that hold a chart. Blocks.
///
/// # Errors
/// The disk, or the directory of charts.
pub fn write_shared(
    repositories: &Repositories,
    charts_dir: Option<&Path>,
    shipped: BTreeMap<String, Vec<u8>>,
) -> Result<(String, BTreeSet<String>), SharedError> {
    let mut files = RepositoryFiles {
        initial: [
            ("README.md".to_owned(), SHARED_README.as_bytes().to_vec()),
            ("charts/.gitkeep".to_owned(), Vec::new()),
        ]
        .into(),
        message: "Shared charts".to_owned(),
        ..RepositoryFiles::default()
    };
    files.initial.extend(shipped);
    if let Some(directory) = charts_dir {
        let mut owned = BTreeMap::new();
        collect(directory, "", &mut owned)?;
        owned.entry("README.md".to_owned()).or_insert_with(|| SHARED_README.as_bytes().to_vec());
        files.owned = owned;
        files.directory = Some(String::new());
    }
    let place = RepositoryRecord { path: HELM_PATH.to_owned(), kind: Kind::Shared, store: Uuid::nil(), origin: None };
    let commit = repositories.write(known::repository::HELM_CHARTS, &place, &files, wall())?.commit;
    Ok((commit, repositories.charts(known::repository::HELM_CHARTS)?))
}

/// The shared repository cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    /// The state directory.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The directory of charts.
    #[error("git.charts_dir: cannot read {path}")]
    Charts {
        /// What.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The directory of charts holds something else.
    #[error("git.charts_dir: {path} {rule}")]
    NotCharts {
        /// What.
        path: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
}

fn collect(directory: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) -> Result<(), SharedError> {
    let unreadable = |path: &Path| {
        let path = path.display().to_string();
        move |source| SharedError::Charts { path, source }
    };
    for entry in fs::read_dir(directory).map_err(unreadable(directory))? {
        let entry = entry.map_err(unreadable(directory))?;
        let path = entry.path();
        let not_charts = |rule| SharedError::NotCharts { path: path.display().to_string(), rule };
        let name = entry.file_name().into_string().map_err(|_| not_charts("has a name that is not UTF-8"))?;
        if name.starts_with('.') {
            continue;
        }
        let path_in_repository = format!("{prefix}{name}");
        // Links are followed: charts are often mounted, and mounts are made of them.
        let about = fs::metadata(&path).map_err(unreadable(&path))?;
        if about.is_dir() {
            if prefix.matches('/').count() > 16 {
                return Err(not_charts("is nested too deeply"));
            }
            collect(&path, &format!("{path_in_repository}/"), files)?;
        } else {
            if about.len() > CHART_BYTES_MAX {
                return Err(not_charts("is larger than 4 MiB"));
            }
            if files.len() >= CHART_FILES_MAX {
                return Err(not_charts("is one file too many; 5,000 are allowed"));
            }
            files.insert(path_in_repository, fs::read(&path).map_err(unreadable(&path))?);
        }
    }
    Ok(())
}

fn wall() -> u64 {
    sparkplug_mqtt::Clock::new().now().wall
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_closed_only_when_its_password_is_gone() {
        let state_dir = tempfile::tempdir().unwrap();
        let repositories = Repositories::load(state_dir.path()).unwrap();
        let passwords = ClusterPasswords::load(state_dir.path(), []).unwrap();
        let hosted = Hosted { repositories: repositories.clone(), passwords: passwords.clone(), external: None };
        let cluster = Uuid::from_u128(0xC1);
        let place = RepositoryRecord {
            path: "cluster/Paint".to_owned(),
            kind: Kind::Cluster,
            store: Uuid::nil(),
            origin: None,
        };
        repositories.write(cluster, &place, &RepositoryFiles::default(), 1).unwrap();
        passwords.ensure(cluster).unwrap();
        // A directory in place of the file cannot be removed as one.
        let file = super::super::passwords::password_file(state_dir.path(), cluster);
        let password = fs::read_to_string(&file).unwrap();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(matches!(carry_out_git(&hosted, cluster, GitAction::Close), GitOutcome::Failed { .. }));
        assert!(repositories.by_uuid(cluster).is_some(), "a start finds it, and closes it again");
        assert!(!passwords.digests().is_password(cluster, &password), "the password does not count in any case");
        fs::remove_dir(&file).unwrap();
        assert_eq!(carry_out_git(&hosted, cluster, GitAction::Close), GitOutcome::Closed);
        assert!(repositories.by_uuid(cluster).is_none());
    }

    #[test]
    fn a_repository_is_as_before_if_neither_branch_nor_place_nor_password_has_changed() {
        let state_dir = tempfile::tempdir().unwrap();
        let repositories = Repositories::load(state_dir.path()).unwrap();
        let passwords = ClusterPasswords::load(state_dir.path(), []).unwrap();
        let hosted = Hosted { repositories, passwords, external: None };
        let cluster = Uuid::from_u128(0xC1);
        let write = |path: &str, content: &str| {
            let files = RepositoryFiles {
                directory: Some("edo".to_owned()),
                owned: [("a.yaml".to_owned(), content.as_bytes().to_vec())].into(),
                message: "x".to_owned(),
                ..RepositoryFiles::default()
            };
            let origin = "00000000-0000-0000-0000-000000000007/0/00000000000000ab/12".parse().unwrap();
            let (path, secrets) = (path.to_owned(), Vec::new());
            let action = GitAction::Write { path, origin, renews: false, files, hold: false, secrets };
            let (outcome, is_as_before) = carry_out_observed(&hosted, cluster, action);
            assert!(outcome.commit().is_some(), "{outcome:?}");
            is_as_before
        };
        assert!(!write("cluster/A", "a: 1\n") && write("cluster/A", "a: 1\n"));
        assert!(!write("cluster/A", "a: 2\n") && write("cluster/A", "a: 2\n"));
        assert!(!write("cluster/B", "a: 2\n") && write("cluster/B", "a: 2\n"));
        hosted.passwords.forget(cluster).unwrap();
        assert!(!write("cluster/B", "a: 2\n") && write("cluster/B", "a: 2\n"));
        assert!(!carry_out_observed(&hosted, cluster, GitAction::Close).1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn pieces_of_one_repository_keep_their_order_and_many_repositories_are_all_answered() {
        let state_dir = tempfile::tempdir().unwrap();
        let repositories = Repositories::load(state_dir.path()).unwrap();
        let passwords = ClusterPasswords::load(state_dir.path(), []).unwrap();
        let hosted = Hosted { repositories: repositories.clone(), passwords: passwords.clone(), external: None };
        let (work, inbox) = mpsc::channel(1);
        let (result_sender, mut results) = mpsc::channel(1);
        let (_pushed, pushes) = mpsc::channel(1);
        let worker = tokio::spawn(run(hosted, inbox, pushes, result_sender));
        let clusters: Vec<Uuid> = (0..3 * PLACES as u128).map(|n| Uuid::from_u128(0xC0 + n)).collect();
        let wanted = clusters.clone();
        let sender = tokio::spawn(async move {
            for n in 0..3 {
                for cluster in &wanted {
                    let files = RepositoryFiles {
                        directory: Some("edo".to_owned()),
                        owned: [("cluster/a.yaml".to_owned(), format!("a: {n}\n").into_bytes())].into(),
                        message: "x".to_owned(),
                        ..RepositoryFiles::default()
                    };
                    let origin = "00000000-0000-0000-0000-000000000007/0/00000000000000ab/12".parse().unwrap();
                    let path = format!("cluster/{cluster}");
                    let secrets = Vec::new();
                    let action = GitAction::Write { path, origin, renews: false, files, hold: false, secrets };
                    work.send(Work::Git(GitWork { cluster: *cluster, action })).await.unwrap();
                }
            }
        });
        let mut commits: BTreeMap<Uuid, Vec<String>> = BTreeMap::new();
        while let Some(result) = results.recv().await {
            let Event::Git(GitResult { cluster, outcome: GitOutcome::Written { commit, .. }, .. }) = result else {
                panic!("{result:?}")
            };
            commits.entry(cluster).or_default().push(commit);
        }
        sender.await.unwrap();
        worker.await.unwrap();
        assert_eq!(commits.keys().copied().collect::<Vec<_>>(), clusters);
        for (cluster, commits) in commits {
            let main = repositories.main(cluster).unwrap();
            assert_eq!((commits.len(), commits.last()), (3, main.as_ref()));
            let files = repositories.read(cluster, "edo", 100).unwrap();
            assert_eq!(files, [("cluster/a.yaml".to_owned(), b"a: 2\n".to_vec())].into());
            assert!(passwords.get(cluster).is_some());
        }
    }

    #[test]
    fn the_shared_repository_is_made_once_and_follows_the_directory_of_charts() {
        let state_dir = tempfile::tempdir().unwrap();
        let repositories = Repositories::load(state_dir.path()).unwrap();
        assert_eq!(write_shared(&repositories, None, BTreeMap::new()).unwrap().1, BTreeSet::new());
        let main = || {
            std::fs::read(
                state_dir
                    .path()
                    .join("git")
                    .join(format!("{}.git", known::repository::HELM_CHARTS))
                    .join("refs/heads/main"),
            )
            .unwrap()
        };
        let first = main();
        write_shared(&repositories, None, BTreeMap::new()).unwrap();
        assert_eq!(main(), first);
        assert_eq!(repositories.by_path("shared/helm").unwrap().kind, Kind::Shared);
        let charts = tempfile::tempdir().unwrap();
        fs::create_dir_all(charts.path().join("edge-agent/templates")).unwrap();
        fs::write(charts.path().join("edge-agent/Chart.yaml"), "name: edge-agent\n").unwrap();
        fs::write(charts.path().join("edge-agent/templates/a.yaml"), "a: 1\n").unwrap();
        fs::write(charts.path().join(".hidden"), "x").unwrap();
        let found = write_shared(&repositories, Some(charts.path()), BTreeMap::new()).unwrap().1;
        assert_eq!(found, ["edge-agent".to_owned()].into());
        let second = main();
        assert_ne!(second, first);
        write_shared(&repositories, Some(charts.path()), BTreeMap::new()).unwrap();
        assert_eq!(main(), second, "nothing changed, so nothing is committed");
        let mut files = BTreeMap::new();
        collect(charts.path(), "", &mut files).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["edge-agent/Chart.yaml", "edge-agent/templates/a.yaml"]);
        let error =
            write_shared(&repositories, Some(Path::new("/nonexistent")), BTreeMap::new()).unwrap_err().to_string();
        assert!(error.starts_with("git.charts_dir: cannot read /nonexistent"), "{error}");
    }
}
