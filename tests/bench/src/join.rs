//! The attested join: from hello to ticket, what a ticket costs the join service, and the bytes of each message.
//!
//! The service is the real one, in a thread of its own, on a simulated API server over HTTP. Hosts speak the real protocol over real sessions. Their TPMs are software, whose time is
//! part of the figures but far below that of a real TPM.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use join_service_contract::{DesiredPolicy, JoinReplica, names};
use simulator::cluster::{ClusterSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use sparkplug::GroupId;
use sparkplug::host::HostConfig;
use sparkplug::session::QoS;
use sparkplug_mqtt::{Clock, HostHandle, ListenerEvent, MqttConfig};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::figures::{self, Distribution, HEADS, Table, ms};
use crate::join_site::{CLUSTER, JOIN_GROUP, JoiningHost, Service, policy};
use crate::latency::start_broker;
use crate::raw;

/// Hosts that join at the same time: the service works on 64 attempts at once, the hosts of others repeat.
const AT_ONCE: usize = 48;
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the measurement: `hosts` one after another, then as many at once.
///
/// # Errors
/// Something does not run, or a host is refused.
pub async fn run(hosts: u32) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let broker = start_broker().await?;
    let mqtt = MqttConfig { servers: vec![broker.url()], ..MqttConfig::default() };
    let spec = ClusterSpec { flux: false, sealed_secrets: false, ..ClusterSpec::new(CLUSTER) };
    let cluster = SimulatedCluster::start(spec, Charts::new()).await?;
    let service = Service::start(&cluster, &mqtt, directory.path())?;
    let mut observer = Observer::start(&mqtt)?;
    observer.send(&policy(2 * u64::from(hosts) + 1)?).await?;

    let (sizes, largest) = measure_bytes(&mqtt, &mut observer).await?;
    let before = service.cpu()?;
    let times = one_after_another(hosts, &mqtt, &mut observer).await?;
    let single = (service.cpu()? - before) / hosts.max(1);
    let (crowd, passed, cpu) = at_once(hosts, &mqtt, &mut observer, &service).await?;
    let limit = raw::round_trips(broker.local_addr(), largest, usize::try_from(hosts)?.max(100)).await?;
    show_times(hosts, &times, &limit);
    show_cost(hosts, single, cpu / hosts.max(1), passed, &crowd);
    show_sizes(&sizes);

    observer.host.stop().await;
    service.stop().await?;
    cluster.stop().await;
    broker.stop().await;
    Ok(())
}

/// Sends the policy and sees who is a member.
struct Observer {
    host: HostHandle,
    replica: JoinReplica,
}

impl Observer {
    fn start(mqtt: &MqttConfig) -> anyhow::Result<Self> {
        let group = format!("ACME-{CLUSTER}");
        let filters = vec![(format!("spBv1.0/{group}/#"), QoS::AtLeastOnce)];
        let config =
            HostConfig { rebirth_jitter: Duration::from_millis(10), filters, ..HostConfig::of_contracts(None) };
        let host = sparkplug_mqtt::spawn_host(config, mqtt, Clock::new())?;
        Ok(Self { host, replica: JoinReplica::new(names::join_node(GroupId::new(group)?)) })
    }

