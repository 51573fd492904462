//! `sparkfleet policy ...`: by which rules the hosts of a cluster are admitted. The entry is desired state in ConfigDB; the cluster manager brings it to the
//! cluster.

use anyhow::{Context as _, anyhow};
use cluster_manager_contract::JoinReport;
use configdb_schema::Document as _;
use configdb_schema::document::{
    AttestationPolicy, EndorsementProof, EndorsementRules, EvidenceVariant, PcrBank, PcrLock, PcrRule,
};
use fleet_view::ClusterRow;
use serde_json::{Value, json};
use service_runtime::exit;
use uuid::Uuid;

use super::signer::Signer;
use super::{attestation_policy, capture, from_image};
use crate::arguments::joining::{PolicyCommand, SignerArguments};
use crate::client::{Client, Scope};
use crate::console_api::ConsoleApi;
use crate::input::{etag_option, read_document};
use crate::listing::{self, Entry, InConsole as _};
use crate::look_up;
use crate::options::{Options, ReadingSource};
use crate::output;
use crate::output::outcome;

/// Carries out a policy command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: PolicyCommand) -> anyhow::Result<()> {
    match command {
        PolicyCommand::Show { cluster, source, options } => show(&cluster, &source, &options).await,
        PolicyCommand::Init { cluster, pcr, lock, signer, options } => {
            init(&cluster, &pcr, lock, &signer, &options).await
        }
        PolicyCommand::Set { cluster, file, if_match, signer, options } => {
            set(&cluster, read_document(&file)?, if_match.as_deref(), &signer, &options).await
        }
        PolicyCommand::Capture(arguments) => capture::run(*arguments).await,
        PolicyCommand::FromImage(arguments) => from_image::run(*arguments).await,
    }
}

/// The status of the policy at the cluster, in a line.
pub(super) fn described(join_report: &JoinReport) -> String {
    let state = join_report.policy_state.as_deref();
    match (join_report.alive, state, join_report.policy_agreed) {
        (_, None, _) => "never received: no join service judges by this policy".to_owned(),
        (false, Some(_), _) => "away; the policy reaches it when it comes back".to_owned(),
        (true, Some(state), false) if state != "unknown" && join_report.policy_error.is_some() => {
            format!("refuses this policy: {}", join_report.policy_error.as_deref().unwrap_or_default())
        }
        (true, Some(_), false) => format!("has revision {}; this one is on its way", join_report.policy_revision),
        (true, Some(state), true) => match &join_report.policy_error {
            Some(error) if state == "in-force" => format!("{state}; another policy was refused: {error}"),
            Some(error) => format!("{state}: {error}; no host is admitted"),
            None => state.to_owned(),
        },
    }
}

/// What is shown of the policy of a cluster.
struct Shown {
    uuid: Uuid,
    cluster: String,
    policy: Option<Entry>,
    join_report: JoinReport,
}

impl Shown {
    async fn from_console(api: &ConsoleApi, wanted: &str) -> anyhow::Result<Self> {
        let ClusterRow { uuid, name, .. } = look_up::cluster_among(listing::rows(api).await?, wanted)?;
        let clusters = listing::table(api, ClusterRow::TABLE).await?;
        let row = clusters.iter().find(|row| row["key"] == uuid.to_string());
        let join_report = row.and_then(|row| fleet_view::tables::policy_report(&row["policy"])).unwrap_or_default();
        let policy = listing::entry(api, uuid, AttestationPolicy::slug()).await?;
        Ok(Self { uuid, cluster: name, policy, join_report })
    }

    async fn from_broker(options: &Options, wanted: &str) -> anyhow::Result<Self> {
        let client = Client::open(options, Scope::Joining).await?;
        let shown = || {
            let (uuid, cluster) = look_up::cluster_entry(&client.fleet, wanted)?;
            let entry = client.fleet.config.entry(uuid, AttestationPolicy::slug());
            let entry = entry.map(|entry| {
                let (slug, etag, revision) = (AttestationPolicy::slug().to_owned(), entry.etag, entry.revision);
                anyhow::Ok(Entry { slug, value: entry.value()?, etag: Some(etag), revision: Some(revision) })
            });
            let managed = client.fleet.manager.cluster(uuid);
            let join_report = managed.map(|cluster| cluster.join.clone()).unwrap_or_default();
            Ok(Self { uuid, cluster: cluster.name, policy: entry.transpose()?, join_report })
        };
        let shown = shown();
        client.close().await;
        shown
    }
}

