//! The rules of `tidy`, applied to this repository.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::OnceLock;
use tidy::tree::{SourceFile, Tree, root};
use tidy::{
    Finding, arrows, dashboard, docs, functions, manifests, named_tests, purity, ratchet, reference, requirements,
    rooms, words,
};

/// The names of dependencies that may come in more than one version.
const DUPLICATES: &str = "tests/tidy/duplicates.txt";

fn tree() -> &'static Tree {
    static TREE: OnceLock<Tree> = OnceLock::new();
    TREE.get_or_init(|| Tree::read(&root()).unwrap())
}

/// What cargo knows about the packages that are built here. Other platforms' packages need not be downloaded.
fn metadata() -> &'static Metadata {
    static METADATA: OnceLock<Metadata> = OnceLock::new();
    METADATA.get_or_init(|| {
        let version = Command::new("rustc").arg("-vV").output().unwrap();
        let version = String::from_utf8(version.stdout).unwrap();
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
        let platform = ["--filter-platform".to_owned(), host.to_owned()];
        MetadataCommand::new().current_dir(root()).other_options(platform).exec().unwrap()
    })
}

#[track_caller]
fn assert_none(findings: impl IntoIterator<Item = Finding>) {
    let findings: BTreeSet<String> = findings.into_iter().map(|finding| finding.to_string()).collect();
    let list: Vec<_> = findings.into_iter().collect();
    assert!(list.is_empty(), "{} findings:\n{}\n", list.len(), list.join("\n"));
}

fn in_every_rust_file(check: fn(&SourceFile) -> Vec<Finding>) {
    let files: Vec<_> = tree().with_extension("rs").collect();
    assert!(files.len() > 20, "only {} Rust files were read", files.len());
    assert_none(files.into_iter().flat_map(check));
}

#[test]
fn every_import_follows_an_arrow() {
    let packages: Vec<String> =
        metadata().workspace_packages().iter().map(|package| package.name.to_string()).collect();
    assert!(packages.len() > 10, "only {packages:?} were read");
    let mut imports = Vec::new();
    for package in metadata().workspace_packages() {
        for dependency in package.dependencies.iter().filter(|dependency| packages.contains(&dependency.name)) {
            let (from, to) = (package.name.to_string(), dependency.name.clone());
            imports.push(arrows::Import { from, to, dev: dependency.kind == DependencyKind::Development });
        }
    }
    assert_none(arrows::check_imports(&packages, &imports));
}

#[test]
fn what_only_falls_has_not_risen() {
    let counts = ratchet::counts(tree());
    assert!(counts.len() > 50, "only {} things were counted", counts.len());
    assert_none(ratchet::check(&counts, tree().text(ratchet::FILE).unwrap()));
}

#[test]
fn pure_packages_depend_on_nothing_impure() {
    let metadata = metadata();
    let names: BTreeMap<&PackageId, String> =
        metadata.packages.iter().map(|package| (&package.id, package.name.to_string())).collect();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in &metadata.resolve.as_ref().unwrap().nodes {
        let normal =
            node.deps.iter().filter(|dep| dep.dep_kinds.iter().any(|info| info.kind == DependencyKind::Normal));
        edges.entry(names[&node.id].clone()).or_default().extend(normal.map(|dep| names[&dep.pkg].clone()));
    }
    // A graph in which the package that does I/O does not reach tokio was not read properly.
    assert!(!arrows::check_closure("sparkplug-mqtt", &edges).is_empty());
    let pure: Vec<String> = names.into_values().filter(|name| arrows::is_pure(name)).collect();
    let closures = pure.iter().flat_map(|name| arrows::check_closure(name, &edges));
    let choices = pure.iter().flat_map(|name| arrows::check_manifest_of_pure(name, &edges[name]));
    assert_none(closures.chain(choices));
}

#[test]
fn pure_code_has_no_async_clock_socket_file_or_randomness() {
    in_every_rust_file(purity::check);
}

#[test]
fn pure_packages_ask_for_complete_documentation() {
    in_every_rust_file(purity::check_missing_docs);
}

#[test]
fn packages_ask_the_compiler_for_what_cannot_be_reached() {
    in_every_rust_file(purity::check_reachable);
}

