//! What a failure after the lock means: it is reported, the disk is marked, and the host reboots.

use join_protocol::host::Event as MachineEvent;
use join_protocol::message::acknowledgement::Stage;

use super::{Phase, State, Turn};
use crate::event::{Task, TaskError};
use crate::platform::Mark;

impl State {
    /// Failed after the lock: nothing is undone.
    pub(super) fn fail(&mut self, reason: &str, reset: bool, turn: &mut Turn) {
        tracing::error!(reason, reset, "failed after the lock");
        if let Some(kind) = self.work.as_ref().and_then(|work| work.kind) {
            self.drive(kind, MachineEvent::Stage(Stage::Failed, reason.to_owned()), turn);
        }
        self.node.last_error = Some(reason.to_owned());
        self.node.activity = None;
        self.node.stage = Some(Stage::Failed.name().to_owned());
        let reboot_at = turn.now.mono + self.settings.reboot_after;
        self.phase = Phase::Failing { marked: !reset, reboot_at, reason: reason.to_owned() };
        if reset {
            self.run(Task::Mark(Mark::Reset));
        } else if self.is_stopping {
            self.on_stop();
        }
    }

    pub(super) fn on_marked(&mut self, error: Option<TaskError>, turn: &mut Turn) {
        let Phase::Failing { marked, reboot_at, reason } = &mut self.phase else { return };
        *marked = true;
        if let Some(error) = error {
            // The token never said that the host is a member, so the disk is formatted again either way.
            tracing::error!(%error, "the state disk could not be marked for reset");
            reason.push_str(&format!("; and the state disk could not be marked for reset: {error}"));
        }
        let (due, reason) = (*reboot_at <= turn.now.mono, reason.clone());
        if self.is_stopping {
            self.on_stop();
        } else if due {
            self.reboot(reason);
        }
    }

    pub(super) fn reboot(&mut self, reason: String) {
        self.run(Task::Reboot(reason.clone()));
        self.phase = Phase::Rebooting(reason);
    }
}
