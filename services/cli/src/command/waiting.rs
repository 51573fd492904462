//! Hosts that wait for an administrator: what they say of themselves in the quarantine group of their cluster, before a join service knows of them. For the administrator who is to answer one.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bootstrapper_contract::HostNode;
use join_protocol::terms::Kind;
use service_runtime::exit;
use sparkplug::TypedMetrics as _;
use sparkplug::host::{HostConfig, HostEvent};
use sparkplug::session::QoS;
use sparkplug_mqtt::Clock;
use uuid::Uuid;

use crate::client::mqtt_config;
use crate::options::Options;
use crate::usage_error::usage;

/// A host that waits says something at least every 36 s: so long it takes to know all of them.
const ALL_RECEIVED: Duration = Duration::from_secs(40);

/// Finds the state disk of a host: by its UUID, by the name that it asks for, or, if nothing is said, the only one that waits. `kinds`: what it may ask for.
///
/// # Errors
/// With [`exit::TIMEOUT`] if there is none, with [`exit::USAGE`] if there are several.
pub(super) async fn find(wanted: Option<&str>, group: &str, kinds: &[Kind], options: &Options) -> anyhow::Result<Uuid> {
    if let Some(disk) = wanted.and_then(|wanted| Uuid::try_parse(wanted).ok()) {
        return Ok(disk);
    }
    let config = HostConfig {
        filters: vec![(format!("spBv1.0/{group}/+/+"), QoS::AtLeastOnce)],
        rebirth_jitter: Duration::ZERO,
        ..HostConfig::of_contracts(None)
    };
    let mut session = sparkplug_mqtt::spawn_host(config, &mqtt_config(&options.connection)?, Clock::new())?;
    let patience = if wanted.is_some() { options.presentation.timeout } else { ALL_RECEIVED };
    let deadline = tokio::time::Instant::now() + patience;
    let mut hosts: BTreeMap<Uuid, HostNode> = BTreeMap::new();
    // A name is answered as soon as it is received: the host that has it has to be enrolled.
    while wanted.is_none_or(|wanted| choose(&hosts, Some(wanted), kinds).is_err()) {
        let event = tokio::select! {
            event = session.recv() => event.context("the session has ended")?,
            () = tokio::time::sleep_until(deadline) => break,
        };
        note(&mut hosts, &event);
    }
    session.stop().await;
    choose(&hosts, wanted, kinds)
}

fn note(hosts: &mut BTreeMap<Uuid, HostNode>, event: &HostEvent) {
    let Some(disk) = event.node().and_then(|node| Uuid::try_parse(node.edge_node.as_str()).ok()) else { return };
    match event {
        HostEvent::NodeBirth { metrics, .. } => {
            // Who says nothing that can be read is not a host.
            if let Ok(host) = HostNode::from_metrics(metrics.iter()) {
                hosts.insert(disk, host);
            }
        }
        HostEvent::NodeData { metrics, .. } => {
            if let Some(host) = hosts.get_mut(&disk) {
                let _ = host.merge(metrics);
            }
        }
        HostEvent::NodeDeath { .. } => drop(hosts.remove(&disk)),
        _ => {}
    }
}

/// Chooses one.
fn choose(hosts: &BTreeMap<Uuid, HostNode>, wanted: Option<&str>, kinds: &[Kind]) -> anyhow::Result<Uuid> {
    let waits = |host: &HostNode| kinds.iter().any(|kind| kind.name() == host.kind) && host.state != "member";
    let name = |host: &HostNode| host.node_name.clone().unwrap_or_default();
    let is_meant = |host: &HostNode| wanted.is_none_or(|wanted| name(host) == wanted);
    let found: Vec<(&Uuid, &HostNode)> = hosts.iter().filter(|(_, host)| waits(host) && is_meant(host)).collect();
    let listed = |found: &[(&Uuid, &HostNode)]| {
        let lines =
            found.iter().map(|(disk, host)| format!("\n  {disk}  {}  {}  {}", name(host), host.role, host.state));
        lines.collect::<String>()
    };
    match found[..] {
        [(disk, _)] => Ok(*disk),
        [] => {
            let others: Vec<(&Uuid, &HostNode)> = hosts.iter().filter(|(_, host)| waits(host)).collect();
            let error = match wanted {
                Some(wanted) if !others.is_empty() => {
                    anyhow!("no host waits as {wanted:?}; these do:{}", listed(&others))
                }
                _ => anyhow!("no host waits; is it on, and does it know this broker?"),
            };
            Err(exit::with_code(exit::TIMEOUT, error))
        }
        _ => Err(usage(anyhow!("several hosts wait; choose one by the UUID of its state disk:{}", listed(&found)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, kind: &str, state: &str) -> HostNode {
        let text = str::to_owned;
        let (node_name, role) = (Some(text(name)), text("worker"));
        HostNode { node_name, role, kind: text(kind), state: text(state), ..HostNode::default() }
    }

    #[test]
    fn the_only_host_that_waits_is_meant_or_the_one_with_the_name_and_several_are_listed() {
        let disk = Uuid::from_u128;
        let mut hosts = BTreeMap::from([
            (disk(1), host("one", "join", "awaits-challenge")),
            (disk(2), host("two", "rejoin", "resting")),
            (disk(3), host("three", "join", "member")),
        ]);
        let first = [Kind::Join, Kind::Init];
        assert_eq!(choose(&hosts, None, &first).unwrap(), disk(1));
        assert_eq!(choose(&hosts, None, &[Kind::Rejoin, Kind::Recover]).unwrap(), disk(2));
        let error = choose(&hosts, Some("two"), &first).unwrap_err().to_string();
        assert!(error.starts_with("no host waits as \"two\"; these do:") && error.contains("one  worker"), "{error}");
        hosts.insert(disk(4), host("four", "init", "resting"));
        let error = choose(&hosts, None, &first).unwrap_err().to_string();
        assert!(error.starts_with("several hosts wait") && error.contains(&disk(4).to_string()), "{error}");
        assert_eq!(choose(&hosts, Some("four"), &first).unwrap(), disk(4));
        let error = choose(&BTreeMap::new(), None, &first).unwrap_err().to_string();
        assert_eq!(error, "no host waits; is it on, and does it know this broker?");
    }
}
