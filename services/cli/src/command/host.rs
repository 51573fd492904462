//! `sparkfleet host ...`: the hosts that join by attestation. What is shown was published by the join services; who may join is changed in the policy.

use anyhow::anyhow;
use configdb_schema::document::{AttestationPolicy, EnrolledHost};
use join_service_contract::HostState;
use serde_json::json;
use service_runtime::exit;
use uuid::Uuid;

use super::signer::Signer;
use super::{administrator, candidates, cluster, enrol as list_of_hosts, not_found, policy, prepare, usage};
use crate::arguments::Options;
use crate::arguments::joining::{HostCommand, SignerArguments};
use crate::client::{Client, Scope};
use crate::output::{self, Table};
use fleet_view::{Fleet, JoiningHostRow};

/// Carries out a host command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: HostCommand) -> anyhow::Result<()> {
    match command {
        HostCommand::List { cluster, options } => list(cluster.as_deref(), &options).await,
        HostCommand::Show { host, options } => show(&host, &options).await,
        HostCommand::Approve { host, name, ek, control_plane, wait, signer, options } => {
            let wish = Approval { name, ek, control_plane, wait };
            approve(&host, wish, &signer, &options).await
        }
        HostCommand::Enrol { cluster, file, signer, options } => {
            list_of_hosts::run(&cluster, &file, &signer, &options).await
        }
        HostCommand::Prepare(arguments) => prepare::run(*arguments).await,
        HostCommand::Init(arguments) => administrator::init(*arguments).await,
        HostCommand::Recover(arguments) => administrator::recover(*arguments).await,
        HostCommand::Revoke { host, wait, signer, options } => revoke(&host, wait, &signer, &options).await,
    }
}

/// Hosts as a table, ages counted from `now` (UTC ms).
#[must_use]
pub fn table(rows: &[JoiningHostRow], now: u64) -> Table {
    let mut table = Table::new(&["HOST", "CLUSTER", "STATE", "ROLE", "EVIDENCE", "SEEN", "DISK", "REASON"]);
    for row in rows {
        table.row([
            if row.name.is_empty() { "(unnamed)" } else { &row.name },
            &row.cluster,
            row.state.as_str(),
            &row.role,
            &row.variant,
            &output::age(row.last_seen, now),
            &row.disk.to_string(),
            &reason(row).unwrap_or_default(),
        ]);
    }
    table
}

/// Why a host is not a member, or was refused something since, as far as there is a reason.
#[must_use]
pub fn reason(row: &JoiningHostRow) -> Option<String> {
    let told = match (&row.verdict, &row.detail) {
        (Some(verdict), Some(detail)) => Some(format!("{verdict}: {detail}")),
        (verdict, detail) => verdict.clone().or_else(|| detail.clone()),
    };
    told.filter(|_| row.state != HostState::Member || row.verdict.is_some()).or_else(|| row.warnings.clone())
}

/// The host with that id, which is its state disk, or that name; of several with one name the caller has to choose by cluster or id.
///
/// # Errors
/// With [`exit::NOT_FOUND`] when there is none, [`exit::USAGE`] when there is more than one, naming the candidates.
pub fn find(fleet: &Fleet, wanted: &str) -> anyhow::Result<JoiningHostRow> {
    let all = fleet.joining_hosts(None);
    let (cluster, name) = match wanted.split_once('/') {
        Some((cluster, name)) => (Some(cluster), name),
        None => (None, wanted),
    };
    let id = Uuid::try_parse(name).ok();
    let is_meant = |row: &&JoiningHostRow| {
        cluster.is_none_or(|cluster| row.cluster == cluster) && (row.name == name || Some(row.id) == id)
    };
    let mut found: Vec<&JoiningHostRow> = all.iter().filter(is_meant).collect();
    if found.iter().any(|row| !row.has_foreign_disk) {
        // Whoever has the disk of another host may have its name as well, and is chosen by its own id.
        found.retain(|row| !row.has_foreign_disk);
    }
    match found[..] {
        [one] => Ok(one.clone()),
        [] => {
            // A host that is missing has not reached a join service, or not shown that it owns its TPM.
            let error = not_found("host", wanted, all.iter().map(|row| format!("{}/{}", row.cluster, row.title())));
            Err(error.context("among the hosts that have proven their TPM to a join service"))
        }
        _ => {
            let meant = candidates(found.iter().map(|row| format!("{}/{}", row.cluster, row.id)));
            Err(usage(anyhow!("{wanted:?} is the name of several hosts; choose one: {meant}")))
        }
    }
}

