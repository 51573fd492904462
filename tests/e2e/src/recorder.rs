//! Every message of a run, in order, as it was on the wire. Connects with a client of its own, subscribes to everything, and comes back as fast as it can when the server
//! was away. It has a thread to itself, so that a busy test does not hold it up. A node that was born again before it was back is asked for its rebirth, as by any host.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rumqttc::{AsyncClient, Event, EventLoop, MqttOptions, Packet, QoS};
use sparkplug::payload::{EncodeOptions, Form, Payload, encode};
use sparkplug::{EdgeNodeDescriptor, MessageKind, Metric, Topic};
use tokio::sync::{Notify, oneshot};

use crate::wait::PATIENCE;

/// Pause before the next try when the server is away; nodes wait half a second and more.
const RECONNECT: Duration = Duration::from_millis(5);

/// Largest message that is taken.
const PACKET_BYTES_MAX: usize = 32 * 1024 * 1024;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// When it came, since the recorder was started.
    pub at: Duration,
    /// Which connection of the recorder it came over, from 0.
    pub session: usize,
    /// Topic.
    pub topic: String,
    /// Payload.
    pub payload: Vec<u8>,
    /// Retain flag: true for what the server had stored.
    pub retain: bool,
}

type Hook = Box<dyn FnMut(&Message) -> bool + Send>;

#[derive(Default)]
struct Shared {
    messages: Mutex<Vec<Arc<Message>>>,
    hook: Mutex<Option<Hook>>,
    changed: Notify,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("messages", &lock(&self.messages).len()).finish_non_exhaustive()
    }
}

