//! Which package may import which, and what the pure ones may pull in. ARCHITECTURE.md shows the same arrows as a picture.
//!
//! A package that is not listed here is a finding: the author of a new package adds it to the list.

use crate::Finding;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where a package stands. The order of the variants is the order of the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Data that imports nothing of ours.
    Data,
    /// The Sparkplug machines.
    Core,
    /// A service's face on the wire.
    Contract,
    /// A pure part of a service's core, or of several programs', that has a package of its own.
    Part,
    /// The fleet as people see it, made of contracts and parts; pure.
    View,
    /// Drives the machines over MQTT.
    Io,
    /// Process-level parts of services.
    Runtime,
    /// A part of several programs that touches files or sockets.
    Library,
    /// The commands on a fleet: clients, which know contracts and libraries, and no service.
    Commands,
    /// A service: never imports another.
    Service,
    /// Composes services.
    Composition,
    /// A program.
    Binary,
    /// Tests: import everything, no package imports them.
    Tests,
}

/// The rank of a package, by name. None: the package is unknown.
#[must_use]
pub fn rank(package: &str) -> Option<Rank> {
    match package {
        "proto" | "configdb-schema" => Some(Rank::Data),
        "sparkplug" => Some(Rank::Core),
        "access" | "enrolment-protocol" | "join-attestation" | "join-tickets" | "broker-acl" | "sealed-secrets"
        | "manifests" => Some(Rank::Part),
        "fleet-view" => Some(Rank::View),
        "sparkplug-mqtt" => Some(Rank::Io),
        "service-runtime" | "https-client" => Some(Rank::Runtime),
        "configdb" | "cluster-manager" | "edge-sync" | "edge-monitor" | "join-service" | "bootstrapper"
        | "identity" | "git-server" | "krb-keys" | "edge-agent" | "simulator" | "console" => Some(Rank::Service),
        "join-trust" | "identity-provider" | "kubernetes-client" | "kerberos-client" | "git-hosting" => {
            Some(Rank::Library)
        }
        "sparkfleet-cli" => Some(Rank::Commands),
        "sparkfleet-up" => Some(Rank::Composition),
        "sparkfleet-edge" | "sparkfleet" => Some(Rank::Binary),
        "sim" | "model" | "prove" | "tck" | "e2e" | "lab" | "kubernetes-tests" | "bench" | "brokers" | "tidy" => {
            Some(Rank::Tests)
        }
        "join-protocol" => Some(Rank::Contract),
        contract if contract.ends_with("-contract") => Some(Rank::Contract),
        _ => None,
    }
}

/// True for packages whose normal dependencies must not reach the outside world.
#[must_use]
pub fn is_pure(package: &str) -> bool {
    matches!(rank(package), Some(Rank::Data | Rank::Core | Rank::Contract | Rank::Part | Rank::View))
}

/// Every rank that may be imported, from the ground upwards.
const GROUND: &[Rank] = &[
    Rank::Data,
    Rank::Core,
    Rank::Contract,
    Rank::Part,
    Rank::View,
    Rank::Io,
    Rank::Runtime,
    Rank::Library,
    Rank::Commands,
    Rank::Service,
    Rank::Composition,
    Rank::Binary,
];

/// Ranks that a rank may import.
fn may_import(from: Rank) -> &'static [Rank] {
    match from {
        Rank::Data => &[],
        Rank::Runtime => &[Rank::Core, Rank::Io],
        Rank::Core => &[Rank::Data],
        Rank::Contract => &[Rank::Data, Rank::Core],
        Rank::Part => &[Rank::Data, Rank::Core, Rank::Contract],
        Rank::View => &[Rank::Data, Rank::Core, Rank::Contract, Rank::Part],
        Rank::Io => &[Rank::Data, Rank::Core],
        Rank::Library => &GROUND[..7],
        Rank::Service | Rank::Commands => &GROUND[..8],
        Rank::Composition => &GROUND[..10],
        Rank::Binary | Rank::Tests => GROUND,
    }
}

/// An import of one workspace package by another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// The importing package.
    pub from: String,
    /// The imported package, of this workspace.
    pub to: String,
    /// True if only tests need it.
    pub dev: bool,
}

/// Checks that every package is known and every import follows an arrow.
#[must_use]
pub fn check_imports(packages: &[String], imports: &[Import]) -> Vec<Finding> {
    let unknown = packages.iter().filter(|name| rank(name).is_none());
    let mut findings: Vec<_> =
        unknown.map(|name| Finding::of(name, "unknown package: give it a rank in tests/tidy/src/arrows.rs")).collect();
    for Import { from, to, dev } in imports {
        let (Some(from_rank), Some(to_rank)) = (rank(from), rank(to)) else { continue };
        // The simulator and a real control plane are the neighbours that tests of a service, or of a part of one, need.
        let neighbour = matches!(to.as_str(), "simulator" | "kubernetes-tests");
        let test_neighbour = *dev && neighbour && matches!(from_rank, Rank::Service | Rank::Part | Rank::Commands);
        // Benchmarks measure what end-to-end tests start, MQTT servers carry it, and these tests run on real control planes, too.
        let same_surroundings = (matches!(from.as_str(), "bench" | "brokers") && to == "e2e")
            || (*dev && from_rank == Rank::Tests && matches!(to.as_str(), "e2e" | "kubernetes-tests"));
        if !may_import(from_rank).contains(&to_rank) && !test_neighbour && !same_surroundings {
            let message = format!("imports {to}, but {from_rank:?} may only import {:?}", may_import(from_rank));
            findings.push(Finding::of(from, message));
        }
    }
    findings
}

