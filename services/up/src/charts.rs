//! The charts of `helm/` that clusters install: `up` needs no other files, so its shared repository begins with those of the program.

use std::collections::BTreeMap;

/// Each file by its path in `helm/`.
macro_rules! files {
    ($($path:literal,)*) => { [$(($path, include_bytes!(concat!("../../../helm/", $path)).as_slice()),)*] };
}

const FILES: [(&str, &[u8]); 19] = files![
    "edge-agent/Chart.yaml",
    "edge-agent/templates/_mqtt.tpl",
    "edge-agent/templates/agent.yaml",
    "edge-agent/values.yaml",
    "edge-cluster/Chart.yaml",
    "edge-cluster/crds/kerberos-keys.yaml",
    "edge-cluster/crds/localsecrets.yaml",
    "edge-cluster/crds/sparkplugnodes.yaml",
    "edge-cluster/templates/_mqtt.tpl",
    "edge-cluster/templates/agents.yaml",
    "edge-cluster/templates/configmap.yaml",
    "edge-cluster/templates/deployment.yaml",
    "edge-cluster/templates/join-service.yaml",
    "edge-cluster/templates/krb-keys.yaml",
    "edge-cluster/templates/policies.yaml",
    "edge-cluster/templates/rbac.yaml",
    "edge-cluster/templates/sealed-secrets.yaml",
    "edge-cluster/values.schema.json",
    "edge-cluster/values.yaml",
];

/// The files of all charts, by their paths in the repository.
pub(crate) fn shipped() -> BTreeMap<String, Vec<u8>> {
    FILES.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn collect(directory: &Path, root: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, root, found);
            } else {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                found.insert(name, std::fs::read(path).unwrap());
            }
        }
    }

    #[test]
    fn no_file_of_the_charts_is_missing() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../helm");
        let mut found = BTreeMap::new();
        for chart in ["edge-agent", "edge-cluster"] {
            collect(&root.join(chart), &root, &mut found);
        }
        assert_eq!(shipped(), found);
    }
}
