//! The list is complete, citations exist, and the report says the truth about the sources of this repository.

use std::collections::BTreeSet;
use std::path::Path;

use tck::{Coverage, Report, chapter, citations, citations_in, not_ours, requirements, root};

#[test]
fn the_list_holds_every_requirement_once() {
    let ids: Vec<String> = requirements().into_iter().map(|r| r.id).collect();
    assert_eq!(ids.len(), 299);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 299);
    let of = |name: &str| ids.iter().filter(|id| chapter(id).ends_with(name)).count();
    let chapters = ["Introduction", "Principles", "Components", "messages", "behavior", "Payloads", "Conformance"];
    assert_eq!(chapters.map(of), [8, 4, 1, 67, 99, 108, 12]);
}

#[test]
fn the_party_that_has_to_obey_is_known() {
    for requirement in requirements() {
        let known = ["host", "edge", "device", "payload", "topic", "broker", "any"];
        assert!(known.contains(&requirement.actor.as_str()), "{requirement:?}");
    }
}

#[test]
fn cited_ids_exist() {
    let known: BTreeSet<String> = requirements().into_iter().map(|r| r.id).collect();
    let all = citations(&root()).unwrap();
    assert!(all.len() > 100, "only {} citations were found", all.len());
    let unknown: Vec<String> = all
        .iter()
        .filter(|c| !known.contains(&c.id))
        .map(|c| format!("{}:{} {}", c.file.display(), c.line, c.id))
        .collect();
    assert!(unknown.is_empty(), "no requirement of the specification:\n{}", unknown.join("\n"));
}

#[test]
fn what_is_not_ours_exists_and_no_test_claims_it() {
    let known: BTreeSet<String> = requirements().into_iter().map(|r| r.id).collect();
    let all = citations(&root()).unwrap();
    for (id, reason) in not_ours() {
        assert!(known.contains(&id), "{id} does not exist");
        assert!(!reason.is_empty(), "{id} has no reason");
        let claim = all.iter().find(|c| c.id == id && c.in_test);
        assert!(claim.is_none(), "{id} is said to be not ours, but is tested: {claim:?}");
    }
}

/// Run with `--nocapture` to read it. Coverage may only rise: raise the number here with it.
#[test]
fn coverage_does_not_fall() {
    let report = Report::new(&citations(&root()).unwrap());
    println!("{report}");
    let tested = report.with(Coverage::Tested).count();
    assert!(tested >= TESTED_MIN, "{tested} requirements are tested, there were {TESTED_MIN}");
}

const TESTED_MIN: usize = 288;

#[test]
fn code_and_tests_are_distinguished() {
    let text =
        concat!("/// tck", "-id-a-b: why\nfn f() {}\n\nmod tests {\n    /// tck", "-id-a-c, tck", "-id-a-d-\n}\n");
    let found: Vec<_> =
        citations_in(Path::new("src/x.rs"), text).into_iter().map(|c| (c.id, c.line, c.in_test)).collect();
    let id = |rest: &str| format!("tck-{rest}");
    assert_eq!(found, [(id("id-a-b"), 1, false), (id("id-a-c"), 5, true), (id("id-a-d"), 5, true)]);
    for file in ["tests/x.rs", "src/host/tests/births.rs", "src/tests.rs"] {
        assert!(citations_in(Path::new(file), text).iter().all(|c| c.in_test), "{file}");
    }
}
