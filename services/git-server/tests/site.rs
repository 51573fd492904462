//! A site around the git server: a real Mosquitto, a ConfigDB that has only tokens, and a cluster manager that speaks the contract and has its repositories on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster_manager_contract::NodeMetrics;
use configdb_contract::command::device_id;
use configdb_contract::{Entry, entry, names as config_names};
use configdb_schema::application::{MEMBERSHIP_SLUG, REGISTRATION_SLUG};
use configdb_schema::document::{ApiToken, Membership, Registration};
use configdb_schema::{APPLICATIONS, Document as _, known};
use git_hosting::credential::CredentialKeyPair;
use git_server::Config;
use git_server_contract::pack::{Pack, Received};
use git_server_contract::{
    DesiredRepository, GitDevice, GitReplica, Kind, PackPart, PackReceiver, PushAnswer, PushDevice, RepositoryCopy,
    RepositoryPath, names,
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use sparkplug::edge_node::{EdgeNodeConfig, NodeUpdate};
use sparkplug::host::{HostConfig, HostEvent, HostRequest, Interest};
use sparkplug::replication::ReplicaChange;
use sparkplug::session::QoS;
use sparkplug::{EdgeNodeDescriptor, EdgeNodeId, HostId, Metric, TypedMetrics as _};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, spawn_edge_node, spawn_host};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::mosquitto::Mosquitto;

/// Every wait of these tests ends here.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// After what the cluster manager sends again what is not reported yet.
const REPEAT: Duration = Duration::from_millis(200);

pub(crate) const MAIN: &str = "refs/heads/main";

/// The password of a cluster.
pub(crate) fn password(cluster: Uuid) -> String {
    format!("password-{}", cluster.simple())
}

/// Runs git in a bare repository.
pub(crate) fn git(directory: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("git")
        .args(["-c", "safe.directory=*", "-c", "user.name=x", "-c", "user.email=x@example", "--git-dir"])
        .arg(directory)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    output.stdout
}

pub(crate) fn text(directory: &Path, arguments: &[&str], input: &[u8]) -> String {
    String::from_utf8(git(directory, arguments, input)).unwrap().trim().to_owned()
}

/// Runs git as a client, without anything of this host. Ok: what it wrote; Err: what it complained of.
pub(crate) async fn client(arguments: &[&str]) -> Result<String, String> {
    let output = tokio::process::Command::new("git")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", "/nonexistent")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=x", "-c", "user.email=x@example"])
        .args(arguments)
        .output();
    let output = tokio::time::timeout(LIMIT, output).await.unwrap().unwrap();
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// A repository of the cluster manager.
#[derive(Debug, Clone)]
pub(crate) struct Original {
    pub(crate) directory: PathBuf,
    pub(crate) desired: DesiredRepository,
    /// What is sent instead of the pack that the copy lacks.
    pub(crate) other_pack: Option<Pack>,
}

/// What the cluster manager is at.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) originals: BTreeMap<Uuid, Original>,
    pub(crate) copies: BTreeMap<Uuid, RepositoryCopy>,
    pub(crate) is_complete: bool,
    pub(crate) url: String,
    /// Parts that were sent.
    pub(crate) parts: usize,
    /// What is done to each part on its way, by its number.
    pub(crate) on_the_way: Option<fn(usize, PackPart) -> Vec<PackPart>>,
    /// What becomes of pushes; None: no answer is given.
    pub(crate) judgement: Judgement,
    /// Pushes that were decided, each with its credential.
    pub(crate) decided: Vec<(PushDevice, String)>,
    /// Answers that get lost.
    pub(crate) lost_answers: usize,
    /// Pushes under way.
    pub(crate) pushes: usize,
    /// After what is sent again what is not reported yet; None: soon.
    pub(crate) repeat: Option<Duration>,
}

/// What becomes of pushes.
#[derive(Debug, Clone, Default)]
pub(crate) enum Judgement {
    /// They are taken.
    #[default]
    Accept,
    /// They are not.
    Refuse(String),
    /// No answer is given.
    Silence,
}

