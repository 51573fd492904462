//! HiveMQ 4 with the File RBAC extension: roles in `conf/credentials.xml`. The extension knows users by password; these are the site's to choose, so the file has the roles and refuses everyone until
//! users are added. A role cannot refuse: exceptions of a grant are left out.

use super::{ConfigFile, HOST_ROLE, host_grants, users};
use crate::limits::{CONNECTIONS_MAX, PACKET_BYTES_MAX, SESSION_EXPIRY_S};
use crate::rules::{Action, Grant};
use crate::site::Site;

pub(super) fn files(site: &Site) -> Vec<ConfigFile> {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!-- Who may say what. Add a user for each role: <user><name>ROLE</name><password>HASH</password><roles><id>ROLE</id></roles></user>,\n     \
         with a hash made by the extension's own tool. The user of a host with credentials of its own is the UUID of its state disk, its role joining-host. -->\n\
         <file-rbac>\n  <users>\n  </users>\n  <roles>\n",
    );
    let hosts = site.has_own_hosts().then(|| (HOST_ROLE.to_owned(), host_grants(site, "${{username}}")));
    for (user, grants) in users(site).chain(hosts) {
        text.push_str(&format!("    <role>\n      <id>{user}</id>\n      <permissions>\n"));
        for Grant { action, filter, .. } in grants {
            let activity = match action {
                Action::Publish => "PUBLISH",
                Action::Subscribe => "SUBSCRIBE",
            };
            let permission = format!("<topic>{filter}</topic><activity>{activity}</activity>");
            text.push_str(&format!("        <permission>{permission}</permission>\n"));
        }
        text.push_str("      </permissions>\n    </role>\n");
    }
    text.push_str("  </roles>\n</file-rbac>\n");
    let limits = format!(
        "\
<!-- What one client may take: merge it into <hivemq> of conf/config.xml. Bound the memory of the whole by the heap (-Xmx). -->
<restrictions>
  <max-connections>{CONNECTIONS_MAX}</max-connections>
</restrictions>
<mqtt>
  <packets><max-packet-size>{PACKET_BYTES_MAX}</max-packet-size></packets>
  <queued-messages><max-queue-size>1000</max-queue-size><strategy>discard</strategy></queued-messages>
  <session-expiry><max-interval>{SESSION_EXPIRY_S}</max-interval></session-expiry>
</mqtt>
"
    );
    vec![ConfigFile { name: "credentials.xml", text }, ConfigFile { name: "sparkfleet-limits.xml", text: limits }]
}
