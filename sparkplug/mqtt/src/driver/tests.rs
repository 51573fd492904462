//! The driver with a scripted machine on one side and a scripted MQTT server on the other.

use std::collections::VecDeque;
use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use rumqttc::{ConnAck, ConnectReturnCode, Packet, Protocol, PubAck, SubAck, SubscribeReasonCode};
use sparkplug::session::{Publish, QoS};
use sparkplug::{EdgeNodeDescriptor, Now};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use super::*;
use crate::client_id;
use crate::config::MqttConfig;

mod mqtt5;

const SOON: Duration = Duration::from_secs(10);

/// Publishes what a test orders, and repeats what it receives.
#[derive(Default)]
struct Script {
    outputs: VecDeque<Output<Received>>,
    /// It is due at once.
    deadline: Option<Duration>,
    stopping: bool,
}

#[derive(Debug)]
enum Say {
    Actions(Vec<TransportAction>),
    /// So many events, and a deadline.
    Flood(usize),
    Stop,
}

#[derive(Debug, PartialEq)]
enum Received {
    Transport(TransportEvent),
    Flooded,
    Stopped,
}

impl Machine for Script {
    type Input = Say;
    type Refusal = Infallible;
    type Event = Received;
    const CONCLUDES_FROM_SILENCE: bool = true;

    fn input(&mut self, input: Say, _: Now) -> Result<(), Infallible> {
        let actions = match input {
            Say::Actions(actions) => actions,
            Say::Flood(events) => {
                self.outputs.extend((0..events).map(|_| Output::Event(Received::Flooded)));
                self.deadline = Some(Duration::ZERO);
                Vec::new()
            }
            Say::Stop => {
                self.stopping = true;
                vec![TransportAction::Publish(publish("bye", QoS::AtLeastOnce)), TransportAction::Disconnect]
            }
        };
        self.outputs.extend(actions.into_iter().map(Output::Transport));
        Ok(())
    }

    fn on_transport(&mut self, event: TransportEvent, _: Now) {
        let over = matches!(event, TransportEvent::Disconnected { .. });
        self.outputs.push_back(Output::Event(Received::Transport(event)));
        if over && self.stopping {
            self.outputs.push_back(Output::Event(Received::Stopped));
        }
    }

    fn handle_timeout(&mut self, _: Now) {
        if self.deadline.take().is_some() {
            self.outputs.push_back(Output::Transport(TransportAction::Publish(publish("late", QoS::AtMostOnce))));
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.deadline
    }

    fn poll_output(&mut self) -> Option<Output<Received>> {
        self.outputs.pop_front()
    }

    fn stop() -> Say {
        Say::Stop
    }

    fn is_stop(input: &Say) -> bool {
        matches!(input, Say::Stop)
    }

    fn is_stopped(event: &Received) -> bool {
        matches!(event, Received::Stopped)
    }
}

fn publish(topic: &str, qos: QoS) -> Publish {
    Publish { topic: topic.to_owned(), payload: Bytes::from_static(b"x"), qos, retain: false }
}

fn connect(bd_seq: Option<i64>) -> TransportAction {
    let bd_seq = bd_seq.map(|number| BdSeq::from_wire(number).unwrap());
    TransportAction::Connect(Connect { server: 0, will: Some(publish("will", QoS::AtLeastOnce)), bd_seq })
}

/// Both ends, and the driver between them.
struct Rig {
    server: TcpListener,
    submissions: mpsc::Sender<Submission<Script>>,
    events: Events<Received>,
    stop: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

async fn rig(bd_seq: BdSeqStore, change: impl FnOnce(&mut MqttConfig)) -> Rig {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = MqttConfig {
        servers: vec![format!("mqtt://{}", server.local_addr().unwrap())],
        protocol: crate::config::Protocol::V311,
        connect_timeout_s: 1,
        ..MqttConfig::default()
    };
    change(&mut config);
    let node = EdgeNodeDescriptor::parse("G", "E").unwrap();
    let client_id = client_id::of_edge_node("test", &node, &BdSeqStore::Memory, true).unwrap();
    let connector = Connector::new(config, client_id).unwrap();
    let (driver, DriverHandles { submissions, events, stop }) =
        Driver::new(Script::default(), Clock::new(), connector, bd_seq, None);
    Rig { server, submissions, events, stop, task: tokio::spawn(driver.run()) }
}

impl Rig {
    async fn say(&self, actions: Vec<TransportAction>) {
        let submission = Submission { input: Say::Actions(actions), answer: None };
        timeout(SOON, self.submissions.send(submission)).await.expect("the inbox takes submissions").unwrap();
    }

