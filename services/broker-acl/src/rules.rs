//! The one table: who may publish and who may receive what.

use configdb_schema::address::{
    CLUSTER_MANAGER_NODE, CONFIGDB_NODE, CONSOLE_NODE, GIT_NODE, IDENTITY_NODE, JOIN_NODE, MONITOR_NODE, SYNC_NODE,
    host_id, host_id_with_dot,
};

use uuid::Uuid;

use crate::filter::{covers, overlap};
use crate::site::{Principal, Site};

/// What someone does with a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Publishes to it; a will is published, too.
    Publish,
    /// Subscribes to it, and so receives it.
    Subscribe,
}

/// One permission. Who has none is refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// What for.
    pub action: Action,
    /// Topic filter.
    pub filter: String,
    /// Topic filters within `filter` that it is not for. A server whose rules cannot refuse grants these, too.
    pub except: Vec<String>,
}

const NODE_REPORTS: [&str; 3] = ["NBIRTH", "NDATA", "NDEATH"];
const DEVICE_REPORTS: [&str; 3] = ["DBIRTH", "DDATA", "DDEATH"];
const STATES: &str = "spBv1.0/STATE/+";
/// Where an aware server keeps births; below it their topics. No one may publish there: the certificates are the server's word.
const CERTIFICATES: &str = "$sparkplug/certificates";
/// The services that keep a cluster as the control plane wants it. Edge agents share their user, and none of them commands these.
const COMMANDED_BY_CONTROL_PLANE: [&str; 3] = [SYNC_NODE, JOIN_NODE, MONITOR_NODE];

