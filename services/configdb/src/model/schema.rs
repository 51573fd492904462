//! JSON Schemas of applications: whether one may be used, and what an entry breaks in it.
//!
//! A schema is input from outside. So that checking an entry always ends, and soon, references stay inside the schema, are not recursive, and the schema with all
//! references written out is bounded. Nothing is ever fetched.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use configdb_schema::{APPLICATIONS, Application};
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use uuid::Uuid;

/// Parts of a schema with its references written out, at most.
const PARTS_MAX: u64 = 20_000;
/// Steps that matching one regular expression may go back.
const BACKTRACK_MAX: usize = 100_000;
/// Faults that are reported of one entry, at most.
const FAULTS_MAX: usize = 3;

/// The schema of an application.
#[derive(Debug, Clone, Default)]
pub(crate) enum Schema {
    /// There is none: everything is allowed.
    #[default]
    None,
    /// Ready to be used.
    Compiled(Arc<Validator>),
    /// The stored schema cannot be used, for this reason; nothing can be written until it is replaced.
    Unusable(Arc<str>),
}

/// The place in an entry that a schema does not allow, and the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaFault {
    /// JSON pointer into the entry, empty for the whole.
    pub path: String,
    /// Rules broken, for people, without the entry's values.
    pub reason: String,
}

/// The schemas of the program's own applications, as documents and compiled once.
static SYSTEM: LazyLock<BTreeMap<Uuid, (Value, Schema)>> = LazyLock::new(|| {
    let compiled = |application: &&Application| {
        let document = serde_json::from_str(application.schema).unwrap_or_default();
        let schema = Schema::compile(&document).unwrap_or_else(|reason| Schema::Unusable(reason.into()));
        (application.uuid, (document, schema))
    };
    APPLICATIONS.iter().map(compiled).collect()
});

impl Schema {
    /// What the program itself demands of the entries of an application.
    pub(crate) fn of_system(application: Uuid) -> Self {
        SYSTEM.get(&application).map(|(_, schema)| schema.clone()).unwrap_or_default()
    }

    /// The stored schema of an application. The program's own, which is what most stores hold, is not compiled again.
    pub(crate) fn stored(application: Uuid, text: &str) -> Result<Self, String> {
        let document: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match SYSTEM.get(&application) {
            Some((own, schema)) if *own == document => Ok(schema.clone()),
            _ => Self::compile(&document),
        }
    }

    /// True if both are one compiled schema.
    pub(crate) fn is(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Compiled(a), Self::Compiled(b)) if Arc::ptr_eq(a, b))
    }

    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        let mut expansion = Expansion { root: schema, open: Vec::new(), parts: BTreeMap::new() };
        if expansion.parts_of(schema)? > PARTS_MAX {
            return Err(format!("with its references written out it has more than {PARTS_MAX} parts; make it simpler"));
        }
        jsonschema::draft202012::options()
            .should_validate_formats(true)
            .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_MAX))
            .build(schema)
            .map(|validator| Self::Compiled(Arc::new(validator)))
            .map_err(|error| {
                format!("is not a JSON Schema 2020-12 at {}: {error}", place(error.instance_path().as_str()))
            })
    }

    pub(crate) fn check(&self, value: &Value) -> Result<(), SchemaFault> {
        let validator = match self {
            Self::None => return Ok(()),
            Self::Compiled(validator) => validator,
            Self::Unusable(reason) => {
                let reason =
                    format!("the schema of the application cannot be used ({reason}); replace its ConfigSchema");
                return Err(SchemaFault { path: String::new(), reason });
            }
        };
        let mut path = None;
        let mut reasons = Vec::new();
        for error in validator.iter_errors(value).take(FAULTS_MAX) {
            let at = error.instance_path().as_str();
            path.get_or_insert_with(|| at.to_owned());
            reasons.push(format!("{}: {} (keyword {})", place(at), error.masked(), error.kind().keyword()));
        }
        match path {
            None => Ok(()),
            Some(path) => Err(SchemaFault { path, reason: reasons.join("; ") }),
        }
    }
}

fn place(pointer: &str) -> &str {
    if pointer.is_empty() { "the top" } else { pointer }
}

/// Counts the parts of a schema as if its references were written out.
struct Expansion<'a> {
    root: &'a Value,
    /// References being written out.
    open: Vec<&'a str>,
    parts: BTreeMap<&'a str, u64>,
}

