//! Pure code: the decisions of a service and the packages below it, which a simulation must be able to run from a seed.
//!
//! Tests inside pure files may do what they like.

use crate::Finding;
use crate::rust_text::{lines_with, split, without_tests};
use crate::tree::SourceFile;

/// What pure code must not say, and what to do instead.
const BANNED: &[(&str, &str)] = &[
    ("async fn", "return an effect and let an adapter wait"),
    ("async move", "return an effect and let an adapter wait"),
    (".await", "return an effect and let an adapter wait"),
    ("Instant::now", "take Now as an argument"),
    ("SystemTime::now", "take Now as an argument"),
    ("Timestamp::now", "take Now as an argument"),
    ("std::net", "sockets and their addresses belong to adapters"),
    ("std::fs", "files belong to adapters"),
    ("std::env", "the environment belongs to config.rs"),
    ("std::process", "processes belong to adapters"),
    ("tokio", "the runtime belongs to adapters and run()"),
    ("rand", "take random numbers as arguments"),
    ("getrandom", "take random numbers as arguments"),
    ("new_v4", "derive the id, or take it as an argument"),
    ("now_v7", "derive the id, or take it as an argument"),
    ("thread::sleep", "offer a deadline instead"),
    ("thread::spawn", "pure code runs where it is called"),
];

/// What the decisions of a service must not say in addition.
const BANNED_IN_DECISIONS: &[(&str, &str)] = &[
    ("HashMap", "iterate a BTreeMap: the order can be observed"),
    ("HashSet", "iterate a BTreeSet: the order can be observed"),
];

/// Source folders of the pure packages. All contracts and protocols are pure.
const PURE_FOLDERS: &[&str] = &[
    "proto/src/",
    "configdb-schema/src/",
    "sparkplug/core/src/",
    "services/libs/join-attestation/src/",
    "services/broker-acl/src/",
    "services/contracts/",
    "services/libs/join-tickets/src/",
    "services/libs/fleet-view/src/",
    "services/libs/access/src/",
    "services/libs/manifests/src/",
];

fn is_decision(path: &str) -> bool {
    let is_in_service = path.starts_with("services/") && path.contains("/src/");
    let rooms = ["state", "reconcile", "event"];
    is_in_service
        && rooms
            .iter()
            .any(|room| path.ends_with(&format!("/src/{room}.rs")) || path.contains(&format!("/src/{room}/")))
}

