//! The committed custom resource definitions are those that the code has, so that a change of them is seen in review.

use krb_keys::adapters::resources::custom_resource_definitions;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../helm/edge-cluster/crds");
const HEADER: &str = "# Written by `SPARKFLEET_WRITE_CRDS=1 cargo test -p krb-keys --test crd`; do not edit.\n";

#[test]
fn the_committed_definitions_are_the_generated_ones() {
    for (definition, file) in custom_resource_definitions().into_iter().zip(["kerberos-keys.yaml", "localsecrets.yaml"])
    {
        let generated = format!("{HEADER}{}", serde_saphyr::to_string(&definition).unwrap());
        let path = format!("{FOLDER}/{file}");
        if std::env::var_os("SPARKFLEET_WRITE_CRDS").is_some() {
            std::fs::write(&path, &generated).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(committed, generated, "{path} is old; its first line says how to write it");
    }
}

#[test]
fn the_names_are_those_of_factory_plus() {
    let names = custom_resource_definitions().map(|definition| definition.metadata.name.unwrap());
    assert_eq!(names, ["kerberos-keys.factoryplus.app.amrc.co.uk", "localsecrets.factoryplus.app.amrc.co.uk"]);
}
