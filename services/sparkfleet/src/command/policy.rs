//! `sparkfleet policy ...`: by which rules the hosts of a cluster are let in. The entry is desired state in ConfigDB; the cluster manager brings it to the
//! cluster.

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow};
use cluster_manager_contract::JoinReport;
use configdb_contract::{Entry, RequestResult, WriteRequest};
use configdb_schema::Document as _;
use configdb_schema::document::{AttestationPolicy, PcrRule};
use join_attestation::policy::Policy;
use serde_json::{Value, json};
use service_runtime::exit;
use uuid::Uuid;

use super::{cluster, etag_option, host, read_document, usage};
use crate::cli::Options;
use crate::cli::joining::PolicyCommand;
use crate::client::{Client, Scope, request_id, writer};
use crate::fleet::Fleet;
use crate::output;

/// Carries out a policy command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: PolicyCommand) -> anyhow::Result<()> {
    match command {
        PolicyCommand::Show { cluster, options } => show(&cluster, &options).await,
        PolicyCommand::Set { cluster, file, if_match, options } => {
            set(&cluster, read_document(&file)?, if_match.as_deref(), &options).await
        }
        PolicyCommand::Capture { host, pcr, replace, dry_run, options } => {
            capture(&host, &pcr, replace, dry_run, &options).await
        }
    }
}

/// The attestation policy of a cluster as ConfigDB has it.
///
/// # Errors
/// The entry cannot be read, which ConfigDB does not let happen.
pub fn current(fleet: &Fleet, cluster: Uuid) -> anyhow::Result<Option<(AttestationPolicy, Entry)>> {
    let entry = fleet.config.entry(cluster, AttestationPolicy::slug());
    entry.map(|entry| Ok((entry.parse()?, entry.clone()))).transpose()
}

/// Writes a policy, if no other was written since `before`.
///
/// # Errors
/// With [`exit::REFUSED`]: it would admit nobody, or ConfigDB refuses it.
pub async fn write(
    client: &mut Client,
    cluster: Uuid,
    policy: &AttestationPolicy,
    before: Option<Uuid>,
) -> anyhow::Result<RequestResult> {
    check(policy)?;
    let request = WriteRequest::put(request_id(), cluster)
        .by(writer())
        .document(policy)?
        .if_match(AttestationPolicy::slug(), before);
    client.write(request).await
}

/// A policy that would admit nobody is refused before it is written: the join service would only say so later.
fn check(policy: &AttestationPolicy) -> anyhow::Result<()> {
    match Policy::new(policy, 0).error() {
        None => Ok(()),
        Some(error) => {
            let error = anyhow!("{error}").context("refused: such a policy would admit nobody");
            Err(exit::with_code(exit::REFUSED, error))
        }
    }
}

/// Where the policy stands at the cluster, in a line.
fn told(standing: &JoinReport) -> String {
    let state = standing.policy_state.as_deref();
    match (standing.alive, state, standing.policy_agreed) {
        (_, None, _) => "never heard of; nobody judges by this policy".to_owned(),
        (false, Some(_), _) => "away; the policy reaches it when it comes back".to_owned(),
        (true, Some(_), false) => format!("has revision {}; this one is on its way", standing.policy_revision),
        (true, Some(state), true) => match &standing.policy_error {
            Some(error) => format!("{state}: {error}; nobody is admitted"),
            None => state.to_owned(),
        },
    }
}

