//! Stores that come back older, or are others; and the operator who decides what clusters follow that hold what they are sent.

use std::collections::BTreeSet;
use std::time::Duration;

use configdb_contract::WriteRequest;
use configdb_schema::known::class;
use serde_json::json;
use sparkplug::replication::Point;
use uuid::Uuid;

use crate::fleet::operator::Operator;
use crate::model::happening::Happening;
use crate::model::ids::ClusterId;
use crate::model::role::Role;
use crate::model::script::Fate;
use crate::model::transition::{Recovery, Transition};
use crate::model::truth::Truth;
use crate::world::{World, trace};

impl World {
    /// Something becomes of the store, or is decided.
    pub(crate) fn on_recovery(&mut self, recovery: Recovery) {
        let Some(configdb) = self.process_of(&Role::ConfigDb) else { return };
        let disk = self.processes[&configdb].disk.clone();
        match recovery {
            Recovery::Restore => {
                let lost = self.random.index(disk.commits() + 1);
                self.replace_store(|disk| disk.restore(lost));
            }
            Recovery::RollBack => {
                let lost = 1 + self.random.index(3);
                self.replace_store(|disk| disk.restore(lost));
            }
            Recovery::Replace => {
                let store = crate::fleet::config_db::fresh_store().copy(Uuid::from_u128(self.random.wide()));
                self.replace_store(|disk| disk.replace_store(store));
            }
            Recovery::Review => self.strays().into_iter().for_each(|site| self.decide(site)),
            Recovery::Decide(site) => self.decide(site),
            Recovery::Release { site, store, after, adopts, kept, seen, accepted } => {
                let is_answered = |fate: &Fate| *fate != Fate::Open;
                let fates = self.fates();
                let fates: Vec<Option<Fate>> = after.iter().map(|id| fates.get(id).cloned()).collect();
                if fates.iter().any(|fate| !fate.as_ref().is_some_and(is_answered)) {
                    let again = Recovery::Release { site, store, after, adopts, kept, seen, accepted };
                    return self.after(Duration::from_secs(1), Happening::Transition(Transition::Recovery(again)));
                }
                // What was written back is seen before the decision, which counts for the state that has it. A store that was restored meanwhile may have it on another cluster.
                let now = disk.store().map(|store| Truth::of(&store.load_now()));
                let cluster = self.clusters.get(&site).map(|cluster| cluster.uuid);
                let is_here = |now: &Truth, deployment: &Uuid| {
                    now.deployments.get(deployment).is_some_and(|entry| Some(entry.cluster) == cluster)
                };
                let is_seen = |now: &Truth| kept.iter().all(|deployment| is_here(now, deployment));
                let is_written = after.is_empty() || !adopts || now.as_ref().is_some_and(is_seen);
                let seen = if after.is_empty() { seen } else { now.and_then(|now| now.point) };
                // What was refused or given up may be needed: the operator looks again.
                if fates.iter().any(|fate| *fate != Some(Fate::Applied)) || disk.identity() != store || !is_written {
                    return self.after(
                        Duration::from_secs(5),
                        Happening::Transition(Transition::Recovery(Recovery::Decide(site))),
                    );
                }
                self.release(site, adopts, accepted, seen);
            }
        }
    }

    /// Clusters whose edge accepted its last index from a state that the store does not contain.
    pub(crate) fn strays(&self) -> Vec<ClusterId> {
        let Some(configdb) = self.process_of(&Role::ConfigDb) else { return Vec::new() };
        let disk = &self.processes[&configdb].disk;
        let strays = self.clusters.iter().filter(|(_, cluster)| {
            let origin = cluster.accepted().and_then(|record| record.index.origin);
            origin.is_some_and(|origin| !disk.knows(origin.store, origin.point))
        });
        strays.map(|(site, _)| *site).collect()
    }

    pub(crate) fn replace_store(&mut self, replace: impl FnOnce(&crate::model::disk::Disk)) {
        let Some(id) = self.process_of(&Role::ConfigDb) else { return };
        self.stop(id, false);
        let disk = self.processes[&id].disk.clone();
        let Some(before) = disk.store().map(|store| store.load_now()) else { return };
        replace(&disk);
        let Some(kept) = disk.store().map(|store| store.load_now()) else { return };
        trace!(self, "   {} commits are left", disk.commits());
        let (had, has) = (Truth::of(&before), Truth::of(&kept));
        let back = has.clusters.iter().filter(|(uuid, _)| !had.clusters.contains_key(uuid));
        let names: BTreeSet<_> = back.map(|(_, cluster)| &cluster.name).collect();
        let contested = had.clusters.iter().filter(|(_, cluster)| names.contains(&cluster.name));
        self.checks.on_names_contested(contested.map(|(uuid, _)| *uuid));
        let clusters = had.clusters.into_keys().filter(|uuid| !has.clusters.contains_key(uuid));
        let lost = before.requests.into_iter().filter(|request| !kept.requests.contains(request));
        self.checks.on_store_replaced(lost.map(|request| request.result.id), clusters);
        let down = self.random.millis(200..20_000);
        self.after(down, Happening::Start(id));
        for site in self.strays() {
            // Some operators take their time; some decide only when everything else is mended.
            if self.random.chance(600) {
                let later = self.random.millis(20_000..90_000);
                self.after(later, Happening::Transition(Transition::Recovery(Recovery::Decide(site))));
            }
        }
    }

