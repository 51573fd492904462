//! Expansion of `{{ placeholders }}` in JSON templates: the rules of Factory+ (npm json-templates), with its silent failures turned into errors.
//!
//! - The template is any JSON value; strings at any depth, and keys of objects, are scanned. Blanks round the path are allowed.
//! - A dotted path leads into the context; a number selects an item of an array. A text after a colon is the default: `{{ who:none }}`.
//! - A string that is exactly one placeholder takes the value with its own JSON type. A name that is declared but absent makes its property or array item vanish:
//!   that is how a floating deployment loses `hostname`.
//! - Elsewhere the value is spliced in as text; an absent one is nothing, an object or array is an error.
//! - A path that the context does not declare is an error (unless it has a default), never a silent nothing.
//! - Braces round anything but letters, digits, blanks and `: - + . , @ / ( ) ? = * _ $` are plain text.
//!
//! Nothing is escaped. This module must not know what any template is for.

use serde_json::{Map, Value};

/// Most bytes of JSON that one expansion may insert: a small template can repeat a large value, and nothing beyond a message's size is of use.
const INSERTED_BYTES_MAX: usize = 1024 * 1024;

/// What placeholders may refer to.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// Dotted names, also of absent values.
    declared: Vec<&'static str>,
    values: Map<String, Value>,
}

/// Why a template cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The path is not declared.
    #[error("{template} at {path}: unknown placeholder {{{{{placeholder}}}}}; known are {known}")]
    Unknown {
        /// Which template.
        template: String,
        /// Where in it, such as `$.values.node`.
        path: String,
        /// The path in the braces.
        placeholder: String,
        /// What is declared.
        known: String,
    },
    /// An object or array inside a longer text.
    #[error("{template} at {path}: placeholder {{{{{placeholder}}}}} is not text; it must be the whole string")]
    NotText {
        /// Which template.
        template: String,
        /// Where in it.
        path: String,
        /// The path in the braces.
        placeholder: String,
    },
    /// Two keys of one object became the same.
    #[error("{template} at {path}: two keys become {key:?} when placeholders are expanded")]
    DuplicateKey {
        /// Which template.
        template: String,
        /// Where in it.
        path: String,
        /// The key.
        key: String,
    },
    /// The values inserted are too large together.
    #[error("{template} becomes larger than {INSERTED_BYTES_MAX} bytes")]
    TooLarge {
        /// Which template.
        template: String,
    },
}

impl Context {
    /// Declares a dotted name that has this value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.declared.push(name);
        insert(&mut self.values, name, value.into());
        self
    }

    /// Declares a dotted name that may be absent.
    #[must_use]
    pub fn with_optional(mut self, name: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => {
                self.declared.push(name);
                self
            }
        }
    }

    fn known(&self) -> String {
        self.declared.join(", ")
    }

    /// The value, or None if the name is declared and absent.
    fn get(&self, path: &str) -> Result<Option<&Value>, UnknownPath> {
        let found = lookup(&self.values, path);
        let open = |name: &&str| matches!(lookup(&self.values, name), Some(Value::Object(_) | Value::Array(_)) | None);
        let declared = self
            .declared
            .iter()
            .any(|name| path == *name || is_below(name, path) || (is_below(path, name) && open(name)));
        if declared { Ok(found) } else { Err(UnknownPath) }
    }
}

struct UnknownPath;

/// `a.b` is below `a`.
fn is_below(path: &str, ancestor: &str) -> bool {
    path.strip_prefix(ancestor).is_some_and(|rest| rest.starts_with('.'))
}

fn insert(map: &mut Map<String, Value>, name: &str, value: Value) {
    match name.split_once('.') {
        None => {
            map.insert(name.to_owned(), value);
        }
        Some((first, rest)) => {
            let child = map.entry(first).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(child) = child {
                insert(child, rest, value);
            }
        }
    }
}

