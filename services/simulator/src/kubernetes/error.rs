//! Errors as the Kubernetes API speaks them: an HTTP code, a `reason` that programs match on, a message for people and `details` that name
//! the object and the fields. Knows the texts of the real API server where clients (kubectl, kube-rs, Flux) look at them; knows nothing of HTTP.

use serde_json::{Value, json};

use super::kinds::ResourceId;

/// A refused request. Becomes a `metav1.Status` on the wire.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code, repeated in the body.
    pub code: u16,
    /// Machine-readable reason, e.g. `NotFound`; empty where the API server has none.
    pub reason: &'static str,
    /// What happened, for people.
    pub message: String,
    /// `StatusDetails`, where there is something to name.
    pub details: Option<Box<Value>>,
}

/// One field that is wrong: `reason` is the cause's type, `field` its path.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// E.g. `FieldValueRequired`.
    pub reason: &'static str,
    /// Path such as `spec.uuid`.
    pub field: String,
    /// Message without the path.
    pub message: String,
}

impl Cause {
    /// A field that must be there and is not.
    pub fn required(field: impl Into<String>, what: &str) -> Self {
        let message = if what.is_empty() { "Required value".to_string() } else { format!("Required value: {what}") };
        Self { reason: "FieldValueRequired", field: field.into(), message }
    }

    /// A field whose value breaks a rule.
    pub fn invalid(field: impl Into<String>, value: &Value, rule: &str) -> Self {
        Self { reason: "FieldValueInvalid", field: field.into(), message: format!("Invalid value: {value}: {rule}") }
    }

    /// A field that must not be there.
    pub fn forbidden(field: impl Into<String>, rule: &str) -> Self {
        Self { reason: "FieldValueForbidden", field: field.into(), message: format!("Forbidden: {rule}") }
    }

    fn json(&self) -> Value {
        json!({ "reason": self.reason, "message": self.message, "field": self.field })
    }
}

impl ApiError {
    fn plain(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    fn about(mut self, resource: &ResourceId, name: &str) -> Self {
        let mut details = json!({ "kind": resource.plural });
        if !resource.group.is_empty() {
            details["group"] = json!(resource.group);
        }
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        self.details = Some(Box::new(details));
        self
    }

    /// 404 for an object.
    pub fn not_found(resource: &ResourceId, name: &str) -> Self {
        Self::plain(404, "NotFound", format!("{resource} \"{name}\" not found")).about(resource, name)
    }

    /// 404 for a path that serves nothing, such as a custom resource whose definition is absent.
    pub fn no_such_resource() -> Self {
        let mut error = Self::plain(404, "NotFound", "the server could not find the requested resource");
        error.details = Some(Box::new(json!({})));
        error
    }

    pub fn already_exists(resource: &ResourceId, name: &str) -> Self {
        Self::plain(409, "AlreadyExists", format!("{resource} \"{name}\" already exists")).about(resource, name)
    }

    /// 409: the object changed since the writer read it, or a precondition does not hold.
    pub fn conflict(resource: &ResourceId, name: &str, why: &str) -> Self {
        Self::plain(409, "Conflict", format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}"))
            .about(resource, name)
    }

    /// 409 of server-side apply, with one cause for each field that another manager owns.
    pub fn apply_conflict(message: String, causes: Vec<Cause>) -> Self {
        let mut error = Self::plain(409, "Conflict", message);
        error.details = Some(Box::new(json!({ "causes": causes.iter().map(Cause::json).collect::<Vec<_>>() })));
        error
    }

    /// 422 naming each field that is wrong.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let of = if group.is_empty() { kind.to_string() } else { format!("{kind}.{group}") };
        let texts: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let list = if texts.len() == 1 { texts[0].clone() } else { format!("[{}]", texts.join(", ")) };
        let mut error = Self::plain(422, "Invalid", format!("{of} \"{name}\" is invalid: {list}"));
        let mut details =
            json!({ "name": name, "kind": kind, "causes": causes.iter().map(Cause::json).collect::<Vec<_>>() });
        if !group.is_empty() {
            details["group"] = json!(group);
        }
        error.details = Some(Box::new(details));
        error
    }

    /// 500, without a reason: an applied configuration has a value of another type than the schema says.
    pub fn untyped(object: &str, field: &str, wanted: &str, value: &Value) -> Self {
        Self::plain(
            500,
            "",
            format!("failed to create typed patch object ({object}): .{field}: expected {wanted}, got {value}"),
        )
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(400, "BadRequest", message)
    }

    /// 403; `name` is empty where no object in particular is meant.
    pub fn forbidden(resource: &ResourceId, name: &str, why: &str) -> Self {
        let object = if name.is_empty() { resource.to_string() } else { format!("{resource} \"{name}\"") };
        Self::plain(403, "Forbidden", format!("{object} is forbidden: {why}")).about(resource, name)
    }

    pub fn method_not_allowed() -> Self {
        Self::plain(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    /// 410: the version asked for is no longer in the event log.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::plain(410, "Expired", message)
    }

    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::plain(415, "UnsupportedMediaType", message)
    }

    /// 504 for a resourceVersion that does not exist yet.
    pub fn version_too_large(asked: u64, current: u64) -> Self {
        let mut error = Self::plain(504, "Timeout", format!("Too large resource version: {asked}, current: {current}"));
        error.details = Some(Box::new(json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1
        })));
        error
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::plain(503, "ServiceUnavailable", message)
    }

    /// A failure that a test asked for.
    pub fn injected(code: u16) -> Self {
        let reason = match code {
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => "Expired",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        Self::plain(code, reason, format!("simulated failure {code}"))
    }

    /// Whether an object (or its whole kind) is absent.
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// Whether the writer must read again (or force) before it repeats the request.
    pub fn is_conflict(&self) -> bool {
        self.code == 409
    }

    /// The `metav1.Status` of this error.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code
        });
        if let Some(details) = &self.details {
            status["details"] = details.as_ref().clone();
        }
        status
    }
}
