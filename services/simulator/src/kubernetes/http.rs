//! The rim of the simulated API: HTTP requests to calls of the store, results to JSON, watches to streams. Decides nothing about objects.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use serde_json::{Value, json};

use super::Kubernetes;
use super::access;
use super::discovery;
use super::error::ApiError;
use super::form::Form;
use super::kinds::Kind;
use super::rbac::{Account, Wanted};
use super::selector::Selector;
use super::store::{DeleteOptions, Deleted, ListOptions, Patch, WriteOptions};
use super::stream::{self, WatchRequest};
use super::table::table;

/// Bodies beyond this are refused, as by the real server (3 MiB).
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The API as a tower service for one account, or for every client; `axum::serve` gives it a socket.
pub fn router(kubernetes: Kubernetes, account: Option<Arc<Account>>) -> Router {
    Router::new().fallback(handle).with_state((kubernetes, account))
}

/// `account`: whose requests these are; without one everything is allowed.
async fn handle(
    State((kubernetes, account)): State<(Kubernetes, Option<Arc<Account>>)>,
    request: Request,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_string();
    let (latency, strike) = kubernetes.fault(parts.method.as_str(), &path);
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    if let Some(code) = strike {
        return refuse(&ApiError::injected(code));
    }
    let body = match axum::body::to_bytes(body, BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(_) => return refuse(&ApiError::bad_request("the request body could not be read, or is larger than 3 MiB")),
    };
    let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map(|q| q.0).unwrap_or_default();
    let call = Call { kubernetes, account, method: parts.method, uri: parts.uri, headers: parts.headers, query, body };
    match call.run() {
        Ok(response) => response,
        Err(error) => {
            tracing::debug!(method = %call.method, path, code = error.code, error = %error, "simulated Kubernetes API refused a request");
            refuse(&error)
        }
    }
}

struct Call {
    kubernetes: Kubernetes,
    account: Option<Arc<Account>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    query: Vec<(String, String)>,
    body: Bytes,
}

/// What the path of a request names.
#[derive(Debug, PartialEq)]
struct Target {
    group: String,
    version: String,
    namespace: Option<String>,
    plural: String,
    name: Option<String>,
    subresource: String,
    rest: String,
}

impl Target {
    fn parse(segments: &[&str]) -> Option<Self> {
        let (group, version, rest) = match segments {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let is_namespace_itself = |tail: &[&str]| group.is_empty() && matches!(tail, [] | ["status"] | ["finalize"]);
        let (namespace, rest) = match rest {
            ["namespaces", name, tail @ ..] if !is_namespace_itself(tail) => (Some(name.to_string()), tail),
            other => (None, other),
        };
        let (plural, rest) = rest.split_first()?;
        let name = rest.first().map(|n| n.to_string());
        let subresource = rest.get(1).map(|s| s.to_string()).unwrap_or_default();
        let rest = rest.get(2..).unwrap_or_default().join("/");
        Some(Self {
            group: group.to_string(),
            version: version.to_string(),
            namespace,
            plural: plural.to_string(),
            name,
            subresource,
            rest,
        })
    }
}

impl Call {
    fn param(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.param(name), Some("true" | "1"))
    }

    fn run(&self) -> Result<Response<Body>, ApiError> {
        let path = self.uri.path().trim_matches('/').to_string();
        let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
        if let Some(answer) = self.about_the_server(&segments)? {
            return Ok(answer);
        }
        if self.method == Method::POST && segments.first() == Some(&"apis") && segments[1..] == access::REVIEWS {
            let review = access::from_protobuf(&self.body).map_or_else(|| self.json_body(), Ok)?;
            return Ok(answer(StatusCode::CREATED, &self.kubernetes.review(&review)));
        }
        let target = Target::parse(&segments).ok_or_else(ApiError::no_such_resource)?;
        self.authorise(&target, self.verb(&target))?;
        let kind = self.kubernetes.served(&target.group, &target.version, &target.plural)?;
        if target.plural == "services" && target.subresource == "proxy" {
            return self.proxy(&target);
        }
        let is_known = match target.subresource.as_str() {
            "" => true,
            "status" => kind.has_status,
            _ => false,
        };
        if !is_known || (target.namespace.is_some() && !kind.namespaced) {
            return Err(ApiError::no_such_resource());
        }
        match (&self.method, &target.name) {
            (&Method::GET, None) if self.flag("watch") => self.watch(&kind, &target),
            (&Method::GET, None) => self.list(&kind, &target),
            (&Method::GET, Some(name)) => {
                let object = self.kubernetes.store().get(&kind, namespace(&target), name)?;
                Ok(self.object(StatusCode::OK, &kind, &object))
            }
            (&Method::POST, None) => self.create(&kind, &target),
            (&Method::PUT, Some(name)) => {
                let object = self.json_body()?;
                let options = self.write_options(&target);
                let stored =
                    self.kubernetes.write(|store| store.update(&kind, namespace(&target), name, object, &options))?;
                Ok(self.object(StatusCode::OK, &kind, &stored))
            }
            (&Method::PATCH, Some(name)) => self.patch(&kind, &target, name),
            (&Method::DELETE, Some(name)) => self.delete(&kind, &target, name),
            (&Method::DELETE, None) => self.delete_collection(&kind, &target),
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// What a request does, as roles call it.
    fn verb(&self, target: &Target) -> &'static str {
        match (&self.method, &target.name) {
            (&Method::GET, None) if self.flag("watch") => "watch",
            (&Method::GET, None) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, Some(_)) => "delete",
            (&Method::DELETE, None) => "deletecollection",
            _ => "get",
        }
    }

