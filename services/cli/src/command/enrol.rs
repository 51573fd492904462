//! `sparkfleet host enrol`: hosts that are known before they are switched on, such as a delivery whose endorsement keys the manufacturer lists.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use configdb_schema::document::EnrolledHost;
use serde_json::json;
use service_runtime::exit;
use uuid::Uuid;

use super::attestation_policy;
use super::signer::Signer;
use crate::arguments::joining::SignerArguments;
use crate::client::{Client, Scope};
use crate::input::read;
use crate::look_up;
use crate::options::Options;
use crate::output;

/// Enrols the hosts of a file, all or none.
///
/// # Errors
/// [`exit::CONFIG`] with file, line and rule; [`exit::REFUSED`] if there is no policy, a key is revoked, or the policy would break a rule; as documented for the exit codes.
pub async fn run(wanted: &str, file: &Path, signer: &SignerArguments, options: &Options) -> anyhow::Result<()> {
    let hosts = parse(&read(file)?)
        .with_context(|| format!("{} is not a list of hosts", file.display()))
        .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let mut client = Client::open(options, Scope::Config).await?;
    let (uuid, cluster) = look_up::cluster_entry(&client.fleet, wanted)?;
    let Some((stands, entry)) = attestation_policy::current(&client.fleet, uuid)? else {
        let error = anyhow!("{} has no attestation policy; write one with `sparkfleet policy set`", cluster.name);
        return Err(exit::with_code(exit::REFUSED, error));
    };
    let signer = Signer::open(signer, uuid)?;
    let mut policy = signer.checked(stands)?;
    if let Some(revoked) = hosts.iter().find(|host| attestation_policy::listed(&policy, &host.ek).1) {
        let error = anyhow!("endorsement key {} is revoked; no host of the list was enrolled", revoked.ek);
        return Err(exit::with_code(exit::REFUSED, error));
    }
    let total = hosts.len();
    let changed =
        hosts.into_iter().map(|host| attestation_policy::enrol(&mut policy, host)).filter(|changed| *changed).count();
    let revision = match changed {
        0 => None,
        _ => Some(attestation_policy::write(&mut client, uuid, &policy, Some(entry.etag), &signer).await?.revision),
    };
    let known = total - changed;
    let value = json!({ "cluster": cluster.name, "enrolled": changed, "unchanged": known, "revision": revision });
    let lines = || vec![format!("{changed} hosts enrolled in {}, {known} were before", cluster.name)];
    let printed = output::print(options.presentation.output, lines, &value);
    client.close().await;
    printed
}

/// Reads a list: in each line `EK[,NAME[,DISK[,ROLE[,IAK]]]]`; empty lines and those that begin with `#` say nothing.
///
/// # Errors
/// Line and rule.
pub(super) fn parse(text: &str) -> anyhow::Result<Vec<EnrolledHost>> {
    let mut lines_of: BTreeMap<String, usize> = BTreeMap::new();
    let mut hosts = Vec::new();
    let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim).enumerate();
    for (index, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let number = index + 1;
        let host = host_of(line).with_context(|| format!("line {number}"))?;
        if let Some(before) = lines_of.insert(host.ek.clone(), number) {
            return Err(anyhow!("line {number}: the endorsement key is that of line {before}"));
        }
        hosts.push(host);
    }
    if hosts.is_empty() { Err(anyhow!("it names no host")) } else { Ok(hosts) }
}

fn host_of(line: &str) -> anyhow::Result<EnrolledHost> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let field = |index: usize| fields.get(index).copied().filter(|field| !field.is_empty());
    if fields.len() > 5 {
        return Err(anyhow!(
            "a line has at most 5 fields: endorsement key, name, state disk, role, initial attestation key"
        ));
    }
    let ek = hash_of("endorsement key", field(0).unwrap_or_default())?;
    let disk = field(2).map(Uuid::try_parse).transpose().context("the state disk must be a UUID")?;
    let control_plane = match field(3) {
        None | Some("worker") => false,
        Some("control-plane") => true,
        Some(other) => return Err(anyhow!("the role must be worker or control-plane, not {other:?}")),
    };
    let iak = field(4).map(|text| hash_of("initial attestation key", text)).transpose()?;
    Ok(EnrolledHost { ek, host: field(1).map(str::to_owned), disk, iak, control_plane })
}

fn hash_of(what: &str, text: &str) -> anyhow::Result<String> {
    let hash = text.to_ascii_lowercase();
    if hash.len() != 64 || !hash.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(anyhow!("the {what} must be 64 hexadecimal digits, not {hash:?}"));
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_keys_and_what_is_known_of_their_hosts() {
        let (first, second) = ("AB".repeat(32), "cd".repeat(32));
        let disk = Uuid::from_u128(5);
        let text = format!(
            "\u{feff}# delivery 7\r\n{first},,,,{second}\r\n\r\n {second} , press-2, {disk}, control-plane\r\n"
        );
        let hosts = parse(&text).unwrap();
        let iak = Some(second.clone());
        let plain = EnrolledHost { ek: first.to_lowercase(), host: None, disk: None, iak, control_plane: false };
        let named = EnrolledHost {
            ek: second,
            host: Some("press-2".to_owned()),
            disk: Some(disk),
            iak: None,
            control_plane: true,
        };
        assert_eq!(hosts, [plain, named]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let ek = "ab".repeat(32);
        let error = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert_eq!(error("# no host\n"), "it names no host");
        assert_eq!(error("\nab"), "line 2: the endorsement key must be 64 hexadecimal digits, not \"ab\"");
        assert!(error(&format!("{ek},press-1,disk")).starts_with("line 1: the state disk must be a UUID"));
        let role = error(&format!("{ek},,,server"));
        assert_eq!(role, "line 1: the role must be worker or control-plane, not \"server\"");
        let many = error(&format!("{ek},,,worker,,"));
        assert_eq!(
            many,
            "line 1: a line has at most 5 fields: endorsement key, name, state disk, role, initial attestation key"
        );
        let twice = error(&format!("{ek}\n{}\n", ek.to_uppercase()));
        assert_eq!(twice, "line 2: the endorsement key is that of line 1");
    }
}
