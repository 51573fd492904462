//! VerneMQ: a listener and `vmq_acl`, whose file has Mosquitto's form.

use super::{ConfigFile, access_list};
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
    vec![
        ConfigFile { name: "sparkfleet.conf", text: LISTENER.to_owned() },
        ConfigFile { name: "sparkfleet.acl", text: access_list(site) },
    ]
}