    async fn received(&mut self) -> Received {
        timeout(SOON, self.events.recv()).await.expect("an event comes").expect("the driver runs")
    }

    async fn disconnected(&mut self) -> (String, bool) {
        match self.received().await {
            Received::Transport(TransportEvent::Disconnected { reason, reached }) => (reason, reached),
            other => panic!("{other:?}"),
        }
    }

    /// Accepts a connection and answers its CONNECT.
    async fn link(&mut self) -> Link {
        let mut link = self.accept().await;
        assert!(matches!(link.packet().await, Some(Packet::Connect(_))));
        link.send(Packet::ConnAck(ConnAck::new(ConnectReturnCode::Success, false))).await;
        assert_eq!(self.received().await, Received::Transport(TransportEvent::Connected));
        link
    }

    async fn accept(&self) -> Link {
        let (stream, _) = timeout(SOON, self.server.accept()).await.expect("a connection comes").unwrap();
        Link { stream, received: BytesMut::new() }
    }
}

/// The server's end of a connection.
struct Link {
    stream: TcpStream,
    received: BytesMut,
}

impl Link {
    /// None: the client closed the socket.
    async fn packet(&mut self) -> Option<Packet> {
        loop {
            match Packet::read(&mut self.received, 1 << 20) {
                Ok(packet) => return Some(packet),
                Err(rumqttc::mqttbytes::Error::InsufficientBytes(_)) => {}
                Err(error) => panic!("{error}"),
            }
            match timeout(SOON, self.stream.read_buf(&mut self.received)).await.expect("the client sends") {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Topic of the PUBLISH that comes next; pings are answered.
    async fn topic(&mut self) -> String {
        loop {
            match self.packet().await {
                Some(Packet::Publish(publish)) => return publish.topic,
                Some(Packet::PingReq) => self.send(Packet::PingResp).await,
                other => panic!("{other:?}"),
            }
        }
    }

    async fn send(&mut self, packet: Packet) {
        let mut bytes = BytesMut::new();
        packet.write(&mut bytes, 1 << 20).unwrap();
        self.stream.write_all(&bytes).await.unwrap();
    }

    async fn message(&mut self, topic: &str) {
        self.send(Packet::Publish(rumqttc::Publish::new(topic, rumqttc::QoS::AtMostOnce, "x"))).await;
    }
}

#[tokio::test]
async fn nothing_of_an_old_session_reaches_the_next_one() {
    let mut rig = rig(BdSeqStore::Memory, |_| {}).await;
    rig.say(vec![connect(None)]).await;
    let link = rig.link().await;
    drop(link);
    // In the old session, of whose end the machine does not know yet.
    rig.say((0..500).map(|_| TransportAction::Publish(publish("stale", QoS::AtLeastOnce))).collect()).await;
    assert!(rig.disconnected().await.1);
    // And while there is none.
    rig.say(vec![TransportAction::Publish(publish("stale", QoS::AtMostOnce))]).await;
    rig.say(vec![connect(None), TransportAction::Publish(publish("first", QoS::AtMostOnce))]).await;
    let mut link = rig.link().await;
    assert_eq!(link.topic().await, "first");
    rig.say(vec![TransportAction::Publish(publish("second", QoS::AtMostOnce))]).await;
    assert_eq!(link.topic().await, "second");
}

#[tokio::test]
async fn publishes_leave_in_their_order_also_when_the_server_reads_slowly() {
    let mut rig = rig(BdSeqStore::Memory, |_| {}).await;
    rig.say(vec![connect(None)]).await;
    let mut link = rig.link().await;
    const MESSAGES: usize = 3_000;
    let payload = Bytes::from(vec![0; 10_000]);
    let sent = async {
        for number in 0..MESSAGES {
            let (topic, payload) = (number.to_string(), payload.clone());
            let publish = Publish { topic, payload, qos: QoS::AtMostOnce, retain: false };
            rig.say(vec![TransportAction::Publish(publish)]).await;
        }
    };
    let received = async {
        for number in 0..MESSAGES {
            if number % 1_000 == 0 {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            // An event arrives between every two, to see that receiving does not disturb sending.
            if number % 10 == 0 {
                link.message("spBv1.0/G/NCMD/E").await;
            }
            assert_eq!(link.topic().await, number.to_string());
        }
    };
    timeout(Duration::from_secs(60), async { tokio::join!(sent, received) }).await.expect("all of it arrives");
}

#[tokio::test]
async fn subscribed_is_reported_after_suback_and_a_refused_filter_ends_the_session_by_name() {
    let mut rig = rig(BdSeqStore::Memory, |_| {}).await;
    let filters =
        vec![("spBv1.0/G/NCMD/E".to_owned(), QoS::AtLeastOnce), ("spBv1.0/STATE/H".to_owned(), QoS::AtLeastOnce)];
    rig.say(vec![connect(None), TransportAction::Subscribe(filters.clone())]).await;
    let mut link = rig.link().await;
    let Some(Packet::Subscribe(subscribe)) = link.packet().await else { panic!("no SUBSCRIBE") };
    assert_eq!(subscribe.filters.len(), 2);
    assert!(rig.events.try_recv().is_err(), "SUBACK is not there yet");
    let granted = SubscribeReasonCode::Success(rumqttc::QoS::AtLeastOnce);
    link.send(Packet::SubAck(SubAck::new(subscribe.pkid, vec![granted, granted]))).await;
    assert_eq!(rig.received().await, Received::Transport(TransportEvent::Subscribed));

    rig.say(vec![TransportAction::Subscribe(filters)]).await;
    let Some(Packet::Subscribe(subscribe)) = link.packet().await else { panic!("no SUBSCRIBE") };
    link.send(Packet::SubAck(SubAck::new(subscribe.pkid, vec![granted, SubscribeReasonCode::Failure]))).await;
    let (reason, reached) = rig.disconnected().await;
    assert!(reason.contains("spBv1.0/STATE/H") && !reason.contains("NCMD"), "{reason}");
    assert!(reached);
    assert_eq!(link.packet().await, None, "the socket is closed");
}

#[tokio::test]
async fn the_next_bd_seq_is_stored_before_the_connect_goes_out() {
    let directory = tempfile::tempdir().unwrap();
    let store = BdSeqStore::File(directory.path().join("bd_seq"));
    let rig = rig(store.clone(), |_| {}).await;
    rig.say(vec![connect(Some(255))]).await;
    let mut link = rig.accept().await;
    assert_eq!(std::fs::read_to_string(directory.path().join("bd_seq")).unwrap(), "000\n");
    let Some(Packet::Connect(packet)) = link.packet().await else { panic!("no CONNECT") };
    assert!(packet.clean_session);
    assert_eq!(packet.last_will.unwrap().topic, "will");
    drop(rig);
}

/// tck-id-principles-persistence-clean-session-311, tck-id-message-flow-phid-sparkplug-clean-session-311
#[tokio::test]
async fn every_connect_of_edge_node_and_host_is_mqtt_3_1_1_with_clean_session() {
    let mut rig = rig(BdSeqStore::Memory, |_| {}).await;
    // An Edge Node's has a bdSeq, a Host Application's none; the second of each follows a lost session.
    for bd_seq in [Some(0), Some(1), None, None] {
        rig.say(vec![connect(bd_seq)]).await;
        let mut link = rig.accept().await;
        let Some(Packet::Connect(packet)) = link.packet().await else { panic!("no CONNECT") };
        assert_eq!(packet.protocol, Protocol::V4);
        assert!(packet.clean_session);
        link.send(Packet::ConnAck(ConnAck::new(ConnectReturnCode::Success, false))).await;
        assert_eq!(rig.received().await, Received::Transport(TransportEvent::Connected));
        drop(link);
        assert!(rig.disconnected().await.1);
    }
}

/// Two processes with copies of one state directory: the server ends the session of each for the other. MQTT 3.1.1 has no word for it.
#[tokio::test]
async fn after_two_sessions_that_the_server_ended_soon_the_client_id_is_another_one() {
    let mut rig = rig(BdSeqStore::Memory, |_| {}).await;
    let mut ids = Vec::new();
    for bd_seq in 0..4 {
        rig.say(vec![connect(Some(bd_seq))]).await;
        let mut link = rig.accept().await;
        let Some(Packet::Connect(packet)) = link.packet().await else { panic!("no CONNECT") };
        ids.push(packet.client_id);
        link.send(Packet::ConnAck(ConnAck::new(ConnectReturnCode::Success, false))).await;
        assert_eq!(rig.received().await, Received::Transport(TransportEvent::Connected));
        drop(link);
        assert!(rig.disconnected().await.1);
    }
    assert!(ids[0].starts_with("test.G.E.") && ids[2].starts_with("test.G.E."), "{ids:?}");
    assert_eq!(ids[0], ids[1], "one short session is an accident");
    assert_ne!(ids[1], ids[2]);
    assert_eq!(ids[2], ids[3], "the new one stays");
}

#[tokio::test]
async fn without_a_place_for_the_bd_seq_there_is_no_connect() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    let path = directory.path().join("file/bd_seq");
    let mut rig = rig(BdSeqStore::File(path.clone()), |_| {}).await;
    rig.say(vec![connect(Some(0))]).await;
    let (reason, reached) = rig.disconnected().await;
    assert!(reason.contains(&path.display().to_string()), "{reason}");
    assert!(!reached);
}

#[tokio::test]
async fn a_refused_connect_counts_as_reached_and_one_that_found_no_server_does_not() {
    let mut rig = rig(BdSeqStore::Memory, |_| {}).await;
    rig.say(vec![connect(None)]).await;
    let mut link = rig.accept().await;
    link.packet().await;
    link.send(Packet::ConnAck(ConnAck::new(ConnectReturnCode::BadUserNamePassword, false))).await;
    let (reason, reached) = rig.disconnected().await;
    assert!(reason.contains("refuses the credentials") && reason.contains("mqtt.username"), "{reason}");
    assert!(reached);

    // CONNECT was sent, but what became of it is not known.
    rig.say(vec![connect(None)]).await;
    let mut link = rig.accept().await;
    link.packet().await;
    let (reason, reached) = rig.disconnected().await;
    assert!(reason.contains("did not answer in time"), "{reason}");
    assert!(reached);

    let address = rig.server.local_addr().unwrap();
    drop((std::mem::replace(&mut rig.server, TcpListener::bind("127.0.0.1:0").await.unwrap()), link));
    rig.say(vec![connect(None)]).await;
    let (reason, reached) = rig.disconnected().await;
    assert!(reason.starts_with(&format!("cannot reach mqtt://{address}: ")), "{reason}");
    assert!(!reached);
}

#[tokio::test]
async fn disconnect_waits_for_the_acknowledgement_of_what_was_said_before() {
    let mut rig = rig(BdSeqStore::Memory, |_| {}).await;
    rig.say(vec![connect(None)]).await;
    let mut link = rig.link().await;
    let publishes = ["a", "b"].map(|topic| TransportAction::Publish(publish(topic, QoS::AtLeastOnce)));
    rig.say(publishes.into_iter().chain([TransportAction::Disconnect]).collect()).await;
    assert_eq!((link.topic().await, link.topic().await), ("a".to_owned(), "b".to_owned()));
    let early = timeout(Duration::from_millis(200), link.packet()).await;
    assert!(early.is_err(), "DISCONNECT before PUBACK: {early:?}");
    link.send(Packet::PubAck(PubAck::new(1))).await;
    link.send(Packet::PubAck(PubAck::new(2))).await;
    assert_eq!(link.packet().await, Some(Packet::Disconnect));
    // A message that crosses the DISCONNECT belongs to a session that is over for the machine.
    link.message("spBv1.0/G/NCMD/E").await;
    drop(link);
    for publishes in [1, 2] {
        assert_eq!(rig.received().await, Received::Transport(TransportEvent::Received { publishes }));
    }
    assert_eq!(rig.disconnected().await, ("disconnected".to_owned(), true));
}

#[tokio::test]
async fn stop_ends_in_time_with_a_server_that_acknowledges_nothing() {
    let mut rig = rig(BdSeqStore::Memory, |_| {}).await;
    rig.say(vec![connect(None)]).await;
    let mut link = rig.link().await;
    let began = Instant::now();
    rig.stop.notify_one();
    assert_eq!(link.topic().await, "bye");
    let (reason, _) = rig.disconnected().await;
    assert!(reason.contains("did not take the farewell in time"), "{reason}");
    assert_eq!(rig.received().await, Received::Stopped);
    rig.task.await.unwrap();
    assert!(began.elapsed() < DRAIN_MAX + Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn stop_does_not_wait_for_a_server_that_takes_no_data() {
    let mut rig = rig(BdSeqStore::Memory, |config| config.connect_timeout_s = 60).await;
    rig.say(vec![connect(None)]).await;
    let _link = rig.link().await;
    // More than all buffers between the two hold; then the inbox is not read any more and fills up.
    let payload = Bytes::from(vec![0; 1 << 20]);
    for _ in 0..60 {
        let publish = Publish { payload: payload.clone(), ..publish("big", QoS::AtMostOnce) };
        let submission = Submission { input: Say::Actions(vec![TransportAction::Publish(publish)]), answer: None };
        if timeout(Duration::from_millis(200), rig.submissions.send(submission)).await.is_err() {
            break;
        }
    }
    let began = Instant::now();
    rig.stop.notify_one();
    assert_eq!(rig.disconnected().await.0, "the server did not take the farewell in time");
    assert_eq!(rig.received().await, Received::Stopped);
    timeout(SOON, rig.task).await.expect("it ends").unwrap();
    assert!(began.elapsed() < DRAIN_MAX + Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn dropping_every_handle_stops_the_machine_with_its_farewell() {
    let mut rig = rig(BdSeqStore::Memory, |_| {}).await;
    rig.say(vec![connect(None)]).await;
    let mut link = rig.link().await;
    drop((rig.submissions, rig.events));
    assert_eq!(link.topic().await, "bye");
    link.send(Packet::PubAck(PubAck::new(1))).await;
    assert_eq!(link.packet().await, Some(Packet::Disconnect));
    drop(link);
    timeout(SOON, rig.task).await.expect("it ends").unwrap();
}

/// The limit is 10 events, beyond those handed over (two batches): the limit twice and those batches are all that is kept.
#[tokio::test]
async fn an_application_that_sleeps_keeps_its_link_and_learns_whose_messages_were_dropped() {
    let mut rig = rig(BdSeqStore::Memory, |config| {
        config.keep_alive_s = 1;
        config.waiting_events_max = 10;
    })
    .await;
    rig.say(vec![connect(None)]).await;
    let mut link = rig.link().await;
    for number in 0..120 {
        link.message(&format!("spBv1.0/G/NDATA/{}", number % 3)).await;
    }
    // Three keep-alive periods in which the application takes nothing: every ping comes.
    for _ in 0..3 {
        assert_eq!(link.packet().await, Some(Packet::PingReq));
        link.send(Packet::PingResp).await;
    }
    // What it says still goes out.
    rig.say(vec![TransportAction::Publish(publish("alive", QoS::AtMostOnce))]).await;
    assert_eq!(link.topic().await, "alive");

    let mut messages = 0;
    let mut lost = Vec::new();
    while lost.len() < 3 {
        match rig.received().await {
            Received::Transport(TransportEvent::Message { topic, .. }) => {
                assert_eq!(topic, format!("spBv1.0/G/NDATA/{}", messages % 3), "in order, without a gap");
                messages += 1;
            }
            Received::Transport(TransportEvent::Lost { topic }) => lost.push(topic),
            other => panic!("{other:?}"),
        }
    }
    assert!((20..=2 * BATCH_MAX + 20).contains(&messages), "{messages}");
    assert_eq!(lost, ["spBv1.0/G/NDATA/0", "spBv1.0/G/NDATA/1", "spBv1.0/G/NDATA/2"]);
    link.message("spBv1.0/G/NDATA/3").await;
    let Received::Transport(TransportEvent::Message { topic, .. }) = rig.received().await else { panic!("no message") };
    assert_eq!(topic, "spBv1.0/G/NDATA/3");
}

/// What a host waits for may have arrived long ago. A host that asks again makes it worse for itself.
#[tokio::test]
async fn while_the_socket_is_not_read_nothing_is_concluded_from_silence() {
    let mut rig = rig(BdSeqStore::Memory, |config| config.waiting_events_max = 10).await;
    rig.say(vec![connect(None)]).await;
    let mut link = rig.link().await;
    let events = 3 * BATCH_MAX;
    rig.submissions.send(Submission { input: Say::Flood(events), answer: None }).await.unwrap();
    for n in 0..3 {
        rig.say(vec![TransportAction::Publish(publish(&format!("said {n}"), QoS::AtMostOnce))]).await;
        assert_eq!(link.topic().await, format!("said {n}"));
    }
    for _ in 0..events {
        assert_eq!(rig.received().await, Received::Flooded);
    }
    assert_eq!(link.topic().await, "late");
}

#[tokio::test]
async fn a_short_sleep_of_the_application_loses_nothing() {
    let mut rig = rig(BdSeqStore::Memory, |config| config.waiting_events_max = 10).await;
    rig.say(vec![connect(None)]).await;
    let mut link = rig.link().await;
    for number in 0..200 {
        link.message(&format!("spBv1.0/G/NDATA/{number}")).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    for number in 0..200 {
        let Received::Transport(TransportEvent::Message { topic, .. }) = rig.received().await else {
            panic!("no message")
        };
        assert_eq!(topic, format!("spBv1.0/G/NDATA/{number}"));
    }
}
