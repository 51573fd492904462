//! Manifests of a directory as Flux's kustomize-controller reads them, and what a Kustomization has applied before. No cluster is known here.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::kubernetes::kinds::Kind;

/// Files beyond this are refused; a cluster's repository has dozens.
const FILES_MAX: usize = 2000;

/// Manifests of a repository are small; a larger file is not a manifest.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Why a directory cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The path is not in the repository.
    #[error("kustomization path not found: {path}")]
    NoPath {
        /// As in the Kustomization.
        path: String,
    },
    #[error("cannot read {file}")]
    Io {
        file: String,
        #[source]
        source: std::io::Error,
    },
    /// No YAML, or no manifest.
    #[error("{file}: {rule}")]
    File {
        file: String,
        /// What is wrong with it.
        rule: String,
    },
    /// Too many files, or one too large.
    #[error("{path}: more than {FILES_MAX} files or a file larger than {FILE_BYTES_MAX} bytes")]
    TooLarge {
        /// As in the Kustomization.
        path: String,
    },
}

/// All objects in YAML and JSON files below a directory, in order of file name. Hidden entries and symbolic links are left out; so is what is
/// not a Kubernetes object but a `kustomization.yaml`, which the simulator does not interpret.
pub fn read(root: &Path, path: &str) -> Result<Vec<Value>, BuildError> {
    let relative = path.trim_start_matches("./").trim_matches('/');
    if relative.split('/').any(|part| part == "..") {
        return Err(BuildError::NoPath { path: path.to_string() });
    }
    let directory = root.join(relative);
    if !directory.is_dir() {
        return Err(BuildError::NoPath { path: path.to_string() });
    }
    let mut files = Vec::new();
    collect(&directory, &mut files)?;
    if files.len() > FILES_MAX || files.iter().any(|(_, bytes)| *bytes > FILE_BYTES_MAX) {
        return Err(BuildError::TooLarge { path: path.to_string() });
    }
    files.sort();
    let mut objects = Vec::new();
    for (file, _) in files {
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        let text = std::fs::read_to_string(&file).map_err(|source| BuildError::Io { file: name.clone(), source })?;
        objects.extend(documents(&name, &text)?);
    }
    Ok(objects)
}

fn collect(directory: &Path, files: &mut Vec<(std::path::PathBuf, u64)>) -> Result<(), BuildError> {
    let fault = |source| BuildError::Io { file: directory.display().to_string(), source };
    for entry in std::fs::read_dir(directory).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let metadata = entry.metadata().map_err(fault)?;
        if name.starts_with('.') || metadata.is_symlink() || files.len() > FILES_MAX {
            continue;
        }
        if metadata.is_dir() {
            collect(&entry.path(), files)?;
        } else if name != "kustomization.yaml" && [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end)) {
            files.push((entry.path(), metadata.len()));
        }
    }
    Ok(())
}

/// The objects of one file. Documents may be separated by `---` and ended by `...`; a List is taken apart.
pub fn documents(file: &str, text: &str) -> Result<Vec<Value>, BuildError> {
    let fault = |rule: String| BuildError::File { file: file.to_string(), rule };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| fault(format!("is not YAML: {error}")))?;
    let mut objects = Vec::new();
    for document in documents {
        match document {
            Value::Null => {}
            Value::Object(ref map) if map.get("kind").and_then(Value::as_str) == Some("List") => {
                objects.extend(map.get("items").and_then(Value::as_array).cloned().unwrap_or_default());
            }
            other => objects.push(other),
        }
    }
    for object in &objects {
        let has = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        if !(has("/apiVersion") && has("/kind") && has("/metadata/name")) {
            return Err(fault("an object lacks apiVersion, kind or metadata.name".to_string()));
        }
    }
    Ok(objects)
}

/// Order of application: what others need comes first.
pub fn stage(object: &Value) -> u8 {
    match object["kind"].as_str() {
        Some("CustomResourceDefinition") => 0,
        Some("Namespace") => 1,
        Some("ClusterRole" | "Role" | "ServiceAccount" | "Secret" | "ConfigMap") => 2,
        _ => 3,
    }
}

