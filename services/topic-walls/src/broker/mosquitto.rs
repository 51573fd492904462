//! Mosquitto: `mosquitto.conf(5)`, options `acl_file`, `require_certificate`, `use_identity_as_username`.

use super::{ConfigFile, access_list};
use crate::limits::{
    CONNECTIONS_MAX, MEMORY_BYTES_MAX, PACKET_BYTES_MAX, QUEUED_BYTES_MAX, QUEUED_MESSAGES_MAX, SESSION_EXPIRY_S,
};
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
    vec![ConfigFile { name: "sparkfleet.conf", text }, ConfigFile { name: "sparkfleet.acl", text: access_list(site) }]
}
