//! Someone who listens to what the services say of themselves.

use std::any::Any;
use std::time::Duration;

use sparkplug::Now;
use sparkplug::host::HostConfig;
use sparkplug::session::QoS;

use crate::model::names::host;
use crate::model::program::{Action, Boot, Input, Program};

/// Someone who only listens; what is received is kept by the endpoint.
#[derive(Debug)]
pub(crate) struct Listener;

impl Program for Listener {
    fn on_input(&mut self, _: Input, _: Now) -> Vec<Action> {
        Vec::new()
    }

    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Starts it.
pub fn boot(seed: u64) -> Boot {
    // ConfigDB, by far the largest node, has listeners enough.
    let nodes = ["Sync", "Monitor", "Join"].map(|node| format!("spBv1.0/+/+/{node}/#"));
    let manager = "spBv1.0/ACME-Central/+/Cluster-Manager/#".to_owned();
    let filters = nodes.into_iter().chain([manager]).map(|filter| (filter, QoS::AtLeastOnce)).collect();
    let config = HostConfig { seed, filters, ..host("observer") };
    Boot { program: Box::new(Listener), node: None, host: Some(config), actions: Vec::new() }
}
