//! Edge Nodes and their devices as a tree: alive or not, how long ago they sent something, how often, and how many messages are missing. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use sparkplug::{DeviceId, EdgeNodeDescriptor, HostId, MessageKind};

use crate::output::visible;
use fleet_view::explorer::births::Note;

/// Time over which a rate is counted, seconds.
const RATE_S: u64 = 10;

/// Lines kept at most, of nodes and devices; others are counted.
const LINES_MAX: usize = 100_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tree {
    groups: BTreeMap<String, BTreeMap<EdgeNodeDescriptor, Node>>,
    hosts: BTreeMap<HostId, (bool, u64)>,
    lines: usize,
    left_out: BTreeSet<EdgeNodeDescriptor>,
}

#[derive(Debug, Default)]
struct Node {
    own: Received,
    devices: BTreeMap<DeviceId, Received>,
}

/// What was received of a node or a device.
#[derive(Debug, Default)]
struct Received {
    state: State,
    messages: u64,
    births: u64,
    gaps: u64,
    /// Metrics of the last birth.
    metrics: Option<usize>,
    last_ms: u64,
    rate: Rate,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No birth and no death was seen.
    #[default]
    Unknown,
    Alive,
    Dead,
}

/// Messages of the last seconds, counted by second.
#[derive(Debug, Default)]
struct Rate {
    counts: [u32; RATE_S as usize],
    second: u64,
    first_ms: Option<u64>,
}

impl Rate {
    fn add(&mut self, now_ms: u64) {
        self.first_ms.get_or_insert(now_ms);
        self.forget(now_ms);
        if let Some(count) = self.counts.get_mut((self.second % RATE_S) as usize) {
            *count += 1;
        }
    }

    /// Makes room for the seconds that have begun.
    fn forget(&mut self, now_ms: u64) {
        let second = now_ms / 1000;
        for begun in self.second + 1..=second.min(self.second + RATE_S) {
            self.counts[(begun % RATE_S) as usize] = 0;
        }
        self.second = self.second.max(second);
    }

    /// Messages a second.
    fn at(&mut self, now_ms: u64) -> f64 {
        self.forget(now_ms);
        let since_first = now_ms.saturating_sub(self.first_ms.unwrap_or(now_ms)) / 1000 + 1;
        f64::from(self.counts.iter().sum::<u32>()) / since_first.min(RATE_S) as f64
    }
}

impl Received {
    fn take(&mut self, kind: MessageKind, notes: &[Note], metrics: usize, now_ms: u64) {
        self.messages += 1;
        self.last_ms = now_ms;
        self.rate.add(now_ms);
        self.gaps += notes.iter().filter(|note| matches!(note, Note::Gap(..))).count() as u64;
        match kind {
            MessageKind::NBirth | MessageKind::DBirth => {
                self.births += 1;
                self.state = State::Alive;
                self.metrics = Some(metrics);
            }
            // The death of an earlier session says nothing of this one.
            MessageKind::NDeath if notes.iter().any(|note| matches!(note, Note::OtherDeath(..))) => {}
            MessageKind::NDeath | MessageKind::DDeath => self.state = State::Dead,
            _ => {}
        }
    }

    fn line(&mut self, now_ms: u64) -> String {
        let state = match self.state {
            State::Unknown => "unknown",
            State::Alive => "alive",
            State::Dead => "dead",
        };
        let metrics = self.metrics.map_or_else(|| "?".to_owned(), |metrics| metrics.to_string());
        format!(
            "{state:<8} {:>9} {:>9} {:>10} {:>7} {:>6} {:>8}",
            age(now_ms.saturating_sub(self.last_ms)),
            format!("{:.1}/s", self.rate.at(now_ms)),
            self.messages,
            self.births,
            self.gaps,
            metrics
        )
    }
}

impl Tree {
    /// Takes notice of a message of a node or a device; commands to it are not a sign of life.
    pub(super) fn take(
        &mut self,
        node: &EdgeNodeDescriptor,
        kind: MessageKind,
        device: Option<&DeviceId>,
        notes: &[Note],
        metrics: usize,
        now_ms: u64,
    ) {
        if matches!(kind, MessageKind::NCmd | MessageKind::DCmd | MessageKind::State) {
            return;
        }
        let nodes = self.groups.entry(node.group.to_string()).or_default();
        if !nodes.contains_key(node) {
            if self.lines >= LINES_MAX {
                self.left_out.insert(node.clone());
                return;
            }
            self.lines += 1;
        }
        let branch = nodes.entry(node.clone()).or_default();
        let received = match device {
            None => &mut branch.own,
            Some(device) => {
                if !branch.devices.contains_key(device) {
                    if self.lines >= LINES_MAX {
                        return;
                    }
                    self.lines += 1;
                }
                branch.devices.entry(device.clone()).or_default()
            }
        };
        received.take(kind, notes, metrics, now_ms);
        if kind == MessageKind::NDeath && branch.own.state == State::Dead {
            // Devices do not outlive their node.
            branch.devices.values_mut().filter(|device| device.state == State::Alive).for_each(|device| {
                device.state = State::Dead;
            });
        }
    }

    /// Takes notice of a STATE message.
    pub(super) fn take_state(&mut self, host: &HostId, online: bool, since_ms: u64) {
        if self.hosts.len() < LINES_MAX {
            self.hosts.insert(host.clone(), (online, since_ms));
        }
    }

