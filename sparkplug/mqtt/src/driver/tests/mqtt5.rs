//! The same driver in MQTT 5, with a scripted server that speaks it.

use rumqttc::v5::mqttbytes::QoS as QoS5;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, ConnAckProperties, Connect as Connect5, ConnectReturnCode, Disconnect, DisconnectProperties,
    DisconnectReasonCode, LastWill, Packet, PingResp, PubAck, PubAckReason, SubAck, SubscribeReasonCode,
};

use super::*;

async fn rig5() -> Rig {
    rig(BdSeqStore::Memory, |config| config.protocol = crate::config::Protocol::V5).await
}

struct Link5(Link);

impl Link5 {
    async fn packet(&mut self) -> Option<Packet> {
        loop {
            // The shortest form of DISCONNECT, which the codec writes but does not read.
            if self.0.received.starts_with(&[0xe0, 0]) {
                return Some(Packet::Disconnect(Disconnect::new(DisconnectReasonCode::NormalDisconnection)));
            }
            match Packet::read(&mut self.0.received, None) {
                Ok(packet) => return Some(packet),
                Err(rumqttc::v5::mqttbytes::Error::InsufficientBytes(_)) => {}
                Err(error) => panic!("{error}"),
            }
            match timeout(SOON, self.0.stream.read_buf(&mut self.0.received)).await.expect("the client sends") {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    async fn connect(&mut self) -> (Connect5, Option<LastWill>) {
        match self.packet().await {
            Some(Packet::Connect(connect, will, _)) => (connect, will),
            other => panic!("{other:?}"),
        }
    }

    /// Topic and packet id of the PUBLISH that comes next; pings are answered.
    async fn published(&mut self) -> (String, u16) {
        loop {
            match self.packet().await {
                Some(Packet::Publish(publish)) => {
                    return (String::from_utf8(publish.topic.to_vec()).unwrap(), publish.pkid);
                }
                Some(Packet::PingReq(_)) => self.send(Packet::PingResp(PingResp)).await,
                other => panic!("{other:?}"),
            }
        }
    }

    async fn send(&mut self, packet: Packet) {
        let mut bytes = BytesMut::new();
        packet.write(&mut bytes, None).unwrap();
        self.0.stream.write_all(&bytes).await.unwrap();
    }

    async fn answer(&mut self, code: ConnectReturnCode, properties: Option<ConnAckProperties>) {
        self.send(Packet::ConnAck(ConnAck { session_present: false, code, properties })).await;
    }
}

fn limits(receive_max: Option<u16>, max_packet_size: Option<u32>) -> ConnAckProperties {
    ConnAckProperties {
        session_expiry_interval: None,
        receive_max,
        max_qos: None,
        retain_available: None,
        max_packet_size,
        assigned_client_identifier: None,
        topic_alias_max: None,
        reason_string: None,
        user_properties: Vec::new(),
        wildcard_subscription_available: None,
        subscription_identifiers_available: None,
        shared_subscription_available: None,
        server_keep_alive: None,
        response_information: None,
        server_reference: None,
        authentication_method: None,
        authentication_data: None,
    }
}

impl Rig {
    async fn link5(&mut self, properties: Option<ConnAckProperties>) -> Link5 {
        let mut link = Link5(self.accept().await);
        link.connect().await;
        link.answer(ConnectReturnCode::Success, properties).await;
        assert_eq!(self.received().await, Received::Transport(TransportEvent::Connected));
        link
    }
}

#[tokio::test]
async fn after_a_take_over_the_client_id_is_another_one_and_that_one_stays() {
    let mut rig = rig5().await;
    let mut ids = Vec::new();
    let ends = [
        DisconnectReasonCode::ServerShuttingDown,
        DisconnectReasonCode::SessionTakenOver,
        DisconnectReasonCode::ServerShuttingDown,
        DisconnectReasonCode::SessionTakenOver,
    ];
    for (bd_seq, end) in (0..).zip(ends) {
        rig.say(vec![connect(Some(bd_seq))]).await;
        let mut link = Link5(rig.accept().await);
        ids.push(link.connect().await.0.client_id);
        link.answer(ConnectReturnCode::Success, None).await;
        assert_eq!(rig.received().await, Received::Transport(TransportEvent::Connected));
        // Without properties, whose length the codec does not write.
        link.0.stream.write_all(&[0xe0, 2, end as u8, 0]).await.unwrap();
        let (reason, reached) = rig.disconnected().await;
        assert!(reason.contains(&format!("{end:?}")) && reached, "{reason}");
    }
    assert_eq!(ids[0], ids[1], "one session that ends soon is an accident");
    assert_ne!(ids[1], ids[2], "one take-over is none");
    assert_eq!(ids[2], ids[3]);
}

/// tck-id-principles-persistence-clean-session-50, tck-id-message-flow-phid-sparkplug-clean-session-50
#[tokio::test]
async fn every_connect_of_edge_node_and_host_has_clean_start_and_no_session_expiry() {
    let mut rig = rig5().await;
    // An Edge Node's has a bdSeq, a Host Application's none; the second of each follows a lost session.
    for bd_seq in [Some(0), Some(1), None, None] {
        rig.say(vec![connect(bd_seq)]).await;
        let mut link = Link5(rig.accept().await);
        let (connect, will) = link.connect().await;
        assert!(connect.clean_start);
        let properties = connect.properties.unwrap();
        assert_eq!(properties.session_expiry_interval, Some(0));
        assert!(properties.receive_maximum.is_some() && properties.max_packet_size.is_some());
        let will = will.unwrap();
        assert_eq!((&will.topic[..], will.qos, will.retain), (&b"will"[..], QoS5::AtLeastOnce, false));
        assert_eq!(will.properties.unwrap().delay_interval, Some(0));
        link.answer(ConnectReturnCode::Success, None).await;
        assert_eq!(rig.received().await, Received::Transport(TransportEvent::Connected));
        drop(link);
        assert!(rig.disconnected().await.1);
    }
}

/// tck-id-payloads-ndeath-will-message-publisher-disconnect-mqtt50: an Edge Node sends no DISCONNECT that would make the server drop the will; a Host Application does.
#[tokio::test]
async fn an_edge_node_leaves_by_closing_and_a_host_with_a_disconnect_both_after_the_acknowledgement() {
    for bd_seq in [Some(0), None] {
        let mut rig = rig5().await;
        rig.say(vec![connect(bd_seq)]).await;
        let mut link = rig.link5(None).await;
        let farewell = TransportAction::Publish(publish("farewell", QoS::AtLeastOnce));
        rig.say(vec![farewell, TransportAction::Disconnect]).await;
        assert_eq!(link.published().await, ("farewell".to_owned(), 1));
        let early = timeout(Duration::from_millis(200), link.packet()).await;
        assert!(early.is_err(), "the end before PUBACK: {early:?}");
        link.send(Packet::PubAck(PubAck::new(1, None))).await;
        let end = link.packet().await;
        match bd_seq {
            Some(_) => assert_eq!(end, None),
            None => assert!(matches!(end, Some(Packet::Disconnect(_))), "{end:?}"),
        }
        drop(link);
        assert_eq!(rig.received().await, Received::Transport(TransportEvent::Received { publishes: 1 }));
        assert_eq!(rig.disconnected().await, ("disconnected".to_owned(), true));
    }
}

#[tokio::test]
async fn no_more_messages_are_on_their_way_than_the_server_s_receive_maximum_allows() {
    let mut rig = rig5().await;
    rig.say(vec![connect(None)]).await;
    let mut link = rig.link5(Some(limits(Some(1), None))).await;
    rig.say(["a", "b", "c"].map(|topic| TransportAction::Publish(publish(topic, QoS::AtLeastOnce))).into()).await;
    for (expected, publishes) in [("a", 1), ("b", 2), ("c", 3)] {
        let (topic, id) = link.published().await;
        assert_eq!(topic, expected);
        let more = timeout(Duration::from_millis(200), link.packet()).await;
        assert!(more.is_err(), "{more:?} before the acknowledgement of {topic}");
        link.send(Packet::PubAck(PubAck::new(id, None))).await;
        assert_eq!(rig.received().await, Received::Transport(TransportEvent::Received { publishes }));
    }
}

#[tokio::test]
async fn reason_codes_are_reported_in_words() {
    let mut rig = rig5().await;
    for (code, words) in [
        (ConnectReturnCode::BadUserNamePassword, "mqtt.username"),
        (ConnectReturnCode::ClientIdentifierNotValid, "mqtt.client_id_prefix"),
        (ConnectReturnCode::UnsupportedProtocolVersion, "does not speak MQTT 5; set mqtt.protocol to 3.1.1"),
        (ConnectReturnCode::QuotaExceeded, "refuses the connection: QuotaExceeded"),
    ] {
        rig.say(vec![connect(None)]).await;
        let mut link = Link5(rig.accept().await);
        link.connect().await;
        link.answer(code, None).await;
        let (reason, reached) = rig.disconnected().await;
        assert!(reason.contains(words) && reached, "{reason}");
    }

    let answers: [(TransportAction, Packet, &str); 3] = [
        (
            TransportAction::Subscribe(vec![
                ("allowed".to_owned(), QoS::AtLeastOnce),
                ("secret/#".to_owned(), QoS::AtLeastOnce),
            ]),
            Packet::SubAck(SubAck {
                pkid: 1,
                return_codes: vec![SubscribeReasonCode::Success(QoS5::AtLeastOnce), SubscribeReasonCode::NotAuthorized],
                properties: None,
            }),
            "refuses the subscription to secret/#; NotAuthorized",
        ),
        (
            TransportAction::Publish(publish("a", QoS::AtLeastOnce)),
            Packet::PubAck(PubAck { reason: PubAckReason::NotAuthorized, ..PubAck::new(1, None) }),
            "refuses a message of QoS 1 (STATE or NDEATH): NotAuthorized",
        ),
        (
            TransportAction::Publish(publish("a", QoS::AtMostOnce)),
            Packet::Disconnect(Disconnect {
                reason_code: DisconnectReasonCode::ServerShuttingDown,
                properties: Some(DisconnectProperties {
                    session_expiry_interval: None,
                    reason_string: Some("maintenance".to_owned()),
                    user_properties: Vec::new(),
                    server_reference: None,
                }),
            }),
            "ended the session: ServerShuttingDown (maintenance)",
        ),
    ];
    for (action, answer, words) in answers {
        rig.say(vec![connect(None)]).await;
        let mut link = rig.link5(None).await;
        rig.say(vec![action]).await;
        link.packet().await;
        link.send(answer).await;
        let (reason, reached) = rig.disconnected().await;
        assert!(reason.contains(words) && reached, "{reason}");
    }
}

#[tokio::test]
async fn a_message_beyond_the_server_s_limit_ends_the_session_with_a_reason() {
    let mut rig = rig5().await;
    rig.say(vec![connect(None)]).await;
    let _link = rig.link5(Some(limits(None, Some(100)))).await;
    let large = Publish { payload: Bytes::from(vec![0; 200]), ..publish("a", QoS::AtMostOnce) };
    rig.say(vec![TransportAction::Publish(large)]).await;
    let (reason, _) = rig.disconnected().await;
    assert!(reason.contains("takes 100 at most"), "{reason}");
}

#[tokio::test]
async fn a_server_that_takes_no_data_is_noticed() {
    let mut rig = rig(BdSeqStore::Memory, |config| {
        config.protocol = crate::config::Protocol::V5;
        config.keep_alive_s = 5;
    })
    .await;
    rig.say(vec![connect(None)]).await;
    let _link = rig.link5(None).await;
    // More than sockets hold.
    let large = Publish { payload: Bytes::from(vec![0; 1 << 20]), ..publish("a", QoS::AtMostOnce) };
    rig.say(vec![TransportAction::Publish(large); 16]).await;
    let (reason, reached) = rig.disconnected().await;
    assert!(reason.contains("takes no data") && reached, "{reason}");
}

async fn rig_auto() -> Rig {
    rig(BdSeqStore::Memory, |config| config.protocol = crate::config::Protocol::Auto).await
}

/// Takes a CONNECT in MQTT 3.1.1, with the same will as that in MQTT 5.
async fn older_link(rig: &mut Rig) -> Link {
    let mut link = rig.accept().await;
    match link.packet().await {
        Some(rumqttc::Packet::Connect(connect)) => assert_eq!(connect.last_will.unwrap().topic, "will"),
        other => panic!("{other:?}"),
    }
    link.send(rumqttc::Packet::ConnAck(rumqttc::ConnAck::new(rumqttc::ConnectReturnCode::Success, false))).await;
    assert_eq!(rig.received().await, Received::Transport(TransportEvent::Connected));
    link
}

#[tokio::test]
async fn a_server_that_says_that_it_does_not_speak_mqtt_5_is_spoken_to_in_3_1_1_at_once_and_from_then_on() {
    // What a server of 3.1.1 answers, what one that knows MQTT 5 does, and the same bytes in the form of MQTT 5.
    for answer in [&[0x20_u8, 2, 0, 1][..], &[0x20, 3, 0, 0x84, 0], &[0x20, 3, 0, 1, 0]] {
        let mut rig = rig_auto().await;
        let closes_only = answer.len() == 4;
        // The two bytes of 3.1.1 cannot be distinguished from a part of the answer in MQTT 5: the close that follows is unclear, and a node begins again.
        rig.say(vec![connect(if closes_only { None } else { Some(0) })]).await;
        let mut link = Link5(rig.accept().await);
        link.connect().await;
        link.0.stream.write_all(answer).await.unwrap();
        drop(link);
        let link = older_link(&mut rig).await;
        drop(link);
        assert!(rig.disconnected().await.1);
        if closes_only {
            continue;
        }
        rig.say(vec![connect(Some(1))]).await;
        older_link(&mut rig).await;
    }
}

#[tokio::test]
async fn a_server_that_closes_the_connection_is_tried_in_3_1_1_once_and_then_in_mqtt_5_again() {
    let mut rig = rig_auto().await;
    rig.say(vec![connect(Some(0))]).await;
    let mut link = Link5(rig.accept().await);
    link.connect().await;
    drop(link);
    // The server may hold the will: the next session has another bdSeq.
    assert!(rig.disconnected().await.1);
    rig.say(vec![connect(Some(1))]).await;
    drop(older_link(&mut rig).await);
    assert!(rig.disconnected().await.1);
    rig.say(vec![connect(Some(2))]).await;
    let mut link = Link5(rig.accept().await);
    link.connect().await;
    link.answer(ConnectReturnCode::Success, None).await;
    assert_eq!(rig.received().await, Received::Transport(TransportEvent::Connected));
}

#[tokio::test]
async fn a_refusal_for_another_reason_tries_no_other_version() {
    let mut rig = rig_auto().await;
    for bd_seq in [None, Some(0)] {
        rig.say(vec![connect(bd_seq)]).await;
        let mut link = Link5(rig.accept().await);
        link.connect().await;
        link.answer(ConnectReturnCode::NotAuthorized, None).await;
        let (reason, reached) = rig.disconnected().await;
        assert!(reason.contains("mqtt.username") && reached, "{reason}");
    }
}
