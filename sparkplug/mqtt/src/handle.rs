//! What an application holds of a running machine: a way in, a way out, and the end.

use std::sync::Arc;

use bytes::Bytes;
use sparkplug::edge_node::{CommandCallbacks, NodeEvent, NodeUpdate, UpdateError};
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::{DeviceId, EdgeNodeDescriptor, Metric, Value};
use sparkplug::{edge_node::EdgeNode, host::HostApplication};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::driver::Submission;
use crate::events::Events;
use crate::listener::{Listener, ListenerEvent, ListenerRequest};
use crate::machine::HostInput;
use crate::snapshot::NodeSnapshot;

/// The machine has stopped; it takes nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the machine has stopped; it takes no submissions")]
pub struct Stopped;

/// Why an order was not taken without waiting.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TryError<I> {
    /// The inbox is full: the connection is slower than the application. The submission comes back.
    #[error("the inbox of the machine is full; wait, or leave the submission out")]
    Full(I),
    /// See [`Stopped`].
    #[error("the machine has stopped; it takes no submissions")]
    Stopped,
}

/// The answer to an update that was given with [`NodeUpdates::try_update`]. Await it, or drop it.
#[derive(Debug)]
pub struct PendingUpdate(oneshot::Receiver<Result<(), UpdateError>>);

impl PendingUpdate {
    /// Whether the machine took the update.
    ///
    /// # Errors
    /// As [`NodeUpdates::update`].
    pub async fn taken(self) -> Result<(), UpdateError> {
        self.0.await.unwrap_or(Err(UpdateError::Stopped))
    }
}

/// The way into an Edge Node; clones lead to the same one.
#[derive(Debug, Clone)]
pub struct NodeUpdates(mpsc::Sender<Submission<EdgeNode>>);

impl NodeUpdates {
    /// The same for a task that ends with the Edge Node.
    #[must_use]
    pub fn downgrade(&self) -> WeakNodeUpdates {
        WeakNodeUpdates(self.0.downgrade())
    }

    /// Gives the machine an update and waits until it has taken it: until then while the connection is congested, else at once. It does not wait for
    /// the network: what is taken while there is no session is part of the next birth.
    ///
    /// # Errors
    /// [`UpdateError`] of the machine; [`UpdateError::Stopped`] also when the task has ended.
    pub async fn update(&self, update: NodeUpdate) -> Result<(), UpdateError> {
        let (answer, taken) = oneshot::channel();
        let submission = Submission { input: update, answer: Some(answer) };
        self.0.send(submission).await.map_err(|_| UpdateError::Stopped)?;
        PendingUpdate(taken).taken().await
    }

    /// Gives the machine an update that it is known to take, and waits only for room: several in a row are taken in one turn. If the machine refuses it all the same, that is logged.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn submit(&self, update: NodeUpdate) -> Result<(), Stopped> {
        self.0.send(Submission { input: update, answer: None }).await.map_err(|_| Stopped)
    }

    /// Gives the machine an update without waiting.
    ///
    /// # Errors
    /// [`TryError`]; the [`PendingUpdate`] yields a refusal of the machine.
    pub fn try_update(&self, update: NodeUpdate) -> Result<PendingUpdate, TryError<NodeUpdate>> {
        let (answer, taken) = oneshot::channel();
        match self.0.try_send(Submission { input: update, answer: Some(answer) }) {
            Ok(()) => Ok(PendingUpdate(taken)),
            Err(mpsc::error::TrySendError::Full(submission)) => Err(TryError::Full(submission.input)),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(TryError::Stopped),
        }
    }
}

/// A [`NodeUpdates`] that does not keep the Edge Node running.
#[derive(Debug, Clone)]
pub struct WeakNodeUpdates(mpsc::WeakSender<Submission<EdgeNode>>);

impl WeakNodeUpdates {
    /// The way in; None: the Edge Node has ended, or its end has begun.
    #[must_use]
    pub fn upgrade(&self) -> Option<NodeUpdates> {
        self.0.upgrade().map(NodeUpdates)
    }
}

