//! ConfigDB as tables: its objects, the applications under which they have entries, and the entries of one object. Nothing of an entry is cut, because people edit it.

use std::collections::{BTreeMap, VecDeque};

use configdb_contract::HistoryEntry;
use configdb_schema::Document as _;
use configdb_schema::application::{self, CONFIG_SCHEMA, MEMBERSHIP_SLUG, REGISTRATION_SLUG};
use configdb_schema::document::Info;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::Fleet;
use crate::deltas::Table;
use crate::tables::add;

/// Table `objects`, by UUID.
#[must_use]
pub fn objects(fleet: &Fleet) -> Table {
    let infos = fleet.config.entries(Info::slug());
    let names: BTreeMap<Uuid, String> =
        infos.filter_map(|(uuid, entry)| Some((uuid, entry.parse::<Info>().ok()?.name))).collect();
    let mut table = Table::new();
    for (uuid, object) in fleet.config.objects() {
        let registration = object.registration.as_ref();
        let class = registration.map(|registration| registration.class);
        let json = json!({
            "name": names.get(&uuid), "class": class, "class_name": class.and_then(|class| names.get(&class)),
            "rank": registration.map(|registration| registration.rank),
            "deleted": registration.is_some_and(|registration| registration.deleted),
            "entries": object.entries().map(|(slug, _)| slug).collect::<Vec<_>>(),
            "classes": object.membership.member_of,
            "versions": object.entries().map(|(slug, entry)| (slug.to_owned(), version(entry))).collect::<Map<_, _>>(),
        });
        add(&mut table, uuid.to_string(), None, json);
    }
    table
}

fn version(entry: &configdb_contract::Entry) -> Value {
    json!({ "etag": entry.etag, "revision": entry.revision })
}

/// Table `applications`, by slug: each with the JSON Schema of its entries, null where there is none that can be read.
#[must_use]
pub fn applications(fleet: &Fleet) -> Table {
    let row = |(slug, uuid): (&str, Uuid)| {
        let own = fleet.config.entry(uuid, CONFIG_SCHEMA.slug).map(|entry| entry.json.to_string());
        let schema = own.or_else(|| application::by_uuid(uuid).map(|known| known.schema.to_owned()));
        let schema: Option<Value> = schema.and_then(|schema| serde_json::from_str(&schema).ok());
        let row = json!({ "key": slug, "uuid": uuid, "name": fleet.name_of(uuid), "schema": schema });
        (slug.to_owned(), row)
    };
    fleet.config.applications().map(row).collect()
}

/// Table `entries:UUID`: the entries of one object by the slugs of their applications, each as the text that was written. `Registration` and `Membership` are computed and not written:
/// they have no ETag.
#[must_use]
pub fn entries(fleet: &Fleet, object: Uuid) -> Table {
    let Some(found) = fleet.config.object(object) else { return Table::new() };
    let computed = |slug: &str, text: String| {
        (slug.to_owned(), json!({ "key": slug, "json": text, "etag": null, "revision": null }))
    };
    let registration = found.registration.as_ref().map(|known| json!(known).to_string());
    let registration = registration.map(|text| computed(REGISTRATION_SLUG, text));
    let membership = computed(MEMBERSHIP_SLUG, json!(found.membership).to_string());
    let entry = |(slug, entry): (&str, &configdb_contract::Entry)| {
        let row = json!({ "key": slug, "json": &*entry.json, "etag": entry.etag, "revision": entry.revision });
        (slug.to_owned(), row)
    };
    registration.into_iter().chain([membership]).chain(found.entries().map(entry)).collect()
}

/// Bytes of JSON that are kept of the past.
const PAST_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Changes of the past that ConfigDB has replayed, of the objects that were asked for last. What others ask for is left out.
#[derive(Debug, Default)]
pub struct Past {
    /// The object that was asked for last is the last one.
    order: VecDeque<Uuid>,
    /// By object, application and revision.
    changes: BTreeMap<Uuid, BTreeMap<(String, u64), HistoryEntry>>,
    bytes: usize,
}

impl Past {
    /// Replays of this object are kept from now on. What is forgotten for that is that of the objects that were asked for before all others.
    pub fn ask(&mut self, object: Uuid) {
        self.order.retain(|known| *known != object);
        self.order.push_back(object);
        self.changes.entry(object).or_default();
    }

    /// Takes a change; false: the object was not asked for, or the change is known.
    pub fn take(&mut self, change: &HistoryEntry) -> bool {
        let Some(of_object) = self.changes.get_mut(&change.object) else { return false };
        let key = (change.slug.to_string(), change.revision);
        if of_object.contains_key(&key) {
            return false;
        }
        self.bytes += size(change);
        of_object.insert(key, change.clone());
        while self.bytes > PAST_BYTES_MAX && self.order.len() > 1 {
            self.forget_first();
        }
        // Of one object alone the oldest changes go.
        while self.bytes > PAST_BYTES_MAX
            && let Some(oldest) = self.changes.get_mut(&change.object).and_then(oldest)
        {
            self.bytes -= size(&oldest);
        }
        true
    }

