//! The loop that drives one machine: it owns the machine, the session and the clock, and nothing else does.
//!
//! ```text
//!   application --inbox--> machine --outbox--> session (socket)
//!   application <--events-- backlog <-- machine <-- session
//! ```
//! A turn waits for one of: an order of the application, something from the session, room for events, a deadline. Then the machine's outputs are carried
//! out in their order. No branch waits for the application: events it does not take wait in the [`Backlog`].
//!
//! What costs more than a message does is done once a turn, not once a message. A turn takes all messages that are there and reads the clock once. It hands over the events of all
//! of them as one batch. In the same way it takes all submissions that are there.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use sparkplug::edge_node::StoreAction;
use sparkplug::session::{Connect, TransportAction, TransportEvent};
use sparkplug::{BdSeq, Now};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::backlog::{Admission, Backlog, ReadState};
use crate::bd_seq::BdSeqStore;
use crate::clock::Clock;
use crate::events::{self, BATCH_MAX, Events};
use crate::journal::Journal;
use crate::machine::{Machine, Output};
use crate::session::{Connector, Session, SessionEvent};
use certificates::Certificates;

mod certificates;

/// Longest time from a DISCONNECT that is asked for to the end of the socket, the last acknowledgement included.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Something the application wants of its machine.
pub(crate) struct Submission<M: Machine> {
    pub(crate) input: M::Input,
    /// Where the machine's answer goes, if a caller waits for it.
    pub(crate) answer: Option<oneshot::Sender<Result<(), M::Refusal>>>,
}

/// The application's end of a driver.
pub(crate) struct DriverHandles<M: Machine> {
    pub(crate) submissions: mpsc::Sender<Submission<M>>,
    pub(crate) events: Events<M::Event>,
    /// Asks for a stop past a full inbox.
    pub(crate) stop: Arc<Notify>,
}

/// Submissions that wait for a turn. A few are enough to keep the driver busy; who gives more waits.
const INBOX_MAX: usize = 64;

/// Submissions taken in one turn.
const SUBMISSIONS_AT_ONCE: usize = 32;

/// Messages taken in one turn. Their events fit into the processor's cache.
const MESSAGES_AT_ONCE: usize = 32;

/// See the module.
pub(crate) struct Driver<M: Machine> {
    machine: M,
    clock: Clock,
    connector: Connector,
    bd_seq: BdSeqStore,
    /// Mirror of the machine's store, while it can be written.
    journal: Option<Journal>,
    session: Option<Session>,
    certificates: Certificates,
    inbox: mpsc::Receiver<Submission<M>>,
    inbox_open: bool,
    stop: Arc<Notify>,
    events: mpsc::Sender<Vec<M::Event>>,
    backlog: Backlog<M::Event>,
    /// Since when a DISCONNECT is under way, and until when it may be.
    closing_until: Option<Duration>,
    /// The machine was asked to stop, and until when it may take.
    stopping_until: Option<Duration>,
    ended: bool,
}

enum Turn<M: Machine> {
    Submission(Option<Submission<M>>),
    Stop,
    Session(SessionEvent),
    /// There was room for events, or the application takes none any more.
    Room,
    Deadline,
}

impl<M: Machine> Driver<M> {
    pub(crate) fn new(
        machine: M,
        clock: Clock,
        connector: Connector,
        bd_seq: BdSeqStore,
        journal: Option<Journal>,
    ) -> (Self, DriverHandles<M>) {
        let (submissions, inbox) = mpsc::channel(INBOX_MAX);
        let (sender, events) = events::channel();
        let stop = Arc::new(Notify::new());
        let ends = DriverHandles { submissions, events, stop: Arc::clone(&stop) };
        let config = connector.config();
        let backlog = Backlog::new(config.waiting_events_max, config.waiting_bytes_max, connector.patience());
        let driver = Self {
            machine,
            clock,
            connector,
            bd_seq,
            journal,
            session: None,
            certificates: Certificates::default(),
            inbox,
            inbox_open: true,
            stop,
            events: sender,
            backlog,
            closing_until: None,
            stopping_until: None,
            ended: false,
        };
        (driver, ends)
    }

