//! What a user sees whose credential is for some clusters: rows of these clusters, counts of these rows, and sentences that name no other cluster. Pure.
//!
//! What is of no cluster, such as the central services and foreign nodes, they do not see; of the console's own row they see all but which births are missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use access::Principal;
use fleet_view::deltas::Table;
use fleet_view::history::Event;
use fleet_view::tables;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::event_marks::EventMarks;
use crate::published::TableName;
use crate::record::StoredEvent;

/// In place of the name of a cluster that is not for this user.
const ANOTHER: &str = "another cluster";

/// Fields with sentences that may name other clusters, at any depth.
const SENTENCES: [&str; 9] =
    ["note", "reasons", "reason", "setup_reason", "detail", "blocked", "text", "message", "held"];

/// For which clusters a user's credential is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    organisation: String,
    user: String,
    clusters: BTreeSet<Uuid>,
    marks: EventMarks,
}

impl Sight {
    /// Of a user; None: of all clusters.
    #[must_use]
    pub fn of(principal: &Principal, organisation: &str, marks: EventMarks) -> Option<Self> {
        let mut clusters = BTreeSet::new();
        for grant in &principal.grants {
            clusters.extend(grant.clusters.as_ref()?);
        }
        Some(Self { organisation: organisation.to_owned(), user: principal.name.clone(), clusters, marks })
    }

    /// They may look at that cluster.
    #[must_use]
    pub fn sees(&self, cluster: Uuid) -> bool {
        self.clusters.contains(&cluster)
    }

    /// The tables that a table is made of for this user, beside itself.
    #[must_use]
    pub const fn needs(table: &TableName) -> &'static [TableName] {
        match table {
            TableName::Fleet => {
                &[TableName::Clusters, TableName::Hosts, TableName::Deployments, TableName::Alerts, TableName::Rollout]
            }
            TableName::Objects | TableName::Entries(_) | TableName::Manifests(_) | TableName::History(_) => {
                &[TableName::Clusters, TableName::Deployments]
            }
            TableName::Clusters => &[],
            _ => &[TableName::Clusters],
        }
    }

    /// A table as this user sees it. `known`: the table and those that it [needs](Self::needs), as they are for who sees all.
    #[must_use]
    pub fn table(&self, name: &TableName, known: &BTreeMap<TableName, Arc<Table>>) -> Table {
        let empty = Table::new();
        let of = |name: &TableName| known.get(name).map_or(&empty, |table| &**table);
        let seen = self.names(of(&TableName::Clusters));
        let shown = |name: &TableName| -> Table {
            let row = |(key, row): (&String, &Value)| Some((key.clone(), seen.row(name, key, row)?));
            of(name).iter().filter_map(row).collect()
        };
        match name {
            TableName::Fleet => tables::counters(
                &shown(&TableName::Clusters),
                &shown(&TableName::Hosts),
                &shown(&TableName::Deployments),
                &shown(&TableName::Alerts),
                &shown(&TableName::Rollout),
            ),
            TableName::Objects | TableName::Entries(_) | TableName::Manifests(_) | TableName::History(_) => {
                let deployments = shown(&TableName::Deployments);
                let is_seen = |object: &str| {
                    let is_cluster = Uuid::try_parse(object).is_ok_and(|uuid| self.sees(uuid));
                    is_cluster || deployments.contains_key(object)
                };
                match name {
                    TableName::Entries(object) | TableName::Manifests(object) | TableName::History(object)
                        if is_seen(&object.to_string()) =>
                    {
                        of(name).clone()
                    }
                    TableName::Objects => of(name)
                        .iter()
                        .filter(|(key, _)| is_seen(key))
                        .map(|(key, row)| (key.clone(), row.clone()))
                        .collect(),
                    _ => Table::new(),
                }
            }
            TableName::Events => shown(name).into_iter().map(|(key, row)| self.marked(&key, row)).collect(),
            _ => shown(name),
        }
    }

    /// An event by its mark.
    fn marked(&self, key: &str, mut row: Value) -> (String, Value) {
        let mark = key.parse().map_or_else(|_| key.to_owned(), |number| self.marks.mark(number));
        if let Some(fields) = row.as_object_mut() {
            fields.insert("key".to_owned(), Value::from(mark.clone()));
        }
        (mark, row)
    }

    /// What stands for the number of an event.
    #[must_use]
    pub const fn marks(&self) -> &EventMarks {
        &self.marks
    }

    /// Which names are those of this user's clusters, by table `clusters`.
    #[must_use]
    pub fn names(&self, clusters: &Table) -> Seen<'_> {
        let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
        for (key, row) in clusters {
            let Some(name) = row.get("name").and_then(Value::as_str) else { continue };
            let is_own = Uuid::try_parse(key).is_ok_and(|uuid| self.sees(uuid));
            // One that was refused has the name of another one, of which all else is.
            let is_refused = row.get("setup").and_then(Value::as_str) == Some("refused");
            if is_own && !is_refused {
                own.insert(name.to_owned());
            } else if !is_own {
                others.insert(name.to_owned());
            }
        }
        others.retain(|name| !own.contains(name));
        Seen { sight: self, own, others }
    }
}

/// Names of clusters as a user sees them.
#[derive(Debug)]
pub struct Seen<'a> {
    sight: &'a Sight,
    own: BTreeSet<String>,
    others: BTreeSet<String>,
}