async fn list(cluster: Option<&str>, options: &Options) -> anyhow::Result<()> {
    let client = Client::open(options, Scope::Joining).await?;
    let name = cluster.map(|wanted| cluster::entry(&client.fleet, wanted)).transpose()?.map(|(_, entry)| entry.name);
    let rows = client.fleet.joining_hosts(name.as_deref());
    let now = client.wall();
    let lines = || {
        if rows.is_empty() {
            vec!["no host has proven its TPM to a join service".to_owned()]
        } else {
            table(&rows, now).lines()
        }
    };
    let result = output::print(options.presentation.output, lines, &json!(rows));
    client.close().await;
    result
}

async fn show(wanted: &str, options: &Options) -> anyhow::Result<()> {
    let client = Client::open(options, Scope::Joining).await?;
    let row = find(&client.fleet, wanted)?;
    let (uuid, _) = cluster::entry(&client.fleet, &row.cluster)?;
    let policy = policy::current(&client.fleet, uuid)?.map(|(policy, _)| policy);
    let (enrolled, revoked) = policy.as_ref().map_or((None, false), |policy| listed(policy, &row.endorsement_key));
    let now = client.wall();
    let value = json!({ "host": row, "enrolment": enrolled, "revoked": revoked });
    let lines = || {
        let mut lines = table(std::slice::from_ref(&row), now).lines();
        let standing = match (enrolled, revoked) {
            (_, true) => "revoked",
            (Some(EnrolledHost { control_plane: true, .. }), false) => "enrolled, may be a control plane",
            (Some(_), false) => "enrolled",
            (None, false) => "not enrolled",
        };
        lines.push(String::new());
        lines.push(format!("endorsement key  {} ({standing})", row.endorsement_key));
        lines.push(format!("judged by        policy revision {} for {}", row.policy_revision, row.kind));
        if row.has_foreign_disk {
            lines.push(format!("id               {} (the state disk is that of another host)", row.id));
        }
        lines.push(format!("first seen       {}", output::moment(row.first_seen)));
        lines.push(format!("last judged      {}", output::moment(row.last_seen)));
        lines.extend(row.stage.iter().map(|stage| format!("stage            {stage}")));
        lines.extend(row.warnings.iter().map(|warnings| format!("warnings         {warnings}")));
        let is_zero = |value: &str| value.bytes().all(|digit| digit == b'0');
        let (zero, measured): (Vec<_>, Vec<_>) = row.registers.iter().partition(|(_, value)| is_zero(value));
        if !row.registers.is_empty() {
            lines.push(String::new());
        }
        lines.extend(measured.iter().map(|(index, value)| format!("register {index:>2}  {value}")));
        if !zero.is_empty() {
            let indices = zero.iter().map(|(index, _)| index.to_string()).collect::<Vec<_>>().join(", ");
            lines.push(format!("all zero     {indices}"));
        }
        lines
    };
    let result = output::print(options.presentation.output, lines, &value);
    client.close().await;
    result
}

/// How a policy knows an endorsement key.
pub(super) fn listed<'a>(policy: &'a AttestationPolicy, key: &str) -> (Option<&'a EnrolledHost>, bool) {
    let rules = &policy.endorsement;
    let enrolled = rules.enrolled.iter().find(|host| host.ek.eq_ignore_ascii_case(key));
    (enrolled, rules.revoked.iter().any(|revoked| revoked.eq_ignore_ascii_case(key)))
}

/// The policy of the cluster of a host: cluster, policy, ETag.
///
/// # Errors
/// With [`exit::REFUSED`] if there is none.
pub fn policy_of(fleet: &Fleet, row: &JoiningHostRow) -> anyhow::Result<(Uuid, AttestationPolicy, Uuid)> {
    let (uuid, cluster) = cluster::entry(fleet, &row.cluster)?;
    match policy::current(fleet, uuid)? {
        Some((policy, entry)) => Ok((uuid, policy, entry.etag)),
        None => {
            let error = anyhow!("{} has no attestation policy; write one with `sparkfleet policy set`", cluster.name);
            Err(exit::with_code(exit::REFUSED, error))
        }
    }
}

/// The policy of the cluster of a host, to be changed and signed again: cluster, policy, ETag, and who signs it.
///
/// # Errors
/// As [`policy_of`], [`Signer::open`] and [`Signer::checked`].
pub fn to_sign(
    fleet: &Fleet,
    row: &JoiningHostRow,
    arguments: &SignerArguments,
) -> anyhow::Result<(Uuid, AttestationPolicy, Uuid, Signer)> {
    let (uuid, policy, etag) = policy_of(fleet, row)?;
    let signer = Signer::open(arguments, uuid)?;
    Ok((uuid, signer.checked(policy)?, etag, signer))
}

