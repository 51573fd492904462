//! Mosquitto's dynamic-security plugin: the file that it starts from. It can then be changed while the server runs, with `mosquitto_ctrl dynsec`.

use serde_json::{Value, json};

use super::{ConfigFile, HOST_ROLE, host_grants, mosquitto, users};
use crate::rules::{Action, Grant};
use crate::site::Site;

pub(super) fn files(site: &Site) -> Vec<ConfigFile> {
    let access = "\
plugin /usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so
plugin_opt_config_file /var/lib/mosquitto/sparkfleet-dynamic-security.json";
    let (clients, mut roles): (Vec<Value>, Vec<Value>) = users(site)
        .map(|(user, grants)| {
            let acls: Vec<Value> = grants.iter().flat_map(entries).collect();
            let client = json!({ "username": user, "roles": [{ "rolename": user }] });
            (client, json!({ "rolename": user, "acls": acls }))
        })
        .unzip();
    // For clients that the site adds, one a host, named by the UUID of its state disk. Mosquitto knows %u in roles since 2.1; before, it stands for no one.
    let of_hosts: Vec<Value> = host_grants(site, "%u").iter().flat_map(entries).collect();
    roles.extend(site.has_own_hosts().then(|| json!({ "rolename": HOST_ROLE, "acls": of_hosts })));
    let document = json!({
        "defaultACLAccess": {
            "publishClientSend": false,
            "publishClientReceive": false,
            "subscribe": false,
            "unsubscribe": true,
        },
        "clients": clients,
        "groups": [],
        "roles": roles,
    });
    let text = format!("{document:#}\n");
    vec![
        ConfigFile { name: "sparkfleet.conf", text: mosquitto::listener(access) },
        ConfigFile { name: "sparkfleet-dynamic-security.json", text },
    ]
}

/// To receive a topic someone has to be allowed the subscription and each message. What has the greater priority is looked at first.
fn entries(Grant { action, filter, except }: &Grant) -> Vec<Value> {
    let kinds: &[&str] = match action {
        Action::Publish => &["publishClientSend"],
        Action::Subscribe => &["subscribePattern", "publishClientReceive"],
    };
    let entry = |kind: &str, topic: &String, allow: bool| json!({ "acltype": kind, "topic": topic, "priority": i32::from(!allow), "allow": allow });
    let of_kind = |kind: &&str| {
        let refused = except.iter().map(|out| entry(kind, out, false));
        refused.chain([entry(kind, filter, true)]).collect::<Vec<_>>()
    };
    kinds.iter().flat_map(of_kind).collect()
}
