//! One Host Application session of the command line: connects, waits until what a command needs is replicated, writes, and waits for results. The
//! only module of the commands that knows the driver; what the replicas mean is [`fleet_view`]'s.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use cluster_manager_contract::ClusterDevice;
use configdb_contract::command::Sender;
use configdb_contract::{
    CommitRequest, GaveUpReason, PartRequest, RequestResult, WriteRequest, Writer, WriterConfig, WriterOutput,
};
use configdb_schema::Document;
use configdb_schema::address::{self, ClusterName, Organisation};
use edge_sync_contract::SyncReplica;
use join_service_contract::JoinReplica;
use serde::Serialize;
use service_runtime::exit;
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::session::QoS;
use sparkplug::{EdgeNodeDescriptor, HostId, Metric};
use sparkplug_mqtt::{Clock, HostHandle, MqttConfig};
use tokio::time::Instant;
use uuid::Uuid;

use crate::certificate::subject;
use crate::options::{Connection, Options};
use crate::output::{progress, remark};
use fleet_view::Fleet;
use fleet_view::requests::Author;

/// What a wait prints its first sign of life after.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a command waits for monitors and join services to be born again, of which it shows only alerts and how hosts joined.
const MONITORS_WAIT: Duration = Duration::from_secs(2);

/// How long a look at the whole waits for the next birth of a service that may be away.
const SERVICE_WAIT: Duration = Duration::from_secs(5);

/// Metric of a birth that says the version of its program.
const VERSION: &str = "Properties/Version";

/// Parts of a transaction that are handed to the writer at once, of as many as it takes.
const STAGED_AT_ONCE: usize = 10_000;

/// How much of the fleet a command wants to see; each has what those before it have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// ConfigDB only.
    Config,
    /// ConfigDB and cluster manager.
    Managed,
    /// ConfigDB, cluster manager and every join service.
    Joining,
    /// ConfigDB, cluster manager, Identity, every Sync, every join service and every monitor.
    Fleet,
}

/// A session.
#[derive(Debug)]
pub struct Client {
    host: HostHandle,
    broker: String,
    /// What was received so far.
    pub fleet: Fleet,
    clock: Clock,
    deadline: Instant,
    timeout: Duration,
    writer: Writer,
    /// In whose name commands go to ConfigDB.
    sender: Sender,
    expected: BTreeSet<EdgeNodeDescriptor>,
    rejected: Option<String>,
    scope: Scope,
    /// Births that were received, by their nodes.
    pub births: BTreeMap<EdgeNodeDescriptor, Birth>,
    connected_at: Instant,
}

/// What a birth says beside the state of its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Birth {
    /// Version of the program; None: it does not say.
    pub version: Option<String>,
    /// How far the sender's clock was ahead when it was received, ms; negative: it was behind, or the birth waited on its way.
    pub skew_ms: i64,
}

impl Birth {
    fn new(metrics: &[Metric], timestamp: u64, wall: u64) -> Self {
        let version = metrics.iter().find(|metric| &*metric.name == VERSION);
        let version = version.and_then(|metric| metric.value.as_ref()?.as_str()).map(str::to_owned);
        let ms = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
        Self { version, skew_ms: ms(timestamp).saturating_sub(ms(wall)) }
    }
}

/// The `[mqtt]` table that the connection options stand for.
///
/// # Errors
/// The password file cannot be read.
pub fn mqtt_config(connection: &Connection) -> anyhow::Result<MqttConfig> {
    let password = match &connection.password_file {
        Some(file) => std::fs::read_to_string(file)
            .with_context(|| format!("--password-file {}", file.display()))
            .map_err(|error| exit::with_code(exit::CONFIG, error))?,
        None => String::new(),
    };
    Ok(MqttConfig {
        servers: vec![connection.broker.clone()],
        protocol: connection.protocol,
        username: connection.username.clone(),
        password: password.trim_end_matches(['\r', '\n']).to_owned().into(),
        ca_file: connection.ca_file.clone(),
        cert_file: connection.cert_file.clone(),
        key_file: connection.key_file.clone(),
        client_id_prefix: format!("sparkfleet-cli-{}", Uuid::new_v4().simple()),
        ..MqttConfig::default()
    })
}

