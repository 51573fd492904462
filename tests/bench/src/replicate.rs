//! How long a fresh replica of a whole ConfigDB takes, from the request for its births until the replica is complete. It is measured next to a subscriber that only counts the same bytes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use configdb_contract::{ConfigReplica, WriteRequest, Writer, WriterConfig, WriterOutput, configdb_node};
use configdb_schema::document::Info;
use configdb_schema::{Organisation, address, known};
use rumqttc::{Event, Packet};
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use sparkplug::HostId;
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::session::QoS;
use sparkplug_mqtt::{BdSeqStore, Clock, HostHandle, MqttConfig};
use uuid::Uuid;

use crate::figures::Distribution;
use crate::figures::{self, HEADS, Table, ms, ratio};
use crate::latency::start_broker;
use crate::raw;

/// Births that are measured.
const ROUNDS: usize = 5;
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs the measurement.
///
/// # Errors
/// Something does not run.
pub async fn run(objects: usize) -> anyhow::Result<()> {
    let organisation = Organisation::new("ACME")?;
    let broker = start_broker().await?;
    let mqtt = MqttConfig { servers: vec![broker.url()], ..MqttConfig::default() };
    let shutdown = Shutdown::new();
    let stop = shutdown.child();
    let directory = tempfile::tempdir()?;
    let config = configdb::Config {
        organisation: organisation.as_str().to_owned(),
        state_dir: directory.path().to_path_buf().into(),
        mqtt: mqtt.clone(),
        ..configdb::Config::default()
    };
    let configdb = tokio::spawn(async move {
        let store = configdb::store::MemoryStore::new(Uuid::from_u128(1));
        configdb::run_on(store, &config, BdSeqStore::Memory, stop, Health::new()).await
    });
    let loading = Instant::now();
    let held = load(&organisation, &mqtt, objects).await?;
    let loading = loading.elapsed();
    let (mut complete, mut counted, mut bytes) = (Distribution::default(), Distribution::default(), 0);
    for _ in 0..ROUNDS {
        let node = configdb_node(&organisation);
        let topic = format!("spBv1.0/{}/+/{}/#", node.group, node.edge_node);
        let (counter, mut packets) = raw::connect(broker.local_addr(), "bench-count", &topic).await?;
        let births = tokio::spawn(async move {
            let (mut first, mut devices, mut bytes) = (None, 0, 0);
            while devices < held {
                if let Event::Incoming(Packet::Publish(publish)) = packets.poll().await? {
                    // The request itself is received, too; it is not a part of the births.
                    if first.is_none() && !publish.topic.contains("/NBIRTH/") {
                        continue;
                    }
                    let start = *first.get_or_insert_with(Instant::now);
                    bytes += publish.payload.len();
                    devices += usize::from(publish.topic.contains("/DBIRTH/"));
                    if devices == held {
                        return anyhow::Ok((start.elapsed(), bytes));
                    }
                }
            }
            bail!("there are no objects")
        });
        complete.push(fresh_replica(&organisation, &mqtt, held).await?);
        let (time, size) = tokio::time::timeout(PATIENCE, births).await.context("the births to be counted")???;
        drop(counter);
        counted.push(time);
        bytes = size;
    }
    let about = format!(
        "ConfigDB (memory store) with {held} objects, {:.1} MiB of births, written in {:.1} s ({:.0} a second); {ROUNDS} rounds; {}. ConfigDB, embedded broker and both subscribers \
         share one process. Both times begin with the NBIRTH that answers the request of a fresh host: the replica decodes, checks the order and reads every object, the raw \
         subscriber (the same MQTT client) counts bytes, at the same time. So both contain ConfigDB's own encoding of the births.",
        mib(bytes),
        loading.as_secs_f64(),
        per_second(held, loading),
        figures::profile(),
    );
    let heads: Vec<&str> = ["from NBIRTH"].into_iter().chain(HEADS).collect();
    let table = Table::begin("replicate", &about, &heads);
    table.row(&[vec!["replica complete".to_owned()], complete.quantiles().map(ms).to_vec()].concat());
    table.row(&[vec!["raw subscriber has the bytes".to_owned()], counted.quantiles().map(ms).to_vec()].concat());
    let pairs = complete.quantiles().into_iter().zip(counted.quantiles());
    let ratios = pairs.map(|(own, raw)| ratio(own.as_secs_f64(), raw.as_secs_f64()));
    table.row(&["replica / raw".to_owned()].into_iter().chain(ratios).collect::<Vec<_>>());
    shutdown.trigger();
    configdb.await.context("ConfigDB panicked")??;
    broker.stop().await;
    Ok(())
}

