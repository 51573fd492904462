//! Access control of the embedded broker. Each service of the factory logs in as who it is and is held to the table of [`broker_acl`], as on a broker of a site.
//!
//! A client that shows no name, or one that the gate did not give out, comes from this machine and may do everything. This is the command line, and whatever someone wants to try
//! the factory with. Many tools insist on a name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLock};

use anyhow::Context as _;
use broker_acl::{Action, Grant, Principal, Site, grants, permits};
use configdb_schema::address::{ClusterName, Organisation};
use service_runtime::config::{ExposeSecret as _, Secret};
use sparkplug::{HostId, MessageKind, Topic};
use sparkplug_mqtt::{MqttConfig, Password};

use crate::broker::Guard;
use join_trust::files as trust;

/// Knows the clusters, and the passwords that it gave out. They live as long as the process.
#[derive(Debug)]
pub struct Gate {
    organisation: Organisation,
    operator_host: HostId,
    inside: RwLock<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    clusters: BTreeSet<ClusterName>,
    users: BTreeMap<String, User>,
}

#[derive(Debug)]
struct User {
    principal: Principal,
    password: Secret,
    grants: Vec<Grant>,
}

impl Gate {
    /// The gate of an organisation without clusters. `operator_host`: id of the Host Application that logs in as operator.
    #[must_use]
    pub fn new(organisation: Organisation, operator_host: HostId) -> Self {
        Self { organisation, operator_host, inside: RwLock::default() }
    }

    /// Adds a cluster to the site: the control plane and operators may command it from here on.
    ///
    /// # Errors
    /// The operator's host id cannot be written into rules.
    pub fn add_cluster(&self, name: ClusterName) -> anyhow::Result<()> {
        let mut inside = self.inside.write().unwrap_or_else(PoisonError::into_inner);
        if inside.clusters.insert(name) {
            let site = self.site(&inside.clusters)?;
            inside.users.values_mut().for_each(|user| user.grants = grants(&site, &user.principal));
        }
        Ok(())
    }

    /// How a principal logs in; the same name and password each time.
    ///
    /// # Errors
    /// The system yields no random numbers, or the operator's host id cannot be written into rules.
    pub fn login(&self, principal: &Principal, mqtt: &MqttConfig) -> anyhow::Result<MqttConfig> {
        let mut inside = self.inside.write().unwrap_or_else(PoisonError::into_inner);
        let site = self.site(&inside.clusters)?;
        let name = site.user(principal);
        let password = match inside.users.get(&name) {
            Some(user) => user.password.clone(),
            None => Secret::from(hex::encode(trust::random()?.expose())),
        };
        let shown = Password::from(password.expose_secret());
        let user = User { principal: principal.clone(), password, grants: grants(&site, principal) };
        inside.users.insert(name.clone(), user);
        Ok(MqttConfig { username: Some(name), password: shown, ..mqtt.clone() })
    }

    fn site(&self, clusters: &BTreeSet<ClusterName>) -> anyhow::Result<Site> {
        let hosts = [self.operator_host.clone()];
        Site::new(self.organisation.clone(), clusters.iter().cloned(), hosts, []).context("access rules")
    }

    fn allows(&self, user: Option<&str>, action: Action, topic: &str) -> bool {
        let Some(user) = user else { return true };
        let inside = self.inside.read().unwrap_or_else(PoisonError::into_inner);
        let known = inside.users.get(user);
        known.is_none_or(|user| permits(&user.grants, action, topic) || self.commands_foreign(user, action, topic))
    }

    /// On this machine the console may command the nodes of every other make, as its operator may who shows no name.
    fn commands_foreign(&self, user: &User, action: Action, topic: &str) -> bool {
        let is_foreign_command = || match Topic::parse(topic) {
            Ok(Topic::Node { node, kind } | Topic::Device { node, kind, .. }) => {
                matches!(kind, MessageKind::NCmd | MessageKind::DCmd)
                    && !self.organisation.has_group(node.group.as_str())
            }
            _ => false,
        };
        user.principal == Principal::Console && action == Action::Publish && is_foreign_command()
    }
}