/// Enrols a host in a policy. False: it is enrolled so already.
pub(super) fn enrol(policy: &mut AttestationPolicy, host: EnrolledHost) -> bool {
    let enrolled = &mut policy.endorsement.enrolled;
    match enrolled.iter_mut().find(|known| known.ek.eq_ignore_ascii_case(&host.ek)) {
        Some(known) if *known == host => false,
        Some(known) => {
            *known = host;
            true
        }
        None => {
            enrolled.push(host);
            true
        }
    }
}

/// Revokes an endorsement key. Its enrolment goes, so that another machine can have its name. False: it is revoked already.
fn revoke_key(policy: &mut AttestationPolicy, key: &str) -> bool {
    let rules = &mut policy.endorsement;
    rules.enrolled.retain(|host| !host.ek.eq_ignore_ascii_case(key));
    let is_new = !rules.revoked.iter().any(|revoked| revoked.eq_ignore_ascii_case(key));
    if is_new {
        rules.revoked.push(key.to_owned());
    }
    is_new
}

/// What an approval says.
struct Approval {
    name: Option<String>,
    ek: Option<String>,
    control_plane: bool,
    wait: bool,
}

/// Fewer digits of an endorsement key could be found by trying keys.
const EK_DIGITS_MIN: usize = 16;

/// Checks that a host has the endorsement key that the operator read off the machine.
///
/// # Errors
/// With [`exit::USAGE`] if it is none, [`exit::REFUSED`] if it is another one.
fn check_ek(row: &JoiningHostRow, ek: &str) -> anyhow::Result<()> {
    let is_key = (EK_DIGITS_MIN..=64).contains(&ek.len()) && ek.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !is_key {
        return Err(usage(anyhow!("--ek must be {EK_DIGITS_MIN} to 64 hexadecimal digits")));
    }
    if row.endorsement_key.starts_with(&ek.to_ascii_lowercase()) {
        return Ok(());
    }
    let error = anyhow!("{} has the endorsement key {}, not {ek}", row.title(), row.endorsement_key);
    Err(exit::with_code(exit::REFUSED, error))
}

/// Checks that a host may be approved as it is.
///
/// # Errors
/// With [`exit::REFUSED`] if its endorsement key is revoked or it has the disk of another host, [`exit::USAGE`] if it wants to be more than the operator says.
fn check_approval(row: &JoiningHostRow, policy: &AttestationPolicy, control_plane: bool) -> anyhow::Result<()> {
    if listed(policy, &row.endorsement_key).1 {
        let error = anyhow!(
            "{} is revoked; if it is to come back, take {} off `endorsement.revoked` with `sparkfleet policy set`",
            row.title(),
            row.endorsement_key
        );
        return Err(exit::with_code(exit::REFUSED, error));
    }
    if row.has_foreign_disk {
        let error = anyhow!(
            "{} has the state disk {} of another host; if that disk was given to it, blank it, so that it gets an identity of its own",
            row.title(),
            row.disk
        );
        return Err(exit::with_code(exit::REFUSED, error));
    }
    if row.role == "control-plane" && !control_plane {
        return Err(usage(anyhow!("{} wants to join the control plane; add --control-plane if it may", row.title())));
    }
    Ok(())
}

async fn approve(wanted: &str, wish: Approval, signer: &SignerArguments, options: &Options) -> anyhow::Result<()> {
    let Approval { name, ek, control_plane, wait } = wish;
    let mut client = Client::open(options, Scope::Joining).await?;
    let row = find(&client.fleet, wanted)?;
    if let Some(ek) = &ek {
        check_ek(&row, ek)?;
    }
    let (uuid, mut policy, etag, signer) = to_sign(&client.fleet, &row, signer)?;
    check_approval(&row, &policy, control_plane)?;
    let host = EnrolledHost {
        ek: row.endorsement_key.clone(),
        host: name.or_else(|| Some(row.name.clone()).filter(|name| !name.is_empty())),
        disk: Some(row.disk),
        control_plane,
    };
    let revision = if enrol(&mut policy, host.clone()) {
        Some(policy::write(&mut client, uuid, &policy, Some(etag), &signer).await?.revision)
    } else {
        None
    };
    if wait {
        let settled = client
            .until("the host to be a member", |fleet| {
                let join = fleet.join(&row.cluster)?.devices().get(&row.id)?;
                // What stands there may be older than the approval.
                let judged = join.last_seen > row.last_seen;
                match join.state {
                    HostState::Member => Some(Ok(())),
                    HostState::Refused | HostState::LockedOut | HostState::Failed | HostState::Revoked if judged => {
                        Some(Err(join.detail.clone().or_else(|| join.verdict.clone()).unwrap_or_default()))
                    }
                    _ => None,
                }
            })
            .await?;
        settled.map_err(|reason| exit::with_code(exit::REFUSED, anyhow!("refused: {reason}")))?;
    }
    let state = if wait { "member" } else { "approved" };
    let value =
        json!({ "disk": row.disk, "cluster": row.cluster, "enrolment": host, "revision": revision, "state": state });
    let key = format!("endorsement key {}", row.endorsement_key);
    let lines = || match revision {
        Some(_) if wait => vec![format!("{} is a member of {}", row.title(), row.cluster), key.clone()],
        Some(_) => {
            let approved = format!("{} approved for {}; it is asked again at once", row.title(), row.cluster);
            vec![approved, key.clone()]
        }
        None => vec![format!("{} was approved for {} before", row.title(), row.cluster), key.clone()],
    };
    output::print(options.presentation.output, lines, &value)?;
    client.close().await;
    Ok(())
}

