//! MQTT 5: what 3.1.1 does, with reasons, and with the limits that the server sets (Receive Maximum, Maximum Packet Size, Server Keep Alive).

use std::io::ErrorKind;
use std::{iter, mem};

use bytes::Bytes;
use futures::stream;
use rumqttc::Transport;
use rumqttc::v5::mqttbytes::v5::{
    ConnectReturnCode, DisconnectReasonCode, Filter, LastWill, LastWillProperties, Packet, PubAckReason,
    SubscribeReasonCode,
};
use rumqttc::v5::{AsyncClient, ConnectionError, Event, MqttOptions, StateError, mqttbytes};
use rumqttc::{NetworkOptions, Outgoing};
use sparkplug::session::{Publish, QoS};

use super::{
    Batch, Fault, HANDED_MAX, IN_FLIGHT_MAX, Signal, Signals, VersionDoubt, broker_address, last_batch, reason,
};
use crate::client_id::End;
use crate::config::MqttConfig;
use crate::server_address::ServerAddress;

/// Messages of QoS 1 that the server may send ahead of our acknowledgements; they are acknowledged as they are read.
const RECEIVE_MAXIMUM: u16 = 1_000;

pub(super) fn open(
    config: &MqttConfig,
    server: &ServerAddress,
    client_id: &str,
    will: Option<Publish>,
    transport: Transport,
) -> (AsyncClient, Signals) {
    let mut options = MqttOptions::new(client_id, broker_address(server), server.port);
    // tck-id-principles-persistence-clean-session-50, tck-id-message-flow-phid-sparkplug-clean-session-50
    options.set_clean_start(true);
    options.set_session_expiry_interval(Some(0));
    options.set_receive_maximum(Some(RECEIVE_MAXIMUM));
    options.set_transport(transport);
    options.set_keep_alive(config.keep_alive());
    options.set_outgoing_inflight_upper_limit(IN_FLIGHT_MAX);
    // 256 MiB at most, as the configuration is checked for.
    options.set_max_packet_size(Some(u32::try_from(config.packet_bytes_max).unwrap_or(u32::MAX)));
    options.set_connection_timeout(config.connect_timeout_s);
    if let Some(username) = &config.username {
        options.set_credentials(username, config.password.expose());
    }
    if let Some(will) = will {
        // A death that is published late is worth little: no Will Delay Interval.
        let properties = LastWillProperties {
            delay_interval: Some(0),
            payload_format_indicator: None,
            message_expiry_interval: None,
            content_type: None,
            response_topic: None,
            correlation_data: None,
            user_properties: Vec::new(),
        };
        options.set_last_will(LastWill::new(will.topic, will.payload, qos(will.qos), will.retain, Some(properties)));
    }
    let mut network = NetworkOptions::new();
    network.set_tcp_nodelay(true);
    options.set_network_options(network);
    let (client, event_loop) = AsyncClient::new(options, HANDED_MAX);
    let (server, max) = (server.clone(), config.packet_bytes_max);
    let signals = stream::unfold(Some((event_loop, server)), move |state| async move {
        let (mut event_loop, server) = state?;
        match event_loop.poll().await {
            Ok(mut first) => {
                let others = &mut event_loop.state.events;
                let of_server = |what| Fault {
                    reason: format!("{server} sent {what}"),
                    reached: true,
                    version: VersionDoubt::None,
                    end: End::Other,
                };
                let mut batch = Batch::with_capacity(1 + others.len());
                for event in iter::once(&mut first).chain(others.iter_mut()) {
                    let Some(signal) = signal(event).map_err(of_server).transpose() else { continue };
                    let is_last = signal.is_err();
                    batch.push(signal);
                    if is_last {
                        return Some((batch, None));
                    }
                }
                others.clear();
                Some((batch, Some((event_loop, server))))
            }
            Err(error) => {
                let last = event_loop.state.events.iter_mut().filter_map(|event| signal(event).ok().flatten());
                Some((last_batch(last, fault(&server, &error, max)), None))
            }
        }
    });
    (client, Box::pin(signals))
}