async fn show(wanted: &str, source: &ReadingSource, options: &Options) -> anyhow::Result<()> {
    let ask_console = async |api: &ConsoleApi| Shown::from_console(api, wanted).await;
    let ask_broker = async || Shown::from_broker(options, wanted).await;
    let Shown { uuid, cluster, policy, join_report } =
        listing::of_either(source, options, ask_console, ask_broker).await?;
    let (entry, etag, revision) =
        policy.map_or((Value::Null, None, None), |policy| (policy.value, policy.etag, policy.revision));
    let at_cluster = fleet_view::tables::policy_at_join(&join_report);
    let value = json!({
        "cluster": cluster, "uuid": uuid, "revision": revision, "etag": etag, "join_service": at_cluster, "policy": entry
    });
    let lines = || match (revision, etag) {
        (Some(revision), Some(etag)) => {
            let mut lines = vec![
                format!("{cluster}: revision {revision}, ETag {etag}"),
                format!("join service: {}", described(&join_report)),
                String::new(),
            ];
            lines.extend(output::yaml(&entry).unwrap_or_default().lines().map(str::to_owned));
            lines
        }
        _ => {
            vec![format!("{cluster} has no attestation policy: no host can join; begin with `sparkfleet policy init`")]
        }
    };
    output::print(options.presentation.output, lines, &value)
}

/// A policy that admits no host: hosts that ask are shown with these PCRs.
fn first(pcr: &[u8], lock: u8) -> AttestationPolicy {
    let observed = |index: &u8| (index.to_string(), PcrRule { expected: Vec::new(), warn_only: true });
    AttestationPolicy {
        variants: vec![EvidenceVariant::Tpm2],
        bank: PcrBank::Sha256,
        pcrs: pcr.iter().map(observed).collect(),
        boot: None,
        lock: PcrLock { pcr: lock, before: None, after: None },
        local_unlock: None,
        endorsement: EndorsementRules {
            require: EndorsementProof::Enrolment,
            manufacturers: Vec::new(),
            device_manufacturers: Vec::new(),
            enrolled: Vec::new(),
            revoked: Vec::new(),
        },
        signature: None,
    }
}

async fn init(wanted: &str, pcr: &[u8], lock: u8, signer: &SignerArguments, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Config).await?;
    let (uuid, cluster) = look_up::cluster_entry(&client.fleet, wanted)?;
    let signer = Signer::open(signer, uuid)?;
    if let Some((_, entry)) = attestation_policy::current(&client.fleet, uuid)? {
        let error = anyhow!("{} has an attestation policy already, of revision {}", cluster.name, entry.revision);
        return Err(exit::with_code(exit::REFUSED, error));
    }
    let result = attestation_policy::write(&mut client, uuid, &first(pcr, lock), None, &signer).await?;
    let lines = vec![
        format!("policy of {} created: revision {}; it admits no host", cluster.name, result.revision),
        "start a host, then: sparkfleet policy capture HOST; sparkfleet host approve HOST".to_owned(),
    ];
    output::print(options.presentation.output, || lines, &json!(result))?;
    client.close().await;
    Ok(())
}

async fn set(
    wanted: &str,
    value: Value,
    if_match: Option<&str>,
    signer: &SignerArguments,
    options: &Options,
) -> anyhow::Result<()> {
    let policy: AttestationPolicy = serde_json::from_value(value)
        .context("the file holds no attestation policy")
        .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let asked = if_match.map(etag_option).transpose()?;
    let mut client = Client::open(options, Scope::Config).await?;
    let (uuid, cluster) = look_up::cluster_entry(&client.fleet, wanted)?;
    let signer = Signer::open(signer, uuid)?;
    let before = attestation_policy::current(&client.fleet, uuid)?.map(|(_, entry)| entry.etag);
    let result = attestation_policy::write(&mut client, uuid, &policy, asked.unwrap_or(before), &signer).await?;
    let done = outcome(before, result.etags.get(AttestationPolicy::slug()).copied());
    let line = format!("policy of {} {done}: revision {}", cluster.name, result.revision);
    let mut value = json!(result);
    value["change"] = json!(done);
    output::print(options.presentation.output, || vec![line], &value)?;
    client.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_policy_can_be_written_and_names_a_pcr_that_cannot_be_observed() {
        let policy = first(&[0, 4, 11], 15);
        attestation_policy::check(&policy).unwrap();
        assert_eq!(policy.pcrs.keys().collect::<Vec<_>>(), ["0", "11", "4"]);
        let error = format!("{:#}", attestation_policy::check(&first(&[4, 15], 15)).unwrap_err());
        assert!(error.ends_with("pcrs.15: is the lock PCR: its values are in `lock`"), "{error}");
        assert!(attestation_policy::check(&first(&[], 15)).is_err());
    }
}
