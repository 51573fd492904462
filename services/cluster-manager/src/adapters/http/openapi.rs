//! The OpenAPI 3.1 document of the API, made of the types that it speaks and of the scopes that the operations need.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::administration::NewToken;
use super::sealed::SEALED_BYTES_MAX;
use super::secrets::VALUE_BYTES_MAX;
use super::shapes;
use access::Operation;

/// A route of the API.
struct Route {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    /// None: every client may.
    operation: Option<Operation>,
    query: &'static [(&'static str, &'static str)],
    /// Status and content of a success.
    success: (&'static str, Content),
    takes: Takes,
}

/// What the body of a request is.
enum Takes {
    Nothing,
    Value,
    SealedValue,
    NewToken,
}

enum Content {
    None,
    Any,
    Clusters,
    Cluster,
    Secrets,
    SealingCertificate,
    BootstrapLine,
    Tokens,
    CreatedToken,
    Writes,
}

const DRY_RUN: (&str, &str) = ("dryrun", "Present: do everything but keep it");
const SCOPE: (&str, &str) = ("scope", "What the value is bound to: strict (default), namespace-wide or cluster-wide");
const TYPE: (&str, &str) = ("type", "Type of the Secret; Opaque by default");

const ROUTES: &[Route] = &[
    Route {
        method: "get",
        path: "/v1/openapi.json",
        summary: "This document",
        operation: None,
        query: &[],
        success: ("200", Content::Any),
        takes: Takes::Nothing,
    },
    Route {
        method: "get",
        path: "/v1/clusters",
        summary: "The clusters that the credential is for",
        operation: Some(Operation::ListClusters),
        query: &[],
        success: ("200", Content::Clusters),
        takes: Takes::Nothing,
    },
    Route {
        method: "get",
        path: "/v1/cluster/{cluster}/status",
        summary: "One cluster",
        operation: Some(Operation::ReadStatus),
        query: &[],
        success: ("200", Content::Cluster),
        takes: Takes::Nothing,
    },
    Route {
        method: "get",
        path: "/v1/cluster/{cluster}/secrets",
        summary: "The secrets in the cluster's repository: names, and which values are to be sealed again",
        operation: Some(Operation::ListSecrets),
        query: &[],
        success: ("200", Content::Secrets),
        takes: Takes::Nothing,
    },
    Route {
        method: "post",
        path: "/v1/cluster/{cluster}/bootstrap-url",
        summary: "Make a one-time token and the line to paste that bootstraps the cluster with it",
        operation: Some(Operation::BootstrapLine),
        query: &[("expires_s", "Seconds that the token lives: 60 to 2592000; 3600 by default")],
        success: ("200", Content::BootstrapLine),
        takes: Takes::Nothing,
    },
    Route {
        method: "put",
        path: "/v1/cluster/{cluster}/secret/{namespace}/{name}/{key}",
        summary: "Seal a value for the cluster and write it as one key of a Secret; the other keys stay",
        operation: Some(Operation::PutSecret),
        query: &[DRY_RUN, SCOPE, TYPE],
        success: ("204", Content::None),
        takes: Takes::Value,
    },
    Route {
        method: "delete",
        path: "/v1/cluster/{cluster}/secret/{namespace}/{name}/{key}",
        summary: "Remove one key of a Secret, and with the last one the Secret",
        operation: Some(Operation::DeleteSecret),
        query: &[DRY_RUN],
        success: ("204", Content::None),
        takes: Takes::Nothing,
    },
    Route {
        method: "get",
        path: "/v1/cluster/{cluster}/sealing-certificate",
        summary: "The certificate that values are sealed with for the cluster",
        operation: Some(Operation::ReadCertificate),
        query: &[],
        success: ("200", Content::SealingCertificate),
        takes: Takes::Nothing,
    },
    Route {
        method: "put",
        path: "/v1/cluster/{cluster}/sealed-secret/{namespace}/{name}/{key}",
        summary: "Write a value that is sealed already as one key of a Secret; the other keys stay",
        operation: Some(Operation::PutSecret),
        query: &[
            (
                "fingerprint",
                "Required: SHA-256 fingerprint of the certificate that it is sealed for, which the cluster must have at present",
            ),
            DRY_RUN,
            SCOPE,
            TYPE,
        ],
        success: ("204", Content::None),
        takes: Takes::SealedValue,
    },
    Route {
        method: "get",
        path: "/v1/tokens",
        summary: "The tokens, without their text",
        operation: Some(Operation::ListTokens),
        query: &[],
        success: ("200", Content::Tokens),
        takes: Takes::Nothing,
    },
    Route {
        method: "post",
        path: "/v1/tokens",
        summary: "Make a token; its text is returned this once",
        operation: Some(Operation::CreateToken),
        query: &[],
        success: ("200", Content::CreatedToken),
        takes: Takes::NewToken,
    },
    Route {
        method: "delete",
        path: "/v1/token/{name}",
        summary: "Revoke a token; it is refused from the answer on",
        operation: Some(Operation::RevokeToken),
        query: &[],
        success: ("204", Content::None),
        takes: Takes::Nothing,
    },
    Route {
        method: "get",
        path: "/v1/audit",
        summary: "Who wrote what over HTTP, the newest first",
        operation: Some(Operation::ReadAudit),
        query: &[("limit", "Most records: 1 to 1000; 100 by default")],
        success: ("200", Content::Writes),
        takes: Takes::Nothing,
    },
];

/// The document.
#[must_use]
pub fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let mut paths = Map::new();
    for route in ROUTES {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        item[route.method] = operation(route, &mut generator);
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sparkfleet cluster manager",
            "version": "1",
            "description": "HTTP for people. Services speak Sparkplug. Show a token as `Authorization: Bearer ...`; `sparkfleet token create` makes one.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let json_of = |schema: Value| json!({ "application/json": { "schema": schema } });
    let problem = json_of(reference::<shapes::Problem>(generator));
    let (status, content) = &route.success;
    let content = match content {
        Content::None => None,
        Content::Any => Some(json!({ "type": "object" })),
        Content::Clusters => Some(reference::<Vec<shapes::Cluster>>(generator)),
        Content::Cluster => Some(reference::<shapes::Cluster>(generator)),
        Content::Secrets => Some(reference::<shapes::Secrets>(generator)),
        Content::SealingCertificate => Some(reference::<shapes::SealingCertificate>(generator)),
        Content::BootstrapLine => Some(reference::<shapes::BootstrapLine>(generator)),
        Content::Tokens => Some(reference::<Vec<shapes::Token>>(generator)),
        Content::CreatedToken => Some(reference::<shapes::CreatedToken>(generator)),
        Content::Writes => Some(reference::<Vec<shapes::Write>>(generator)),
    };
    let success = match content {
        Some(schema) => json!({ "description": "Done", "content": json_of(schema) }),
        None => json!({ "description": "Done" }),
    };
    let refused = json!({ "description": "Not carried out, and why", "content": problem });
    let mut described = json!({
        "summary": route.summary,
        "parameters": parameters(route),
        "responses": { *status: success, "default": refused },
    });
    if let Some(operation) = route.operation {
        // Two routes write a key; only one can have the name of the operation.
        let id = if matches!(route.takes, Takes::SealedValue) { "put-sealed-secret" } else { operation.as_str() };
        described["operationId"] = Value::from(id);
        described["security"] = json!([{ "bearer": [] }]);
        let scope = operation.needs().as_str();
        described["description"] = Value::from(format!("Needs the scope `{scope}` or a higher one."));
    }
    let body = match route.takes {
        Takes::Nothing => None,
        Takes::Value => {
            let description = format!("The value as it is, at most {VALUE_BYTES_MAX} bytes");
            Some((description, json!({ "application/octet-stream": {} })))
        }
        Takes::SealedValue => {
            let form = "The sealed value, base64, as `kubeseal --raw` prints it";
            Some((format!("{form}; at most {SEALED_BYTES_MAX} bytes"), json!({ "text/plain": {} })))
        }
        Takes::NewToken => Some(("The token that is wanted".to_owned(), json_of(reference::<NewToken>(generator)))),
    };
    if let Some((description, content)) = body {
        described["requestBody"] = json!({ "required": true, "description": description, "content": content });
    }
    described
}

fn parameters(route: &Route) -> Value {
    let path_names = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let path_parameters = path_names.map(|name| {
        let schema =
            if name == "cluster" { json!({ "type": "string", "format": "uuid" }) } else { json!({ "type": "string" }) };
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    });
    let query_parameters = route.query.iter().map(|(name, description)| {
        json!({ "name": name, "in": "query", "description": description, "schema": { "type": "string" } })
    });
    path_parameters.chain(query_parameters).collect()
}

fn reference<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}
