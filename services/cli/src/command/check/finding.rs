//! What is found, and how it is judged. Pure.

use std::collections::{BTreeMap, BTreeSet};

use fleet_view::Fleet;
use serde::Serialize;
use sparkplug::EdgeNodeDescriptor;

use super::super::status::{self, ServiceRow};
use crate::client::Birth;
use crate::output::Table;

/// A certificate that ends within this time is to be renewed, s.
const RENEW_S: i64 = 14 * 24 * 3_600;

/// A clock that is ahead by more is wrong, ms.
const AHEAD_MS: i64 = 5_000;

/// A clock that is behind by more is wrong, ms. A birth may have waited on its way.
const BEHIND_MS: i64 = 30_000;

/// Names that a sentence lists.
const LISTED_MAX: usize = 5;

/// How something was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// As it should be.
    Ok,
    /// It works, and someone should look at it.
    Warning,
    /// It does not work.
    Failed,
    /// It could not be tried, or need not be.
    Skipped,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    check: String,
    /// How it was found.
    pub(super) outcome: Outcome,
    detail: String,
    /// What to do; None: nothing.
    help: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { check: check.into(), outcome: Outcome::Ok, detail: detail.into(), help: None }
    }

    pub(super) fn skipped(check: impl Into<String>, detail: impl Into<String>, help: impl Into<String>) -> Self {
        Self { outcome: Outcome::Skipped, help: Some(help.into()), ..Self::ok(check, detail) }
    }

    pub(super) fn warning(check: impl Into<String>, detail: impl Into<String>, help: impl Into<String>) -> Self {
        Self { outcome: Outcome::Warning, ..Self::skipped(check, detail, help) }
    }

    pub(super) fn failed(check: impl Into<String>, detail: impl Into<String>, help: impl Into<String>) -> Self {
        Self { outcome: Outcome::Failed, ..Self::skipped(check, detail, help) }
    }
}

/// All of them for people.
pub(super) fn table(findings: &[Finding]) -> Table {
    let mut table = Table::new(&["CHECK", "RESULT", "DETAIL"]);
    for Finding { check, outcome, detail, help } in findings {
        let help = help.as_ref().map_or_else(String::new, |help| format!(": {help}"));
        table.row([check.clone(), outcome.as_str().to_owned(), format!("{detail}{help}")]);
    }
    table
}

/// A certificate that is valid until `until` (UTC s), at `now` (UTC s).
pub(super) fn certificate(check: &str, whose: &str, until: i64, now: i64, help: &str) -> Finding {
    let days = (until - now).div_euclid(24 * 3_600);
    match until - now {
        left if left <= 0 => Finding::failed(check, format!("{whose} has expired"), help),
        left if left < RENEW_S => Finding::warning(check, format!("{whose} ends in {days} days"), help),
        _ => Finding::ok(check, format!("{whose} is valid for {days} days")),
    }
}

/// The central services, and those of clusters.
pub(super) fn services(fleet: &Fleet) -> Vec<Finding> {
    let mut findings: Vec<Finding> = status::services(fleet).iter().map(|row| service(row, fleet)).collect();
    let clusters = fleet.clusters();
    let away: Vec<&str> = clusters.iter().filter(|row| row.seen && !row.alive).map(|row| row.name.as_str()).collect();
    let blind: Vec<&str> =
        clusters.iter().filter(|row| row.alive && !row.monitored).map(|row| row.name.as_str()).collect();
    let alive = clusters.iter().filter(|row| row.alive).count();
    findings.push(Finding::ok("edges", format!("edge sync of {alive} of {} clusters is alive", clusters.len())));
    if !away.is_empty() {
        let help = "look at the machine, its network, and its certificate (`sparkfleet cluster identity show`)";
        findings.push(Finding::warning("edges", format!("edge sync is away: {}", listed(&away)), help));
    }
    if !blind.is_empty() {
        let help = "look at edge monitor's pod; without it no alert is raised there";
        findings.push(Finding::warning("edges", format!("edge monitor is away: {}", listed(&blind)), help));
    }
    findings
}

fn service(row: &ServiceRow, fleet: &Fleet) -> Finding {
    let name = format!("{}/{}", fleet.organisation().central_group(), row.service);
    match (row.alive, &row.version) {
        (true, Some(version)) => Finding::ok(name, format!("alive, version {version}")),
        (true, None) => Finding::ok(name, "alive"),
        (false, _) => {
            let help = "start it, and look at its log and at /readyz of `http.listen`";
            Finding::failed(name, "no birth of it was received", help)
        }
    }
}