/// A running recorder.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    client: AsyncClient,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Connects to the server at that address (`host:port`); returns when everything from then on is received.
    ///
    /// # Panics
    /// The server does not accept its subscription.
    pub async fn start(address: std::net::SocketAddr) -> Self {
        static COUNTER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let id = format!("recorder-{}-{number}", std::process::id());
        let mut options = MqttOptions::new(id, address.ip().to_string(), address.port());
        options.set_max_packet_size(PACKET_BYTES_MAX, PACKET_BYTES_MAX).set_keep_alive(Duration::from_secs(30));
        // What a test publishes in one go.
        let (client, events) = AsyncClient::new(options, 1_000);
        let shared = Arc::new(Shared::default());
        let (listening, ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let recording = record(Arc::clone(&shared), client.clone(), events, listening);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be built").block_on(async {
                tokio::select! {
                    () = recording => {}
                    _ = stopped => {}
                }
            });
        });
        let ready = tokio::time::timeout(PATIENCE, ready).await;
        assert!(matches!(ready, Ok(Ok(()))), "the recorder cannot subscribe at {address}");
        Self { shared, client, stop: Some(stop), thread: Some(thread) }
    }

    /// Publishes a message at QoS 0, not retained.
    ///
    /// # Panics
    /// The recorder has ended.
    pub async fn publish(&self, topic: &str, payload: impl Into<Vec<u8>>) {
        self.client.publish(topic, QoS::AtMostOnce, false, payload).await.expect("the recorder runs");
    }

    /// Asks a node for its rebirth, as any host may.
    pub fn ask(&self, node: EdgeNodeDescriptor) {
        ask(&self.client, node);
    }

    /// How many messages there are.
    #[must_use]
    pub fn count(&self) -> usize {
        lock(&self.shared.messages).len()
    }

    /// All messages so far.
    #[must_use]
    pub fn messages(&self) -> Vec<Arc<Message>> {
        lock(&self.shared.messages).clone()
    }

    /// Messages from a place on.
    #[must_use]
    pub fn since(&self, place: usize) -> Vec<Arc<Message>> {
        lock(&self.shared.messages)[place..].to_vec()
    }

    /// Calls `hook` with each message that comes from now on, before anyone else receives of it, until it returns true.
    pub fn on_message(&self, hook: impl FnMut(&Message) -> bool + Send + 'static) {
        *lock(&self.shared.hook) = Some(Box::new(hook));
    }

    /// Waits for a message at or after a place in the recording for which `found` yields something.
    ///
    /// # Panics
    /// None comes; the message holds the last topics.
    pub async fn wait_for<T>(&self, what: &str, place: usize, mut found: impl FnMut(&Message) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut next = place;
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let messages = self.since(next.min(self.count()));
            next += messages.len();
            if let Some(found) = messages.iter().find_map(|message| found(message)) {
                return found;
            }
            if tokio::time::timeout_at(deadline.into(), changed).await.is_err() {
                panic!("waited {PATIENCE:?} for {what}\n{}", self.last_topics());
            }
        }
    }

    /// When each message from a place on came, and its topic, a line each: what a failed test shows.
    #[must_use]
    pub fn topics_since(&self, place: usize) -> String {
        let lines: Vec<String> = self.since(place).iter().map(|m| format!("{:?} {}", m.at, m.topic)).collect();
        lines.join("\n")
    }

    fn last_topics(&self) -> String {
        format!("--- the last messages\n{}", self.topics_since(self.count().saturating_sub(20)))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic in a hook has been reported.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of a test while it held the lock leaves the recording whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn record(shared: Arc<Shared>, client: AsyncClient, mut events: EventLoop, listening: oneshot::Sender<()>) {
    let mut recording = Recording {
        shared,
        client,
        start: Instant::now(),
        listening: Some(listening),
        session: 0,
        births: Births::default(),
    };
    let mut connected = false;
    loop {
        match events.poll().await {
            Ok(event) => {
                connected |= matches!(event, Event::Incoming(Packet::ConnAck(_)));
                recording.take(event);
            }
            Err(_) => {
                // What was read together with the end of a connection came over that one.
                for event in std::mem::take(&mut events.state.events) {
                    recording.take(event);
                }
                recording.session += usize::from(std::mem::take(&mut connected));
                tokio::time::sleep(RECONNECT).await;
            }
        }
    }
}

struct Recording {
    shared: Arc<Shared>,
    client: AsyncClient,
    start: Instant,
    listening: Option<oneshot::Sender<()>>,
    session: usize,
    births: Births,
}

impl Recording {
    fn take(&mut self, event: Event) {
        match event {
            Event::Incoming(Packet::ConnAck(_)) => {
                self.births.begin();
                // The queue takes a thousand; a full one is the end of the test in any case.
                let _ = self.client.try_subscribe("#", QoS::AtMostOnce);
            }
            Event::Incoming(Packet::SubAck(_)) => {
                // The births of the nodes that are connected by now were not recorded. Only these nodes are asked for a rebirth.
                for node in self.births.of_before() {
                    ask(&self.client, node);
                }
                if let Some(listening) = self.listening.take() {
                    let _ = listening.send(());
                }
            }
            Event::Incoming(Packet::Publish(publish)) => {
                if let Some(node) = self.births.missed(&publish.topic).filter(|_| self.session > 0) {
                    ask(&self.client, node);
                }
                let message = Arc::new(Message {
                    at: self.start.elapsed(),
                    session: self.session,
                    topic: publish.topic,
                    payload: publish.payload.to_vec(),
                    retain: publish.retain,
                });
                let done = lock(&self.shared.hook).as_mut().is_some_and(|hook| hook(&message));
                if done {
                    *lock(&self.shared.hook) = None;
                }
                lock(&self.shared.messages).push(message);
                self.shared.changed.notify_waiters();
            }
            _ => {}
        }
    }
}

/// Whose births were received over a connection, and which nodes were received over those before it.
#[derive(Default)]
struct Births {
    known: BTreeSet<EdgeNodeDescriptor>,
    before: BTreeSet<EdgeNodeDescriptor>,
}

impl Births {
    /// Another connection begins.
    fn begin(&mut self) {
        self.before.append(&mut self.known);
    }

    fn of_before(&self) -> impl Iterator<Item = EdgeNodeDescriptor> {
        self.before.iter().cloned()
    }

    /// The node of a message whose birth was not received. Each node is returned once.
    fn missed(&mut self, topic: &str) -> Option<EdgeNodeDescriptor> {
        use MessageKind as Kind;
        let (node, kind) = match Topic::parse(topic).ok()? {
            Topic::Node { node, kind } | Topic::Device { node, kind, .. } => (node, kind),
            Topic::State { .. } => return None,
        };
        let speaks = matches!(kind, Kind::NData | Kind::DBirth | Kind::DData | Kind::DDeath);
        let is_first = (speaks || kind == Kind::NBirth) && self.known.insert(node.clone());
        (is_first && speaks).then_some(node)
    }
}

fn ask(client: &AsyncClient, node: EdgeNodeDescriptor) {
    let topic = Topic::Node { node, kind: MessageKind::NCmd }.to_string();
    // The queue takes a thousand; a full one is the end of the test in any case.
    let _ = client.try_publish(topic, QoS::AtMostOnce, false, rebirth());
}

/// A rebirth request (`tck-id-operational-behavior-data-commands-ncmd-rebirth-value`).
fn rebirth() -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let payload = Payload {
        timestamp: u64::try_from(now.as_millis()).ok(),
        metrics: vec![Metric::new("Node Control/Rebirth", true)],
        ..Payload::default()
    };
    encode(&payload, &EncodeOptions::new(Form::Command)).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_node_whose_birth_was_not_received_is_missed_and_once() {
        let mut births = Births::default();
        for topic in ["spBv1.0/G/NBIRTH/A", "spBv1.0/G/DBIRTH/A/d", "spBv1.0/G/NDATA/A", "spBv1.0/STATE/H", "x"] {
            assert_eq!(births.missed(topic), None, "{topic}");
        }
        assert_eq!(births.missed("spBv1.0/G/NDEATH/B"), None);
        assert_eq!(births.missed("spBv1.0/G/NCMD/B"), None);
        let missed = births.missed("spBv1.0/G/DDATA/B/d").unwrap();
        assert_eq!(missed.edge_node.as_str(), "B");
        assert_eq!(births.missed("spBv1.0/G/NDATA/B"), None);
        assert_eq!(births.of_before().count(), 0);
        births.begin();
        assert_eq!(births.of_before().count(), 2);
        assert!(births.missed("spBv1.0/G/NDATA/A").is_some());
    }
}