fn lookup<'a>(map: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut parts = path.split('.');
    let mut value = map.get(parts.next()?)?;
    for part in parts {
        value = match value {
            Value::Object(map) => map.get(part)?,
            Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(value)
}

/// Expands `template`; `name` says in errors which one it is. None: the whole template is one placeholder whose value is absent.
///
/// # Errors
/// [`TemplateError`] names template, place and placeholder.
pub fn expand(name: &str, template: &Value, context: &Context) -> Result<Option<Value>, TemplateError> {
    let mut expansion = Expansion { name, context, path: vec!["$".to_owned()], bytes_left: INSERTED_BYTES_MAX };
    expansion.value(template)
}

/// Paths of the strings in `template` that are exactly one placeholder for one of `names`: where a template puts the identity of what it describes.
#[must_use]
pub fn whole_string_uses(template: &Value, names: &[&str]) -> Vec<Vec<String>> {
    fn collect(value: &Value, names: &[&str], path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        match value {
            Value::String(text) => {
                if let [Part::Placeholder { path: name, .. }] = &parse(text)[..]
                    && names.contains(&name.as_str())
                {
                    found.push(path.clone());
                }
            }
            Value::Object(map) => {
                for (key, value) in map {
                    path.push(key.clone());
                    collect(value, names, path, found);
                    path.pop();
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(template, names, &mut Vec::new(), &mut found);
    found
}

struct Expansion<'a> {
    name: &'a str,
    context: &'a Context,
    path: Vec<String>,
    bytes_left: usize,
}

impl Expansion<'_> {
    fn value(&mut self, value: &Value) -> Result<Option<Value>, TemplateError> {
        match value {
            Value::String(text) => self.string(text),
            Value::Array(items) => {
                let mut expanded = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    self.path.push(format!("[{index}]"));
                    expanded.extend(self.value(item)?);
                    self.path.pop();
                }
                Ok(Some(Value::Array(expanded)))
            }
            Value::Object(map) => {
                let mut expanded = Map::new();
                for (key, value) in map {
                    self.path.push(format!(".{key}"));
                    if let Some((key, value)) = self.property(key, value)? {
                        if expanded.contains_key(&key) {
                            self.path.pop();
                            return Err(self.duplicate(key));
                        }
                        expanded.insert(key, value);
                    }
                    self.path.pop();
                }
                Ok(Some(Value::Object(expanded)))
            }
            scalar => Ok(Some(scalar.clone())),
        }
    }

    fn property(&mut self, key: &str, value: &Value) -> Result<Option<(String, Value)>, TemplateError> {
        let key = match self.string(key)? {
            Some(Value::String(key)) => key,
            Some(value @ (Value::Object(_) | Value::Array(_))) => return Err(self.not_text(key, &value)),
            Some(scalar) => scalar.to_string(),
            None => return Ok(None),
        };
        Ok(self.value(value)?.map(|value| (key, value)))
    }

    fn string(&mut self, text: &str) -> Result<Option<Value>, TemplateError> {
        let parts = parse(text);
        if let [Part::Placeholder { path, default }] = &parts[..] {
            return self.lookup(path, default.as_deref());
        }
        let mut expanded = String::with_capacity(text.len());
        for part in &parts {
            match part {
                Part::Text(text) => expanded.push_str(text),
                Part::Placeholder { path, default } => match self.lookup(path, default.as_deref())? {
                    None | Some(Value::Null) => {}
                    Some(Value::String(text)) => expanded.push_str(&text),
                    Some(value @ (Value::Object(_) | Value::Array(_))) => return Err(self.not_text(path, &value)),
                    Some(scalar) => expanded.push_str(&scalar.to_string()),
                },
            }
        }
        Ok(Some(Value::String(expanded)))
    }

    fn lookup(&mut self, path: &str, default: Option<&str>) -> Result<Option<Value>, TemplateError> {
        let found = match (self.context.get(path), default) {
            (Ok(Some(value)), _) => Some(value.clone()),
            (_, Some(default)) => Some(Value::from(default)),
            (Ok(None), None) => None,
            (Err(UnknownPath), None) => {
                return Err(TemplateError::Unknown {
                    template: self.name.to_owned(),
                    path: self.path.concat(),
                    placeholder: path.to_owned(),
                    known: self.context.known(),
                });
            }
        };
        let bytes = found.as_ref().map_or(0, json_bytes);
        self.bytes_left = self
            .bytes_left
            .checked_sub(bytes)
            .ok_or_else(|| TemplateError::TooLarge { template: self.name.to_owned() })?;
        Ok(found)
    }

    fn not_text(&self, placeholder: &str, _value: &Value) -> TemplateError {
        let placeholder = placeholder.trim_matches(|c: char| matches!(c, '{' | '}') || c.is_whitespace()).to_owned();
        TemplateError::NotText { template: self.name.to_owned(), path: self.path.concat(), placeholder }
    }

    fn duplicate(&self, key: String) -> TemplateError {
        TemplateError::DuplicateKey { template: self.name.to_owned(), path: self.path.concat(), key }
    }
}

/// Size of the value as JSON, without its numbers' exact lengths.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| json_bytes(item) + 1).sum::<usize>(),
        Value::Object(map) => 2 + map.iter().map(|(key, value)| key.len() + 4 + json_bytes(value)).sum::<usize>(),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Placeholder { path: String, default: Option<String> },
}

/// Text as it is, cut at its placeholders; no empty parts.
fn parse(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("{{") {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        match placeholder(rest) {
            Some((part, bytes)) => {
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                }
                parts.push(part);
                rest = &rest[bytes..];
            }
            None => {
                plain.push('{');
                rest = &rest[1..];
            }
        }
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        parts.push(Part::Text(plain));
    }
    parts
}

