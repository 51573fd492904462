//! `sparkfleet acl ...`: access control for MQTT servers. Needs no server and no ConfigDB.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use broker_acl::{Broker, ConfigFile, Site, configuration};
use configdb_schema::address::{ClusterName, Organisation};
use serde_json::Value;
use service_runtime::{atomic_file, exit};
use sparkplug::HostId;

use super::crl;
use crate::arguments::{AclCommand, AclGenerateArguments, BrokerKind};
use crate::input::read_document;
use crate::output;
use crate::usage_error::usage;

/// Carries out an access control command.
///
/// # Errors
/// As documented for the exit codes.
pub fn run(command: &AclCommand) -> anyhow::Result<()> {
    let arguments = match command {
        AclCommand::Generate(arguments) => arguments,
        AclCommand::Crl(arguments) => return crl::run(arguments),
    };
    let site = site(arguments)?;
    let files = configuration(kind(arguments.broker), &site);
    match &arguments.directory {
        Some(directory) => write(directory, &files),
        None => {
            let shown = |file: &ConfigFile| format!("==> {} <==\n{}", file.name, file.text);
            output::print_text(&files.iter().map(shown).collect::<Vec<_>>().join("\n"))
        }
    }
}

const fn kind(broker: BrokerKind) -> Broker {
    match broker {
        BrokerKind::Mosquitto => Broker::Mosquitto,
        BrokerKind::MosquittoDynsec => Broker::MosquittoDynamicSecurity,
        BrokerKind::Emqx => Broker::Emqx,
        BrokerKind::Hivemq => Broker::HiveMq,
        BrokerKind::Vernemq => Broker::VerneMq,
    }
}

fn site(arguments: &AclGenerateArguments) -> anyhow::Result<Site> {
    let organisation = Organisation::new(arguments.organisation.clone()).context("--organisation").map_err(usage)?;
    let named = match &arguments.clusters_from {
        Some(file) => names_in(&read_document(file)?)
            .with_context(|| format!("--clusters-from {}", file.display()))
            .map_err(usage)?,
        None => Vec::new(),
    };
    let clusters = arguments.cluster.iter().cloned().chain(named).map(ClusterName::new);
    let clusters = clusters.collect::<Result<Vec<_>, _>>().context("--cluster").map_err(usage)?;
    if clusters.is_empty() {
        return Err(usage(anyhow!(
            "no cluster is named; give --cluster NAME for each, or `sparkfleet cluster list -o json | sparkfleet acl generate --clusters-from -`"
        )));
    }
    let hosts = |ids: &[String], option: &'static str| {
        ids.iter().map(HostId::new).collect::<Result<Vec<_>, _>>().context(option).map_err(usage)
    };
    let (operators, viewers) =
        (hosts(&arguments.operator_host, "--operator-host")?, hosts(&arguments.viewer_host, "--viewer-host")?);
    let site = Site::new(organisation, clusters, operators, viewers).map_err(|error| usage(error.into()))?;
    let site = if arguments.own_host_credentials { site.with_own_hosts() } else { site };
    Ok(if arguments.read_only_console { site.with_read_only_console() } else { site })
}

/// The names in what `sparkfleet cluster list -o json` prints.
pub(super) fn names_in(document: &Value) -> anyhow::Result<Vec<String>> {
    let rows = document.as_array().ok_or_else(|| anyhow!("it is no list of clusters"))?;
    let name = |row: &Value| row.get("name").and_then(Value::as_str).map(str::to_owned);
    rows.iter().map(|row| name(row).ok_or_else(|| anyhow!("a cluster in it has no `name`"))).collect()
}

fn write(directory: &Path, files: &[ConfigFile]) -> anyhow::Result<()> {
    let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))
        .map_err(wrong)?;
    let paths: Vec<_> = files.iter().map(|file| directory.join(file.name)).collect();
    for (file, path) in files.iter().zip(&paths) {
        atomic_file::write(path, file.text.as_bytes(), None).map_err(|error| wrong(error.into()))?;
    }
    output::print_text(&paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n"))
}
