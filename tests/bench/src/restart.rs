//! What a control plane needs that was killed and starts again beside a fleet that continues: until it knows the fleet, and until every edge has agreed.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use e2e::process::Process;
use sparkplug::session::QoS;
use sparkplug_mqtt::{Clock, ListenerEvent, ListenerHandle};

use crate::central_services::{ControlPlane, cpu_seconds};
use crate::figures::{self, Table, ms, ratio};
use crate::operator::Operator;

/// Longest wait for a birth.
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs the measurement with `clusters` clusters. `server`: an MQTT server that runs already; None: the embedded one is started.
///
/// # Errors
/// Something does not run.
pub async fn run(clusters: usize, server: Option<SocketAddr>) -> anyhow::Result<()> {
    let mut plane = ControlPlane::set_up(clusters, server).await?;
    plane.services.iter_mut().for_each(Process::kill);
    let is_away = |seen: &Operator| !seen.config.is_complete() && !seen.manager.is_complete();
    plane.operator.until("the death of the control plane", |seen| is_away(seen).then_some(())).await?;
    let births = vec![("spBv1.0/+/NBIRTH/Sync".to_owned(), QoS::AtMostOnce)];
    let mut listener = sparkplug_mqtt::spawn_listener(births, &plane.mqtt, Clock::new())?;
    while !matches!(listener.recv().await.context("the listener's session has ended")?, ListenerEvent::Online) {}
    let started = Instant::now();
    let raw = tokio::spawn(async move {
        let all = births_of(&mut listener, clusters).await.map(|()| started.elapsed());
        listener.stop().await;
        all
    });
    plane.services.iter_mut().for_each(Process::restart);
    let listed = |seen: &Operator| seen.manager.is_complete() && seen.manager.clusters().count() == clusters;
    plane.operator.until("the cluster manager to list all clusters", |seen| listed(seen).then_some(())).await?;
    let queryable = started.elapsed();
    plane.operator.all_agreed(&plane.plants).await?;
    let agreed = started.elapsed();
    let raw = raw.await??;
    let spent = [cpu_seconds(plane.services[0].id())?, cpu_seconds(plane.services[1].id())?];
    let about = format!(
        "{clusters} clusters with one deployment each are set up and agreed; ConfigDB and cluster manager are killed together, and started again with their disks. Light edges, which continue; {}. \
         The MQTT server is {}. A raw subscriber counts the births that the cluster manager asks the edges for.",
        figures::profile(),
        if server.is_some() { "a process of its own" } else { "the embedded one" },
    );
    let table = Table::begin("restart", &about, &["from the start of both processes", "time"]);
    table.row(&["a subscriber lists every cluster".to_owned(), ms(queryable)]);
    table.row(&["a raw subscriber has the births of all edges".to_owned(), ms(raw)]);
    table.row(&["every edge has agreed".to_owned(), ms(agreed)]);
    table.row(&["agreed / raw".to_owned(), ratio(agreed.as_secs_f64(), raw.as_secs_f64())]);
    table.row(&[
        "processor time of ConfigDB, cluster manager".to_owned(),
        format!("{:.1} s, {:.1} s", spent[0], spent[1]),
    ]);
    plane.stop().await
}

/// Ends when births of so many nodes have come.
async fn births_of(listener: &mut ListenerHandle, nodes: usize) -> anyhow::Result<()> {
    let mut born = BTreeSet::new();
    while born.len() < nodes {
        let event = tokio::time::timeout(PATIENCE, listener.recv()).await.context("the births to come")?;
        match event.context("the listener's session has ended")? {
            ListenerEvent::Message { topic, .. } => drop(born.insert(topic)),
            ListenerEvent::Lost { topic } => anyhow::bail!("messages of {topic} were not counted"),
            ListenerEvent::Online | ListenerEvent::Offline { .. } | ListenerEvent::Stopped => {}
        }
    }
    Ok(())
}