/// Everything that a principal may do.
// long: one table, an arm a kind of principal.
#[must_use]
pub fn grants(site: &Site, principal: &Principal) -> Vec<Grant> {
    let organisation = site.organisation();
    let own = site.user(principal);
    let mut table = Table::default();
    match principal {
        Principal::ControlPlane => {
            table.follows("spBv1.0/#");
            // Console, Identity and git server are users of their own.
            for node in [CONFIGDB_NODE, CLUSTER_MANAGER_NODE, MONITOR_NODE] {
                NODE_REPORTS.into_iter().for_each(|kind| table.says(format!("spBv1.0/{own}/{kind}/{node}")));
                DEVICE_REPORTS.into_iter().for_each(|kind| table.says(format!("spBv1.0/{own}/{kind}/{node}/+")));
            }
            table.commands(&own);
            for cluster in site.clusters() {
                table.commands(&organisation.cluster_group(cluster));
            }
            for node in [CLUSTER_MANAGER_NODE, MONITOR_NODE] {
                table.state_beside(&own, node);
            }
        }
        Principal::Operator => {
            table.commands(&organisation.central_group());
            table.operates(site);
        }
        Principal::OneOperator(_) => {
            let central = organisation.central_group();
            table.says(format!("spBv1.0/{central}/NCMD/+"));
            for node in [CLUSTER_MANAGER_NODE, MONITOR_NODE, IDENTITY_NODE, GIT_NODE, CONSOLE_NODE] {
                table.says(format!("spBv1.0/{central}/DCMD/{node}/+"));
            }
            // ConfigDB takes the Device for the one who writes.
            table.says(format!("spBv1.0/{central}/DCMD/{CONFIGDB_NODE}/{own}"));
            table.operates(site);
        }
        Principal::Console => {
            let central = organisation.central_group();
            table.follows("spBv1.0/#");
            let clusters = site.clusters().map(|cluster| organisation.cluster_group(cluster));
            let foreign = site.foreign_groups().cloned();
            for group in std::iter::once(central.clone()).chain(clusters).chain(foreign) {
                if site.has_read_only_console() {
                    table.says(format!("spBv1.0/{group}/NCMD/+"));
                } else {
                    table.commands(&group);
                }
            }
            // It is one node of the control plane's group, and none of the others.
            for kind in NODE_REPORTS {
                table.says(format!("spBv1.0/{central}/{kind}/{CONSOLE_NODE}"));
            }
            table.state_beside(&central, CONSOLE_NODE);
        }
        Principal::Identity => {
            let central = organisation.central_group();
            // Whom it reads, and whom it answers: its filters as a Host Application, and no others.
            for node in [CONFIGDB_NODE, CLUSTER_MANAGER_NODE] {
                table.follows(&format!("spBv1.0/{central}/+/{node}/#"));
                table.says(format!("spBv1.0/{central}/NCMD/{node}"));
            }
            table.follows(&format!("spBv1.0/{}/+/+/#", organisation.enrol_group()));
            table.follows(&format!("spBv1.0/+/+/{IDENTITY_NODE}/#"));
            table.subscribes(STATES);
            for kind in NODE_REPORTS {
                table.says(format!("spBv1.0/{central}/{kind}/{IDENTITY_NODE}"));
            }
            table.says(format!("spBv1.0/{central}/DCMD/{CONFIGDB_NODE}/+"));
            table.says(format!("spBv1.0/{}/NCMD/+", organisation.enrol_group()));
            for cluster in site.clusters() {
                table.says(format!("spBv1.0/{}/NCMD/{IDENTITY_NODE}", organisation.cluster_group(cluster)));
            }
            table.state_beside(&central, IDENTITY_NODE);
        }
        Principal::Git => {
            let central = organisation.central_group();
            for node in [CONFIGDB_NODE, CLUSTER_MANAGER_NODE] {
                table.follows(&format!("spBv1.0/{central}/+/{node}/#"));
                // It asks for births, and for nothing else.
                table.says(format!("spBv1.0/{central}/NCMD/{node}"));
            }
            table.follows(&format!("spBv1.0/{central}/+/{GIT_NODE}/#"));
            table.subscribes(STATES);
            NODE_REPORTS.into_iter().for_each(|kind| table.says(format!("spBv1.0/{central}/{kind}/{GIT_NODE}")));
            DEVICE_REPORTS.into_iter().for_each(|kind| table.says(format!("spBv1.0/{central}/{kind}/{GIT_NODE}/+")));
            table.state_beside(&central, GIT_NODE);
        }
        Principal::Viewer => {
            table.follows("spBv1.0/#");
            site.viewer_hosts().for_each(|host| table.state(host));
        }
        Principal::Cluster(name) => {
            let joining = organisation.join_group(name);
            table.follows(&format!("spBv1.0/{own}/#"));
            table.follows(&format!("spBv1.0/{joining}/#"));
            table.subscribes(STATES);
            table.reports(&own, &DEVICE_REPORTS);
            // The monitor asks edge agents for rebirth; the join service answers hosts.
            table.commands_except(&own, &COMMANDED_BY_CONTROL_PLANE);
            table.commands(&joining);
            for node in [MONITOR_NODE, JOIN_NODE] {
                table.state_beside(&own, node);
            }
        }
        Principal::JoiningHost(_) => return grants_of_host(site, &own),
        Principal::JoiningHosts(_) | Principal::EnrollingClusters => {
            table.reports(&own, &[]);
            table.subscribes(&format!("spBv1.0/{own}/NCMD/+"));
            // No one commands devices here, but an Edge Node asks for both, and some servers refuse who asks for too much.
            table.subscribes(&format!("spBv1.0/{own}/DCMD/+/+"));
            table.subscribes(STATES);
        }
    }
    table.0
}

/// What a host with credentials of its own may do: be the Edge Node of its user's name in each quarantine group, and no other. `user`: the name, or what stands for it in a server's rules.
#[must_use]
pub fn grants_of_host(site: &Site, user: &str) -> Vec<Grant> {
    let mut table = Table::default();
    for group in site.clusters().map(|cluster| site.organisation().join_group(cluster)) {
        NODE_REPORTS.into_iter().for_each(|kind| table.says(format!("spBv1.0/{group}/{kind}/{user}")));
        table.subscribes(&format!("spBv1.0/{group}/NCMD/{user}"));
        table.subscribes(&format!("spBv1.0/{group}/DCMD/{user}/+"));
    }
    table.0
}