#[test]
fn every_service_has_the_same_rooms() {
    let services = rooms::services(&tree().paths);
    assert!(services.len() > 3, "only {services:?} were found");
    assert_none(services.iter().flat_map(|service| {
        let lib = tree().text(&format!("services/{service}/src/lib.rs"));
        rooms::check(service, &tree().paths, lib)
    }));
}

#[test]
fn links_and_paths_in_markdown_resolve() {
    let files: Vec<_> = tree().with_extension("md").collect();
    let anchors = files.iter().map(|file| (file.path.clone(), docs::anchors(&file.text))).collect();
    assert_none(files.iter().flat_map(|file| docs::check_links(file, &tree().paths, &anchors)));
}

#[test]
fn tests_that_tables_name_exist() {
    let tests = named_tests::names(tree().with_extension("rs"));
    assert!(tests.len() > 500, "only {} tests were read", tests.len());
    assert_none(tree().with_extension("md").flat_map(|file| named_tests::check(file, &tests)));
}

#[test]
fn no_name_says_nothing() {
    assert_none(tree().paths.iter().flat_map(|path| words::check_path(path)));
}

#[test]
fn no_mark_is_without_owner_and_no_code_is_commented_out() {
    in_every_rust_file(words::check_rust);
}

#[test]
fn long_functions_say_why() {
    in_every_rust_file(functions::check);
}

#[test]
fn files_say_what_they_know() {
    in_every_rust_file(docs::check_module_doc);
}

#[test]
fn decisions_are_numbered_without_gap() {
    assert_none(docs::check_decisions(&tree().paths));
}

#[test]
fn the_changelog_has_an_unreleased_section() {
    assert_none(docs::check_changelog(tree().text("CHANGELOG.md")));
}

#[test]
fn versions_are_named_only_in_the_root_manifest() {
    let members: Vec<_> = tree().with_extension("toml").filter(|file| is_member(file)).collect();
    assert!(members.len() > 10, "only {} manifests were read", members.len());
    assert_none(members.into_iter().flat_map(manifests::check_member));
}

fn is_member(file: &SourceFile) -> bool {
    let path = root().canonicalize().unwrap().join(&file.path);
    let mut packages = metadata().workspace_packages().into_iter();
    file.name() == "Cargo.toml" && packages.any(|package| package.manifest_path.as_std_path() == path)
}

#[test]
fn duplicate_dependencies_are_the_known_ones() {
    let list = tree().text(DUPLICATES).unwrap();
    assert_none(manifests::check_duplicates(tree().text("Cargo.lock").unwrap(), DUPLICATES, list));
}

#[test]
fn cited_requirements_exist() {
    let is_table = |file: &SourceFile| ["tsv", "csv", "txt"].iter().any(|extension| file.is(extension));
    let is_list = |file: &&SourceFile| {
        file.path.starts_with("tests/tck/") && is_table(file) && !requirements::ids(&file.text).is_empty()
    };
    let lists: Vec<_> = tree().files.iter().filter(is_list).collect();
    if lists.is_empty() {
        // Nothing to compare with: tests/tck commits the list together with its first case.
        return;
    }
    let known = requirements::known(&lists);
    let citing = tree().with_extension("rs").filter(|file| !file.path.starts_with("tests/tidy/"));
    assert_none(citing.flat_map(|file| requirements::check(file, &known)));
}

#[test]
fn every_metric_name_is_in_the_reference() {
    let pages =
        tree().with_extension("md").filter(|file| ["docs/reference.md", "docs/metrics.md"].contains(&&*file.path));
    let reference: String = pages.map(|file| &*file.text).collect();
    let contracts: Vec<_> = tree()
        .with_extension("rs")
        .filter(|file| file.path.starts_with("services/contracts/") && file.path.ends_with("/src/names.rs"))
        .collect();
    assert!(contracts.len() >= 4, "only {} contracts were read", contracts.len());
    assert_none(contracts.into_iter().flat_map(|file| reference::check(file, &reference)));
}

#[test]
fn the_dashboard_asks_for_numbers_that_services_give() {
    let place = "examples/grafana/dashboard.json";
    let text = std::fs::read_to_string(root().join(place)).unwrap();
    assert!(dashboard::names(&text).len() > 10, "few queries were read");
    let of_services = tree().with_extension("rs").filter(|file| file.path.starts_with("services/"));
    assert_none(dashboard::check(place, &text, &of_services.map(|file| &*file.text).collect::<Vec<_>>()));
}