/// The user that the MQTT server takes a connection for: the name in its certificate, else the user's name. Empty: it has neither.
///
/// # Errors
/// With [`exit::CONFIG`] if the certificate cannot be read.
pub fn user(connection: &Connection) -> anyhow::Result<String> {
    match &connection.cert_file {
        Some(file) => subject(file),
        None => Ok(connection.username.clone().unwrap_or_default()),
    }
}

/// Subscriptions for a scope: no command receives more than it needs. QoS 1, so that a server may not drop a death; births and data stay at the QoS 0 of their sender.
#[must_use]
pub fn filters(organisation: &Organisation, scope: Scope) -> Vec<(String, QoS)> {
    let central = organisation.central_group();
    let node = |group: &str, node: &str| [format!("spBv1.0/{group}/+/{node}"), format!("spBv1.0/{group}/+/{node}/+")];
    let mut topics = node(&central, address::CONFIGDB_NODE).to_vec();
    if scope >= Scope::Managed {
        topics.extend(node(&central, address::CLUSTER_MANAGER_NODE));
    }
    if scope >= Scope::Joining {
        topics.extend(node("+", address::JOIN_NODE));
    }
    if scope == Scope::Fleet {
        topics.extend(node(&central, address::IDENTITY_NODE));
        topics.extend(node("+", address::SYNC_NODE));
        topics.extend(node("+", address::MONITOR_NODE));
    }
    topics.into_iter().map(|topic| (topic, QoS::AtLeastOnce)).collect()
}

impl Client {
    /// Connects, and waits until ConfigDB is replicated and, in [`Scope::Fleet`], what the cluster manager reports to be alive.
    ///
    /// # Errors
    /// With [`exit::UNAVAILABLE`] if the broker is not reached, [`exit::TIMEOUT`] if ConfigDB does not answer, [`exit::CONFIG`] for unusable options.
    pub async fn open(options: &Options, scope: Scope) -> anyhow::Result<Self> {
        let mut client = Self::start(options, scope).await?;
        client.expect(client.fleet.config.node().clone()).await?;
        client.until("ConfigDB to be born", |fleet| fleet.config.is_complete().then_some(())).await?;
        if scope >= Scope::Managed {
            client.expect(client.fleet.manager.node().clone()).await?;
            client.until("the cluster manager to be born", |fleet| fleet.manager.is_complete().then_some(())).await?;
        }
        if scope >= Scope::Joining {
            client.receive_joins(scope).await?;
        }
        if scope == Scope::Fleet {
            client.receive_fleet().await?;
        }
        Ok(client)
    }

    /// Connects, and receives of the whole fleet what arrives soon: services that are away are missing in it.
    ///
    /// # Errors
    /// As [`Client::open`], but for what does not answer.
    pub async fn look(options: &Options) -> anyhow::Result<Self> {
        Ok(Self::receive_known(options, Scope::Fleet).await?.0)
    }

    /// Connects, and receives of a scope, at least [`Scope::Managed`], what arrives soon. With it, for people, what was not received of what is there.
    ///
    /// # Errors
    /// As [`Client::open`], but for what does not answer while anything else is known.
    pub async fn open_known(options: &Options, scope: Scope) -> anyhow::Result<(Self, Option<String>)> {
        let (mut client, missing) = Self::receive_known(options, scope).await?;
        let is_empty =
            client.fleet.config.objects().next().is_none() && client.fleet.manager.clusters().next().is_none();
        if is_empty && !client.is_current() {
            client.until("ConfigDB to be born", |fleet| fleet.config.is_complete().then_some(())).await?;
        }
        Ok((client, missing))
    }

