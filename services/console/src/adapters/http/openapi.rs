//! The API's description.

mod bodies;

use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Value, json};

use super::{answer_unless_known, reading};

/// `GET /api/v1/openapi.json`
pub(super) async fn get(headers: HeaderMap) -> Response {
    let description = description();
    let tag = reading::tag("openapi", &[&description]);
    answer_unless_known(&headers, tag, || description)
}

/// The whole document.
pub(super) fn description() -> Value {
    let row = json!({
        "type": "object",
        "required": ["key"],
        "properties": {
            "key": { "type": "string", "description": "unique in its table" },
            "health": { "enum": ["good", "working", "attention", "away"] },
            "reasons": { "type": "array", "items": { "type": "string" }, "description": "why it is not good, the worst first" },
            "since": { "type": ["integer", "null"], "description": "UTC ms" }
        }
    });
    let mut schemas = bodies::schemas();
    schemas.extend([("Row".to_owned(), row), ("Event".to_owned(), event())]);
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Sparkfleet console", "version": env!("CARGO_PKG_VERSION") },
        "paths": {
            "/api/v1/session": session(),
            "/api/v1/session/oidc": sign_in_there(),
            "/api/v1/session/oidc/callback": sign_in_here(),
            "/api/v1/actions/{name}": actions(),
            "/api/v1/actions/{name}/plan": plan(),
            "/api/v1/policies/{cluster}/simulation": simulation(),
            "/api/v1/stream": stream(),
            "/api/v1/events": events(),
            "/api/v1/export": export(),
            "/api/v1/audit": audit(),
            "/api/v1/openapi.json": tagged("This description", json!({ "type": "object" })),
            "/api/v1/{table}": table(),
            "/api/v1/{table}/{node}": table_of_node(),
        },
        "components": { "schemas": schemas }
    })
}

/// The path of a table.
fn table() -> Value {
    let name = json!([{ "name": "table", "in": "path", "required": true, "schema": { "type": "string" },
        "description": "console, fleet, clusters, hosts, deployments, alerts, services, rollout, events, nodes, actions, objects, applications, policies, secrets, metrics:GROUP/NODE, entries:UUID, manifests:UUID of a deployment, or history:UUID" },
        { "name": "at", "in": "query", "required": false, "schema": { "type": "integer" },
          "description": "the table as it was at this time, UTC ms; for fleet, clusters, hosts, deployments, alerts, services, rollout and events" }]);
    let mut table = tagged(
        "All rows of a table",
        json!({ "type": "object", "properties": {
            "rev": { "type": "integer" }, "at": { "type": ["integer", "null"] },
            "gaps": { "type": "array", "description": "with at: [from, to] of the gap that the time is in; to is null while it lasts" },
            "rows": { "type": "array", "items": { "$ref": "#/components/schemas/Row" } } } }),
    );
    table["parameters"] = name;
    table
}

/// The path of the metrics or the messages of one Edge Node, with the slash as it is.
fn table_of_node() -> Value {
    let part = |name: &str, description: &str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" }, "description": description });
    let mut table = tagged(
        "The metrics of one Edge Node (table metrics:GROUP/NODE), or its latest messages while a stream follows them (messages:GROUP/NODE)",
        json!({ "type": "object" }),
    );
    table["parameters"] = json!([part("table", "metrics:GROUP or messages:GROUP"), part("node", "NODE")]);
    table
}

/// The path of the stream.
fn stream() -> Value {
    json!({
        "parameters": [{ "name": "tables", "in": "query", "required": true, "schema": { "type": "string" },
            "description": "names joined by commas; % and , in a name are percent-encoded once more" }],
        "get": { "summary": "Server-sent events `table` with {rev, table, full, set, del}; Last-Event-ID resumes",
            "responses": { "200": { "description": "OK", "content": { "text/event-stream": {} } } } }
    })
}

/// The way to the identity provider.
fn sign_in_there() -> Value {
    json!({ "get": { "summary": "Sends a browser to the identity provider, where there is one",
        "responses": { "303": { "description": "to the provider, or to the page with sign-in=CODE" } } } })
}

/// The way back from it.
fn sign_in_here() -> Value {
    json!({ "get": { "summary": "Where the identity provider sends the browser: sets the cookie of the session",
        "responses": { "303": { "description": "to the page; with sign-in=CODE where it did not succeed" } } } })
}

fn read(summary: &str, schema: Value) -> Value {
    json!({ "get": { "summary": summary, "responses": { "200": {
        "description": "OK", "content": { "application/json": { "schema": schema } } } } } })
}

/// A read that has an ETag.
fn tagged(summary: &str, schema: Value) -> Value {
    let mut read = read(summary, schema);
    let etag = json!({ "ETag": { "schema": { "type": "string" }, "description": "for If-None-Match" } });
    read["get"]["responses"]["200"]["headers"] = etag;
    read["get"]["responses"]["304"] = json!({ "description": "it is as If-None-Match has it" });
    read
}

