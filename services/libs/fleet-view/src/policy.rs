//! Attestation policies as a table, and what another policy would say of the hosts that are known: by their last quotes, as the join services publish them.
//!
//! Event logs and certificates of endorsement keys are not published. What only they decide is said to be unknown, unless the policy in force asks the same and has let the host in.

use configdb_schema::Document as _;
use configdb_schema::document::{AttestationPolicy, EndorsementProof, EnrolledHost, EvidenceVariant};
use join_service_contract::HostState;
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use crate::deltas::Table;
use crate::tables::{add, meaning};
use crate::{Fleet, JoiningHostRow};

/// What a policy would say of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outlook {
    /// It would be admitted, or open its disk again.
    Passes,
    /// It would be refused.
    Fails,
    /// Nothing that is known speaks against it, and something is not known.
    Unknown,
}

/// A host under a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostOutlook {
    /// Its name.
    pub host: String,
    /// How it stands now.
    pub state: &'static str,
    /// Hash of its endorsement key.
    pub ek: String,
    /// What the policy would say.
    pub outlook: Outlook,
    /// Why it would be refused.
    pub differences: Vec<String>,
    /// What is different and would only be a warning.
    pub warnings: Vec<String>,
    /// What is not known here.
    pub unknown: Vec<String>,
}

/// What `wanted` would say of each host that has shown itself to the join service of a cluster; by their names.
#[must_use]
pub fn simulate(fleet: &Fleet, cluster: Uuid, wanted: &AttestationPolicy) -> Vec<HostOutlook> {
    let active: Option<AttestationPolicy> = fleet.config.document(cluster).ok().flatten();
    let name = fleet.cluster_entries().find(|(uuid, _)| *uuid == cluster).map(|(_, entry)| entry.name);
    let hosts = name.map(|name| fleet.joining_hosts(Some(&name))).unwrap_or_default();
    hosts.iter().map(|host| outlook(host, wanted, active.as_ref())).collect()
}

fn outlook(host: &JoiningHostRow, wanted: &AttestationPolicy, in_force: Option<&AttestationPolicy>) -> HostOutlook {
    let mut found = HostOutlook {
        host: host.title(),
        state: host.state.as_str(),
        ek: host.endorsement_key.clone(),
        outlook: Outlook::Passes,
        differences: Vec::new(),
        warnings: Vec::new(),
        unknown: Vec::new(),
    };
    evidence(host, wanted, &mut found);
    pcrs(host, wanted, in_force, &mut found);
    endorsement(host, wanted, in_force, &mut found);
    let was_admitted = matches!(host.state, HostState::Admitted | HostState::Locked | HostState::Member);
    let is_as_before = was_admitted && in_force.is_some_and(|known| known.boot == wanted.boot);
    if wanted.boot.is_some() && !is_as_before {
        found.unknown.push("what its firmware loaded: the event log is not published".to_owned());
    }
    found.outlook = match (found.differences.is_empty(), found.unknown.is_empty()) {
        (false, _) => Outlook::Fails,
        (true, false) => Outlook::Unknown,
        (true, true) => Outlook::Passes,
    };
    found
}

fn evidence(host: &JoiningHostRow, wanted: &AttestationPolicy, found: &mut HostOutlook) {
    let name = |variant: &EvidenceVariant| json!(variant).as_str().unwrap_or_default().to_owned();
    let accepted: Vec<String> = wanted.variants.iter().map(name).collect();
    if !accepted.contains(&host.variant) {
        found.differences.push(format!("its evidence is {}; accepted: {}", host.variant, accepted.join(", ")));
    }
    if host.has_foreign_disk {
        found.differences.push("it has the state disk of another host".to_owned());
    }
}

fn pcrs(
    host: &JoiningHostRow,
    wanted: &AttestationPolicy,
    in_force: Option<&AttestationPolicy>,
    found: &mut HostOutlook,
) {
    if in_force.is_some_and(|known| known.bank != wanted.bank) {
        found.unknown.push("PCRs of the other bank: no host has quoted them".to_owned());
        return;
    }
    for (pcr, rule) in wanted.pcrs.iter().filter(|(_, rule)| !rule.expected.is_empty()) {
        let index = pcr.parse::<u8>().ok();
        let what = format!("PCR {pcr} ({})", index.map_or("", meaning));
        let text = match index.and_then(|index| host.pcrs.get(&index)) {
            None => {
                found.unknown.push(format!("{what}: it was not quoted"));
                continue;
            }
            Some(quoted) if rule.expected.iter().any(|value| value.eq_ignore_ascii_case(quoted)) => continue,
            Some(quoted) => format!("{what} holds {quoted}"),
        };
        if rule.warn_only { &mut found.warnings } else { &mut found.differences }.push(text);
    }
}