    async fn receive_known(options: &Options, scope: Scope) -> anyhow::Result<(Self, Option<String>)> {
        let mut client = Self::start(options, scope).await?;
        client.expect(client.fleet.config.node().clone()).await?;
        client.expect(client.fleet.manager.node().clone()).await?;
        client.receive_central().await?;
        let joins = client.receive_joins(Scope::Fleet).await?;
        let mut missing = Vec::new();
        if !client.fleet.config.is_complete() {
            missing.push("ConfigDB".to_owned());
        }
        if !client.fleet.manager.is_complete() {
            missing.push("the cluster manager".to_owned());
        }
        if scope == Scope::Joining {
            let lacking = joins.iter().filter(|name| lacks_join(&client.fleet, name));
            missing.extend(named_first("the join service of", lacking));
        }
        if scope == Scope::Fleet {
            let names = client.expect_edges().await?;
            let count = |fleet: &Fleet| names.iter().filter(|name| !lacks_sync(fleet, name)).count();
            client.receive_growing(count, |fleet| has_syncs(fleet, &names)).await?;
            let lacking = names.iter().filter(|name| lacks_sync(&client.fleet, name));
            missing.extend(named_first("the edge of", lacking));
            client.receive_monitors(names).await?;
        }
        Ok((client, (!missing.is_empty()).then(|| missing.join(", "))))
    }

    /// What the central services say.
    async fn receive_central(&mut self) -> anyhow::Result<()> {
        let count = |fleet: &Fleet| fleet.config.objects().count() + fleet.manager.clusters().count();
        let is_received = |fleet: &Fleet| fleet.config.is_complete() && fleet.manager.is_complete();
        self.receive_growing(count, is_received).await
    }

    /// Receives until everything is there, or nothing more of it has come for [`SERVICE_WAIT`].
    async fn receive_growing(
        &mut self,
        count: impl Fn(&Fleet) -> usize,
        is_received: impl Fn(&Fleet) -> bool,
    ) -> anyhow::Result<()> {
        loop {
            let before = count(&self.fleet);
            let wait = self.deadline.min(Instant::now() + SERVICE_WAIT);
            let received: Option<()> = self.until_at(wait, "", |fleet| is_received(fleet).then_some(())).await?;
            if received.is_some() || count(&self.fleet) == before || wait == self.deadline {
                return Ok(());
            }
        }
    }

    async fn start(options: &Options, scope: Scope) -> anyhow::Result<Self> {
        let connection = &options.connection;
        let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
        let organisation =
            Organisation::new(connection.organisation.clone()).context("--organisation").map_err(wrong)?;
        let host_id = HostId::new(&connection.host_id).context("--host-id").map_err(wrong)?;
        let filters = filters(&organisation, scope);
        let clock = Clock::new();
        let config = HostConfig { filters, ..HostConfig::of_contracts(Some(host_id)) };
        let host = sparkplug_mqtt::spawn_host(config, &mqtt_config(connection)?, clock)
            .map_err(|error| wrong(anyhow::Error::new(error).context("connection options")))?;
        let sender = Sender::new(&organisation, &user(connection)?);
        let fleet = Fleet::new(organisation)?;
        let writer_config =
            WriterConfig { deadline: options.presentation.timeout, ..WriterConfig::new(fleet.config.node().clone()) };
        let writer = Writer::new(writer_config, Uuid::new_v4().as_u64_pair().0);
        let mut client = Self {
            host,
            broker: connection.broker.clone(),
            fleet,
            clock,
            deadline: Instant::now() + options.presentation.timeout,
            timeout: options.presentation.timeout,
            writer,
            sender,
            expected: BTreeSet::new(),
            rejected: None,
            scope,
            births: BTreeMap::new(),
            connected_at: Instant::now(),
        };
        client.connect().await?;
        client.connected_at = Instant::now();
        Ok(client)
    }

