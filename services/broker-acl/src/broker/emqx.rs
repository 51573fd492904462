//! EMQX 5: a listener and the file source of its authorization, whose rules are Erlang terms read from top to bottom.

use super::{ConfigFile, host_grants, users};
use crate::limits::{CONNECTIONS_MAX, PACKET_BYTES_MAX, QUEUED_BYTES_MAX, QUEUED_MESSAGES_MAX, SESSION_EXPIRY_S};
use crate::rules::{Action, Grant};
use crate::site::Site;

const LISTENER: &str = r#"# A listener for Sparkfleet: TLS, client certificates, the common name is the user. Merge it into etc/emqx.conf.
listeners.ssl.sparkfleet {
  bind = "0.0.0.0:8883"
  ssl_options {
    cacertfile = "etc/certs/sparkfleet-ca.pem"
    certfile = "etc/certs/server.pem"
    keyfile = "etc/certs/server.key"
    verify = verify_peer
    fail_if_no_peer_cert = true
  }
}
mqtt.peer_cert_as_username = cn
# A client that names the client id of another user has a session of its own and takes no other over. EMQX has this since 5.8.3: with an older one leave it out.
mqtt.clientid_override = "concat([username, '-', clientid])"
authorization {
  no_match = deny
  deny_action = ignore
  sources = [{ type = file, enable = true, path = "etc/sparkfleet-acl.conf" }]
}
"#;

/// The name of a host.
const UUID: &str = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$";

const fn verb(action: Action) -> &'static str {
    match action {
        Action::Publish => "publish",
        Action::Subscribe => "subscribe",
    }
}

pub(super) fn files(site: &Site) -> Vec<ConfigFile> {
    let mut text = String::from("%% Who may say what, read from top to bottom.\n");
    for (user, grants) in users(site) {
        text.push_str(&format!("\n%% {user}\n"));
        for Grant { action, filter, except } in grants {
            let verb = verb(action);
            for out in except {
                text.push_str(&format!("{{deny, {{username, \"{user}\"}}, {verb}, [\"{out}\"]}}.\n"));
            }
            text.push_str(&format!("{{allow, {{username, \"{user}\"}}, {verb}, [\"{filter}\"]}}.\n"));
        }
    }
    if site.has_own_hosts() {
        text.push_str("\n%% A host, whose name is the UUID of its state disk, is that Edge Node and no other.\n");
    }
    for Grant { action, filter, .. } in host_grants(site, "${username}") {
        let verb = verb(action);
        text.push_str(&format!("{{allow, {{username, {{re, \"{UUID}\"}}}}, {verb}, [\"{filter}\"]}}.\n"));
    }
    text.push_str("\n{deny, all}.\n");
    let listener = format!(
        "\
{LISTENER}# What one client may take. Bound the memory of the whole by the system (systemd's MemoryMax, a container's limit).
listeners.ssl.sparkfleet.max_connections = {CONNECTIONS_MAX}
mqtt.max_packet_size = {PACKET_BYTES_MAX}B
mqtt.max_mqueue_len = {QUEUED_MESSAGES_MAX}
mqtt.session_expiry_interval = {SESSION_EXPIRY_S}s
force_shutdown {{ enable = true, max_mailbox_size = {QUEUED_MESSAGES_MAX}, max_heap_size = {QUEUED_BYTES_MAX}B }}
"
    );
    vec![
        ConfigFile { name: "sparkfleet-listener.conf", text: listener },
        ConfigFile { name: "sparkfleet-acl.conf", text },
    ]
}
