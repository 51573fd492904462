//! `sparkfleet cluster identity ...`: who a cluster is known by, and how that is ended.

use std::collections::BTreeSet;

use anyhow::anyhow;
use configdb_schema::document::{CertificateState, EdgeClusterEnrolment, EdgeClusterIdentity, IdentityAlertKind};
use serde_json::json;
use service_runtime::exit;

use super::bootstrap;
use crate::arguments::IdentityCommand;
use crate::client::{Client, Scope};
use crate::look_up;
use crate::options::Options;
use crate::output::{self, Table};
use crate::usage_error::usage;

/// Carries out an identity command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: IdentityCommand) -> anyhow::Result<()> {
    match command {
        IdentityCommand::Show { cluster, options } => show(&cluster, &options).await,
        IdentityCommand::Revoke { cluster, serial, options } => {
            change(&cluster, &options, "revoked", |identity, wanted| revoke(identity, wanted, &serial)).await
        }
        IdentityCommand::Approve { cluster, options } => change(&cluster, &options, "approved", approve).await,
        IdentityCommand::Replace { cluster, options } => {
            change(&cluster, &options, "fenced off", |_, wanted| {
                wanted.fence =
                    wanted.fence.checked_add(1).ok_or_else(|| anyhow!("the fence cannot be raised further"))?;
                // A token of the old machine must not let it in again.
                wanted.tokens.clear();
                Ok(())
            })
            .await
        }
    }
}

async fn show(wanted: &str, options: &Options) -> anyhow::Result<()> {
    let client = Client::open(options, Scope::Config).await?;
    let (uuid, entry) = look_up::cluster_entry(&client.fleet, wanted)?;
    let identity: EdgeClusterIdentity = client.fleet.config.document(uuid)?.unwrap_or_default();
    let enrolment: EdgeClusterEnrolment = client.fleet.config.document(uuid)?.unwrap_or_default();
    let value = json!({ "cluster": uuid, "name": entry.name, "identity": identity, "enrolment": enrolment });
    let lines = || {
        let mut certificates = Table::new(&["CERTIFICATE", "NODE", "STATE", "FENCE", "ISSUED", "EXPIRES"]);
        for one in &identity.certificates {
            let state = match one.state {
                CertificateState::Valid => "valid",
                CertificateState::Renewed => "renewed",
                CertificateState::Revoked => "revoked",
            };
            let fence = one.fence.to_string();
            certificates.row([one.serial.as_str(), &one.node, state, &fence, &one.issued, &one.expires]);
        }
        let mut tokens = Table::new(&["TOKEN", "MADE BY", "EXPIRES", "USED"]);
        for token in &enrolment.tokens {
            let used = identity.tokens.iter().find(|used| used.hash == token.hash);
            let used = used.map_or("not yet", |used| used.used.as_str());
            tokens.row([token.hash.get(..16).unwrap_or_default(), &token.by, &token.expires, used]);
        }
        let parts = [certificates, tokens].into_iter().filter(|part| !part.is_empty()).flat_map(|part| part.shown());
        let alerts =
            identity.alerts.iter().map(|alert| output::visible(&format!("alert  {} {}", alert.at, alert.text)));
        parts.chain(alerts).collect()
    };
    let result = output::print(options.presentation.output, lines, &value);
    client.close().await;
    result
}

/// Adds the serial numbers, or those of every certificate that counts, to the revoked ones.
fn revoke(identity: &EdgeClusterIdentity, wanted: &mut EdgeClusterEnrolment, serials: &[String]) -> anyhow::Result<()> {
    let counting: BTreeSet<&String> = identity
        .certificates
        .iter()
        .filter(|one| one.state != CertificateState::Revoked)
        .map(|one| &one.serial)
        .collect();
    let named: Vec<String> = serials.iter().map(|serial| serial.to_ascii_lowercase()).collect();
    if let Some(unknown) = named.iter().find(|serial| !counting.contains(serial)) {
        return Err(usage(anyhow!("the cluster has no certificate {unknown} that counts")));
    }
    let all: BTreeSet<String> =
        if named.is_empty() { counting.into_iter().cloned().collect() } else { named.into_iter().collect() };
    // What is recorded as revoked need not be asked for any longer; so the list does not grow for ever.
    wanted.revoked.retain(|serial| identity.certificates.iter().any(|one| one.serial == *serial));
    let known: BTreeSet<String> = wanted.revoked.iter().cloned().collect();
    wanted.revoked.extend(all.into_iter().filter(|serial| !known.contains(serial)));
    Ok(())
}

