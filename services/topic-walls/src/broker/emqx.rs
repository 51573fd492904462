//! EMQX 5: a listener and the file source of its authorization, whose rules are Erlang terms read from top to bottom.

use super::{ConfigFile, users};
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
authorization {
  no_match = deny
  deny_action = ignore
  sources = [{ type = file, enable = true, path = "etc/sparkfleet-acl.conf" }]
}
"#;

pub(super) fn files(site: &Site) -> Vec<ConfigFile> {
    let mut text = String::from("%% Who may say what, read from top to bottom.\n");
    for (user, grants) in users(site) {
        text.push_str(&format!("\n%% {user}\n"));
        for Grant { action, filter } in grants {
            let verb = match action {
                Action::Publish => "publish",
                Action::Subscribe => "subscribe",
            };
            text.push_str(&format!("{{allow, {{username, \"{user}\"}}, {verb}, [\"{filter}\"]}}.\n"));
        }
    }
    text.push_str("\n{deny, all}.\n");
    vec![
        ConfigFile { name: "sparkfleet-listener.conf", text: LISTENER.to_owned() },
        ConfigFile { name: "sparkfleet-acl.conf", text },
    ]
}