fn host(organisation: &Organisation, mqtt: &MqttConfig, id: &str, clock: Clock) -> anyhow::Result<HostHandle> {
    let node = configdb_node(organisation);
    let filter = (format!("spBv1.0/{}/+/{}/#", node.group, node.edge_node), QoS::AtLeastOnce);
    let config = HostConfig { filters: vec![filter], ..HostConfig::of_contracts(Some(HostId::new(id)?)) };
    Ok(sparkplug_mqtt::spawn_host(config, mqtt, clock)?)
}

/// Writes objects with one entry each; yields how many ConfigDB has then.
async fn load(organisation: &Organisation, mqtt: &MqttConfig, objects: usize) -> anyhow::Result<usize> {
    let clock = Clock::new();
    let mut host = host(organisation, mqtt, "bench.loader", clock)?;
    let node = configdb_node(organisation);
    host.request(HostRequest::Expect { node: node.clone() }).await?;
    let mut replica = ConfigReplica::new(node.clone());
    let config = WriterConfig { repeat: (PATIENCE, PATIENCE), deadline: PATIENCE, ..WriterConfig::new(node) };
    let mut writer = Writer::new(WriterConfig { requests_max: objects + 1, ..config }, 1);
    let mut left = objects;
    let mut is_submitted = false;
    while left > 0 || !is_submitted {
        if replica.is_complete() && !is_submitted {
            is_submitted = true;
            for number in 0..objects {
                let name = format!("Object {number}");
                let object = address::v5(&["Bench", "Object", &name]);
                let info = Info { name, ..Info::default() };
                let request = WriteRequest::put(format!("load-{number}"), object)
                    .create_object(known::class::EDGE_DEPLOYMENT, None)
                    .document(&info)?;
                writer.submit(request, clock.now())?;
            }
        }
        while let Some(output) = writer.poll_output() {
            match output {
                WriterOutput::Send(request) => host.request(request).await?,
                WriterOutput::Answered(answer) if answer.is_applied() => left -= 1,
                WriterOutput::Answered(answer) => bail!("ConfigDB refuses an object: {:?}", answer.reason),
                WriterOutput::GaveUp { object, .. } => bail!("ConfigDB does not answer about {object}"),
            }
        }
        if left == 0 {
            break;
        }
        tokio::select! {
            event = host.recv() => replica.on_event(&event.context("the session has ended")?),
            () = clock.sleep_until(writer.next_deadline()) => writer.handle_timeout(clock.now()),
        }
        while let Some(change) = replica.poll_change() {
            writer.on_change(&change, clock.now());
        }
    }
    host.stop().await;
    Ok(replica.objects().count())
}

/// Time from the NBIRTH that a fresh host asked for until its replica is complete.
async fn fresh_replica(organisation: &Organisation, mqtt: &MqttConfig, held: usize) -> anyhow::Result<Duration> {
    let mut host = host(organisation, mqtt, "bench.fresh", Clock::new())?;
    let node = configdb_node(organisation);
    host.request(HostRequest::Expect { node: node.clone() }).await?;
    let mut replica = ConfigReplica::new(node);
    let mut born = None;
    let time = loop {
        let event = tokio::time::timeout(PATIENCE, host.recv()).await.context("the births to come")?;
        let event = event.context("the session has ended")?;
        if matches!(event, HostEvent::NodeBirth { .. }) {
            born = Some(Instant::now());
        }
        replica.on_event(&event);
        while replica.poll_change().is_some() {}
        if replica.is_complete()
            && let Some(born) = born
        {
            break born.elapsed();
        }
    };
    host.stop().await;
    anyhow::ensure!(replica.objects().count() == held, "the replica has other objects than ConfigDB");
    Ok(time)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn mib(bytes: usize) -> f64 {
    bytes as f64 / 1_048_576.0
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn per_second(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}