impl Seen<'_> {
    /// Names of the clusters that the user sees.
    #[must_use]
    pub const fn own(&self) -> &BTreeSet<String> {
        &self.own
    }

    /// A row as the user sees it; None: they do not.
    #[must_use]
    pub fn row(&self, table: &TableName, key: &str, row: &Value) -> Option<Value> {
        let text = |field: &str| row.get(field).and_then(Value::as_str);
        let is_own = |name: Option<&str>| name.is_some_and(|name| self.own.contains(name));
        let mut shown = match table {
            TableName::Clusters | TableName::Policies => {
                Uuid::try_parse(key).is_ok_and(|uuid| self.sight.sees(uuid)).then(|| row.clone())?
            }
            TableName::Hosts | TableName::Deployments | TableName::Alerts | TableName::Events | TableName::Secrets => {
                is_own(text("cluster")).then(|| row.clone())?
            }
            TableName::Services | TableName::Nodes => is_own(self.cluster_of_node(key)).then(|| row.clone())?,
            TableName::Metrics(node) | TableName::Messages(node) => {
                is_own(self.cluster_of_node(&node.to_string())).then(|| row.clone())?
            }
            TableName::Rollout => self.rollout(row)?,
            TableName::Actions => {
                let cluster = text("cluster").and_then(|cluster| Uuid::try_parse(cluster).ok());
                let is_own = cluster.is_some_and(|cluster| self.sight.sees(cluster));
                (is_own || text("who") == Some(&self.sight.user)).then(|| row.clone())?
            }
            TableName::Console => return Some(without_missing(row)),
            // They are of no cluster, or made of other tables.
            TableName::Applications | TableName::Fleet | TableName::Objects => return None,
            TableName::Entries(_) | TableName::Manifests(_) | TableName::History(_) => return None,
        };
        self.redact(&mut shown, false);
        Some(shown)
    }

    /// An event as the user sees it; None: they do not.
    #[must_use]
    pub fn event(&self, stored: StoredEvent) -> Option<StoredEvent> {
        let event =
            Some(stored.event).filter(|event| event.cluster.as_ref().is_some_and(|name| self.own.contains(name)))?;
        let text = |text: String| self.without_others(&text);
        let event = Event { old: event.old.map(text), new: event.new.map(text), text: text(event.text), ..event };
        Some(StoredEvent { event, ..stored })
    }

    fn cluster_of_node<'k>(&self, key: &'k str) -> Option<&'k str> {
        // `ACME-Paint_Shop`, and `ACME-Paint_Shop-Join` of those that are not members yet: no name holds a hyphen.
        let group = key.split('/').next()?.strip_prefix(&*self.sight.organisation)?.strip_prefix('-')?;
        group.split('-').next()
    }

    fn rollout(&self, row: &Value) -> Option<Value> {
        let mut shown = row.clone();
        let waves = shown.get_mut("waves")?.as_array_mut()?;
        for wave in &mut *waves {
            let clusters = wave.get_mut("clusters")?.as_array_mut()?;
            clusters.retain(|cluster| {
                cluster.get("name").and_then(Value::as_str).is_some_and(|name| self.own.contains(name))
            });
        }
        waves
            .retain(|wave| wave.get("clusters").and_then(Value::as_array).is_some_and(|clusters| !clusters.is_empty()));
        let waits = |wave: &Value| {
            let clusters = wave.get("clusters").and_then(Value::as_array);
            clusters.is_some_and(|clusters| clusters.iter().any(|cluster| cluster["state"] == "waits"))
        };
        let (is_seen, is_blocked) = (!waves.is_empty(), waves.iter().any(waits));
        if !is_blocked && let Some(blocked) = shown.get_mut("blocked") {
            *blocked = Value::Null;
        }
        is_seen.then_some(shown)
    }

    /// Takes the names of other clusters out of sentences.
    fn redact(&self, value: &mut Value, is_sentence: bool) {
        match value {
            Value::String(text) if is_sentence => *text = self.without_others(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.redact(value, is_sentence)),
            Value::Object(fields) => fields
                .iter_mut()
                .for_each(|(name, value)| self.redact(value, is_sentence || SENTENCES.contains(&name.as_str()))),
            _ => {}
        }
    }

    fn without_others(&self, text: &str) -> String {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_name) {
            let end = rest[start..].find(|c| !is_name(c)).map_or(rest.len(), |length| start + length);
            shown.push_str(&rest[..start]);
            let word = &rest[start..end];
            shown.push_str(if self.others.contains(word) { ANOTHER } else { word });
            rest = &rest[end..];
        }
        shown + rest
    }
}

/// The console's own row without the names of what it waits for.
fn without_missing(row: &Value) -> Value {
    let mut shown = row.clone();
    let is_missing = row.get("missing").and_then(Value::as_array).is_some_and(|missing| !missing.is_empty());
    if is_missing && let Some(fields) = shown.as_object_mut() {
        let sentence = json!(["births of the fleet are on their way"]);
        fields.insert("missing".to_owned(), sentence.clone());
        if row.get("online") == Some(&Value::Bool(true)) {
            fields.insert("reasons".to_owned(), sentence);
        }
    }
    shown
}

#[cfg(test)]
mod tests;