async fn show(wanted: &str, options: &Options) -> anyhow::Result<()> {
    let client = Client::open(options, Scope::Joining).await?;
    let (uuid, cluster) = cluster::entry(&client.fleet, wanted)?;
    let policy = current(&client.fleet, uuid)?;
    let standing = client.fleet.manager.cluster(uuid).map(|cluster| cluster.join.clone()).unwrap_or_default();
    let (entry, etag, revision) = match &policy {
        Some((_, entry)) => (entry.value()?, Some(entry.etag), Some(entry.revision)),
        None => (Value::Null, None, None),
    };
    let at_cluster = json!({
        "alive": standing.alive, "agreed": standing.policy_agreed, "revision": standing.policy_revision,
        "state": standing.policy_state, "error": standing.policy_error
    });
    let value = json!({
        "cluster": cluster.name, "uuid": uuid, "revision": revision, "etag": etag, "join_service": at_cluster, "policy": entry
    });
    let lines = || match (revision, etag) {
        (Some(revision), Some(etag)) => {
            let mut lines = vec![
                format!("{}: revision {revision}, ETag {etag}", cluster.name),
                format!("join service: {}", told(&standing)),
                String::new(),
            ];
            lines.extend(output::yaml(&entry).unwrap_or_default().lines().map(str::to_owned));
            lines
        }
        _ => vec![format!(
            "{} has no attestation policy: no host can join; write one with `sparkfleet policy set`",
            cluster.name
        )],
    };
    let result = output::print(options.presentation.output, lines, &value);
    client.close().await;
    result
}

async fn set(wanted: &str, value: Value, if_match: Option<&str>, options: &Options) -> anyhow::Result<()> {
    let policy: AttestationPolicy = serde_json::from_value(value)
        .context("the file holds no attestation policy")
        .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let asked = if_match.map(etag_option).transpose()?;
    let mut client = Client::open(options, Scope::Config).await?;
    let (uuid, cluster) = cluster::entry(&client.fleet, wanted)?;
    let before = current(&client.fleet, uuid)?.map(|(_, entry)| entry.etag);
    let result = write(&mut client, uuid, &policy, asked.unwrap_or(before)).await?;
    let line = format!("policy of {} written: revision {}", cluster.name, result.revision);
    output::print(options.presentation.output, || vec![line], &json!(result))?;
    client.close().await;
    Ok(())
}

/// What became of one register of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Taken {
    /// The value is allowed from here on.
    Added(u8),
    /// It was allowed before.
    Known(u8),
    /// Nothing was measured into it: a value that repeats the same bytes is what every machine has that does not measure.
    Unmeasured(u8),
    /// The host has not shown it.
    Missing(u8),
}

impl Taken {
    fn line(&self) -> String {
        match self {
            Self::Added(index) => format!("register {index}: value taken"),
            Self::Known(index) => format!("register {index}: value was allowed before"),
            Self::Unmeasured(index) => {
                format!("register {index}: left out, nothing was measured into it; is measured boot switched on?")
            }
            Self::Missing(index) => format!("register {index}: left out, the host has not quoted it"),
        }
    }
}

/// Takes registers as allowed values. `wanted` empty: those that the policy has.
fn take_registers(
    policy: &mut AttestationPolicy,
    registers: &BTreeMap<u8, String>,
    wanted: &[u8],
    replace: bool,
) -> Vec<Taken> {
    let of_policy = policy.pcrs.keys().filter_map(|index| index.parse().ok());
    let mut wanted: Vec<u8> = if wanted.is_empty() { of_policy.collect() } else { wanted.to_vec() };
    wanted.sort_unstable();
    wanted.dedup();
    let take = |index: u8| {
        let Some(value) = registers.get(&index) else { return Taken::Missing(index) };
        if repeats(value) {
            return Taken::Unmeasured(index);
        }
        let rule = policy.pcrs.entry(index.to_string());
        let rule = rule.or_insert_with(|| PcrRule { expected: Vec::new(), warn_only: false });
        let known = rule.expected.iter().any(|expected| expected.eq_ignore_ascii_case(value));
        if replace {
            rule.expected = vec![value.clone()];
        } else if !known {
            rule.expected.push(value.clone());
        }
        if known { Taken::Known(index) } else { Taken::Added(index) }
    };
    wanted.into_iter().map(take).collect()
}

/// All bytes of a hexadecimal value are the same.
fn repeats(value: &str) -> bool {
    let first = value.get(..2).unwrap_or_default();
    !first.is_empty() && value.as_bytes().chunks(2).all(|byte| byte == first.as_bytes())
}

