//! What people ask of ConfigDB.

use std::time::Duration;

use configdb_contract::WriteRequest;
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

    /// Writes a cluster; yields the id of the request.
    pub(crate) fn put_cluster(&mut self, uuid: Uuid, name: &str) -> String {
        let request = WriteRequest::put(self.request_id(), uuid).create_object(class::EDGE_CLUSTER, None).by("people");
        let id = request.id.clone();
        self.ask(request.entry("EdgeCluster", json!({"name": name, "namespace": crate::model::kubernetes::NAMESPACE})));
        id
    }
}
