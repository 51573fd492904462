//! One MQTT session, from CONNECT to the end of its socket: the only module that knows rumqttc (its MQTT 3.1.1 client).
//!
//! Everything of a session lives and dies with it: will, outbox, packet ids. A reconnecting client would send what was queued for the old session before the birth of
//! the new one, with the old will; so each session has its own client and event loop, and nothing is carried over.
//!
//! The event loop's `poll` loses a packet when its future is dropped while the socket is not writable. So its futures live in a stream that
//! is polled but never dropped before the session is over; [`Session::next`] itself can be cancelled at any time.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use rumqttc::mqttbytes::Error as CodecError;
use rumqttc::{
    AsyncClient, ConnectReturnCode, ConnectionError, Event, LastWill, MqttOptions, NetworkOptions, Outgoing, Packet,
    StateError, SubscribeFilter, SubscribeReasonCode, TlsConfiguration, TlsError, Transport,
};
use sparkplug::session::{Connect, Publish, QoS};

use crate::config::{MqttConfig, MqttConfigError, ServerAddress};
use crate::tls;

/// Requests handed to rumqttc ahead of the socket. It takes them one by one; a few keep it from waiting for us.
const HANDED_MAX: usize = 64;

/// Bytes or messages in the outbox from which on no further work should be taken on ("congested"). The socket has to make room first.
const CONGESTED_BYTES: usize = 4 * 1024 * 1024;
const CONGESTED_MESSAGES: usize = 2_000;

/// What happened in a session.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    /// CONNACK.
    Connected,
    /// Every SUBSCRIBE so far is acknowledged, no filter was refused.
    Subscribed,
    /// PUBLISH.
    Message { topic: String, payload: Bytes, retain: bool },
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

type Polls = Pin<Box<dyn Stream<Item = Result<Event, ConnectionError>> + Send>>;

/// See the module.
pub(crate) struct Session {
    client: AsyncClient,
    polls: Polls,
    server: ServerAddress,
    packet_bytes_max: usize,
    connected: bool,
    outbox: VecDeque<Request>,
    outbox_bytes: usize,
    /// Handed to rumqttc, not yet written to the socket.
    handed: usize,
    /// QoS 1 publishes without PUBACK, the handed ones included.
    unacknowledged: usize,
    /// Filters of each SUBSCRIBE without SUBACK.
    subscribing: VecDeque<Vec<String>>,
    disconnect_sent: bool,
    /// A fault found outside rumqttc; told by the next call of [`Session::next`].
    fault: Option<String>,
}

