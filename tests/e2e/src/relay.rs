//! A relay in the middle: carries the messages of joining hosts from one server to another and back, honestly or not. A seed decides what it does to a message.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rumqttc::{AsyncClient, Event, MqttOptions, Packet, Publish, QoS};
use tokio::task::JoinHandle;

/// Longest delay of a message.
const DELAY_MS_MAX: u64 = 400;

/// Messages that are remembered for replays.
const REMEMBERED_MAX: usize = 500;

/// Largest message that is carried.
const PACKET_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What is done to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It does not arrive.
    Drop,
    /// It arrives late, behind others.
    Delay,
    /// It arrives twice.
    Duplicate,
    /// An earlier one arrives again behind it.
    Replay,
    /// It arrives under the name of another host.
    Swap,
    /// One byte of it is another.
    Change,
    /// Someone else's words arrive behind it.
    Invent,
}

const FAULTS: [Fault; 7] =
    [Fault::Drop, Fault::Delay, Fault::Duplicate, Fault::Replay, Fault::Swap, Fault::Change, Fault::Invent];

#[derive(Debug, Default)]
struct Shared {
    /// How many messages are still to be treated badly.
    left: usize,
    done: BTreeMap<Fault, usize>,
    /// Topic and payload, by direction: true from the hosts.
    remembered: Vec<(bool, String, Vec<u8>)>,
    random: u64,
}

impl Shared {
    /// SplitMix64.
    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % below.max(1)
    }

    /// What to do to the next message. None: carry it.
    fn next_fault(&mut self) -> Option<Fault> {
        if self.left == 0 || self.draw(2) == 0 {
            return None;
        }
        self.left -= 1;
        let fault = FAULTS[usize::try_from(self.draw(FAULTS.len() as u64)).unwrap_or_default()];
        *self.done.entry(fault).or_default() += 1;
        Some(fault)
    }

    /// Another remembered message of this direction.
    fn earlier(&mut self, from_hosts: bool) -> Option<(String, Vec<u8>)> {
        let same: Vec<usize> = (0..self.remembered.len()).filter(|at| self.remembered[*at].0 == from_hosts).collect();
        let at = *same.get(usize::try_from(self.draw(same.len() as u64)).ok()?)?;
        let (_, topic, payload) = &self.remembered[at];
        Some((topic.clone(), payload.clone()))
    }
}

/// A running relay.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Mutex<Shared>>,
    tasks: Vec<JoinHandle<()>>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // A panic while it was held has been reported; the state is whole in any case.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relay {
    /// Carries births, data and deaths of a quarantine group from the server of the hosts to that of the join service, and commands back.
    #[must_use]
    pub fn start(hosts: SocketAddr, service: SocketAddr, group: &str, seed: u64) -> Self {
        let shared = Arc::new(Mutex::new(Shared { random: seed, ..Shared::default() }));
        let (outside, from_outside) = client("relay-outside", hosts);
        let (inside, from_inside) = client("relay-inside", service);
        let up = ["NBIRTH", "NDATA", "NDEATH"].map(|kind| format!("spBv1.0/{group}/{kind}/+")).to_vec();
        let down = vec![format!("spBv1.0/{group}/NCMD/+")];
        let carry_up = carry(true, outside.clone(), from_outside, up, inside.clone(), Arc::clone(&shared));
        let carry_down = carry(false, inside, from_inside, down, outside, Arc::clone(&shared));
        Self { shared, tasks: vec![tokio::spawn(carry_up), tokio::spawn(carry_down)] }
    }

    /// From now on, something is done to about every second message, until it was done to so many.
    pub fn misbehave(&self, messages: usize) {
        lock(&self.shared).left = messages;
    }

    /// What was done, how often.
    #[must_use]
    pub fn done(&self) -> BTreeMap<Fault, usize> {
        lock(&self.shared).done.clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn client(id: &str, server: SocketAddr) -> (AsyncClient, rumqttc::EventLoop) {
    let mut options = MqttOptions::new(format!("{id}-{}", std::process::id()), server.ip().to_string(), server.port());
    options.set_max_packet_size(PACKET_BYTES_MAX, PACKET_BYTES_MAX).set_keep_alive(Duration::from_secs(30));
    AsyncClient::new(options, 1_000)
}

async fn carry(
    from_hosts: bool,
    own: AsyncClient,
    mut events: rumqttc::EventLoop,
    topics: Vec<String>,
    to: AsyncClient,
    shared: Arc<Mutex<Shared>>,
) {
    loop {
        match events.poll().await {
            Ok(Event::Incoming(Packet::ConnAck(_))) => {
                for topic in &topics {
                    // The loop that would take it is this one: waiting for room would be for ever.
                    own.try_subscribe(topic, QoS::AtLeastOnce).expect("there is room for a subscription");
                }
            }
            Ok(Event::Incoming(Packet::Publish(publish))) => treat(from_hosts, &publish, &to, &shared),
            Ok(_) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Carries one message, or does something to it.
fn treat(from_hosts: bool, publish: &Publish, to: &AsyncClient, shared: &Mutex<Shared>) {
    let (topic, payload) = (publish.topic.clone(), publish.payload.to_vec());
    let mut state = lock(shared);
    let fault = state.next_fault();
    let mut after = Vec::new();
    let mut deliver = Some((topic.clone(), payload.clone()));
    let mut delay = 0;
    match fault {
        None => {}
        Some(Fault::Drop) => deliver = None,
        Some(Fault::Delay) => delay = 1 + state.draw(DELAY_MS_MAX),
        Some(Fault::Duplicate) => after.push((topic.clone(), payload.clone())),
        Some(Fault::Replay) => after.extend(state.earlier(from_hosts)),
        Some(Fault::Swap) => deliver = state.earlier(from_hosts).map(|(other, _)| (other, payload.clone())),
        Some(Fault::Change) => {
            let mut changed = payload.clone();
            let at = usize::try_from(state.draw(changed.len() as u64)).unwrap_or_default();
            if let Some(byte) = changed.get_mut(at) {
                *byte ^= 1 << state.draw(8);
            }
            deliver = Some((topic.clone(), changed));
        }
        Some(Fault::Invent) => {
            let invented = (0..state.draw(2_000)).map(|_| state.draw(256) as u8).collect();
            after.push((topic.clone(), invented));
        }
    }
    if state.remembered.len() < REMEMBERED_MAX {
        state.remembered.push((from_hosts, topic, payload));
    }
    drop(state);
    let to = to.clone();
    let all: Vec<(String, Vec<u8>)> = deliver.into_iter().chain(after).collect();
    if delay > 0 {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            publish_all(&to, all);
        });
    } else {
        publish_all(&to, all);
    }
}

fn publish_all(to: &AsyncClient, messages: Vec<(String, Vec<u8>)>) {
    for (topic, payload) in messages {
        // Deaths are published at QoS 1 by their nodes; here a lost one is only one more fault.
        let _ = to.try_publish(topic, QoS::AtMostOnce, false, payload);
    }
}