fn endorsement(
    host: &JoiningHostRow,
    wanted: &AttestationPolicy,
    in_force: Option<&AttestationPolicy>,
    found: &mut HostOutlook,
) {
    let rules = &wanted.endorsement;
    let is_key = |ek: &str| ek.eq_ignore_ascii_case(&host.endorsement_key);
    if rules.revoked.iter().any(|ek| is_key(ek)) {
        found.differences.push("its endorsement key is revoked".to_owned());
    }
    let enrolled = rules.enrolled.iter().find(|known| is_key(&known.ek));
    if let Some(enrolled) = enrolled {
        enrolment(host, enrolled, found);
    }
    let has_certificate = in_force.is_some_and(|known| {
        let asked = matches!(known.endorsement.require, EndorsementProof::Certificate | EndorsementProof::Both);
        asked && known.endorsement.manufacturers == rules.manufacturers && host.state == HostState::Member
    });
    let mut certificate = || {
        if !has_certificate {
            found.unknown.push("the certificate of its endorsement key: it is not published".to_owned());
        }
    };
    match rules.require {
        EndorsementProof::Certificate => certificate(),
        EndorsementProof::Either if enrolled.is_none() => certificate(),
        EndorsementProof::Both => {
            certificate();
            if enrolled.is_none() {
                found.differences.push("its endorsement key is not enrolled".to_owned());
            }
        }
        EndorsementProof::Enrolment if enrolled.is_none() => {
            found.differences.push("its endorsement key is not enrolled".to_owned());
        }
        EndorsementProof::Either | EndorsementProof::Enrolment => {}
    }
}

fn enrolment(host: &JoiningHostRow, enrolled: &EnrolledHost, found: &mut HostOutlook) {
    if let Some(name) = enrolled.host.as_ref().filter(|name| !host.name.is_empty() && **name != host.name) {
        found.differences.push(format!("it is enrolled as {name}, and calls itself {}", host.name));
    }
    if let Some(disk) = enrolled.disk.filter(|disk| *disk != host.disk) {
        found.differences.push(format!("it is enrolled with state disk {disk}, and has {}", host.disk));
    }
    if host.role == "control-plane" && !enrolled.control_plane {
        found.differences.push("it asks for the control plane, and is enrolled without".to_owned());
    }
}