/// One entry of a Kustomization's inventory, in Flux's notation `<namespace>_<name>_<group>_<kind>` and version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InventoryEntry {
    pub id: String,
    /// Version of its kind.
    pub version: String,
}

impl InventoryEntry {
    /// The entry of an object.
    pub fn of(kind: &Kind, namespace: &str, name: &str) -> Self {
        // Names of RBAC objects may hold colons, which the notation doubles.
        let name = name.replace(':', "__");
        Self { id: format!("{namespace}_{name}_{}_{}", kind.group, kind.kind), version: kind.version.clone() }
    }

    /// Namespace, name, `apiVersion` and kind.
    pub fn parts(&self) -> Option<(String, String, String, String)> {
        let (rest, kind) = self.id.rsplit_once('_')?;
        let (rest, group) = rest.rsplit_once('_')?;
        let (namespace, name) = rest.split_once('_')?;
        let api_version = if group.is_empty() { self.version.clone() } else { format!("{group}/{}", self.version) };
        Some((namespace.to_string(), name.replace("__", ":"), api_version, kind.to_string()))
    }
}

/// The inventory in a Kustomization's status.
pub fn inventory(kustomization: &Value) -> BTreeSet<InventoryEntry> {
    let entries = kustomization.pointer("/status/inventory/entries").and_then(Value::as_array);
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_string();
    entries.into_iter().flatten().map(|e| InventoryEntry { id: text(e, "id"), version: text(e, "v") }).collect()
}

/// The status form of an inventory.
pub fn inventory_status(entries: &BTreeSet<InventoryEntry>) -> Value {
    json!({ "entries": entries.iter().map(|e| json!({ "id": e.id, "v": e.version })).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::kinds::Kinds;

    #[test]
    fn inventory_entries_name_their_object() {
        let kinds = Kinds::builtin();
        for (group, plural, namespace, name) in [
            ("", "configmaps", "n", "a.b"),
            ("rbac.authorization.k8s.io", "clusterroles", "", "system:x"),
            ("apps", "deployments", "n", "d"),
        ] {
            let kind = kinds.get(group, "v1", plural).unwrap();
            let parts = InventoryEntry::of(kind, namespace, name).parts();
            assert_eq!(parts, Some((namespace.to_string(), name.to_string(), kind.api_version(), kind.kind.clone())));
        }
    }

    #[test]
    fn documents_are_separated_and_lists_taken_apart() {
        let text = "%YAML 1.2\n---\napiVersion: v1\nkind: A\nmetadata: {name: a}\n...\n---\nkind: List\nitems: [{apiVersion: v1, kind: B, metadata: {name: b}}]\n";
        let kinds: Vec<_> = documents("f", text).unwrap().iter().map(|o| o["kind"].clone()).collect();
        assert_eq!(kinds, ["A", "B"]);
        assert!(documents("f", "").unwrap().is_empty());
        for wrong in ["a: [", "kind: A", "apiVersion: v1\nkind: A\nmetadata: {}"] {
            assert!(documents("f", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_directory_is_read_without_what_is_hidden_or_outside() {
        let root = tempfile::tempdir().unwrap();
        let object = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
        for (file, name) in
            [("b/two.yml", "two"), ("a.yaml", "one"), (".git/x.yaml", "no"), ("README.md", "no"), ("c.json.txt", "no")]
        {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, object(name)).unwrap();
        }
        let names = |path: &str| {
            read(root.path(), path).map(|list| {
                list.iter().map(|o| o["metadata"]["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
            })
        };
        assert_eq!(names("./").unwrap(), ["one", "two"]);
        assert_eq!(names("./b").unwrap(), ["two"]);
        assert!(matches!(names("../"), Err(BuildError::NoPath { .. })));
        assert!(matches!(names("./absent"), Err(BuildError::NoPath { .. })));
    }
}
