//! Every service has the same rooms, so that a reader who knows one knows all.

use crate::Finding;
use crate::rust_text::split;
use std::collections::BTreeSet;

/// The files each service has, or whose absence `lib.rs` explains.
const ROOMS: &[&str] = &["config.rs", "event.rs", "state.rs", "reconcile.rs"];

/// Folders of `services/` that hold a package and are not a service. Contracts and libraries have folders of their own below it.
const NOT_SERVICES: &[&str] = &["broker-acl", "cli", "up", "sparkfleet", "edge"];

/// The names of the services among the paths of the repository.
#[must_use]
pub fn services(paths: &BTreeSet<String>) -> Vec<String> {
    let folders = paths.iter().filter_map(|path| path.strip_prefix("services/")?.strip_suffix("/src"));
    folders.filter(|name| !name.contains('/') && !NOT_SERVICES.contains(name)).map(str::to_owned).collect()
}

/// Checks one service: `lib_text` is its `lib.rs`, if there is one.
#[must_use]
pub fn check(service: &str, paths: &BTreeSet<String>, lib_text: Option<&str>) -> Vec<Finding> {
    let folder = format!("services/{service}/src");
    let Some(lib) = lib_text else {
        return vec![Finding::of(&folder, "has no lib.rs")];
    };
    let comments = split(lib).comments;
    let doc: String = comments.lines().filter(|line| line.trim_start().starts_with("//!")).collect();
    let absent = ROOMS.iter().filter(|room| !paths.contains(&format!("{folder}/{room}")));
    let unexplained = absent.filter(|room| !doc.contains(&format!("`{room}`")));
    unexplained
        .map(|room| {
            Finding::of(
                &folder,
                format!("has no {room}, and the module doc of lib.rs does not say why (name `{room}`)"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_missing_room_is_found_unless_lib_rs_names_it() {
        let paths = paths(&["services/x/src/config.rs", "services/x/src/event.rs", "services/x/src/state.rs"]);
        assert_eq!(check("x", &paths, Some("//! The x.\n")).len(), 1);
        assert_eq!(check("x", &paths, Some("// no `reconcile.rs`\n")).len(), 1, "only the module doc counts");
        assert!(check("x", &paths, Some("//! There is no `reconcile.rs`, because nothing is desired.\n")).is_empty());
        assert_eq!(check("x", &paths, None).len(), 1);
    }

    #[test]
    fn contracts_binaries_and_the_runtime_are_not_services() {
        let paths = paths(&[
            "services/x/src",
            "services/contracts/x/src",
            "services/libs/runtime/src",
            "services/sparkfleet/src",
            "services/cli/src",
            "docs",
        ]);
        assert_eq!(services(&paths), ["x"]);
    }
}
