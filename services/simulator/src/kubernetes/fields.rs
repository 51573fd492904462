//! Field paths and sets of them: who owns what in an object. Knows how lists are merged: as one value, as a set, or by key. It knows this from a
//! custom resource's schema or, for built-in kinds, from the names of their fields. Converts sets to and from the `fieldsV1` of `metadata.managedFields`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// A field of an object.
    Field(String),
    /// An item of a list that is merged by key; the JSON text of its keys, sorted.
    Key(String),
    /// An item of a list that is a set; its JSON text.
    Value(String),
}

/// A path from the root of an object.
pub type Path = Vec<Element>;

/// A set of owned paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet(pub BTreeSet<Path>);

/// How a list is merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    /// The list is one value.
    Atomic,
    /// Items are scalars, each at most once.
    Set,
    /// Items are objects with these fields as their key.
    Map(Vec<String>),
}

/// What is known of the type at a path.
#[derive(Debug, Clone, Copy)]
pub enum Shape<'a> {
    /// A built-in type, or `metadata`: known by the name of the field.
    Builtin(&'a str),
    /// A node of a custom resource's schema.
    Schema(&'a Value),
    /// Inside something that no schema describes.
    Free,
}

impl<'a> Shape<'a> {
    /// The root of an object of a kind with this schema.
    pub fn root(schema: Option<&'a Value>) -> Self {
        schema.map_or(Shape::Builtin(""), Shape::Schema)
    }

    /// The type of a field.
    pub fn field(self, name: &'a str, at_root: bool) -> Shape<'a> {
        if at_root && name == "metadata" {
            return Shape::Builtin("metadata");
        }
        match self {
            Shape::Builtin(_) => Shape::Builtin(name),
            Shape::Schema(node) => {
                let known = node.pointer("/properties").and_then(|p| p.get(name));
                known
                    .or_else(|| node.get("additionalProperties"))
                    .filter(|n| n.is_object())
                    .map_or(Shape::Free, Shape::Schema)
            }
            Shape::Free => Shape::Free,
        }
    }

    /// The type of a list's items.
    pub fn item(self) -> Shape<'a> {
        match self {
            Shape::Builtin(_) => Shape::Builtin(""),
            Shape::Schema(node) => node.get("items").map_or(Shape::Free, Shape::Schema),
            Shape::Free => Shape::Free,
        }
    }

    fn is_atomic_map(self) -> bool {
        match self {
            Shape::Schema(node) => node["x-kubernetes-map-type"] == "atomic",
            Shape::Builtin(field) => {
                matches!(field, "selector" | "resources" | "secretKeyRef" | "configMapKeyRef" | "fieldRef")
            }
            Shape::Free => false,
        }
    }

    /// How a list of this type is merged.
    pub fn list(self) -> ListKind {
        let keys = |names: &[&str]| ListKind::Map(names.iter().map(|n| n.to_string()).collect());
        match self {
            Shape::Free => ListKind::Atomic,
            Shape::Schema(node) => match node["x-kubernetes-list-type"].as_str() {
                Some("set") => ListKind::Set,
                Some("map") => {
                    let names = node["x-kubernetes-list-map-keys"].as_array();
                    ListKind::Map(names.into_iter().flatten().filter_map(|k| k.as_str().map(str::to_string)).collect())
                }
                _ => ListKind::Atomic,
            },
            Shape::Builtin(field) => match field {
                "finalizers" => ListKind::Set,
                "ownerReferences" => keys(&["uid"]),
                "conditions" | "addresses" => keys(&["type"]),
                "containers" | "initContainers" | "env" | "volumes" | "imagePullSecrets" => keys(&["name"]),
                "volumeMounts" => keys(&["mountPath"]),
                _ => ListKind::Atomic,
            },
        }
    }
}

/// The key of a list item; none if the item lacks one of the fields.
pub fn item_key(item: &Value, keys: &[String]) -> Option<Element> {
    let mut sorted: Vec<&String> = keys.iter().collect();
    sorted.sort();
    let mut key = Map::new();
    for name in sorted {
        key.insert(name.clone(), item.get(name)?.clone());
    }
    Some(Element::Key(Value::Object(key).to_string()))
}

impl FieldSet {
    /// The leaves of an object: scalars, lists that are one value, empty containers, and the items of keyed lists.
    pub fn of(object: &Value, schema: Option<&Value>) -> Self {
        let mut set = Self::default();
        set.collect(object, Shape::root(schema), &mut Vec::new());
        set
    }

    fn collect(&mut self, value: &Value, shape: Shape<'_>, path: &mut Path) {
        match value {
            Value::Object(map) if !map.is_empty() && !shape.is_atomic_map() => {
                for (name, child) in map {
                    let at_root = path.is_empty();
                    path.push(Element::Field(name.clone()));
                    self.collect(child, shape.field(name, at_root), path);
                    path.pop();
                }
            }
            Value::Array(items) if !items.is_empty() => match shape.list() {
                ListKind::Set if items.iter().all(|i| !i.is_object() && !i.is_array()) => {
                    for item in items {
                        let mut leaf = path.clone();
                        leaf.push(Element::Value(item.to_string()));
                        self.0.insert(leaf);
                    }
                }
                ListKind::Map(keys) if items.iter().all(|i| item_key(i, &keys).is_some()) => {
                    for item in items {
                        let Some(key) = item_key(item, &keys) else { continue };
                        path.push(key);
                        self.0.insert(path.clone());
                        self.collect(item, shape.item(), path);
                        path.pop();
                    }
                }
                _ => {
                    self.0.insert(path.clone());
                }
            },
            _ => {
                self.0.insert(path.clone());
            }
        }
    }

    /// Whether a path, or one below it, is in the set.
    pub fn touches(&self, path: &Path) -> bool {
        self.0.iter().any(|own| own.starts_with(path))
    }

    /// Takes away a path and everything below it.
    pub fn remove_tree(&mut self, path: &Path) {
        self.0.retain(|own| !own.starts_with(path));
    }

    /// Whether nothing is owned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Only the paths for which the predicate holds.
    pub fn filtered(mut self, keep: impl Fn(&Path) -> bool) -> Self {
        self.0.retain(keep);
        self
    }

    /// The `fieldsV1` form.
    pub fn to_fields_v1(&self) -> Value {
        let mut root = Node::default();
        for path in &self.0 {
            let mut node = &mut root;
            for element in path {
                node = node.children.entry(element.clone()).or_default();
            }
            node.member = true;
        }
        root.json()
    }

    /// Reads the `fieldsV1` form; what is not understood is left out.
    pub fn from_fields_v1(fields: &Value) -> Self {
        let mut set = Self::default();
        read_fields(fields, &mut Vec::new(), &mut set.0);
        set
    }
}

#[derive(Default)]
struct Node {
    member: bool,
    children: BTreeMap<Element, Node>,
}

impl Node {
    fn json(&self) -> Value {
        let mut map = Map::new();
        if self.member && !self.children.is_empty() {
            map.insert(".".to_string(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            let key = match element {
                Element::Field(name) => format!("f:{name}"),
                Element::Key(keys) => format!("k:{keys}"),
                Element::Value(value) => format!("v:{value}"),
            };
            map.insert(key, child.json());
        }
        Value::Object(map)
    }
}

fn read_fields(node: &Value, path: &mut Path, out: &mut BTreeSet<Path>) {
    let Some(map) = node.as_object() else { return };
    if (map.is_empty() || map.contains_key(".")) && !path.is_empty() {
        out.insert(path.clone());
    }
    for (key, child) in map {
        let element = match key.split_once(':') {
            Some(("f", name)) => Element::Field(name.to_string()),
            Some(("k", keys)) => Element::Key(keys.to_string()),
            Some(("v", value)) => Element::Value(value.to_string()),
            _ => continue,
        };
        path.push(element);
        read_fields(child, path, out);
        path.pop();
    }
}

/// Dotted text of a path, as conflict messages show it: `.spec.containers[name="a"].image`.
pub fn path_text(path: &Path) -> String {
    let mut text = String::new();
    for element in path {
        match element {
            Element::Field(name) => {
                text.push('.');
                text.push_str(name);
            }
            Element::Key(keys) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let parts: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                text.push_str(&format!("[{}]", parts.join(",")));
            }
            Element::Value(value) => text.push_str(&format!("[={value}]")),
        }
    }
    text
}

fn is_item(item: &Value, element: &Element) -> bool {
    match element {
        Element::Field(_) => false,
        Element::Value(text) => serde_json::from_str::<Value>(text).is_ok_and(|value| value == *item),
        Element::Key(text) => {
            let keys: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
            !keys.is_empty() && keys.iter().all(|(name, value)| item.get(name) == Some(value))
        }
    }
}

/// The value at a path.
pub fn value_at<'a>(object: &'a Value, path: &[Element]) -> Option<&'a Value> {
    let mut value = object;
    for element in path {
        value = match element {
            Element::Field(name) => value.get(name)?,
            other => value.as_array()?.iter().find(|item| is_item(item, other))?,
        };
    }
    Some(value)
}