/// A cluster manager, as far as the git server is concerned.
pub(crate) struct Manager {
    changed: Arc<Notify>,
    shutdown: Shutdown,
    running: JoinHandle<()>,
}

impl Manager {
    fn start(broker: &Mosquitto, books: Arc<Mutex<Books>>) -> Self {
        let (changed, shutdown) = (Arc::new(Notify::new()), Shutdown::new());
        let running = tokio::spawn(manage(broker.config(), books, Arc::clone(&changed), shutdown.clone()));
        Self { changed, shutdown, running }
    }

    async fn stop(self) {
        self.shutdown.trigger();
        self.running.await.unwrap();
    }
}

// long: one loop with one state: what is reported, what is answered, what is sent.
async fn manage(mqtt: sparkplug_mqtt::MqttConfig, books: Arc<Mutex<Books>>, changed: Arc<Notify>, shutdown: Shutdown) {
    let node = names::node("ACME").unwrap();
    let config = HostConfig {
        filters: vec![(format!("spBv1.0/ACME-Central/+/{}/#", names::NODE_ID), QoS::AtLeastOnce)],
        interests: vec![Interest::in_edge_node(EdgeNodeId::new(names::NODE_ID).unwrap(), |_| true)],
        ..HostConfig::of_contracts(Some(HostId::new("ACME-Central-Cluster-Manager").unwrap()))
    };
    let mut host = spawn_host(config, &mqtt, Clock::new()).unwrap();
    host.request(HostRequest::Expect { node: node.clone() }).await.unwrap();
    let own = EdgeNodeConfig::for_any_reader(EdgeNodeDescriptor::parse("ACME-Central", "Cluster-Manager").unwrap());
    let key_pair = CredentialKeyPair::new([7; 32]);
    let metrics = NodeMetrics { git_key: key_pair.public().to_string(), ..NodeMetrics::default() }.to_metrics();
    let own = spawn_edge_node(own, metrics, &mqtt, BdSeqStore::Memory, Clock::new()).unwrap();
    let mut replica = GitReplica::new(node.clone());
    let mut sent = BTreeMap::<Uuid, (HostRequest, tokio::time::Instant)>::new();
    let mut seen = BTreeMap::<Uuid, (u64, Option<RepositoryCopy>)>::new();
    let mut packs = Packs::new();
    let mut receivers = BTreeMap::<Uuid, Incoming>::new();
    loop {
        let mut changed_pushes = BTreeSet::new();
        let mut take = |event: &HostEvent, replica: &mut GitReplica| {
            if let Some(ReplicaChange::Device(GitDevice::Push(push))) = replica.on_event(event) {
                changed_pushes.insert(push);
            }
        };
        tokio::select! {
            event = host.recv() => {
                take(&event.unwrap(), &mut replica);
                while let Ok(event) = tokio::time::timeout(Duration::ZERO, host.recv()).await {
                    take(&event.unwrap(), &mut replica);
                }
            }
            () = changed.notified() => {}
            () = tokio::time::sleep(REPEAT) => {}
            () = shutdown.wait() => break,
        }
        let mut requests = Vec::new();
        {
            let mut books = books.lock().unwrap();
            books.is_complete = replica.is_complete();
            // While a push comes or goes, the node has said more than has arrived; its address stays.
            if let Some(node) = replica.node().filter(|_| books.is_complete) {
                books.url.clone_from(&node.url);
            }
            books.pushes = replica.devices().pushes.len();
            books.copies = replica.devices().repositories.clone();
            receivers.retain(|push, _| replica.devices().pushes.contains_key(push));
            for push in changed_pushes {
                let Some(device) = replica.devices().pushes.get(&push) else { continue };
                let receiver = receivers.entry(push).or_default();
                let answer = receiver.answer(push, device, &key_pair, &mut books);
                if books.lost_answers > 0 && answer.is_some() {
                    books.lost_answers -= 1;
                    continue;
                }
                requests.extend(answer.map(|answer| answer.to_request(node.clone(), push)));
            }
            let is_complete = replica.is_complete();
            if !is_complete && requests.is_empty() {
                continue;
            }
            let repeat = books.repeat.unwrap_or(REPEAT);
            let is_due = |uuid: &Uuid, version: u64| {
                let known = (version, replica.devices().repositories.get(uuid).cloned());
                let is_same = seen.get(uuid) == Some(&known);
                let is_sent = sent.get(uuid).is_none_or(|(_, at): &(_, tokio::time::Instant)| at.elapsed() < repeat);
                if is_same && is_sent { None } else { Some((*uuid, known)) }
            };
            let due = books.originals.iter().filter(|_| is_complete);
            let due: Vec<_> = due.filter_map(|(uuid, original)| is_due(uuid, original.desired.version)).collect();
            for (uuid, known) in due {
                seen.insert(uuid, known);
                let original = books.originals[&uuid].clone();
                let copy = replica.devices().repositories.get(&uuid);
                let Some(request) = next(&node, &original, copy, &mut packs) else {
                    sent.remove(&uuid);
                    continue;
                };
                let is_new = sent.get(&uuid).is_none_or(|(last, at)| *last != request || at.elapsed() >= repeat);
                if is_new {
                    sent.insert(uuid, (request.clone(), tokio::time::Instant::now()));
                    let part = match &request {
                        HostRequest::Command { metrics, .. } => PackPart::from_metrics(metrics),
                        _ => None,
                    };
                    match part {
                        Some(part) => {
                            books.parts += 1;
                            let part = part.unwrap();
                            let parts = books.on_the_way.map_or(vec![part.clone()], |change| change(books.parts, part));
                            requests.extend(parts.into_iter().map(|part| part.to_request(node.clone(), uuid)));
                        }
                        None => requests.push(request),
                    }
                }
            }
        }
        for request in requests {
            host.request(request).await.unwrap();
        }
    }
    own.stop().await;
    host.stop().await;
}