    /// The tree as lines of text, at most `lines_max` (None: all).
    #[must_use]
    pub(super) fn text(&mut self, now_ms: u64, lines_max: Option<usize>) -> String {
        let mut lines = Vec::new();
        for (group, nodes) in &mut self.groups {
            lines.push((visible(group), String::new()));
            for (node, branch) in nodes {
                lines.push((format!("  {}", visible(node.edge_node.as_str())), branch.own.line(now_ms)));
                for (device, received) in &mut branch.devices {
                    lines.push((format!("    {}", visible(device.as_str())), received.line(now_ms)));
                }
            }
        }
        if !self.hosts.is_empty() {
            lines.push(("STATE".to_owned(), String::new()));
        }
        for (host, (online, since_ms)) in &self.hosts {
            let word = if *online { "online" } else { "offline" };
            let since = age(now_ms.saturating_sub(*since_ms));
            lines.push((format!("  {}", visible(host.as_str())), format!("{word:<8} {since:>9}")));
        }
        if lines.is_empty() {
            return "nothing was received yet\n".to_owned();
        }
        let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).min(60);
        let mut text = format!(
            "{:width$}  {:<8} {:>9} {:>9} {:>10} {:>7} {:>6} {:>8}\n",
            "", "STATE", "AGE", "RATE", "MESSAGES", "BIRTHS", "GAPS", "METRICS"
        );
        // The heading and the line that says what is missing.
        let room = lines_max.map_or(usize::MAX, |max| max.saturating_sub(2));
        let beyond = lines.len().saturating_sub(room) + self.left_out.len();
        for (name, received) in lines.iter().take(room) {
            let _ = writeln!(text, "{}", format!("{name:width$}  {received}").trim_end());
        }
        if beyond > 0 {
            let _ = writeln!(
                text,
                "... {beyond} lines more: --group and --node show some, --count or --for all at the end"
            );
        }
        text
    }
}

/// A time that has passed, in its largest unit.
fn age(ms: u64) -> String {
    let seconds = Duration::from_millis(ms).as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> EdgeNodeDescriptor {
        EdgeNodeDescriptor::parse("ACME-Plant", name).unwrap()
    }

    #[test]
    fn a_tree_shows_state_age_rate_gaps_and_what_a_birth_holds() {
        let mut tree = Tree::default();
        let oven = DeviceId::new("Oven").unwrap();
        tree.take(&node("Press"), MessageKind::NBirth, None, &[], 7, 1_000);
        tree.take(&node("Press"), MessageKind::DBirth, Some(&oven), &[], 3, 1_000);
        for second in 1..=20 {
            let notes = if second == 5 { vec![Note::Gap(9, 6)] } else { Vec::new() };
            tree.take(&node("Press"), MessageKind::DData, Some(&oven), &notes, 1, 1_000 + second * 500);
        }
        tree.take(&node("Lathe"), MessageKind::NData, None, &[Note::UnknownNode], 1, 4_000);
        tree.take(&node("Press"), MessageKind::NCmd, None, &[], 1, 11_000);
        tree.take_state(&HostId::new("Ignition").unwrap(), true, 0);
        let shown = tree.text(11_000, None);
        let words: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["STATE", "AGE", "RATE", "MESSAGES", "BIRTHS", "GAPS", "METRICS"]);
        assert_eq!(words[1], ["ACME-Plant"]);
        assert_eq!(words[2], ["Lathe", "unknown", "7", "s", "0.1/s", "1", "0", "0", "?"]);
        assert_eq!(words[3], ["Press", "alive", "10", "s", "0.0/s", "1", "1", "0", "7"]);
        assert_eq!(words[4], ["Oven", "alive", "0", "s", "1.9/s", "21", "1", "1", "3"]);
        assert_eq!(words[6], ["Ignition", "online", "11", "s"]);
        assert_eq!(words.len(), 7);
    }

    #[test]
    fn devices_die_with_their_node_but_not_by_the_death_of_an_earlier_session() {
        let mut tree = Tree::default();
        let oven = DeviceId::new("Oven").unwrap();
        tree.take(&node("Press"), MessageKind::NBirth, None, &[], 1, 0);
        tree.take(&node("Press"), MessageKind::DBirth, Some(&oven), &[], 1, 0);
        tree.take(&node("Press"), MessageKind::NDeath, None, &[Note::OtherDeath(Some(1), Some(2))], 1, 0);
        assert_eq!(tree.text(0, None).matches("alive").count(), 2);
        tree.take(&node("Press"), MessageKind::NDeath, None, &[], 1, 0);
        assert_eq!(tree.text(0, None).matches("dead").count(), 2);
    }

    #[test]
    fn a_small_screen_says_how_many_lines_it_does_not_show() {
        let mut tree = Tree::default();
        for number in 0..10 {
            tree.take(&node(&format!("N{number}")), MessageKind::NBirth, None, &[], 1, 0);
        }
        let shown = tree.text(0, Some(6));
        assert_eq!(shown.lines().count(), 6);
        assert!(
            shown.ends_with("... 7 lines more: --group and --node show some, --count or --for all at the end\n"),
            "{shown}"
        );
        assert!(Tree::default().text(0, None).contains("nothing was received"));
    }

    #[test]
    fn a_clock_that_jumps_costs_no_time_and_no_panic() {
        let mut rate = Rate::default();
        rate.add(u64::MAX);
        rate.add(0);
        assert!(rate.at(u64::MAX) > 0.0);
        assert_eq!(
            [age(0), age(119_999), age(120_000), age(7_200_000), age(u64::MAX)].map(|age| age.contains(' ')),
            [true; 5]
        );
    }
}
