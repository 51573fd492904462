//! `sparkfleet host ...`: the hosts that join by attestation. What is shown was published by the join services; who may join is changed in the policy.

use anyhow::anyhow;
use configdb_schema::Document as _;
use configdb_schema::document::{AttestationPolicy, EnrolledHost};
use join_service_contract::HostState;
use serde_json::json;
use service_runtime::exit;
use sparkplug_mqtt::Clock;

use super::{administrator, attestation_policy, enrol as list_of_hosts, host_move, prepare};
use crate::arguments::joining::{HostCommand, SignerArguments};
use crate::client::{Client, Scope};
use crate::console_api::ConsoleApi;
use crate::listing::Filter;
use crate::options::{Options, ReadingSource};
use crate::output;
use crate::usage_error::usage;
use crate::{listing, look_up, tables};
use fleet_view::{Fleet, JoiningHostRow};

/// Carries out a host command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: HostCommand) -> anyhow::Result<()> {
    match command {
        HostCommand::List { cluster, reading, options } => {
            listing::run::<JoiningHostRow>(Filter::of_cluster(cluster.as_deref()), &reading, &options).await.map(drop)
        }
        HostCommand::Show { host, source, options } => show(&host, &source, &options).await,
        HostCommand::Approve { host, name, ek, control_plane, wait, signer, options } => {
            let approval = Approval { name, ek, control_plane, wait };
            approve(&host, approval, &signer, &options).await
        }
        HostCommand::Enrol { cluster, file, signer, options } => {
            list_of_hosts::run(&cluster, &file, &signer, &options).await
        }
        HostCommand::Prepare(arguments) => prepare::run(*arguments).await,
        HostCommand::Init(arguments) => administrator::init(*arguments).await,
        HostCommand::Recover(arguments) => administrator::recover(*arguments).await,
        HostCommand::Move { host, to, dry_run, options } => {
            host_move::run(&host, to.as_deref(), dry_run, &options).await
        }
        HostCommand::Revoke { host, wait, signer, options } => revoke(&host, wait, &signer, &options).await,
    }
}

/// A host with the policy of its cluster.
type Judged = (JoiningHostRow, Option<AttestationPolicy>);

async fn from_console(api: &ConsoleApi, wanted: &str) -> anyhow::Result<Judged> {
    let row = look_up::host_among(&listing::rows(api).await?, wanted)?;
    let cluster = look_up::cluster_among(listing::rows(api).await?, &row.cluster)?.uuid;
    let policy = listing::entry(api, cluster, AttestationPolicy::slug()).await?;
    Ok((row, policy.map(|entry| serde_json::from_value(entry.value)).transpose()?))
}

async fn from_broker(options: &Options, wanted: &str) -> anyhow::Result<Judged> {
    let client = Client::open(options, Scope::Joining).await?;
    let judged = || {
        let row = look_up::host(&client.fleet, wanted)?;
        let (uuid, _) = look_up::cluster_entry(&client.fleet, &row.cluster)?;
        let policy = attestation_policy::current(&client.fleet, uuid)?.map(|(policy, _)| policy);
        Ok((row, policy))
    };
    let judged = judged();
    client.close().await;
    judged
}

