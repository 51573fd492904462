//! A table as it is served: its rows, its revision, and the last deltas, by which a client that was away for a moment catches up.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use fleet_view::deltas::{Deltas, Table};
use fleet_view::history::View;
use sparkplug::EdgeNodeDescriptor;
use uuid::Uuid;

/// Changes of a table that are kept for those who were away for a moment.
const LOG_MAX: usize = 64;

/// Rows in all of them.
const LOG_ROWS_MAX: usize = 10_000;

/// A table by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableName {
    /// The console itself: broker, completeness, viewers.
    Console,
    /// Counters.
    Fleet,
    /// Edge clusters.
    Clusters,
    /// Hosts.
    Hosts,
    /// Deployments.
    Deployments,
    /// Active alerts.
    Alerts,
    /// Nodes that say which program they are.
    Services,
    /// Staged rollouts.
    Rollout,
    /// Transitions.
    Events,
    /// Every Edge Node.
    Nodes,
    /// What was asked for here.
    Actions,
    /// Objects of ConfigDB.
    Objects,
    /// Applications of ConfigDB.
    Applications,
    /// Attestation policies.
    Policies,
    /// Secrets of clusters, by their names.
    Secrets,
    /// Metrics of one Edge Node.
    Metrics(EdgeNodeDescriptor),
    /// Messages of one Edge Node as they arrive, while a client follows them.
    Messages(EdgeNodeDescriptor),
    /// Entries of one object of ConfigDB.
    Entries(Uuid),
    /// Manifests of one deployment, rendered here.
    Manifests(Uuid),
    /// Changes of the past of one object of ConfigDB, as far as they were asked for.
    History(Uuid),
}

impl TableName {
    /// Those that there are always.
    pub const FIXED: [Self; 15] = [
        Self::Console,
        Self::Fleet,
        Self::Clusters,
        Self::Hosts,
        Self::Deployments,
        Self::Alerts,
        Self::Services,
        Self::Rollout,
        Self::Events,
        Self::Nodes,
        Self::Actions,
        Self::Objects,
        Self::Applications,
        Self::Policies,
        Self::Secrets,
    ];

    /// There is one for each node or object, as long as a client follows it.
    #[must_use]
    pub const fn is_of_one(&self) -> bool {
        matches!(self, Self::Metrics(_) | Self::Messages(_) | Self::Entries(_) | Self::Manifests(_) | Self::History(_))
    }

    /// The view that is recorded of it; None: its past is not.
    #[must_use]
    pub const fn view(&self) -> Option<View> {
        match self {
            Self::Fleet => Some(View::Fleet),
            Self::Clusters => Some(View::Clusters),
            Self::Hosts => Some(View::Hosts),
            Self::Deployments => Some(View::Deployments),
            Self::Alerts => Some(View::Alerts),
            Self::Services => Some(View::Services),
            Self::Rollout => Some(View::Rollout),
            Self::Console | Self::Events | Self::Nodes | Self::Actions | Self::Metrics(_) | Self::Messages(_) => None,
            Self::Objects
            | Self::Applications
            | Self::Policies
            | Self::Secrets
            | Self::Entries(_)
            | Self::Manifests(_)
            | Self::History(_) => None,
        }
    }

    const fn word(&self) -> &'static str {
        match self {
            Self::Console => "console",
            Self::Fleet => "fleet",
            Self::Clusters => "clusters",
            Self::Hosts => "hosts",
            Self::Deployments => "deployments",
            Self::Alerts => "alerts",
            Self::Services => "services",
            Self::Rollout => "rollout",
            Self::Events => "events",
            Self::Nodes => "nodes",
            Self::Actions => "actions",
            Self::Objects => "objects",
            Self::Applications => "applications",
            Self::Policies => "policies",
            Self::Secrets => "secrets",
            Self::Metrics(_) => "metrics",
            Self::Messages(_) => "messages",
            Self::Entries(_) => "entries",
            Self::Manifests(_) => "manifests",
            Self::History(_) => "history",
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metrics(node) | Self::Messages(node) => write!(f, "{}:{node}", self.word()),
            Self::Entries(object) | Self::Manifests(object) | Self::History(object) => {
                write!(f, "{}:{object}", self.word())
            }
            other => f.write_str(other.word()),
        }
    }
}

/// There is no such table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no such table; there are console, fleet, clusters, hosts, deployments, alerts, services, rollout, events, nodes, actions, objects, applications, policies, secrets, metrics:GROUP/NODE, messages:GROUP/NODE, entries:UUID, manifests:UUID and history:UUID"
)]
pub struct UnknownTable;

impl FromStr for TableName {
    type Err = UnknownTable;

