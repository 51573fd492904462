//! The site whose access control is meant: organisation, clusters, and who else connects.

use anyhow::{Context as _, anyhow};
use broker_acl::Site;
use configdb_schema::address::{ClusterName, OperatorName, Organisation};
use serde_json::Value;
use sparkplug::HostId;

use crate::arguments::AclSite;
use crate::input::read_document;
use crate::usage_error::usage;

/// What the options say.
pub(super) fn site(organisation: &str, arguments: &AclSite) -> anyhow::Result<Site> {
    let organisation = Organisation::new(organisation).context("--organisation").map_err(usage)?;
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
    let names = arguments.operator.iter().cloned().map(OperatorName::new);
    let names = names.collect::<Result<Vec<_>, _>>().context("--operator").map_err(usage)?;
    let site = site.with_operators(names);
    let site = site.with_foreign_groups(arguments.foreign_group.iter().cloned());
    let site = site.context("--foreign-group").map_err(usage)?;
    let site = if arguments.own_host_credentials { site.with_own_hosts() } else { site };
    Ok(if arguments.read_only_console { site.with_read_only_console() } else { site })
}

/// The names in what `sparkfleet cluster list -o json` prints.
pub(super) fn names_in(document: &Value) -> anyhow::Result<Vec<String>> {
    let rows = document.as_array().ok_or_else(|| anyhow!("it is not a list of clusters"))?;
    let name = |row: &Value| row.get("name").and_then(Value::as_str).map(str::to_owned);
    rows.iter().map(|row| name(row).ok_or_else(|| anyhow!("a cluster in it has no `name`"))).collect()
}
