//! Whose births the console needs: ConfigDB, the cluster manager and Identity always, the services of a cluster once the cluster manager says that they live.

use std::collections::BTreeSet;

use configdb_schema::address::{self, ClusterName};
use fleet_view::Fleet;
use sparkplug::EdgeNodeDescriptor;

/// Nodes that have to be born for the tables to be complete. All others of the broker are received, and not asked for.
#[must_use]
pub(crate) fn expected(fleet: &Fleet) -> BTreeSet<EdgeNodeDescriptor> {
    let central = fleet.organisation().central_group();
    let mut nodes: BTreeSet<EdgeNodeDescriptor> =
        [fleet.config.node(), fleet.manager.node(), fleet.identity.node()].map(Clone::clone).into();
    nodes.extend(EdgeNodeDescriptor::parse(&central, address::MONITOR_NODE));
    let git = [address::GIT_NODE].into_iter().filter(|_| fleet.manager.git_alive() == Some(true));
    nodes.extend(git.filter_map(|node| EdgeNodeDescriptor::parse(&central, node).ok()));
    for (_, cluster) in fleet.manager.clusters() {
        let Ok(name) = ClusterName::new(cluster.name.clone()) else { continue };
        let group = fleet.organisation().cluster_group(&name);
        let of_sync = [address::SYNC_NODE, address::MONITOR_NODE].into_iter().filter(|_| cluster.sync_alive);
        let of_join = [address::JOIN_NODE].into_iter().filter(|_| cluster.join.alive);
        nodes.extend(of_sync.chain(of_join).filter_map(|node| EdgeNodeDescriptor::parse(&group, node).ok()));
    }
    // A monitor can be alive while the edge sync beside it is not: its alerts count all the more.
    for name in fleet.edge_monitors_online() {
        let group = ClusterName::new(name).map(|name| fleet.organisation().cluster_group(&name));
        nodes.extend(group.ok().and_then(|group| EdgeNodeDescriptor::parse(&group, address::MONITOR_NODE).ok()));
    }
    nodes
}

/// What is missing before the tables are complete, for people; at most `max` sentences.
#[must_use]
pub(crate) fn missing(fleet: &Fleet, max: usize) -> Vec<String> {
    let mut missing = Vec::new();
    if !fleet.config.is_complete() {
        missing.push(match fleet.config.missing_births() {
            Some(births) => births,
            None => format!("{} is not alive, or not all of it has arrived", fleet.config.node()),
        });
    }
    if !fleet.manager.is_complete() {
        missing.push(format!("{} is not alive, or not all of it has arrived", fleet.manager.node()));
    }
    for (_, cluster) in fleet.manager.clusters().filter(|(_, cluster)| cluster.sync_alive) {
        if missing.len() >= max {
            break;
        }
        let sync = fleet.sync(&cluster.name);
        if !sync.is_some_and(edge_sync_is_complete) {
            let births = sync.and_then(edge_sync_contract::SyncReplica::missing_births);
            missing.push(births.unwrap_or_else(|| format!("edge sync of {} has not been born again", cluster.name)));
        }
    }
    missing
}

/// Clusters whose edge sync is alive, and of which births are missing: of their rows some are not there yet.
#[must_use]
pub(crate) fn unborn(fleet: &Fleet) -> BTreeSet<String> {
    let missing = fleet.syncs.values().filter(|sync| sync.missing_births().is_some());
    let cluster = |group: &str| fleet.organisation().cluster_of_group(group).map(|name| name.as_str().to_owned());
    missing.filter_map(|sync| cluster(sync.address().group.as_str())).collect()
}

fn edge_sync_is_complete(sync: &edge_sync_contract::SyncReplica) -> bool {
    sync.is_complete() || (sync.is_current() && sync.missing_births().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use edge_monitor_contract::NodeState;
    use fleet_view::bench::{Bench, CLUSTER, NAME};

    #[test]
    fn the_services_of_a_cluster_are_expected_once_the_manager_says_that_they_live() {
        let mut bench = Bench::new();
        bench.cluster(CLUSTER, NAME, |_| {});
        assert_eq!(expected(&bench.fleet).len(), 5);
        bench.cluster(CLUSTER, NAME, |device| (device.sync_alive, device.join.alive) = (true, true));
        let nodes = expected(&bench.fleet);
        let join = EdgeNodeDescriptor::parse("ACME-Paint_Shop", address::JOIN_NODE).unwrap();
        assert!(nodes.len() == 8 && nodes.contains(&join), "{nodes:?}");
    }

    #[test]
    fn the_git_server_is_expected_once_the_manager_says_that_it_lives() {
        let mut bench = Bench::new();
        let git = EdgeNodeDescriptor::parse("ACME-Central", address::GIT_NODE).unwrap();
        for is_alive in [false, true] {
            bench.git_server(is_alive);
            assert_eq!(expected(&bench.fleet).contains(&git), is_alive);
        }
    }

    #[test]
    fn a_monitor_that_lives_beside_an_edge_sync_that_is_away_is_expected() {
        let mut bench = Bench::with_cluster();
        bench.central_monitor_of(&[("ACME-Paint_Shop", NodeState::Offline)]);
        let monitor = EdgeNodeDescriptor::parse("ACME-Paint_Shop", address::MONITOR_NODE).unwrap();
        assert!(!expected(&bench.fleet).contains(&monitor), "{:?}", expected(&bench.fleet));
        bench.central_monitor_of(&[("ACME-Paint_Shop", NodeState::Online)]);
        assert!(expected(&bench.fleet).contains(&monitor), "{:?}", expected(&bench.fleet));
    }

    #[test]
    fn an_edge_that_is_alive_and_was_not_born_again_is_missing() {
        let mut bench = Bench::new();
        assert!(missing(&bench.fleet, 5).is_empty());
        bench.cluster(CLUSTER, NAME, |device| device.sync_alive = true);
        assert_eq!(missing(&bench.fleet, 5), ["edge sync of Paint_Shop has not been born again"]);
        bench.sync(NAME, &edge_sync_contract::SyncNode::default(), &[]);
        assert!(missing(&bench.fleet, 5).is_empty(), "{:?}", missing(&bench.fleet, 5));
    }
}
