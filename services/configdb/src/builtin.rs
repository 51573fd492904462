//! What comes with the program: well-known objects, schemas, default templates. It is written into a store once; what the site changes or deletes afterwards stays as the
//! site wants it. An entry that no one has touched follows the program when that is updated.

use configdb_contract::WriteRequest;
use configdb_schema::application::INFO;
use configdb_schema::{defaults, known::KnownObject};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::model::Model;

/// Name under which this content is written.
pub(crate) const WRITER: &str = "configdb";

/// The requests that bring what is missing, in order.
pub(crate) fn requests(model: &Model) -> Vec<WriteRequest> {
    let mut requests = Vec::new();
    for object in defaults::objects().filter(|object| model.object(object.uuid).is_none()) {
        requests.push(registration(object));
    }
    for entry in defaults::entries() {
        let is_new = model.object(entry.object).is_none();
        let Ok(value) = serde_json::from_str::<Value>(entry.json) else { continue };
        if is_new || is_untouched(model, entry.object, entry.application.uuid, &value) {
            requests.push(request(entry.object).entry(entry.application.slug, value));
        }
    }
    for object in defaults::objects().filter(|object| model.object(object.uuid).is_none()) {
        requests.push(request(object.uuid).entry(INFO.slug, json!({ "name": object.name })));
    }
    requests
}

fn registration(object: &KnownObject) -> WriteRequest {
    let request = request(object.uuid).create_object(object.class, None);
    match object.subclass_of {
        [] => request,
        superclasses => request.subclass_of(superclasses.iter().copied()),
    }
}

fn request(object: Uuid) -> WriteRequest {
    WriteRequest::put(concat!("builtin/", env!("CARGO_PKG_VERSION")), object)
}

/// The stored entry came with an earlier version of the program, says something else, and no one has changed it.
fn is_untouched(model: &Model, object: Uuid, application: Uuid, value: &Value) -> bool {
    let stored = model.live_object(object).and_then(|o| o.entries.get(&application));
    stored
        .is_some_and(|entry| entry.builtin && serde_json::from_str::<Value>(&entry.json).is_ok_and(|old| old != *value))
}