impl<'a> Expansion<'a> {
    fn parts_of(&mut self, value: &'a Value) -> Result<u64, String> {
        let mut parts: u64 = 1;
        match value {
            Value::Array(items) => {
                for item in items {
                    parts = parts.saturating_add(self.parts_of(item)?);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    let more = match (key.as_str(), member) {
                        ("$ref", Value::String(target)) => self.parts_of_reference(target)?,
                        ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                            return Err(format!("{key} is not supported; use $ref to #/$defs/..."));
                        }
                        ("$id", Value::String(_)) if !std::ptr::eq(value, self.root) => {
                            return Err("$id inside the schema is not supported; use $ref to #/$defs/...".to_owned());
                        }
                        _ => self.parts_of(member)?,
                    };
                    parts = parts.saturating_add(more);
                }
            }
            _ => {}
        }
        Ok(parts)
    }

    fn parts_of_reference(&mut self, target: &'a str) -> Result<u64, String> {
        if let Some(parts) = self.parts.get(target) {
            return Ok(*parts);
        }
        if self.open.contains(&target) {
            return Err(format!("$ref {target} is recursive; references must end"));
        }
        let inside = target.strip_prefix('#').filter(|p| (p.is_empty() || p.starts_with('/')) && !p.contains('%'));
        let Some(pointer) = inside else {
            return Err(format!("$ref {target} leads out of the schema; only #/... is supported"));
        };
        let Some(schema) = self.root.pointer(pointer) else {
            return Err(format!("$ref {target} leads nowhere"));
        };
        self.open.push(target);
        let parts = self.parts_of(schema)?;
        self.open.pop();
        self.parts.insert(target, parts);
        Ok(parts)
    }
}

/// How deep a value is nested; a number or a text is 1 deep.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(schema: Value) -> String {
        Schema::compile(&schema).unwrap_err()
    }

    #[test]
    fn a_fault_names_place_and_keyword_but_not_the_value() {
        let schema =
            Schema::compile(&json!({"properties": {"a": {"type": "array", "items": {"maxLength": 2}}}})).unwrap();
        assert_eq!(schema.check(&json!({"a": ["x"]})), Ok(()));
        let fault = schema.check(&json!({"a": ["x", "secret"]})).unwrap_err();
        assert_eq!(fault.path, "/a/1");
        assert!(
            fault.reason.starts_with("/a/1: ") && fault.reason.ends_with("(keyword maxLength)"),
            "{}",
            fault.reason
        );
        assert!(!fault.reason.contains("secret"), "{}", fault.reason);
    }

    #[test]
    fn only_the_first_faults_are_reported() {
        let schema = Schema::compile(&json!({"items": {"type": "string"}})).unwrap();
        let fault = schema.check(&json!([1, 2, 3, 4, 5])).unwrap_err();
        assert_eq!(fault.reason.matches("keyword type").count(), FAULTS_MAX);
    }

    #[test]
    fn references_that_do_not_end_or_lead_out_are_refused() {
        assert!(refusal(json!({"$ref": "#"})).contains("recursive"));
        assert!(refusal(json!({"properties": {"a": {"$ref": "#"}}})).contains("recursive"));
        let circle = json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}});
        assert!(refusal(circle).contains("recursive"));
        assert!(refusal(json!({"$ref": "https://example.org/x"})).contains("leads out"));
        assert!(refusal(json!({"$ref": "file:///etc/passwd"})).contains("leads out"));
        assert!(refusal(json!({"$ref": "#/$defs/x"})).contains("leads nowhere"));
        assert!(refusal(json!({"$dynamicRef": "#x"})).contains("not supported"));
        assert!(refusal(json!({"$defs": {"a": {"$id": "urn:x"}}})).contains("not supported"));
    }

    #[test]
    fn a_schema_that_doubles_with_every_reference_is_refused() {
        let mut defs = serde_json::Map::new();
        defs.insert("d0".to_owned(), json!({"type": "string"}));
        for i in 1..40 {
            let target = format!("#/$defs/d{}", i - 1);
            defs.insert(format!("d{i}"), json!({"allOf": [{"$ref": target}, {"$ref": target}]}));
        }
        assert!(refusal(json!({"$defs": defs, "$ref": "#/$defs/d39"})).contains("parts"));
    }

    #[test]
    fn a_document_that_is_not_a_schema_is_refused_with_the_place() {
        assert!(refusal(json!({"properties": {"a": {"type": "strin"}}})).contains("at /properties/a/type"));
        assert!(refusal(json!({"pattern": "("})).contains("at "));
    }

    #[test]
    fn an_unusable_schema_lets_nothing_through() {
        let fault = Schema::Unusable("broken".into()).check(&json!(1)).unwrap_err();
        assert!(fault.reason.contains("replace its ConfigSchema"));
    }

    #[test]
    fn depth_counts_levels() {
        assert_eq!(depth(&json!(1)), 1);
        assert_eq!(depth(&json!({"a": [{}]})), 3);
    }
}