/// True if the file belongs to a pure package.
#[must_use]
pub fn is_in_pure_package(path: &str) -> bool {
    PURE_FOLDERS.iter().any(|folder| path.starts_with(folder)) && path.contains("/src/")
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Checks one Rust file, if it has to be pure.
#[must_use]
pub fn check(file: &SourceFile) -> Vec<Finding> {
    let decision = is_decision(&file.path);
    if is_test(&file.path) || !(decision || is_in_pure_package(&file.path)) {
        return Vec::new();
    }
    let code = without_tests(&split(&file.text).code);
    let also = if decision { BANNED_IN_DECISIONS } else { &[] };
    let mut findings = Vec::new();
    for (word, instead) in BANNED.iter().chain(also) {
        for line in lines_with(&code, word) {
            findings.push(Finding::at(&file.path, line, format!("pure code says `{word}`: {instead}")));
        }
    }
    findings.sort();
    findings
}

/// Whether the root of a package has the compiler warn of this lint, or refuse it.
fn asks_for(file: &SourceFile, lint: &str) -> bool {
    let attribute = |line: &str| {
        let lints = line.strip_prefix("#![warn(").or_else(|| line.strip_prefix("#![deny("))?;
        Some(lints.strip_suffix(")]")?.split(',').any(|other| other.trim() == lint))
    };
    split(&file.text).code.lines().any(|line| attribute(line.trim()) == Some(true))
}

/// Checks that the root of a pure package asks the compiler for documentation of everything public.
#[must_use]
pub fn check_missing_docs(file: &SourceFile) -> Vec<Finding> {
    let is_root = is_in_pure_package(&file.path) && file.path.ends_with("/src/lib.rs");
    if is_root && !asks_for(file, "missing_docs") {
        return vec![Finding::of(&file.path, "the root of a pure package carries #![warn(missing_docs)]")];
    }
    Vec::new()
}

/// Checks that the root of a package of services, or of the library, has the compiler find what is public and cannot be reached: it would hide what nobody uses.
#[must_use]
pub fn check_reachable(file: &SourceFile) -> Vec<Finding> {
    let is_root = ["services/", "sparkplug/"].iter().any(|folder| file.path.starts_with(folder))
        && file.path.ends_with("/src/lib.rs");
    if is_root && !asks_for(file, "unreachable_pub") {
        return vec![Finding::of(&file.path, "the root of a package carries #![warn(unreachable_pub)]")];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&SourceFile::new(path, text)).len()
    }

    #[test]
    fn each_banned_word_is_found_in_a_state_file() {
        for (word, _) in BANNED.iter().chain(BANNED_IN_DECISIONS) {
            let text = format!("fn f() {{ {word} x }}");
            assert_eq!(count("services/edge-sync/src/state.rs", &text), 1, "{word}");
        }
    }

    #[test]
    fn parts_of_a_state_and_pure_packages_are_checked_and_adapters_are_not() {
        let text = "use std::fs;\n";
        for path in [
            "services/configdb/src/reconcile.rs",
            "services/configdb/src/state/requests.rs",
            "services/contracts/configdb/src/lib.rs",
            "sparkplug/core/src/seq.rs",
            "proto/src/lib.rs",
        ] {
            assert_eq!(count(path, text), 1, "{path}");
        }
        for path in [
            "services/configdb/src/adapters/disk.rs",
            "services/configdb/src/state/tests.rs",
            "sparkplug/core/tests/x.rs",
        ] {
            assert_eq!(count(path, text), 0, "{path}");
        }
    }

    #[test]
    fn tests_comments_and_strings_of_a_pure_file_are_free() {
        let text = "// no tokio here\nconst A: &str = \"rand\";\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        assert_eq!(count("services/edge-sync/src/state.rs", text), 0);
    }

    #[test]
    fn hash_maps_are_free_in_pure_packages_but_not_in_decisions() {
        assert_eq!(count("sparkplug/core/src/alias.rs", "use std::collections::HashMap;"), 0);
        assert_eq!(count("services/edge-sync/src/event.rs", "use std::collections::HashMap;"), 1);
    }

    #[test]
    fn a_root_that_does_not_warn_about_what_cannot_be_reached_is_found() {
        let check = |path, text| check_reachable(&SourceFile::new(path, text)).len();
        assert_eq!(check("services/configdb/src/lib.rs", "//! Doc.\n"), 1);
        assert_eq!(
            check("services/configdb/src/lib.rs", "// #![warn(unreachable_pub)]\n"),
            1,
            "a comment does not count"
        );
        assert_eq!(check("services/configdb/src/lib.rs", "#![warn(missing_docs, unreachable_pub)]\n"), 0);
        assert_eq!(check("services/configdb/src/state.rs", ""), 0);
        assert_eq!(check("tests/e2e/src/lib.rs", ""), 0);
    }

    #[test]
    fn a_pure_root_that_does_not_warn_about_missing_docs_is_found() {
        let check = |path, text| check_missing_docs(&SourceFile::new(path, text)).len();
        assert_eq!(check("proto/src/lib.rs", "//! Doc.\npub mod x;\n"), 1);
        assert_eq!(check("proto/src/lib.rs", "// #![warn(missing_docs)]\n"), 1, "a comment does not count");
        assert_eq!(check("proto/src/lib.rs", "//! Doc.\n#![warn(missing_docs)]\n"), 0);
        assert_eq!(check("services/configdb/src/lib.rs", "pub mod x;\n"), 0);
    }
}
