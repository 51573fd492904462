//! A transition in a sentence. Which fields say how something stands is decided here, once for each table.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::View;

/// Longest part of a sentence that comes from a node, in characters.
const PART_MAX: usize = 300;

/// What happened, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Name of the cluster that it is about; None: a central service, or a node of no cluster.
    pub cluster: Option<String>,
    /// What kind of thing happened: `added`, `removed`, `health`, `set-up`, `alert raised` and so on.
    pub kind: String,
    /// What it happened to, such as `deployment Oven`.
    pub subject: String,
    /// The field that matters most, before; None: it had no value.
    pub old: Option<String>,
    /// The same now.
    pub new: Option<String>,
    /// All of it as one text.
    pub text: String,
    /// `Request/Id` of the write to ConfigDB that led to it, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The user who caused it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// A field whose changes are events: its place in the row, the kind of event, and its name in sentences.
type Field = (&'static str, &'static str, &'static str);

/// Fields that say how something stands, the most important first.
const fn fields(view: View) -> &'static [Field] {
    match view {
        View::Clusters => &[
            ("/setup", "set-up", "set-up"),
            ("/edge", "edge", "edge"),
            ("/held", "held", "held by the edge"),
            ("/health", "health", "health"),
            ("/wave", "config", "wave"),
            ("/desired_version", "config", "desired version"),
            ("/git/wanted", "config", "commit in its repository"),
            ("/git/applied", "applied", "commit that Flux applied"),
            ("/version", "version", "version of edge sync"),
        ],
        View::Hosts => &[
            ("/member", "member", "membership"),
            ("/health", "health", "health"),
            ("/ready", "ready", "ready"),
            ("/role", "role", "role"),
        ],
        View::Deployments => &[
            ("/state", "state", "state"),
            ("/health", "health", "health"),
            ("/host", "config", "host"),
            ("/chart", "config", "chart"),
        ],
        View::Alerts => {
            &[("/acknowledged/by", "alert acknowledged", "acknowledged by"), ("/reason", "alert changed", "reason")]
        }
        View::Services => {
            &[("/alive", "alive", "alive"), ("/version", "version", "version"), ("/instance", "restart", "process")]
        }
        View::Rollout => &[("/hold/by", "rollout held", "held by"), ("/blocked", "rollout", "waits")],
        View::Fleet => &[],
    }
}

impl Event {
    /// What a transition means; None: nothing that people have to know.
    pub(super) fn of(view: View, key: &str, old: Option<&Value>, new: Option<&Value>) -> Option<Self> {
        let row = new.or(old)?;
        if view == View::Fleet {
            return None;
        }
        let subject = subject(view, key, row);
        let (kind, before, after, what) = match (old, new) {
            (None, Some(row)) => came(view, row),
            (Some(row), None) => went(view, row),
            (Some(old), Some(new)) => changed(view, old, new)?,
            (None, None) => return None,
        };
        // The cluster stands beside the sentence.
        let text = if view == View::Clusters { what } else { format!("{subject} {what}") };
        let cluster = match view {
            View::Services => None,
            _ => view.cluster_of(row).map(part),
        };
        let who = new.and_then(|row| decided_by(kind, row));
        Some(Self { cluster, kind: kind.to_owned(), subject, old: before, new: after, text, request: None, who })
    }
}

/// The user whom a row itself names for what happened.
fn decided_by(kind: &str, row: &Value) -> Option<String> {
    match kind {
        "alert acknowledged" => text(row, "/acknowledged/by"),
        "rollout held" => text(row, "/hold/by"),
        _ => None,
    }
}

