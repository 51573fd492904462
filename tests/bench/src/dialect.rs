//! What the dialects take, on the wire and of a processor: the same births and data, written for other readers; and what the descriptions of metrics take in births.

use std::hint::black_box;

use anyhow::Context as _;
use cluster_manager_contract::ClusterDevice;
use edge_monitor_contract::MonitoredNodeDevice;
use edge_sync_contract::{DeploymentDevice, HostDevice};
use join_service_contract::host::JoinHost;
use sparkplug::payload::{Dialect, EncodeOptions, Form, Inflated, Limits, Payload, decode_ref, encode};
use sparkplug::{Metric, Properties, TypedMetrics as _};

use crate::central_services::cpu_seconds;
use crate::figures::{Table, profile, ratio};

/// UTC ms of every sample; six bytes, as they are today.
const NOW: u64 = 1_700_000_000_000;
/// Metrics that each way of writing and of reading is measured with; without optimisation the times mean nothing.
const METRICS: usize = if cfg!(debug_assertions) { 100_000 } else { 10_000_000 };
/// Clusters that a fleet is calculated for.
const FLEET: usize = 10_000;

/// Shows them.
///
/// # Errors
/// A payload cannot be read.
pub fn run() -> anyhow::Result<()> {
    dialects()?;
    descriptions();
    Ok(())
}

fn payload(metrics: &[Metric]) -> Payload {
    let metrics = metrics.iter().map(|metric| metric.clone().at(NOW)).collect();
    Payload { timestamp: Some(NOW), seq: Some(1), metrics, ..Payload::default() }
}

fn dialects() -> anyhow::Result<()> {
    let about = format!(
        "Bytes of one payload; what MQTT adds (topic, header) is the same for all. Processor time of a metric on one core, {}: to write, and to read without copies.",
        profile()
    );
    let heads = [
        "payload",
        "metrics",
        "strict, aliases",
        "strict, names",
        "tahu, names",
        "tahu / strict, names",
        "write strict / tahu",
        "read strict / tahu",
    ];
    let table = Table::begin("The dialects on the wire", &about, &heads);
    let machine = |count: u32| (0..count).map(|i| Metric::new(format!("Process/Zone_{i}/Temperature"), 20.5)).collect();
    let counters = |count: u32| (0..count).map(|i| Metric::new(format!("Counters/Part_{i}"), 1000 + i)).collect();
    let cases: [(&str, Vec<Metric>); 4] = [
        ("machine, 10 Doubles", machine(10)),
        ("machine, 100 Doubles", machine(100)),
        ("machine, 10 UInt32", counters(10)),
        ("deployment of edge sync", DeploymentDevice::default().to_metrics()),
    ];
    for (name, metrics) in cases {
        let payload = payload(&metrics);
        for (form, kind) in [(Form::Birth, "birth"), (Form::Data, "data")] {
            let place = |name: &str| metrics.iter().position(|m| &*m.name == name).map(|i| i as u64 + 1);
            let aliased = EncodeOptions { aliases: Some(&place), ..EncodeOptions::new(form) };
            let plain = EncodeOptions::new(form);
            let tahu = EncodeOptions { dialect: Dialect::Tahu, ..plain };
            let bytes = [aliased, plain, tahu].map(|options| encode(&payload, &options).len());
            let mut times = Vec::new();
            for options in [plain, tahu] {
                let written = encode(&payload, &options);
                let write = each(metrics.len(), || {
                    black_box(encode(black_box(&payload), &options));
                    Ok(())
                })?;
                let read = each(metrics.len(), || {
                    let mut inflated = Inflated::default();
                    let read = decode_ref(black_box(&written), &Limits::default(), &mut inflated);
                    black_box(read.context("what was written")?.metrics.len());
                    Ok(())
                })?;
                times.push((write, read));
            }
            table.row(&[
                format!("{name}, {kind}"),
                metrics.len().to_string(),
                bytes[0].to_string(),
                bytes[1].to_string(),
                bytes[2].to_string(),
                ratio(float(bytes[2]), float(bytes[1])),
                format!("{:.0} / {:.0} ns", times[0].0, times[1].0),
                format!("{:.0} / {:.0} ns", times[0].1, times[1].1),
            ]);
        }
    }
    Ok(())
}

/// Nanoseconds of the process for each metric.
fn each(metrics: usize, mut once: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let rounds = METRICS / metrics;
    let process = std::process::id();
    let before = cpu_seconds(process)?;
    for _ in 0..rounds {
        once()?;
    }
    Ok((cpu_seconds(process)? - before) * 1e9 / float(rounds * metrics))
}

fn descriptions() {
    let about = format!(
        "Bytes of the birth of one device, empty as it is before it reports anything, in the dialect `tahu`: without `documentation`, `engUnit` and `readOnly`, and with them. Last: what they add to the births of {FLEET} such devices."
    );
    let heads = ["device", "metrics", "without", "with", "with / without", "of all"];
    let table = Table::begin("Descriptions in births", &about, &heads);
    let cases: [(&str, Vec<Metric>); 5] = [
        ("a cluster, at the cluster manager", ClusterDevice::default().to_metrics()),
        ("a host, at edge sync", HostDevice::default().to_metrics()),
        ("a deployment, at edge sync", DeploymentDevice::default().to_metrics()),
        ("a monitored node, at a monitor", MonitoredNodeDevice::default().to_metrics()),
        ("a joining host, at a join service", JoinHost::default().to_metrics()),
    ];
    let options = EncodeOptions { dialect: Dialect::Tahu, ..EncodeOptions::new(Form::Birth) };
    for (name, metrics) in cases {
        let bare: Vec<Metric> =
            metrics.iter().map(|metric| Metric { properties: Properties::new(), ..metric.clone() }).collect();
        let [without, with] = [&bare, &metrics].map(|metrics| encode(&payload(metrics), &options).len());
        table.row(&[
            name.to_owned(),
            metrics.len().to_string(),
            without.to_string(),
            with.to_string(),
            ratio(float(with), float(without)),
            format!("{:.1} MB", float((with - without) * FLEET) / 1e6),
        ]);
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn float(count: usize) -> f64 {
    count as f64
}
