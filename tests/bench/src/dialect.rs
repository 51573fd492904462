//! What the dialects take on the wire: the same births and data, written for other readers. Sizes, no times.

use edge_sync_contract::DeploymentDevice;
use sparkplug::payload::{Dialect, EncodeOptions, Form, Payload, encode};
use sparkplug::{Metric, TypedMetrics as _};

use crate::figures::Table;

/// UTC ms of every sample; six bytes, as they are today.
const NOW: u64 = 1_700_000_000_000;

/// Shows them.
pub fn run() {
    let table = Table::begin(
        "The dialects on the wire",
        "Bytes of one payload; what MQTT adds (topic, header) is the same for all.",
        &["payload", "metrics", "strict, aliases", "strict, names", "tahu, names", "tahu / strict, names"],
    );
    let machine = |count: u32| (0..count).map(|i| Metric::new(format!("Process/Zone_{i}/Temperature"), 20.5)).collect();
    let counters = |count: u32| (0..count).map(|i| Metric::new(format!("Counters/Part_{i}"), 1000 + i)).collect();
    let cases: [(&str, Vec<Metric>); 4] = [
        ("machine, 10 Doubles", machine(10)),
        ("machine, 100 Doubles", machine(100)),
        ("machine, 10 UInt32", counters(10)),
        ("deployment of edge sync", DeploymentDevice::default().to_metrics()),
    ];
    for (name, metrics) in cases {
        let metrics: Vec<Metric> = metrics.into_iter().map(|metric| metric.at(NOW)).collect();
        for (form, kind) in [(Form::Birth, "birth"), (Form::Data, "data")] {
            let payload =
                Payload { timestamp: Some(NOW), seq: Some(1), metrics: metrics.clone(), ..Payload::default() };
            let place = |name: &str| metrics.iter().position(|m| &*m.name == name).map(|i| i as u64 + 1);
            let aliased = EncodeOptions { aliases: Some(&place), ..EncodeOptions::new(form) };
            let plain = EncodeOptions::new(form);
            let tahu = EncodeOptions { dialect: Dialect::Tahu, ..plain };
            let [aliased, strict, tahu] = [aliased, plain, tahu].map(|options| encode(&payload, &options).len());
            table.row(&[
                format!("{name}, {kind}"),
                metrics.len().to_string(),
                aliased.to_string(),
                strict.to_string(),
                tahu.to_string(),
                crate::figures::ratio(
                    f64::from(u32::try_from(tahu).unwrap_or(u32::MAX)),
                    f64::from(u32::try_from(strict).unwrap_or(u32::MAX)),
                ),
            ]);
        }
    }
}