pub(super) const fn qos(level: QoS) -> mqttbytes::QoS {
    match level {
        QoS::AtMostOnce => mqttbytes::QoS::AtMostOnce,
        QoS::AtLeastOnce => mqttbytes::QoS::AtLeastOnce,
    }
}

/// How a message was delivered. No filter asks for more than once, so none comes exactly once.
const fn delivered(level: mqttbytes::QoS) -> QoS {
    match level {
        mqttbytes::QoS::AtMostOnce => QoS::AtMostOnce,
        mqttbytes::QoS::AtLeastOnce | mqttbytes::QoS::ExactlyOnce => QoS::AtLeastOnce,
    }
}

pub(super) fn filters(filters: Vec<(String, QoS)>) -> impl Iterator<Item = Filter> {
    filters.into_iter().map(|(filter, level)| Filter::new(filter, qos(level)))
}

/// Takes out of an event what the session needs. It stays where it is, because it is large.
fn signal(event: &mut Event) -> Result<Option<Signal>, &'static str> {
    Ok(Some(match event {
        Event::Incoming(Packet::ConnAck(_)) => Signal::Accepted,
        Event::Incoming(Packet::Publish(publish)) => Signal::Message {
            topic: text(&publish.topic).ok_or("a topic that is not UTF-8")?,
            payload: mem::take(&mut publish.payload),
            qos: delivered(publish.qos),
            retain: publish.retain,
        },
        Event::Incoming(Packet::SubAck(suback)) => {
            let refused = |code: &SubscribeReasonCode| match code {
                SubscribeReasonCode::Success(_) => None,
                SubscribeReasonCode::NotAuthorized => {
                    Some("NotAuthorized: its access rules must allow it for this user".to_owned())
                }
                other => Some(format!("{other:?}")),
            };
            Signal::Subscribed(suback.return_codes.iter().map(refused).collect())
        }
        Event::Incoming(Packet::PubAck(puback)) => {
            let refused = match &puback.reason {
                PubAckReason::Success | PubAckReason::NoMatchingSubscribers => None,
                reason => Some(format!("{reason:?}")),
            };
            Signal::Acknowledged { id: puback.pkid, refused }
        }
        Event::Incoming(Packet::PingResp(_)) => Signal::Pong,
        Event::Outgoing(Outgoing::Publish(id)) => Signal::WrittenPublish { id: *id },
        Event::Outgoing(Outgoing::Subscribe(_) | Outgoing::Disconnect) => Signal::WrittenRequest,
        Event::Outgoing(Outgoing::PingReq) => Signal::WrittenPing,
        Event::Incoming(_) | Event::Outgoing(_) => return Ok(None),
    }))
}

fn text(bytes: &Bytes) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

fn fault(server: &ServerAddress, error: &ConnectionError, max: usize) -> Fault {
    let reason = match error {
        ConnectionError::ConnectionRefused(code) => match code {
            ConnectReturnCode::BadUserNamePassword | ConnectReturnCode::NotAuthorized => {
                format!("{} ({code:?})", reason::credentials(server))
            }
            ConnectReturnCode::BadClientId | ConnectReturnCode::ClientIdentifierNotValid => reason::client_id(server),
            ConnectReturnCode::RefusedProtocolVersion | ConnectReturnCode::UnsupportedProtocolVersion => {
                format!("{server} does not speak MQTT 5; set mqtt.protocol to 3.1.1")
            }
            other => format!("{server} refuses the connection: {other:?}"),
        },
        ConnectionError::MqttState(state) => of_state(server, state, max),
        ConnectionError::Timeout(_) => reason::too_slow(server),
        ConnectionError::Io(error) => format!("cannot reach {server}: {error}"),
        ConnectionError::Tls(error) => reason::tls(server, error),
        #[cfg(feature = "websocket")]
        ConnectionError::Websocket(error) => reason::websocket(server, error),
        #[cfg(feature = "websocket")]
        ConnectionError::ResponseValidation(error) => reason::websocket(server, error),
        other => format!("{server}: {other}"),
    };
    let reached = match error {
        ConnectionError::ConnectionRefused(_) | ConnectionError::NotConnAck(_) | ConnectionError::MqttState(_) => true,
        // As with 3.1.1: it cannot be known how far the CONNECT came.
        ConnectionError::Timeout(_) => true,
        _ => false,
    };
    Fault { reason, reached, version: doubt(error), end: end(error) }
}

