//! One MQTT session, from CONNECT to the end of its socket.
//!
//! Everything of a session lives and dies with it: will, outbox, packet ids. A reconnecting client would send what was queued for the old session before the birth of
//! the new one, with the old will. So each session has its own client and event loop, and nothing is carried over.
//!
//! [`Session::next`] can be cancelled at any time.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

use bytes::Bytes;
use futures::StreamExt;
use sparkplug::session::{Connect, Publish, QoS};
use tokio::time::Instant;

use crate::client_id::{ClientId, End};
use crate::config::{KEEP_ALIVE_MIN_V5, MqttConfig, Protocol};
use crate::config_error::MqttConfigError;
use crate::link::{Fault, HANDED_MAX, Link, Signal, Version, VersionDoubt, takes_nothing, too_large_to_send};
use crate::receipts::Receipts;
use crate::server_address::ServerAddress;
use crate::tls::{FileChange, Fingerprint, look};

/// Bytes or messages in the outbox from which on no further work should be taken on ("congested"). The socket has to make room first.
const CONGESTED_BYTES: usize = 4 * 1024 * 1024;
const CONGESTED_MESSAGES: usize = 2_000;

/// Payload bytes with the link from which on it gets no more for now.
const HANDED_BYTES: usize = 1024 * 1024;

/// Fixed header, length of the topic, packet id, and in MQTT 5 the length of no properties: what a PUBLISH takes besides topic and payload.
const PUBLISH_OVERHEAD: usize = 10;

/// What happened in a session.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    /// CONNACK.
    Connected,
    /// Every SUBSCRIBE so far is acknowledged, no filter was refused.
    Subscribed,
    /// PUBLISH.
    Message { topic: String, payload: Bytes, qos: QoS, retain: bool },
    /// PUBLISH whose payload was skipped, because it is larger than what is taken.
    Oversized { topic: String, bytes: usize, max: usize, retain: bool },
    /// The server has so many of the publishes of this session for certain.
    Received { publishes: u64 },
    /// Something went out or was acknowledged.
    Progress,
    /// The end.
    Over { reason: String, reached: bool },
}

enum Request {
    Subscribe(Vec<(String, QoS)>),
    Publish(Publish),
    Disconnect,
}

/// See the module.
pub(crate) struct Session {
    link: Link,
    /// Came over the link and is still to be reported.
    arrived: vec::IntoIter<Result<Signal, Fault>>,
    server: ServerAddress,
    /// Its place in the configured list.
    server_index: usize,
    version: Version,
    /// How it was opened, as long as another version of MQTT may be tried with it.
    may_be_older: Option<Connect>,
    doubt: VersionDoubt,
    packet_bytes_max: usize,
    /// A DISCONNECT would make the server drop a will that it is to publish: the session ends with its socket.
    closes_silently: bool,
    /// When CONNACK came.
    connected_at: Option<Instant>,
    /// Who ended it, once it is over.
    end: End,
    outbox: VecDeque<Request>,
    outbox_bytes: usize,
    /// Payload bytes of each request that was handed to the link and is not yet written to the socket.
    handed: VecDeque<usize>,
    handed_bytes: usize,
    /// QoS 1 publishes without PUBACK, the handed ones included.
    unacknowledged: usize,
    /// Filters of each SUBSCRIBE without SUBACK.
    subscribing: VecDeque<Vec<String>>,
    receipts: Receipts,
    disconnect_sent: bool,
    /// A fault found outside the link; reported by the next call of [`Session::next`].
    fault: Option<String>,
    /// Since when nothing happened although something was handed over.
    stuck_since: Option<Instant>,
    stuck_max: Duration,
}

