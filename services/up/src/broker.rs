//! The embedded MQTT server, for running everything on one machine: MQTT 3.1.1 and 5, in memory, on the loopback interface.
//!
//! Behind an interface of our own, so that the crate that does the work can be exchanged by changing this file alone. Of Sparkplug it knows births: it keeps them
//! as certificates. Production uses the site's server (Mosquitto and others); nothing here is needed then.
//!
//! Limits, chosen and known:
//! - Only loopback addresses, because there is no TLS, and everyone who reaches the port may connect, unless a [`Guard`] says otherwise.
//! - Nothing outlives the process: retained messages (STATE) are published again by the hosts when they reconnect.
//! - QoS 0 messages beyond [`CLIENT_QUEUE_MESSAGES`] waiting for one slow client are dropped; its Sparkplug host sees a gap and asks for rebirth.
//! - To unsubscribe from a filter with wildcards is answered in MQTT 5 as if there had been no such subscription (reason 0x11), although it ends.
//! - Certificates of births are bounded for each group and over all; NDEATH keeps the timestamp that its node gave it.
//! - Client ids must not hold `/`, `\` or control characters, and at most 128 bytes.
//!
//! A client id belongs to the user whose session has it: no one else takes that session over.

mod certificates;
mod index;
mod subscribers;

use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use certificates::Certificates;
use index::Index;
use mqtt5::QoS;
use mqtt5::broker::auth::{AuthProvider, AuthResult};
use mqtt5::broker::config::{AuthConfig, RateLimitConfig, StorageBackend, StorageConfig};
use mqtt5::broker::events::{
    BrokerEventHandler, ClientConnectEvent, ClientDisconnectEvent, ClientPublishEvent, ClientSubscribeEvent,
    ClientUnsubscribeEvent, PublishAction,
};
use mqtt5::broker::router::MessageRouter;
use mqtt5::broker::{BrokerConfig as Mqtt5Config, BrokerShutdownHandle, MqttBroker};
use mqtt5::packet::connect::ConnectPacket;
use mqtt5::packet::publish::PublishPacket;
use mqtt5::protocol::v5::reason_codes::ReasonCode;
use tokio::task::JoinHandle;

/// Messages that may wait for one client, for each of QoS 0 and QoS 1. A client that replicates a whole fleet gets the births of all nodes at once after a restart: tens of thousands of
/// messages, faster than it can decode them. The queues are made as they fill, so an idle client costs nothing.
pub const CLIENT_QUEUE_MESSAGES: usize = 100_000;

/// Level of the protocol that MQTT 5 names in CONNECT.
const MQTT_5: u8 = 5;

/// Client ids of which the user is remembered; more are refused. Beside those with a session these are the ones whose CONNECT is being answered.
const HOLDERS_MAX: usize = 100_000;

/// Longest time from a CONNECT to the session. The end of a connection that came to nothing before is not reported.
const HANDSHAKE_MAX: Duration = Duration::from_secs(60);

/// Longest time that [`Broker::stop`] waits for the sessions to end.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Settings of a [`Broker`].
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// Where to listen; port 0 takes a free one. Must be a loopback address.
    pub listen: SocketAddr,
    /// Largest MQTT packet taken. The CONNACK of MQTT 5 names it. The connection of who sends a larger one is closed when its length is known; the rest is not read.
    pub max_packet_bytes: usize,
    /// Connections at a time.
    pub max_clients: usize,
    /// Who may connect, and for what. None: everyone, for everything.
    pub guard: Option<Arc<dyn Guard>>,
}

/// Decides who may connect, and what they may say and receive. It is asked for each connection, message and subscription, so it answers at once. No name: none was shown.
pub trait Guard: fmt::Debug + Send + Sync {
    /// Whether someone with that name and password may connect.
    fn admits(&self, user: Option<&str>, password: &[u8]) -> bool;

    /// Whether they may publish to that topic; a will is published, too.
    fn may_publish(&self, user: Option<&str>, topic: &str) -> bool;

