//! The common start and the one loop of a service: signals, health, events, effects, deadlines, the end. So no service can forget one of them.
//!
//! ```text
//!            Io::recv                 Service::on_event
//! outside ─────────────> event ─────────────────────────> core (pure)
//!         <───────────── effect <─────────────────────────
//!            Io::execute              Service::poll_effects
//! ```
//!
//! This module must not know any service. What runs several services in one process serves health once, and calls their `run` itself.

use std::future::Future;
use std::time::Duration;

use anyhow::Context as _;
use sparkplug::Now;
use sparkplug::edge_node::NodeEvent;
use sparkplug_mqtt::{Clock, unless_displaced};

use crate::exit;
use crate::health::{self, Health, HttpConfig};
use crate::shutdown::Shutdown;

/// Events that are taken although a deadline has passed. What was received before the deadline is taken first, so that a process that was paused does not take others for silent.
/// With this limit, a flood does not hold a deadline up for ever.
pub const EVENTS_BEFORE_DEADLINE_MAX: usize = 256;

/// The core of a service: decides, and does nothing itself.
pub trait Service {
    /// What happens to it.
    type Event;
    /// What it wants done.
    type Effect;

    /// How many events it takes before effects are carried out, if they are there already. More than one is for a core that decides in [`Service::poll_effects`] what follows from all of
    /// them, such as from a birth and those of its devices.
    const EVENTS_AT_ONCE: usize = 1;

    /// The event that says that [`Service::next_deadline`] has passed.
    fn deadline_reached() -> Self::Event;

    /// The event that asks it to end; None: it ends without a word.
    #[must_use]
    fn stop() -> Option<Self::Event> {
        None
    }

    /// Takes an event.
    ///
    /// # Errors
    /// The system denies what an event needs, such as random numbers; this ends the service.
    fn on_event(&mut self, event: Self::Event, now: Now) -> anyhow::Result<()>;

    /// What is to be done, in order.
    fn poll_effects(&mut self) -> Vec<Self::Effect>;

    /// `Now::mono` at which it wants [`Service::deadline_reached`].
    fn next_deadline(&self) -> Option<Duration>;
}

/// Makes a core a [`Service`] by its own methods `on_event`, `poll_effects` and `next_deadline`, which cannot fail; the event of a deadline is `DeadlineReached`.
///
/// `stop` is the event that asks it to end. `entropy` is a function whose result `on_event` takes with each event; what it fails with ends the service. `at_once` is
/// [`Service::EVENTS_AT_ONCE`].
#[macro_export]
macro_rules! service_core {
    ($core:ty, $event:ty, $effect:ty $(, stop: $stop:expr)? $(, entropy: $entropy:path)? $(, at_once: $at_once:expr)?) => {
        impl $crate::service::Service for $core {
            type Event = $event;
            type Effect = $effect;

            $(const EVENTS_AT_ONCE: usize = $at_once;)?

            fn deadline_reached() -> $event {
                <$event>::DeadlineReached
            }

            $(fn stop() -> ::std::option::Option<$event> {
                Some($stop)
            })?

            fn on_event(&mut self, event: $event, now: ::sparkplug::Now) -> ::anyhow::Result<()> {
                self.on_event(event, now $(, $entropy()?)?);
                Ok(())
            }

            fn poll_effects(&mut self) -> ::std::vec::Vec<$effect> {
                self.poll_effects()
            }

            fn next_deadline(&self) -> ::std::option::Option<::std::time::Duration> {
                self.next_deadline()
            }
        }
    };
}

/// Everything outside of the core.
pub trait ServiceIo {
    /// The core that it serves.
    type Core: Service;

    /// The next event. Cancel-safe.
    ///
    /// # Errors
    /// A session or a task has ended that the service cannot do without; this ends the service.
    fn recv(&mut self) -> impl Future<Output = anyhow::Result<<Self::Core as Service>::Event>> + Send;

    /// Does what the core wants. What takes long is begun, and its answer is an event.
    ///
    /// # Errors
    /// As [`ServiceIo::recv`].
    fn execute(&mut self, effect: <Self::Core as Service>::Effect) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Shows an event in health and log, before the core takes it.
    fn report(&mut self, event: &<Self::Core as Service>::Event);

    /// Sets health and metrics of the process by what the core is after an event and its effects.
    fn publish(&mut self, _core: &Self::Core) {}

    /// Whether the loop ends, looked at when no effect is left. `is_stopping`: the core has been asked to end.
    fn has_ended(&self, is_stopping: bool) -> bool {
        is_stopping
    }
}