impl Session {
    /// A session that connects while [`Session::next`] is awaited. Reads certificate files: blocks on the disk.
    pub(crate) fn open(
        config: &MqttConfig,
        server: &ServerAddress,
        client_id: &str,
        version: Version,
        connect: Connect,
    ) -> Result<Self, MqttConfigError> {
        // tck-id-payloads-ndeath-will-message-publisher-disconnect-mqtt50: a DISCONNECT of an Edge Node would need reason 0x04, which rumqttc cannot send. Without
        // DISCONNECT the server publishes the will just the same.
        let closes_silently = version == Version::V5 && connect.bd_seq.is_some();
        let is_choice = config.protocol == Protocol::Auto && version == Version::V5;
        Ok(Self {
            server_index: connect.server,
            version,
            may_be_older: is_choice.then(|| connect.clone()),
            doubt: VersionDoubt::None,
            link: Link::open(config, server, client_id, version, connect)?,
            arrived: Vec::new().into_iter(),
            server: server.clone(),
            packet_bytes_max: config.packet_bytes_max,
            closes_silently,
            connected_at: None,
            end: End::Other,
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            handed: VecDeque::new(),
            handed_bytes: 0,
            unacknowledged: 0,
            subscribing: VecDeque::new(),
            receipts: Receipts::default(),
            disconnect_sent: false,
            fault: None,
            stuck_since: None,
            // Where the client itself notices a write that is stuck, it does so sooner. Pings bring a sign of life in every keep-alive time.
            stuck_max: Duration::from_secs(config.connect_timeout_s) + config.keep_alive(),
        })
    }

    /// Of the certificate files that the connection was made with; None without TLS, and before the server has accepted it.
    pub(crate) fn files(&self) -> Option<Fingerprint> {
        self.link.files.filter(|_| self.is_connected())
    }

    pub(crate) const fn is_connected(&self) -> bool {
        self.connected_at.is_some()
    }

    /// Something waits to be sent.
    pub(crate) fn is_sending(&self) -> bool {
        !self.handed.is_empty() || !self.outbox.is_empty()
    }

    /// So much waits to be sent that no more should be produced.
    pub(crate) fn is_congested(&self) -> bool {
        self.outbox_bytes >= CONGESTED_BYTES || self.outbox.len() >= CONGESTED_MESSAGES
    }

    pub(crate) fn subscribe(&mut self, filters: Vec<(String, QoS)>) {
        self.enqueue(Request::Subscribe(filters));
    }

    pub(crate) fn publish(&mut self, publish: Publish) {
        let bytes = publish.topic.len() + publish.payload.len() + PUBLISH_OVERHEAD;
        if bytes > self.packet_bytes_max {
            self.fault = Some(too_large_to_send(bytes, self.packet_bytes_max));
            return;
        }
        self.outbox_bytes += publish.payload.len();
        self.enqueue(Request::Publish(publish));
    }

    /// The end, after everything before it is out and what has QoS 1 is acknowledged: DISCONNECT, or the mere end of the socket. Followed by [`SessionEvent::Over`].
    pub(crate) fn disconnect(&mut self) {
        self.enqueue(Request::Disconnect);
    }

    /// What happens next. Nothing is sent or received unless this is awaited. Can be cancelled without loss.
    pub(crate) async fn next(&mut self) -> SessionEvent {
        loop {
            if let Some(event) = self.next_arrived() {
                return event;
            }
            let stuck_at = self.stuck_since.filter(|_| !self.handed.is_empty()).map(|since| since + self.stuck_max);
            let batch = tokio::select! {
                batch = self.link.signals.next() => batch,
                () = sleep_until(stuck_at) => return self.over(takes_nothing(&self.server)),
            };
            let Some(batch) = batch else { return self.over("the session is over".to_owned()) };
            self.arrived = batch.into_iter();
            self.stuck_since = None;
            self.hand_over();
        }
    }

    /// What is there already, without a look at the socket.
    pub(crate) fn next_arrived(&mut self) -> Option<SessionEvent> {
        if let Some(reason) = self.fault.take() {
            return Some(SessionEvent::Over { reason, reached: self.is_connected() });
        }
        if self.disconnect_sent && self.closes_silently {
            return Some(self.over("disconnected".to_owned()));
        }
        Some(match self.arrived.next()? {
            Ok(signal) => {
                let event = self.on_signal(signal);
                self.hand_over();
                event
            }
            Err(_) if self.disconnect_sent => self.over("disconnected".to_owned()),
            Err(fault) => {
                self.doubt = fault.version;
                self.end = fault.end;
                SessionEvent::Over { reason: fault.reason, reached: self.is_connected() || fault.reached }
            }
        })
    }

    /// With what to connect again at once in MQTT 3.1.1. None: the session did not end for its version, or not for certain. If it is not certain, the server may hold a
    /// will of the session that would end the next session of the same bdSeq.
    pub(crate) fn older_connect(&mut self) -> Option<Connect> {
        let connect = self.may_be_older.take().filter(|_| !self.is_connected())?;
        let is_safe = match self.doubt {
            VersionDoubt::None => false,
            VersionDoubt::Unclear => connect.bd_seq.is_none(),
            VersionDoubt::Refused => true,
        };
        is_safe.then_some(connect)
    }