    /// A second ConfigDB is gone with its store: what it alone was asked while the first one was away is lost with it.
    pub(crate) fn store_is_gone(&mut self, disk: &crate::model::disk::Disk) {
        let Some(store) = disk.store().map(|store| store.load_now()) else { return };
        let clusters = Truth::of(&store).clusters.into_keys();
        self.checks.on_second_store_gone(store.requests.into_iter().map(|request| request.result.id), clusters);
    }

    pub(crate) fn fates(&self) -> std::collections::BTreeMap<String, Fate> {
        let operator = self.process_of(&Role::Operator).and_then(|id| self.processes[&id].program.as_ref());
        let operator = operator.and_then(|program| program.as_any().downcast_ref::<Operator>());
        operator.map(|operator| operator.fates.clone()).unwrap_or_default()
    }

    /// An operator adopts what runs at a cluster's edge, or discards it: first what is missing is written.
    fn decide(&mut self, site: ClusterId) {
        if !self.strays().contains(&site) {
            return;
        }
        let adopts = self.random.chance(600);
        let Some(configdb) = self.process_of(&Role::ConfigDb) else { return };
        let disk = self.processes[&configdb].disk.clone();
        let (Some(store), Some(cluster)) = (disk.store(), self.clusters.get(&site)) else { return };
        let truth = Truth::of(&store.load_now());
        let (uuid, name) = (cluster.uuid, cluster.name.clone());
        // An operator who deleted a cluster that is back, because it waits for its edge, wants nothing of what runs there.
        let is_deleted = |known: &&mut crate::model::script::ScriptCluster| known.uuid == uuid && known.is_deleted;
        let deleted = self.script.clusters.iter_mut().find(is_deleted);
        // The command refuses to adopt what is torn down.
        let adopts = adopts && deleted.is_none() && !truth.torn_down.contains(&uuid);
        deleted.into_iter().for_each(|known| known.is_deleted = false);
        let index = cluster.accepted().map(|record| record.index);
        let accepted = index.as_ref().map(|index| index.digest().to_string());
        let listed: Vec<Uuid> = index.map(|index| index.deployments.into_keys().collect()).unwrap_or_default();
        let mut after = Vec::new();
        if !truth.clusters.contains_key(&uuid) {
            after.push(self.put_cluster(uuid, &name));
        }
        let mut kept = Vec::new();
        for deployment in listed {
            let is_here = truth.deployments.get(&deployment).is_some_and(|entry| entry.cluster == uuid);
            if is_here {
                kept.push(deployment);
                continue;
            }
            let Some(mut entry) = self.checks.entry(deployment) else { continue };
            // Of two deployments of one name both would run, so the operator keeps the one that the store has.
            let has_name =
                |other: &configdb_schema::document::EdgeDeployment| other.cluster == uuid && other.name == entry.name;
            let is_taken = !self.adopts_taken_names && truth.deployments.values().any(has_name);
            if !adopts || is_taken {
                self.checks.release(uuid, deployment);
                continue;
            }
            entry.cluster = uuid;
            kept.push(deployment);
            let request = WriteRequest::put(self.request_id(), deployment).create_object(class::EDGE_AGENT, None);
            after.push(request.id.clone());
            self.ask(request.by("people").entry("EdgeDeployment", json!(entry)));
        }
        let (store, seen) = (disk.identity(), truth.point);
        let release = Recovery::Release { site, store, after, adopts, kept, seen, accepted };
        self.after(Duration::from_secs(3), Happening::Transition(Transition::Recovery(release)));
    }

    pub(crate) fn release(&mut self, site: ClusterId, adopts: bool, accepted: Option<String>, seen: Option<Point>) {
        let Some(cluster) = self.clusters.get(&site) else { return };
        let uuid = cluster.uuid;
        let request = WriteRequest::put(self.request_id(), uuid).by("people");
        let Some(request) = self.decided(site, adopts, accepted, request) else { return };
        self.ask(WriteRequest { if_contains: seen, ..request });
    }

    /// The request, with the decision that a site follows the store.
    pub(crate) fn decided(
        &mut self,
        site: ClusterId,
        adopts: bool,
        accepted: Option<String>,
        request: WriteRequest,
    ) -> Option<WriteRequest> {
        let disk = self.processes[&self.process_of(&Role::ConfigDb)?].disk.clone();
        let (store, cluster) = (disk.store()?, self.clusters.get(&site)?);
        let truth = Truth::of(&store.load_now());
        let reported = cluster.accepted().and_then(|record| record.index.origin).map_or(0, |origin| origin.epoch);
        let epoch = reported.max(truth.epoch) + 1;
        let uuid = cluster.uuid;
        let decision = if adopts { "adopt" } else { "discard" };
        let mut entry = json!({"store": disk.identity(), "epoch": epoch, "decision": decision});
        if let Some(accepted) = accepted {
            entry["accepted"] = json!(accepted);
        }
        self.checks.on_decision(uuid, epoch);
        let request = request.entry("EdgeClusterRecovery", entry);
        Some(WriteRequest { if_contains: truth.point, ..request })
    }
}
