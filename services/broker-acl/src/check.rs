//! What to try on a running server to see whether it keeps to the table. Pure: who tries it is the command line.

use configdb_schema::address::{CONFIGDB_NODE, SYNC_NODE};

use crate::rules::{Action, allows, grants};
use crate::site::{Principal, Site};

/// Edge Node and device that probes name. No one is called so, so that no probe commands anything or speaks for anyone.
pub const NODE: &str = "acl-check";

/// How topics of the STATE of Host Applications begin.
pub const STATE: &str = "spBv1.0/STATE/";

/// One thing to try as a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// What to do.
    pub action: Action,
    /// The topic.
    pub topic: String,
    /// The table allows it.
    pub may: bool,
}

/// What to try as that principal: each kind of message, in its own groups, in those of one other cluster, and in the control plane's.
#[must_use]
pub fn probes(site: &Site, principal: &Principal) -> Vec<Probe> {
    let user = site.user(principal);
    let groups = groups(site, principal);
    let levels = ["NBIRTH", "NDATA", "NDEATH", "NCMD"].map(|kind| format!("{kind}/{NODE}"));
    let below = ["DBIRTH", "DDATA", "DDEATH", "DCMD"].map(|kind| format!("{kind}/{NODE}/{NODE}"));
    let topics_of = |group: &String| -> Vec<String> {
        levels.iter().chain(&below).map(|rest| format!("spBv1.0/{group}/{rest}")).collect()
    };
    let mut said: Vec<String> = groups.iter().flat_map(topics_of).collect();
    said.push(format!("{STATE}{NODE}"));
    // The STATE of its own hosts, and of one that is another user's.
    let states = |principal: &Principal| -> Vec<String> {
        let publishes = grants(site, principal).into_iter().filter(|grant| grant.action == Action::Publish);
        publishes.map(|grant| grant.filter).filter(|filter| filter.starts_with(STATE)).collect()
    };
    let own_states = states(principal);
    let other_state = site.principals().iter().flat_map(states).find(|topic| !own_states.contains(topic));
    said.extend(own_states.into_iter().chain(other_state));
    // An empty command to a service that keeps a cluster does nothing, but a cluster's own certificate may not send it.
    said.extend(
        groups
            .iter()
            .filter(|_| matches!(principal, Principal::Cluster(_)))
            .map(|group| format!("spBv1.0/{group}/NCMD/{SYNC_NODE}")),
    );
    // A write that names no request: ConfigDB refuses it from everyone. An operator may send it in no other's name, nor in none.
    if let Principal::OneOperator(_) = principal {
        let to_configdb =
            |device: &str| format!("spBv1.0/{}/DCMD/{CONFIGDB_NODE}/{device}", site.organisation().central_group());
        let others = site.principals().into_iter().filter(|other| matches!(other, Principal::OneOperator(_)));
        said.extend(others.map(|other| to_configdb(&site.user(&other))));
        said.push(to_configdb(NODE));
    }
    let publishes = said.into_iter().map(|topic| (Action::Publish, topic));
    // Who tries it sends commands for others to receive, and that to the groups of clusters only.
    let enrol = site.organisation().enrol_group();
    let commanded = groups.iter().filter(|group| **group != enrol);
    let subscribes = commanded.map(|group| (Action::Subscribe, format!("spBv1.0/{group}/NCMD/{NODE}")));
    let probe = |(action, topic): (Action, String)| Probe { action, may: allows(site, &user, action, &topic), topic };
    publishes.chain(subscribes).map(probe).collect()
}

/// A filter that the principal may subscribe to.
#[must_use]
pub fn own_filter(site: &Site, principal: &Principal) -> Option<String> {
    grants(site, principal).into_iter().find(|grant| grant.action == Action::Subscribe).map(|grant| grant.filter)
}

fn groups(site: &Site, principal: &Principal) -> Vec<String> {
    let organisation = site.organisation();
    let own = match principal {
        Principal::Cluster(name) | Principal::JoiningHosts(name) => Some(name),
        _ => None,
    };
    let other = site.clusters().find(|name| Some(*name) != own);
    let of_clusters = own.into_iter().chain(other);
    let of_clusters = of_clusters.flat_map(|name| [organisation.cluster_group(name), organisation.join_group(name)]);
    let foreign = site.foreign_groups().cloned();
    [organisation.central_group(), organisation.enrol_group()].into_iter().chain(of_clusters).chain(foreign).collect()
}

#[cfg(test)]
mod tests {
    use configdb_schema::address::{ClusterName, OperatorName, Organisation};

    use super::*;

    #[test]
    fn each_user_tries_what_it_may_and_what_it_may_not() {
        let clusters = ["Paint", "Press", "Weld"].map(|name| ClusterName::new(name).unwrap());
        let site = Site::new(Organisation::new("ACME").unwrap(), clusters, [], []).unwrap();
        let counts = |user: &str| {
            let principal = site.principals().into_iter().find(|one| site.user(one) == user).unwrap();
            let probes = probes(&site, &principal);
            let is_harmless =
                |topic: &str| topic.contains(NODE) || topic.ends_with("NCMD/Sync") || topic.starts_with(STATE);
            assert!(probes.iter().all(|probe| is_harmless(&probe.topic)));
            let of = |action: Action, may: bool| {
                probes.iter().filter(|probe| (probe.action, probe.may) == (action, may)).count()
            };
            [
                of(Action::Publish, true),
                of(Action::Publish, false),
                of(Action::Subscribe, true),
                of(Action::Subscribe, false),
            ]
        };
        // Its own births, data, deaths and commands but to Sync, commands to its hosts, and STATE of Monitor and Join; nothing of Paint, of the control plane, of Enrol.
        assert_eq!(counts("ACME-Weld"), [15, 45, 2, 3]);
        assert_eq!(counts("ACME-Weld-Join"), [3, 47, 1, 4]);
        assert_eq!(counts("ACME-Central-Viewer"), [0, 34, 3, 0]);
    }

    #[test]
    fn a_foreign_group_is_tried_by_who_may_command_it_and_by_who_may_not() {
        let site = Site::new(Organisation::new("ACME").unwrap(), [], [], []).unwrap();
        let site = site.with_foreign_groups(["Line_7".to_owned()]).unwrap();
        let may = |principal: &Principal, topic: &str| {
            let probes = probes(&site, principal);
            probes.iter().find(|probe| probe.action == Action::Publish && probe.topic == topic).unwrap().may
        };
        for (principal, commands) in [(Principal::Console, true), (Principal::Operator, true), (Principal::Git, false)]
        {
            assert_eq!(may(&principal, "spBv1.0/Line_7/DCMD/acl-check/acl-check"), commands, "{principal:?}");
            assert!(!may(&principal, "spBv1.0/Line_7/NBIRTH/acl-check"), "{principal:?}");
        }
    }

    #[test]
    fn an_operator_tries_to_write_in_each_name() {
        let [ada, bob] = ["ada", "bob"].map(|name| OperatorName::new(name).unwrap());
        let site =
            Site::new(Organisation::new("ACME").unwrap(), [], [], []).unwrap().with_operators([ada.clone(), bob]);
        let probes = probes(&site, &Principal::OneOperator(ada));
        let writes = probes
            .iter()
            .filter_map(|probe| Some((probe.topic.strip_prefix("spBv1.0/ACME-Central/DCMD/ConfigDB/")?, probe.may)));
        let writes: Vec<(&str, bool)> = writes.collect();
        assert_eq!(writes, [("ACME-Central-Operator-ada", true), ("ACME-Central-Operator-bob", false), (NODE, false)]);
    }
}
