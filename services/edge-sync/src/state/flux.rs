//! When to look at what Flux has made of the cluster's repository: whenever something of it may have changed, one look at a time.

use std::time::Duration;

use sparkplug::backoff::Backoff;

use crate::event::{Effect, KubernetesError};
use crate::flux::FluxReport;

#[derive(Debug)]
pub struct Flux {
    report: FluxReport,
    is_due: bool,
    is_under_way: bool,
    retry: Backoff,
    retry_at: Option<Duration>,
}

impl Flux {
    pub fn new(retry: Backoff) -> Self {
        Self { report: FluxReport::default(), is_due: false, is_under_way: false, retry, retry_at: None }
    }

    /// As it was seen last.
    pub const fn report(&self) -> &FluxReport {
        &self.report
    }

    /// Something may have changed.
    pub const fn changed(&mut self) {
        self.is_due = true;
    }

    /// The API answers again.
    pub const fn retry_now(&mut self) {
        self.retry_at = None;
    }

    /// Takes the answer to [`Effect::LookAtFlux`].
    pub fn on_answer(&mut self, seen: Result<FluxReport, KubernetesError>, now: Duration) {
        self.is_under_way = false;
        match seen {
            Ok(report) => {
                self.report = report;
                self.retry.reset();
                self.retry_at = None;
            }
            Err(error) => {
                // What was applied stays applied; whether it is ready is not known.
                self.report.ready = None;
                self.report.message = Some(error.message);
                self.is_due = true;
                self.retry_at = Some(now + self.retry.next_delay());
            }
        }
    }

    /// Looks, if it is time.
    pub fn next_effect(&mut self, now: Duration) -> Option<Effect> {
        if !self.is_due || self.is_under_way || self.retry_at.is_some_and(|at| at > now) {
            return None;
        }
        // What changes from here on asks for another look.
        (self.is_due, self.is_under_way, self.retry_at) = (false, true, None);
        Some(Effect::LookAtFlux)
    }

    /// When [`Flux::next_effect`] has something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.retry_at.filter(|_| self.is_due && !self.is_under_way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ErrorClass;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_change_during_a_look_asks_for_another() {
        let mut flux = Flux::new(Backoff::new((SECOND, 8 * SECOND), 1));
        assert_eq!(flux.next_effect(SECOND), None, "not asked");
        flux.changed();
        assert_eq!(flux.next_effect(SECOND), Some(Effect::LookAtFlux));
        flux.changed();
        assert_eq!(flux.next_effect(SECOND), None, "one at a time");
        let seen = FluxReport { ready: Some(true), ..FluxReport::default() };
        flux.on_answer(Ok(seen.clone()), SECOND);
        assert_eq!((flux.report(), flux.next_deadline()), (&seen, None));
        assert_eq!(flux.next_effect(SECOND), Some(Effect::LookAtFlux));
    }

    #[test]
    fn what_cannot_be_seen_is_not_ready_and_looked_at_again() {
        let mut flux = Flux::new(Backoff::new((SECOND, 8 * SECOND), 1));
        flux.changed();
        flux.next_effect(SECOND);
        flux.on_answer(Ok(FluxReport { ready: Some(true), ..FluxReport::default() }), SECOND);
        flux.changed();
        flux.next_effect(SECOND);
        flux.on_answer(Err(KubernetesError { class: ErrorClass::Refused, message: "no".to_owned() }), SECOND);
        assert_eq!((flux.report().ready, flux.report().message.as_deref()), (None, Some("no")));
        let at = flux.next_deadline().unwrap();
        assert!(at > SECOND && flux.next_effect(SECOND).is_none());
        flux.retry_now();
        assert_eq!(flux.next_effect(SECOND), Some(Effect::LookAtFlux));
    }
}
