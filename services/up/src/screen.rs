//! What `up` shows: the fleet as a table that is drawn again in place on a terminal, or one line per change elsewhere. Pure but for the terminal's
//! escape sequences; it must not know where the rows come from.

use std::collections::BTreeMap;

use join_service_contract::HostState;

use fleet_view::{Fleet, JoiningHostRow};
use sparkfleet_cli::output;
use sparkfleet_cli::tables;

/// Draws the whole screen of so many columns and rows. What does not fit is cut off, and said to be.
#[must_use]
pub(crate) fn draw(fleet: &Fleet, header: &[String], hints: &[String], now: u64, size: (usize, usize)) -> String {
    let (columns, rows_max) = size;
    let mut lines: Vec<String> = header.to_vec();
    let mut part = |title: Vec<String>| {
        if title.len() > 1 {
            lines.push(String::new());
            lines.extend(title);
        }
    };
    part(tables::clusters(&fleet.clusters(), now).lines());
    part(tables::hosts(&fleet.hosts(None)).lines());
    part(tables::joining_hosts(&outside(fleet), now).lines());
    part(tables::deployments(&fleet.deployments(), now).lines());
    part(tables::alerts(&fleet.alerts(), now).lines());
    lines.push(String::new());
    lines.extend_from_slice(hints);
    // The last row stays free: the cursor stands there.
    let shown = rows_max.saturating_sub(2);
    let hidden = lines.len().saturating_sub(shown);
    if hidden > 1 {
        lines.truncate(shown);
        lines.push(format!("... {hidden} more lines; `sparkfleet cluster list` and `deployment list` show all"));
    }
    // Home, each line with the rest of it erased, then everything below: nothing flickers.
    let mut text = String::from("\x1b[H");
    for line in lines {
        text.extend(line.chars().take(columns));
        text.push_str("\x1b[K\n");
    }
    text.push_str("\x1b[J");
    text
}

/// Hosts that the join services know and that are not members: members are in the table of hosts.
fn outside(fleet: &Fleet) -> Vec<JoiningHostRow> {
    fleet.joining_hosts(None).into_iter().filter(|row| row.state != HostState::Member).collect()
}

/// Says in lines what changed since the last time.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    known: BTreeMap<String, String>,
}

impl Changes {
    /// One line for each thing that is other than before.
    pub(crate) fn lines(&mut self, fleet: &Fleet) -> Vec<String> {
        let now = Self::described(fleet);
        let mut lines = Vec::new();
        for (what, state) in &now {
            if self.known.get(what) != Some(state) {
                lines.push(format!("{what}: {state}"));
            }
        }
        lines.extend(self.known.keys().filter(|what| !now.contains_key(*what)).map(|what| format!("{what}: gone")));
        self.known = now;
        lines
    }

    fn described(fleet: &Fleet) -> BTreeMap<String, String> {
        let mut described = BTreeMap::new();
        for row in fleet.clusters() {
            described.insert(format!("cluster {}", row.name), row.described());
        }
        for row in fleet.joining_hosts(None) {
            let reason = tables::reason(&row).map_or_else(String::new, |reason| format!(" ({reason})"));
            described.insert(
                format!("host {}/{}", row.cluster, row.title()),
                format!("{} by {} evidence{reason}", row.state, row.variant),
            );
        }
        for row in fleet.deployments() {
            described.insert(format!("deployment {}/{}", row.cluster, row.name), row.described());
        }
        for row in fleet.alerts() {
            let since = row.since.map_or_else(String::new, |since| format!(" since {}", output::moment(since)));
            described.insert(
                format!("alert {} of {}", row.alert, row.subject()),
                format!("active{since}: {} ({})", row.reason, row.monitor),
            );
        }
        described
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use configdb_schema::address::Organisation;

    #[test]
    fn a_screen_that_is_too_small_says_how_much_is_hidden() {
        let fleet = Fleet::new(Organisation::new("ACME").unwrap()).unwrap();
        let hints: Vec<String> = (0..20).map(|n| format!("hint {n} that is long")).collect();
        let screen = draw(&fleet, &["title".to_owned()], &hints, 0, (10, 12));
        let lines: Vec<&str> = screen.lines().collect();
        assert_eq!(lines.len(), 12, "11 rows and what erases the rest: {screen:?}");
        assert_eq!(lines[2], "hint 0 tha\u{1b}[K");
        assert_eq!(lines[10], "... 12 mor\u{1b}[K");
    }
}
