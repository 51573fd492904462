//! The table in the words of each MQTT server.
//!
//! Every configuration asks for a client certificate and takes its common name as the user's name, except HiveMQ's, whose free extension knows users by password only.

mod dynamic_security;
mod emqx;
mod hivemq;
pub mod mosquitto;
mod vernemq;

use crate::rules::{Action, Grant, grants, grants_of_host};
use crate::site::Site;

/// An MQTT server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broker {
    /// Eclipse Mosquitto 2 with static files.
    Mosquitto,
    /// Eclipse Mosquitto 2 with its dynamic-security plugin.
    MosquittoDynamicSecurity,
    /// EMQX 5 with a file of rules.
    Emqx,
    /// HiveMQ 4 with the File RBAC extension.
    HiveMq,
    /// VerneMQ with static files.
    VerneMq,
}

/// A file for the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub text: String,
}

/// The files that set up the access control of a site on a server, the one that the server starts with first.
#[must_use]
pub fn configuration(broker: Broker, site: &Site) -> Vec<ConfigFile> {
    match broker {
        Broker::Mosquitto => mosquitto::files(site),
        Broker::MosquittoDynamicSecurity => dynamic_security::files(site),
        Broker::Emqx => emqx::files(site),
        Broker::HiveMq => hivemq::files(site),
        Broker::VerneMq => vernemq::files(site),
    }
}

/// All users with their permissions.
fn users(site: &Site) -> impl Iterator<Item = (String, Vec<Grant>)> {
    site.principals().into_iter().map(|principal| (site.user(&principal), grants(site, &principal)))
}

/// What hosts with credentials of their own may do, where `user` stands for the name; nothing where they share them.
fn host_grants(site: &Site, user: &str) -> Vec<Grant> {
    if site.has_own_hosts() { grants_of_host(site, user) } else { Vec::new() }
}

/// Name of the role of hosts with credentials of their own, where a server has roles.
const HOST_ROLE: &str = "joining-host";

/// The lines `pattern read|write` of Mosquitto's format, which VerneMQ reads as well, of hosts with credentials of their own. A pattern is for everyone; the name of any other user is not a
/// UUID, and no join service listens to a node that is none.
fn host_patterns(site: &Site) -> String {
    let grants = host_grants(site, "%u");
    if grants.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n# A host with credentials of its own, whose name is the UUID of its state disk, is that Edge Node and no other.\n",
    );
    for Grant { action, filter, .. } in grants {
        text.push_str(&format!("pattern {} {filter}\n", verb(action)));
    }
    text
}

const fn verb(action: Action) -> &'static str {
    match action {
        Action::Publish => "write",
        Action::Subscribe => "read",
    }
}

/// The lines `user` and `topic read|write` of Mosquitto's format, which VerneMQ reads as well, of the grants that `is_listed` takes.
fn access_list(site: &Site, is_listed: impl Fn(&Grant) -> bool) -> String {
    let mut text = String::from("# Who may say what. A user who is not named here may do nothing.\n");
    for (user, grants) in users(site) {
        text.push_str(&format!("\nuser {user}\n"));
        for Grant { action, filter, .. } in grants.iter().filter(|grant| is_listed(grant)) {
            text.push_str(&format!("topic {} {filter}\n", verb(*action)));
        }
    }
    text
}
