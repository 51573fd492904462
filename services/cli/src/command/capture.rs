//! `sparkfleet policy capture`: takes the PCRs that a host has quoted as allowed values of the policy; with `--ask` also such as no host is asked for so far.
//!
//! A host quotes the PCRs of the policy and no others. A PCR that is asked for is in the policy without a value until it is taken: it is quoted and shown, and no host is
//! judged by it.

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow};
use configdb_schema::document::{AttestationPolicy, PcrRule};
use serde_json::json;
use service_runtime::exit;
use uuid::Uuid;

use super::attestation_policy;
use super::signer::Signer;
use crate::arguments::joining::CaptureArguments;
use crate::client::{Client, Scope};
use crate::look_up;
use crate::options::Options;
use crate::output;
use crate::usage_error::usage;
use fleet_view::{Fleet, JoiningHostRow};

/// What became of one PCR of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PcrOutcome {
    /// The value is allowed from here on.
    Added(u8),
    /// It was allowed before.
    Known(u8),
    /// Nothing was measured into it: a value that repeats the same bytes is what every machine has that does not measure.
    Unmeasured(u8),
    /// The policy does not have it, so the host was not asked for it.
    NotAsked(u8),
    /// The policy has it, and the host has not quoted since.
    NotYet(u8),
}

impl PcrOutcome {
    fn line(self) -> String {
        match self {
            Self::Added(index) => format!("PCR {index}: value taken"),
            Self::Known(index) => format!("PCR {index}: value was allowed before"),
            Self::Unmeasured(index) => {
                format!("PCR {index}: left out, nothing was measured into it; is measured boot switched on?")
            }
            Self::NotAsked(index) => format!(
                "PCR {index}: left out, a host quotes the PCRs of the policy only and the policy does not have it; --ask puts it there to be observed, and takes the \
                 value of the host's next quote"
            ),
            Self::NotYet(index) => format!(
                "PCR {index}: left out, the policy has it but the host's last quote is older; --ask waits for the next"
            ),
        }
    }
}