    async fn until(&mut self, what: &str, is_so: impl Fn(&JoinReplica) -> bool) -> anyhow::Result<()> {
        let follow = async {
            while !is_so(&self.replica) {
                let event = self.host.recv().await.context("the observer's session has ended")?;
                self.replica.on_event(&event);
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, follow).await.with_context(|| format!("waited too long for {what}"))?
    }

    async fn send(&mut self, policy: &DesiredPolicy) -> anyhow::Result<()> {
        self.until("the birth of the join service", JoinReplica::is_complete).await?;
        self.host.request(policy.to_request(self.replica.address().clone())).await?;
        let (version, digest) = (policy.version, policy.digest());
        self.until("the policy", |join| join.node().is_some_and(|node| node.has_policy(version, digest))).await
    }

    async fn members(&mut self, count: u32) -> anyhow::Result<()> {
        self.until("members", |join| join.node().is_some_and(|node| node.hosts_members >= count)).await
    }
}

/// One kind of message: its name, how many a join has, bytes of the protocol, bytes of topics and payloads.
type Size = (&'static str, usize, usize, usize);

/// The messages of host 0, and the largest payload.
async fn measure_bytes(mqtt: &MqttConfig, observer: &mut Observer) -> anyhow::Result<(Vec<Size>, usize)> {
    let filter = vec![(format!("spBv1.0/{JOIN_GROUP}/#"), QoS::AtMostOnce)];
    let mut listener = sparkplug_mqtt::spawn_listener(filter, mqtt, Clock::new())?;
    let ended = "the listener's session has ended";
    while !matches!(listener.recv().await.context(ended)?, ListenerEvent::Online) {}
    let mut host = JoiningHost::start(0, mqtt).await?;
    host.join().await?;
    observer.members(1).await?;
    let mut sizes: Vec<Size> = ["hello", "challenge", "evidence", "ticket", "progress", "acknowledgement"]
        .map(|name| (name, 0, 0, 0))
        .into_iter()
        .collect();
    let (mut missing, mut largest) = (host.messages.clone(), 0);
    while !missing.is_empty() {
        let event = tokio::time::timeout(PATIENCE, listener.recv()).await.context("every message")?;
        let ListenerEvent::Message { topic, payload, .. } = event.context(ended)? else { continue };
        let holds = |(_, bytes): &(&str, Vec<u8>)| payload.windows(bytes.len()).any(|part| part == bytes);
        let Some(at) = missing.iter().position(holds) else { continue };
        let (name, bytes) = missing.swap_remove(at);
        largest = largest.max(payload.len());
        for (_, count, protocol, wire) in sizes.iter_mut().filter(|size| size.0 == name) {
            (*count, *protocol, *wire) = (*count + 1, *protocol + bytes.len(), *wire + topic.len() + payload.len());
        }
    }
    listener.stop().await;
    host.stop().await;
    Ok((sizes, largest))
}

async fn one_after_another(hosts: u32, mqtt: &MqttConfig, observer: &mut Observer) -> anyhow::Result<Distribution> {
    let mut times = Distribution::default();
    for number in 1..=hosts {
        let mut host = JoiningHost::start(number.into(), mqtt).await?;
        times.push(host.join().await?);
        // What follows the ticket is over before the next begins.
        observer.members(1 + number).await?;
        host.stop().await;
    }
    Ok(times)
}

/// Times of each, until all were members, and the service's processor time for it.
async fn at_once(
    hosts: u32,
    mqtt: &MqttConfig,
    observer: &mut Observer,
    service: &Service,
) -> anyhow::Result<(Distribution, Duration, Duration)> {
    let mut born = Vec::new();
    for number in 0..hosts {
        born.push(JoiningHost::start(u64::from(1 + hosts + number), mqtt).await?);
    }
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let (before, begun) = (service.cpu()?, Instant::now());
    let mut joining = JoinSet::new();
    for mut host in born {
        let permits = Arc::clone(&permits);
        joining.spawn(async move {
            let _permit = permits.acquire_owned().await?;
            let time = host.join().await?;
            anyhow::Ok((host, time))
        });
    }
    let (mut times, mut joined) = (Distribution::default(), Vec::new());
    while let Some(ended) = joining.join_next().await {
        let (host, time) = ended.context("a host panicked")??;
        times.push(time);
        joined.push(host);
    }
    observer.members(1 + 2 * hosts).await?;
    let measured = (times, begun.elapsed(), service.cpu()? - before);
    for host in joined {
        host.stop().await;
    }
    Ok(measured)
}

fn show_times(hosts: u32, times: &Distribution, limit: &Distribution) {
    let about = format!(
        "{hosts} hosts one after another, each until it is a member; {}. Real join service (k3s, enrolled hosts, a thread of its own), simulated API server over HTTP, embedded \
         broker and hosts share one process; TPMs are software. From hello to ticket four messages pass the broker in a row, as two raw round trips do. Raw: the size of the \
         largest message, there and back.",
        figures::profile()
    );
    let heads: Vec<&str> = ["since the hello"].into_iter().chain(HEADS).collect();
    let table = Table::begin("join", &about, &heads);
    for (name, times) in [("ticket opened", times), ("raw MQTT round trip", limit)] {
        table.row(&[vec![name.to_owned()], times.quantiles().map(ms).to_vec()].concat());
    }
}

fn show_cost(hosts: u32, single: Duration, crowd: Duration, passed: Duration, times: &Distribution) {
    let about = format!(
        "Processor time of the service's thread for a whole join: hello to member, with the revocation of the token. At once: {hosts} more hosts, {AT_ONCE} at a time, all \
         members after {:.1} s; hello to ticket took {} at p50 and {} at most.",
        passed.as_secs_f64(),
        ms(times.quantile(50)),
        ms(times.quantile(100)),
    );
    let table = Table::begin("join: cost of a ticket", &about, &["hosts", "each, processor time", "a second and core"]);
    for (name, each) in [("one after another", single), ("at once", crowd)] {
        table.row(&[name.to_owned(), ms(each), format!("{:.0}", 1.0 / each.as_secs_f64())]);
    }
}

fn show_sizes(sizes: &[Size]) {
    let about = "One join without repeats. On the wire: topics and payloads, without the headers of MQTT and TCP; the broker takes each message once and gives it to each subscriber.";
    let table =
        Table::begin("join: bytes", about, &["message", "in a join", "bytes of the protocol", "bytes on the wire"]);
    let all = sizes.iter().fold(("all", 0, 0, 0), |sum, size| (sum.0, sum.1 + size.1, sum.2 + size.2, sum.3 + size.3));
    for (name, count, protocol, wire) in sizes.iter().chain([&all]) {
        table.row(&[(*name).to_owned(), count.to_string(), protocol.to_string(), wire.to_string()]);
    }
}
