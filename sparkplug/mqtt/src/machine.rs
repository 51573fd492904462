//! What the driver needs of a machine, and how the two machines of `sparkplug` provide it.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use sparkplug::edge_node::{EdgeNode, NodeEvent, NodeOutput, NodeUpdate, StoreAction, UpdateError};
use sparkplug::host::{HostApplication, HostEvent, HostOutput, HostRequest};
use sparkplug::session::{TransportAction, TransportEvent};
use sparkplug::{EdgeNodeDescriptor, Now};
use tokio::sync::oneshot;

use crate::snapshot::NodeSnapshot;

/// What comes out of a machine.
#[derive(Debug)]
pub(crate) enum Output<E> {
    /// For the driver.
    Transport(TransportAction),
    /// For the application.
    Event(E),
}

/// A machine as the driver sees it. One driver serves both machines; tests of the driver bring a scripted third.
pub(crate) trait Machine: Send + 'static {
    /// What an application says to it.
    type Input: Send + fmt::Debug;
    /// Why it may refuse.
    type Refusal: Send + fmt::Display;
    /// What it says to the application.
    type Event: Send + fmt::Debug;
    /// Its deadlines are about what has not been received. They wait while the socket is not read, because the answer may be there already.
    const CONCLUDES_FROM_SILENCE: bool;

    fn input(&mut self, input: Self::Input, now: Now) -> Result<(), Self::Refusal>;
    fn on_transport(&mut self, event: TransportEvent, now: Now);
    fn handle_timeout(&mut self, now: Now);
    fn next_deadline(&self) -> Option<Duration>;
    fn poll_output(&mut self) -> Option<Output<Self::Event>>;

    /// What the mirror of its store has to do.
    fn poll_store(&mut self) -> Option<StoreAction> {
        None
    }

    /// The refusal says no more than that it has stopped, which its last event says.
    fn is_over(_refusal: &Self::Refusal) -> bool {
        false
    }

    /// The input that ends it.
    fn stop() -> Self::Input;
    fn is_stop(input: &Self::Input) -> bool;
    /// The last event it has.
    fn is_stopped(event: &Self::Event) -> bool;
}

impl Machine for EdgeNode {
    type Input = NodeUpdate;
    type Refusal = UpdateError;
    type Event = NodeEvent;
    const CONCLUDES_FROM_SILENCE: bool = false;

    fn input(&mut self, input: NodeUpdate, now: Now) -> Result<(), UpdateError> {
        self.update(input, now)
    }

    fn is_over(refusal: &UpdateError) -> bool {
        *refusal == UpdateError::Stopped
    }

    fn on_transport(&mut self, event: TransportEvent, now: Now) {
        self.on_transport(event, now);
    }

    fn handle_timeout(&mut self, now: Now) {
        self.handle_timeout(now);
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.next_deadline()
    }

    fn poll_output(&mut self) -> Option<Output<NodeEvent>> {
        self.poll_output().map(|output| match output {
            NodeOutput::Transport(action) => Output::Transport(action),
            NodeOutput::Event(event) => {
                match &event {
                    NodeEvent::Displaced(other) => tracing::error!(%other, "this process gives way"),
                    NodeEvent::Contested(other) => {
                        tracing::warn!(%other, "this process continues and asks the other to end")
                    }
                    NodeEvent::BirthNotReceived(undelivered) => {
                        tracing::error!(%undelivered, "no host knows this node")
                    }
                    NodeEvent::BirthReceived => tracing::info!("the server delivers the births of this node now"),
                    _ => {}
                }
                Output::Event(event)
            }
        })
    }

    fn poll_store(&mut self) -> Option<StoreAction> {
        self.poll_store()
    }

    fn stop() -> NodeUpdate {
        NodeUpdate::Stop
    }

    fn is_stop(input: &NodeUpdate) -> bool {
        matches!(input, NodeUpdate::Stop)
    }

    fn is_stopped(event: &NodeEvent) -> bool {
        matches!(event, NodeEvent::Stopped)
    }
}

/// What an application says to its Host Application.
#[derive(Debug)]
pub(crate) enum HostInput {
    /// For the machine.
    Request(HostRequest),
    /// What does it know of that node?
    FileChange { node: EdgeNodeDescriptor, answer: oneshot::Sender<Option<NodeSnapshot>> },
}

impl Machine for HostApplication {
    type Input = HostInput;
    type Refusal = Infallible;
    type Event = HostEvent;
    const CONCLUDES_FROM_SILENCE: bool = true;

    fn input(&mut self, input: HostInput, now: Now) -> Result<(), Infallible> {
        match input {
            HostInput::Request(request) => self.request(request, now),
            // The caller may have gone away meanwhile.
            HostInput::FileChange { node, answer } => drop(answer.send(self.node(&node).map(NodeSnapshot::of))),
        }
        Ok(())
    }

    fn on_transport(&mut self, event: TransportEvent, now: Now) {
        self.on_transport(event, now);
    }

    fn handle_timeout(&mut self, now: Now) {
        self.handle_timeout(now);
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.next_deadline()
    }

    fn poll_output(&mut self) -> Option<Output<HostEvent>> {
        self.poll_output().map(|output| match output {
            HostOutput::Transport(action) => Output::Transport(action),
            HostOutput::Event(event) => Output::Event(event),
        })
    }

    fn stop() -> HostInput {
        HostInput::Request(HostRequest::Stop)
    }

    fn is_stop(input: &HostInput) -> bool {
        matches!(input, HostInput::Request(HostRequest::Stop))
    }

    fn is_stopped(event: &HostEvent) -> bool {
        matches!(event, HostEvent::Stopped)
    }
}