/// Whether all that were born are of the version of this program.
pub(super) fn versions(births: &BTreeMap<EdgeNodeDescriptor, Birth>, own: &str) -> Finding {
    let mut others: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (node, birth) in births {
        if let Some(version) = birth.version.as_deref().filter(|version| *version != own) {
            others.entry(version).or_default().push(node.to_string());
        }
    }
    if others.is_empty() {
        return Finding::ok("versions", format!("all that were born are of version {own}, as this program"));
    }
    let of = |(version, nodes): (&&str, &Vec<String>)| format!("{} of version {version}", listed(nodes));
    let texts: Vec<String> = others.iter().map(of).collect();
    let help = "update the control plane first, then edges and command lines";
    Finding::warning("versions", format!("this program is of version {own}, and {}", texts.join("; ")), help)
}

/// Whether clocks agree with that of this machine, as far as births that were just made say so.
pub(super) fn clocks(births: &BTreeMap<EdgeNodeDescriptor, Birth>) -> Vec<Finding> {
    let is_wrong = |skew: i64| !(-BEHIND_MS..=AHEAD_MS).contains(&skew);
    let wrong: Vec<Finding> = births
        .iter()
        .filter(|(_, birth)| is_wrong(birth.skew_ms))
        .map(|(node, birth)| {
            let (s, side) = (birth.skew_ms.abs() / 1_000, if birth.skew_ms > 0 { "ahead" } else { "behind" });
            let help = "let both machines follow a time server; certificates and tokens are judged by the clock";
            Finding::warning("clocks", format!("the clock of {node} is {s} s {side} of this machine's"), help)
        })
        .collect();
    if !wrong.is_empty() {
        return wrong;
    }
    vec![Finding::ok("clocks", format!("{} births agree with this machine's clock", births.len()))]
}

/// The first of them, and how many more there are.
pub(super) fn listed(names: &[impl AsRef<str>]) -> String {
    let first: Vec<&str> = names.iter().take(LISTED_MAX).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(LISTED_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// The names of checks that have failed.
pub(super) fn failures(findings: &[Finding]) -> BTreeSet<&str> {
    let failed = findings.iter().filter(|finding| finding.outcome == Outcome::Failed);
    failed.map(|finding| finding.check.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_view::bench::Bench;

    fn birth(version: &str, skew_ms: i64) -> Birth {
        Birth { version: Some(version.to_owned()), skew_ms }
    }

    fn births(all: &[(&str, Birth)]) -> BTreeMap<EdgeNodeDescriptor, Birth> {
        let node = |name: &str| EdgeNodeDescriptor::parse("ACME-Paint_Shop", name).unwrap();
        all.iter().map(|(name, birth)| (node(name), birth.clone())).collect()
    }

    #[test]
    fn a_certificate_that_ends_soon_is_a_warning_and_one_that_has_ended_a_failure() {
        let day = 24 * 3_600;
        let of = |until: i64| certificate("tls", "it", until, 0, "renew it").outcome;
        assert_eq!(
            (of(0), of(-1), of(1), of(13 * day)),
            (Outcome::Failed, Outcome::Failed, Outcome::Warning, Outcome::Warning)
        );
        assert_eq!(of(15 * day), Outcome::Ok);
        let text = table(&[certificate("tls", "it", 2 * day + 1, 0, "renew it")]).lines()[1].clone();
        assert_eq!(text, "tls    warning  it ends in 2 days: renew it");
    }

    #[test]
    fn a_clock_may_be_behind_by_the_way_of_a_birth_and_hardly_ahead() {
        for (skew, outcome) in [
            (0, Outcome::Ok),
            (-29_000, Outcome::Ok),
            (-31_000, Outcome::Warning),
            (4_000, Outcome::Ok),
            (6_000, Outcome::Warning),
        ] {
            assert_eq!(clocks(&births(&[("Sync", birth("1", skew))]))[0].outcome, outcome, "{skew}");
        }
        let found = clocks(&births(&[("Sync", birth("1", 61_000))])).remove(0);
        assert!(found.detail.contains("ACME-Paint_Shop/Sync is 61 s ahead"), "{}", found.detail);
    }

    #[test]
    fn other_versions_are_named_with_those_that_have_them() {
        let all = births(&[("Sync", birth("1.0.0", 0)), ("Monitor", birth("0.9.0", 0))]);
        let found = versions(&all, "1.0.0");
        assert_eq!(found.outcome, Outcome::Warning);
        assert!(found.detail.ends_with("ACME-Paint_Shop/Monitor of version 0.9.0"), "{}", found.detail);
        assert_eq!(versions(&births(&[("Sync", birth("1.0.0", 0))]), "1.0.0").outcome, Outcome::Ok);
    }

    #[test]
    fn a_central_service_that_is_not_born_is_a_failure() {
        let found = services(&Bench::new().fleet);
        assert!(failures(&found).contains("ACME-Central/Monitor"), "{found:#?}");
        let found = services(&Bench::with_cluster().fleet);
        assert!(failures(&found).is_empty(), "{found:#?}");
    }

    #[test]
    fn a_long_list_is_cut() {
        assert_eq!(listed(&["a", "b"]), "a, b");
        assert_eq!(listed(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