type Said = (&'static str, Option<String>, Option<String>, String);

fn came(view: View, row: &Value) -> Said {
    match view {
        View::Alerts => ("alert raised", None, text(row, "/alert"), format!("raised{}", reason(row))),
        View::Services => ("birth", None, text(row, "/version"), format!("was born{}", because(text(row, "/version")))),
        _ => {
            let (place, ..) = fields(view).first().copied().unwrap_or(("/health", "", ""));
            let now = text(row, place);
            let shown = now.as_ref().map_or_else(String::new, |now| format!(", {now}"));
            ("added", None, now, format!("added{shown}"))
        }
    }
}

fn went(view: View, row: &Value) -> Said {
    match view {
        View::Alerts => ("alert cleared", text(row, "/alert"), None, "cleared".to_owned()),
        _ => {
            let (place, ..) = fields(view).first().copied().unwrap_or(("/health", "", ""));
            ("removed", text(row, place), None, "removed".to_owned())
        }
    }
}

fn changed(view: View, old: &Value, new: &Value) -> Option<Said> {
    let is_other = |(place, ..): &&Field| {
        old.pointer(place).filter(|value| !value.is_null()) != new.pointer(place).filter(|value| !value.is_null())
    };
    let changed: Vec<&Field> = fields(view).iter().filter(is_other).collect();
    let (place, kind, _) = *changed.first()?;
    let (before, after) = (text(old, place), text(new, place));
    if view == View::Services && *place == "/alive" {
        let is_alive = new.pointer(place) == Some(&Value::Bool(true));
        let (kind, what) = if is_alive { ("birth", "was born again") } else { ("death", "died") };
        return Some((kind, before, after, what.to_owned()));
    }
    let parts: Vec<String> = changed
        .iter()
        .map(|(place, _, name)| format!("{name}: {} → {}", shown(text(old, place)), shown(text(new, place))))
        .collect();
    // The reason belongs to a health that came now.
    let why = if changed.iter().any(|(place, ..)| *place == "/health") { reason(new) } else { String::new() };
    Some((kind, before, after, format!("{}{why}", parts.join("; "))))
}

/// What a row is about.
fn subject(view: View, key: &str, row: &Value) -> String {
    let name = text(row, "/name").unwrap_or_else(|| part(key));
    match view {
        View::Clusters => format!("cluster {name}"),
        View::Hosts => format!("host {name}"),
        View::Deployments => format!("deployment {name}"),
        View::Alerts => {
            let node = text(row, "/node").map_or_else(String::new, |node| format!(" of {node}"));
            format!("alert {}{node}", text(row, "/alert").unwrap_or_default())
        }
        View::Services => format!("service {}", part(key)),
        View::Rollout => format!("rollout of {}", part(key)),
        View::Fleet => "fleet".to_owned(),
    }
}

/// Why a row is not good, as the end of a sentence.
fn reason(row: &Value) -> String {
    because(text(row, "/reasons/0"))
}

fn because(why: Option<String>) -> String {
    why.map_or_else(String::new, |why| format!(" ({why})"))
}

fn shown(value: Option<String>) -> String {
    value.unwrap_or_else(|| "none".to_owned())
}

/// A field as text; None: it has no value.
fn text(row: &Value, place: &str) -> Option<String> {
    match row.pointer(place)? {
        Value::Null => None,
        Value::String(text) => Some(part(text)),
        other => Some(part(&other.to_string())),
    }
}

fn part(text: &str) -> String {
    match text.char_indices().nth(PART_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, CLUSTER, NAME, reported};
    use crate::deltas::Table;
    use crate::history::transitions;
    use crate::tables::{self, Rows};
    use edge_sync_contract::{DeploymentState, SyncNode};
    use serde_json::json;
    use uuid::Uuid;

    const OVEN: Uuid = Uuid::from_u128(0x0E);

    fn events(view: View, old: &Table, new: &Table) -> Vec<String> {
        let of = |event: Event| format!("{}|{}|{}", event.cluster.unwrap_or_default(), event.kind, event.text);
        transitions(view, old, new).into_iter().filter_map(|transition| transition.event.map(of)).collect()
    }

    #[test]
    fn a_cluster_that_comes_and_dies_is_described_in_sentences() {
        let bench = Bench::with_cluster();
        let alive = Rows::of(&bench.fleet).clusters();
        assert_eq!(events(View::Clusters, &Table::new(), &alive), ["Paint_Shop|added|added, ready"]);
        let mut bench = bench;
        bench.cluster(CLUSTER, NAME, |device| device.sync_since = Some(7));
        bench.dies(NAME, "Sync");
        let away = Rows::of(&bench.fleet).clusters();
        let why = "edge sync is not alive: the values are the last that were reported";
        let text = format!("Paint_Shop|edge|edge: alive → away; health: good → away ({why})");
        assert_eq!(events(View::Clusters, &alive, &away), [text]);
        assert_eq!(events(View::Clusters, &alive, &Table::new()), ["Paint_Shop|removed|removed"]);
        let alerts = Rows::of(&bench.fleet).alerts();
        let raised = events(View::Alerts, &Table::new(), &alerts);
        assert!(
            raised[0].starts_with("Paint_Shop|alert raised|alert Offline of Sync raised (edge sync is"),
            "{raised:?}"
        );
        assert_eq!(
            events(View::Alerts, &alerts, &Table::new()),
            ["Paint_Shop|alert cleared|alert Offline of Sync cleared"]
        );
    }

    #[test]
    fn a_deployment_and_a_host_are_described_by_name() {
        let mut bench = Bench::with_cluster();
        bench.deployment(OVEN, "Oven", None);
        let sent = Rows::of(&bench.fleet).deployments();
        let applied = reported("Oven", DeploymentState::Applied, Some(true));
        bench.sync(NAME, &SyncNode::default(), &[(OVEN, applied)]);
        let ready = Rows::of(&bench.fleet).deployments();
        let text = "Paint_Shop|state|deployment Oven state: sending → applied; health: working → good";
        assert_eq!(events(View::Deployments, &sent, &ready), [text]);
        let hosts = tables::hosts(&bench.fleet);
        assert_eq!(
            events(View::Hosts, &Table::new(), &hosts),
            ["Paint_Shop|added|host paint-1 added, Kubernetes Node"]
        );
    }

    /// What changes all the time must not drown what happened.
    #[test]
    fn fields_that_say_nothing_of_how_a_thing_stands_make_no_event() {
        let table = |row: Value| Table::from([("k".to_owned(), row)]);
        let row = |since: u64, steps: u64, reason: &str| {
            json!({ "name": "a", "cluster": "c", "member": "waiting", "health": "attention", "since": since,
                "reasons": [reason], "steps": [{ "since": steps }] })
        };
        for view in View::ALL {
            let (old, new) = (table(row(1, 1, "10 s ago")), table(row(2, 3, "11 s ago")));
            let found = transitions(view, &old, &new);
            assert_eq!(found.len(), 1, "{view}: the state at a time needs it");
            assert!(found[0].event.is_none(), "{view}: {:?}", found[0].event);
        }
        let missing = json!({ "name": "a", "held": null });
        assert_eq!(events(View::Clusters, &table(missing), &table(json!({ "name": "a" }))), [""; 0]);
    }

    #[test]
    fn a_row_that_names_who_decided_names_them_for_its_event() {
        let table = |row: Value| Table::from([("k".to_owned(), row)]);
        let who = |view: View, old: Value, new: Value| {
            let found = transitions(view, &table(old), &table(new));
            found[0].event.clone().unwrap().who
        };
        let alert = |by: Value| json!({ "alert": "Offline", "cluster": "c", "reason": "r", "acknowledged": by });
        let acknowledged = alert(json!({ "by": "console/token:ada" }));
        assert_eq!(who(View::Alerts, alert(Value::Null), acknowledged.clone()).as_deref(), Some("console/token:ada"));
        assert_eq!(who(View::Alerts, acknowledged, alert(Value::Null)), None, "who withdrew it is not in the row");
        let held = json!({ "hold": { "by": "ben" } });
        assert_eq!(who(View::Rollout, json!({ "hold": null }), held).as_deref(), Some("ben"));
        assert_eq!(who(View::Deployments, json!({ "state": "sending" }), json!({ "state": "applied" })), None);
    }

    #[test]
    fn births_and_deaths_of_services_have_kinds_of_their_own() {
        let table = |alive: bool| Table::from([("G/N".to_owned(), json!({ "alive": alive, "version": "1.2" }))]);
        assert_eq!(events(View::Services, &Table::new(), &table(true)), ["|birth|service G/N was born (1.2)"]);
        assert_eq!(events(View::Services, &table(true), &table(false)), ["|death|service G/N died"]);
        assert_eq!(events(View::Services, &table(false), &table(true)), ["|birth|service G/N was born again"]);
    }

    #[test]
    fn what_a_node_says_cannot_make_a_sentence_long() {
        let long = "ä".repeat(100_000);
        let row = json!({ "name": long, "cluster": long, "state": "failed", "health": "attention", "reasons": [long] });
        let event = Event::of(View::Deployments, "k", Some(&json!({ "state": "applied" })), Some(&row)).unwrap();
        assert!(event.text.chars().count() < 4 * PART_MAX && event.cluster.unwrap().chars().count() <= PART_MAX + 1);
    }
}
