//! Table `hosts`: Kubernetes Nodes and hosts on their way in, joined by name. A row has the join as a ladder, the last refusal and what to do about it, and the PCRs against the policy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use configdb_schema::document::AttestationPolicy;
use join_service_contract::HostState;
use serde_json::{Map, Value, json};

use super::{Step, StepState, add, ladder};
use crate::deltas::Table;
use crate::fleet::role;
use crate::{Fleet, HostRow, JoiningHostRow, health};

/// The document that lists the refusals with what to do about each, so that there is one source of the advice.
const REFUSALS: &str = include_str!("../../../../../docs/attestation.md");

const LADDER: [&str; 9] =
    ["hello", "challenge", "evidence", "verdict", "ticket", "locked", "disk", "installed", "member"];

/// Hosts of the whole fleet, by `CLUSTER/HOSTNAME`; a host without a name, and one that shares its name with another, by its id. A name is that of the member before that of who asks for it,
/// and of who was seen last among equals.
#[must_use]
pub fn hosts(fleet: &Fleet) -> Table {
    let mut joining: BTreeMap<String, JoiningHostRow> = BTreeMap::new();
    for row in fleet.joining_hosts(None) {
        let key = format!("{}/{}", row.cluster, row.title());
        match joining.get(&key) {
            Some(known) if claim(known) > claim(&row) => {
                joining.insert(format!("{}/{}", row.cluster, row.id), row);
            }
            _ => {
                if let Some(older) = joining.insert(key, row) {
                    joining.insert(format!("{}/{}", older.cluster, older.id), older);
                }
            }
        }
    }
    let mut members: BTreeMap<String, HostRow> =
        fleet.hosts(None).into_iter().map(|row| (format!("{}/{}", row.cluster, row.hostname), row)).collect();
    let policies = policies(fleet);
    let keys: BTreeSet<String> = joining.keys().chain(members.keys()).cloned().collect();
    let mut table = Table::new();
    for key in keys {
        let (member, joining) = (members.remove(&key), joining.remove(&key));
        let cluster = key.split_once('/').map_or("", |(cluster, _)| cluster).to_owned();
        let alive = fleet.sync(&cluster).is_some_and(edge_sync_contract::SyncReplica::is_alive);
        let condition = health::host(member.as_ref().map(|row| row.ready), joining.as_ref(), alive);
        let name = key.split_once('/').map_or("", |(_, name)| name).to_owned();
        let policy = policies.get(&cluster);
        let row = json!({
            "cluster": cluster,
            "name": joining.as_ref().map(JoiningHostRow::title).unwrap_or(name),
            "role": joining.as_ref().map(|row| row.role.clone()).or_else(|| member.as_ref().map(|row| row.role.to_owned())),
            "member": member_status(member.as_ref(), joining.as_ref()),
            "joined": member.is_some() || joining.as_ref().is_some_and(|row| row.state == HostState::Member),
            "ready": member.as_ref().map(|row| row.ready),
            "steps": joining.as_ref().map(steps).unwrap_or_default(),
            "refusal": joining.as_ref().and_then(refusal),
            "ek": joining.as_ref().map(|row| row.endorsement_key.clone()),
            "disk": joining.as_ref().map(|row| row.disk),
            "variant": joining.as_ref().map(|row| row.variant.clone()),
            "warnings": joining.as_ref().and_then(|row| row.warnings.clone()),
            "policy_revision": joining.as_ref().map(|row| row.policy_revision),
            "pcrs": joining.as_ref().map(|row| pcrs(row, policy)).unwrap_or_default(),
            "joining": joining.as_ref().map(joining_host),
            "kubernetes": member.map(|row| json!({
                "version": row.kubernetes_version, "os": row.operating_system, "architecture": row.architecture,
                "specialised": row.specialised, "role": row.role, "joined": row.joined,
            })),
        });
        add(&mut table, key, Some(condition), row);
    }
    table
}

