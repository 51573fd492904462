//! `sparkfleet host move`: everything that is bound to a host of a cluster is bound to another one, or to none.

use anyhow::{Context as _, anyhow};
use configdb_contract::WriteRequest;
use serde_json::json;
use service_runtime::exit;

use super::deployment::check_host;
use crate::client::{Client, Scope, author};
use crate::look_up;
use crate::options::Options;
use crate::output;
use crate::usage_error::{not_found, usage};
use fleet_view::requests::{self, RequestError};
use fleet_view::{DeploymentRow, Fleet};

/// What a move comes to.
#[derive(Debug)]
struct Plan {
    cluster: String,
    /// Names of the deployments, in the order of their writes.
    names: Vec<String>,
    writes: Vec<WriteRequest>,
}

/// Moves, or prints what would be moved. Each deployment is a write of its own; after one that was refused the rest stays where it is.
///
/// # Errors
/// As documented for the exit codes.
pub(super) async fn run(wanted: &str, to: Option<&str>, dry_run: bool, options: &Options) -> anyhow::Result<()> {
    let (cluster, host) = wanted
        .split_once('/')
        .filter(|(cluster, host)| !cluster.is_empty() && !host.is_empty())
        .ok_or_else(|| usage(anyhow!("{wanted:?} is not a host of a cluster; write CLUSTER/HOST")))?;
    let mut client = Client::open(options, Scope::Fleet).await?;
    let Plan { cluster, names, writes } = plan(&client.fleet, cluster, host, to)?;
    let place = to.unwrap_or("no host");
    let mut revision = None;
    if !dry_run {
        for (done, (write, name)) in writes.into_iter().zip(&names).enumerate() {
            let result = client.write(write).await;
            let so_far = || format!("{cluster}/{name} was not moved; {done} of {} were", names.len());
            revision = Some(result.with_context(so_far)?.revision);
        }
    }
    let verb = if dry_run { "would move to" } else { "moved to" };
    let lines = || names.iter().map(|name| format!("{cluster}/{name} {verb} {place}")).collect();
    let value = json!({ "cluster": cluster, "host": host, "to": to, "deployments": names, "dry_run": dry_run, "revision": revision });
    output::print(options.presentation.output, lines, &value)?;
    client.close().await;
    Ok(())
}

fn plan(fleet: &Fleet, cluster: &str, host: &str, to: Option<&str>) -> anyhow::Result<Plan> {
    let cluster = look_up::cluster(fleet, cluster)?;
    if to == Some(host) {
        return Err(usage(anyhow!("--to {host} is where they are already")));
    }
    check_host(fleet, &cluster.name, to)?;
    let writes = match requests::move_host(fleet, cluster.uuid, host, to, |_| author()) {
        Ok(writes) => writes,
        Err(error @ RequestError::NotNow(_)) => return Err(nothing_bound(fleet, &cluster.name, host, &error)),
        Err(error) => return Err(exit::with_code(exit::REFUSED, error)),
    };
    let rows = fleet.deployments();
    let name = |write: &WriteRequest| {
        let row = rows.iter().find(|row| row.uuid == write.object);
        row.map_or_else(|| write.object.to_string(), |row| row.name.clone())
    };
    Ok(Plan { names: writes.iter().map(name).collect(), cluster: cluster.name, writes })
}

/// Why nothing would be moved: there is no such host, or it has nothing.
fn nothing_bound(fleet: &Fleet, cluster: &str, host: &str, error: &RequestError) -> anyhow::Error {
    let hosts = fleet.hosts(Some(cluster));
    let bound: Vec<DeploymentRow> = fleet.deployments().into_iter().filter(|row| row.cluster == cluster).collect();
    let known = || hosts.iter().map(|known| known.hostname.as_str());
    if hosts.is_empty() || known().any(|name| name == host) {
        let places = bound.iter().filter_map(|row| Some(format!("{} on {}", row.name, row.host.as_deref()?)));
        let places: Vec<String> = places.collect();
        let rest = if places.is_empty() { String::new() } else { format!("; bound are {}", places.join(", ")) };
        return exit::with_code(exit::REFUSED, anyhow!("{error}{rest}"));
    }
    not_found("host", host, known()).context(format!("cluster {cluster}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_view::bench::{Bench, NAME};
    use uuid::Uuid;

    const OVEN: Uuid = Uuid::from_u128(0x0E);
    const PRESS: Uuid = Uuid::from_u128(0x0F);

    fn bench() -> Bench {
        let mut bench = Bench::with_cluster();
        bench.deployment(OVEN, "Oven", Some("old-1"));
        bench.deployment(PRESS, "Press", Some("paint-1"));
        bench.deployment(Uuid::from_u128(0x10), "Floating", None);
        bench
    }

    #[test]
    fn what_is_bound_to_the_host_moves_and_nothing_else() {
        let bench = bench();
        let moved = plan(&bench.fleet, NAME, "old-1", Some("paint-1")).unwrap();
        assert_eq!((moved.names, moved.cluster.as_str()), (vec!["Oven".to_owned()], NAME));
        assert_eq!(moved.writes.iter().map(|write| write.object).collect::<Vec<_>>(), [OVEN]);
        let floating = plan(&bench.fleet, NAME, "paint-1", None).unwrap();
        assert_eq!(floating.names, ["Press"]);
        let ids: Vec<&str> = moved.writes.iter().chain(&floating.writes).map(|write| write.id.as_str()).collect();
        assert_ne!(ids[0], ids[1]);
    }

    #[test]
    fn what_cannot_be_moved_says_why() {
        let bench = bench();
        for (host, to, code, text) in [
            ("paint-1", Some("paint-1"), exit::USAGE, "--to paint-1 is where they are already"),
            ("paint-1", Some("paint-9"), exit::NOT_FOUND, "cluster Paint_Shop: there is no host \"paint-9\""),
            ("pant-1", None, exit::NOT_FOUND, "there is no host \"pant-1\"; did you mean \"paint-1\"?"),
        ] {
            let error = plan(&bench.fleet, NAME, host, to).unwrap_err();
            let text_of = format!("{error:#}");
            assert!(exit::code_of(&error) == code && text_of.contains(text), "{text_of}");
        }
        let mut empty = Bench::with_cluster();
        empty.deployment(OVEN, "Oven", Some("old-1"));
        let error = plan(&empty.fleet, NAME, "paint-1", None).unwrap_err();
        assert_eq!(exit::code_of(&error), exit::REFUSED);
        assert!(error.to_string().contains("no deployment is bound to paint-1; bound are Oven on old-1"), "{error}");
    }
}
