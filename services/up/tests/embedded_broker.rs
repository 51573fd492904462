//! The embedded broker under the load of a large ConfigDB.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../sparkplug/mqtt/tests/support/replication.rs"]
mod replication;

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sparkfleet_up::broker::{Broker, BrokerConfig, Guard};
use sparkplug::session::QoS;
use sparkplug_mqtt::{Clock, ListenerEvent, ListenerHandle, MqttConfig, Protocol, spawn_listener};

/// Waits for it, and fails with `what` when it does not come; a machine under load is slow.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(120), future).await {
        Ok(value) => value,
        Err(_) => panic!("not in time: {what}"),
    }
}

fn mqtt(url: &str) -> MqttConfig {
    MqttConfig { servers: vec![url.to_owned()], ..MqttConfig::default() }
}

async fn started() -> Broker {
    Broker::start(BrokerConfig { listen: "127.0.0.1:0".parse().unwrap(), ..BrokerConfig::default() }).await.unwrap()
}

/// As many as the births of a large ConfigDB, to a subscriber that begins to read when all are sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_ten_thousand_messages_arrives_whole_and_in_order() {
    const MESSAGES: usize = 10_000;
    let broker = started().await;
    let filters = || vec![("spBv1.0/#".to_owned(), QoS::AtMostOnce)];
    let mut reader = spawn_listener(filters(), &mqtt(&broker.url()), Clock::new()).unwrap();
    let mut writer =
        spawn_listener(vec![("other".to_owned(), QoS::AtMostOnce)], &mqtt(&broker.url()), Clock::new()).unwrap();
    assert_eq!(soon("reader", reader.recv()).await, Some(ListenerEvent::Online));
    assert_eq!(soon("writer", writer.recv()).await, Some(ListenerEvent::Online));
    let began = std::time::Instant::now();
    for number in 0..MESSAGES {
        writer.publish(format!("spBv1.0/G/DBIRTH/E/{number}"), Bytes::from(vec![0; 300])).await.unwrap();
    }
    writer.stop().await;
    let sent = began.elapsed();
    for number in 0..MESSAGES {
        let Some(ListenerEvent::Message { topic, .. }) = soon("a message", reader.recv()).await else {
            panic!("message {number} of {MESSAGES} is missing");
        };
        assert_eq!(topic, format!("spBv1.0/G/DBIRTH/E/{number}"));
    }
    eprintln!("sent in {sent:?}, received after {:?}", began.elapsed());
    reader.stop().await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_devices_are_born_and_replicated_through_the_embedded_broker() {
    let broker = started().await;
    replication::ten_thousand_devices(&mqtt(&broker.url())).await;
    broker.stop().await;
}

fn connect(broker: SocketAddr, version: u8, client_id: &str, user: Option<&str>, is_clean: bool) -> (TcpStream, u8) {
    connect_with_will(broker, version, client_id, user, is_clean, "will")
}