/// A push that arrives.
#[derive(Debug, Default)]
struct Incoming {
    receiver: PackReceiver,
    pack: Option<Pack>,
    outcome: Option<Result<(), String>>,
}

impl Incoming {
    fn answer(
        &mut self,
        push: Uuid,
        device: &PushDevice,
        key_pair: &CredentialKeyPair,
        books: &mut Books,
    ) -> Option<PushAnswer> {
        if self.pack.is_none()
            && let Some(part) = device.part()
            && let Received::Whole(pack) = self.receiver.receive(&part)
        {
            self.pack = Some(pack);
        }
        let received = self.pack.as_ref().map(|pack| pack.bytes().len() as u64);
        let received = received.or_else(|| self.receiver.progress().map(|(_, bytes)| bytes)).unwrap_or_default();
        if received == device.total && self.outcome.is_none() {
            let credential = key_pair.open((device.repository, push), &device.credential).unwrap().to_string();
            self.outcome = match books.judgement.clone() {
                Judgement::Accept => Some(self.take(device, books)),
                Judgement::Refuse(reason) => Some(Err(reason)),
                Judgement::Silence => return None,
            };
            books.decided.push((device.clone(), credential));
        }
        Some(PushAnswer { received, outcome: self.outcome.clone() })
    }

    /// Moves the branches of the original.
    fn take(&self, device: &PushDevice, books: &mut Books) -> Result<(), String> {
        let original = books.originals.get_mut(&device.repository).unwrap();
        if let Some(pack) = &self.pack {
            git(&original.directory, &["index-pack", "--strict", "--stdin", "--fix-thin"], pack.bytes());
        }
        for (name, change) in &device.refs {
            let now = original.desired.refs.get(name);
            if now != change.before.as_ref() {
                return Err(format!("{name} is at another commit"));
            }
        }
        for (name, change) in &device.refs {
            match &change.after {
                Some(after) => {
                    git(&original.directory, &["update-ref", name, after], b"");
                    original.desired.refs.insert(name.clone(), after.clone());
                }
                None => {
                    git(&original.directory, &["update-ref", "-d", name], b"");
                    original.desired.refs.remove(name);
                }
            }
        }
        original.desired.version += 1;
        Ok(())
    }
}