    fn forget_first(&mut self) {
        let Some(first) = self.order.pop_front() else { return };
        let forgotten = self.changes.remove(&first).unwrap_or_default();
        self.bytes -= forgotten.values().map(size).sum::<usize>();
    }

    /// Nothing is known any more: another store answers.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Table `history:UUID`: changes of one object's entries, as far as a replay was asked for, by `APPLICATION/REVISION`.
    #[must_use]
    pub fn rows(&self, object: Uuid) -> Table {
        let row = |((slug, revision), change): (&(String, u64), &HistoryEntry)| {
            let key = format!("{slug}/{revision:020}");
            let row = json!({ "key": key, "application": slug, "revision": revision, "at": change.time,
                "writer": &*change.writer, "request": &*change.request, "etag": change.etag, "json": change.json.as_deref() });
            (key, row)
        };
        self.changes.get(&object).into_iter().flatten().map(row).collect()
    }
}

/// Takes the change of the lowest revision out, unless it is the only one.
fn oldest(changes: &mut BTreeMap<(String, u64), HistoryEntry>) -> Option<HistoryEntry> {
    let key = changes.keys().min_by_key(|(_, revision)| *revision).cloned().filter(|_| changes.len() > 1)?;
    changes.remove(&key)
}

fn size(change: &HistoryEntry) -> usize {
    change.slug.len() + change.json.as_ref().map_or(0, |json| json.len()) + change.writer.len() + change.request.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, CLUSTER, NAME};
    use configdb_schema::document::{AlertAcknowledgement, AlertAcknowledgements};

    fn change(object: u128, revision: u64, bytes: usize) -> HistoryEntry {
        HistoryEntry {
            object: Uuid::from_u128(object),
            slug: "Info".into(),
            json: Some("x".repeat(bytes).into()),
            etag: None,
            revision,
            time: 5,
            writer: "ada".into(),
            request: "r".into(),
        }
    }

    #[test]
    fn the_past_of_an_object_is_kept_once_it_was_asked_for_and_never_without_bound() {
        let mut past = Past::default();
        assert!(!past.take(&change(1, 1, 1)), "another client has asked for that");
        past.ask(Uuid::from_u128(1));
        assert!(past.take(&change(1, 2, 10)) && !past.take(&change(1, 2, 10)), "a repetition");
        let rows = past.rows(Uuid::from_u128(1));
        let row = &rows["Info/00000000000000000002"];
        assert_eq!((&row["writer"], &row["at"], &row["revision"]), (&json!("ada"), &json!(5), &json!(2)));
        past.ask(Uuid::from_u128(2));
        for revision in 1..=20 {
            past.take(&change(2, revision, PAST_BYTES_MAX / 8));
        }
        assert!(past.rows(Uuid::from_u128(1)).is_empty() && past.bytes <= PAST_BYTES_MAX);
        let kept = past.rows(Uuid::from_u128(2));
        assert!(kept.len() >= 6 && kept.values().all(|row| row["revision"].as_u64() > Some(12)), "{}", kept.len());
    }

    #[test]
    fn an_object_has_its_name_and_its_entries_as_they_were_written_however_long() {
        let mut bench = Bench::new();
        bench.cluster(CLUSTER, NAME, |_| {});
        bench.entry(CLUSTER, &Info { name: NAME.to_owned(), ..Info::default() });
        let known = |n: usize| AlertAcknowledgement {
            by: "x".repeat(200),
            at: "2027-01-15T08:00:00Z".to_owned(),
            note: None,
            since: Some(n as u64),
            until: None,
            reason: None,
        };
        let long = AlertAcknowledgements { alerts: (0..100).map(|n| (n.to_string(), known(n))).collect() };
        bench.entry(CLUSTER, &long);
        let objects = objects(&bench.fleet);
        let row = &objects[&CLUSTER.to_string()];
        assert_eq!((&row["name"], &row["deleted"]), (&json!(NAME), &json!(false)));
        assert_eq!(row["entries"], json!(["AlertAcknowledgements", "EdgeCluster", "Info"]));
        let entries = entries(&bench.fleet, CLUSTER);
        let entry = &entries["AlertAcknowledgements"];
        assert_eq!(serde_json::from_str::<AlertAcknowledgements>(entry["json"].as_str().unwrap()).unwrap(), long);
        let etag = bench.fleet.config.entry(CLUSTER, "AlertAcknowledgements").unwrap().etag;
        assert_eq!((&entry["etag"], &entries["Registration"]["etag"]), (&json!(etag), &Value::Null));
        assert!(super::entries(&bench.fleet, Uuid::nil()).is_empty());
    }

    #[test]
    fn an_application_has_the_schema_that_the_site_wrote_or_the_one_of_the_program() {
        let mut bench = Bench::new();
        bench.cluster(CLUSTER, NAME, |_| {});
        let known = applications(&bench.fleet);
        assert_eq!(known["EdgeCluster"]["schema"]["title"], "Edge cluster configuration");
        bench.schema(application::EDGE_CLUSTER.uuid, &json!({ "title": "Ours" }));
        assert_eq!(applications(&bench.fleet)["EdgeCluster"]["schema"]["title"], "Ours");
    }
}