    /// Refuses what the account may not do.
    fn authorise(&self, target: &Target, verb: &str) -> Result<(), ApiError> {
        let Some(account) = &self.account else { return Ok(()) };
        let resource = match target.subresource.as_str() {
            "" => target.plural.clone(),
            subresource => format!("{}/{subresource}", target.plural),
        };
        let selected = || self.param("fieldSelector").and_then(|selector| selector.strip_prefix("metadata.name="));
        account.check(&Wanted {
            verb,
            group: &target.group,
            resource: &resource,
            namespace: target.namespace.as_deref(),
            name: target.name.as_deref().or_else(selected),
        })
    }

    /// Answers that are not about objects.
    fn about_the_server(&self, segments: &[&str]) -> Result<Option<Response<Body>>, ApiError> {
        let store = self.kubernetes.store();
        let found = |value: Option<Value>| {
            value.map(|v| answer(StatusCode::OK, &v)).ok_or_else(ApiError::no_such_resource).map(Some)
        };
        match segments {
            ["version"] => Ok(Some(answer(StatusCode::OK, &discovery::version(std::env::consts::ARCH)))),
            ["healthz" | "livez" | "readyz", ..] => Ok(Some(Response::new(Body::from("ok")))),
            ["api"] => Ok(Some(answer(StatusCode::OK, &discovery::core_versions()))),
            ["apis"] => Ok(Some(answer(StatusCode::OK, &discovery::groups(store.kinds())))),
            ["apis", group] => found(discovery::group(store.kinds(), group)),
            ["api", version] => found(discovery::resources(store.kinds(), "", version)),
            ["apis", group, version] => found(discovery::resources(store.kinds(), group, version)),
            // Clients check manifests against these; an empty document makes them trust the server's own validation.
            ["openapi", "v3"] => Ok(Some(answer(StatusCode::OK, &json!({ "paths": {} })))),
            ["openapi", "v2"] => Ok(Some(self.openapi_v2())),
            _ => Ok(None),
        }
    }

