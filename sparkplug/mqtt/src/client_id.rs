//! MQTT client ids. They must be unique at the server, equal again after a reconnect of the same Edge Node or host (so that a half-open old
//! session is taken over), and harmless everywhere: some servers refuse `/` and other characters of paths.

use std::hash::{BuildHasher, Hasher};

use sparkplug::{EdgeNodeDescriptor, HostId};

use crate::plain_name::plain_name;

/// Longest id that is made. MQTT 3.1.1 promises only 23; every server in use takes this.
const CLIENT_ID_BYTES_MAX: usize = 120;

/// `<prefix>.<group>.<edge node>`
pub(crate) fn of_edge_node(prefix: &str, node: &EdgeNodeDescriptor) -> String {
    shortened(format!("{prefix}.{}.{}", plain_name(node.group.as_str()), plain_name(node.edge_node.as_str())))
}

/// `<prefix>.host.<host id>`; without a host id (a listener) random, because nothing tells two listeners apart.
pub(crate) fn of_host(prefix: &str, host: Option<&HostId>) -> String {
    match host {
        Some(host) => shortened(format!("{prefix}.host.{}", plain_name(host.as_str()))),
        None => shortened(format!("{prefix}.listener.{:016x}", random())),
    }
}

/// A number that two processes do not share: the standard library seeds its hash maps from the operating system.
pub(crate) fn random() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Ids that are too long are cut, and stay apart by a hash of the whole.
fn shortened(id: String) -> String {
    if id.len() <= CLIENT_ID_BYTES_MAX {
        return id;
    }
    // FNV-1a: the same in every process and version, unlike the standard library's hasher.
    let hash = id
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // Only ASCII is in it, so every index is a boundary.
    format!("{}.{hash:016x}", &id[..CLIENT_ID_BYTES_MAX - 17])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_readable_stable_and_free_of_slashes() {
        let node = EdgeNodeDescriptor::parse("ACME-Plant 1", "Sync\\..").unwrap();
        let id = of_edge_node("sparkfleet", &node);
        assert_eq!(id, "sparkfleet.ACME-Plant=201.Sync=5c=2e=2e");
        assert_eq!(of_edge_node("sparkfleet", &node), id);
        assert_eq!(of_host("p", Some(&HostId::new("H1").unwrap())), "p.host.H1");
        assert_ne!(of_host("p", None), of_host("p", None));
    }

    #[test]
    fn long_ids_are_cut_and_still_differ() {
        let long = |end| of_edge_node("p", &EdgeNodeDescriptor::parse(&"ü".repeat(100), end).unwrap());
        assert_eq!(long("a").len(), CLIENT_ID_BYTES_MAX);
        assert_ne!(long("a"), long("b"));
    }
}
