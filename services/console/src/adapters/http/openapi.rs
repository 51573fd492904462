//! The API's description.

use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

/// `GET /api/v1/openapi.json`
pub async fn get() -> Response {
    axum::Json(description()).into_response()
}

fn description() -> Value {
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
    let read = |summary: &str, schema: Value| {
        json!({ "get": { "summary": summary, "responses": { "200": {
            "description": "OK", "content": { "application/json": { "schema": schema } } } } } })
    };
    let name = json!([{ "name": "table", "in": "path", "required": true, "schema": { "type": "string" },
        "description": "console, fleet, clusters, hosts, deployments, alerts, services, rollout, events, nodes, actions, or metrics:GROUP/NODE" }]);
    let mut table = read(
        "All rows of a table; ETag and If-None-Match are understood",
        json!({ "type": "object", "properties": {
            "rev": { "type": "integer" }, "at": { "type": ["integer", "null"] },
            "rows": { "type": "array", "items": { "$ref": "#/components/schemas/Row" } } } }),
    );
    table["parameters"] = name;
    let stream = json!({
        "parameters": [{ "name": "tables", "in": "query", "required": true, "schema": { "type": "string" },
            "description": "names joined by commas; % and , in a name are percent-encoded once more" }],
        "get": { "summary": "Server-sent events `table` with {rev, table, full, set, del}; Last-Event-ID resumes",
            "responses": { "200": { "description": "OK", "content": { "text/event-stream": {} } } } }
    });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Sparkfleet console", "version": env!("CARGO_PKG_VERSION") },
        "paths": {
            "/api/v1/session": read("Who looks, and what may be done", json!({ "type": "object" })),
            "/api/v1/stream": stream,
            "/api/v1/{table}": table,
        },
        "components": { "schemas": { "Row": row } }
    })
}