    /// Whether they may receive all that the topic filter stands for.
    fn may_subscribe(&self, user: Option<&str>, filter: &str) -> bool;
}

impl Default for BrokerConfig {
    /// 127.0.0.1:1883, packets of 4 MiB, 10,000 clients, everyone.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 1883)),
            max_packet_bytes: 4 * 1024 * 1024,
            max_clients: 10_000,
            guard: None,
        }
    }
}

/// Why the embedded broker does not run.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The address can be reached from other machines.
    #[error(
        "the embedded broker only listens on a loopback address, not on {listen}, because it asks no client for a password; use 127.0.0.1, or an MQTT server such as Mosquitto with --broker"
    )]
    NotLoopback {
        /// The address asked for.
        listen: SocketAddr,
    },
    /// Someone else has the port.
    #[error(
        "{listen} is already in use, perhaps by another MQTT server or another sparkfleet; stop it, use it with --broker mqtt://{listen}, or choose another address with --listen"
    )]
    AddressInUse {
        /// The address asked for.
        listen: SocketAddr,
    },
    /// The operating system refuses the address for another reason.
    #[error("cannot listen on {listen}; choose another address with --listen")]
    Listen {
        /// The address asked for.
        listen: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The broker did not start for another reason.
    #[error("the embedded broker did not start on {listen}: {reason}")]
    Start {
        /// The address asked for.
        listen: SocketAddr,
        /// What it says.
        reason: String,
    },
}

/// A running broker. Dropping it ends it and closes every connection; [`Broker::stop`] also waits for that.
pub struct Broker {
    local_addr: SocketAddr,
    shutdown: BrokerShutdownHandle,
    task: JoinHandle<()>,
}

impl Broker {
    /// Starts a broker; when this returns, clients can connect.
    ///
    /// # Errors
    /// [`BrokerError`] names the address and says what to do.
    pub async fn start(config: BrokerConfig) -> Result<Self, BrokerError> {
        let listen = config.listen;
        if !listen.ip().is_loopback() {
            return Err(BrokerError::NotLoopback { listen });
        }
        try_listen(listen).await?;
        let failed = |reason: String| BrokerError::Start { listen, reason };
        let holders = Arc::new(Holders::default());
        let index = Arc::new(Index::default());
        let watch = Arc::new(Watch {
            holders: Arc::clone(&holders),
            certificates: Mutex::default(),
            index: Arc::clone(&index),
        });
        let settings = mqtt5_config(&config).with_event_handler(watch as Arc<dyn BrokerEventHandler>);
        let broker = MqttBroker::with_config(settings).await.map_err(|error| failed(error.to_string()))?;
        let storage = broker.storage().ok_or_else(|| failed("it has no store of sessions".to_owned()))?;
        index.attach(&broker.router(), storage);
        let door = Door { guard: config.guard, router: broker.router(), holders, index };
        let mut broker = broker.with_auth_provider(Arc::new(door));
        let local_addr = broker.local_addr().ok_or_else(|| failed("it has no address".to_owned()))?;
        let mut ready = broker.ready_receiver();
        let shutdown = broker.shutdown_handle();
        let task = tokio::spawn(async move {
            if let Err(error) = broker.run().await {
                tracing::error!(error = %error, "the embedded broker ended");
            }
        });
        if ready.wait_for(|ready| *ready).await.is_err() {
            return Err(failed("it ended at once".to_owned()));
        }
        tracing::info!(address = %local_addr, "embedded broker listens");
        Ok(Self { local_addr, shutdown, task })
    }

    /// Where it listens; with the real port if 0 was asked for.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The address as an entry of `mqtt.servers`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mqtt://{}", self.local_addr)
    }

    /// Closes every connection and the port, and returns when that is done.
    pub async fn stop(mut self) {
        self.shutdown.shutdown();
        if tokio::time::timeout(STOP_MAX, &mut self.task).await.is_err() {
            tracing::warn!(elapsed_ms = STOP_MAX.as_millis(), "the embedded broker did not end in time; it is cut off");
        }
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("local_addr", &self.local_addr).finish_non_exhaustive()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.shutdown.shutdown();
        self.task.abort();
    }
}