    fn enqueue(&mut self, request: Request) {
        self.outbox.push_back(request);
        self.hand_over();
    }

    /// Gives the link as much as it should hold.
    fn hand_over(&mut self) {
        if !self.is_connected() {
            return;
        }
        while self.handed.len() < HANDED_MAX && self.handed_bytes < HANDED_BYTES {
            if matches!(self.outbox.front(), Some(Request::Disconnect))
                && (!self.handed.is_empty() || self.unacknowledged > 0)
            {
                break;
            }
            let Some(request) = self.outbox.pop_front() else { break };
            let mut bytes = 0;
            let is_taken = match request {
                Request::Subscribe(filters) => {
                    self.subscribing.push_back(filters.iter().map(|(filter, _)| filter.clone()).collect());
                    self.link.subscribe(filters)
                }
                Request::Publish(publish) => {
                    bytes = publish.payload.len();
                    self.outbox_bytes -= bytes;
                    self.unacknowledged += usize::from(publish.qos == QoS::AtLeastOnce);
                    self.link.publish(publish)
                }
                Request::Disconnect => {
                    self.disconnect_sent = true;
                    self.closes_silently || self.link.disconnect()
                }
            };
            if !is_taken {
                // There was room, so the topic or a filter is not a legal one.
                self.fault = Some("the client refused a topic or filter as illegal".to_owned());
                break;
            }
            self.handed.push_back(bytes);
            self.handed_bytes += bytes;
        }
        if !self.handed.is_empty() {
            self.stuck_since.get_or_insert_with(Instant::now);
        }
    }

    fn on_signal(&mut self, signal: Signal) -> SessionEvent {
        match signal {
            Signal::Accepted => {
                self.connected_at = Some(Instant::now());
                SessionEvent::Connected
            }
            Signal::Message { topic, payload, qos, retain } => SessionEvent::Message { topic, payload, qos, retain },
            Signal::Oversized { topic, bytes, max, retain } => SessionEvent::Oversized { topic, bytes, max, retain },
            Signal::Subscribed(refusals) => self.on_subscribed(refusals),
            Signal::Acknowledged { id, refused } => {
                self.unacknowledged = self.unacknowledged.saturating_sub(1);
                if let Some(reason) = refused {
                    return self
                        .over(format!("{} refuses a message of QoS 1 (STATE or NDEATH): {reason}", self.server));
                }
                self.receipts.acknowledged(id).map_or(SessionEvent::Progress, received)
            }
            Signal::Pong => self.receipts.pong().map_or(SessionEvent::Progress, received),
            Signal::WrittenPublish { id } => {
                self.written();
                self.receipts.written(id);
                SessionEvent::Progress
            }
            Signal::WrittenRequest => {
                self.written();
                SessionEvent::Progress
            }
            Signal::WrittenPing => {
                self.receipts.ping();
                SessionEvent::Progress
            }
        }
    }

    /// The link writes in the order in which it was asked.
    fn written(&mut self) {
        self.handed_bytes -= self.handed.pop_front().unwrap_or_default();
    }

    fn on_subscribed(&mut self, refusals: Vec<Option<String>>) -> SessionEvent {
        let Some(filters) = self.subscribing.pop_front() else {
            return SessionEvent::Progress;
        };
        let answers = refusals.len();
        let refused: Vec<(&String, String)> =
            filters.iter().zip(refusals).filter_map(|(filter, refusal)| Some((filter, refusal?))).collect();
        if let Some((_, why)) = refused.first() {
            let names: Vec<&str> = refused.iter().map(|(filter, _)| filter.as_str()).collect();
            return self.over(format!("{} refuses the subscription to {}; {why}", self.server, names.join(", ")));
        }
        if answers != filters.len() {
            return self.over(format!("{} acknowledged {answers} of {} filters", self.server, filters.len()));
        }
        if self.subscribing.is_empty() { SessionEvent::Subscribed } else { SessionEvent::Progress }
    }

    fn over(&self, reason: String) -> SessionEvent {
        SessionEvent::Over { reason, reached: self.is_connected() }
    }
}

const fn received(publishes: u64) -> SessionEvent {
    SessionEvent::Received { publishes }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => pending().await,
    }
}