    /// Runs until the machine has stopped.
    pub(crate) async fn run(mut self) {
        self.carry_out(0).await;
        self.mirror().await;
        self.hand_over();
        while !self.ended {
            let mut may_have_more = false;
            match self.next_turn().await {
                Turn::Submission(submission) => self.on_submissions(submission).await,
                Turn::Stop => self.on_stop(),
                Turn::Session(event) => may_have_more = self.on_session_events(event).await,
                Turn::Room => {}
                Turn::Deadline => {
                    self.on_deadline();
                    self.look_at_certificates().await;
                }
            }
            self.report_lost();
            self.carry_out(0).await;
            self.mirror().await;
            self.hand_over();
            if may_have_more {
                // The application takes its events while they are in the processor's cache.
                tokio::task::yield_now().await;
            }
        }
        drop(self.session.take());
        self.inbox.close();
        // The last events, `Stopped` among them: an application that listens at all gets them, one that does not listen delays no other.
        let rest = async {
            while !self.backlog.is_empty() {
                if self.events.send(self.backlog.take(BATCH_MAX)).await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(DRAIN_MAX, rest).await;
    }

    async fn next_turn(&mut self) -> Turn<M> {
        let listening = !self.events.is_closed();
        if !listening {
            self.backlog.clear();
        }
        let now = self.clock.now().mono;
        let congested = self.session.as_ref().is_some_and(Session::is_congested);
        let machine_deadline = self.machine_deadline(now);
        let paused_until = match (self.backlog.reading(now), &self.session) {
            // What is to be sent is sent, and what comes in meanwhile is taken. Otherwise an application that waits for its update to be
            // taken would wait for itself to take events.
            (ReadState::PausedUntil(until), Some(session)) if session.is_connected() && !session.is_sending() => {
                Some(until)
            }
            _ => None,
        }
        // What comes in while the session is being closed is dropped anyway.
        .filter(|_| self.closing_until.is_none());
        let look = self.next_look();
        let deadline =
            [machine_deadline, paused_until, self.closing_until, self.stopping_until, look].into_iter().flatten().min();
        let Self { session, inbox, stop, events, backlog, clock, .. } = self;
        tokio::select! {
            () = stop.notified() => Turn::Stop,
            submission = inbox.recv(), if self.inbox_open && !congested => Turn::Submission(submission),
            event = next_of(session), if paused_until.is_none() => Turn::Session(event),
            permit = events.reserve(), if listening && !backlog.is_empty() => {
                if let Ok(permit) = permit {
                    permit.send(backlog.take(BATCH_MAX));
                }
                Turn::Room
            }
            () = clock.sleep_until(deadline) => Turn::Deadline,
        }
    }

    /// When the machine's next deadline is to be handled. None: it has none, or it has to wait.
    fn machine_deadline(&mut self, mono: Duration) -> Option<Duration> {
        let is_behind = M::CONCLUDES_FROM_SILENCE && matches!(self.backlog.reading(mono), ReadState::PausedUntil(_));
        let must_wait = |session: &Session| session.is_congested() || is_behind && session.is_connected();
        if self.session.as_ref().is_some_and(must_wait) { None } else { self.machine.next_deadline() }
    }

    /// Takes a submission, and with it those that are there already, as far as the connection takes what follows from them.
    async fn on_submissions(&mut self, submission: Option<Submission<M>>) {
        self.on_submission(submission);
        for _ in 1..SUBMISSIONS_AT_ONCE {
            self.carry_out(0).await;
            if self.ended || self.session.as_ref().is_some_and(Session::is_congested) {
                return;
            }
            let Ok(next) = self.inbox.try_recv() else { return };
            self.on_submission(Some(next));
        }
    }

    fn on_submission(&mut self, submission: Option<Submission<M>>) {
        let Some(Submission { input, answer }) = submission else {
            // Every handle is gone: no caller can ever stop it, so it stops.
            self.inbox_open = false;
            self.order_stop();
            return;
        };
        let now = self.clock.now();
        if M::is_stop(&input) {
            self.stopping_until.get_or_insert(now.mono + DRAIN_MAX);
        }
        let taken = self.machine.input(input, now);
        match answer {
            // The caller may have gone away meanwhile.
            Some(answer) => drop(answer.send(taken)),
            None => {
                if let Err(error) = taken
                    && !M::is_over(&error)
                {
                    tracing::error!(error = %error, "the machine refused a submission whose answer no caller waits for");
                }
            }
        }
    }

    /// A stop does not wait for a congested connection; what was ordered before it comes first.
    fn on_stop(&mut self) {
        while let Ok(submission) = self.inbox.try_recv() {
            self.on_submission(Some(submission));
        }
        self.order_stop();
    }

    fn order_stop(&mut self) {
        if self.stopping_until.is_none() {
            self.on_submission(Some(Submission { input: M::stop(), answer: None }));
        }
    }

    /// Takes an event, and with it those that are there already: a wait for one thing is cheaper than one for many. Whether there may be more.
    async fn on_session_events(&mut self, event: SessionEvent) -> bool {
        let now = self.clock.now();
        let was_behind = !self.backlog.is_empty();
        let mut next = Some(event);
        let mut taken = 0;
        while let Some(event) = next {
            let bytes = self.on_session(event, now);
            self.carry_out(bytes).await;
            taken += 1;
            // A pause, or the end, has a turn of its own.
            if self.closing_until.is_some() || self.ended || was_behind {
                return false;
            }
            if taken == MESSAGES_AT_ONCE || self.backlog.is_full() {
                return true;
            }
            next = match &mut self.session {
                Some(session) => session.next_arrived().or_else(|| session.next().now_or_never()),
                None => None,
            };
        }
        false
    }

    /// Returns the size of the payload that arrived.
    fn on_session(&mut self, event: SessionEvent, now: Now) -> usize {
        match event {
            SessionEvent::Progress => 0,
            SessionEvent::Connected => {
                self.session.iter().for_each(|session| self.connector.accepted(session));
                self.machine.on_transport(TransportEvent::Connected, now);
                0
            }
            SessionEvent::Subscribed => {
                self.machine.on_transport(TransportEvent::Subscribed, now);
                0
            }
            SessionEvent::Received { publishes } => {
                self.machine.on_transport(TransportEvent::Received { publishes }, now);
                0
            }
            SessionEvent::Message { .. } | SessionEvent::Oversized { .. } if self.closing_until.is_some() => 0,
            SessionEvent::Oversized { topic, bytes, max, retain } => {
                tracing::warn!(
                    topic,
                    bytes,
                    max,
                    retain,
                    "a message is larger than mqtt.packet_bytes_max and was skipped"
                );
                self.machine.on_transport(TransportEvent::Oversized { topic, bytes, max, retain }, now);
                0
            }
            SessionEvent::Message { topic, payload, qos, retain } => match self.backlog.admit(&topic) {
                Admission::Feed => {
                    let bytes = payload.len();
                    self.machine.on_transport(TransportEvent::Message { topic, payload, qos, retain }, now);
                    bytes
                }
                Admission::Drop => 0,
                Admission::GiveUp => {
                    self.end_session("the application does not take its events".to_owned(), true);
                    0
                }
            },
            SessionEvent::Over { reason, reached } => {
                if !self.is_opened_in_older_version() {
                    self.end_session(reason, reached);
                }
                0
            }
        }
    }

    fn on_deadline(&mut self) {
        let now = self.clock.now();
        let passed = |deadline: Option<Duration>| deadline.is_some_and(|deadline| deadline <= now.mono);
        let is_last = passed(self.stopping_until);
        if is_last || passed(self.closing_until) {
            let reason = "the server did not take the farewell in time";
            tracing::warn!(elapsed_ms = DRAIN_MAX.as_millis(), "the server did not take the farewell in time");
            self.closing_until.get_or_insert(now.mono);
            self.end_session(reason.to_owned(), true);
        }
        self.ended |= is_last;
        if passed(self.machine_deadline(now.mono)) {
            self.machine.handle_timeout(now);
        }
    }

    /// Opens the session again in MQTT 3.1.1, if it is over because the server does not speak MQTT 5 and the configuration leaves that open. The machine does not learn of it.
    fn is_opened_in_older_version(&mut self) -> bool {
        let Some(session) = &mut self.session else { return false };
        let Some(connect) = session.older_connect() else { return false };
        self.connector.ended(session);
        let opened = self.connector.open(connect);
        opened.is_ok_and(|opened| {
            self.session = Some(opened);
            true
        })
    }

    fn end_session(&mut self, reason: String, reached: bool) {
        let Some(session) = self.session.take() else { return };
        self.connector.ended(&session);
        if self.closing_until.take().is_some() {
            tracing::debug!(reason, "session closed");
        } else if session.is_connected() {
            tracing::warn!(reason, "session lost");
        } else {
            tracing::warn!(reason, "no session");
        }
        drop(session);
        self.backlog.forget_lost();
        self.machine.on_transport(TransportEvent::Disconnected { reason, reached }, self.clock.now());
    }

    fn report_lost(&mut self) {
        if self.session.is_none() {
            return;
        }
        let Some((messages, topics)) = self.backlog.take_lost() else { return };
        tracing::warn!(messages, nodes = topics.len(), "the application did not keep up; messages were dropped");
        let now = self.clock.now();
        for topic in topics {
            self.machine.on_transport(TransportEvent::Lost { topic }, now);
        }
    }

    /// Carries out what the machine wants. `bytes`: of the payload that led to it.
    async fn carry_out(&mut self, mut bytes: usize) {
        while let Some(connect) = self.carry_out_until_connect(&mut bytes) {
            self.connect(connect).await;
        }
    }

    /// Everything but a CONNECT, which may wait for the disk.
    fn carry_out_until_connect(&mut self, bytes: &mut usize) -> Option<Connect> {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Event(event) => {
                    self.ended |= M::is_stopped(&event);
                    self.backlog.push(event, std::mem::take(bytes));
                }
                Output::Transport(TransportAction::Connect(connect)) => return Some(connect),
                Output::Transport(TransportAction::Subscribe(filters)) => {
                    if let Some(session) = &mut self.session {
                        session.subscribe(filters);
                    }
                }
                Output::Transport(TransportAction::Publish(publish)) => {
                    if let Some(session) = &mut self.session {
                        tracing::trace!(topic = publish.topic, bytes = publish.payload.len(), "publish");
                        session.publish(publish);
                    }
                }
                Output::Transport(TransportAction::Disconnect) => self.disconnect(),
            }
        }
        None
    }