impl Guard for Gate {
    fn admits(&self, user: Option<&str>, password: &[u8]) -> bool {
        let Some(user) = user else { return true };
        let inside = self.inside.read().unwrap_or_else(PoisonError::into_inner);
        inside.users.get(user).is_none_or(|user| user.password.expose_secret().as_bytes() == password)
    }

    fn may_publish(&self, user: Option<&str>, topic: &str) -> bool {
        self.allows(user, Action::Publish, topic)
    }

    fn may_subscribe(&self, user: Option<&str>, filter: &str) -> bool {
        self.allows(user, Action::Subscribe, filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_that_shows_a_name_is_held_to_it_and_a_cluster_is_commanded_once_it_is_known() {
        let gate = Gate::new(Organisation::new("ACME").unwrap(), HostId::new("table").unwrap());
        let central = gate.login(&Principal::ControlPlane, &MqttConfig::default()).unwrap();
        let paint = Principal::Cluster(ClusterName::new("Paint_Shop").unwrap());
        let sync = gate.login(&paint, &MqttConfig::default()).unwrap();
        assert_eq!(
            (central.username.as_deref(), sync.username.as_deref()),
            (Some("ACME-Central"), Some("ACME-Paint_Shop"))
        );
        let password = |user: &str| gate.inside.read().unwrap().users[user].password.expose_secret().to_owned();
        let (of_central, of_paint) = (password("ACME-Central"), password("ACME-Paint_Shop"));
        assert_ne!(of_central, of_paint);
        assert!(gate.admits(Some("ACME-Central"), of_central.as_bytes()));
        assert!(!gate.admits(Some("ACME-Central"), of_paint.as_bytes()));
        assert!(gate.admits(Some("node-red"), b"any") && gate.may_subscribe(Some("node-red"), "#"));
        gate.login(&paint, &MqttConfig::default()).unwrap();
        assert_eq!(password("ACME-Paint_Shop"), of_paint, "who logs in twice is the same");
        let command = "spBv1.0/ACME-Paint_Shop/NCMD/Sync";
        assert!(!gate.may_publish(Some("ACME-Central"), command));
        gate.add_cluster(ClusterName::new("Paint_Shop").unwrap()).unwrap();
        assert!(gate.may_publish(Some("ACME-Central"), command));
        assert!(!gate.may_publish(Some("ACME-Paint_Shop"), "spBv1.0/ACME-Weld_Shop/NCMD/Sync"));
        assert!(!gate.may_subscribe(Some("ACME-Paint_Shop"), "spBv1.0/#"));
        let console = gate.login(&Principal::Console, &MqttConfig::default()).unwrap().username;
        assert!(gate.may_publish(console.as_deref(), "spBv1.0/Line_7/NCMD/Mixer"));
        for denied in ["spBv1.0/ACME-Other/NCMD/Sync", "spBv1.0/Line_7/NDATA/Mixer", "spBv1.0/STATE/x"] {
            assert!(!gate.may_publish(console.as_deref(), denied), "{denied}");
        }
        assert!(!gate.may_publish(Some("ACME-Central"), "spBv1.0/Line_7/NCMD/Mixer"));
        let disk = uuid::Uuid::from_u128(7);
        let host = gate.login(&Principal::JoiningHost(disk), &MqttConfig::default()).unwrap().username;
        assert_eq!(host, Some(disk.to_string()));
        let births = |disk: uuid::Uuid| format!("spBv1.0/ACME-Paint_Shop-Join/NBIRTH/{disk}");
        assert!(gate.may_publish(host.as_deref(), &births(disk)) && !gate.admits(host.as_deref(), b"any"));
        assert!(!gate.may_publish(host.as_deref(), &births(uuid::Uuid::from_u128(8))));
        assert!(gate.admits(None, b"") && gate.may_publish(None, command) && gate.may_subscribe(None, "#"));
    }
}
