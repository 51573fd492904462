//! The organisation of every run, and the groups of its clusters.

use configdb_schema::Organisation;
use sparkplug::host::HostConfig;
use sparkplug::{GroupId, HostId};

/// The organisation of every run.
#[must_use]
pub fn organisation() -> Organisation {
    Organisation::new("ACME").expect("ACME is a name")
}

/// Group of a cluster.
#[must_use]
pub fn group(cluster_name: &str) -> GroupId {
    GroupId::new(format!("ACME-{cluster_name}")).expect("cluster names of a run are group ids")
}

/// A Host Application of that name.
pub(crate) fn host(name: &str) -> HostConfig {
    HostConfig::of_contracts(Some(HostId::new(name).expect("host names of a run are host ids")))
}
