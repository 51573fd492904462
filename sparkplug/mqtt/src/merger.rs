//! A Host Application with a session on every server of the list: a driver for each, and this task between them and the application.
//!
//! A server that is slow, or gone, does not delay the others. Requests to it wait beside those to the others, and its session ends by itself when it takes nothing for
//! too long. An application that takes no events holds up all sessions alike; each then does what the crate's section on back-pressure says.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, FuturesUnordered, SelectAll, Stream, StreamExt};
use sparkplug::EdgeNodeDescriptor;
use sparkplug::host::{HostApplication, HostEvent, HostMerge, HostRequest, MergeOutput};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::driver::Submission;
use crate::events;
use crate::handle::EventSender;
use crate::machine::HostInput;
use crate::snapshot::NodeSnapshot;

/// Orders that wait for a turn.
const ORDERS_MAX: usize = 64;
/// Events that wait here before those of the sessions are left where they are.
const EVENTS_MAX: usize = 64;
/// Commands that wait for a server that takes none; further ones are dropped, as they are while it is offline.
const COMMANDS_MAX: usize = 1_000;
/// Longest time for the last events to be taken.
const DRAIN_MAX: Duration = Duration::from_secs(2);

type Submissions = mpsc::Sender<Submission<HostApplication>>;
/// Events of one session, with its index.
type Incoming = Pin<Box<dyn Stream<Item = (usize, HostEvent)> + Send>>;
type Permit = Result<OwnedPermit<Submission<HostApplication>>, SendError<()>>;

struct Lane {
    submissions: Submissions,
    waiting: VecDeque<HostRequest>,
    /// Room in its inbox has been asked for.
    is_reserving: bool,
    stop: Arc<Notify>,
}

/// See the module.
pub(crate) struct Merger {
    merge: HostMerge,
    lanes: Vec<Lane>,
    tasks: Vec<JoinHandle<()>>,
    incoming: SelectAll<Incoming>,
    permits: FuturesUnordered<BoxFuture<'static, (usize, Permit)>>,
    inbox: mpsc::Receiver<Submission<HostApplication>>,
    events: mpsc::Sender<Vec<HostEvent>>,
    outgoing: VecDeque<HostEvent>,
    stop: Arc<Notify>,
    is_stopping: bool,
}

/// Starts the task between the sessions and the application; yields the application's ends.
pub(crate) fn spawn(sessions: Vec<(Submissions, EventSender<HostEvent>)>) -> (Submissions, EventSender<HostEvent>) {
    let (submissions, inbox) = mpsc::channel(ORDERS_MAX);
    let (events, receiver) = events::channel();
    let stop = Arc::new(Notify::new());
    let mut merger = Merger {
        merge: HostMerge::new(sessions.len()),
        lanes: Vec::new(),
        tasks: Vec::new(),
        incoming: SelectAll::new(),
        permits: FuturesUnordered::new(),
        inbox,
        events,
        outgoing: VecDeque::new(),
        stop: Arc::clone(&stop),
        is_stopping: false,
    };
    for (server, (submissions, event_sender)) in sessions.into_iter().enumerate() {
        let (receiver, stop, task) = event_sender.into_parts();
        let events = stream::unfold(receiver, move |mut receiver| async move {
            let event = receiver.recv().await?;
            Some(((server, event), receiver))
        });
        merger.incoming.push(Box::pin(events));
        merger.lanes.push(Lane { submissions, waiting: VecDeque::new(), is_reserving: false, stop });
        merger.tasks.push(task);
    }
    (submissions, EventSender::new(receiver, stop, tokio::spawn(merger.run())))
}

enum Turn {
    Submission(Option<Submission<HostApplication>>),
    Stop,
    Event(usize, HostEvent),
    /// A session's inbox has room.
    Inbox(usize, Permit),
    /// There was room for an event, or the application takes none any more.
    Room,
    /// Every session is at its end.
    End,
}