/// By what a row has a right to its name.
const fn claim(row: &JoiningHostRow) -> (bool, bool, u64) {
    let was_admitted = !matches!(row.state, HostState::Pending | HostState::Refused);
    (!row.has_foreign_disk, was_admitted, row.last_seen)
}

fn policies(fleet: &Fleet) -> BTreeMap<String, AttestationPolicy> {
    let entries = fleet.cluster_entries();
    let policy = |uuid| fleet.config.document::<AttestationPolicy>(uuid).ok().flatten();
    entries.filter_map(|(uuid, entry)| Some((entry.name, policy(uuid)?))).collect()
}

fn member_status(member: Option<&HostRow>, joining: Option<&JoiningHostRow>) -> &'static str {
    match (member, joining.map(|row| row.state)) {
        (_, Some(HostState::Revoked)) => "revoked",
        (_, Some(HostState::LockedOut)) => "locked out",
        (Some(_), _) => "Kubernetes Node",
        (None, Some(HostState::Pending)) => "waiting",
        (None, Some(HostState::Refused)) => "refused",
        (None, Some(HostState::Failed)) => "failed",
        (None, Some(HostState::Member)) => "member",
        (None, Some(HostState::Admitted | HostState::Locked) | None) => "joining",
    }
}

/// What the join service says of a host, as far as the row has it nowhere else.
fn joining_host(row: &JoiningHostRow) -> Value {
    json!({ "id": row.id, "has_foreign_disk": row.has_foreign_disk, "name": row.name, "state": row.state.as_str(),
        "role": row.role, "kind": row.kind, "stage": row.stage, "verdict": row.verdict, "detail": row.detail,
        "first_seen": row.first_seen, "last_seen": row.last_seen })
}

/// The host that a row of table `hosts` was made of, as its join service knows it. None: no join service knows it, or the row is of another table or version.
#[must_use]
pub fn joining_host_row(row: &Value) -> Option<JoiningHostRow> {
    let mut fields = row.get("joining")?.as_object()?.clone();
    for (name, of) in [
        ("cluster", "cluster"),
        ("disk", "disk"),
        ("variant", "variant"),
        ("warnings", "warnings"),
        ("endorsement_key", "ek"),
        ("policy_revision", "policy_revision"),
    ] {
        fields.insert(name.to_owned(), row.get(of)?.clone());
    }
    let quoted = row.get("pcrs")?.as_array()?.iter().filter(|pcr| pcr["quoted"].is_string());
    let pcrs: Map<String, Value> = quoted.map(|pcr| (pcr["register"].to_string(), pcr["quoted"].clone())).collect();
    fields.insert("registers".to_owned(), Value::Object(pcrs));
    serde_json::from_value(Value::Object(fields)).ok()
}

/// The Kubernetes Node that a row of table `hosts` was made of; None: it has none, or the row is of another table or version.
#[must_use]
pub fn host_row(row: &Value) -> Option<HostRow> {
    let node = row.get("kubernetes")?.as_object()?;
    let text = |name: &str| node.get(name)?.as_str().map(str::to_owned);
    let name = row.get("key")?.as_str()?.split_once('/')?.1;
    Some(HostRow {
        cluster: row.get("cluster")?.as_str()?.to_owned(),
        hostname: name.to_owned(),
        ready: row.get("ready")?.as_bool()?,
        role: role(text("role")? == role(true)),
        architecture: text("architecture")?,
        operating_system: text("os")?,
        kubernetes_version: text("version")?,
        specialised: text("specialised"),
        joined: text("joined"),
    })
}

/// Whether a join service knows the host of a row of table `hosts`.
#[must_use]
pub fn is_known_to_join(row: &Value) -> bool {
    row.get("joining").is_none_or(|joining| !joining.is_null())
}