/// The PCRs that are meant. `named` empty: those that the policy has values for; of a first policy, which has none, all.
fn wanted(policy: &AttestationPolicy, named: &[u8]) -> Vec<u8> {
    let only_observes = policy.pcrs.values().all(|rule| rule.expected.is_empty());
    let meant = policy.pcrs.iter().filter(|(_, rule)| only_observes || !rule.expected.is_empty());
    let of_policy = meant.filter_map(|(index, _)| index.parse().ok());
    let mut wanted: Vec<u8> = if named.is_empty() { of_policy.collect() } else { named.to_vec() };
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

/// Takes PCRs as allowed values. One that was only observed is enforced from its first value on.
fn take_pcrs(
    policy: &mut AttestationPolicy,
    pcrs: &BTreeMap<u8, String>,
    wanted: &[u8],
    replace: bool,
) -> Vec<PcrOutcome> {
    let take = |index: &u8| {
        let (index, rule) = (*index, policy.pcrs.entry(index.to_string()));
        let Some(value) = pcrs.get(&index) else {
            let has = matches!(rule, std::collections::btree_map::Entry::Occupied(_));
            return if has { PcrOutcome::NotYet(index) } else { PcrOutcome::NotAsked(index) };
        };
        if repeats(value) {
            return PcrOutcome::Unmeasured(index);
        }
        let rule = rule.or_insert_with(|| PcrRule { expected: Vec::new(), warn_only: false });
        let known = rule.expected.iter().any(|expected| expected.eq_ignore_ascii_case(value));
        rule.warn_only &= !rule.expected.is_empty();
        if replace {
            rule.expected = vec![value.clone()];
        } else if !known {
            rule.expected.push(value.clone());
        }
        if known { PcrOutcome::Known(index) } else { PcrOutcome::Added(index) }
    };
    wanted.iter().map(take).collect()
}

/// All bytes of a hexadecimal value are the same.
fn repeats(value: &str) -> bool {
    let first = value.get(..2).unwrap_or_default();
    !first.is_empty() && value.as_bytes().chunks(2).all(|byte| byte == first.as_bytes())
}

/// Puts PCRs into a policy that it does not have, to be observed; those that it was.
fn observe(policy: &mut AttestationPolicy, wanted: &[u8]) -> Vec<u8> {
    let missing = wanted.iter().copied().filter(|index| !policy.pcrs.contains_key(&index.to_string()));
    let missing: Vec<u8> = missing.collect();
    let observed = missing.iter().map(|index| (index.to_string(), PcrRule { expected: Vec::new(), warn_only: true }));
    policy.pcrs.extend(observed);
    missing
}

/// The PCRs for people: `9` or `9, 11`.
fn listed(pcrs: &[u8]) -> String {
    pcrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn refused(error: anyhow::Error) -> anyhow::Error {
    exit::with_code(exit::REFUSED, error)
}

/// Asks for the PCRs that the host has not shown, and waits for a quote that shows them. The PCRs that the policy did not have.
async fn ask(
    client: &mut Client,
    row: &JoiningHostRow,
    wanted: &[u8],
    mut before: (Uuid, AttestationPolicy, Uuid),
    signer: &Signer,
) -> anyhow::Result<Vec<u8>> {
    let missing: Vec<u8> = wanted.iter().copied().filter(|index| !row.pcrs.contains_key(index)).collect();
    let (cluster, policy, etag) = (before.0, &mut before.1, before.2);
    let added = observe(policy, &missing);
    let later = |text: String| {
        format!("{text}; take it later with `sparkfleet policy capture {} --pcr {}`", row.id, listed(&missing))
    };
    if !added.is_empty() {
        let revision = attestation_policy::write(client, cluster, policy, Some(etag), signer).await?.revision;
        output::progress(&format!("policy of {} asks for PCR {} (revision {revision})", row.cluster, listed(&added)));
        let is_in_force = |fleet: &Fleet| {
            let join = &fleet.manager.cluster(cluster)?.join;
            (join.alive && join.policy_agreed && join.policy_revision >= revision).then_some(())
        };
        let what = format!("the join service of {} to have this policy", row.cluster);
        let waited = client.until(&what, is_in_force).await;
        waited.with_context(|| later(format!("the policy asks for PCR {} from here on", listed(&added))))?;
    }
    let when = if row.state == join_service_contract::HostState::Member {
        "a member does at its next boot, or when it renews its certificates"
    } else {
        "a host that waits or was refused is asked to at once"
    };
    let what = format!("{} to quote PCR {} ({when})", row.title(), listed(&missing));
    let quoted = |fleet: &Fleet| {
        let rows = fleet.joining_hosts(Some(&row.cluster));
        let now = rows.into_iter().find(|now| now.id == row.id && now.endorsement_key == row.endorsement_key)?;
        missing.iter().all(|index| now.pcrs.contains_key(index)).then_some(())
    };
    let waited = client.until(&what, quoted).await;
    waited.with_context(|| later(format!("the policy asks for PCR {}", listed(&missing))))?;
    Ok(added)
}

/// Carries out the command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(arguments: CaptureArguments) -> anyhow::Result<()> {
    let CaptureArguments { host: named, pcr, ask: asks, replace, dry_run, signer, options } = arguments;
    let mut client = Client::open(&options, Scope::Joining).await?;
    let mut row = look_up::host(&client.fleet, &named)?;
    if row.pcrs.is_empty() {
        return Err(refused(anyhow!("{} has not shown any PCR; its quote could not be read", row.title())));
    }
    let (uuid, mut policy, mut etag, signer) = attestation_policy::to_sign(&client.fleet, &row, &signer)?;
    if let Some(index) = pcr.iter().find(|index| **index == policy.lock.pcr) {
        return Err(usage(anyhow!("PCR {index} is the lock PCR of the policy; its values follow from `lock`")));
    }
    let wanted = wanted(&policy, &pcr);
    let mut added = Vec::new();
    if asks && wanted.iter().any(|index| !row.pcrs.contains_key(index)) {
        added = ask(&mut client, &row, &wanted, (uuid, policy, etag), &signer).await?;
        // Policy and host may both have changed meanwhile.
        row = look_up::host(&client.fleet, &row.id.to_string())?;
        let stands;
        (_, stands, etag) = attestation_policy::policy_of(&client.fleet, &row)?;
        policy = signer.checked(stands)?;
    }
    let before = policy.clone();
    let taken = take_pcrs(&mut policy, &row.pcrs, &wanted, replace);
    // What was asked for in vain is asked for no more.
    let is_in_vain = |index: &u8| taken.contains(&PcrOutcome::Unmeasured(*index));
    for index in added.iter().filter(|index| is_in_vain(index)) {
        policy.pcrs.remove(&index.to_string());
    }
    let revision = if dry_run || policy == before {
        None
    } else {
        Some(attestation_policy::write(&mut client, uuid, &policy, Some(etag), &signer).await?.revision)
    };
    if !taken.iter().any(|taken| matches!(taken, PcrOutcome::Added(_) | PcrOutcome::Known(_))) {
        let lines = taken.iter().map(|taken| taken.line()).collect::<Vec<_>>().join("; ");
        return Err(refused(anyhow!("no PCR of {} can be taken: {lines}", row.title())));
    }
    print(&row, &policy, &taken, revision, dry_run, &options)?;
    client.close().await;
    Ok(())
}

fn print(
    row: &JoiningHostRow,
    policy: &AttestationPolicy,
    taken: &[PcrOutcome],
    revision: Option<u64>,
    dry_run: bool,
    options: &Options,
) -> anyhow::Result<()> {
    let numbers = |is: fn(PcrOutcome) -> Option<u8>| taken.iter().filter_map(|taken| is(*taken)).collect::<Vec<u8>>();
    let value = json!({
        "host": row.disk, "cluster": row.cluster, "revision": revision, "policy": policy,
        "taken": numbers(|taken| if let PcrOutcome::Added(index) = taken { Some(index) } else { None }),
        "known": numbers(|taken| if let PcrOutcome::Known(index) = taken { Some(index) } else { None }),
        "unmeasured": numbers(|taken| if let PcrOutcome::Unmeasured(index) = taken { Some(index) } else { None }),
        "missing": numbers(|taken| if let PcrOutcome::NotAsked(index) | PcrOutcome::NotYet(index) = taken { Some(index) } else { None }),
    });
    let lines = || {
        let mut lines: Vec<String> = taken.iter().map(|taken| taken.line()).collect();
        lines.push(match (revision, dry_run) {
            (Some(revision), _) => format!("policy of {} written: revision {revision}", row.cluster),
            (None, true) => "nothing is written (--dry-run)".to_owned(),
            (None, false) => format!("policy of {} has these values already", row.cluster),
        });
        lines
    };
    output::print(options.presentation.output, lines, &value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> AttestationPolicy {
        let entry = json!({"bank": "sha256", "pcrs": {"4": {"expected": ["aabb"]}, "7": {"expected": ["ccdd"], "warnOnly": true},
            "8": {"warnOnly": true}}, "lock": {"pcr": 15}, "endorsement": {"require": "enrolment"}});
        serde_json::from_value(entry).unwrap()
    }

    fn pcrs(values: &[(u8, &str)]) -> BTreeMap<u8, String> {
        values.iter().map(|(index, value)| (*index, (*value).to_owned())).collect()
    }

    #[test]
    fn the_pcrs_of_the_policy_are_taken_beside_the_values_that_it_has() {
        let mut captured = policy();
        let shown = pcrs(&[(4, "1234"), (7, "CCDD"), (8, "9abc"), (9, "5678")]);
        let wanted = wanted(&captured, &[]);
        assert_eq!(wanted, [4, 7], "one that is only observed is taken only by its number");
        assert_eq!(take_pcrs(&mut captured, &shown, &wanted, false), [PcrOutcome::Added(4), PcrOutcome::Known(7)]);
        assert_eq!(captured.pcrs["4"].expected, ["aabb", "1234"]);
        assert_eq!((&captured.pcrs["7"], &captured.pcrs["8"]), (&policy().pcrs["7"], &policy().pcrs["8"]));
        assert!(!captured.pcrs.contains_key("9"));
    }

    #[test]
    fn other_pcrs_are_taken_where_asked_and_what_was_not_measured_never() {
        let mut captured = policy();
        captured.pcrs.insert("12".to_owned(), PcrRule { expected: Vec::new(), warn_only: true });
        let shown = pcrs(&[(4, "1234"), (8, "9abc"), (9, "5678"), (10, "0000"), (17, "ffff")]);
        let wanted = wanted(&captured, &[17, 12, 10, 9, 8, 4, 11, 4]);
        let taken = take_pcrs(&mut captured, &shown, &wanted, true);
        let expected = [
            PcrOutcome::Added(4),
            PcrOutcome::Added(8),
            PcrOutcome::Added(9),
            PcrOutcome::Unmeasured(10),
            PcrOutcome::NotAsked(11),
            PcrOutcome::NotYet(12),
            PcrOutcome::Unmeasured(17),
        ];
        assert_eq!(taken, expected);
        assert_eq!(captured.pcrs["4"].expected, ["1234"]);
        assert_eq!(captured.pcrs["8"], PcrRule { expected: vec!["9abc".to_owned()], warn_only: false });
        assert_eq!(captured.pcrs.keys().collect::<Vec<_>>(), ["12", "4", "7", "8", "9"]);
        assert!(taken[3].line().contains("PCR 10") && taken[3].line().contains("measured boot"));
        assert!(taken[4].line().contains("policy does not have it; --ask"), "{}", taken[4].line());
        assert!(taken[5].line().contains("older; --ask waits"), "{}", taken[5].line());
    }

    #[test]
    fn the_first_capture_takes_all_that_is_observed_and_was_measured() {
        let mut first = policy();
        first.pcrs.retain(|_, rule| {
            rule.expected.clear();
            true
        });
        let wanted = wanted(&first, &[]);
        assert_eq!(wanted, [4, 7, 8]);
        let shown = pcrs(&[(4, "1234"), (7, "ccdd"), (8, "0000")]);
        assert_eq!(
            take_pcrs(&mut first, &shown, &wanted, false),
            [PcrOutcome::Added(4), PcrOutcome::Added(7), PcrOutcome::Unmeasured(8)]
        );
        assert_eq!(first.pcrs["4"], PcrRule { expected: vec!["1234".to_owned()], warn_only: false });
        assert!(first.pcrs["8"].warn_only && first.pcrs["8"].expected.is_empty(), "it stays observed");
    }

    #[test]
    fn what_is_asked_for_is_observed_and_what_stands_stays() {
        let mut asked = policy();
        assert_eq!(observe(&mut asked, &[4, 7, 8, 9]), [9]);
        assert_eq!(asked.pcrs["9"], PcrRule { expected: Vec::new(), warn_only: true });
        asked.pcrs.remove("9");
        assert_eq!(asked, policy());
    }
}