    fn from_str(text: &str) -> Result<Self, UnknownTable> {
        let of_node = |node: &str| {
            let (group, node) = node.split_once('/').ok_or(UnknownTable)?;
            EdgeNodeDescriptor::parse(group, node).map_err(|_| UnknownTable)
        };
        if let Some(node) = text.strip_prefix("metrics:") {
            return of_node(node).map(Self::Metrics);
        }
        if let Some(node) = text.strip_prefix("messages:") {
            return of_node(node).map(Self::Messages);
        }
        if let Some(object) = text.strip_prefix("entries:") {
            return Uuid::try_parse(object).map(Self::Entries).map_err(|_| UnknownTable);
        }
        if let Some(deployment) = text.strip_prefix("manifests:") {
            return Uuid::try_parse(deployment).map(Self::Manifests).map_err(|_| UnknownTable);
        }
        if let Some(object) = text.strip_prefix("history:") {
            return Uuid::try_parse(object).map(Self::History).map_err(|_| UnknownTable);
        }
        Self::FIXED.into_iter().find(|name| name.word() == text).ok_or(UnknownTable)
    }
}

/// A table at a revision.
#[derive(Debug, Clone)]
pub struct Published {
    /// Which.
    pub name: TableName,
    /// Revision: of all tables of this process the later change has the higher one.
    pub rev: u64,
    /// Its rows.
    pub rows: Arc<Table>,
    /// Deltas with the revision that each led to, the oldest first.
    log: VecDeque<(u64, Arc<Deltas>)>,
    /// The revision before the oldest of them.
    log_from: u64,
}

impl Published {
    /// A table that is seen for the first time.
    #[must_use]
    pub fn first(name: TableName, rev: u64, rows: Table) -> Self {
        Self { name, rev, rows: Arc::new(rows), log: VecDeque::new(), log_from: rev }
    }

    /// The table with these rows; None: they are the same.
    #[must_use]
    pub fn changed(&self, rev: u64, rows: Table) -> Option<Self> {
        let deltas = Deltas::between(&self.rows, &rows);
        if deltas.is_empty() {
            return None;
        }
        let mut log = self.log.clone();
        log.push_back((rev, Arc::new(deltas)));
        let mut log_from = self.log_from;
        let size = |log: &VecDeque<(u64, Arc<Deltas>)>| -> usize {
            log.iter().map(|(_, deltas)| deltas.set.len() + deltas.del.len()).sum()
        };
        while log.len() > LOG_MAX || (log.len() > 1 && size(&log) > LOG_ROWS_MAX) {
            if let Some((rev, _)) = log.pop_front() {
                log_from = rev;
            }
        }
        Some(Self { name: self.name.clone(), rev, rows: Arc::new(rows), log, log_from })
    }

    /// What changed after `rev`; None: that is not known any more, or `rev` is of another process.
    #[must_use]
    pub fn since(&self, rev: u64) -> Option<Deltas> {
        if rev < self.log_from {
            return None;
        }
        let mut deltas = Deltas::default();
        self.log.iter().filter(|(to, _)| *to > rev).for_each(|(_, later)| deltas.followed_by(later));
        Some(deltas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rows(n: u64) -> Table {
        [("a".to_owned(), json!({ "n": n })), (format!("k{n}"), json!({}))].into()
    }

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for name in TableName::FIXED {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for node in ["metrics:Foreign/Gateway 1", "messages:Foreign/Gateway 1"] {
            assert_eq!(node.parse::<TableName>().unwrap().to_string(), node);
        }
        let object = "entries:00000000-0000-0000-0000-00000000000c";
        assert_eq!(object.parse::<TableName>().unwrap().to_string(), object);
        let object = "history:00000000-0000-0000-0000-00000000000c";
        assert_eq!(object.parse::<TableName>().unwrap().to_string(), object);
        for bad in ["", "entries:x", "history:", "cluster", "metrics:", "metrics:a", "metrics:a/b/c", "messages:a/#"] {
            assert_eq!(bad.parse::<TableName>(), Err(UnknownTable), "{bad}");
        }
    }

    #[test]
    fn who_was_away_for_a_moment_catches_up_and_who_was_away_longer_does_not() {
        let mut published = Published::first(TableName::Clusters, 100, rows(0));
        let mut then = (*published.rows).clone();
        assert!(published.changed(101, rows(0)).is_none(), "the same rows are not a change");
        for n in 1..=200 {
            published = published.changed(100 + n, rows(n)).unwrap();
            if n == 150 {
                then = (*published.rows).clone();
            }
        }
        let deltas = published.since(250).unwrap();
        deltas.apply(&mut then);
        assert_eq!(then, *published.rows);
        assert!(published.since(300).unwrap().is_empty());
        assert_eq!(published.since(120), None);
        assert_eq!(published.since(5), None);
    }
}
