//! What people ask of ConfigDB.

use std::time::Duration;

use configdb_contract::WriteRequest;
use configdb_schema::address;
use configdb_schema::known::class;
use serde_json::json;
use uuid::Uuid;

use crate::model::happening::Happening;
use crate::model::program::Input;
use crate::model::role::Role;
use crate::model::script::OperatorWrite;
use crate::world::{World, trace};

impl World {
    pub(crate) fn request_id(&mut self) -> String {
        self.script.requests += 1;
        format!("op-{}", self.script.requests)
    }

    pub(crate) fn ask(&mut self, request: WriteRequest) {
        let Some(id) = self.process_of(&Role::Operator) else { return };
        let life = self.processes[&id].life;
        trace!(self, "operator asks {request:?}");
        self.after(Duration::ZERO, Happening::Input(id, life, Box::new(Input::Person(OperatorWrite(request)))));
    }

    /// Writes a key of a Secret, or deletes one; the next is always later.
    pub(crate) fn put_secret(&mut self) {
        let clusters: Vec<Uuid> = self.script.clusters.iter().map(|cluster| cluster.uuid).collect();
        let Some(cluster) = self.random.pick(&clusters).copied() else { return };
        let name = self.random.pick(&["login", "certificate"]).copied().unwrap_or("login");
        let key = self.random.pick(&["a", "b"]).copied().unwrap_or("a");
        let id = self.request_id();
        let n = self.script.requests;
        let at = format!("2030-01-01T00:{:02}:{:02}.{:03}Z", n / 60_000, n / 1_000 % 60, n % 1_000);
        let value = (!self.random.chance(300)).then(|| format!("{n:08}"));
        let entry = json!({ "cluster": cluster, "namespace": "fplus-edge", "name": name,
            "keys": { key: { "value": value, "at": at } } });
        let object = address::v5(&["SealedSecret", &cluster.to_string(), name]);
        let request = WriteRequest::patch(id, object).create_object(class::SEALED_SECRET, None).by("people");
        self.ask(request.entry("SealedSecret", entry));
    }

    /// Writes a cluster; yields the id of the request.
    pub(crate) fn put_cluster(&mut self, uuid: Uuid, name: &str) -> String {
        let request = WriteRequest::put(self.request_id(), uuid).create_object(class::EDGE_CLUSTER, None).by("people");
        let id = request.id.clone();
        self.ask(request.entry("EdgeCluster", json!({"name": name, "namespace": crate::model::kubernetes::NAMESPACE})));
        id
    }
}