async fn revoke(wanted: &str, wait: bool, signer: &SignerArguments, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Joining).await?;
    let row = find(&client.fleet, wanted)?;
    let (uuid, mut policy, etag, signer) = to_sign(&client.fleet, &row, signer)?;
    let revision = if revoke_key(&mut policy, &row.endorsement_key) {
        Some(policy::write(&mut client, uuid, &policy, Some(etag), &signer).await?.revision)
    } else {
        None
    };
    if wait {
        let revoked = |fleet: &Fleet| {
            let host = fleet.join(&row.cluster)?.devices().get(&row.id);
            host.is_none_or(|host| host.state == HostState::Revoked).then_some(())
        };
        client.until("the join service to report the host revoked", revoked).await?;
    }
    let value = json!({ "disk": row.disk, "cluster": row.cluster, "endorsement_key": row.endorsement_key, "revision": revision, "state": "revoked" });
    let lines = || {
        let before = if revision.is_some() { "" } else { " (it was before)" };
        vec![
            format!("{} revoked in {}{before}", row.title(), row.cluster),
            format!(
                "It cannot join or open its disk again. A member still runs: drain it and delete its Node (`kubectl delete node {}`).",
                row.title()
            ),
        ]
    };
    output::print(options.presentation.output, lines, &value)?;
    client.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use configdb_schema::document::{EndorsementProof, EndorsementRules, PcrBank, PcrLock};

    fn policy() -> AttestationPolicy {
        AttestationPolicy {
            variants: Vec::new(),
            bank: PcrBank::Sha256,
            pcrs: std::collections::BTreeMap::new(),
            boot: None,
            lock: PcrLock { pcr: 15, before: None, after: None },
            endorsement: EndorsementRules {
                require: EndorsementProof::Enrolment,
                manufacturers: Vec::new(),
                enrolled: Vec::new(),
                revoked: Vec::new(),
            },
            signature: None,
        }
    }

    fn host(ek: &str, name: &str) -> EnrolledHost {
        EnrolledHost { ek: ek.to_owned(), host: Some(name.to_owned()), disk: None, control_plane: false }
    }

    #[test]
    fn a_host_is_enrolled_once_and_what_it_may_is_replaced() {
        let mut policy = policy();
        assert!(enrol(&mut policy, host("aa", "one")));
        assert!(!enrol(&mut policy, host("aa", "one")));
        assert!(enrol(&mut policy, EnrolledHost { control_plane: true, ..host("aa", "one") }));
        assert_eq!(policy.endorsement.enrolled.len(), 1);
        assert_eq!(listed(&policy, "AA"), (Some(&EnrolledHost { control_plane: true, ..host("aa", "one") }), false));
    }

    #[test]
    fn a_revoked_key_leaves_the_enrolled_also_as_the_last_one() {
        let mut policy = policy();
        enrol(&mut policy, host("aa", "one"));
        enrol(&mut policy, host("bb", "two"));
        assert!(revoke_key(&mut policy, "aa"));
        assert!(!revoke_key(&mut policy, "aa"));
        assert_eq!(policy.endorsement.enrolled, [host("bb", "two")]);
        assert!(revoke_key(&mut policy, "bb"));
        assert_eq!(policy.endorsement.enrolled, []);
        assert_eq!(policy.endorsement.revoked, ["aa", "bb"]);
        assert!(listed(&policy, "bb").1);
    }
}
