//! One MQTT connection, in either version of the protocol, as [`crate::session`] sees it. This module and those below it are the only ones that know rumqttc.
//!
//! rumqttc has a client for each version, alike but of different types. Each is made into a stream of [`Signal`]s, which ends with one [`Fault`], and into three things to ask
//! for. The event loop's `poll` loses a packet when its future is dropped while the socket is not writable. So its futures live in that stream, which is polled but never
//! dropped before the session is over. `poll` reads several packets and yields the first; the others wait in the event loop's public state, from where they are taken with it.

mod reason;
mod v311;
mod v5;

use std::pin::Pin;

pub(crate) use reason::{takes_nothing, too_large_to_send};

use bytes::Bytes;
use futures::Stream;
use rumqttc::{TlsConfiguration, Transport};
use sparkplug::session::{Connect, Publish, QoS};

use crate::client_id::End;
use crate::config::MqttConfig;
use crate::config_error::MqttConfigError;
use crate::server_address::{Scheme, ServerAddress};
use crate::tls::{Files, Fingerprint};

/// Requests handed to rumqttc ahead of the socket. It takes them one by one; a few keep it from waiting for us.
pub(crate) const HANDED_MAX: usize = 64;

/// Messages of QoS 1 on their way to the server without its acknowledgement, where the server sets no lower limit (MQTT 5: Receive Maximum).
const IN_FLIGHT_MAX: u16 = 100;

/// What happens on a connection.
#[derive(Debug)]
pub(crate) enum Signal {
    /// CONNACK that accepts.
    Accepted,
    /// PUBLISH.
    Message { topic: String, payload: Bytes, qos: QoS, retain: bool },
    /// PUBLISH that is larger than `packet_bytes_max`; its payload is gone.
    Oversized { topic: String, bytes: usize, max: usize, retain: bool },
    /// SUBACK: for each filter why it was refused.
    Subscribed(Vec<Option<String>>),
    /// PUBACK, with the reason if the server did not take the message.
    Acknowledged { id: u16, refused: Option<String> },
    /// PINGRESP.
    Pong,
    /// A PUBLISH is on the wire; 0 is the id of QoS 0.
    WrittenPublish { id: u16 },
    /// Another request is on the wire.
    WrittenRequest,
    /// A PINGREQ is on the wire.
    WrittenPing,
}

/// Why a connection is over or was never there.
#[derive(Debug)]
pub(crate) struct Fault {
    /// For operators, without secrets.
    pub(crate) reason: String,
    /// The CONNECT may have come to the server's MQTT layer.
    pub(crate) reached: bool,
    /// Before CONNACK: what this says of the version of MQTT.
    pub(crate) version: VersionDoubt,
    /// After CONNACK: who ended it.
    pub(crate) end: End,
}

/// Whether a connection failed for its version of MQTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionDoubt {
    /// It failed for another reason.
    None,
    /// Perhaps: the server closed the connection, said nothing, or nothing that could be read.
    Unclear,
    /// The server said so.
    Refused,
}

/// A version of MQTT, when it is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V311,
    V5,
}

/// What happened since the last look, in its order. There may be nothing in it that the session needs.
pub(crate) type Batch = Vec<Result<Signal, Fault>>;
/// It ends after a fault.
pub(crate) type Signals = Pin<Box<dyn Stream<Item = Batch> + Send>>;

enum Client {
    V311(rumqttc::AsyncClient),
    V5(rumqttc::v5::AsyncClient),
}

/// See the module.
pub(crate) struct Link {
    client: Client,
    pub(crate) signals: Signals,
    /// Of the certificate files that it was opened with; None without TLS.
    pub(crate) files: Option<Fingerprint>,
}

impl Link {
    /// A connection that comes up while [`Link::signals`] is polled. Reads certificate files: blocks on the disk.
    pub(crate) fn open(
        config: &MqttConfig,
        server: &ServerAddress,
        client_id: &str,
        version: Version,
        connect: Connect,
    ) -> Result<Self, MqttConfigError> {
        let (transport, files) = transport(config, server)?;
        Ok(match version {
            Version::V311 => {
                let (client, signals) = v311::open(config, server, client_id, connect.will, transport);
                Self { client: Client::V311(client), signals, files }
            }
            Version::V5 => {
                let (client, signals) = v5::open(config, server, client_id, connect.will, transport);
                Self { client: Client::V5(client), signals, files }
            }
        })
    }

    /// False: the topic is not a legal one. There must be room.
    pub(crate) fn publish(&self, publish: Publish) -> bool {
        let Publish { topic, payload, retain, .. } = publish;
        match &self.client {
            Client::V311(client) => client.try_publish(topic, v311::qos(publish.qos), retain, payload).is_ok(),
            Client::V5(client) => client.try_publish(topic, v5::qos(publish.qos), retain, payload).is_ok(),
        }
    }

    /// False: a filter is not a legal one. There must be room.
    pub(crate) fn subscribe(&self, filters: Vec<(String, QoS)>) -> bool {
        match &self.client {
            Client::V311(client) => client.try_subscribe_many(v311::filters(filters)).is_ok(),
            Client::V5(client) => client.try_subscribe_many(v5::filters(filters)).is_ok(),
        }
    }

    /// DISCONNECT; the server drops the will.
    pub(crate) fn disconnect(&self) -> bool {
        match &self.client {
            Client::V311(client) => client.try_disconnect().is_ok(),
            Client::V5(client) => client.try_disconnect().is_ok(),
        }
    }
}

/// The end of a connection, after what was read together with it.
fn last_batch(last: impl Iterator<Item = Signal>, end: Fault) -> Batch {
    last.map(Ok).chain([Err(end)]).collect()
}

fn transport(config: &MqttConfig, server: &ServerAddress) -> Result<(Transport, Option<Fingerprint>), MqttConfigError> {
    let with_tls = |transport: fn(TlsConfiguration) -> Transport| {
        let files = Files::read(&config.certificate_files())?;
        let client = TlsConfiguration::Rustls(files.client_config()?);
        Ok((transport(client), Some(files.fingerprint())))
    };
    match server.scheme {
        Scheme::Tcp => Ok((Transport::Tcp, None)),
        Scheme::Tls => with_tls(Transport::tls_with_config),
        #[cfg(feature = "websocket")]
        Scheme::WebSocket => Ok((Transport::ws(), None)),
        #[cfg(feature = "websocket")]
        Scheme::WebSocketTls => with_tls(Transport::wss_with_config),
    }
}

/// What rumqttc calls the address: the host, or the whole URL of a WebSocket.
fn broker_address(server: &ServerAddress) -> String {
    match server.scheme {
        Scheme::Tcp | Scheme::Tls => server.host.clone(),
        #[cfg(feature = "websocket")]
        Scheme::WebSocket | Scheme::WebSocketTls => server.to_string(),
    }
}
