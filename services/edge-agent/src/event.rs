//! All that can come in, all that can go out.

use sparkplug::Metric;
use sparkplug::edge_node::NodeEvent;

use crate::reading::ReadError;

/// What comes in.
#[derive(Debug)]
pub(crate) enum Event {
    /// By its own Edge Node.
    Node(NodeEvent),
    /// By the host: what it is, after [`Effect::Read`].
    Read(Result<Vec<Metric>, ReadError>),
    /// By the clock: the host is to be read.
    DeadlineReached,
}

/// What shall be done, in order.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Read the host; answered by one [`Event::Read`].
    Read,
    /// By its own Edge Node, as metrics of the Device. What has not changed is left out by the Edge Node.
    Publish(Vec<Metric>),
}
