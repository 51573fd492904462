//! MQTT 3.1.1.

use std::{iter, mem};

use futures::stream;
use rumqttc::{
    AsyncClient, ConnectReturnCode, ConnectionError, Event, LastWill, MqttOptions, NetworkOptions, Outgoing, Packet,
    StateError, SubscribeFilter, SubscribeReasonCode, Transport, mqttbytes,
};
use sparkplug::session::{Publish, QoS};

use super::{
    Batch, Fault, HANDED_MAX, IN_FLIGHT_MAX, Signal, Signals, VersionDoubt, broker_address, last_batch, reason,
};
use crate::client_id::End;
use crate::config::MqttConfig;
use crate::server_address::ServerAddress;

/// A message of up to so many times the largest packet that is taken is read and dropped; one that is larger still ends the session.
const SKIPPED_MAX: usize = 4;

pub(super) fn open(
    config: &MqttConfig,
    server: &ServerAddress,
    client_id: &str,
    will: Option<Publish>,
    transport: Transport,
) -> (AsyncClient, Signals) {
    let mut options = MqttOptions::new(client_id, broker_address(server), server.port);
    // tck-id-principles-persistence-clean-session-311, tck-id-message-flow-phid-sparkplug-clean-session-311
    options.set_clean_session(true);
    options.set_transport(transport);
    options.set_keep_alive(config.keep_alive());
    options.set_inflight(IN_FLIGHT_MAX);
    // A client of 3.1.1 cannot announce to the server what it takes, and the end of the session would bring a retained message again with the next one.
    options.set_max_packet_size(config.packet_bytes_max.saturating_mul(SKIPPED_MAX), config.packet_bytes_max);
    if let Some(username) = &config.username {
        options.set_credentials(username, config.password.expose());
    }
    if let Some(will) = will {
        options.set_last_will(LastWill::new(will.topic, will.payload, qos(will.qos), will.retain));
    }
    let mut network = NetworkOptions::new();
    network.set_tcp_nodelay(true);
    network.set_connection_timeout(config.connect_timeout_s);
    let (client, mut event_loop) = AsyncClient::new(options, HANDED_MAX);
    event_loop.set_network_options(network);
    let (server, max) = (server.clone(), config.packet_bytes_max);
    let signals = stream::unfold(Some((event_loop, server)), move |state| async move {
        let (mut event_loop, server) = state?;
        match event_loop.poll().await {
            Ok(mut first) => {
                let others = &mut event_loop.state.events;
                let mut batch = Batch::with_capacity(1 + others.len());
                for event in iter::once(&mut first).chain(others.iter_mut()) {
                    batch.extend(signal(event, max).map(Ok));
                }
                others.clear();
                Some((batch, Some((event_loop, server))))
            }
            Err(error) => {
                let last = event_loop.state.events.iter_mut().filter_map(|event| signal(event, max));
                Some((last_batch(last, fault(&server, &error, max)), None))
            }
        }
    });
    (client, Box::pin(signals))
}

pub(super) const fn qos(level: QoS) -> rumqttc::QoS {
    match level {
        QoS::AtMostOnce => rumqttc::QoS::AtMostOnce,
        QoS::AtLeastOnce => rumqttc::QoS::AtLeastOnce,
    }
}

/// How a message was delivered. No filter asks for more than once, so none comes exactly once.
const fn delivered(level: rumqttc::QoS) -> QoS {
    match level {
        rumqttc::QoS::AtMostOnce => QoS::AtMostOnce,
        rumqttc::QoS::AtLeastOnce | rumqttc::QoS::ExactlyOnce => QoS::AtLeastOnce,
    }
}

pub(super) fn filters(filters: Vec<(String, QoS)>) -> impl Iterator<Item = SubscribeFilter> {
    filters.into_iter().map(|(filter, level)| SubscribeFilter::new(filter, qos(level)))
}

/// Takes out of an event what the session needs. It stays where it is, because it is large.
fn signal(event: &mut Event, packet_bytes_max: usize) -> Option<Signal> {
    Some(match event {
        Event::Incoming(Packet::ConnAck(_)) => Signal::Accepted,
        Event::Incoming(Packet::Publish(publish)) => {
            let (topic, payload) = (mem::take(&mut publish.topic), mem::take(&mut publish.payload));
            let bytes = payload.len();
            if topic.len() + bytes > packet_bytes_max {
                return Some(Signal::Oversized { topic, bytes, max: packet_bytes_max, retain: publish.retain });
            }
            Signal::Message { topic, payload, qos: delivered(publish.qos), retain: publish.retain }
        }
        Event::Incoming(Packet::SubAck(suback)) => {
            let refused = |code: &SubscribeReasonCode| {
                matches!(code, SubscribeReasonCode::Failure)
                    .then(|| "its access rules must allow it for this user".to_owned())
            };
            Signal::Subscribed(suback.return_codes.iter().map(refused).collect())
        }
        Event::Incoming(Packet::PubAck(puback)) => Signal::Acknowledged { id: puback.pkid, refused: None },
        Event::Incoming(Packet::PingResp) => Signal::Pong,
        Event::Outgoing(Outgoing::Publish(id)) => Signal::WrittenPublish { id: *id },
        Event::Outgoing(Outgoing::Subscribe(_) | Outgoing::Disconnect) => Signal::WrittenRequest,
        Event::Outgoing(Outgoing::PingReq) => Signal::WrittenPing,
        Event::Incoming(_) | Event::Outgoing(_) => return None,
    })
}

fn fault(server: &ServerAddress, error: &ConnectionError, max: usize) -> Fault {
    let reason = match error {
        ConnectionError::ConnectionRefused(code) => match code {
            ConnectReturnCode::BadUserNamePassword | ConnectReturnCode::NotAuthorized => reason::credentials(server),
            ConnectReturnCode::BadClientId => reason::client_id(server),
            ConnectReturnCode::RefusedProtocolVersion => {
                format!("{server} does not speak MQTT 3.1.1; set mqtt.protocol")
            }
            other => format!("{server} refuses the connection: {other:?}"),
        },
        ConnectionError::MqttState(StateError::Deserialization(mqttbytes::Error::PayloadSizeLimitExceeded(bytes))) => {
            format!(
                "a packet of {bytes} bytes arrived from {server}; at most {SKIPPED_MAX} times {max} are read (mqtt.packet_bytes_max)"
            )
        }
        ConnectionError::MqttState(StateError::Deserialization(codec)) => reason::codec(server, codec, max, "3.1.1"),
        ConnectionError::MqttState(StateError::AwaitPingResp) => reason::no_pong(server),
        ConnectionError::MqttState(StateError::ConnectionAborted) => reason::closed(server),
        ConnectionError::MqttState(other) => format!("{server}: {other}"),
        ConnectionError::NetworkTimeout => reason::too_slow(server),
        ConnectionError::FlushTimeout => reason::takes_nothing(server),
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
        // It cannot be known how far the CONNECT came. A will that the server does hold would name the session after it dead if that had the
        // same bdSeq; a bdSeq that is left out does no harm.
        ConnectionError::NetworkTimeout => true,
        _ => false,
    };
    let end = match error {
        ConnectionError::MqttState(StateError::ConnectionAborted) => End::ByServer,
        ConnectionError::MqttState(
            StateError::Io(error) | StateError::Deserialization(mqttbytes::Error::Io(error)),
        ) => reason::end(error),
        _ => End::Other,
    };
    Fault { reason, reached, version: VersionDoubt::None, end }
}