/// The path of the session.
fn session() -> Value {
    let mut session = read("Who looks, and what may be done", json!({ "type": "object" }));
    let token = json!({ "type": "object", "required": ["token"], "properties": { "token": { "type": "string" } } });
    session["post"] = json!({ "summary": "Signs in: sets the cookie of the session",
        "requestBody": { "required": true, "content": { "application/json": { "schema": token } } },
        "responses": { "200": { "description": "OK" }, "401": { "description": "the token is not taken" } } });
    session["delete"] = json!({ "summary": "Signs out", "responses": { "204": { "description": "OK" } } });
    session
}

/// The path of actions.
fn actions() -> Value {
    let names: Vec<&str> = crate::action::ACTIONS.iter().map(|(name, _)| *name).collect();
    let bodies: Vec<Value> =
        names.iter().map(|name| json!({ "$ref": format!("#/components/schemas/{name}") })).collect();
    let header = |name: &str, description: &str| json!({ "name": name, "in": "header", "required": true, "schema": { "type": "string" }, "description": description });
    json!({
        "parameters": [
            { "name": "name", "in": "path", "required": true, "schema": { "enum": names } },
            header("Idempotency-Key", "1 to 128 bytes; the same key and action are done once: the answer to a repeated one is {id} alone, without token and command, which are shown once"),
            header("X-Sparkfleet", "1"),
        ],
        "post": { "summary": "Does something; its end is in table actions",
            "requestBody": { "required": true, "description": "that of the action: the schema of its name",
                "content": { "application/json": { "schema": { "anyOf": bodies } } } },
            "responses": { "202": { "description": "under way, or begun before with this key: {id}; token.create: {id, token}, unless the key is repeated" }, "200": { "description": "cluster.bootstrap: {id, command, expires}" },
                "401": { "description": "the credential is missing or not accepted" }, "403": { "description": "they may not" },
                "409": { "description": "it cannot be done as things stand" }, "422": { "description": "the key was used for another action" },
                "429": { "description": "too often" } } }
    })
}

/// The path of what an action would do.
fn plan() -> Value {
    let action = actions();
    let parameters: Vec<&Value> =
        action["parameters"].as_array().into_iter().flatten().filter(|one| one["name"] != "Idempotency-Key").collect();
    let step = json!({ "type": "object", "required": ["change", "subject", "object", "name", "before", "after"], "properties": {
        "change": { "enum": ["create-object", "change-object", "write", "delete", "command", "ask-rebirth", "read-history"] },
        "subject": { "type": "string", "description": "what it is done to, for people" },
        "object": { "type": ["string", "null"], "format": "uuid", "description": "null: an Edge Node" },
        "name": { "type": ["string", "null"], "description": "slug of an application, or name of a metric; null: the whole object or node" },
        "before": { "description": "what is there at present; null: nothing is, or it is not known" },
        "after": { "description": "what is there afterwards; null: nothing is" } } });
    json!({
        "parameters": parameters,
        "post": { "summary": "What the action would do; nothing comes of it, and it is not recorded",
            "requestBody": action["post"]["requestBody"],
            "responses": { "200": { "description": "OK", "content": { "application/json": { "schema": {
                "type": "object", "required": ["steps"], "properties": { "steps": { "type": "array", "items": step } } } } } },
                "401": { "description": "the credential is missing or not accepted" }, "403": { "description": "they may not" },
                "409": { "description": "it cannot be done as things stand" } } }
    })
}

/// The path of a policy's simulation.
fn simulation() -> Value {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let host = json!({ "type": "object", "properties": {
        "host": { "type": "string" }, "state": { "type": "string" }, "ek": { "type": "string" },
        "outlook": { "enum": ["passes", "fails", "unknown"] },
        "differences": texts, "warnings": texts, "unknown": texts } });
    json!({
        "parameters": [{ "name": "cluster", "in": "path", "required": true, "schema": { "type": "string", "format": "uuid" } }],
        "post": { "summary": "What this attestation policy would say of the hosts that are known; nothing is written",
            "requestBody": { "required": true, "content": { "application/json": { "schema": { "type": "object" } } } },
            "responses": { "200": { "description": "OK", "content": { "application/json": { "schema": {
                "type": "object", "properties": { "hosts": { "type": "array", "items": host } } } } } },
                "400": { "description": "not an AttestationPolicy" } } }
    })
}