/// Adds the serial number of the certificate that waits for approval to those that may be renewed although they have expired.
fn approve(identity: &EdgeClusterIdentity, wanted: &mut EdgeClusterEnrolment) -> anyhow::Result<()> {
    let asking = |serial: &str| {
        let mut alerts = identity.alerts.iter();
        alerts.any(|alert| alert.kind == IdentityAlertKind::RenewalWaits && alert.text.contains(serial))
    };
    let valid = || identity.certificates.iter().filter(|one| one.state == CertificateState::Valid);
    let waiting: Vec<&String> = valid().map(|one| &one.serial).filter(|serial| asking(serial)).collect();
    if waiting.is_empty() {
        return Err(exit::with_code(exit::REFUSED, anyhow!("no certificate of the cluster waits for approval")));
    }
    // An approval counts once; those that were used are let go.
    wanted.approved.retain(|serial| valid().any(|one| one.serial == *serial) && !waiting.contains(&serial));
    wanted.approved.extend(waiting.into_iter().cloned());
    Ok(())
}

async fn change(
    wanted: &str,
    options: &Options,
    done: &str,
    edit: impl FnOnce(&EdgeClusterIdentity, &mut EdgeClusterEnrolment) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Config).await?;
    let (uuid, entry) = look_up::cluster_entry(&client.fleet, wanted)?;
    let identity: EdgeClusterIdentity = client.fleet.config.document(uuid)?.unwrap_or_default();
    let (mut enrolment, etag) = bootstrap::enrolment(&client.fleet, uuid)?;
    edit(&identity, &mut enrolment)?;
    let revision = client.write_document(uuid, &enrolment, etag).await?;
    let value = json!({ "cluster": uuid, "name": entry.name, "revision": revision, "state": done,
        "fence": enrolment.fence, "revoked": enrolment.revoked, "approved": enrolment.approved });
    output::print(options.presentation.output, || vec![format!("the identity of {} is {done}", entry.name)], &value)?;
    client.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use configdb_schema::document::{CertificateKind, IdentityAlert, IssuedCertificate};

    fn identity(states: &[(&str, CertificateState)]) -> EdgeClusterIdentity {
        let certificates = states.iter().map(|(serial, state)| IssuedCertificate {
            serial: (*serial).to_owned(),
            node: "cluster".to_owned(),
            kind: CertificateKind::Mqtt,
            key: String::new(),
            issued: String::new(),
            expires: String::new(),
            fence: 0,
            state: *state,
        });
        EdgeClusterIdentity { certificates: certificates.collect(), ..EdgeClusterIdentity::default() }
    }

    #[test]
    fn one_certificate_or_all_that_count_are_revoked() {
        let identity = identity(&[
            ("4a01", CertificateState::Revoked),
            ("4a02", CertificateState::Valid),
            ("4a03", CertificateState::Valid),
        ]);
        let mut wanted = EdgeClusterEnrolment { revoked: vec!["4a00".to_owned()], ..EdgeClusterEnrolment::default() };
        revoke(&identity, &mut wanted, &["4A03".to_owned()]).unwrap();
        assert_eq!(wanted.revoked, ["4a03"], "and what was forgotten is not asked for any longer");
        revoke(&identity, &mut wanted, &[]).unwrap();
        assert_eq!(wanted.revoked, ["4a03", "4a02"]);
        assert!(revoke(&identity, &mut wanted, &["4a01".to_owned()]).is_err());
    }

    #[test]
    fn what_waits_is_approved_and_nothing_else() {
        let mut identity = identity(&[
            ("4a01", CertificateState::Renewed),
            ("4a02", CertificateState::Valid),
            ("4a03", CertificateState::Valid),
        ]);
        let mut wanted = EdgeClusterEnrolment {
            approved: vec!["4a01".to_owned(), "4a03".to_owned()],
            ..EdgeClusterEnrolment::default()
        };
        assert!(approve(&identity, &mut wanted).is_err(), "nothing waits");
        identity.alerts.push(IdentityAlert {
            kind: IdentityAlertKind::RenewalWaits,
            at: String::new(),
            text: "certificate 4a02 asks for renewal".to_owned(),
        });
        for _ in 0..2 {
            approve(&identity, &mut wanted).unwrap();
            assert_eq!(wanted.approved, ["4a03", "4a02"], "and what was renewed is let go");
        }
    }
}
