//! Mosquitto: `mosquitto.conf(5)`, options `acl_file`, `require_certificate`, `use_identity_as_username`.

use std::collections::BTreeSet;

use super::{ConfigFile, access_list, host_patterns, users};
use crate::limits::{
    CONNECTIONS_MAX, MEMORY_BYTES_MAX, PACKET_BYTES_MAX, QUEUED_BYTES_MAX, QUEUED_MESSAGES_MAX, SESSION_EXPIRY_S,
};
use crate::rules::Grant;
use crate::site::Site;

/// What one client and all of them may take, as lines of `mosquitto.conf`.
#[must_use]
pub fn limits() -> String {
    format!(
        "\
# What one client may take, and all of them together. With a larger fleet raise memory_limit; it ends the session of a publisher for whom there is no room.
max_connections {CONNECTIONS_MAX}
max_packet_size {PACKET_BYTES_MAX}
message_size_limit {PACKET_BYTES_MAX}
max_queued_messages {QUEUED_MESSAGES_MAX}
max_queued_bytes {QUEUED_BYTES_MAX}
persistent_client_expiration {}h
memory_limit {MEMORY_BYTES_MAX}
",
        SESSION_EXPIRY_S / 3600
    )
}

/// The listener that asks for certificates; `access` is the line that names who may say what.
pub(super) fn listener(access: &str) -> String {
    format!(
        "\
# A listener for Sparkfleet: TLS, client certificates, the common name is the user. Put it into /etc/mosquitto/conf.d.
per_listener_settings false
listener 8883
cafile /etc/mosquitto/certs/sparkfleet-ca.pem
certfile /etc/mosquitto/certs/server.pem
keyfile /etc/mosquitto/certs/server.key
require_certificate true
use_identity_as_username true
allow_anonymous false
# Certificates that are refused before they expire. The file needs a list of every authority that signs client certificates: those of an authority without one are all refused.
#crlfile /etc/mosquitto/certs/sparkfleet-crl.pem
{access}
{}",
        limits()
    )
}

pub(super) fn files(site: &Site) -> Vec<ConfigFile> {
    let text = listener("acl_file /etc/mosquitto/sparkfleet.acl");
    let access = access_list(site, is_listed) + &outdated(site) + &host_patterns(site) + &patterns(site);
    vec![ConfigFile { name: "sparkfleet.conf", text }, ConfigFile { name: "sparkfleet.acl", text: access }]
}

/// The users that hosts shared, where hosts have credentials of their own. Their certificates are good until they end. A pattern would let them command in the group of their name.
fn outdated(site: &Site) -> String {
    let joining = site.clusters().filter(|_| site.has_own_hosts()).map(|name| site.organisation().join_group(name));
    joining.map(|user| format!("\nuser {user}\ntopic deny #\n")).collect()
}

fn is_listed(grant: &Grant) -> bool {
    grant.except.is_empty()
}

/// The grants with exceptions, which are about the group of the user's name. `topic deny` refuses to read as well, and is looked at before all that a user may; patterns are looked at
/// after it, those that refuse first. So what a user may read stays, and a pattern can refuse to write. A pattern is for everyone: for users whose grants have no exceptions it is refused.
fn patterns(site: &Site) -> String {
    let (mut allowed, mut refused, mut literal) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (with, without): (Vec<_>, Vec<_>) =
        users(site).partition(|(_, grants)| grants.iter().any(|grant| !is_listed(grant)));
    for (user, grants) in with {
        let pattern = |filter: &String| filter.replacen(&format!("/{user}/"), "/%u/", 1);
        for grant in grants.iter().filter(|grant| !is_listed(grant)) {
            refused.extend(grant.except.iter().map(pattern));
            allowed.insert(pattern(&grant.filter));
        }
    }
    for (user, _) in without {
        literal.extend(allowed.iter().map(|pattern| pattern.replacen("%u", &user, 1)));
    }
    let mut text = String::from(
        "\n# Commands within the group of a cluster, but none to the services that keep it. The server warns of patterns without %u; they are meant so.\n",
    );
    for (verb, patterns) in [("deny", refused), ("deny", literal), ("write", allowed)] {
        patterns.iter().for_each(|pattern| text.push_str(&format!("pattern {verb} {pattern}\n")));
    }
    text
}
