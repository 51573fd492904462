//! `Cargo.toml` of members and `Cargo.lock`: one version of everything, and no more duplicates than are known.
//!
//! Read line by line: the manifests of this workspace are flat, and a form that this reader does not know is a finding.

use crate::Finding;
use crate::tree::SourceFile;
use std::collections::{BTreeMap, BTreeSet};

/// Checks that a member names no version itself and inherits the workspace's lints.
#[must_use]
pub fn check_member(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut section = String::new();
    let mut inherits_lints = false;
    for (number, line) in file.text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
            if section.contains("dependencies.") {
                let message = format!("write the dependency [{section}] in one line: `name = {{ workspace = true }}`");
                findings.push(Finding::at(&file.path, number + 1, message));
            }
        } else if section.ends_with("dependencies") && !line.is_empty() {
            let inherited = line.replace(' ', "").contains("workspace=true");
            if !inherited || line.contains("version") {
                let message = format!("`{line}`: name the version once, in the root Cargo.toml, and inherit it");
                findings.push(Finding::at(&file.path, number + 1, message));
            }
        } else if section == "lints" && line.replace(' ', "") == "workspace=true" {
            inherits_lints = true;
        }
    }
    if !inherits_lints {
        findings.push(Finding::of(&file.path, "does not inherit the lints: add [lints] workspace = true"));
    }
    findings
}

/// The names of `Cargo.lock` that occur in more than one version, with those versions.
#[must_use]
pub fn duplicates(lock: &str) -> BTreeMap<String, Vec<String>> {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut name = "";
    for line in lock.lines() {
        if let Some(value) = line.strip_prefix("name = ") {
            name = value.trim_matches('"');
        } else if let Some(value) = line.strip_prefix("version = \"") {
            versions.entry(name.to_owned()).or_default().push(value.trim_end_matches('"').to_owned());
        }
    }
    versions.retain(|_, versions| versions.len() > 1);
    versions
}

/// Checks that the duplicates are those of the list, neither more (a second version crept in) nor fewer (the list is old).
#[must_use]
pub fn check_duplicates(lock: &str, list_path: &str, list: &str) -> Vec<Finding> {
    let found = duplicates(lock);
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let allowed: BTreeSet<&str> = lines.filter(|line| !line.is_empty()).collect();
    let more = found.iter().filter(|(name, _)| !allowed.contains(name.as_str()));
    let more = more.map(|(name, versions)| {
        let message =
            format!("{name} comes in the versions {}: agree on one, or add it to {list_path}", versions.join(", "));
        Finding::of("Cargo.lock", message)
    });
    let fewer = allowed.iter().filter(|name| !found.contains_key(**name));
    let fewer =
        fewer.map(|name| Finding::of(list_path, format!("{name} is not a duplicate any more: take it off the list")));
    more.chain(fewer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nversion.workspace = true\n[lints]\nworkspace = true\n[dependencies]\n\
                        serde = { workspace = true, features = [\"rc\"] } # why\nuuid.workspace = true\n";

    fn count(text: &str) -> usize {
        check_member(&SourceFile::new("x/Cargo.toml", text)).len()
    }

    #[test]
    fn versions_in_a_member_are_found_in_every_form() {
        assert_eq!(count(GOOD), 0);
        assert_eq!(count(&format!("{GOOD}rand = \"0.9\"\n")), 1);
        assert_eq!(count(&format!("{GOOD}[dev-dependencies]\nrand = {{ version = \"0.9\" }}\n")), 1);
        assert_eq!(count(&format!("{GOOD}[target.'cfg(unix)'.dependencies]\nrand = {{ git = \"x\" }}\n")), 1);
        assert_eq!(count(&format!("{GOOD}[dependencies.rand]\nversion = \"0.9\"\n")), 1);
    }

    #[test]
    fn a_member_without_the_workspace_lints_is_found() {
        assert_eq!(count("[package]\nname = \"x\"\n"), 1);
    }

    #[test]
    fn duplicates_beyond_the_list_and_entries_without_duplicate_are_found() {
        let lock = "version = 4\n[[package]]\nname = \"rand\"\nversion = \"0.9.0\"\n\n[[package]]\nname = \"rand\"\nversion = \"0.10.0\"\n\
                    \n[[package]]\nname = \"uuid\"\nversion = \"1.0.0\"\n";
        assert!(check_duplicates(lock, "list", "# known\nrand # through x\n").is_empty());
        let findings = check_duplicates(lock, "list", "uuid\n");
        assert_eq!(findings.len(), 2);
        assert!(findings[0].message.starts_with("rand comes in the versions 0.9.0, 0.10.0"), "{}", findings[0]);
        assert!(findings[1].message.starts_with("uuid is not a duplicate"), "{}", findings[1]);
    }
}