    /// kubectl wants this document as protobuf, whose empty message has no bytes.
    fn openapi_v2(&self) -> Response<Body> {
        let accept = self.headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        if accept.contains("proto-openapi") {
            let mut response = Response::new(Body::empty());
            let protobuf = HeaderValue::from_static("application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
            response.headers_mut().insert(header::CONTENT_TYPE, protobuf);
            return response;
        }
        let info = json!({ "title": "simulated", "version": discovery::GIT_VERSION });
        answer(StatusCode::OK, &json!({ "swagger": "2.0", "info": info, "paths": {} }))
    }

    fn proxy(&self, target: &Target) -> Result<Response<Body>, ApiError> {
        if self.method != Method::GET {
            return Err(ApiError::method_not_allowed());
        }
        let text =
            self.kubernetes.proxy(namespace(target), target.name.as_deref().unwrap_or_default(), &target.rest)?;
        let mut response = Response::new(Body::from(text));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-pem-file"));
        Ok(response)
    }

    fn selector(&self, kind: &Kind) -> Result<Selector, ApiError> {
        Selector::parse(
            &kind.id(),
            self.param("labelSelector").unwrap_or_default(),
            self.param("fieldSelector").unwrap_or_default(),
        )
    }

    fn resource_version(&self) -> Result<Option<u64>, ApiError> {
        let parse = |text: &str| {
            text.parse().map_err(|_| {
                ApiError::bad_request(format!("Invalid value: {text:?}: resourceVersion must be a number"))
            })
        };
        self.param("resourceVersion").map(parse).transpose()
    }

    fn list_options(&self, kind: &Kind) -> Result<ListOptions, ApiError> {
        let limit = self
            .param("limit")
            .map(|text| text.parse().map_err(|_| ApiError::bad_request("limit must be a number")))
            .transpose()?;
        let version = self.resource_version()?;
        let current = self.kubernetes.store().version();
        if let Some(asked) = version.filter(|asked| *asked > current) {
            return Err(ApiError::version_too_large(asked, current));
        }
        let is_exact = self.param("resourceVersionMatch") == Some("Exact");
        Ok(ListOptions {
            selector: self.selector(kind)?,
            limit: limit.unwrap_or(0),
            continue_token: self.param("continue").map(str::to_string),
            exact_version: version.filter(|_| is_exact),
        })
    }

    fn list(&self, kind: &Kind, target: &Target) -> Result<Response<Body>, ApiError> {
        let options = self.list_options(kind)?;
        let page = self.kubernetes.store().list(kind, target.namespace.as_deref(), &options)?;
        let mut metadata = json!({ "resourceVersion": page.version.to_string() });
        if let Some(token) = page.continue_token {
            metadata["continue"] = json!(token);
            metadata["remainingItemCount"] = json!(page.remaining);
        }
        let form = Form::of(&self.headers);
        let items: Vec<Value> = page.items.iter().map(|object| form.single(kind, object)).collect();
        Ok(answer(StatusCode::OK, &form.list(kind, items, metadata, super::wall_ms())))
    }

    fn watch(&self, kind: &Kind, target: &Target) -> Result<Response<Body>, ApiError> {
        let seconds = self.param("timeoutSeconds").and_then(|text| text.parse().ok()).unwrap_or(1800);
        let request = WatchRequest {
            namespace: target.namespace.clone(),
            selector: self.selector(kind)?,
            version: self.resource_version()?,
            bookmarks: self.flag("allowWatchBookmarks"),
            send_initial_events: self.flag("sendInitialEvents"),
            timeout: std::time::Duration::from_secs(seconds),
            form: Form::of(&self.headers),
        };
        let body = stream::body(self.kubernetes.clone(), kind.clone(), request)?;
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    fn write_options(&self, target: &Target) -> WriteOptions {
        let agent = self.headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or("unknown");
        let from_agent = agent.split(['/', ' ']).next().unwrap_or("unknown");
        WriteOptions {
            manager: self.param("fieldManager").unwrap_or(from_agent).to_string(),
            force: self.flag("force"),
            dry_run: self.param("dryRun") == Some("All"),
            subresource: target.subresource.clone(),
            wall_ms: super::wall_ms(),
        }
    }

    fn content_type(&self) -> &str {
        let text = self.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("application/json");
        text.split(';').next().unwrap_or_default().trim()
    }

    fn parse_body(&self) -> Result<Value, ApiError> {
        if let Ok(value) = serde_json::from_slice(&self.body) {
            return Ok(value);
        }
        let text = std::str::from_utf8(&self.body).map_err(|_| ApiError::bad_request("the body is not UTF-8"))?;
        serde_saphyr::from_str(text)
            .map_err(|error| ApiError::bad_request(format!("the body is neither JSON nor YAML: {error}")))
    }

    fn json_body(&self) -> Result<Value, ApiError> {
        match self.content_type() {
            "application/json" | "application/yaml" | "" => self.parse_body(),
            other => Err(ApiError::unsupported_media_type(format!(
                "the body of the request was in an unknown format ({other}) - accepted media types include: application/json, application/yaml"
            ))),
        }
    }

    fn create(&self, kind: &Kind, target: &Target) -> Result<Response<Body>, ApiError> {
        let object = self.json_body()?;
        if kind.namespaced && target.namespace.is_none() {
            return Err(ApiError::method_not_allowed());
        }
        let options = self.write_options(target);
        let stored = self.kubernetes.write(|store| store.create(kind, namespace(target), object, &options))?;
        Ok(self.object(StatusCode::CREATED, kind, &stored))
    }

    fn patch(&self, kind: &Kind, target: &Target, name: &str) -> Result<Response<Body>, ApiError> {
        let value = self.parse_body()?;
        let patch = match self.content_type() {
            "application/merge-patch+json" => Patch::Merge(value),
            "application/json-patch+json" => Patch::Json(value),
            "application/strategic-merge-patch+json" => Patch::Strategic(value),
            "application/apply-patch+yaml" => Patch::Apply(value),
            other => {
                return Err(ApiError::unsupported_media_type(format!(
                    "the body of the request was in an unknown format ({other}) - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml"
                )));
            }
        };
        let mut options = self.write_options(target);
        if matches!(patch, Patch::Apply(_)) {
            options.manager = self.param("fieldManager").unwrap_or_default().to_string();
            if self.kubernetes.store().get(kind, namespace(target), name).is_err() {
                self.authorise(target, "create")?;
            }
        } else if options.force {
            let cause = super::error::Cause::forbidden("force", "may not be specified for non-apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[cause]));
        }
        let (stored, created) =
            self.kubernetes.write(|store| store.patch(kind, namespace(target), name, &patch, &options))?;
        Ok(self.object(if created { StatusCode::CREATED } else { StatusCode::OK }, kind, &stored))
    }

    fn delete_options(&self) -> Result<DeleteOptions, ApiError> {
        let body = if self.body.is_empty() { json!({}) } else { self.json_body()? };
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_string);
        let policy = text("/propagationPolicy").or_else(|| self.param("propagationPolicy").map(str::to_string));
        Ok(DeleteOptions {
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            orphan: policy.as_deref() == Some("Orphan") || body["orphanDependents"] == true,
            dry_run: self.param("dryRun") == Some("All") || body["dryRun"] == json!(["All"]),
        })
    }

    fn delete(&self, kind: &Kind, target: &Target, name: &str) -> Result<Response<Body>, ApiError> {
        let options = self.delete_options()?;
        match self.kubernetes.write(|store| store.delete(kind, namespace(target), name, &options, super::wall_ms()))? {
            Deleted::Pending(object) => Ok(self.object(StatusCode::OK, kind, &object)),
            Deleted::Removed(object) => {
                let mut details = json!({ "name": name, "kind": kind.plural, "uid": object["metadata"]["uid"] });
                if !kind.group.is_empty() {
                    details["group"] = json!(kind.group);
                }
                let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details });
                Ok(answer(StatusCode::OK, &status))
            }
        }
    }