/// A client that speaks bytes: CONNECT with a will on this topic, and the code of the CONNACK. A session that outlives its connection is asked for without `is_clean`.
fn connect_with_will(
    broker: SocketAddr,
    version: u8,
    client_id: &str,
    user: Option<&str>,
    is_clean: bool,
    will: &str,
) -> (TcpStream, u8) {
    let text = |text: &str| [&u16::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat();
    let of_will = if version == 5 { vec![0] } else { vec![] };
    let properties = match (version, is_clean) {
        (5, true) => vec![0],
        // Session Expiry Interval, an hour.
        (5, false) => vec![5, 0x11, 0, 0, 0x0e, 0x10],
        _ => vec![],
    };
    let mut flags = if is_clean { 0b0000_0110 } else { 0b0000_0100 };
    let mut content = [text(client_id), of_will, text(will), text("gone")].concat();
    if let Some(user) = user {
        flags |= 0b1100_0000;
        content.extend([text(user), text("any")].concat());
    }
    let head = [text("MQTT"), vec![version, flags, 0, 0], properties].concat();
    let length = u8::try_from(head.len() + content.len()).unwrap();
    assert!(length < 128, "the length of the packet is one byte");
    let mut socket = TcpStream::connect(broker).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(&[vec![0x10, length], head, content].concat()).unwrap();
    let mut connack = [0; 2];
    socket.read_exact(&mut connack).unwrap();
    let mut rest = vec![0; connack[1].into()];
    socket.read_exact(&mut rest).unwrap();
    assert_eq!(connack[0], 0x20);
    (socket, rest[1])
}

fn raw_client(broker: SocketAddr, version: u8, client_id: &str, user: Option<&str>) -> TcpStream {
    let (socket, code) = connect(broker, version, client_id, user, true);
    assert_eq!(code, 0, "the connection is accepted");
    socket
}

/// PINGREQ and its answer: the session continues.
fn is_alive(socket: &mut TcpStream) -> bool {
    let mut answer = [0; 2];
    socket.write_all(&[0xc0, 0]).is_ok() && socket.read_exact(&mut answer).is_ok() && answer == [0xd0, 0]
}

#[tokio::test(flavor = "multi_thread")]
async fn any_name_is_admitted_where_no_access_control_is_set() {
    let broker = started().await;
    let address = broker.local_addr();
    for version in [4, 5] {
        tokio::task::spawn_blocking(move || raw_client(address, version, "node-red", Some("someone"))).await.unwrap();
    }
    broker.stop().await;
}

/// The standard gives MQTT 5 a DISCONNECT with a reason for it, and 3.1.1 nothing but the end of the connection; in both the will is published.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_taken_over_receives_what_its_version_of_mqtt_has_for_it() {
    let broker = started().await;
    let address = broker.local_addr();
    let mut reader =
        spawn_listener(vec![("will".to_owned(), QoS::AtMostOnce)], &mqtt(&broker.url()), Clock::new()).unwrap();
    assert_eq!(soon("reader", reader.recv()).await, Some(ListenerEvent::Online));
    for (first, second, received) in [(4, 4, 0), (4, 5, 0), (5, 4, 0xe0), (4, 4, 0)] {
        let (said, last) = tokio::task::spawn_blocking(move || {
            let mut old = raw_client(address, first, "same", None);
            let new = raw_client(address, second, "same", None);
            let mut said = Vec::new();
            old.read_to_end(&mut said).unwrap();
            (said, new)
        })
        .await
        .unwrap();
        assert_eq!(said.first().copied().unwrap_or_default(), received, "{first} taken over by {second}: {said:?}");
        let will = soon("the will", reader.recv()).await;
        assert!(matches!(will, Some(ListenerEvent::Message { ref topic, .. }) if topic == "will"), "{will:?}");
        drop(last);
        let will = soon("the will of the other", reader.recv()).await;
        assert!(matches!(will, Some(ListenerEvent::Message { ref topic, .. }) if topic == "will"), "{will:?}");
    }
    broker.stop().await;
}