/// Whether that user may do that with a topic or, to subscribe, with a filter. Unknown users may do nothing.
#[must_use]
pub fn allows(site: &Site, user: &str, action: Action, topic: &str) -> bool {
    let host = Uuid::parse_str(user).ok().filter(|_| site.has_own_hosts()).map(Principal::JoiningHost);
    let principal = site.principals().into_iter().chain(host).find(|principal| site.user(principal) == user);
    principal.is_some_and(|principal| permits(&grants(site, &principal), action, topic))
}

/// Whether one of these permissions is for that.
#[must_use]
pub fn permits(grants: &[Grant], action: Action, topic: &str) -> bool {
    // MQTT 5.0, 4.7.1: a topic name has no wildcard.
    let is_topic = action == Action::Subscribe || !topic.contains(['+', '#']);
    let is_for = |grant: &Grant| covers(&grant.filter, topic) && !grant.except.iter().any(|out| overlap(out, topic));
    is_topic && grants.iter().any(|grant| grant.action == action && is_for(grant))
}

#[derive(Default)]
struct Table(Vec<Grant>);

impl Table {
    fn subscribes(&mut self, filter: &str) {
        self.0.push(Grant { action: Action::Subscribe, filter: filter.to_owned(), except: Vec::new() });
    }

    /// Everything there, and the certificates of the births there, which say no more than the births did.
    fn follows(&mut self, filter: &str) {
        self.subscribes(filter);
        self.subscribes(&format!("{CERTIFICATES}/{filter}"));
    }

    fn says(&mut self, filter: String) {
        self.0.push(Grant { action: Action::Publish, filter, except: Vec::new() });
    }

    /// Births, data and deaths of the nodes of a group, and these of their devices.
    fn reports(&mut self, group: &str, of_devices: &[&str]) {
        NODE_REPORTS.into_iter().for_each(|kind| self.says(format!("spBv1.0/{group}/{kind}/+")));
        of_devices.iter().for_each(|kind| self.says(format!("spBv1.0/{group}/{kind}/+/+")));
    }

    /// Commands to the nodes and devices of a group.
    fn commands(&mut self, group: &str) {
        self.commands_except(group, &[]);
    }

    /// The same, but not to these nodes and their devices.
    fn commands_except(&mut self, group: &str, nodes: &[&str]) {
        for (kind, below) in [("NCMD", ""), ("DCMD", "/+")] {
            let to = |node: &str| format!("spBv1.0/{group}/{kind}/{node}{below}");
            let except = nodes.iter().map(|node| to(node)).collect();
            self.0.push(Grant { action: Action::Publish, filter: to("+"), except });
        }
    }

    /// The STATE of the Host Application that a service is beside this node. Edges of an earlier version have another id, and their sessions end where a server refuses their STATE.
    fn state_beside(&mut self, group: &str, node: &str) {
        self.state(&host_id(group, node));
        self.state(&host_id_with_dot(group, node));
    }

    /// What every operator may do outside of the control plane's group.
    fn operates(&mut self, site: &Site) {
        self.follows("spBv1.0/#");
        for cluster in site.clusters() {
            self.commands(&site.organisation().cluster_group(cluster));
            // An administrator answers a host's request to be the first of its cluster, or to be recovered.
            self.commands(&site.organisation().join_group(cluster));
        }
        site.foreign_groups().for_each(|group| self.commands(group));
        site.operator_hosts().for_each(|host| self.state(host));
    }

    /// Its own STATE as a Host Application.
    fn state(&mut self, host_id: &str) {
        self.says(format!("spBv1.0/STATE/{host_id}"));
    }
}
