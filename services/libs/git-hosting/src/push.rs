//! Pushes of people: to `by-hand/` of a cluster's repository, and to shared ones. Git receives them; before any ref moves, a hook of ours has judged what they change.
//! The hook leaves a mark. If refs moved without it, git did not run the hook: they are moved back, and the push is refused.
//!
//! Where another program decides, a push is received apart from the repository ([`crate::scratch`]), judged there by the same hook, and handed on.
//!
//! A push that has begun continues when its sender goes away: what it did to the repository is reported to the state and recorded in any case. This module must not know who may push.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::TryStreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::mpsc::Sender;
use tokio_util::io::StreamReader;
use uuid::Uuid;
use zeroize::Zeroizing;

use access::Principal;

use crate::client::{self, Input};
use crate::copies::{self, Refs};
use crate::gatekeeper::{Change, Gatekeeper, Push, ReceivedPush};
use crate::places::Permit;
use crate::pulls::HIDDEN_REFS;
use crate::report;
use crate::repositories::{Kind, Open, Repositories};
use crate::scratch::Scratches;

/// Most bytes of a push. Git ends it there, and the body is cut a little later.
const PUSH_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Most bytes of git's answer to one: a report, and what the hook says.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

/// How often a push is reported, with a pause between, while that cannot be recorded.
const REPORT_TRIES: u32 = 60;
const REPORT_PAUSE: Duration = Duration::from_secs(1);

/// What git calls a ref's object where there is none.
const NO_OBJECT: &str = "0000000000000000000000000000000000000000";

const NO_HOOK: &str = "the hook that judges pushes cannot be run; is the state directory on a volume without programs?";

const HOOK: &str = include_str!("pre-receive.sh");

/// A process that was started while the hook was written has that file open until it runs its own program. Until then the system runs no file that is open for writing.
const HOOK_ATTEMPTS: u32 = 3;
const HOOK_PAUSE: Duration = Duration::from_millis(100);

/// Where pushes are judged.
#[derive(Debug, Clone)]
pub struct Hooks(PathBuf);

impl Hooks {
    /// Writes the hook into a directory of its own below `state_dir`. Blocks.
    ///
    /// # Errors
    /// The state directory cannot be used.
    pub fn install(state_dir: &Path) -> io::Result<Self> {
        let directory = state_dir.join("hooks");
        std::fs::create_dir_all(&directory)?;
        // Git works in the repository's directory: a relative path would be another place there, and git continues without a hook that it does not find.
        let directory = directory.canonicalize()?;
        let hook = directory.join("pre-receive");
        // A start on a full disk must not need room for what is there.
        if std::fs::read(&hook).ok().as_deref() != Some(HOOK.as_bytes()) {
            service_runtime::atomic_file::write(&hook, HOOK.as_bytes(), Some(0o700)).map_err(io::Error::other)?;
        }
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o700))?;
        Ok(Self(directory))
    }

    /// Where the hook marks one push as judged. No other push has the file's name.
    fn mark(&self) -> PathBuf {
        self.0.join(format!("judged-{}", Uuid::new_v4()))
    }

    /// Git leaves a hook out that it does not find or cannot run, such as on a volume without programs; then nothing may be pushed. It is git that is asked, in the repository.
    async fn can_run(&self, repository: &Path, limit: Duration) -> bool {
        let path = format!("core.hooksPath={}", self.0.display());
        let arguments = ["-c", &path, "hook", "run", "pre-receive", "--", "test"];
        let mut attempt = 1;
        while let Err(error) = client::run(repository, None, &arguments, "", limit).await {
            tracing::warn!(attempt, error = %error, "the hook that judges pushes does not run");
            if attempt == HOOK_ATTEMPTS {
                return false;
            }
            attempt += 1;
            tokio::time::sleep(HOOK_PAUSE).await;
        }
        true
    }
}