    async fn connect(&mut self) -> anyhow::Result<()> {
        loop {
            match tokio::time::timeout_at(self.deadline, self.host.recv()).await {
                Ok(Some(HostEvent::Online)) => return Ok(()),
                Ok(Some(HostEvent::Offline { reason })) => return Err(self.unreachable(&reason)),
                Ok(Some(_)) => {}
                Ok(None) => return Err(self.unreachable("the session has ended")),
                Err(_) => return Err(self.unreachable("no answer in time")),
            }
        }
    }

    fn unreachable(&self, reason: &str) -> anyhow::Error {
        unreachable(&self.broker, reason)
    }

    /// Every join service that is alive; the names of their clusters. Who only shows them beside others does not wait for ever.
    async fn receive_joins(&mut self, scope: Scope) -> anyhow::Result<Vec<String>> {
        let alive = self.fleet.manager.clusters().filter(|(_, cluster)| cluster.join.alive);
        let names: Vec<String> = alive.map(|(_, cluster)| cluster.name.clone()).collect();
        for name in &names {
            self.expect_node(name, address::JOIN_NODE).await?;
        }
        let is_received = |fleet: &Fleet| has_joins(fleet, &names).then_some(());
        if scope == Scope::Joining {
            self.until("every join service that is alive to be born", is_received).await?;
        } else {
            let wait = self.deadline.min(Instant::now() + MONITORS_WAIT);
            let _: Option<()> = self.until_at(wait, "", is_received).await?;
        }
        Ok(names)
    }

    async fn receive_fleet(&mut self) -> anyhow::Result<()> {
        let names = self.expect_edges().await?;
        let syncs_received = |fleet: &Fleet| has_syncs(fleet, &names).then_some(());
        self.until("every edge sync that is alive to be born", syncs_received).await?;
        self.receive_monitors(names).await
    }

    /// What the monitors say of these clusters, and of those whose edge sync is away while their monitor is not: the central monitor knows them.
    async fn receive_monitors(&mut self, mut names: BTreeSet<String>) -> anyhow::Result<()> {
        let wait = self.deadline.min(Instant::now() + MONITORS_WAIT);
        let is_known = |fleet: &Fleet| (fleet.is_central_monitor_complete() && fleet.identity.is_alive()).then_some(());
        let _: Option<()> = self.until_at(wait, "", is_known).await?;
        names.extend(self.fleet.edge_monitors_online());
        for name in &names {
            self.expect_node(name, address::MONITOR_NODE).await?;
        }
        let wait = self.deadline.min(Instant::now() + MONITORS_WAIT);
        let is_received = |fleet: &Fleet| (fleet.edge_monitors_complete() >= names.len()).then_some(());
        let _: Option<()> = self.until_at(wait, "", is_received).await?;
        Ok(())
    }

    /// Asks for the births of the central monitor and of Identity, and of Sync and monitor of each cluster whose Sync is alive; the names of those.
    async fn expect_edges(&mut self) -> anyhow::Result<BTreeSet<String>> {
        let alive = self.fleet.manager.clusters().filter(|(_, cluster)| cluster.sync_alive);
        let names: BTreeSet<String> = alive.map(|(_, cluster)| cluster.name.clone()).collect();
        for name in &names {
            self.expect_cluster(name).await?;
        }
        let central = self.fleet.organisation().central_group();
        self.expect(EdgeNodeDescriptor::parse(&central, address::MONITOR_NODE)?).await?;
        self.expect(self.fleet.identity.node().clone()).await?;
        Ok(names)
    }