async fn capture(wanted: &str, pcr: &[u8], replace: bool, dry_run: bool, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Joining).await?;
    let row = host::find(&client.fleet, wanted)?;
    let refused = |error: anyhow::Error| exit::with_code(exit::REFUSED, error);
    if row.registers.is_empty() {
        return Err(refused(anyhow!("{} has not shown any register; its quote could not be read", row.title())));
    }
    let (uuid, mut policy, etag) = host::policy_of(&client.fleet, &row)?;
    if let Some(index) = pcr.iter().find(|index| **index == policy.lock.pcr) {
        return Err(usage(anyhow!(
            "register {index} is the lock register of the policy; its values follow from `lock`"
        )));
    }
    let before = policy.clone();
    let taken = take_registers(&mut policy, &row.registers, pcr, replace);
    let any = taken.iter().any(|taken| matches!(taken, Taken::Added(_) | Taken::Known(_)));
    if !any {
        let lines = taken.iter().map(Taken::line).collect::<Vec<_>>().join("; ");
        return Err(refused(anyhow!("no register of {} can be taken: {lines}", row.title())));
    }
    let revision = if dry_run || policy == before {
        None
    } else {
        Some(write(&mut client, uuid, &policy, Some(etag)).await?.revision)
    };
    let numbers = |is: fn(&Taken) -> Option<u8>| taken.iter().filter_map(is).collect::<Vec<u8>>();
    let value = json!({
        "host": row.disk, "cluster": row.cluster, "revision": revision, "policy": policy,
        "taken": numbers(|taken| if let Taken::Added(index) = taken { Some(*index) } else { None }),
        "known": numbers(|taken| if let Taken::Known(index) = taken { Some(*index) } else { None }),
        "unmeasured": numbers(|taken| if let Taken::Unmeasured(index) = taken { Some(*index) } else { None }),
        "missing": numbers(|taken| if let Taken::Missing(index) = taken { Some(*index) } else { None }),
    });
    let lines = || {
        let mut lines: Vec<String> = taken.iter().map(Taken::line).collect();
        lines.push(match (revision, dry_run) {
            (Some(revision), _) => format!("policy of {} written: revision {revision}", row.cluster),
            (None, true) => "nothing is written (--dry-run)".to_owned(),
            (None, false) => format!("policy of {} has these values already", row.cluster),
        });
        lines
    };
    output::print(options.presentation.output, lines, &value)?;
    client.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> AttestationPolicy {
        let entry = json!({"bank": "sha256", "pcrs": {"4": {"expected": ["aabb"]}, "7": {"expected": ["ccdd"], "warnOnly": true}},
            "lock": {"pcr": 15}, "endorsement": {"require": "enrolment"}});
        serde_json::from_value(entry).unwrap()
    }

    fn registers(values: &[(u8, &str)]) -> BTreeMap<u8, String> {
        values.iter().map(|(index, value)| (*index, (*value).to_owned())).collect()
    }

    #[test]
    fn the_registers_of_the_policy_are_taken_beside_the_values_that_it_has() {
        let mut captured = policy();
        let shown = registers(&[(4, "1234"), (7, "CCDD"), (9, "5678")]);
        assert_eq!(take_registers(&mut captured, &shown, &[], false), [Taken::Added(4), Taken::Known(7)]);
        assert_eq!(captured.pcrs["4"].expected, ["aabb", "1234"]);
        assert_eq!(captured.pcrs["7"], policy().pcrs["7"]);
        assert!(!captured.pcrs.contains_key("9"));
    }

    #[test]
    fn other_registers_are_taken_where_asked_and_what_was_not_measured_never() {
        let mut captured = policy();
        let shown = registers(&[(4, "1234"), (9, "5678"), (10, "0000"), (17, "ffff")]);
        let taken = take_registers(&mut captured, &shown, &[17, 10, 9, 4, 11, 4], true);
        let expected =
            [Taken::Added(4), Taken::Added(9), Taken::Unmeasured(10), Taken::Missing(11), Taken::Unmeasured(17)];
        assert_eq!(taken, expected);
        assert_eq!(captured.pcrs["4"].expected, ["1234"]);
        assert_eq!(captured.pcrs.keys().collect::<Vec<_>>(), ["4", "7", "9"]);
        assert!(taken[2].line().contains("register 10") && taken[2].line().contains("measured boot"));
    }
}