/// The body is not read: the connection ends when the header has named its length. MQTT 5 would have a DISCONNECT with 0x95 before that, which the crate does not send; clients of MQTT 5 know the limit from
/// the CONNACK.
#[tokio::test(flavor = "multi_thread")]
async fn a_packet_beyond_the_limit_ends_the_connection_of_its_sender_and_no_other() {
    const LIMIT: usize = 64 * 1024;
    let listen = "127.0.0.1:0".parse().unwrap();
    let broker =
        Broker::start(BrokerConfig { listen, max_packet_bytes: LIMIT, ..BrokerConfig::default() }).await.unwrap();
    let address = broker.local_addr();
    let mut reader = listener(&broker, "#", None).await;
    let mut other = tokio::task::spawn_blocking(move || raw_client(address, 4, "other", None)).await.unwrap();
    for version in [4, 5] {
        let said = tokio::task::spawn_blocking(move || {
            let mut sender = raw_client(address, version, "sender", None);
            // PUBLISH of 2 MiB to `a`, of which only the beginning comes.
            sender.write_all(&[0x30, 0x80, 0x80, 0x80, 0x01, 0, 1, b'a']).unwrap();
            let mut said = Vec::new();
            // Some systems call it a reset.
            let _ = sender.read_to_end(&mut said);
            said
        });
        assert_eq!(soon("the end of the connection", said).await.unwrap(), [0; 0], "MQTT level {version}");
        let will = soon("the will", reader.recv()).await;
        assert!(matches!(will, Some(ListenerEvent::Message { ref topic, .. }) if topic == "will"), "{will:?}");
    }
    // Kept to the end: its will would come among what is read below.
    let (alive, _other) = tokio::task::spawn_blocking(move || (is_alive(&mut other), other)).await.unwrap();
    assert!(alive);
    let v5 = MqttConfig { protocol: Protocol::V5, ..mqtt(&broker.url()) };
    let mut sender = spawn_listener(vec![("own".to_owned(), QoS::AtMostOnce)], &v5, Clock::new()).unwrap();
    assert_eq!(soon("the sender", sender.recv()).await, Some(ListenerEvent::Online));
    sender.publish("small".to_owned(), Bytes::from(vec![0; LIMIT - 100])).await.unwrap();
    let small = soon("what fits", reader.recv()).await;
    assert!(matches!(small, Some(ListenerEvent::Message { ref topic, .. }) if topic == "small"), "{small:?}");
    sender.publish("large".to_owned(), Bytes::from(vec![0; 5 * LIMIT])).await.unwrap();
    let refused = soon("the refusal by the own client", sender.recv()).await;
    let says_limit = |reason: &str| reason.contains(&LIMIT.to_string());
    assert!(matches!(refused, Some(ListenerEvent::Offline { ref reason }) if says_limit(reason)), "{refused:?}");
    broker.stop().await;
}

/// 0x85 of MQTT 5, Client Identifier not valid, and 2 of 3.1.1, Identifier rejected.
#[tokio::test(flavor = "multi_thread")]
async fn the_client_id_of_a_session_is_refused_to_every_other_user_and_the_session_continues() {
    let broker = started().await;
    let address = broker.local_addr();
    tokio::task::spawn_blocking(move || {
        for (holder, other, code) in [(4, 4, 2), (4, 5, 0x85), (5, 4, 2), (5, 5, 0x85)] {
            let id = format!("id-{holder}-{other}");
            let mut first = raw_client(address, holder, &id, Some("paint"));
            for user in [Some("weld"), Some("Paint"), None] {
                for is_clean in [true, false] {
                    let (mut refused, answer) = connect(address, other, &id, user, is_clean);
                    assert_eq!(answer, code, "{id} {user:?}");
                    assert_eq!(refused.read(&mut [0]).unwrap(), 0, "the server closes what it has refused");
                }
                assert!(is_alive(&mut first), "{id} {user:?}");
            }
            // The same user takes over.
            let mut second = raw_client(address, other, &id, Some("paint"));
            first.read_to_end(&mut Vec::new()).unwrap();
            assert!(is_alive(&mut second));
            let (_, answer) = connect(address, other, &id, Some("weld"), true);
            assert_eq!(answer, code, "{id} after the same user took over");
        }
    })
    .await
    .unwrap();
    broker.stop().await;
}

