//! The names in `Host` fields: this console's, and this machine's.

/// Whether a `Host` field names this console.
pub(super) fn is_ours(host: &str, allowed: &[String]) -> bool {
    let name = name_of(host);
    is_loopback_name(&name) || allowed.contains(&name)
}

/// Whether a `Host` field names this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    is_loopback_name(&name_of(host))
}

/// The name in a `Host` field, without its port.
fn name_of(host: &str) -> String {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.to_ascii_lowercase()
}

fn is_loopback_name(name: &str) -> bool {
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_and_those_that_are_configured_are_ours() {
        let allowed = ["console.example".to_owned()];
        for host in ["localhost", "LocalHost:8482", "127.0.0.1:1", "127.9.9.9", "[::1]:8482", "Console.example:443"] {
            assert!(is_ours(host, &allowed), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example", "192.0.2.1", "[2001:db8::1]:8482", "console.example.evil"]
        {
            assert!(!is_ours(host, &allowed), "{host}");
        }
    }
}
