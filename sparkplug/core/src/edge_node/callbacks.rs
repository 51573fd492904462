//! Commands, each metric to the function that is for it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{NodeEvent, NodeUpdate};
use crate::metric::Metric;
use crate::name::DeviceId;

type Callback = Box<dyn FnMut(&Metric) -> Option<Metric> + Send>;

/// What is done with the metrics of commands, one function for each metric of the node or of a device.
///
/// A function gets what a host wants, with the name and datatype of the birth, and does it. It returns the metric that is true then, mostly the same, which becomes data. None:
/// there is nothing to report, because the command was refused or takes time. What takes time is reported by [`NodeUpdate::Set`] when it is done.
///
/// ```
/// use sparkplug::edge_node::{CommandCallbacks, NodeEvent};
/// use sparkplug::{DeviceId, Metric, Value};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let motor = DeviceId::new("Motor")?;
/// let mut callbacks = CommandCallbacks::new().of_device(motor.clone(), "Setpoint", |wanted| {
///     let Some(Value::UInt32(speed)) = wanted.value else { return None };
///     // A drive that turns no faster than that.
///     Some(Metric::new("Setpoint", speed.min(1_500)))
/// });
/// let metrics = vec![Metric::new("Setpoint", 9_000_u32), Metric::new("Other", true)];
/// let done = callbacks.take(NodeEvent::Command { device: Some(motor), metrics, timestamp: None });
/// assert!(done.update.is_some());
/// // No function is for the other one.
/// assert!(matches!(done.rest, Some(NodeEvent::Command { metrics, .. }) if &*metrics[0].name == "Other"));
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct CommandCallbacks(BTreeMap<(Option<DeviceId>, Arc<str>), Callback>);

/// What [`CommandCallbacks::take`] has made of an event.
#[derive(Debug, Clone, PartialEq)]
pub struct CallbackOutcome {
    /// What the functions report, for [`super::EdgeNode::update`].
    pub update: Option<NodeUpdate>,
    /// The event, if it is not a command; of a command the metrics that no function is for. None: there are none.
    pub rest: Option<NodeEvent>,
}

impl fmt::Debug for CommandCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl CommandCallbacks {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with a function for a metric of the node, in place of the one that it has.
    #[must_use]
    pub fn of_node(
        self,
        name: impl Into<Arc<str>>,
        callback: impl FnMut(&Metric) -> Option<Metric> + Send + 'static,
    ) -> Self {
        self.with((None, name.into()), Box::new(callback))
    }

    /// The same with a function for a metric of a device, in place of the one that it has.
    #[must_use]
    pub fn of_device(
        self,
        device: DeviceId,
        name: impl Into<Arc<str>>,
        callback: impl FnMut(&Metric) -> Option<Metric> + Send + 'static,
    ) -> Self {
        self.with((Some(device), name.into()), Box::new(callback))
    }

    fn with(mut self, place: (Option<DeviceId>, Arc<str>), callback: Callback) -> Self {
        self.0.insert(place, callback);
        self
    }

    /// Calls the function of each metric of a command, in the order of the command.
    pub fn take(&mut self, event: NodeEvent) -> CallbackOutcome {
        let NodeEvent::Command { device, metrics, timestamp } = event else {
            return CallbackOutcome { update: None, rest: Some(event) };
        };
        let (mut reports, mut others) = (Vec::new(), Vec::new());
        for metric in metrics {
            match self.0.get_mut(&(device.clone(), metric.name.clone())) {
                Some(callback) => reports.extend(callback(&metric)),
                None => others.push(metric),
            }
        }
        let update = (!reports.is_empty()).then(|| NodeUpdate::Set { device: device.clone(), metrics: reports });
        let rest = (!others.is_empty()).then_some(NodeEvent::Command { device, metrics: others, timestamp });
        CallbackOutcome { update, rest }
    }
}