    fn delete_collection(&self, kind: &Kind, target: &Target) -> Result<Response<Body>, ApiError> {
        let list = self.list_options(kind)?;
        let options = self.delete_options()?;
        let page = self.kubernetes.write(|store| {
            store.delete_collection(kind, target.namespace.as_deref(), &list, &options, super::wall_ms())
        })?;
        let items: Vec<Value> = page.items.iter().map(|object| Form::Plain.single(kind, object)).collect();
        let metadata = json!({ "resourceVersion": page.version.to_string() });
        Ok(answer(StatusCode::OK, &Form::Plain.list(kind, items, metadata, 0)))
    }

    fn object(&self, status: StatusCode, kind: &Kind, object: &Value) -> Response<Body> {
        let form = Form::of(&self.headers);
        let single = form.single(kind, object);
        match form {
            Form::Table => answer(status, &table(kind, &[single], json!({}), super::wall_ms())),
            _ => answer(status, &single),
        }
    }
}

fn namespace(target: &Target) -> &str {
    target.namespace.as_deref().unwrap_or_default()
}

fn answer(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refuse(error: &ApiError) -> Response<Body> {
    let status = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer(status, &error.to_status())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_their_target() {
        let parse = |path: &str| {
            let segments: Vec<&str> = path.split('/').collect();
            Target::parse(&segments).map(|t| (t.group, t.namespace, t.plural, t.name, t.subresource, t.rest))
        };
        let some = |text: &str| Some(text.to_string());
        let cases = [
            ("api/v1/nodes", ("", None, "nodes", None, "", "")),
            ("api/v1/namespaces", ("", None, "namespaces", None, "", "")),
            ("api/v1/namespaces/x", ("", None, "namespaces", some("x"), "", "")),
            ("api/v1/namespaces/x/status", ("", None, "namespaces", some("x"), "status", "")),
            ("api/v1/namespaces/x/secrets", ("", some("x"), "secrets", None, "", "")),
            ("apis/g.io/v1/namespaces/x/things/y/status", ("g.io", some("x"), "things", some("y"), "status", "")),
            ("apis/g.io/v1/things", ("g.io", None, "things", None, "", "")),
            (
                "api/v1/namespaces/s/services/http:a:/proxy/v1/cert.pem",
                ("", some("s"), "services", some("http:a:"), "proxy", "v1/cert.pem"),
            ),
        ];
        for (path, (group, namespace, plural, name, subresource, rest)) in cases {
            let expected =
                (group.to_string(), namespace, plural.to_string(), name, subresource.to_string(), rest.to_string());
            assert_eq!(parse(path), Some(expected), "{path}");
        }
        assert_eq!(parse("metrics"), None);
    }
}