/// A session may outlive its connection, with what was subscribed and is kept for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_connection_is_its_users_still_and_an_id_without_a_session_is_free() {
    let broker = started().await;
    let address = broker.local_addr();
    let mut reader =
        spawn_listener(vec![("will".to_owned(), QoS::AtMostOnce)], &mqtt(&broker.url()), Clock::new()).unwrap();
    assert_eq!(soon("reader", reader.recv()).await, Some(ListenerEvent::Online));
    for (version, code) in [(4, 2), (5, 0x85)] {
        for is_clean in [false, true] {
            let id = format!("id-{version}-{is_clean}");
            let (socket, answer) = connect(address, version, &id, Some("paint"), is_clean);
            assert_eq!(answer, 0);
            drop(socket);
            // The server has noticed that the connection is gone.
            let will = soon("the will", reader.recv()).await;
            assert!(matches!(will, Some(ListenerEvent::Message { .. })), "{will:?}");
            let answer = soon("an answer", async {
                loop {
                    let (_, answer) = connect(address, version, &id, Some("weld"), true);
                    if answer == 0 || !is_clean {
                        return answer;
                    }
                }
            });
            assert_eq!(answer.await, if is_clean { 0 } else { code }, "{id}");
            if !is_clean {
                assert_eq!(connect(address, version, &id, Some("paint"), false).1, 0, "its own user has it");
                let will = soon("the will", reader.recv()).await;
                assert!(matches!(will, Some(ListenerEvent::Message { .. })), "{will:?}");
            } else {
                let will = soon("the will of the other", reader.recv()).await;
                assert!(matches!(will, Some(ListenerEvent::Message { .. })), "{will:?}");
            }
        }
    }
    broker.stop().await;
}

/// Everyone may do everything below `spBv1.0`, and receive all.
#[derive(Debug)]
struct Careless;

impl Guard for Careless {
    fn admits(&self, _user: Option<&str>, _password: &[u8]) -> bool {
        true
    }

    fn may_publish(&self, user: Option<&str>, topic: &str) -> bool {
        user.is_none() || topic != "spBv1.0/G/NBIRTH/Press"
    }

    fn may_subscribe(&self, _user: Option<&str>, _filter: &str) -> bool {
        true
    }
}

/// The next messages of a listener: topic, payload and whether the server had it stored.
async fn next_messages(listener: &mut ListenerHandle, messages: usize) -> BTreeMap<String, (Vec<u8>, bool)> {
    let mut all = BTreeMap::new();
    while all.len() < messages {
        match soon("a message", listener.recv()).await {
            Some(ListenerEvent::Message { topic, payload, retain }) => all.insert(topic, (payload.to_vec(), retain)),
            other => panic!("{other:?} instead of a message; so far {all:?}"),
        };
    }
    all
}

async fn listener(broker: &Broker, filter: &str, user: Option<&str>) -> ListenerHandle {
    let config = MqttConfig { username: user.map(str::to_owned), ..mqtt(&broker.url()) };
    let mut listener = spawn_listener(vec![(filter.to_owned(), QoS::AtLeastOnce)], &config, Clock::new()).unwrap();
    assert_eq!(soon("a listener", listener.recv()).await, Some(ListenerEvent::Online));
    listener
}

const CERTIFICATES: &str = "$sparkplug/certificates/#";