    /// Asks for the births of a cluster's Sync and monitor.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn expect_cluster(&mut self, name: &str) -> anyhow::Result<()> {
        self.expect_node(name, address::SYNC_NODE).await?;
        self.expect_node(name, address::MONITOR_NODE).await
    }

    async fn expect_node(&mut self, cluster: &str, node: &str) -> anyhow::Result<()> {
        let Ok(name) = ClusterName::new(cluster) else { return Ok(()) };
        let group = self.fleet.organisation().cluster_group(&name);
        self.expect(EdgeNodeDescriptor::parse(&group, node)?).await
    }

    async fn expect(&mut self, node: EdgeNodeDescriptor) -> anyhow::Result<()> {
        if self.expected.insert(node.clone()) {
            self.host.request(HostRequest::Expect { node }).await?;
        }
        Ok(())
    }

    /// Waits until `found` yields something; `what` names it for people.
    ///
    /// # Errors
    /// With [`exit::TIMEOUT`] when the time of the command is over, naming what was waited for.
    pub async fn until<T>(&mut self, what: &str, found: impl FnMut(&Fleet) -> Option<T>) -> anyhow::Result<T> {
        match self.until_at(self.deadline, what, found).await? {
            Some(found) => Ok(found),
            None => {
                let mut error = not_reached(self.timeout, what);
                let hints: Vec<String> =
                    [self.rejected.clone(), self.fleet.missing_births()].into_iter().flatten().collect();
                if !hints.is_empty() {
                    error = anyhow!("{}", hints.join("; ")).context(error.to_string());
                }
                Err(exit::with_code(exit::TIMEOUT, error))
            }
        }
    }

    /// The same; how things stand is said each time it changes, and whatever goes wrong.
    ///
    /// # Errors
    /// As [`Client::until`].
    pub async fn until_or<T>(
        &mut self,
        what: &str,
        mut found: impl FnMut(&Fleet) -> Option<T>,
        stands: impl Fn(&Fleet) -> Option<String>,
    ) -> anyhow::Result<T> {
        let mut progress = Progress::new(Instant::now() + PATIENCE);
        let waited = self
            .until(what, |fleet| {
                let found = found(fleet);
                if found.is_none() {
                    progress.next(Instant::now(), || stands(fleet)).iter().for_each(|line| remark(line));
                }
                found
            })
            .await;
        match stands(&self.fleet) {
            Some(stands) => waited.context(stands),
            None => waited,
        }
    }

    async fn until_at<T>(
        &mut self,
        deadline: Instant,
        what: &str,
        mut found: impl FnMut(&Fleet) -> Option<T>,
    ) -> anyhow::Result<Option<T>> {
        let mut quiet_until = Some(Instant::now() + PATIENCE).filter(|_| !what.is_empty());
        loop {
            if let Some(found) = found(&self.fleet) {
                return Ok(Some(found));
            }
            let wake = quiet_until.map_or(deadline, |quiet| quiet.min(deadline));
            match tokio::time::timeout_at(wake, self.host.recv()).await {
                Ok(Some(event)) => self.take(&event),
                Ok(None) => return Err(self.unreachable("the session has ended")),
                Err(_) if Instant::now() >= deadline => return Ok(None),
                Err(_) => {
                    progress(&format!("waiting for {what} ..."));
                    quiet_until = None;
                }
            }
        }
    }

    /// Listens until `found`, or for so long at most.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn receive_for(
        &mut self,
        at_most: Duration,
        found: impl FnMut(&Fleet) -> Option<()>,
    ) -> anyhow::Result<()> {
        let deadline = self.deadline.min(Instant::now() + at_most);
        let _: Option<()> = self.until_at(deadline, "", found).await?;
        Ok(())
    }

    /// Waits for something to arrive, `at_most` so long, and then takes what arrives within `pace`.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn follow(&mut self, at_most: Duration, pace: Duration) -> anyhow::Result<()> {
        let mut until = Instant::now() + at_most;
        let mut is_first = true;
        loop {
            match tokio::time::timeout_at(until, self.host.recv()).await {
                Ok(Some(event)) => self.take(&event),
                Ok(None) => return Err(self.unreachable("the session has ended")),
                Err(_) => return Ok(()),
            }
            if is_first {
                until = until.min(Instant::now() + pace);
                is_first = false;
            }
        }
    }

    /// Whether the central services are replicated at present.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.fleet.config.is_complete() && (self.scope < Scope::Managed || self.fleet.manager.is_complete())
    }

    /// Asks Sync and Join of a cluster to publish the entries that they keep, or to stop that.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn give_entries(&mut self, cluster: &str, give: bool) -> anyhow::Result<()> {
        let sync = self.fleet.sync(cluster).map(|sync| sync.address().clone());
        let join = self.fleet.join(cluster).map(|join| join.address().clone());
        for node in sync.into_iter().chain(join) {
            let metrics = vec![Metric::new(edge_sync_contract::names::RECOVER_ENTRIES, give)];
            self.host.request(HostRequest::Command { node, device: None, metrics }).await?;
        }
        Ok(())
    }

    fn take(&mut self, event: &HostEvent) {
        if let HostEvent::Rejected { topic, reason } = event {
            self.rejected = Some(format!("last unusable message, on {topic}: {reason}"));
        }
        let now = self.clock.now();
        self.fleet.set_time(now.wall);
        if let HostEvent::NodeBirth { node, timestamp, metrics, .. } = event {
            self.births.insert(node.clone(), Birth::new(metrics, *timestamp, now.wall));
        }
        for change in self.fleet.on_event(event) {
            self.writer.on_change(&change, now);
        }
    }

    /// Writes, repeating the command until ConfigDB has answered.
    ///
    /// # Errors
    /// With [`exit::REFUSED`] and the reason when ConfigDB refuses, [`exit::TIMEOUT`] when it does not answer.
    pub async fn write(&mut self, request: WriteRequest) -> anyhow::Result<RequestResult> {
        self.writer.submit(request, self.clock.now())?;
        let result = self.answers(1, |_| {}).await?.pop().context("an answered request has an answer")?;
        applied(result)
    }

    /// Writes, and waits until ConfigDB publishes what it has written.
    ///
    /// # Errors
    /// As [`Client::write`].
    pub async fn write_until_published(&mut self, request: WriteRequest) -> anyhow::Result<RequestResult> {
        let written = self.write(request).await?;
        let known = |fleet: &Fleet| (fleet.config.revision() >= written.revision).then_some(());
        self.until("ConfigDB to publish the entry", known).await?;
        Ok(written)
    }

    /// Writes an entry, if it is still that `before` (its ETag; None: there was none), and waits until ConfigDB publishes it; the revision.
    ///
    /// # Errors
    /// As [`Client::write`].
    pub async fn write_document<T: Document>(
        &mut self,
        object: Uuid,
        document: &T,
        before: Option<Uuid>,
    ) -> anyhow::Result<u64> {
        let request =
            WriteRequest::put(request_id(), object).by(writer()).document(document)?.if_match(T::slug(), before);
        let written = self.write_until_published(request).await;
        let written =
            written.with_context(|| format!("{} (if another writer has just changed it: try again)", T::slug()))?;
        Ok(written.revision)
    }

    /// Writes all in one transaction, in order; `progress` gets the number that is staged.
    ///
    /// # Errors
    /// With [`exit::REFUSED`] if ConfigDB refuses one of them, [`exit::TIMEOUT`] when it does not answer. Nothing is written then, unless it was only the answer to the last request that did not come.
    pub async fn write_transaction(
        &mut self,
        writes: Vec<WriteRequest>,
        mut progress: impl FnMut(usize),
    ) -> anyhow::Result<RequestResult> {
        let transaction = request_id();
        let total = writes.len();
        let mut parts = (0..).zip(writes).map(|(position, write)| {
            let transaction = transaction.clone();
            PartRequest { transaction, position, write }
        });
        let mut staged = 0;
        while staged < total {
            let batch: Vec<PartRequest> = parts.by_ref().take(STAGED_AT_ONCE).collect();
            let count = batch.len();
            for part in batch {
                self.writer.submit_part(part, self.clock.now())?;
            }
            let answers = self.answers(count, |done| progress(staged + done)).await?;
            if let Some(refused) = answers.into_iter().find(RequestResult::is_refused) {
                return Err(refused_transaction(&refused));
            }
            staged += count;
        }
        let commit = CommitRequest { id: request_id(), transaction: transaction.clone(), parts: total as u64 };
        self.writer.submit_commit(commit, self.clock.now())?;
        let answer = self.answers(1, |_| {}).await?.pop().context("an answered request has an answer")?;
        if answer.is_applied() { Ok(answer) } else { Err(refused_transaction(&answer)) }
    }

    async fn answers(&mut self, count: usize, mut progress: impl FnMut(usize)) -> anyhow::Result<Vec<RequestResult>> {
        let mut answers = Vec::with_capacity(count);
        loop {
            while let Some(output) = self.writer.poll_output() {
                match output {
                    WriterOutput::Send(request) => {
                        self.host.request(self.sender.send(request, self.fleet.config.node())).await?;
                    }
                    WriterOutput::Answered(result) => {
                        answers.push(result);
                        progress(answers.len());
                    }
                    WriterOutput::GaveUp { reason: GaveUpReason::OtherStore, .. } => {
                        let error = anyhow!(
                            "another ConfigDB with another store speaks on this MQTT server now, and the first one has not answered: run the command again"
                        );
                        return Err(exit::with_code(exit::UNAVAILABLE, error));
                    }
                    WriterOutput::GaveUp { object, attempts, .. } => {
                        let timeout = humantime::format_duration(self.timeout);
                        let error = anyhow!(
                            "ConfigDB did not answer the request on {object} within {timeout} ({attempts} attempts); it may or may not have been carried out"
                        );
                        return Err(exit::with_code(exit::TIMEOUT, error));
                    }
                }
            }
            if answers.len() == count {
                return Ok(answers);
            }
            tokio::select! {
                event = self.host.recv() => match event {
                    Some(event) => self.take(&event),
                    None => return Err(self.unreachable("the session has ended")),
                },
                () = self.clock.sleep_until(self.writer.next_deadline()) => self.writer.handle_timeout(self.clock.now()),
            }
        }
    }

    /// How long after `begin` the session was there, ms.
    #[must_use]
    pub fn connected_in(&self, begin: Instant) -> u128 {
        self.connected_at.saturating_duration_since(begin).as_millis()
    }

    /// Wall clock, UTC ms.
    #[must_use]
    pub fn wall(&self) -> u64 {
        self.clock.now().wall
    }

    /// Says goodbye: STATE offline, DISCONNECT.
    pub async fn close(self) {
        self.host.stop().await;
    }
}