async fn show(wanted: &str, source: &ReadingSource, options: &Options) -> anyhow::Result<()> {
    let ask_console = async |api: &ConsoleApi| from_console(api, wanted).await;
    let ask_broker = async || from_broker(options, wanted).await;
    let (row, policy) = listing::of_either(source, options, ask_console, ask_broker).await?;
    let (enrolled, revoked) =
        policy.as_ref().map_or((None, false), |policy| attestation_policy::listed(policy, &row.endorsement_key));
    let now = Clock::new().now().wall;
    let value = json!({ "host": row, "enrolment": enrolled, "revoked": revoked });
    let lines = || {
        let mut lines = tables::joining_hosts(std::slice::from_ref(&row), now).shown();
        let enrolment_status = match (enrolled, revoked) {
            (_, true) => "revoked",
            (Some(EnrolledHost { control_plane: true, .. }), false) => "enrolled, may be a control plane",
            (Some(_), false) => "enrolled",
            (None, false) => "not enrolled",
        };
        lines.push(String::new());
        lines.push(format!("endorsement key  {} ({enrolment_status})", output::visible(&row.endorsement_key)));
        lines.push(format!(
            "judged by        policy revision {} for {}",
            row.policy_revision,
            output::visible(&row.kind)
        ));
        if row.has_foreign_disk {
            lines.push(format!("id               {} (the state disk is that of another host)", row.id));
        }
        lines.push(format!("first seen       {}", output::moment(row.first_seen)));
        lines.push(format!("last judged      {}", output::moment(row.last_seen)));
        lines.extend(row.stage.iter().map(|stage| format!("stage            {}", output::visible(stage))));
        lines.extend(row.warnings.iter().map(|text| format!("warnings         {}", output::visible(text))));
        let is_zero = |value: &str| value.bytes().all(|digit| digit == b'0');
        let (zero, measured): (Vec<_>, Vec<_>) = row.pcrs.iter().partition(|(_, value)| is_zero(value));
        if !row.pcrs.is_empty() {
            lines.push(String::new());
        }
        lines.extend(measured.iter().map(|(index, value)| format!("PCR {index:>2}  {}", output::visible(value))));
        if !zero.is_empty() {
            let indices = zero.iter().map(|(index, _)| index.to_string()).collect::<Vec<_>>().join(", ");
            lines.push(format!("all zero     {indices}"));
        }
        lines
    };
    output::print(options.presentation.output, lines, &value)
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
    if attestation_policy::listed(policy, &row.endorsement_key).1 {
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

async fn approve(wanted: &str, approval: Approval, signer: &SignerArguments, options: &Options) -> anyhow::Result<()> {
    let Approval { name, ek, control_plane, wait } = approval;
    let mut client = Client::open(options, Scope::Joining).await?;
    let row = look_up::host(&client.fleet, wanted)?;
    if let Some(ek) = &ek {
        check_ek(&row, ek)?;
    }
    let (uuid, mut policy, etag, signer) = attestation_policy::to_sign(&client.fleet, &row, signer)?;
    check_approval(&row, &policy, control_plane)?;
    let host = EnrolledHost {
        ek: row.endorsement_key.clone(),
        host: name.or_else(|| Some(row.name.clone()).filter(|name| !name.is_empty())),
        disk: Some(row.disk),
        iak: None,
        control_plane,
    };
    let revision = if attestation_policy::enrol(&mut policy, host.clone()) {
        Some(attestation_policy::write(&mut client, uuid, &policy, Some(etag), &signer).await?.revision)
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
    let (title, cluster) = (output::visible(&row.title()), &row.cluster);
    let lines = || {
        let line = match revision {
            Some(_) if wait => format!("{title} is a member of {cluster}"),
            Some(_) => format!("{title} approved for {cluster}; it is asked again at once"),
            None => format!("{title} was approved for {cluster} before"),
        };
        vec![line, format!("endorsement key {}", output::visible(&row.endorsement_key))]
    };
    output::print(options.presentation.output, lines, &value)?;
    client.close().await;
    Ok(())
}

async fn revoke(wanted: &str, wait: bool, signer: &SignerArguments, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Joining).await?;
    let row = look_up::host(&client.fleet, wanted)?;
    let (uuid, mut policy, etag, signer) = attestation_policy::to_sign(&client.fleet, &row, signer)?;
    let revision = if attestation_policy::revoke_key(&mut policy, &row.endorsement_key) {
        Some(attestation_policy::write(&mut client, uuid, &policy, Some(etag), &signer).await?.revision)
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
    let title = output::visible(&row.title());
    let lines = || {
        let before = if revision.is_some() { "" } else { " (it was before)" };
        let own_key = policy.local_unlock.as_ref().map(|_| {
            "The policy has localUnlock: a member opens its disk by its TPM as long as it reaches no join service that says so.".to_owned()
        });
        let lines = [format!("{title} revoked in {}{before}", row.cluster), after_revocation(&row)];
        lines.into_iter().chain(own_key).collect()
    };
    output::print(options.presentation.output, lines, &value)?;
    client.close().await;
    Ok(())
}

/// What is left to do at a cluster whose host was revoked. A host chooses its own name, which may read as an option.
fn after_revocation(row: &JoiningHostRow) -> String {
    let node = output::shell_argument(&row.title());
    let mut text = format!(
        "It cannot join or open its disk again. A member still runs: drain it and delete its Node (`kubectl delete node -- {node}`)."
    );
    if row.role == "control-plane" {
        text.push_str(" It was a control plane, so it had the keys of the cluster: take it out of etcd, and change the cluster's authorities (kubeadm) or the server token (`k3s token rotate`).");
    }
    text
}

#[cfg(test)]
mod tests;
