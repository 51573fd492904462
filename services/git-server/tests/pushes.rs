//! Users read and push: the cluster manager decides, and whichever process ends, nothing is half done.

use std::fs;
use std::path::{Path, PathBuf};

use git_server_contract::Kind;
use uuid::Uuid;

use crate::site::{Judgement, MAIN, Site, client, clone, text};

const A: Uuid = Uuid::from_u128(0xA);
const B: Uuid = Uuid::from_u128(0xB);
const HELM: Uuid = Uuid::from_u128(0x5);

/// A clone to work in.
struct Work {
    _keep: tempfile::TempDir,
    directory: PathBuf,
}

impl Work {
    async fn clone(url: &str) -> Self {
        let (keep, directory) = clone(url).await.unwrap();
        Self { _keep: keep, directory }
    }

    async fn git(&self, arguments: &[&str]) -> Result<String, String> {
        client(&[&["-C", self.directory.to_str().unwrap()], arguments].concat()).await
    }

    /// Commits one file; the commit.
    async fn commit(&self, path: &str, content: &[u8]) -> String {
        let file = self.directory.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
        self.git(&["add", "-A"]).await.unwrap();
        self.git(&["commit", "-q", "-m", "x"]).await.unwrap();
        self.git(&["rev-parse", "HEAD"]).await.unwrap().trim().to_owned()
    }

    async fn push(&self, arguments: &[&str]) -> Result<String, String> {
        self.git(&[&["push"], arguments].concat()).await
    }
}

/// The commit of branch `main` that the cluster manager has.
fn original(site: &Site, uuid: Uuid) -> String {
    site.books.lock().unwrap().originals[&uuid].desired.refs[MAIN].clone()
}