/// The one loop: carries events to the core and effects to the outside, until `shutdown` or the core ends it.
///
/// # Errors
/// As [`Service::on_event`], [`ServiceIo::recv`] and [`ServiceIo::execute`].
pub async fn serve<S, I>(service: &mut S, io: &mut I, clock: Clock, shutdown: &Shutdown) -> anyhow::Result<()>
where
    S: Service,
    I: ServiceIo<Core = S>,
{
    let mut is_stopping = false;
    let mut overdue_events = 0;
    loop {
        for effect in service.poll_effects() {
            io.execute(effect).await?;
        }
        io.publish(service);
        if io.has_ended(is_stopping) {
            return Ok(());
        }
        let deadline = service.next_deadline();
        let is_overdue = deadline.is_some_and(|deadline| deadline <= clock.now().mono);
        overdue_events = if is_overdue { overdue_events + 1 } else { 0 };
        let event = tokio::select! {
            biased;
            () = shutdown.wait(), if !is_stopping => {
                is_stopping = true;
                match S::stop() {
                    Some(event) => event,
                    None => return Ok(()),
                }
            }
            event = io.recv(), if overdue_events <= EVENTS_BEFORE_DEADLINE_MAX => event?,
            () = clock.sleep_until(deadline) => {
                overdue_events = 0;
                S::deadline_reached()
            }
        };
        io.report(&event);
        service.on_event(event, clock.now())?;
        // A deadline that has passed is not held up further, and nothing more is begun at the end.
        if !is_stopping && !is_overdue {
            take_more(service, io, clock, shutdown).await?;
        }
    }
}

/// Takes the events that are there already.
async fn take_more<S, I>(service: &mut S, io: &mut I, clock: Clock, shutdown: &Shutdown) -> anyhow::Result<()>
where
    S: Service,
    I: ServiceIo<Core = S>,
{
    for _ in 1..S::EVENTS_AT_ONCE {
        let event = tokio::select! {
            biased;
            () = shutdown.wait() => return Ok(()),
            event = io.recv() => event?,
            () = std::future::ready(()) => return Ok(()),
        };
        io.report(&event);
        service.on_event(event, clock.now())?;
    }
    Ok(())
}

/// The event of the own Edge Node, for a service that ends when another process speaks for the node.
///
/// # Errors
/// With [`exit::REFUSED`] if this process is displaced.
pub fn admitted(event: NodeEvent) -> anyhow::Result<NodeEvent> {
    unless_displaced(event).map_err(|other| exit::with_code(exit::REFUSED, other))
}

/// Shows in health, as `component`, and in metric `sparkfleet_births_undelivered`, whether others can know the own Edge Node: it is born, and the server delivers its births.
pub fn report_node(health: &Health, component: &str, event: &NodeEvent) {
    let is_undelivered = match event {
        NodeEvent::Born { rebirth: false, .. } | NodeEvent::BirthReceived => Some(0.0),
        NodeEvent::BirthNotReceived(_) => Some(1.0),
        _ => None,
    };
    if let Some(is_undelivered) = is_undelivered {
        metrics::gauge!("sparkfleet_births_undelivered", "component" => component.to_owned()).set(is_undelivered);
    }
    match event {
        // Births that are repeated because the server does not deliver them prove nothing.
        NodeEvent::Born { rebirth: false, .. } | NodeEvent::BirthReceived => health.component(component, true, "born"),
        NodeEvent::BirthNotReceived(unheard) => health.component(component, false, unheard.to_string()),
        NodeEvent::Offline { reason } => health.component(component, false, reason.as_str()),
        _ => {}
    }
}

/// The configuration of a service that can be a process of its own.
pub trait ServiceConfig {
    /// Where health and metrics are served.
    fn http(&self) -> &HttpConfig;
}