/// The placeholder at the start of `text`, which begins with two braces, and its length in bytes.
fn placeholder(text: &str) -> Option<(Part, usize)> {
    let inner = text.strip_prefix("{{")?;
    let end = inner.find(|c: char| !is_placeholder_character(c))?;
    if end == 0 || !inner[end..].starts_with("}}") {
        return None;
    }
    let content = inner[..end].trim();
    let (path, default) = match content.split_once(':') {
        Some((path, default)) => (path.trim_end(), Some(default.to_owned())),
        None => (content, None),
    };
    Some((Part::Placeholder { path: path.to_owned(), default }, end + 4))
}

fn is_placeholder_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || c.is_whitespace() || ":-+.,@/()?=*_$".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn context() -> Context {
        Context::default()
            .with("uuid", "b1f4")
            .with("name", "Robot_Cell_3")
            .with_optional("hostname", None::<&str>)
            .with("url.self", "http://git/self")
            .with("url.helm", "http://git/helm")
            .with("values", json!({"a": [1, {"deep": true}], "n": null, "port": 8080}))
    }

    fn expanded(template: Value) -> Result<Option<Value>, TemplateError> {
        expand("HelmChartTemplate x", &template, &context())
    }

    #[test]
    fn placeholders_are_expanded_by_the_rules_of_factory_plus() {
        let cases = [
            ("a string without placeholder stays", json!("plain { } text"), json!("plain { } text")),
            ("a number stays", json!(5), json!(5)),
            ("whole string", json!("{{name}}"), json!("Robot_Cell_3")),
            ("blanks round the path", json!("{{  name\t}}"), json!("Robot_Cell_3")),
            ("embedded", json!("Reader {{name}}, {{uuid}}!"), json!("Reader Robot_Cell_3, b1f4!")),
            ("two placeholders side by side", json!("{{uuid}}{{name}}"), json!("b1f4Robot_Cell_3")),
            ("whole object", json!("{{values}}"), json!({"a": [1, {"deep": true}], "n": null, "port": 8080})),
            ("whole number keeps its type", json!("{{values.port}}"), json!(8080)),
            ("embedded number becomes text", json!("port {{values.port}}"), json!("port 8080")),
            ("blanks outside the braces make it embedded", json!(" {{values.port}}"), json!(" 8080")),
            ("array index", json!("{{values.a.0}}"), json!(1)),
            ("array index and deeper", json!("{{values.a.1.deep}}"), json!(true)),
            ("dotted name", json!("{{url.self}}"), json!("http://git/self")),
            ("parent of dotted names", json!("{{url}}"), json!({"self": "http://git/self", "helm": "http://git/helm"})),
            ("null keeps its type", json!(["{{values.n}}"]), json!([null])),
            ("embedded null is nothing", json!("<{{values.n}}>"), json!("<>")),
            ("default of an absent value", json!("{{hostname:anywhere}}"), json!("anywhere")),
            ("default of an unknown value", json!("{{ who:none }}"), json!("none")),
            ("a default is always text", json!("{{who:5}}"), json!("5")),
            ("a default may hold a colon", json!("{{who:http://x}}"), json!("http://x")),
            ("a default of a present value is not used", json!("{{name:x}}"), json!("Robot_Cell_3")),
            ("absent property vanishes", json!({"node": "{{hostname}}", "x": 1}), json!({"x": 1})),
            ("absent array item vanishes", json!(["{{hostname}}", "{{uuid}}"]), json!(["b1f4"])),
            ("absent embedded is nothing", json!("<{{hostname}}>"), json!("<>")),
            (
                "keys too",
                json!({"{{uuid}}-key": {"{{name}}": "{{uuid}}"}}),
                json!({"b1f4-key": {"Robot_Cell_3": "b1f4"}}),
            ),
            ("a number as key becomes text", json!({"{{values.port}}": 1}), json!({"8080": 1})),
            ("absent key vanishes", json!({"{{hostname}}": 1, "x": 2}), json!({"x": 2})),
            ("inserted values are not templates", json!("{{t:{}}}"), json!("{{t:{}}}")),
            ("quotes make it plain text", json!("{{ include \"x\" . }}"), json!("{{ include \"x\" . }}")),
            ("three braces", json!("{{{uuid}}}"), json!("{b1f4}")),
            ("open braces at the end", json!("x {{uuid"), json!("x {{uuid")),
            ("empty braces", json!("{{}}"), json!("{{}}")),
        ];
        for (what, template, expected) in cases {
            assert_eq!(expanded(template), Ok(Some(expected)), "{what}");
        }
        assert_eq!(expanded(json!("{{hostname}}")), Ok(None));
    }

    #[test]
    fn an_inserted_text_is_not_expanded_again() {
        let context = Context::default().with("name", "{{uuid}}");
        assert_eq!(expand("t", &json!("{{name}} {{name}}"), &context), Ok(Some(json!("{{uuid}} {{uuid}}"))));
    }

    #[test]
    fn an_unknown_placeholder_is_named_with_template_and_place() {
        for (template, path, placeholder) in [
            (json!({"a": {"b": ["x", "{{nmae}}"]}}), "$.a.b[1]", "nmae"),
            (json!("x {{ url.other }} y"), "$", "url.other"),
            (json!({"{{Uuid}}": 1}), "$.{{Uuid}}", "Uuid"),
            (json!("{{name.first}}"), "$", "name.first"),
            (json!("{{ .Values.x }}"), "$", ".Values.x"),
        ] {
            let error = expanded(template).unwrap_err();
            let TemplateError::Unknown { template, path: at, placeholder: which, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!((template.as_str(), at.as_str(), which.as_str()), ("HelmChartTemplate x", path, placeholder));
        }
        let text = expanded(json!("{{nmae}}")).unwrap_err().to_string();
        assert_eq!(
            text,
            "HelmChartTemplate x at $: unknown placeholder {{nmae}}; known are uuid, name, hostname, url.self, url.helm, values"
        );
    }

    #[test]
    fn a_missing_member_of_a_declared_object_is_absent() {
        assert_eq!(expanded(json!({"x": "{{values.no.such}}", "y": "{{values.a.9}}"})), Ok(Some(json!({}))));
    }

    #[test]
    fn an_object_inside_a_text_and_a_key_are_refused() {
        assert!(
            matches!(expanded(json!("x {{values}}")), Err(TemplateError::NotText { placeholder, .. }) if placeholder == "values")
        );
        assert!(
            matches!(expanded(json!({"{{values}}": 1})), Err(TemplateError::NotText { placeholder, .. }) if placeholder == "values")
        );
    }

    #[test]
    fn keys_that_meet_are_refused() {
        let error = expanded(json!({"o": {"{{uuid}}": 1, "b1f4": 2}})).unwrap_err();
        assert_eq!(
            error,
            TemplateError::DuplicateKey {
                template: "HelmChartTemplate x".to_owned(),
                path: "$.o".to_owned(),
                key: "b1f4".to_owned()
            }
        );
    }

    #[test]
    fn a_small_template_cannot_become_a_huge_document() {
        let context = Context::default().with("values", json!("x".repeat(10_000)));
        let template = Value::Array(vec![json!("{{values}}"); 200]);
        assert_eq!(expand("t", &template, &context), Err(TemplateError::TooLarge { template: "t".to_owned() }));
    }

    #[test]
    fn uses_of_a_whole_string_are_found_by_path() {
        let template = json!({"id": "{{ uuid }}", "label": "x {{uuid}}", "o": {"n": "{{name:y}}", "l": ["{{uuid}}"]}});
        assert_eq!(
            whole_string_uses(&template, &["uuid", "name"]),
            [vec!["id".to_owned()], vec!["o".to_owned(), "n".to_owned()]]
        );
    }
}