    /// Hands over as many of the events as there is room for.
    fn hand_over(&mut self) {
        while !self.backlog.is_empty() {
            match self.events.try_reserve() {
                Ok(permit) => permit.send(self.backlog.take(BATCH_MAX)),
                Err(mpsc::error::TrySendError::Closed(())) => self.backlog.clear(),
                Err(mpsc::error::TrySendError::Full(())) => break,
            }
        }
    }

    /// Writes what the machine stored and forgot. The disk may be slow; the link waits for it as for every other turn.
    async fn mirror(&mut self) {
        let actions: Vec<StoreAction> = std::iter::from_fn(|| self.machine.poll_store()).collect();
        if actions.is_empty() {
            return;
        }
        let Some(mut journal) = self.journal.take() else { return };
        let written = tokio::task::spawn_blocking(move || journal.apply(&actions).map(|()| journal)).await;
        match written {
            Ok(Ok(journal)) => self.journal = Some(journal),
            Ok(Err(error)) => {
                tracing::error!(error = with_sources(&error), "the store is kept in memory only from here on");
            }
            Err(_) => tracing::debug!("the process is ending"),
        }
    }

    async fn connect(&mut self, connect: Connect) {
        self.closing_until = None;
        self.session = None;
        let opened = match connect.bd_seq {
            Some(bd_seq) => store_bd_seq(self.bd_seq.clone(), bd_seq.next()).await,
            None => Ok(()),
        }
        .and_then(|()| self.connector.open(connect).map_err(|error| with_sources(&error)));
        match opened {
            Ok(session) => self.session = Some(session),
            Err(reason) => {
                tracing::warn!(reason, "no session");
                let event = TransportEvent::Disconnected { reason, reached: false };
                self.machine.on_transport(event, self.clock.now());
            }
        }
    }

    fn disconnect(&mut self) {
        match &mut self.session {
            Some(session) if session.is_connected() => {
                session.disconnect();
                self.closing_until = Some(self.clock.now().mono + DRAIN_MAX);
            }
            // Nothing was said yet, so there is nothing to take back.
            _ => {
                self.closing_until = Some(Duration::ZERO);
                self.end_session("disconnected before the session was up".to_owned(), true);
                self.closing_until = None;
            }
        }
    }
}

async fn store_bd_seq(store: BdSeqStore, next: BdSeq) -> Result<(), String> {
    if matches!(store, BdSeqStore::Memory) {
        return Ok(());
    }
    match tokio::task::spawn_blocking(move || store.store(next)).await {
        Ok(stored) => stored.map_err(|error| with_sources(&error)),
        Err(_) => Err("the process is ending".to_owned()),
    }
}

async fn next_of(session: &mut Option<Session>) -> SessionEvent {
    match session {
        Some(session) => session.next().await,
        None => std::future::pending().await,
    }
}

/// An error and its causes in one line.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