/// A running Edge Node. Dropping it (and all its [`NodeUpdates`]) stops the node as [`EdgeNodeHandle::stop`] does, without a wait for its end.
#[derive(Debug)]
pub struct EdgeNodeHandle {
    pub(crate) updates: mpsc::Sender<Submission<EdgeNode>>,
    pub(crate) event_sender: EventSender<NodeEvent>,
}

impl EdgeNodeHandle {
    /// See [`NodeUpdates::update`].
    ///
    /// # Errors
    /// See [`NodeUpdates::update`].
    pub async fn update(&self, update: NodeUpdate) -> Result<(), UpdateError> {
        self.updates().update(update).await
    }

    /// A metric of the node has this value from now on. One that the birth does not have yet is added by a rebirth.
    ///
    /// # Errors
    /// See [`NodeUpdates::update`].
    pub async fn set(&self, name: impl Into<Arc<str>>, value: impl Into<Value>) -> Result<(), UpdateError> {
        self.update(NodeUpdate::Set { device: None, metrics: vec![Metric::new(name, value)] }).await
    }

    /// The same of a metric of a device.
    ///
    /// # Errors
    /// See [`NodeUpdates::update`].
    pub async fn set_of(
        &self,
        device: &DeviceId,
        name: impl Into<Arc<str>>,
        value: impl Into<Value>,
    ) -> Result<(), UpdateError> {
        self.update(NodeUpdate::Set { device: Some(device.clone()), metrics: vec![Metric::new(name, value)] }).await
    }

    /// See [`NodeUpdates::submit`].
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn submit(&self, update: NodeUpdate) -> Result<(), Stopped> {
        self.updates().submit(update).await
    }

    /// See [`NodeUpdates::try_update`].
    ///
    /// # Errors
    /// See [`NodeUpdates::try_update`].
    pub fn try_update(&self, update: NodeUpdate) -> Result<PendingUpdate, TryError<NodeUpdate>> {
        self.updates().try_update(update)
    }

    /// The way in, for other tasks.
    #[must_use]
    pub fn updates(&self) -> NodeUpdates {
        NodeUpdates(self.updates.clone())
    }

    /// The way out.
    pub fn events(&mut self) -> &mut Events<NodeEvent> {
        &mut self.event_sender.events
    }

    /// The next event; None after [`NodeEvent::Stopped`]. Cancel-safe.
    pub async fn recv(&mut self) -> Option<NodeEvent> {
        self.event_sender.events.recv().await
    }

    /// The next event that `callbacks` leave: commands go to their functions, and what these report is published. Not cancel-safe: what a function reports may be lost if this is dropped
    /// while the connection is congested.
    ///
    /// # Errors
    /// The machine refuses what a function reports, as [`NodeUpdates::update`] does. The function has been called; the next event can be asked for.
    pub async fn recv_with(&mut self, callbacks: &mut CommandCallbacks) -> Result<Option<NodeEvent>, UpdateError> {
        while let Some(event) = self.recv().await {
            let taken = callbacks.take(event);
            if let Some(update) = taken.update {
                self.update(update).await?;
            }
            if taken.rest.is_some() {
                return Ok(taken.rest);
            }
        }
        Ok(None)
    }

    /// Publishes NDEATH, disconnects, and returns when the socket is closed: at once when there is no session, after 2 seconds at the latest. Events that
    /// come meanwhile are dropped.
    pub async fn stop(self) {
        self.event_sender.stop().await;
    }
}

/// The way into a Host Application; clones lead to the same one.
#[derive(Debug, Clone)]
pub struct HostRequests(mpsc::Sender<Submission<HostApplication>>);

impl HostRequests {
    /// Gives the machine a request; waits while the connection is congested.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn request(&self, request: HostRequest) -> Result<(), Stopped> {
        let input = HostInput::Request(request);
        self.0.send(Submission { input, answer: None }).await.map_err(|_| Stopped)
    }

    /// Gives the machine a request without waiting.
    ///
    /// # Errors
    /// [`TryError`]
    pub fn try_request(&self, request: HostRequest) -> Result<(), TryError<HostRequest>> {
        match self.0.try_reserve() {
            Ok(room) => {
                room.send(Submission { input: HostInput::Request(request), answer: None });
                Ok(())
            }
            Err(mpsc::error::TrySendError::Full(())) => Err(TryError::Full(request)),
            Err(mpsc::error::TrySendError::Closed(())) => Err(TryError::Stopped),
        }
    }

    /// What the host knows of a node now; None: no message of it arrived. It holds also what is in events that the application has not taken yet. Waits while the connection is congested.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn node(&self, node: &EdgeNodeDescriptor) -> Result<Option<NodeSnapshot>, Stopped> {
        let (answer, known) = oneshot::channel();
        let input = HostInput::FileChange { node: node.clone(), answer };
        self.0.send(Submission { input, answer: None }).await.map_err(|_| Stopped)?;
        known.await.map_err(|_| Stopped)
    }
}