/// Packs that were made, by repository and revisions.
type Packs = BTreeMap<(PathBuf, String), Pack>;

/// What a repository needs next; None: its copy is as it shall be.
fn next(
    node: &EdgeNodeDescriptor,
    original: &Original,
    copy: Option<&RepositoryCopy>,
    packs: &mut Packs,
) -> Option<HostRequest> {
    let desired = &original.desired;
    let Some(copy) = copy.filter(|copy| copy.version >= desired.version) else {
        return Some(desired.to_request(node.clone()));
    };
    if copy.applied.as_ref() == Some(&desired.digest()) {
        return None;
    }
    if !copy.missing {
        return Some(desired.to_request(node.clone()));
    }
    let wanted = desired.refs.values().map(|id| format!("{id}\n"));
    let had = copy.refs.values().map(|id| format!("^{id}\n"));
    let revisions: String = wanted.chain(had).collect();
    let pack = original.other_pack.clone().unwrap_or_else(|| {
        let make = || {
            let arguments = ["pack-objects", "--revs", "--stdout", "--thin", "-q", "--threads=1"];
            Pack::new(git(&original.directory, &arguments, revisions.as_bytes()).into())
        };
        packs.entry((original.directory.clone(), revisions.clone())).or_insert_with(make).clone()
    });
    let offset = if copy.pack.as_deref() == Some(pack.digest()) { copy.received } else { 0 };
    Some(pack.part(offset).to_request(node.clone(), desired.repository))
}

/// The site.
pub(crate) struct Site {
    pub(crate) broker: Mosquitto,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) manager: Option<Manager>,
    pub(crate) books: Arc<Mutex<Books>>,
    server: Option<(Shutdown, JoinHandle<anyhow::Result<()>>)>,
    configdb: EdgeNodeHandle,
    tokens: usize,
}

impl Site {
    pub(crate) async fn start() -> Self {
        let broker = Mosquitto::start();
        let directory = tempfile::tempdir().unwrap();
        let books = Arc::<Mutex<Books>>::default();
        let configdb = EdgeNodeConfig::for_any_reader(EdgeNodeDescriptor::parse("ACME-Central", "ConfigDB").unwrap());
        let configdb =
            spawn_edge_node(configdb, config_metrics(0), &broker.config(), BdSeqStore::Memory, Clock::new()).unwrap();
        let manager = Some(Manager::start(&broker, Arc::clone(&books)));
        let mut site = Self { broker, directory, manager, books, server: None, configdb, tokens: 0 };
        site.start_server();
        site.until("the git server is known", |books| books.is_complete).await;
        site
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.directory.path().join("git-server")
    }

    pub(crate) fn start_server(&mut self) {
        let config = Config {
            state_dir: self.state_dir().as_path().into(),
            mqtt: self.broker.config(),
            retry_first_ms: 50,
            retry_max_ms: 200,
            ..Config::default()
        };
        let shutdown = Shutdown::new();
        let running = tokio::spawn(git_server::run(config, shutdown.clone(), Health::new()));
        self.server = Some((shutdown, running));
    }

    pub(crate) async fn stop_server(&mut self) {
        let (shutdown, running) = self.server.take().unwrap();
        shutdown.trigger();
        running.await.unwrap().unwrap();
        if self.manager.is_some() {
            self.until("its death is known", |books| !books.is_complete).await;
        }
    }

    pub(crate) fn start_manager(&mut self) {
        self.books.lock().unwrap().is_complete = false;
        self.manager = Some(Manager::start(&self.broker, Arc::clone(&self.books)));
    }

    pub(crate) async fn stop_manager(&mut self) {
        self.manager.take().unwrap().stop().await;
    }

