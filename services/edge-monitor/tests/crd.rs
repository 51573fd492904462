//! The committed custom resource definition is the one that the code has, so that a change of it is seen in review.

use edge_monitor::adapters::kubernetes::custom_resource_definition;

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../helm/edge-cluster/crds/sparkplugnodes.yaml");
const HEADER: &str = "# Written by `SPARKFLEET_WRITE_CRDS=1 cargo test -p edge-monitor --test crd`; do not edit.\n";

#[test]
fn the_committed_definition_of_sparkplug_nodes_is_the_generated_one() {
    let generated = format!("{HEADER}{}", serde_saphyr::to_string(&custom_resource_definition()).unwrap());
    if std::env::var_os("SPARKFLEET_WRITE_CRDS").is_some() {
        std::fs::write(COMMITTED, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(COMMITTED).unwrap();
    assert_eq!(committed, generated, "{COMMITTED} is old; its first line says how to write it");
}

#[test]
fn the_definition_demands_exactly_one_of_uuid_and_address() {
    let definition = serde_json::to_value(custom_resource_definition()).unwrap();
    assert_eq!(definition["metadata"]["name"], "sparkplugnodes.factoryplus.app.amrc.co.uk");
    let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let rules: Vec<&str> = spec["x-kubernetes-validations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| rule["rule"].as_str().unwrap())
        .collect();
    assert_eq!(
        rules,
        [
            "has(self.uuid) != has(self.address)",
            "!(has(self.edgeAgent) && self.edgeAgent) || has(self.uuid)",
            "!has(self.secrets) || (has(self.edgeAgent) && self.edgeAgent)",
        ]
    );
}
