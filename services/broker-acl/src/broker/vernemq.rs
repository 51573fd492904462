//! VerneMQ: a listener and `vmq_acl`, whose file has Mosquitto's form, but cannot refuse: exceptions of a grant are left out.

use super::{ConfigFile, access_list, host_patterns};
use crate::limits::{CONNECTIONS_MAX, PACKET_BYTES_MAX, QUEUED_MESSAGES_MAX, SESSION_EXPIRY_S};
use crate::site::Site;

const LISTENER: &str = "\
# A listener for Sparkfleet: TLS, client certificates, the common name is the user. Add it to /etc/vernemq/vernemq.conf.
listener.ssl.sparkfleet = 0.0.0.0:8883
listener.ssl.sparkfleet.cafile = /etc/vernemq/sparkfleet-ca.pem
listener.ssl.sparkfleet.certfile = /etc/vernemq/server.pem
listener.ssl.sparkfleet.keyfile = /etc/vernemq/server.key
listener.ssl.sparkfleet.require_certificate = on
listener.ssl.sparkfleet.use_identity_as_username = on
plugins.vmq_passwd = off
plugins.vmq_acl = on
vmq_acl.acl_file = /etc/vernemq/sparkfleet.acl
";

pub(super) fn files(site: &Site) -> Vec<ConfigFile> {
    let text = format!(
        "\
{LISTENER}# What one client may take. Bound the memory of the whole by the system (systemd's MemoryMax, a container's limit).
listener.ssl.sparkfleet.max_connections = {CONNECTIONS_MAX}
max_message_size = {PACKET_BYTES_MAX}
max_online_messages = {QUEUED_MESSAGES_MAX}
max_offline_messages = 1000
persistent_client_expiration = {}h
",
        SESSION_EXPIRY_S / 3600
    );
    vec![
        ConfigFile { name: "sparkfleet.conf", text },
        ConfigFile { name: "sparkfleet.acl", text: access_list(site, |_| true) + &host_patterns(site) },
    ]
}
