//! srad's application.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use srad_app::generic_app::{ApplicationBuilder, MetricStore, StateUpdateError};
use srad_app::{MetricBirthDetails, MetricDetails, SubscriptionConfig};
use srad_client_rumqtt::{EventLoop, MqttOptions};
use srad_types::MetricId;

use super::Tally;

struct Store {
    /// None: it counts and keeps nothing.
    metrics: Option<HashMap<MetricId, MetricDetails>>,
    tally: Arc<Mutex<Tally>>,
}

impl MetricStore for Store {
    fn set_stale(&mut self) {
        panic!("the stream has no fault, but a node is stale");
    }

    fn update_from_birth(&mut self, details: Vec<(MetricBirthDetails, MetricDetails)>) -> Result<(), StateUpdateError> {
        if let Some(metrics) = &mut self.metrics {
            metrics.extend(details.into_iter().map(|(birth, metric)| (birth.get_metric_id(), metric)));
        }
        self.tally.lock().expect("no thread panics").birth();
        Ok(())
    }

    fn update_from_data(&mut self, details: Vec<(MetricId, MetricDetails)>) -> Result<(), StateUpdateError> {
        let count = details.len();
        if let Some(metrics) = &mut self.metrics {
            for (id, metric) in details {
                *metrics.get_mut(&id).ok_or(StateUpdateError::UnknownMetric)? = metric;
            }
        }
        self.tally.lock().expect("no thread panics").data(count);
        Ok(())
    }
}

pub async fn run(port: u16, keeps: bool, tally: Tally) {
    let mut options = MqttOptions::new("srad", "127.0.0.1", port);
    options.set_max_packet_size(Some(16 << 20)).set_outgoing_inflight_upper_limit(100);
    let (events, client) = EventLoop::new(options, 100);
    let tally = Arc::new(Mutex::new(tally));
    let (application, _client) = ApplicationBuilder::new("Office", events, client, SubscriptionConfig::AllGroups)
        .on_node_created(move |node| {
            let store = Store { metrics: keeps.then(HashMap::new), tally: Arc::clone(&tally) };
            node.register_metric_store(store);
        })
        .build();
    application.run().await;
}