/// Who has which client id.
#[derive(Default)]
struct Holders(Mutex<HashMap<String, Holder>>);

/// The user of a client id. Two connections are its own while one takes the other over.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    user: Option<String>,
    /// Of MQTT, on the latest connection.
    version: u8,
    /// Connections with a session.
    sessions: u32,
    /// When the latest CONNECT came whose session has not begun.
    entering: Option<Instant>,
    /// How long the session outlives its connection; None: for ever.
    outlives: Option<Duration>,
    /// Since when there is no connection.
    left: Option<Instant>,
}

impl Holder {
    fn is_connected(&self, now: Instant) -> bool {
        self.sessions > 0 || self.entering.is_some_and(|since| now.duration_since(since) < HANDSHAKE_MAX)
    }

    fn is_there(&self, now: Instant) -> bool {
        let outlives = |since: Instant| self.outlives.is_none_or(|outlives| now.duration_since(since) < outlives);
        self.is_connected(now) || self.left.is_some_and(outlives)
    }
}

impl Holders {
    /// Takes a new connection in; the version that the client spoke on the one before it, if that lasts.
    ///
    /// # Errors
    /// The client id is that of a session of another user, or there are too many.
    fn enter(&self, connect: &ConnectPacket, now: Instant) -> Result<Option<u8>, ReasonCode> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= HOLDERS_MAX {
            known.retain(|_, holder| holder.is_there(now));
        }
        let present = known.get(&connect.client_id).filter(|holder| holder.is_there(now));
        if present.is_some_and(|holder| holder.user != connect.username) {
            return Err(ReasonCode::ClientIdentifierNotValid);
        }
        if present.is_none() && known.len() >= HOLDERS_MAX {
            return Err(ReasonCode::ServerBusy);
        }
        let before = present.filter(|holder| holder.is_connected(now)).map(|holder| holder.version);
        let holder = Holder {
            user: connect.username.clone(),
            version: connect.protocol_version,
            sessions: present.map_or(0, |holder| holder.sessions),
            entering: Some(now),
            outlives: outlives(connect),
            left: None,
        };
        known.insert(connect.client_id.clone(), holder);
        Ok(before)
    }

    /// A session has begun; whether it ends with its connection.
    fn begin(&self, client: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(holder) = known.get_mut(client) else { return false };
        (holder.sessions, holder.entering) = (holder.sessions + 1, None);
        holder.outlives == Some(Duration::ZERO)
    }

    /// A connection has ended; whether it was the last.
    fn leave(&self, client: &str, now: Instant) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(holder) = known.get_mut(client) else { return true };
        holder.sessions = holder.sessions.saturating_sub(1);
        if !holder.is_connected(now) {
            holder.left = Some(now);
        }
        let was_last = holder.sessions == 0;
        if !holder.is_there(now) {
            known.remove(client);
        }
        was_last
    }
}

/// How long the session of a CONNECT lasts without a connection; None: for ever.
fn outlives(connect: &ConnectPacket) -> Option<Duration> {
    let seconds = match connect.protocol_version {
        MQTT_5 => connect.properties.get_session_expiry_interval().unwrap_or(0),
        _ if connect.clean_start => 0,
        _ => u32::MAX,
    };
    (seconds < u32::MAX).then(|| Duration::from_secs(seconds.into()))
}

/// Follows what clients do.
struct Watch {
    holders: Arc<Holders>,
    certificates: Mutex<Certificates>,
    index: Arc<Index>,
}

