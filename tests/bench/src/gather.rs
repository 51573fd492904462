//! How long an empty control plane takes until it knows a whole fleet: it asks every node for its births, next to a subscriber that only counts the same bytes.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use cluster_manager::adapters::sparkplug::host_config;
use configdb_schema::Organisation;
use rumqttc::{Event, Packet, QoS};
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::payload::{EncodeOptions, Form, Payload, encode};
use sparkplug::{EdgeNodeDescriptor, Metric};
use sparkplug_mqtt::{Clock, MqttConfig};
use tokio::sync::mpsc;

use crate::figures::{self, Table, ms, ratio};
use crate::latency::start_broker;
use crate::raw;

/// Longest wait for all births.
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs the measurement: `nodes` groups with one node each, of `metrics` metrics.
///
/// # Errors
/// Something does not run, or the births do not come.
pub async fn run(nodes: usize, metrics: usize) -> anyhow::Result<()> {
    let organisation = Organisation::new("ACME")?;
    let broker = start_broker().await?;
    let mqtt = MqttConfig { servers: vec![broker.url()], ..MqttConfig::default() };
    let birth = birth(metrics);
    let size = birth.len();
    let fleet = fleet(broker.local_addr(), birth).await?;
    let (counter, mut packets) = raw::connect(broker.local_addr(), "bench-count", "spBv1.0/+/NBIRTH/Sync").await?;
    let counted = tokio::spawn(async move {
        let mut births = 0;
        while births < nodes {
            births += usize::from(matches!(packets.poll().await?, Event::Incoming(Packet::Publish(_))));
        }
        anyhow::Ok(Instant::now())
    });
    let mut host = sparkplug_mqtt::spawn_host(host_config(&organisation)?, &mqtt, Clock::new())?;
    while !matches!(host.recv().await.context("the session has ended")?, HostEvent::Online) {}
    let start = Instant::now();
    let requests = host.requests();
    let expecting = tokio::spawn(async move {
        for n in 0..nodes {
            let node = EdgeNodeDescriptor::parse(&format!("ACME-c{n}"), "Sync")?;
            requests.request(HostRequest::Expect { node }).await?;
        }
        anyhow::Ok(())
    });
    let (mut born, mut half) = (0, None);
    while born < nodes {
        let event = tokio::time::timeout(PATIENCE, host.recv()).await.context("the births to come")?;
        born += usize::from(matches!(event.context("the session has ended")?, HostEvent::NodeBirth { .. }));
        if born * 2 >= nodes {
            half.get_or_insert_with(|| start.elapsed());
        }
    }
    let all = start.elapsed();
    expecting.await??;
    let raw = counted.await??.duration_since(start);
    drop(counter);
    let about = format!(
        "{nodes} nodes, each in a group of its own, with {metrics} metrics: NBIRTHs of {size} bytes; {}. The host has the settings of the cluster manager and expects every node; the fleet is \
         one MQTT client that answers each request for rebirth. Host, fleet, raw subscriber and embedded broker share one process.",
        figures::profile(),
    );
    let table = Table::begin("gather", &about, &["from the first request", "time"]);
    table.row(&["half of the fleet is known".to_owned(), ms(half.unwrap_or(all))]);
    table.row(&["the whole fleet is known".to_owned(), ms(all)]);
    table.row(&["a raw subscriber has the same births".to_owned(), ms(raw)]);
    table.row(&["known / raw".to_owned(), ratio(all.as_secs_f64(), raw.as_secs_f64())]);
    host.stop().await;
    fleet.abort();
    broker.stop().await;
    Ok(())
}

fn birth(metrics: usize) -> Vec<u8> {
    let own = [Metric::new("bdSeq", 0_i64), Metric::new("Node Control/Rebirth", false)];
    let others = (0..metrics).map(|n| Metric::new(format!("Line {n}/Temperature"), 20.5_f64));
    let metrics = own.into_iter().chain(others).map(|metric| metric.at(1)).collect();
    let payload = Payload { timestamp: Some(1), seq: Some(0), metrics, ..Payload::default() };
    encode(&payload, &EncodeOptions::new(Form::Birth)).to_vec()
}

/// One client that is born for every node which is asked.
async fn fleet(address: std::net::SocketAddr, birth: Vec<u8>) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let (client, mut packets) = raw::connect(address, "bench-fleet", "spBv1.0/+/NCMD/+").await?;
    let (asked, mut asks) = mpsc::unbounded_channel::<String>();
    tokio::spawn(async move {
        while let Some(topic) = asks.recv().await {
            if client.publish(topic, QoS::AtMostOnce, false, birth.clone()).await.is_err() {
                return;
            }
        }
    });
    Ok(tokio::spawn(async move {
        while let Ok(event) = packets.poll().await {
            if let Event::Incoming(Packet::Publish(publish)) = event
                && asked.send(publish.topic.replace("/NCMD/", "/NBIRTH/")).is_err()
            {
                return;
            }
        }
    }))
}