fn end(error: &ConnectionError) -> End {
    match error {
        ConnectionError::MqttState(StateError::ServerDisconnect { reason_code, .. }) => match reason_code {
            DisconnectReasonCode::SessionTakenOver => End::TakenOver,
            _ => End::ByServer,
        },
        ConnectionError::MqttState(StateError::ConnectionAborted) => End::ByServer,
        ConnectionError::MqttState(
            StateError::Io(error) | StateError::Deserialization(mqttbytes::Error::Io(error)),
        ) => reason::end(error),
        _ => End::Other,
    }
}

/// What a failed CONNECT says of the version of MQTT. A server of 3.1.1 answers 0x01, one that is well-behaved towards MQTT 5 0x84; others close the connection.
fn doubt(error: &ConnectionError) -> VersionDoubt {
    match error {
        ConnectionError::ConnectionRefused(
            ConnectReturnCode::RefusedProtocolVersion | ConnectReturnCode::UnsupportedProtocolVersion,
        )
        | ConnectionError::MqttState(StateError::Deserialization(mqttbytes::Error::InvalidConnectReturnCode(1))) => {
            VersionDoubt::Refused
        }
        ConnectionError::ConnectionRefused(
            ConnectReturnCode::UnspecifiedError
            | ConnectReturnCode::MalformedPacket
            | ConnectReturnCode::ProtocolError
            | ConnectReturnCode::ImplementationSpecificError,
        )
        | ConnectionError::MqttState(_)
        | ConnectionError::NotConnAck(_)
        | ConnectionError::Timeout(_) => VersionDoubt::Unclear,
        ConnectionError::Io(error) if is_of_a_connection(error.kind()) => VersionDoubt::Unclear,
        _ => VersionDoubt::None,
    }
}

/// Whether there was a connection, which then ended.
const fn is_of_a_connection(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
            | ErrorKind::Other
    )
}

fn of_state(server: &ServerAddress, error: &StateError, max: usize) -> String {
    match error {
        StateError::ServerDisconnect { reason_code, reason_string } => match reason_string {
            Some(text) => format!("{server} ended the session: {reason_code:?} ({text})"),
            None => format!("{server} ended the session: {reason_code:?}"),
        },
        StateError::OutgoingPacketTooLarge { pkt_size, max } => too_large_for(server, *pkt_size, *max),
        StateError::IncomingPacketTooLarge { pkt_size, max } => reason::too_large_to_take(server, *pkt_size, *max),
        StateError::AwaitPingResp => reason::no_pong(server),
        StateError::ConnectionAborted => reason::closed(server),
        StateError::Io(error) => reason::io(server, error),
        StateError::Deserialization(codec) => of_codec(server, codec, max),
        other => format!("{server}: {other}"),
    }
}

fn too_large_for(server: &ServerAddress, bytes: u32, max: u32) -> String {
    format!("a packet of {bytes} bytes was to be sent; {server} takes {max} at most (its Maximum Packet Size)")
}

fn of_codec(server: &ServerAddress, error: &mqttbytes::Error, max: usize) -> String {
    match error {
        mqttbytes::Error::PayloadSizeLimitExceeded { pkt_size, .. } => {
            reason::too_large_to_take(server, *pkt_size, max)
        }
        mqttbytes::Error::OutgoingPacketTooLarge { pkt_size, max } => too_large_for(server, *pkt_size, *max),
        mqttbytes::Error::Io(error) => reason::io(server, error),
        other => format!("{server} sent what is not MQTT 5: {other}"),
    }
}