/// Table `policies`, by the UUID of the cluster: those of clusters that have one.
#[must_use]
pub fn policies(fleet: &Fleet) -> Table {
    let mut table = Table::new();
    for (uuid, cluster) in fleet.cluster_entries() {
        let Some(entry) = fleet.config.entry(uuid, AttestationPolicy::slug()) else { continue };
        let policy = entry.parse::<AttestationPolicy>();
        let (policy, reason) = match policy {
            Ok(policy) => (Some(policy), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let pcrs = policy.iter().flat_map(|policy| &policy.pcrs).filter_map(|(pcr, _)| pcr.parse().ok());
        let meanings = pcrs.map(|pcr: u8| (pcr.to_string(), json!(meaning(pcr))));
        let join = fleet.join(&cluster.name).and_then(join_service_contract::JoinReplica::node);
        let join = join.map(|node| {
            json!({ "revision": node.policy_revision, "state": node.policy_state.as_str(), "error": node.policy_error })
        });
        let json = json!({
            "cluster": cluster.name, "revision": entry.revision, "join": join, "reason": reason,
            "meanings": meanings.collect::<serde_json::Map<_, _>>(),
            "hosts": policy.as_ref().map(|policy| simulate(fleet, uuid, policy)), "policy": policy,
        });
        add(&mut table, uuid.to_string(), None, json);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, CLUSTER, NAME};
    use configdb_schema::document::{EndorsementRules, PcrBank, PcrLock, PcrRule};
    use join_service_contract::JoinHost;

    fn policy(value: &str) -> AttestationPolicy {
        let rule = |expected: &str, warn_only| PcrRule { expected: vec![expected.to_owned()], warn_only };
        AttestationPolicy {
            variants: vec![EvidenceVariant::Simulated],
            bank: PcrBank::Sha256,
            pcrs: [("4".to_owned(), rule(value, false)), ("1".to_owned(), rule("00", true))].into(),
            boot: None,
            local_unlock: None,
            lock: PcrLock { pcr: 15, before: None, after: None },
            endorsement: EndorsementRules {
                require: EndorsementProof::Enrolment,
                manufacturers: Vec::new(),
                device_manufacturers: Vec::new(),
                enrolled: vec![EnrolledHost {
                    ek: "aa".to_owned(),
                    host: None,
                    disk: None,
                    iak: None,
                    control_plane: false,
                }],
                revoked: Vec::new(),
            },
            signature: None,
        }
    }

    fn bench() -> Bench {
        let mut bench = Bench::with_cluster();
        let host = JoinHost {
            name: "paint-2".to_owned(),
            role: "worker".to_owned(),
            variant: "simulated".to_owned(),
            endorsement_key: "aa".to_owned(),
            pcrs: Some([(4, "ab".to_owned()), (1, "11".to_owned())].into()),
            ..JoinHost::default()
        };
        bench.join(NAME, &[(Uuid::from_u128(7), host)]);
        bench.entry(CLUSTER, &policy("AB"));
        bench
    }

    fn one(change: impl FnOnce(&mut AttestationPolicy)) -> HostOutlook {
        let mut wanted = policy("ab");
        change(&mut wanted);
        simulate(&bench().fleet, CLUSTER, &wanted).remove(0)
    }

    #[test]
    fn a_host_passes_by_its_last_quote_and_a_warning_refuses_no_host() {
        let found = one(|_| {});
        assert_eq!((found.outlook, found.host.as_str()), (Outlook::Passes, "paint-2"));
        assert_eq!(found.warnings, ["PCR 1 (firmware configuration) holds 11"]);
        assert!(simulate(&bench().fleet, Uuid::nil(), &policy("ab")).is_empty());
    }

    #[test]
    fn what_refuses_a_host_is_named() {
        for (change, expected) in [
            (
                (|policy| policy.pcrs.get_mut("4").unwrap().expected = vec!["cd".to_owned()])
                    as fn(&mut AttestationPolicy),
                "PCR 4 (boot loader) holds ab",
            ),
            (|policy| policy.variants = vec![EvidenceVariant::Tpm2], "its evidence is simulated; accepted: tpm2"),
            (|policy| policy.endorsement.enrolled.clear(), "its endorsement key is not enrolled"),
            (|policy| policy.endorsement.revoked.push("AA".to_owned()), "its endorsement key is revoked"),
            (
                |policy| policy.endorsement.enrolled[0].host = Some("paint-9".to_owned()),
                "it is enrolled as paint-9, and calls itself paint-2",
            ),
        ] {
            let found = one(change);
            assert_eq!((found.outlook, found.differences), (Outlook::Fails, vec![expected.to_owned()]));
        }
    }

    #[test]
    fn what_is_not_published_is_unknown_and_never_guessed() {
        let found = one(|policy| policy.boot = Some(configdb_schema::document::BootRules::default()));
        assert_eq!(found.outlook, Outlook::Unknown);
        let found = one(|policy| policy.endorsement.require = EndorsementProof::Both);
        assert_eq!((found.outlook, found.unknown.len()), (Outlook::Unknown, 1));
        let found = one(|policy| policy.bank = PcrBank::Sha384);
        assert_eq!((found.outlook, found.unknown.len()), (Outlook::Unknown, 1));
    }

    #[test]
    fn the_table_has_the_policy_in_force_and_its_hosts() {
        let table = policies(&bench().fleet);
        let row = &table[&CLUSTER.to_string()];
        assert_eq!((&row["cluster"], &row["meanings"]["4"]), (&json!(NAME), &json!("boot loader")));
        assert_eq!((&row["hosts"][0]["outlook"], &row["policy"]["bank"]), (&json!("passes"), &json!("sha256")));
    }
}
