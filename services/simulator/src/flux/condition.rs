//! The Ready condition of Flux's objects, and what of their metadata asks for a reconciliation. Pure.

use std::time::Duration;

use serde_json::{Value, json};

/// Annotation that asks for a reconciliation at once.
const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Annotations that, with the value of the one above, let a stalled release be tried again.
const RESET_AT: &str = "reconcile.fluxcd.io/resetAt";
const FORCE_AT: &str = "reconcile.fluxcd.io/forceAt";

pub const FINALIZER: &str = "finalizers.fluxcd.io";

/// What a reconciliation came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the object is as it should be.
    pub ready: bool,
    pub reason: &'static str,
    pub message: String,
    /// It is still under way: whether it will be ready is not known.
    pub is_progressing: bool,
    /// Why it is not tried again.
    pub stalled: Option<String>,
}

impl Outcome {
    pub fn ready(reason: &'static str, message: impl Into<String>) -> Self {
        Self { ready: true, reason, message: message.into(), is_progressing: false, stalled: None }
    }

    pub fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self { ready: false, ..Self::ready(reason, message) }
    }

    pub fn progressing(message: impl Into<String>) -> Self {
        Self { is_progressing: true, ..Self::failed("Progressing", message) }
    }
}

/// The status patch of an outcome; `lastTransitionTime` only changes with the status.
pub fn status(object: &Value, outcome: &Outcome, time: &str) -> Value {
    let value = match outcome.ready {
        _ if outcome.is_progressing => "Unknown",
        true => "True",
        false => "False",
    };
    let before = ready_condition(object);
    let since = before.filter(|c| c["status"] == value).and_then(|c| c["lastTransitionTime"].as_str()).unwrap_or(time);
    let mut status = json!({
        "observedGeneration": object["metadata"]["generation"],
        "conditions": [{
            "type": "Ready", "status": value, "reason": outcome.reason, "message": outcome.message,
            "lastTransitionTime": since, "observedGeneration": object["metadata"]["generation"]
        }]
    });
    if let (Some(why), Some(conditions)) = (&outcome.stalled, status["conditions"].as_array_mut()) {
        conditions.push(json!({
            "type": "Stalled", "status": "True", "reason": "RetriesExceeded", "message": why,
            "lastTransitionTime": since, "observedGeneration": object["metadata"]["generation"]
        }));
    }
    if let Some(request) = requested_at(object) {
        status["lastHandledReconcileAt"] = json!(request);
    }
    status
}

fn ready_condition(object: &Value) -> Option<&Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|c| c["type"] == "Ready")
}

/// Whether the object was found ready at its present generation.
pub fn is_ready(object: &Value) -> bool {
    is_observed(object) && ready_condition(object).is_some_and(|c| c["status"] == "True")
}

/// Whether the object's present generation has been looked at.
pub fn is_observed(object: &Value) -> bool {
    object.pointer("/status/observedGeneration") == object.pointer("/metadata/generation")
}

/// The pending request for a reconciliation, if it has not been handled.
pub fn pending_request(object: &Value) -> Option<&str> {
    requested_at(object)
        .filter(|at| object.pointer("/status/lastHandledReconcileAt").and_then(Value::as_str) != Some(at))
}

/// Whether the pending request says that what is stalled is to be tried again.
pub fn asks_again(object: &Value) -> bool {
    let annotations = &object["metadata"]["annotations"];
    pending_request(object).is_some_and(|at| [RESET_AT, FORCE_AT].iter().any(|name| annotations[*name] == at))
}

fn requested_at(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][REQUESTED_AT].as_str()
}

/// Whether the object is being deleted.
pub fn is_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Whether the object is suspended.
pub fn is_suspended(object: &Value) -> bool {
    object["spec"]["suspend"] == true
}

/// The finalizers with or without Flux's; none if that changes nothing.
pub fn finalizers(object: &Value, present: bool) -> Option<Value> {
    let empty = Vec::new();
    let list = object["metadata"]["finalizers"].as_array().unwrap_or(&empty);
    let has = list.iter().any(|f| f == FINALIZER);
    if has == present {
        return None;
    }
    let mut list: Vec<Value> = list.iter().filter(|f| *f != FINALIZER).cloned().collect();
    if present {
        list.push(json!(FINALIZER));
    }
    Some(json!(list))
}

/// `spec.interval` (Go's notation: `1h30m`, `2m0s`, `500ms`), or a default.
pub fn interval(object: &Value, default: Duration) -> Duration {
    duration(&object["spec"]["interval"]).filter(|d| !d.is_zero()).unwrap_or(default)
}

/// A duration in Go's notation.
pub fn duration(value: &Value) -> Option<Duration> {
    value.as_str().and_then(go_duration)
}

fn go_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(number * seconds).ok()?;
        rest = &rest[unit..];
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_in_gos_notation() {
        for (text, seconds) in [("3m", 180.0), ("2m0s", 120.0), ("1h30m", 5400.0), ("500ms", 0.5), ("1.5s", 1.5)] {
            assert_eq!(go_duration(text), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["3", "x", "3d", "m"] {
            assert_eq!(go_duration(text), None, "{text}");
        }
    }

    #[test]
    fn the_transition_time_stays_until_the_status_changes() {
        let mut object = json!({"metadata": {"generation": 2, "annotations": {REQUESTED_AT: "now"}}});
        object["status"] = status(&object, &Outcome::ready("ok", "m"), "t1");
        assert!(is_ready(&object) && pending_request(&object).is_none());
        object["status"] = status(&object, &Outcome::ready("ok", "other"), "t2");
        assert_eq!(object.pointer("/status/conditions/0/lastTransitionTime"), Some(&json!("t1")));
        object["status"] = status(&object, &Outcome::failed("no", "m"), "t3");
        assert_eq!(object.pointer("/status/conditions/0/lastTransitionTime"), Some(&json!("t3")));
        object["metadata"]["generation"] = json!(3);
        object["metadata"]["annotations"][REQUESTED_AT] = json!("again");
        assert!(!is_observed(&object));
        assert_eq!(pending_request(&object), Some("again"));
    }

    #[test]
    fn finalizers_of_others_stay() {
        let object = json!({"metadata": {"finalizers": ["other/one"]}});
        let with = finalizers(&object, true).unwrap();
        assert_eq!(with, json!(["other/one", FINALIZER]));
        let object = json!({"metadata": {"finalizers": with}});
        assert_eq!(finalizers(&object, true), None);
        assert_eq!(finalizers(&object, false), Some(json!(["other/one"])));
    }
}