impl Session {
    /// A session that connects while [`Session::next`] is awaited. Reads certificate files: blocks on the disk.
    pub(crate) fn open(
        config: &MqttConfig,
        server: &ServerAddress,
        client_id: &str,
        connect: Connect,
    ) -> Result<Self, MqttConfigError> {
        let mut options = MqttOptions::new(client_id, server.host.clone(), server.port);
        // tck-id-principles-persistence-clean-session-311, tck-id-message-flow-phid-sparkplug-clean-session-311
        options.set_clean_session(true);
        options.set_keep_alive(config.keep_alive());
        options.set_max_packet_size(config.packet_bytes_max, config.packet_bytes_max);
        if let Some(username) = &config.username {
            options.set_credentials(username, config.password.expose());
        }
        if server.tls {
            let tls = TlsConfiguration::Rustls(tls::client_config(config)?);
            options.set_transport(Transport::tls_with_config(tls));
        }
        if let Some(will) = connect.will {
            options.set_last_will(LastWill::new(will.topic, will.payload, qos(will.qos), will.retain));
        }
        let mut network = NetworkOptions::new();
        network.set_tcp_nodelay(true);
        network.set_connection_timeout(config.connect_timeout_s);
        let (client, mut event_loop) = AsyncClient::new(options, HANDED_MAX);
        event_loop.set_network_options(network);
        let polls = stream::unfold(Some(event_loop), |event_loop| async {
            let mut event_loop = event_loop?;
            match event_loop.poll().await {
                Ok(event) => Some((Ok(event), Some(event_loop))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(Self {
            client,
            polls: Box::pin(polls),
            server: server.clone(),
            packet_bytes_max: config.packet_bytes_max,
            connected: false,
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            handed: 0,
            unacknowledged: 0,
            subscribing: VecDeque::new(),
            disconnect_sent: false,
            fault: None,
        })
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    /// Something waits to be sent.
    pub(crate) fn is_sending(&self) -> bool {
        self.handed > 0 || !self.outbox.is_empty()
    }

    /// So much waits to be sent that no more should be produced.
    pub(crate) fn is_congested(&self) -> bool {
        self.outbox_bytes >= CONGESTED_BYTES || self.outbox.len() >= CONGESTED_MESSAGES
    }

    pub(crate) fn subscribe(&mut self, filters: Vec<(String, QoS)>) {
        self.enqueue(Request::Subscribe(filters));
    }

    pub(crate) fn publish(&mut self, publish: Publish) {
        self.outbox_bytes += publish.payload.len();
        self.enqueue(Request::Publish(publish));
    }

    /// DISCONNECT, after everything before it is out and what has QoS 1 is acknowledged; the server's answer is [`SessionEvent::Over`].
    pub(crate) fn disconnect(&mut self) {
        self.enqueue(Request::Disconnect);
    }

    /// What happens next. Nothing is sent or received unless this is awaited. Can be cancelled without loss.
    pub(crate) async fn next(&mut self) -> SessionEvent {
        if let Some(reason) = self.fault.take() {
            return SessionEvent::Over { reason, reached: self.connected };
        }
        let event = match self.polls.next().await {
            Some(Ok(Event::Incoming(packet))) => self.on_packet(packet),
            Some(Ok(Event::Outgoing(outgoing))) => self.on_written(&outgoing),
            Some(Err(error)) => self.on_error(&error),
            None => self.over("the session is over".to_owned()),
        };
        self.hand_over();
        event
    }

    fn enqueue(&mut self, request: Request) {
        self.outbox.push_back(request);
        self.hand_over();
    }

    /// Gives rumqttc as much as it should hold.
    fn hand_over(&mut self) {
        if !self.connected {
            return;
        }
        while self.handed < HANDED_MAX {
            if matches!(self.outbox.front(), Some(Request::Disconnect)) && (self.handed > 0 || self.unacknowledged > 0)
            {
                return;
            }
            let Some(request) = self.outbox.pop_front() else { return };
            let handed = match request {
                Request::Subscribe(filters) => {
                    self.subscribing.push_back(filters.iter().map(|(filter, _)| filter.clone()).collect());
                    let filters = filters.into_iter().map(|(filter, level)| SubscribeFilter::new(filter, qos(level)));
                    self.client.try_subscribe_many(filters)
                }
                Request::Publish(publish) => {
                    self.outbox_bytes -= publish.payload.len();
                    self.unacknowledged += usize::from(publish.qos == QoS::AtLeastOnce);
                    self.client.try_publish(publish.topic, qos(publish.qos), publish.retain, publish.payload)
                }
                Request::Disconnect => {
                    self.disconnect_sent = true;
                    self.client.try_disconnect()
                }
            };
            if handed.is_err() {
                // There was room, so the topic or a filter is not a legal one.
                self.fault = Some("the client refused a topic or filter as illegal".to_owned());
                return;
            }
            self.handed += 1;
        }
    }

    fn on_packet(&mut self, packet: Packet) -> SessionEvent {
        match packet {
            Packet::ConnAck(_) => {
                self.connected = true;
                SessionEvent::Connected
            }
            Packet::Publish(publish) => {
                SessionEvent::Message { topic: publish.topic, payload: publish.payload, retain: publish.retain }
            }
            Packet::SubAck(suback) => self.on_suback(&suback.return_codes),
            Packet::PubAck(_) => {
                self.unacknowledged = self.unacknowledged.saturating_sub(1);
                SessionEvent::Progress
            }
            _ => SessionEvent::Progress,
        }
    }

    fn on_suback(&mut self, codes: &[SubscribeReasonCode]) -> SessionEvent {
        let Some(filters) = self.subscribing.pop_front() else {
            return SessionEvent::Progress;
        };
        let refused: Vec<&str> = filters
            .iter()
            .zip(codes)
            .filter(|(_, code)| matches!(code, SubscribeReasonCode::Failure))
            .map(|(filter, _)| filter.as_str())
            .collect();
        if !refused.is_empty() {
            let reason = format!(
                "{} refuses the subscription to {}; its access rules must allow it for this user",
                self.server,
                refused.join(", ")
            );
            return self.over(reason);
        }
        if codes.len() != filters.len() {
            return self.over(format!("{} acknowledged {} of {} filters", self.server, codes.len(), filters.len()));
        }
        if self.subscribing.is_empty() { SessionEvent::Subscribed } else { SessionEvent::Progress }
    }

    fn on_written(&mut self, outgoing: &Outgoing) -> SessionEvent {
        if matches!(outgoing, Outgoing::Publish(_) | Outgoing::Subscribe(_) | Outgoing::Disconnect) {
            self.handed = self.handed.saturating_sub(1);
        }
        SessionEvent::Progress
    }

    fn on_error(&self, error: &ConnectionError) -> SessionEvent {
        if self.disconnect_sent {
            return self.over("disconnected".to_owned());
        }
        let server = &self.server;
        let reason = match error {
            ConnectionError::ConnectionRefused(code) => match code {
                ConnectReturnCode::BadUserNamePassword | ConnectReturnCode::NotAuthorized => {
                    format!(
                        "{server} refuses the credentials; check mqtt.username, mqtt.password and the client certificate"
                    )
                }
                ConnectReturnCode::BadClientId => {
                    format!("{server} refuses the client id; check mqtt.client_id_prefix")
                }
                other => format!("{server} refuses the connection: {other:?}"),
            },
            ConnectionError::MqttState(StateError::Deserialization(codec)) => self.codec_reason(codec),
            ConnectionError::MqttState(StateError::AwaitPingResp) => format!("{server} does not answer pings"),
            ConnectionError::MqttState(StateError::ConnectionAborted) => format!("{server} closed the connection"),
            ConnectionError::MqttState(other) => format!("{server}: {other}"),
            ConnectionError::NetworkTimeout => {
                format!("{server} did not answer in time (mqtt.connect_timeout_s)")
            }
            ConnectionError::FlushTimeout => format!("{server} takes no data (mqtt.connect_timeout_s)"),
            ConnectionError::Io(error) => format!("cannot reach {server}: {error}"),
            ConnectionError::Tls(error) => tls_reason(server, error),
            other => format!("{server}: {other}"),
        };
        let reached = self.connected
            || match error {
                ConnectionError::ConnectionRefused(_)
                | ConnectionError::NotConnAck(_)
                | ConnectionError::MqttState(_) => true,
                // It cannot be known how far the CONNECT came. A will that the server does hold would name the session after it dead if
                // that had the same bdSeq; a bdSeq that is left out harms nobody.
                ConnectionError::NetworkTimeout => true,
                _ => false,
            };
        SessionEvent::Over { reason, reached }
    }

    fn codec_reason(&self, error: &CodecError) -> String {
        let (server, max) = (&self.server, self.packet_bytes_max);
        match error {
            CodecError::PayloadSizeLimitExceeded(bytes) => {
                format!(
                    "a packet of {bytes} bytes arrived from {server}; at most {max} are taken (mqtt.packet_bytes_max)"
                )
            }
            CodecError::OutgoingPacketTooLarge { pkt_size, .. } => {
                format!("a packet of {pkt_size} bytes was to be sent; at most {max} may be (mqtt.packet_bytes_max)")
            }
            CodecError::Io(error) => match error.get_ref().and_then(|error| error.downcast_ref()) {
                // With TLS 1.3 the server looks at the client certificate when the client takes itself for connected.
                Some(rustls::Error::AlertReceived(alert)) => {
                    format!(
                        "{server} ended TLS with {alert:?}; check the client certificate, mqtt.cert_file and mqtt.key_file"
                    )
                }
                _ if is_close(error) => format!("{server} closed the connection"),
                _ => format!("{server}: {error}"),
            },
            other => format!("{server} sent what is not MQTT 3.1.1: {other}"),
        }
    }

    fn over(&self, reason: String) -> SessionEvent {
        SessionEvent::Over { reason, reached: self.connected }
    }
}

fn tls_reason(server: &ServerAddress, error: &TlsError) -> String {
    let rustls = match error {
        TlsError::Io(error) => error.get_ref().and_then(|error| error.downcast_ref()),
        TlsError::TLS(error) => Some(error),
        _ => None,
    };
    let advice = match rustls {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "; check mqtt.ca_file, and that the server's certificate is for this name"
        }
        _ => "",
    };
    match error {
        // Its own text would be `I/O: ` and the same.
        TlsError::Io(error) => format!("TLS with {server} failed: {error}{advice}"),
        other => format!("TLS with {server} failed: {other}{advice}"),
    }
}

fn is_close(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
    )
}

const fn qos(level: QoS) -> rumqttc::QoS {
    match level {
        QoS::AtMostOnce => rumqttc::QoS::AtMostOnce,
        QoS::AtLeastOnce => rumqttc::QoS::AtLeastOnce,
    }
}

/// Opens sessions of one machine: everything that stays the same between them.
#[derive(Debug)]
pub(crate) struct Connector {
    config: Arc<MqttConfig>,
    servers: Vec<ServerAddress>,
    client_id: String,
}

impl Connector {
    /// Validates the configuration.
    pub(crate) fn new(config: MqttConfig, client_id: String) -> Result<Self, MqttConfigError> {
        config.validate()?;
        let servers = config.addresses()?;
        for server in servers.iter().filter(|server| !server.tls && !is_loopback(&server.host)) {
            if config.password.is_set() {
                tracing::warn!(server = %server, "the password is sent without encryption; use mqtts://");
            }
        }
        Ok(Self { config: Arc::new(config), servers, client_id })
    }

    pub(crate) fn config(&self) -> &MqttConfig {
        &self.config
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
        tracing::debug!(server = %server, client_id = %self.client_id, bd_seq = connect.bd_seq.map(|n| n.get()), "connecting");
        Session::open(&self.config, server, &self.client_id, connect)
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