/// tck-id-conformance-mqtt-aware-basic, tck-id-conformance-mqtt-aware-store, tck-id-conformance-mqtt-aware-nbirth-mqtt-topic, tck-id-conformance-mqtt-aware-nbirth-mqtt-retain,
/// tck-id-conformance-mqtt-aware-dbirth-mqtt-topic, tck-id-conformance-mqtt-aware-dbirth-mqtt-retain
#[tokio::test(flavor = "multi_thread")]
async fn the_latest_births_are_kept_byte_by_byte_as_retained_certificates() {
    let broker = started().await;
    let mut witness = listener(&broker, "spBv1.0/#", None).await;
    let mut early = listener(&broker, CERTIFICATES, None).await;
    for (topic, payload) in [
        ("spBv1.0/G/NBIRTH/E", "first"),
        ("spBv1.0/G/DBIRTH/E/D", "device"),
        ("spBv1.0/G/NDATA/E", "data"),
        ("spBv1.0/G/NBIRTH/E", "second"),
        ("spBv1.0/G/DDEATH/E/D", "death"),
        ("spBv1.0/G/NDEATH/E", "death"),
        ("spBv1.0/G/NBIRTH/Empty", ""),
        ("spBv1.0/G/NBIRTH/E/no_birth", "x"),
        ("spBv1.0/G/NCMD/End", "end"),
    ] {
        witness.publish(topic.to_owned(), Bytes::from(payload)).await.unwrap();
    }
    // The births themselves go their way.
    let all = next_messages(&mut witness, 8).await;
    assert_eq!(all["spBv1.0/G/NBIRTH/E"], (b"second".to_vec(), false));
    let node = "$sparkplug/certificates/spBv1.0/G/NBIRTH/E".to_owned();
    let device = "$sparkplug/certificates/spBv1.0/G/DBIRTH/E/D".to_owned();
    let mut late = listener(&broker, CERTIFICATES, None).await;
    let kept = BTreeMap::from([(node, (b"second".to_vec(), true)), (device, (b"device".to_vec(), true))]);
    assert_eq!(next_messages(&mut late, 2).await, kept, "deaths and data leave them, and are none");
    // Who listened all the time received each when its birth came.
    for payload in ["first", "device", "second"] {
        let message = soon("a certificate", early.recv()).await;
        assert!(
            matches!(&message, Some(ListenerEvent::Message { payload: is, retain: false, .. }) if is == payload),
            "{message:?}"
        );
    }
    for listener in [witness, early, late] {
        listener.stop().await;
    }
    broker.stop().await;
}

/// A certificate is the server's word: no client writes one, also not as its will, and a birth that is refused has none.
#[tokio::test(flavor = "multi_thread")]
async fn no_client_forges_a_certificate() {
    let config = BrokerConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        guard: Some(Arc::new(Careless)),
        ..BrokerConfig::default()
    };
    let broker = Broker::start(config).await.unwrap();
    let forged = "$sparkplug/certificates/spBv1.0/G/NBIRTH/Press";
    let mut early = listener(&broker, CERTIFICATES, None).await;
    let member = listener(&broker, "other", Some("member")).await;
    member.publish(forged.to_owned(), Bytes::from("forged")).await.unwrap();
    member.publish("spBv1.0/G/NBIRTH/Press".to_owned(), Bytes::from("refused")).await.unwrap();
    let address = broker.local_addr();
    tokio::task::spawn_blocking(move || drop(connect_with_will(address, 5, "ghost", None, true, forged)))
        .await
        .unwrap();
    // What its group may publish is certified; nothing came before it.
    member.publish("spBv1.0/G/NBIRTH/Own".to_owned(), Bytes::from("own")).await.unwrap();
    let own = BTreeMap::from([("$sparkplug/certificates/spBv1.0/G/NBIRTH/Own".to_owned(), (b"own".to_vec(), false))]);
    assert_eq!(next_messages(&mut early, 1).await, own);
    // The ghost's will is published, if it ever is, before its client id is free for another user.
    tokio::task::spawn_blocking(move || {
        while connect(address, 5, "ghost", Some("other"), true).1 != 0 {
            std::thread::yield_now();
        }
    })
    .await
    .unwrap();
    let mut late = listener(&broker, CERTIFICATES, None).await;
    member.publish("spBv1.0/G/NBIRTH/Last".to_owned(), Bytes::from("last")).await.unwrap();
    let all = next_messages(&mut late, 2).await;
    let topics: Vec<&str> = all.keys().filter_map(|topic| topic.strip_prefix("$sparkplug/certificates/")).collect();
    assert_eq!(topics, ["spBv1.0/G/NBIRTH/Last", "spBv1.0/G/NBIRTH/Own"], "what was stored comes before what is new");
    for listener in [early, member, late] {
        listener.stop().await;
    }
    broker.stop().await;
}
