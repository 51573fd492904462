//! Answers of the store, and what time brings.

use service_runtime::{Effects, Saved};
use sparkplug::Now;

use super::{State, Work, rebirth};
use crate::event::{Effect, ErrorClass, Operation, TransactionError, Written};
use crate::reconcile::{self, DueWork, Ending};
use join_protocol::terms::RequestId;

impl State {
    pub(super) fn on_written(
        &mut self,
        transaction: u64,
        written: Vec<Written>,
        result: Result<Effects<Saved, Effect>, TransactionError>,
        now: Now,
    ) {
        written.into_iter().for_each(|written| self.cache.on_written(written));
        let Some(work) = self.work.remove(&transaction) else { return };
        match result {
            Ok(saved) => {
                self.store_error = None;
                self.effects.extend(saved);
                self.on_done(work, now);
            }
            Err(error) => self.on_failed(work, &error, now),
        }
    }

    fn on_done(&mut self, work: Work, now: Now) {
        match work {
            Work::Leader => self.leadership.on_written(now.mono),
            Work::Policy => {
                // The answer is published even if nothing else of the report changed.
                self.follow_policy();
                self.report(now);
                self.effects.extend(self.reports.repeat_policy(now.wall).map(Effect::Node));
            }
            Work::Admitting(admitting) => self.on_admitted(*admitting, now),
            Work::Granting(id) => {
                self.totals.issued += 1;
                tracing::info!(request = %id, "ticket issued");
                self.free(id, now);
            }
            Work::Ending(id, ending) => {
                self.ended(id, ending);
                self.free(id, now);
            }
            Work::Member(id) => self.free(id, now),
            Work::Housekeeping => {}
        }
    }

    fn ended(&mut self, id: RequestId, ending: Ending) {
        let had_token = self.cache.request(id).is_some_and(|entry| entry.is.token.is_some());
        if had_token {
            self.totals.revoked += 1;
        }
        tracing::debug!(request = %id, why = ending.detail(), had_token, "attempt ended");
    }

    fn on_failed(&mut self, work: Work, error: &TransactionError, now: Now) {
        match error.error.class {
            // The copy was old: it is read again, and the host or the next look repeats what was wanted.
            ErrorClass::Conflict => self.effects.extend(error.key.clone().map(Effect::Read)),
            ErrorClass::Unreachable | ErrorClass::Refused => {
                tracing::warn!(%error, "not written");
                self.note_error(&error.error);
            }
        }
        match work {
            Work::Leader => self.leadership.on_failed(error.error.class, now.mono),
            Work::Policy => self.policy.refuse(format!("the policy could not be stored: {error}")),
            Work::Admitting(admitting) => self.free(admitting.verified.recipient().hello().request, now),
            Work::Granting(id) => self.free(id, now),
            Work::Ending(id, _) | Work::Member(id) => {
                // What the host reported is in its birth.
                let address = self.cache.request(id).map(|entry| entry.is.record.address.clone());
                self.effects.extend(address.and_then(|address| rebirth(&address)));
                self.parked.remove(&id);
                self.free(id, now);
            }
            Work::Housekeeping => {}
        }
    }

    /// Ends what must end.
    pub(super) fn sweep(&mut self, now: Now) {
        let token_ms = u64::try_from(self.settings.token_lifetime.as_millis()).unwrap_or(u64::MAX);
        for due in reconcile::due(&self.cache, self.policy.verifier().policy(), now.wall, token_ms) {
            match due {
                DueWork::End(id, ending) if !self.busy.contains(&id) => self.end(id, ending, None, now),
                DueWork::End(..) => self.sweep_again = true,
                DueWork::Delete(key, version) => {
                    self.run(Work::Housekeeping, vec![Operation::Delete { key, version }], Effects::new());
                }
                DueWork::DeleteNode(name) => {
                    tracing::warn!(node = name, "the host is revoked: its node is taken out of the cluster");
                    self.run(Work::Housekeeping, vec![Operation::DeleteNode { name }], Effects::new());
                }
            }
        }
    }
}