/// What is said of how things stand while a command waits: every change of it, the first after some time.
struct Progress {
    from: Instant,
    said: Option<String>,
}

impl Progress {
    const fn new(from: Instant) -> Self {
        Self { from, said: None }
    }

    /// The next line, if there is something new.
    fn next(&mut self, now: Instant, stands: impl FnOnce() -> Option<String>) -> Option<String> {
        let stands = if now < self.from { None } else { stands() };
        let line = stands.filter(|stands| self.said.as_ref() != Some(stands))?;
        self.said = Some(line.clone());
        Some(line)
    }
}

/// The error for something that did not come in the time of the command; its exit code is the caller's.
pub(crate) fn not_reached(timeout: Duration, what: &str) -> anyhow::Error {
    anyhow!("waited {} for {what}; not reached", humantime::format_duration(timeout))
}

/// The error for a broker that is not reached.
pub(crate) fn unreachable(broker: &str, reason: &str) -> anyhow::Error {
    let error = anyhow!("{reason}").context(format!(
        "cannot reach the broker {broker} (name another with --broker, or start one with `sparkfleet up`)"
    ));
    exit::with_code(exit::UNAVAILABLE, error)
}

/// Whether the Sync of each of these clusters is replicated, those aside that have gone since: no birth of them comes.
fn has_syncs(fleet: &Fleet, names: &BTreeSet<String>) -> bool {
    names.iter().all(|name| !lacks_sync(fleet, name))
}