    pub(crate) async fn stop(mut self) {
        if self.server.is_some() {
            self.stop_server().await;
        }
        if self.manager.is_some() {
            self.stop_manager().await;
        }
    }

    /// Waits until what the cluster manager knows is so.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&Books) -> bool) {
        self.until_within(LIMIT, what, is_so).await;
    }

    pub(crate) async fn until_within(&self, limit: Duration, what: &str, is_so: impl Fn(&Books) -> bool) {
        let deadline = tokio::time::Instant::now() + limit;
        while !is_so(&self.books.lock().unwrap()) {
            if tokio::time::Instant::now() >= deadline {
                let books = self.books.lock().unwrap();
                let waiting: Vec<_> =
                    books.copies.iter().filter(|(_, copy)| copy.state() != "served").take(3).collect();
                let shown = if waiting.is_empty() { books.copies.iter().take(3).collect() } else { waiting };
                let text =
                    format!("{what}: {} copies, complete {}, such as {shown:?}", books.copies.len(), books.is_complete);
                drop(books);
                panic!("{text}");
            }
            let is_over = self.server.as_ref().is_some_and(|(_, running)| running.is_finished());
            assert!(!is_over, "{what}: the git server has ended");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the copy is as it shall be.
    pub(crate) async fn applied(&self, uuid: Uuid) {
        let digest = self.books.lock().unwrap().originals[&uuid].desired.digest();
        let is_so = |books: &Books| books.copies.get(&uuid).is_some_and(|copy| copy.applied.as_ref() == Some(&digest));
        self.until("the copy is as it shall be", is_so).await;
    }

    fn notify(&self) {
        if let Some(manager) = &self.manager {
            manager.changed.notify_one();
        }
    }

    /// A repository of the cluster manager with one commit.
    pub(crate) fn create(&self, uuid: Uuid, path: &str, kind: Kind) -> String {
        let directory = self.directory.path().join(format!("{uuid}.git"));
        assert!(
            Command::new("git")
                .args(["init", "-q", "--bare", "-b", "main"])
                .arg(&directory)
                .status()
                .unwrap()
                .success()
        );
        let is_cluster = kind == Kind::Cluster;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, password(uuid).as_bytes());
        let desired = DesiredRepository {
            repository: uuid,
            version: 0,
            place: Some(RepositoryPath { path: path.to_owned(), kind }),
            refs: BTreeMap::new(),
            password: is_cluster.then(|| hex::encode(digest)),
            pulled: BTreeSet::new(),
            no_push: None,
        };
        self.books.lock().unwrap().originals.insert(uuid, Original { directory, desired, other_pack: None });
        self.commit(uuid, MAIN, "edo/a.yaml", b"a: 1\n")
    }

    /// Commits one file to a branch.
    pub(crate) fn commit(&self, uuid: Uuid, branch: &str, path: &str, content: &[u8]) -> String {
        let at = self.books.lock().unwrap().originals[&uuid].directory.clone();
        let parent =
            Command::new("git").arg("--git-dir").arg(&at).args(["rev-parse", "-q", "--verify", branch]).output();
        let parent = String::from_utf8(parent.unwrap().stdout).unwrap().trim().to_owned();
        let from = if parent.is_empty() { String::new() } else { format!("from {parent}\n") };
        let mut script = format!(
            "commit {branch}\ncommitter x <x@example> 0 +0000\ndata 1\nx\n{from}M 100644 inline {path}\ndata {}\n",
            content.len()
        )
        .into_bytes();
        script.extend(content);
        script.extend(b"\n");
        git(&at, &["fast-import", "--quiet"], &script);
        self.refresh(uuid);
        text(&at, &["rev-parse", branch], b"")
    }

    /// The refs of a repository are what the copy shall have.
    pub(crate) fn refresh(&self, uuid: Uuid) {
        let at = self.books.lock().unwrap().originals[&uuid].directory.clone();
        let refs = text(&at, &["for-each-ref", "--format=%(refname) %(objectname)"], b"");
        let refs =
            refs.lines().filter_map(|line| line.split_once(' ')).map(|(name, id)| (name.to_owned(), id.to_owned()));
        self.change(uuid, |desired| desired.refs = refs.collect());
    }

    /// Changes what the copy shall be.
    pub(crate) fn change(&self, uuid: Uuid, change: impl FnOnce(&mut DesiredRepository)) {
        {
            let mut books = self.books.lock().unwrap();
            let desired = &mut books.originals.get_mut(&uuid).unwrap().desired;
            desired.version += 1;
            change(desired);
        }
        self.notify();
    }

    /// An address of the git server, with a login.
    pub(crate) fn url(&self, user: &str, password: &str, path: &str) -> String {
        let url = self.books.lock().unwrap().url.clone();
        let host = url.strip_prefix("http://").unwrap();
        format!("http://{user}:{password}@{host}{path}")
    }

    /// The same as a cluster.
    pub(crate) fn url_of(&self, cluster: Uuid, path: &str) -> String {
        self.url(&cluster.to_string(), &password(cluster), path)
    }

    /// Makes a token known; its text.
    pub(crate) async fn token(&mut self, scope: &str, clusters: Option<&[Uuid]>) -> String {
        self.tokens += 1;
        let seed = u8::try_from(self.tokens).unwrap();
        let token =
            cluster_manager_contract::api_token::text(&[seed; cluster_manager_contract::api_token::RANDOM_BYTES]);
        let token = token.expose_secret().to_owned();
        let hash = cluster_manager_contract::api_token::TokenHash::of(&token).unwrap().to_hex();
        let json = json!({"name": format!("{scope}-{seed}"), "hash": hash, "scope": scope, "clusters": clusters,
            "issued": "2026-01-01T00:00:00Z", "expires": "2100-01-01T00:00:00Z", "by": "ada"});
        let object = Uuid::from_u128(0x7000 + u128::from(seed));
        let metrics = object_metrics(object, &json, self.tokens as u64);
        let device = device_id(object);
        self.configdb.update(NodeUpdate::DeviceBirth { device, metrics }).await.unwrap();
        let metrics = config_metrics(self.tokens as u64);
        self.configdb.update(NodeUpdate::Set { device: None, metrics }).await.unwrap();
        token
    }
}

