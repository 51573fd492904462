//! Label selectors (equality and set based) and field selectors: text to predicate on an object. Pure.

use serde_json::Value;

use super::error::ApiError;
use super::kinds::ResourceId;

/// What a list or watch is restricted to; the default selects everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    key: String,
    rule: Rule,
}

#[derive(Debug, Clone, PartialEq)]
enum Rule {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    GreaterThan(i64),
    LessThan(i64),
}

#[derive(Debug, Clone, PartialEq)]
struct FieldRequirement {
    pointer: String,
    value: String,
    equal: bool,
}

impl Selector {
    /// Parses the query parameters `labelSelector` and `fieldSelector`.
    pub fn parse(resource: &ResourceId, labels: &str, fields: &str) -> Result<Self, ApiError> {
        Ok(Self { labels: parse_labels(labels)?, fields: parse_fields(resource, fields)? })
    }

    /// Whether an object is selected.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.iter().all(|requirement| requirement.holds(labels.get(&requirement.key).and_then(Value::as_str)))
            && self.fields.iter().all(|requirement| {
                let value = object.pointer(&requirement.pointer).map(field_text).unwrap_or_default();
                (value == requirement.value) == requirement.equal
            })
    }
}

impl Requirement {
    fn holds(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|text| text.parse::<i64>().ok());
        match &self.rule {
            Rule::In(values) => label.is_some_and(|text| values.iter().any(|v| v == text)),
            Rule::NotIn(values) => label.is_none_or(|text| values.iter().all(|v| v != text)),
            Rule::Exists => label.is_some(),
            Rule::Absent => label.is_none(),
            Rule::GreaterThan(bound) => number().is_some_and(|n| n > *bound),
            Rule::LessThan(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

fn field_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Splits at commas that are not inside parentheses.
fn split_requirements(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_i32, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, ApiError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    split_requirements(text).into_iter().map(|part| parse_label(part.trim())).collect()
}

fn parse_label(part: &str) -> Result<Requirement, ApiError> {
    let refuse = || ApiError::bad_request(format!("unable to parse requirement: {part:?} is not a label requirement"));
    let build = |key: &str, rule: Rule| {
        let key = key.trim();
        if is_label_key(key) { Ok(Requirement { key: key.to_string(), rule }) } else { Err(refuse()) }
    };
    let value = |text: &str| {
        let text = text.trim();
        if is_label_value(text) { Ok(text.to_string()) } else { Err(refuse()) }
    };
    if let Some((key, set)) =
        part.split_once(" in ").or_else(|| part.split_once(" in(")).or_else(|| part.split_once(" in  ("))
    {
        return match key.trim().strip_suffix(" not") {
            Some(key) => build(key, Rule::NotIn(parse_set(set).ok_or_else(refuse)?)),
            None => build(key, Rule::In(parse_set(set).ok_or_else(refuse)?)),
        };
    }
    if let Some((key, set)) = part.split_once(" notin ").or_else(|| part.split_once(" notin(")) {
        return build(key, Rule::NotIn(parse_set(set).ok_or_else(refuse)?));
    }
    if let Some((key, text)) = part.split_once("!=") {
        return build(key, Rule::NotIn(vec![value(text)?]));
    }
    if let Some((key, text)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return build(key, Rule::In(vec![value(text)?]));
    }
    if let Some((key, text)) = part.split_once('>') {
        return build(key, Rule::GreaterThan(text.trim().parse().map_err(|_| refuse())?));
    }
    if let Some((key, text)) = part.split_once('<') {
        return build(key, Rule::LessThan(text.trim().parse().map_err(|_| refuse())?));
    }
    match part.strip_prefix('!') {
        Some(key) => build(key, Rule::Absent),
        None => build(part, Rule::Exists),
    }
}

fn parse_set(text: &str) -> Option<Vec<String>> {
    let text = text.trim();
    let inner = text.strip_prefix('(').unwrap_or(text).strip_suffix(')')?;
    let values: Vec<String> = inner.split(',').map(|v| v.trim().to_string()).collect();
    values.iter().all(|v| is_label_value(v)).then_some(values)
}

/// Whether a text may be a label key: optional DNS prefix, then at most 63 characters.
pub fn is_label_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(is_dns_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Whether a text may be a label value: at most 63 characters, alphanumeric ends, `-_.` between.
pub fn is_label_value(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && ends(text.chars().next())
        && ends(text.chars().next_back())
}

/// Whether a text is a lower-case RFC 1123 subdomain.
pub fn is_dns_subdomain(text: &str) -> bool {
    !text.is_empty() && text.len() <= 253 && text.split('.').all(is_dns_label_chars)
}

/// Whether a text is a lower-case RFC 1123 label of at most 63 characters.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_dns_label_chars(text)
}

fn is_dns_label_chars(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn parse_fields(resource: &ResourceId, text: &str) -> Result<Vec<FieldRequirement>, ApiError> {
    let mut requirements = Vec::new();
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (field, value, equal) = if let Some((field, value)) = part.split_once("!=") {
            (field, value, false)
        } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (field, value, true)
        } else {
            return Err(ApiError::bad_request(format!("invalid selector: {part:?}; can't understand {part:?}")));
        };
        if !is_selectable(resource, field) {
            return Err(ApiError::bad_request(format!("field label not supported: {field}")));
        }
        requirements.push(FieldRequirement {
            pointer: format!("/{}", field.replace('.', "/")),
            value: value.to_string(),
            equal,
        });
    }
    Ok(requirements)
}

fn is_selectable(resource: &ResourceId, field: &str) -> bool {
    if matches!(field, "metadata.name" | "metadata.namespace") {
        return true;
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => matches!(field, "spec.nodeName" | "spec.serviceAccountName" | "status.phase" | "status.podIP"),
        ("", "secrets") => field == "type",
        ("", "nodes") => field == "spec.unschedulable",
        ("", "namespaces") => field == "status.phase",
        ("", "events") => field.starts_with("involvedObject.") || matches!(field, "reason" | "type" | "source"),
        ("batch", "jobs") => field == "status.successful",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn selects(labels: &str, fields: &str, object: &Value) -> Result<bool, u16> {
        Selector::parse(&ResourceId::new("", "pods"), labels, fields).map(|s| s.matches(object)).map_err(|e| e.code)
    }

    #[test]
    fn label_selectors_select_as_documented() {
        let object =
            json!({"metadata": {"labels": {"app": "sync", "tier": "edge", "size": "12", "example.org/kind": "x"}}});
        let cases = [
            ("", Ok(true)),
            ("app=sync", Ok(true)),
            ("app==sync", Ok(true)),
            ("app=other", Ok(false)),
            ("absent=sync", Ok(false)),
            ("app!=sync", Ok(false)),
            ("absent!=sync", Ok(true)),
            ("app", Ok(true)),
            ("!app", Ok(false)),
            ("!absent", Ok(true)),
            ("app in (sync, monitor)", Ok(true)),
            ("app in (monitor)", Ok(false)),
            ("app in(sync)", Ok(true)),
            ("app notin (sync,monitor)", Ok(false)),
            ("absent notin (sync)", Ok(true)),
            ("app=sync,tier in (edge,core),!gone", Ok(true)),
            ("app=sync,tier=core", Ok(false)),
            ("size>3", Ok(true)),
            ("size<3", Ok(false)),
            ("example.org/kind=x", Ok(true)),
            ("app=not valid", Err(400)),
            ("app in sync", Err(400)),
            ("-x=1", Err(400)),
            (",", Err(400)),
        ];
        for (text, expected) in cases {
            assert_eq!(selects(text, "", &object), expected, "{text:?}");
        }
    }

    #[test]
    fn an_object_without_labels_has_none() {
        assert_eq!(selects("app=x", "", &json!({"metadata": {}})), Ok(false));
        assert_eq!(selects("!app", "", &json!({})), Ok(true));
    }

    #[test]
    fn field_selectors_select_known_fields_and_refuse_others() {
        let object = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "host"}});
        let cases = [
            ("metadata.name=a", Ok(true)),
            ("metadata.name==b", Ok(false)),
            ("metadata.name!=b,metadata.namespace=n", Ok(true)),
            ("spec.nodeName=host", Ok(true)),
            ("status.phase=", Ok(true)),
            ("spec.image=x", Err(400)),
            ("metadata.name", Err(400)),
        ];
        for (text, expected) in cases {
            assert_eq!(selects("", text, &object), expected, "{text:?}");
        }
        let elsewhere = Selector::parse(&ResourceId::new("", "configmaps"), "", "spec.nodeName=a");
        assert_eq!(elsewhere.map_err(|e| e.code), Err(400));
    }

    #[test]
    fn names_follow_rfc_1123() {
        for good in ["a", "edge-agent.robot-cell-3", "0", &"a".repeat(253)] {
            assert!(is_dns_subdomain(good), "{good}");
        }
        for bad in ["", "A", "a_b", "-a", "a-", "a..b", "host.", &"a".repeat(254)] {
            assert!(!is_dns_subdomain(bad), "{bad}");
        }
        assert!(is_dns_label(&"a".repeat(63)) && !is_dns_label(&"a".repeat(64)) && !is_dns_label("a.b"));
    }
}
