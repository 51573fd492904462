//! Mosquitto: `mosquitto.conf(5)`, options `acl_file`, `require_certificate`, `use_identity_as_username`.

use super::{ConfigFile, access_list};
use crate::site::Site;

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
# Certificates that are refused before they expire; uncomment when there is a list.
#crlfile /etc/mosquitto/certs/sparkfleet-crl.pem
{access}
"
    )
}

pub(super) fn files(site: &Site) -> Vec<ConfigFile> {
    let text = listener("acl_file /etc/mosquitto/sparkfleet.acl");
    vec![ConfigFile { name: "sparkfleet.conf", text }, ConfigFile { name: "sparkfleet.acl", text: access_list(site) }]
}