fn config_metrics(objects: u64) -> Vec<Metric> {
    vec![
        Metric::new(config_names::CONFIG_STORE, Uuid::from_u128(5).to_string()),
        Metric::new(config_names::CONFIG_REVISION, objects + 1),
        Metric::new(config_names::CONFIG_OBJECTS, objects),
        Metric::string(config_names::REQUEST_RESULT, None),
    ]
}

fn object_metrics(object: Uuid, token: &Value, revision: u64) -> Vec<Metric> {
    let class = known::class::DEVICE;
    let owner = known::special::UNOWNED;
    let registration = Registration { uuid: object, rank: 0, class, owner, deleted: false, strict: true };
    let membership = Membership { member_of: [class].into(), subclass_of: BTreeSet::new() };
    let mut metrics = vec![
        Metric::new(REGISTRATION_SLUG, serde_json::to_string(&registration).unwrap()),
        Metric::new(MEMBERSHIP_SLUG, serde_json::to_string(&membership).unwrap()),
    ];
    for application in APPLICATIONS {
        let slug: Arc<str> = application.slug.into();
        let entry = (application.slug == ApiToken::slug()).then(|| Entry {
            application: application.uuid,
            json: token.to_string().into(),
            etag: Uuid::from_u128(revision.into()),
            revision,
        });
        metrics.push(entry::to_metric(&slug, application.uuid, entry.as_ref()));
    }
    metrics
}

/// A clone, and its directory.
pub(crate) async fn clone(url: &str) -> Result<(tempfile::TempDir, PathBuf), String> {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("clone");
    client(&["clone", "-q", url, target.to_str().unwrap()]).await.map(|_| (directory, target))
}