/// Runs a service until it ends, or a signal asks it to.
///
/// Health is served from before the service starts, so that one that waits for its store or its broker is alive and not ready.
///
/// # Errors
/// With [`exit::UNAVAILABLE`] if nothing can listen at `http.listen`; signals cannot be received; or what the service returns.
pub async fn run<C, R, F>(config: C, service: R) -> anyhow::Result<()>
where
    C: ServiceConfig,
    R: FnOnce(C, Shutdown, Health) -> F,
    F: Future<Output = anyhow::Result<()>>,
{
    let shutdown = Shutdown::on_signals().context("cannot listen to signals")?;
    let health = Health::new();
    if let Some(addr) = config.http().listen {
        let serving = health::serve(addr, health.clone(), shutdown.child()).await;
        serving.context("http.listen").map_err(|error| exit::with_code(exit::UNAVAILABLE, error))?;
    }
    service(config, shutdown, health).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener};

    struct Config(HttpConfig);

    impl ServiceConfig for Config {
        fn http(&self) -> &HttpConfig {
            &self.0
        }
    }

    fn listening_at(addr: SocketAddr) -> Config {
        Config(HttpConfig { listen: Some(addr) })
    }

    #[test]
    fn births_that_the_server_does_not_deliver_are_a_metric() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let health = Health::new();
        let after = |event: NodeEvent| {
            metrics::with_local_recorder(&recorder, || report_node(&health, "mqtt", &event));
            recorder.handle().render()
        };
        let topic = "spBv1.0/ACME-Central/NBIRTH/ConfigDB".to_owned();
        let undelivered = after(NodeEvent::BirthNotReceived(sparkplug::edge_node::BirthNotReceived { topic }));
        assert!(undelivered.contains("sparkfleet_births_undelivered{component=\"mqtt\"} 1"), "{undelivered}");
        let delivered = after(NodeEvent::BirthReceived);
        assert!(delivered.contains("sparkfleet_births_undelivered{component=\"mqtt\"} 0"), "{delivered}");
    }

    #[tokio::test]
    async fn an_address_that_is_taken_names_the_key_and_the_service_is_not_started() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = listening_at(taken.local_addr().unwrap());
        let error = run(config, |_, _, _| async { panic!("it was started") }).await.unwrap_err();
        assert_eq!(exit::code_of(&error), exit::UNAVAILABLE);
        assert!(format!("{error:#}").starts_with("http.listen: cannot listen on 127.0.0.1:"), "{error:#}");
    }

    #[tokio::test]
    async fn what_a_service_returns_is_returned() {
        let config = listening_at("127.0.0.1:0".parse().unwrap());
        let refused = |_, _, _| async { Err(exit::with_code(exit::REFUSED, anyhow::anyhow!("no"))) };
        assert_eq!(exit::code_of(&run(config, refused).await.unwrap_err()), exit::REFUSED);
    }

    /// Wants its events done.
    struct Counter {
        deadline: Option<Duration>,
        events: Vec<u32>,
        deadlines: usize,
        wanted: Vec<u32>,
        /// How many effects it had each time.
        polled: Vec<usize>,
    }

    /// A deadline that is always over.
    const OVER: Option<Duration> = Some(Duration::ZERO);

    const DEADLINE: u32 = u32::MAX;
    const STOP: u32 = u32::MAX - 1;

    impl Service for Counter {
        type Event = u32;
        type Effect = u32;

        const EVENTS_AT_ONCE: usize = 3;

        fn deadline_reached() -> u32 {
            DEADLINE
        }

        fn stop() -> Option<u32> {
            Some(STOP)
        }

        fn on_event(&mut self, event: u32, _now: Now) -> anyhow::Result<()> {
            anyhow::ensure!(event != 13, "thirteen");
            self.deadlines += usize::from(event == DEADLINE);
            self.events.push(event);
            self.wanted.push(event);
            Ok(())
        }

        fn poll_effects(&mut self) -> Vec<u32> {
            self.polled.push(self.wanted.len());
            std::mem::take(&mut self.wanted)
        }

        fn next_deadline(&self) -> Option<Duration> {
            self.deadline
        }
    }

    /// A flood of events, and what was done.
    struct Flood {
        next: u32,
        stop_at: u32,
        shutdown: Shutdown,
        executed: Vec<u32>,
    }

    impl ServiceIo for Flood {
        type Core = Counter;

        async fn recv(&mut self) -> anyhow::Result<u32> {
            self.next += 1;
            if self.next == self.stop_at {
                self.shutdown.trigger();
            }
            Ok(self.next)
        }

        async fn execute(&mut self, effect: u32) -> anyhow::Result<()> {
            self.executed.push(effect);
            Ok(())
        }

        fn report(&mut self, _event: &u32) {}
    }

    async fn flood(first: u32, stop_at: u32, deadline: Option<Duration>) -> (anyhow::Result<()>, Counter, Flood) {
        let shutdown = Shutdown::new();
        let (events, polled) = (Vec::new(), Vec::new());
        let mut counter = Counter { deadline, events, deadlines: 0, wanted: vec![0], polled };
        let mut flood = Flood { next: first, stop_at, shutdown: shutdown.clone(), executed: Vec::new() };
        let ended = serve(&mut counter, &mut flood, Clock::new(), &shutdown).await;
        (ended, counter, flood)
    }

    #[tokio::test]
    async fn a_flood_of_events_does_not_hold_a_deadline_up() {
        let events = u32::try_from(EVENTS_BEFORE_DEADLINE_MAX).unwrap();
        let (ended, counter, _) = flood(100, 100 + 10 * events, OVER).await;
        ended.unwrap();
        assert!((9..=10).contains(&counter.deadlines), "{}", counter.deadlines);
        // What was received before the deadline is received first.
        assert_eq!(counter.events.iter().position(|event| *event == DEADLINE), Some(EVENTS_BEFORE_DEADLINE_MAX));
    }

    #[tokio::test]
    async fn every_effect_is_carried_out_in_order_and_those_of_the_end_too() {
        let (ended, counter, flood) = flood(100, 103, OVER).await;
        ended.unwrap();
        assert_eq!(counter.events, [101, 102, 103, STOP]);
        assert_eq!(flood.executed, [0, 101, 102, 103, STOP]);
    }

    #[tokio::test]
    async fn events_that_are_there_already_are_taken_together_but_none_after_the_end() {
        let (ended, counter, flood) = flood(100, 108, None).await;
        ended.unwrap();
        assert_eq!(counter.polled, [1, 3, 3, 2, 1]);
        assert_eq!(flood.executed, [0, 101, 102, 103, 104, 105, 106, 107, 108, STOP]);
    }

    #[tokio::test]
    async fn what_the_core_cannot_take_ends_the_service() {
        let (ended, ..) = flood(11, 100, OVER).await;
        assert_eq!(ended.unwrap_err().to_string(), "thirteen");
    }
}