/// The path of the record of actions.
fn audit() -> Value {
    let text = json!({ "type": "string" });
    let record = json!({ "type": "object", "properties": {
        "at": { "type": "integer", "description": "UTC ms" }, "who": text, "from": text, "operation": text,
        "cluster": { "type": "string", "format": "uuid", "description": "absent: it concerns all" }, "target": text,
        "request": text, "result": { "enum": ["accepted", "done", "refused", "failed"] }, "reason": text } });
    let mut audit = tagged(
        "Who did what here, the newest first; for administrators of all clusters",
        json!({ "type": "object", "properties": { "rows": { "type": "array", "items": record } } }),
    );
    audit["parameters"] = json!([{ "name": "limit", "in": "query", "required": false,
        "schema": { "type": "integer", "minimum": 1, "maximum": service_runtime::record::RECORDS_MAX },
        "description": "records at most, 200 by default; of the last MiB of the file" }]);
    audit["get"]["responses"]["401"] = json!({ "description": "the credential is missing or not accepted" });
    audit["get"]["responses"]["403"] = json!({ "description": "they may not" });
    audit
}

/// The path of what happened.
fn events() -> Value {
    let parameter = |name: &str, schema: &str, description: &str| json!({ "name": name, "in": "query", "required": false, "schema": { "type": schema }, "description": description });
    let mut events = tagged(
        "What happened, the latest first, and where nothing was received",
        json!({ "type": "object", "properties": {
            "rows": { "type": "array", "items": { "$ref": "#/components/schemas/Event" } },
            "next": { "type": ["integer", "string", "null"], "description": "value of before for the earlier ones; a text for a credential that is for some clusters" },
            "gaps": { "type": "array", "items": { "type": "object", "properties": {
                "since": { "type": "integer" }, "until": { "type": ["integer", "null"] }, "reason": { "type": "string" } } } },
            "begins": { "type": ["integer", "null"], "description": "when the history begins, UTC ms" } } }),
    );
    events["parameters"] = json!([
        parameter("since", "integer", "UTC ms"),
        parameter("until", "integer", "UTC ms"),
        parameter(
            "at",
            "integer",
            "the events until this time, UTC ms, as the tables have their rows of then; not with until, not later than now, and not before the history begins"
        ),
        parameter("cluster", "string", "name of a cluster"),
        parameter("subject", "string", "what they are about, as in the field of that name, such as: deployment Oven"),
        parameter("before", "string", "the field next of another answer"),
        parameter("limit", "integer", "1 to 1000"),
    ]);
    events
}

/// The path of the export.
fn export() -> Value {
    let parameter = |name: &str, description: &str| json!({ "name": name, "in": "query", "required": false, "schema": { "type": "integer" }, "description": description });
    json!({
        "parameters": [parameter("since", "UTC ms; by default when the history begins"), parameter("until", "UTC ms; by default now")],
        "get": { "summary": "The history as a file that `sparkfleet up --replay` shows again",
            "responses": { "200": { "description": "lines of JSON; the last is {\"end\": number of changes}", "content": { "application/jsonl": {} } },
                "503": { "description": "there is no history, or there are as many exports already as are made at a time" } } }
    })
}

/// Something that happened.
fn event() -> Value {
    json!({
        "type": "object",
        "required": ["key", "at", "kind", "subject", "text"],
        "properties": {
            "key": { "type": "string", "description": "number of the event" },
            "at": { "type": "integer", "description": "when it was received, UTC ms" },
            "cluster": { "type": ["string", "null"] },
            "kind": { "type": "string" }, "subject": { "type": "string" },
            "old": { "type": ["string", "null"] }, "new": { "type": ["string", "null"] },
            "text": { "type": "string" },
            "who": { "type": ["string", "null"], "description": "the user who caused it, where that is known" },
            "request": { "type": ["string", "null"], "description": "Request/Id of the write that led to it, where it is known" }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The routes of the router with their methods, as its source has them.
    fn routes() -> BTreeSet<(String, String)> {
        let source = include_str!("../http.rs");
        let lines = source.lines().filter_map(|line| line.trim().strip_prefix(".route(\""));
        let mut found = BTreeSet::new();
        for line in lines {
            let (path, handlers) = line.split_once("\", ").unwrap();
            for method in ["get", "post", "delete"] {
                if handlers.starts_with(&format!("{method}(")) || handlers.contains(&format!(".{method}(")) {
                    found.insert((path.to_owned(), method.to_owned()));
                }
            }
        }
        // What there is not has no description.
        found.remove(&("/api/{*rest}".to_owned(), "get".to_owned()));
        found
    }

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let description = description();
        let mut described = BTreeSet::new();
        for (path, item) in description["paths"].as_object().unwrap() {
            let methods = item.as_object().unwrap().keys().filter(|key| *key != "parameters");
            described.extend(methods.map(|method| (path.clone(), method.clone())));
        }
        assert!(described.len() > 12, "{described:?}");
        assert_eq!(described, routes());
    }

    #[test]
    fn every_reference_has_its_schema() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str));
                    fields.values().for_each(|field| references(field, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let description = description();
        let mut found = Vec::new();
        references(&description, &mut found);
        assert!(found.len() > crate::action::ACTIONS.len());
        for reference in found {
            let place = reference.strip_prefix('#').unwrap();
            assert!(description.pointer(place).is_some(), "{reference}");
        }
    }
}