/// The same of the join services.
fn has_joins(fleet: &Fleet, names: &[String]) -> bool {
    names.iter().all(|name| !lacks_join(fleet, name))
}

fn lacks_sync(fleet: &Fleet, name: &str) -> bool {
    !fleet.sync(name).is_some_and(SyncReplica::is_complete) && is_said(fleet, name, |cluster| cluster.sync_alive)
}

fn lacks_join(fleet: &Fleet, name: &str) -> bool {
    !fleet.join(name).is_some_and(JoinReplica::is_complete) && is_said(fleet, name, |cluster| cluster.join.alive)
}

/// Whether the cluster manager says that of the cluster with this name.
fn is_said(fleet: &Fleet, name: &str, what: impl Fn(&ClusterDevice) -> bool) -> bool {
    fleet.manager.clusters().any(|(_, cluster)| cluster.name == name && what(cluster))
}

/// The first of these clusters by its name, and how many more there are; None: there is none.
fn named_first<'a>(what: &str, mut names: impl Iterator<Item = &'a String>) -> Option<String> {
    let first = names.next()?;
    Some(match names.count() {
        0 => format!("{what} {first}"),
        more => format!("{what} {first} and {more} more"),
    })
}

fn applied(result: RequestResult) -> anyhow::Result<RequestResult> {
    if result.is_applied() {
        return Ok(result);
    }
    Err(exit::with_code(exit::REFUSED, anyhow!("{}", refusal(&result))))
}