impl Merger {
    async fn run(mut self) {
        loop {
            self.carry_out();
            match self.next_turn().await {
                Turn::Submission(Some(Submission { input, answer })) => {
                    match input {
                        HostInput::Request(request) => self.merge.request(request),
                        HostInput::FileChange { node, answer } => self.look(node, answer),
                    }
                    if let Some(answer) = answer {
                        // The caller may have gone away meanwhile.
                        let _ = answer.send(Ok(()));
                    }
                }
                // Without an order: every handle is gone.
                Turn::Submission(None) | Turn::Stop => self.stop_all(),
                Turn::Event(server, event) => self.merge.on_event(server, event),
                Turn::Inbox(server, permit) => self.hand_over(server, permit),
                Turn::Room => {}
                Turn::End => break,
            }
        }
        self.carry_out();
        let rest = async {
            // The application may have gone away.
            let _ = self.events.send(self.outgoing.into()).await;
        };
        let _ = tokio::time::timeout(DRAIN_MAX, rest).await;
        for task in self.tasks {
            // A panic in it has been reported by the panic hook.
            let _ = task.await;
        }
    }

    async fn next_turn(&mut self) -> Turn {
        let has_listener = !self.events.is_closed();
        if !has_listener {
            self.outgoing.clear();
        }
        let Self { incoming, permits, inbox, events, outgoing, stop, is_stopping, .. } = self;
        tokio::select! {
            () = stop.notified() => Turn::Stop,
            submission = inbox.recv(), if !*is_stopping => Turn::Submission(submission),
            event = incoming.next(), if outgoing.len() < EVENTS_MAX => match event {
                Some((server, event)) => Turn::Event(server, event),
                None => Turn::End,
            },
            Some((server, permit)) = permits.next(), if !permits.is_empty() => Turn::Inbox(server, permit),
            permit = events.reserve(), if has_listener && !outgoing.is_empty() => {
                if let Ok(permit) = permit {
                    permit.send(outgoing.drain(..).collect());
                }
                Turn::Room
            }
        }
    }

    /// Asks every session, and answers with the best that one of them knows. A session that takes no orders is left out.
    fn look(&self, node: EdgeNodeDescriptor, answer: oneshot::Sender<Option<NodeSnapshot>>) {
        let asked = self.lanes.iter().filter_map(|lane| {
            let (answer, known) = oneshot::channel();
            let input = HostInput::FileChange { node: node.clone(), answer };
            lane.submissions.try_send(Submission { input, answer: None }).ok().map(|()| known)
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        tokio::spawn(async move {
            let mut best: Option<NodeSnapshot> = None;
            while let Some(known) = asked.next().await {
                best = known.ok().flatten().map(|known| known.or_better(best.take())).or(best);
            }
            // The caller may have gone away meanwhile.
            let _ = answer.send(best);
        });
    }

    fn stop_all(&mut self) {
        self.is_stopping = true;
        for lane in &self.lanes {
            lane.stop.notify_one();
        }
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.merge.poll_output() {
            match output {
                MergeOutput::Event(event) => self.outgoing.push_back(event),
                MergeOutput::Request { server, request } => {
                    let waiting = &mut self.lanes[server].waiting;
                    let may_be_dropped = matches!(request, HostRequest::Command { .. } | HostRequest::Rebirth { .. });
                    if may_be_dropped && waiting.len() >= COMMANDS_MAX {
                        tracing::warn!(server, "a server takes no commands; one is dropped");
                    } else {
                        waiting.push_back(request);
                    }
                }
            }
        }
        for server in 0..self.lanes.len() {
            self.reserve(server);
        }
    }

    fn reserve(&mut self, server: usize) {
        let lane = &mut self.lanes[server];
        if !lane.waiting.is_empty() && !lane.is_reserving {
            lane.is_reserving = true;
            let room = lane.submissions.clone().reserve_owned();
            self.permits.push(Box::pin(async move { (server, room.await) }));
        }
    }

    fn hand_over(&mut self, server: usize, permit: Permit) {
        let lane = &mut self.lanes[server];
        lane.is_reserving = false;
        match (permit, lane.waiting.pop_front()) {
            (Ok(permit), Some(request)) => {
                drop(permit.send(Submission { input: HostInput::Request(request), answer: None }));
            }
            (Ok(_), None) => {}
            // It has stopped.
            (Err(_), _) => lane.waiting.clear(),
        }
    }
}