/// And the git server.
fn copy(site: &Site, uuid: Uuid) -> String {
    text(&site.state_dir().join(format!("git/{uuid}.git")), &["rev-parse", MAIN], b"")
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

async fn site() -> Site {
    let site = Site::start().await;
    for (uuid, path, kind) in
        [(A, "cluster/A", Kind::Cluster), (B, "cluster/B", Kind::Cluster), (HELM, "shared/helm", Kind::Shared)]
    {
        site.create(uuid, path, kind);
        site.applied(uuid).await;
    }
    site
}

/// Waits until a user is admitted: ConfigDB and the cluster manager are known.
async fn admitted(site: &Site, token: &str) {
    let url = site.url("x", token, "/git/cluster/A");
    for _ in 0..600 {
        if client(&["ls-remote", &url]).await.is_ok() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the user is not admitted");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_read_what_their_tokens_are_for() {
    let mut site = site().await;
    let viewer = site.token("viewer", None).await;
    let of_b = site.token("operator", Some(&[B])).await;
    admitted(&site, &viewer).await;
    for path in ["/git/cluster/A", "/git/cluster/B", "/git/shared/helm"] {
        clone(&site.url("x", &viewer, path)).await.unwrap();
    }
    clone(&site.url("x", &of_b, "/git/cluster/B")).await.unwrap();
    clone(&site.url("x", &of_b, "/git/shared/helm")).await.unwrap();
    let other = clone(&site.url("x", &of_b, "/git/cluster/A")).await.unwrap_err();
    let nowhere = clone(&site.url("x", &of_b, "/git/cluster/C")).await.unwrap_err();
    assert!(other.contains("not found") && nowhere.contains("not found"), "{other} {nowhere}");
    let wrong = format!("{}x", &viewer[..viewer.len() - 1]);
    assert!(clone(&site.url("x", &wrong, "/git/cluster/A")).await.unwrap_err().contains("Authentication failed"));
    let work = Work::clone(&site.url("x", &viewer, "/git/cluster/A")).await;
    work.commit("by-hand/a", b"1").await;
    let error = work.push(&["origin", "main"]).await.unwrap_err();
    assert!(error.contains("push needs the scope operator"), "{error}");
    let cluster = work.push(&[&site.url_of(A, "/git/cluster/A"), "main"]).await.unwrap_err();
    assert!(cluster.contains("log in with a token"), "{cluster}");
    let shared = work.push(&[&site.url("x", &of_b, "/git/shared/helm"), "main"]).await.unwrap_err();
    assert!(shared.contains("needs a credential for all clusters"), "{shared}");
    assert!(site.books.lock().unwrap().decided.is_empty());
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_ends_when_the_cluster_manager_has_it_and_the_copy_shows_it() {
    let mut site = site().await;
    let token = site.token("operator", None).await;
    admitted(&site, &token).await;
    let work = Work::clone(&site.url("x", &token, "/git/cluster/A")).await;
    let commit = work.commit("by-hand/a.yaml", b"a: 1\n").await;
    let parts = site.books.lock().unwrap().parts;
    work.push(&["origin", "main"]).await.unwrap();
    assert_eq!((original(&site, A), copy(&site, A)), (commit.clone(), commit.clone()));
    {
        let books = site.books.lock().unwrap();
        let (push, credential) = &books.decided[0];
        assert_eq!((&**credential, &*push.from, push.repository), (&*token, "127.0.0.1", A));
        assert_eq!(push.refs[MAIN].after.as_ref(), Some(&commit));
        assert_eq!(books.parts, parts, "the objects of a push are not sent back");
    }
    // Refused here, by the rules of paths.
    work.commit("edo/evil.yaml", b"evil").await;
    let error = work.push(&["origin", "main"]).await.unwrap_err();
    assert!(error.contains("only what is below by-hand/ is yours"), "{error}");
    assert_eq!(site.books.lock().unwrap().decided.len(), 1);
    work.git(&["reset", "-q", "--hard", "origin/main"]).await.unwrap();

    // Refused there.
    site.books.lock().unwrap().judgement = Judgement::Refuse("not on Fridays".to_owned());
    work.commit("by-hand/b.yaml", b"b: 1\n").await;
    let error = work.push(&["origin", "main"]).await.unwrap_err();
    assert!(error.contains("[remote rejected] main -> main (not on Fridays)"), "{error}");
    assert!(error.contains("Refused: not on Fridays"), "{error}");
    assert_eq!((original(&site, A), copy(&site, A)), (commit.clone(), commit));
    site.until("its Device is gone", |books| books.is_complete).await;
    assert!(is_empty(&site.state_dir().join("scratch")), "nothing of it stays");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_tags_and_deletions_are_pushed_and_a_large_push_survives_lost_answers() {
    let mut site = site().await;
    let token = site.token("operator", None).await;
    admitted(&site, &token).await;
    let work = Work::clone(&site.url("x", &token, "/git/shared/helm")).await;
    let mut noise = vec![0; 700_000];
    aws_lc_rs::rand::fill(&mut noise).unwrap();
    site.books.lock().unwrap().lost_answers = 3;
    let commit = work.commit("charts/noise", &noise).await;
    work.git(&["tag", "-a", "-m", "x", "v1"]).await.unwrap();
    work.push(&["origin", "main", "v1", "main:refs/heads/next"]).await.unwrap();
    assert_eq!((original(&site, HELM), copy(&site, HELM)), (commit.clone(), commit.clone()));
    work.push(&["origin", ":next", "main:refs/heads/other"]).await.unwrap();
    let refs = client(&["ls-remote", &site.url_of(A, "/git/shared/helm")]).await.unwrap();
    assert!(refs.contains("refs/heads/other") && refs.contains("refs/tags/v1^{}") && !refs.contains("next"), "{refs}");
    let books = site.books.lock().unwrap().decided.clone();
    assert_eq!(books.len(), 2);
    assert!(books[0].0.total > 5 * 128 * 1024 && books[1].0.digest.is_empty(), "the second brings no objects");
    site.change(HELM, |desired| desired.no_push = Some("git.charts_dir writes this repository".to_owned()));
    site.applied(HELM).await;
    work.commit("charts/x", b"x").await;
    let error = work.push(&["origin", "main"]).await.unwrap_err();
    assert!(error.contains("git.charts_dir writes this repository"), "{error}");
    site.change(HELM, |desired| (desired.no_push, desired.pulled) = (None, ["main".to_owned()].into()));
    site.applied(HELM).await;
    let error = work.push(&["origin", "main"]).await.unwrap_err();
    assert!(error.contains("is pulled from another server"), "{error}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_cluster_manager_is_away_reads_go_on_and_pushes_are_refused() {
    let mut site = site().await;
    let token = site.token("operator", None).await;
    admitted(&site, &token).await;
    let url = site.url("x", &token, "/git/cluster/A");
    let work = Work::clone(&url).await;
    let commit = work.commit("by-hand/a.yaml", b"a: 1\n").await;
    site.stop_manager().await;
    let error = loop {
        let error = work.push(&[&url, "main"]).await.unwrap_err();
        if error.contains("503") {
            break error;
        }
    };
    assert!(error.contains("The cluster manager is away"), "{error}");
    clone(&url).await.unwrap();
    site.start_manager();
    site.until("it is back", |books| books.is_complete).await;
    while let Err(error) = work.push(&[&url, "main"]).await {
        assert!(error.contains("The cluster manager is away"), "{error}");
    }
    assert_eq!((original(&site, A), copy(&site, A)), (commit.clone(), commit));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_waits_for_a_cluster_manager_that_starts_again_in_between() {
    let mut site = site().await;
    let token = site.token("operator", None).await;
    admitted(&site, &token).await;
    let work = Work::clone(&site.url("x", &token, "/git/cluster/A")).await;
    let mut noise = vec![0; 300_000];
    aws_lc_rs::rand::fill(&mut noise).unwrap();
    let commit = work.commit("by-hand/noise", &noise).await;
    site.books.lock().unwrap().judgement = Judgement::Silence;
    let pushing = tokio::spawn(async move { work.push(&["origin", "main"]).await });
    site.until("the push is under way", |books| books.pushes > 0).await;
    site.stop_manager().await;
    site.books.lock().unwrap().judgement = Judgement::Accept;
    site.start_manager();
    pushing.await.unwrap().unwrap();
    assert_eq!((original(&site, A), copy(&site, A)), (commit.clone(), commit));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_server_dies_leaves_nothing() {
    let mut site = site().await;
    let token = site.token("operator", None).await;
    admitted(&site, &token).await;
    let work = Work::clone(&site.url("x", &token, "/git/cluster/A")).await;
    work.commit("by-hand/a.yaml", b"a: 1\n").await;
    let before = original(&site, A);
    site.books.lock().unwrap().judgement = Judgement::Silence;
    let pushing = tokio::spawn(async move { work.push(&["origin", "main"]).await });
    site.until("the push is under way", |books| books.pushes > 0).await;
    site.stop_server().await;
    assert!(pushing.await.unwrap().is_err());
    site.start_server();
    site.until("it is there again", |books| books.is_complete && books.pushes == 0).await;
    assert!(is_empty(&site.state_dir().join("scratch")));
    assert_eq!((original(&site, A), copy(&site, A)), (before.clone(), before));
    site.stop().await;
}