fn refused_transaction(result: &RequestResult) -> anyhow::Error {
    let error = anyhow!("nothing was written: object {}: {}", result.object, refusal(result));
    exit::with_code(exit::REFUSED, error)
}

/// A refusal in one line.
#[must_use]
pub fn refusal(result: &RequestResult) -> String {
    let field = result.field.as_ref().map_or_else(String::new, |field| format!("{field}: "));
    format!("refused: {field}{}", result.reason.as_deref().unwrap_or("no reason given"))
}

/// A new request id.
#[must_use]
pub fn request_id() -> String {
    format!("cli-{}", Uuid::new_v4())
}

/// Who writes, by a new request id.
#[must_use]
pub fn author() -> Author {
    Author { id: request_id(), writer: writer() }
}

/// Who writes: the person's login name, as far as the environment says.
#[must_use]
pub fn writer() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "unknown".to_owned());
    format!("sparkfleet-cli/{user}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_a_command_waits_every_change_is_said_once() {
        let start = Instant::now();
        let mut progress = Progress::new(start + PATIENCE);
        let mut next = |after: u64, text: &str| {
            progress.next(start + Duration::from_secs(after), || Some(text.to_owned()).filter(|text| !text.is_empty()))
        };
        assert_eq!(next(1, "pending"), None, "what takes a moment says nothing");
        assert_eq!(next(2, "pending").as_deref(), Some("pending"));
        assert_eq!(next(3, "pending"), None);
        assert_eq!(next(4, ""), None);
        assert_eq!(next(5, "ready").as_deref(), Some("ready"));
    }

    #[test]
    fn a_password_comes_from_its_file_and_is_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        std::fs::write(&file, "correct horse\r\n").unwrap();
        let line = format!("sparkfleet status --username ada --password-file {}", file.display());
        let connection = |line: &str| match crate::arguments::parsed(line.split(' ')).unwrap() {
            crate::Command::Status { options, .. } => options.connection,
            other => panic!("{other:?}"),
        };
        let config = mqtt_config(&connection(&line)).unwrap();
        assert_eq!(config.username.as_deref(), Some("ada"));
        assert!(config.password.is_set() && !format!("{config:?}").contains("correct horse"));
        let error = mqtt_config(&connection(&format!("{line}.none"))).unwrap_err();
        assert_eq!(exit::code_of(&error), exit::CONFIG);
        assert!(error.to_string().contains("--password-file"), "{error}");
    }
}