impl Watch {
    /// Keeps a message if it is a birth (tck-id-conformance-mqtt-aware-store). Only what its client may publish comes here.
    async fn certify(&self, event: &ClientPublishEvent) {
        let certificate = certificates::certificate_of(&event.topic);
        let (Some((certificate, group)), Some(router)) = (certificate, self.index.router()) else { return };
        // A retained message without payload would be none.
        if event.payload.is_empty() {
            return;
        }
        let gone = {
            let mut kept = self.certificates.lock().unwrap_or_else(PoisonError::into_inner);
            kept.keep(&group, &certificate, event.payload.len())
        };
        // tck-id-conformance-mqtt-aware-nbirth-mqtt-retain, tck-id-conformance-mqtt-aware-dbirth-mqtt-retain
        let retained = |topic: String, payload| {
            let mut packet = PublishPacket::new(topic, payload, QoS::AtMostOnce);
            packet.retain = true;
            packet
        };
        self.index.server_publishes(&certificate).await;
        router.route_message(&retained(certificate, event.payload.clone()), None).await;
        for certificate in gone {
            self.index.server_publishes(&certificate).await;
            router.route_message(&retained(certificate, event.payload.slice(0..0)), None).await;
        }
    }
}

impl BrokerEventHandler for Watch {
    fn on_client_connect<'a>(&'a self, event: ClientConnectEvent) -> HookFuture<'a, ()> {
        Box::pin(async move {
            let ends_with_connection = self.holders.begin(&event.client_id);
            self.index.connected(&event.client_id, ends_with_connection).await;
        })
    }

    fn on_client_disconnect<'a>(&'a self, event: ClientDisconnectEvent) -> HookFuture<'a, ()> {
        Box::pin(async move {
            if self.holders.leave(&event.client_id, Instant::now()) {
                self.index.disconnected(&event.client_id).await;
            }
        })
    }

    fn on_client_subscribe<'a>(&'a self, event: ClientSubscribeEvent) -> HookFuture<'a, ()> {
        Box::pin(async move { self.index.subscribed(&event).await })
    }

    fn on_client_unsubscribe<'a>(&'a self, event: ClientUnsubscribeEvent) -> HookFuture<'a, ()> {
        Box::pin(async move { self.index.unsubscribed(&event).await })
    }

    fn on_client_publish<'a>(&'a self, event: ClientPublishEvent) -> HookFuture<'a, PublishAction> {
        Box::pin(async move {
            if event.qos == QoS::ExactlyOnce {
                self.index.exactly_once(&event.client_id, &event.topic).await;
            }
            self.certify(&event).await;
            PublishAction::Continue
        })
    }
}

/// Lets clients in.
struct Door {
    guard: Option<Arc<dyn Guard>>,
    router: Arc<MessageRouter>,
    holders: Arc<Holders>,
    index: Arc<Index>,
}

impl Door {
    fn judge(&self, connect: &ConnectPacket) -> AuthResult {
        let user = connect.username.as_deref();
        let Some(guard) = &self.guard else { return AuthResult::success() };
        match (guard.admits(user, connect.password.as_deref().unwrap_or_default()), user) {
            (true, Some(user)) => AuthResult::success_with_user(user),
            (true, None) => AuthResult::success(),
            (false, _) => AuthResult::fail(ReasonCode::BadUsernameOrPassword),
        }
    }
}

type HookFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl AuthProvider for Door {
    fn authenticate<'a>(
        &'a self,
        connect: &'a ConnectPacket,
        _client_addr: SocketAddr,
    ) -> HookFuture<'a, mqtt5::error::Result<AuthResult>> {
        Box::pin(async move {
            let result = self.judge(connect);
            if result.authenticated {
                let before = match self.holders.enter(connect, Instant::now()) {
                    Ok(before) => before,
                    Err(reason) => {
                        tracing::warn!(client = connect.client_id, ?reason, "the client id is not to be had");
                        return Ok(AuthResult::fail(reason));
                    }
                };
                // A client that is taken over would be sent a DISCONNECT of MQTT 5, which 3.1.1 does not have: there the connection just ends, and the will is published.
                if before.is_some_and(|version| version < MQTT_5) {
                    self.router.disconnect_client(&connect.client_id).await;
                }
            }
            Ok(result)
        })
    }

    /// Is asked before each message and each will is routed, so that what the router needs for it is done here.
    fn authorize_publish<'a>(&'a self, client: &str, user: Option<&'a str>, topic: &'a str) -> HookFuture<'a, bool> {
        let may = || self.guard.as_ref().is_none_or(|guard| guard.may_publish(user, topic));
        let (client, may) = (client.to_owned(), !certificates::is_reserved(topic) && may());
        Box::pin(async move {
            if may {
                self.index.publishing(&client, topic).await;
            }
            may
        })
    }

    fn authorize_subscribe<'a>(
        &'a self,
        _client: &str,
        user: Option<&'a str>,
        filter: &'a str,
    ) -> HookFuture<'a, bool> {
        Box::pin(ready(self.guard.as_ref().is_none_or(|guard| guard.may_subscribe(user, filter))))
    }
}

/// Finds out in the operating system's own terms why the address cannot be had. The library gives it only as text.
async fn try_listen(listen: SocketAddr) -> Result<(), BrokerError> {
    match tokio::net::TcpListener::bind(listen).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(BrokerError::AddressInUse { listen }),
        Err(source) => Err(BrokerError::Listen { listen, source }),
    }
}

fn mqtt5_config(config: &BrokerConfig) -> Mqtt5Config {
    let mut auth = AuthConfig::new().with_allow_anonymous(true);
    // Counts per address, and on one machine all clients have the same.
    auth.rate_limit = RateLimitConfig { enabled: false, ..RateLimitConfig::default() };
    Mqtt5Config::new()
        .with_bind_addresses(vec![config.listen])
        .with_max_clients(config.max_clients)
        .with_max_packet_size(config.max_packet_bytes)
        .with_client_channel_capacity(CLIENT_QUEUE_MESSAGES)
        .with_sys_topics_enabled(false)
        .with_server_receive_maximum(subscribers::EXACTLY_ONCE_MAX)
        .with_auth(auth)
        // Its default is a directory in the working directory.
        .with_storage(StorageConfig::new().with_backend(StorageBackend::Memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback(port: u16) -> BrokerConfig {
        BrokerConfig { listen: SocketAddr::from(([127, 0, 0, 1], port)), ..BrokerConfig::default() }
    }

    #[tokio::test]
    async fn port_0_becomes_a_real_port_that_is_free_again_after_stop() {
        let broker = Broker::start(loopback(0)).await.unwrap();
        let port = broker.local_addr().port();
        assert_ne!(port, 0);
        assert_eq!(broker.url(), format!("mqtt://127.0.0.1:{port}"));
        tokio::net::TcpStream::connect(broker.local_addr()).await.unwrap();
        broker.stop().await;
        Broker::start(loopback(port)).await.unwrap().stop().await;
    }

    #[tokio::test]
    async fn a_taken_port_is_reported_with_the_address_and_the_way_out() {
        let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = Broker::start(loopback(address.port())).await.unwrap_err();
        assert!(matches!(error, BrokerError::AddressInUse { listen } if listen == address), "{error}");
        assert!(error.to_string().contains(&format!("--broker mqtt://{address}")), "{error}");
    }

    #[tokio::test]
    async fn an_address_that_others_can_reach_is_refused() {
        let config = BrokerConfig { listen: "0.0.0.0:0".parse().unwrap(), ..BrokerConfig::default() };
        assert!(matches!(Broker::start(config).await.unwrap_err(), BrokerError::NotLoopback { .. }));
    }

    #[tokio::test]
    async fn dropping_the_broker_frees_the_port() {
        let broker = Broker::start(loopback(0)).await.unwrap();
        let port = broker.local_addr().port();
        drop(broker);
        for _ in 0..100 {
            if Broker::start(loopback(port)).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("port {port} is still taken");
    }
}