/// The way in. The join service reports hosts whose evidence was judged, so that the first three rungs are always behind.
fn steps(row: &JoiningHostRow) -> Vec<Step> {
    let of_stage = match row.stage.as_deref() {
        Some("opened") => 5,
        Some("locked") => 6,
        Some("disk-ready") => 7,
        Some("installed") => 8,
        Some("member") => 9,
        _ => 0,
    };
    let (done, state) = match row.state {
        HostState::Pending => (3, StepState::Active),
        HostState::Refused | HostState::LockedOut | HostState::Revoked => (3, StepState::Failed),
        HostState::Admitted => (of_stage.max(4), StepState::Active),
        HostState::Locked => (of_stage.max(6), StepState::Active),
        HostState::Failed => (of_stage.max(4), StepState::Failed),
        HostState::Member => (9, StepState::Done),
    };
    let mut steps = ladder(&LADDER, done, state, Some(row.last_seen));
    if let Some(first) = steps.first_mut() {
        first.since = Some(row.first_seen);
    }
    if let Some(step) = steps.get_mut(done) {
        step.detail.clone_from(&row.detail);
    }
    steps
}

fn refusal(row: &JoiningHostRow) -> Option<Value> {
    let code = row.verdict.as_deref().filter(|_| row.state != HostState::Member)?;
    // The attestation's code stands at the beginning of the text where the protocol's own says only that the evidence was refused.
    let detail = row.detail.as_deref().unwrap_or_default();
    let own = detail.split_once(':').map(|(code, _)| code).filter(|code| advice(code).is_some());
    let code = own.unwrap_or(code);
    Some(json!({ "code": code, "text": detail, "advice": advice(code) }))
}

/// What to do about a refusal, as the documentation says.
pub(super) fn advice(code: &str) -> Option<&'static str> {
    // A fleet can have as many refused hosts as someone likes to start, and each row asks.
    static ADVICE: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| {
        let advice = |line: &'static str| {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            Some((cells.next()?.strip_suffix('`')?, cells.nth(1)?.strip_suffix(" |")?))
        };
        // The first one counts.
        REFUSALS.lines().rev().filter_map(advice).collect()
    });
    ADVICE.get(code).copied()
}

/// What the PCRs of a PC client measure.
pub(crate) const fn meaning(pcr: u8) -> &'static str {
    match pcr {
        0 => "firmware",
        1 => "firmware configuration",
        2 => "option ROMs",
        3 => "option ROM configuration",
        4 => "boot loader",
        5 => "boot loader configuration and partition table",
        6 => "manufacturer",
        7 => "Secure Boot",
        8 | 9 => "boot loader commands and files",
        10 => "files that the kernel measured",
        11 => "unified kernel image",
        12 => "kernel command line",
        13 => "system extensions",
        14 => "machine owner keys",
        15 => "lock of a host that has joined",
        _ => "",
    }
}

fn pcrs(row: &JoiningHostRow, policy: Option<&AttestationPolicy>) -> Vec<Value> {
    let ruled = policy.iter().flat_map(|policy| policy.pcrs.keys()).filter_map(|pcr| pcr.parse::<u8>().ok());
    let pcrs: BTreeSet<u8> = row.pcrs.keys().copied().chain(ruled).collect();
    let of = |pcr: u8| {
        let rule = policy.and_then(|policy| policy.pcrs.get(&pcr.to_string()));
        let quoted = row.pcrs.get(&pcr);
        let expected = rule.map(|rule| rule.expected.clone()).unwrap_or_default();
        let verdict = match quoted {
            None => "missing",
            Some(_) if expected.is_empty() => "observed",
            Some(quoted) if expected.iter().any(|value| value.eq_ignore_ascii_case(quoted)) => "match",
            Some(_) => "differs",
        };
        json!({ "register": pcr, "meaning": meaning(pcr), "expected": expected, "quoted": quoted,
            "verdict": verdict, "warn_only": rule.is_some_and(|rule| rule.warn_only) })
    };
    pcrs.into_iter().map(of).collect()
}
