//! An export in place of the replicas: its tables are shown as if they were made now, and nothing can be done to them.

use std::sync::Arc;

use fleet_view::deltas::Table;
use fleet_view::history::View;
use fleet_view::history::export::{self, Header, Replayed};
use sparkplug::Now;

use super::{Source, State};
use crate::published::TableName;
use crate::replay::Step;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Replay {
    header: Option<Header>,
    replayed: Replayed,
    is_over: bool,
}

impl Replay {
    /// A table as it is shown.
    pub(super) fn table(&self, view: View) -> Arc<Table> {
        self.replayed.table(view)
    }

    /// What is shown, for people.
    pub(super) fn sentence(&self) -> String {
        let Some(header) = &self.header else { return "the replay has not begun".to_owned() };
        let at = export::moment(self.replayed.at().max(header.since));
        let end = if self.is_over { "; it has ended" } else { "" };
        format!("a replay shows the fleet {} as it was at {at}{end}; nothing of it is live", header.organisation)
    }
}

impl State {
    /// Takes what comes next of an export.
    pub(super) fn on_replayed(&mut self, step: Step, now: Now) {
        let Some(replay) = &mut self.replay else { return };
        match step {
            Step::Began(header) => {
                *replay = Replay { header: Some(header), ..Replay::default() };
                if self.online.is_err() {
                    (self.online, self.online_since) = (Ok(()), now.wall);
                }
            }
            Step::Lines(lines) => {
                for line in lines {
                    if let Err(error) = replay.replayed.apply(&line) {
                        tracing::warn!(error = %error, "a line of the export is not shown");
                    }
                }
            }
            Step::Ended => replay.is_over = true,
        }
        self.mark(|name, source| name.view().is_some() || *name == TableName::Console || source == Source::Fleet);
    }
}