/// Packages that bring an asynchronous runtime, a client, an operating-system service or randomness.
///
/// `getrandom` is banned only as a direct choice ([`check_manifest_of_pure`]): `uuid` brings it, because the workspace
/// names that package's features once for all.
pub const IMPURE: &[&str] = &[
    "tokio",
    "rumqttc",
    "mqtt5",
    "kube",
    "kube-client",
    "reqwest",
    "hyper",
    "axum",
    "sqlx",
    "gix",
    "mio",
    "socket2",
    "rand",
    "fastrand",
    "rustls",
    "config",
    "tracing-subscriber",
];

/// Checks the normal dependencies of a pure package, all the way down. Keys and values of `edges` are package names.
#[must_use]
pub fn check_closure(pure: &str, edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Finding> {
    let mut reached_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([pure]);
    while let Some(name) = queue.pop_front() {
        for next in edges.get(name).into_iter().flatten() {
            if next != pure && !reached_from.contains_key(next.as_str()) {
                reached_from.insert(next, name);
                queue.push_back(next);
            }
        }
    }
    let reached = IMPURE.iter().filter(|name| reached_from.contains_key(*name));
    reached
        .map(|impure| {
            let mut path = vec![*impure];
            while let Some(before) = reached_from.get(path[path.len() - 1]) {
                path.push(before);
            }
            path.reverse();
            Finding::of(pure, format!("is pure but depends on {impure}: {}", path.join(" -> ")))
        })
        .collect()
}

/// Checks the direct normal dependencies of a pure package for randomness that it chose itself.
#[must_use]
pub fn check_manifest_of_pure(pure: &str, direct: &BTreeSet<String>) -> Vec<Finding> {
    let chosen = ["getrandom", "rand", "rand_core"].into_iter().filter(|name| direct.contains(*name));
    chosen
        .map(|name| Finding::of(pure, format!("is pure but chose {name}: take random numbers as arguments")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(from: &str, to: &str, dev: bool) -> Import {
        Import { from: from.to_owned(), to: to.to_owned(), dev }
    }

    fn broken(from: &str, to: &str, dev: bool) -> bool {
        !check_imports(&[], &[import(from, to, dev)]).is_empty()
    }

    #[test]
    fn arrows_that_point_the_wrong_way_are_found() {
        for (from, to) in [
            ("sparkplug", "sparkplug-mqtt"),
            ("edge-sync", "edge-monitor"),
            ("edge-sync-contract", "edge-monitor-contract"),
            ("service-runtime", "configdb-contract"),
            ("configdb-schema", "proto"),
            ("join-attestation", "service-runtime"),
            ("join-attestation", "join-tickets"),
            ("edge-sync-contract", "join-tickets"),
            ("cluster-manager", "simulator"),
            ("sparkfleet-cli", "cluster-manager"),
            ("sparkfleet-cli", "sparkfleet-up"),
            ("join-trust", "join-service"),
            ("join-service", "sparkfleet-cli"),
            ("sparkfleet", "sim"),
            ("tck", "tidy"),
            ("e2e", "bench"),
        ] {
            assert!(broken(from, to, false), "{from} -> {to}");
        }
    }

    #[test]
    fn arrows_of_the_picture_are_allowed() {
        for (from, to, dev) in [
            ("edge-sync", "edge-sync-contract", false),
            ("cluster-manager", "edge-monitor-contract", false),
            ("sparkplug-mqtt", "sparkplug", false),
            ("service-runtime", "sparkplug-mqtt", false),
            ("join-attestation", "configdb-schema", false),
            ("bench", "join-attestation", false),
            ("sparkfleet", "configdb", false),
            ("sparkfleet-cli", "join-trust", false),
            ("sparkfleet-up", "sparkfleet-cli", false),
            ("sparkfleet", "sparkfleet-up", false),
            ("e2e", "sparkfleet-up", false),
            ("bench", "e2e", false),
            ("edge-sync", "simulator", true),
        ] {
            assert!(!broken(from, to, dev), "{from} -> {to}");
        }
    }

    #[test]
    fn an_unknown_package_is_found() {
        assert_eq!(check_imports(&["shared-things".to_owned(), "proto".to_owned()], &[]).len(), 1);
    }

    #[test]
    fn an_impure_dependency_is_found_however_deep_and_its_path_is_reported() {
        let edge = |from: &str, to: &[&str]| (from.to_owned(), to.iter().map(|&name| name.to_owned()).collect());
        let edges = BTreeMap::from([
            edge("sparkplug", &["proto", "bytes"]),
            edge("proto", &["prost"]),
            edge("prost", &["tokio", "sparkplug"]),
            edge("bytes", &[]),
        ]);
        let findings = check_closure("sparkplug", &edges);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.ends_with("sparkplug -> proto -> prost -> tokio"), "{}", findings[0]);
        assert!(check_closure("bytes", &edges).is_empty());
    }

    #[test]
    fn randomness_chosen_by_a_pure_package_is_found() {
        assert_eq!(check_manifest_of_pure("proto", &BTreeSet::from(["getrandom".to_owned()])).len(), 1);
        assert!(check_manifest_of_pure("proto", &BTreeSet::from(["uuid".to_owned()])).is_empty());
    }
}