/// A running Host Application. Dropping it (and all its [`HostRequests`]) stops the host as [`HostHandle::stop`] does, without a wait for its end.
#[derive(Debug)]
pub struct HostHandle {
    pub(crate) requests: mpsc::Sender<Submission<HostApplication>>,
    pub(crate) event_sender: EventSender<HostEvent>,
}

impl HostHandle {
    /// See [`HostRequests::request`].
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn request(&self, request: HostRequest) -> Result<(), Stopped> {
        self.requests().request(request).await
    }

    /// See [`HostRequests::try_request`].
    ///
    /// # Errors
    /// [`TryError`]
    pub fn try_request(&self, request: HostRequest) -> Result<(), TryError<HostRequest>> {
        self.requests().try_request(request)
    }

    /// See [`HostRequests::node`].
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn node(&self, node: &EdgeNodeDescriptor) -> Result<Option<NodeSnapshot>, Stopped> {
        self.requests().node(node).await
    }

    /// The way in, for other tasks.
    #[must_use]
    pub fn requests(&self) -> HostRequests {
        HostRequests(self.requests.clone())
    }

    /// The way out.
    pub fn events(&mut self) -> &mut Events<HostEvent> {
        &mut self.event_sender.events
    }

    /// The next event; None after [`HostEvent::Stopped`]. Cancel-safe.
    pub async fn recv(&mut self) -> Option<HostEvent> {
        self.event_sender.events.recv().await
    }

    /// Publishes STATE offline, disconnects, and returns when the socket is closed: at once when there is no session, after 2 seconds at the latest. Events that
    /// come meanwhile are dropped.
    pub async fn stop(self) {
        self.event_sender.stop().await;
    }
}

/// A running listener. Dropping it ends it.
#[derive(Debug)]
pub struct ListenerHandle {
    pub(crate) requests: mpsc::Sender<Submission<Listener>>,
    pub(crate) event_sender: EventSender<ListenerEvent>,
}

impl ListenerHandle {
    /// Publishes a message at QoS 0, not retained; it is dropped while there is no session.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn publish(&self, topic: String, payload: Bytes) -> Result<(), Stopped> {
        let input = ListenerRequest::Publish { topic, payload };
        self.requests.send(Submission { input, answer: None }).await.map_err(|_| Stopped)
    }

    /// The next event; None after [`ListenerEvent::Stopped`]. Cancel-safe.
    pub async fn recv(&mut self) -> Option<ListenerEvent> {
        self.event_sender.events.recv().await
    }

    /// Disconnects, and returns when the socket is closed, after 2 seconds at the latest.
    pub async fn stop(self) {
        self.event_sender.stop().await;
    }
}

/// The way out of a driver and its end, as every handle has them.
#[derive(Debug)]
pub(crate) struct EventSender<E> {
    events: Events<E>,
    stop: Arc<Notify>,
    task: JoinHandle<()>,
}

impl<E> EventSender<E> {
    pub(crate) fn new(events: Events<E>, stop: Arc<Notify>, task: JoinHandle<()>) -> Self {
        Self { events, stop, task }
    }

    /// Events, the bell that asks for a stop, and the task.
    pub(crate) fn into_parts(self) -> (Events<E>, Arc<Notify>, JoinHandle<()>) {
        (self.events, self.stop, self.task)
    }

    async fn stop(mut self) {
        self.stop.notify_one();
        // Events are taken until the end, so that nothing in the driver waits for room.
        while self.events.recv().await.is_some() {}
        // A panic in it has been reported by the panic hook.
        let _ = self.task.await;
    }
}
