//! A member whom no issuer answers. It comes back by the second key of its disk. Its TPM gives that key out if it boots the same software as when it got its last ticket.
//!
//! It asks first, and obeys an issuer that refuses it. It locks itself as ever, and once it runs it asks for the renewal of its certificates. So the join service sees it again, and it
//! learns whether it still may.

use join_protocol::refusal::{RefusalClass, RefusalCode};
use join_protocol::terms::Kind;

use super::work::{Step, Work};
use super::{Phase, State, Turn};
use crate::event::Task;

impl State {
    /// No issuer answered in time.
    pub(super) fn unlock_locally(&mut self, turn: &mut Turn) {
        tracing::warn!("no issuer gave the key of the state disk; the TPM is asked for the second one");
        self.unlocks_at = None;
        let steps = vec![Step::UnlockSealed, Step::LockAgain];
        self.begin_work(Work::of_member(steps, turn.now.mono + self.settings.lock_within), turn);
    }

    /// Nothing is lost: the host asks on. The TPM would say the same again in this boot.
    pub(super) fn locally_failed(&mut self, reason: String) {
        tracing::warn!(reason, "the host does not come back by itself");
        self.node.last_error = Some(reason);
        self.node.activity = None;
        self.close(false);
    }

    /// Asks on with a disk that is closed: what the second key opened may be another disk than that of the host.
    fn close(&mut self, removes_sealed_key: bool) {
        self.work = None;
        self.phase = Phase::Asking;
        self.is_sealed &= !removes_sealed_key;
        self.run(Task::Close { removes_sealed_key });
    }

    /// Locked without a ticket: from here on it is a member that was started again.
    pub(super) fn look_again(&mut self) {
        self.work = None;
        self.node.activity = None;
        self.phase = Phase::Looking;
        self.run(Task::Inspect);
    }

    /// What a trusted issuer says about the host holds also for the second key.
    pub(super) fn obey(&mut self, kind: Kind, code: RefusalCode) {
        let is_verdict = !code.may_be_clear() && code.class() != RefusalClass::Retry;
        let removes = self.is_sealed && code == RefusalCode::EndorsementRevoked;
        match kind {
            Kind::Rejoin | Kind::Recover if is_verdict => {
                self.unlocks_at = None;
                let is_unlocking = self.work.as_ref().is_some_and(|work| work.kind.is_none()) && !self.is_committed;
                if is_unlocking {
                    self.cancel();
                    self.node.activity = None;
                }
                // The work on another ticket continues; what comes with it decides about the second key.
                if is_unlocking || (removes && self.phase == Phase::Asking) {
                    self.close(removes);
                }
            }
            // It runs on, and does not come back by itself.
            Kind::Renew if removes => {
                self.is_sealed = false;
                self.run(Task::RemoveSealedKey);
            }
            _ => {}
        }
    }
}
