//! What is shipped beside the program says what the program says: configuration files, the page of configuration keys, the example
//! factory, the charts' values. With `SPARKFLEET_WRITE_DOCS=1` in the environment the generated page is written instead of compared.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use std::ffi::OsString;
use std::path::PathBuf;

use configdb_contract::dump::Dump;
use service_runtime::{config, keys};
use sparkfleet::service::services;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn generated(file: &str, content: &str) {
    let path = root().join(file);
    if std::env::var_os("SPARKFLEET_WRITE_DOCS").is_some() {
        std::fs::write(path, content).unwrap();
    } else {
        let shipped = std::fs::read_to_string(path).unwrap_or_default();
        assert!(shipped == content, "{file} is not what the program says; run this test with SPARKFLEET_WRITE_DOCS=1");
    }
}

#[test]
fn the_page_of_configuration_keys_lists_every_key() {
    let shipped = std::fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let introduction = shipped.split("\n## ").next().unwrap().trim_end();
    let tables = services().into_iter().map(|(service, keys)| format!("## {service}\n\n{}", keys::markdown(&keys)));
    // A program without the feature does not know the keys of krb-keys: that chapter is kept as it is.
    let chapter = "\n## krb-keys\n";
    let kept = shipped.split_once(chapter).filter(|_| !cfg!(feature = "kerberos"));
    let kept = kept.map(|(_, text)| format!("{chapter}{text}")).unwrap_or_default();
    let tables = tables.collect::<Vec<_>>().join("\n");
    generated("docs/configuration.md", &format!("{introduction}\n\n{tables}{kept}"));
}

#[test]
fn the_configuration_files_for_compose_are_valid() {
    let none = || std::iter::empty::<(OsString, OsString)>();
    let file = |name: &str| root().join("compose").join(name);
    config::load_with::<configdb::Config, _>("configdb", &[], Some(&file("configdb.toml")), none()).unwrap();
    let manager = file("cluster-manager.toml");
    config::load_with::<cluster_manager::Config, _>("cluster-manager", &[], Some(&manager), none()).unwrap();
    config::load_with::<identity::Config, _>("identity", &[], Some(&file("identity.toml")), none()).unwrap();
    config::load_with::<git_server::Config, _>("git-server", &[], Some(&file("git-server.toml")), none()).unwrap();
    config::load_with::<edge_monitor::Config, _>("edge-monitor", &[], Some(&file("monitor.toml")), none()).unwrap();
    let console = config::load_with::<console::Config, _>("console", &[], Some(&file("console.toml")), none()).unwrap();
    console.validate(1).unwrap();
    let compose = std::fs::read_to_string(file("docker-compose.yaml")).unwrap();
    let compose: serde_json::Value = serde_saphyr::from_str(&compose).unwrap();
    let services = compose["services"].as_object().unwrap();
    for (name, service) in services.iter().filter(|(name, _)| *name != "mosquitto") {
        let mounts: Vec<&str> = service["volumes"].as_array().unwrap().iter().map(|at| at.as_str().unwrap()).collect();
        let configuration = service["command"][2].as_str().unwrap();
        let (path, _) = mounts.iter().find_map(|at| at.strip_suffix(":ro")?.split_once(':')).unwrap();
        assert!(file(path).is_file() && configuration.ends_with(path.trim_start_matches('.')), "{name}: {path}");
        let (volume, _) = mounts.iter().find_map(|at| at.split_once(":/var/")).unwrap();
        assert!(compose["volumes"].as_object().unwrap().contains_key(volume), "{name}: {volume}");
    }
    let reached = &services["console"]["ports"][0];
    assert_eq!(reached, "127.0.0.1:8482:8482", "it has no login");
}

#[test]
fn the_example_factory_is_a_dump_and_the_charts_values_are_yaml() {
    Dump::parse(&std::fs::read_to_string(root().join("examples/factory.yaml")).unwrap()).unwrap();
    for chart in ["edge-cluster", "sparkfleet"] {
        for file in ["Chart.yaml", "values.yaml"] {
            let text = std::fs::read_to_string(root().join("helm").join(chart).join(file)).unwrap();
            let value: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
            assert!(value.is_object(), "helm/{chart}/{file}");
        }
    }
    let compose = std::fs::read_to_string(root().join("compose/docker-compose.yaml")).unwrap();
    let compose: serde_json::Value = serde_saphyr::from_str(&compose).unwrap();
    assert!(compose["services"]["configdb"].is_object());
}

/// Images of other projects that our charts ask for.
const IMAGES_OF_OTHERS: [&str; 1] = ["bitnami/sealed-secrets-controller"];

/// The repositories of images in a chart's values.
fn images(value: &serde_json::Value) -> Vec<&str> {
    let below = value.as_object().into_iter().flat_map(serde_json::Map::values).flat_map(images);
    value.pointer("/image/repository").and_then(serde_json::Value::as_str).into_iter().chain(below).collect()
}

#[test]
fn the_dockerfile_makes_every_image_that_a_chart_asks_for() {
    let dockerfile = std::fs::read_to_string(root().join("compose/Dockerfile")).unwrap();
    let stages: Vec<&str> = dockerfile.lines().filter(|line| line.starts_with("FROM ")).collect();
    assert_eq!(
        stages.last(),
        Some(&"FROM central-services"),
        "what is built without --target is the image of the central services"
    );
    for chart in ["edge-agent", "edge-cluster", "sparkfleet"] {
        let text = std::fs::read_to_string(root().join("helm").join(chart).join("values.yaml")).unwrap();
        let value: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        let images = images(&value);
        assert!(!images.is_empty());
        for image in images.into_iter().filter(|image| !IMAGES_OF_OTHERS.contains(image)) {
            let is_made = match image.strip_prefix("sparkfleet-") {
                Some(target) => stages.iter().any(|stage| stage.ends_with(&format!(" AS {target}"))),
                None => image == "sparkfleet",
            };
            assert!(is_made, "helm/{chart}: {image}");
        }
    }
    let (_, kerberos) = dockerfile.split_once(" AS kerberos\n").unwrap();
    let (kerberos, _) = kerberos.split_once("\nFROM ").unwrap();
    assert!(kerberos.contains("krb5-user") && kerberos.contains("--from=build-kerberos"), "{kerberos}");
    assert!(dockerfile.contains("-p sparkfleet --features kerberos"), "the feature of sparkfleet");
}