/// A push that is allowed.
#[derive(Debug)]
pub struct Allowed {
    /// Into which repository.
    pub repository: Open,
    /// Who pushes.
    pub who: Principal,
    /// From where.
    pub from: IpAddr,
    /// Branches that take no push, because they are pulled from elsewhere.
    pub pulled: BTreeSet<String>,
}

/// What receives pushes. Clones are the same.
#[derive(Debug, Clone)]
pub struct Receiver<G> {
    /// Where they are judged.
    pub hooks: Hooks,
    /// To whom they are reported.
    pub gatekeeper: G,
    /// Where they go.
    pub repositories: Repositories,
    /// What one may take.
    pub limit: Duration,
    /// Gets the repositories that have become more files; while it is full it gets none.
    pub pushed: Sender<Uuid>,
}

impl<G: Gatekeeper> Receiver<G> {
    /// What a client that wants to push gets: the refs that there are.
    ///
    /// # Errors
    /// Git does not work here; for the log.
    pub async fn advertise(&self, allowed: &Allowed) -> Result<Bytes, String> {
        let mut command = self.command(allowed, &["--advertise-refs"]);
        let output = tokio::time::timeout(self.limit, command.stdin(Stdio::null()).output()).await;
        let output = output.map_err(|_| "took too long")?.map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("git ended with {}", output.status));
        }
        Ok([b"001f# service=git-receive-pack\n0000".as_slice(), &output.stdout].concat().into())
    }

    /// Takes a push, and reports to the state what became of the repository. `place` is kept until then.
    ///
    /// # Errors
    /// Git does not work here; for the log.
    pub async fn receive(self, allowed: Allowed, body: Body, place: Permit) -> Result<Bytes, String> {
        if !self.hooks.can_run(&allowed.repository.directory, self.limit).await {
            return Err(NO_HOOK.to_owned());
        }
        let before = self.main(&allowed.repository).await?;
        let refs = self.refs(&allowed).await?;
        let mark = self.hooks.mark();
        let received = self.run(&allowed, body, &mark).await;
        let received = match tokio::fs::remove_file(&mark).await {
            Ok(()) => received,
            // No ref has moved where git refused the push before it asked the hook.
            Err(_) => self.move_back(&allowed, &refs).await.and(received),
        };
        let after = self.main(&allowed.repository).await;
        drop(place);
        // If this one is not sent, a later push sends another.
        let _ = self.pushed.try_send(allowed.repository.uuid);
        self.report(allowed, before, after?).await;
        received
    }

    /// Takes a push apart from the repository, and hands it on to where it is decided. `places` are kept as long as they are needed.
    ///
    /// # Errors
    /// Git does not work here; for the log.
    pub async fn hand_over(
        self,
        scratches: Scratches,
        allowed: Allowed,
        credential: Zeroizing<String>,
        body: Body,
        (place, _only): (Permit, Permit),
    ) -> Result<Bytes, String> {
        let of = allowed.repository.directory.clone();
        let made = tokio::task::spawn_blocking(move || {
            let refs = copies::refs(&of).map_err(|error| error.to_string())?;
            let scratch = scratches.make(Some(&of), &refs).map_err(|error| error.to_string())?;
            Ok::<_, String>((refs, scratch))
        });
        let (before, scratch) = made.await.map_err(|error| error.to_string())??;
        if !self.hooks.can_run(scratch.directory(), self.limit).await {
            return Err(NO_HOOK.to_owned());
        }
        let Allowed { repository, who, from, pulled } = allowed;
        let apart = Open { directory: scratch.directory().to_owned(), ..repository.clone() };
        let apart = Allowed { repository: apart, who: who.clone(), from, pulled };
        let mark = self.hooks.mark();
        let answer = self.run(&apart, body, &mark).await;
        let is_judged = tokio::fs::remove_file(&mark).await.is_ok();
        let answer = answer?;
        let at = scratch.directory().to_owned();
        let after = tokio::task::spawn_blocking(move || copies::refs(&at)).await.map_err(|error| error.to_string())?;
        let changes = changes(&before, &after.map_err(|error| error.to_string())?);
        if changes.is_empty() {
            return Ok(answer);
        }
        if !is_judged {
            tracing::error!(who = who.name, repository = %repository.uuid, "git did not run the hook that judges pushes; a push was dropped");
            return Err("git did not run the hook that judges pushes".to_owned());
        }
        let pack = self.pack(scratch.directory(), &before, &changes).await?;
        drop((scratch, place));
        let handed = self.gatekeeper.hand_over(ReceivedPush { repository, who, from, credential, changes, pack }).await;
        let Err(denial) = handed else { return Ok(answer) };
        let refused = report::refuse(&answer, denial.reason());
        refused.map(Into::into).ok_or_else(|| format!("the client takes no reason: {}", denial.reason()))
    }

    /// A pack of what a push brings; empty: nothing.
    async fn pack(
        &self,
        directory: &Path,
        before: &Refs,
        changes: &BTreeMap<String, Change>,
    ) -> Result<Vec<u8>, String> {
        let new = changes.values().filter_map(|change| change.after.as_ref()).map(|id| format!("{id}\n"));
        let known = before.values().collect::<BTreeSet<_>>().into_iter().map(|id| format!("^{id}\n"));
        let revisions: String = new.chain(known).collect();
        let path = directory.join("push.pack");
        let file = tokio::fs::File::create(&path).await.map_err(|error| error.to_string())?.into_std().await;
        let arguments = ["pack-objects", "--revs", "--stdout", "--thin", "--delta-base-offset", "--quiet"];
        let packed = client::run_on_files(directory, &arguments, Input::Text(&revisions), Some(file), self.limit).await;
        packed.map_err(|error| error.to_string())?;
        let pack = tokio::fs::read(&path).await.map_err(|error| error.to_string())?;
        // The number of objects, behind signature and version.
        let has_objects = pack.get(8..12).is_some_and(|count| count != [0; 4]);
        Ok(if has_objects { pack } else { Vec::new() })
    }

    /// Every ref with its object.
    async fn refs(&self, allowed: &Allowed) -> Result<BTreeMap<String, String>, String> {
        let arguments = ["for-each-ref", "--format=%(objectname) %(refname)"];
        let refs = client::run(&allowed.repository.directory, None, &arguments, "", self.limit).await;
        let refs = refs.map_err(|error| error.to_string())?;
        Ok(refs.lines().filter_map(|line| line.split_once(' ')).map(|(id, name)| (name.into(), id.into())).collect())
    }

    /// Moves refs that are not as `before` back: nothing judged the push.
    async fn move_back(&self, allowed: &Allowed, before: &BTreeMap<String, String>) -> Result<(), String> {
        let now = self.refs(allowed).await?;
        let mut orders = String::new();
        for name in before.keys().chain(now.keys()).collect::<BTreeSet<_>>() {
            let (old, new) = (before.get(name), now.get(name).map_or(NO_OBJECT, String::as_str));
            match old {
                Some(old) if old == new => {}
                Some(old) => orders.push_str(&format!("update {name} {old} {new}\n")),
                None => orders.push_str(&format!("delete {name} {new}\n")),
            }
        }
        if orders.is_empty() {
            return Ok(());
        }
        let directory = &allowed.repository.directory;
        let moved = client::run(directory, None, &["update-ref", "--stdin"], &orders, self.limit).await;
        let (who, repository) = (&allowed.who.name, allowed.repository.uuid);
        match moved {
            Ok(_) => {
                tracing::error!(who, %repository, "git did not run the hook that judges pushes; a push was undone")
            }
            Err(error) => {
                tracing::error!(who, %repository, error = %error, "git did not run the hook that judges pushes, and a push cannot be undone");
            }
        }
        Err("git did not run the hook that judges pushes".to_owned())
    }

    async fn run(&self, allowed: &Allowed, body: Body, mark: &Path) -> Result<Bytes, String> {
        let mut command = self.command(allowed, &[]);
        command.env("SPARKFLEET_MARK", mark);
        let mut child = command.stdin(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("git has no input or output".to_owned());
        };
        let work = async {
            let feed = async {
                let stream = body.into_data_stream().map_err(io::Error::other);
                let mut reader = Box::pin(StreamReader::new(stream)).take(PUSH_BYTES_MAX + 1024 * 1024);
                // A child that has refused does not read the rest.
                let fed = tokio::io::copy(&mut reader, &mut stdin).await;
                let _ = stdin.shutdown().await;
                drop(stdin);
                fed
            };
            let mut answer = Vec::new();
            let mut stdout = stdout.take(ANSWER_BYTES_MAX);
            let (fed, read) = tokio::join!(feed, stdout.read_to_end(&mut answer));
            read.map_err(|error| error.to_string())?;
            let status = child.wait().await.map_err(|error| error.to_string())?;
            if let Err(error) = fed {
                tracing::debug!(error = %error, "a push was cut short");
            }
            // Git has said in its answer what it does not like.
            if answer.is_empty() && !status.success() {
                Err(format!("git ended with {status}"))
            } else {
                Ok(answer.into())
            }
        };
        tokio::time::timeout(self.limit, work).await.map_err(|_| "a push took too long".to_owned())?
    }

    fn command(&self, allowed: &Allowed, arguments: &[&str]) -> Command {
        let setting = |key: &str, value: &Path| {
            let mut setting = OsString::from(key);
            setting.push("=");
            setting.push(value);
            setting
        };
        let cluster = allowed.repository.kind == Kind::Cluster;
        let mut command = client::program();
        command
            .env("SPARKFLEET_PUSH", if cluster { "by-hand" } else { "shared" })
            .env("SPARKFLEET_PULLED", allowed.pulled.iter().map(String::as_str).collect::<Vec<_>>().join("\n"))
            .arg("-c")
            .arg(setting("safe.directory", &allowed.repository.directory))
            .arg("-c")
            .arg(setting("core.hooksPath", &self.hooks.0))
            .args(["-c", "receive.denyNonFastForwards=true", "-c", "receive.autogc=false"])
            // Malformed objects, and names that a checkout would place elsewhere, such as `.git`.
            .args(["-c", "receive.fsckObjects=true"])
            .arg("-c")
            .arg(format!("receive.maxInputSize={PUSH_BYTES_MAX}"))
            .arg("-c")
            .arg(format!("transfer.hideRefs={HIDDEN_REFS}"))
            .args(["receive-pack", "--stateless-rpc"])
            .args(arguments)
            .arg("--")
            .arg(&allowed.repository.directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        command
    }

    async fn main(&self, repository: &Open) -> Result<Option<String>, String> {
        let (repositories, uuid) = (self.repositories.clone(), repository.uuid);
        let read = tokio::task::spawn_blocking(move || repositories.main(uuid)).await;
        read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    /// Reports until it is recorded: an edge waits for the commit.
    async fn report(&self, allowed: Allowed, before: Option<String>, after: Option<String>) {
        let Allowed { repository, who, from, pulled: _ } = allowed;
        let push = Push { repository, who, from, before, after };
        for _ in 0..REPORT_TRIES {
            if self.gatekeeper.pushed(push.clone()).await {
                return;
            }
            tokio::time::sleep(REPORT_PAUSE).await;
        }
        let (who, repository) = (&push.who.name, push.repository.uuid);
        tracing::error!(who, %repository, commit = push.after, "a push could not be reported and recorded");
    }
}

/// What differs between the refs before and after a push.
fn changes(before: &Refs, after: &Refs) -> BTreeMap<String, Change> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let change = |name: &String| Change { before: before.get(name).cloned(), after: after.get(name).cloned() };
    let all = names.into_iter().map(|name| (name.clone(), change(name)));
    all.filter(|(_, change)| change.before != change.after).collect()
}