/// Which version of MQTT the next session with a server is opened in, where the configuration leaves it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Spoken {
    #[default]
    V5,
    /// One session in MQTT 3.1.1: the last CONNECT failed, and it is not clear why.
    V311Once,
    /// The server said that it does not speak MQTT 5.
    V311,
}

/// Opens sessions of one machine: everything that stays the same between them, and what was learnt of the servers.
#[derive(Debug)]
pub(crate) struct Connector {
    config: Arc<MqttConfig>,
    servers: Vec<ServerAddress>,
    client_id: ClientId,
    spoken: Vec<Spoken>,
}

impl Connector {
    /// Validates the configuration.
    pub(crate) fn new(config: MqttConfig, client_id: ClientId) -> Result<Self, MqttConfigError> {
        config.validate()?;
        let servers = config.addresses()?;
        for server in servers.iter().filter(|server| !server.scheme.is_tls() && !server.is_loopback()) {
            if config.password.is_set() {
                tracing::warn!(server = %server, "the password is sent without encryption; use TLS");
            }
        }
        let spoken = vec![Spoken::default(); servers.len()];
        Ok(Self { config: Arc::new(config), servers, client_id, spoken })
    }

    pub(crate) fn config(&self) -> &MqttConfig {
        &self.config
    }

    /// Whether the certificate files still hold what a session was opened with.
    pub(crate) async fn look(&self, used: Fingerprint) -> FileChange {
        let paths = self.config.certificate_files();
        // Only the end of the process cancels it.
        tokio::task::spawn_blocking(move || look(&paths, used)).await.unwrap_or(FileChange::Same)
    }

    /// The same for one of the servers alone.
    pub(crate) fn only(&self, server: usize) -> Self {
        let servers: Vec<_> = self.servers.get(server).into_iter().cloned().collect();
        let spoken = vec![Spoken::default(); servers.len()];
        Self { config: Arc::clone(&self.config), servers, client_id: self.client_id.clone(), spoken }
    }

    pub(crate) fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Half a ping interval and less: a pause of reading that neither we nor the server take for a dead link.
    pub(crate) fn patience(&self) -> Duration {
        self.config.keep_alive() / 4
    }

    pub(crate) fn open(&self, connect: Connect) -> Result<Session, MqttConfigError> {
        // A machine that counts further than the list would be at fault; the first server is as good as any.
        let server = self.servers.get(connect.server).unwrap_or(&self.servers[0]);
        tracing::debug!(server = %server, client_id = self.client_id.as_str(), bd_seq = connect.bd_seq.map(|n| n.get()), "connecting");
        let version = self.version(connect.server);
        Session::open(&self.config, server, self.client_id.as_str(), version, connect)
    }

    fn version(&self, server: usize) -> Version {
        let spoken = self.spoken.get(server).copied().unwrap_or_default();
        match self.config.protocol {
            Protocol::V5 => Version::V5,
            Protocol::V311 => Version::V311,
            Protocol::Auto if self.config.keep_alive_s < KEEP_ALIVE_MIN_V5 || spoken != Spoken::V5 => Version::V311,
            Protocol::Auto => Version::V5,
        }
    }

    /// Learns from a session that is up.
    pub(crate) fn accepted(&self, session: &Session) {
        if self.spoken.get(session.server_index) == Some(&Spoken::V311Once) && session.version == Version::V311 {
            tracing::info!(server = %session.server, "the server did not accept a connection in MQTT 5; MQTT 3.1.1 is spoken with it");
        }
    }

    /// Learns from a session that is over.
    pub(crate) fn ended(&mut self, session: &Session) {
        let warning = session.connected_at.and_then(|at| self.client_id.ended(session.end, at.elapsed()));
        if let Some(warning) = warning {
            tracing::warn!(server = %session.server, "{warning}");
        }
        let Some(spoken) = self.spoken.get_mut(session.server_index) else { return };
        match (session.version, session.doubt) {
            _ if self.config.protocol != Protocol::Auto || *spoken == Spoken::V311 => {}
            (Version::V5, VersionDoubt::Refused) if !session.is_connected() => {
                tracing::info!(server = %session.server, "the server does not speak MQTT 5; MQTT 3.1.1 is spoken with it");
                *spoken = Spoken::V311;
            }
            (Version::V5, VersionDoubt::Unclear) if !session.is_connected() => *spoken = Spoken::V311Once,
            (Version::V5 | Version::V311, _) => *spoken = Spoken::V5,
        }
    }
}