/// Removes the value at a path and the containers that thereby become empty, as long as `keep_empty` does not hold for them.
pub fn remove_at(object: &mut Value, path: &[Element], keep_empty: &dyn Fn(&[Element]) -> bool) {
    fn step(value: &mut Value, path: &[Element], at: usize, keep_empty: &dyn Fn(&[Element]) -> bool) {
        let Some(element) = path.get(at) else { return };
        let is_last = at + 1 == path.len();
        let child_is_gone = |child: &Value| {
            let empty = child.as_object().is_some_and(Map::is_empty) || child.as_array().is_some_and(Vec::is_empty);
            empty && !keep_empty(&path[..=at])
        };
        match (element, value) {
            (Element::Field(name), Value::Object(map)) => {
                if is_last {
                    map.shift_remove(name);
                } else if let Some(child) = map.get_mut(name) {
                    step(child, path, at + 1, keep_empty);
                    if child_is_gone(child) {
                        map.shift_remove(name);
                    }
                }
            }
            (Element::Field(_), _) => {}
            (other, Value::Array(items)) => {
                if is_last {
                    items.retain(|item| !is_item(item, other));
                } else if let Some(index) = items.iter().position(|item| is_item(item, other)) {
                    step(&mut items[index], path, at + 1, keep_empty);
                    if child_is_gone(&items[index]) {
                        items.remove(index);
                    }
                }
            }
            _ => {}
        }
    }
    step(object, path, 0, keep_empty);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn field_sets_survive_the_fields_v1_form() {
        let object = json!({
            "metadata": {"labels": {"a": "1"}, "finalizers": ["f1", "f2"]},
            "spec": {"containers": [{"name": "c", "image": "i", "args": ["x"]}], "empty": {}, "replicas": 1}
        });
        let set = FieldSet::of(&object, None);
        let fields = set.to_fields_v1();
        assert_eq!(
            fields,
            json!({
                "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"f1\"": {}, "v:\"f2\"": {}}},
                "f:spec": {
                    "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:args": {}}},
                    "f:empty": {}, "f:replicas": {}
                }
            })
        );
        assert_eq!(FieldSet::from_fields_v1(&fields), set);
    }

    #[test]
    fn lists_of_custom_resources_are_atomic_unless_their_schema_says_otherwise() {
        let schema = json!({"properties": {"spec": {"properties": {
            "plain": {"type": "array", "items": {"type": "object"}},
            "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"], "items": {"type": "object"}}
        }}}});
        let object =
            json!({"spec": {"plain": [{"name": "a"}], "keyed": [{"id": 1, "v": 2}], "other": [{"name": "b"}]}});
        let texts: Vec<String> = FieldSet::of(&object, Some(&schema)).0.iter().map(path_text).collect();
        assert_eq!(
            texts,
            [".spec.keyed[id=1]", ".spec.keyed[id=1].id", ".spec.keyed[id=1].v", ".spec.other", ".spec.plain"]
        );
    }

    #[test]
    fn removing_the_last_child_removes_the_container_unless_it_is_kept() {
        let path = |names: &[&str]| names.iter().map(|n| Element::Field(n.to_string())).collect::<Path>();
        let mut object = json!({"a": {"b": {"c": 1}}, "d": 2});
        remove_at(&mut object, &path(&["a", "b", "c"]), &|_| false);
        assert_eq!(object, json!({"d": 2}));
        let mut object = json!({"a": {"b": {"c": 1}}});
        remove_at(&mut object, &path(&["a", "b", "c"]), &|p| p.len() == 1);
        assert_eq!(object, json!({"a": {}}));
    }
}
