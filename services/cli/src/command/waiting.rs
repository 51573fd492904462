//! Hosts that wait for an administrator: what they say of themselves in the quarantine group of their cluster, before a join service knows of them. For the administrator who is to answer one.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bootstrapper_contract::HostNode;
use join_protocol::terms::Kind;
use service_runtime::exit;
use sparkplug::host::{HostConfig, HostEvent};
use sparkplug::replication::{NodeOnly, Replica};
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
    let mut hosts = Hosts::new();
    // A name is answered as soon as it is received: the host that has it has to be enrolled.
    while wanted.is_none_or(|wanted| choose(&alive(&hosts), Some(wanted), kinds).is_err()) {
        let event = tokio::select! {
            event = session.recv() => event.context("the session has ended")?,
            () = tokio::time::sleep_until(deadline) => break,
        };
        note(&mut hosts, &event);
    }
    session.stop().await;
    choose(&alive(&hosts), wanted, kinds)
}

/// Hosts by their state disk.
type Hosts = BTreeMap<Uuid, Replica<NodeOnly<HostNode>>>;

fn note(hosts: &mut Hosts, event: &HostEvent) {
    let Some(node) = event.node() else { return };
    if let Ok(disk) = Uuid::try_parse(node.edge_node.as_str()) {
        hosts.entry(disk).or_insert_with(|| Replica::new(node.clone())).on_event(event);
    }
}

/// What those say that are alive. Who says nothing that can be read is not a host.
fn alive(hosts: &Hosts) -> BTreeMap<Uuid, &HostNode> {
    let alive = hosts.iter().filter(|(_, host)| host.is_alive());
    alive.filter_map(|(disk, host)| Some((*disk, host.node()?))).collect()
}

/// Chooses one.
fn choose(hosts: &BTreeMap<Uuid, &HostNode>, wanted: Option<&str>, kinds: &[Kind]) -> anyhow::Result<Uuid> {
    let waits = |host: &HostNode| kinds.iter().any(|kind| kind.name() == host.kind) && host.state != "member";
    let name = |host: &HostNode| host.node_name.clone().unwrap_or_default();
    let is_meant = |host: &HostNode| wanted.is_none_or(|wanted| name(host) == wanted);
    let found: Vec<(&Uuid, &&HostNode)> = hosts.iter().filter(|(_, host)| waits(host) && is_meant(host)).collect();
    let listed = |found: &[(&Uuid, &&HostNode)]| {
        let lines =
            found.iter().map(|(disk, host)| format!("\n  {disk}  {}  {}  {}", name(host), host.role, host.state));
        lines.collect::<String>()
    };
    match found[..] {
        [(disk, _)] => Ok(*disk),
        [] => {
            let others: Vec<(&Uuid, &&HostNode)> = hosts.iter().filter(|(_, host)| waits(host)).collect();
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
    use sparkplug::{BdSeq, EdgeNodeDescriptor, Metric, TypedMetrics as _};

    fn host(name: &str, kind: &str, state: &str) -> HostNode {
        let text = str::to_owned;
        let (node_name, role) = (Some(text(name)), text("worker"));
        HostNode { node_name, role, kind: text(kind), state: text(state), ..HostNode::default() }
    }

    #[test]
    fn the_only_host_that_waits_is_meant_or_the_one_with_the_name_and_several_are_listed() {
        let disk = Uuid::from_u128;
        let [one, two, three, four] = [
            host("one", "join", "awaits-challenge"),
            host("two", "rejoin", "resting"),
            host("three", "join", "member"),
            host("four", "init", "resting"),
        ];
        let mut hosts = BTreeMap::from([(disk(1), &one), (disk(2), &two), (disk(3), &three)]);
        let first = [Kind::Join, Kind::Init];
        assert_eq!(choose(&hosts, None, &first).unwrap(), disk(1));
        assert_eq!(choose(&hosts, None, &[Kind::Rejoin, Kind::Recover]).unwrap(), disk(2));
        let error = choose(&hosts, Some("two"), &first).unwrap_err().to_string();
        assert!(error.starts_with("no host waits as \"two\"; these do:") && error.contains("one  worker"), "{error}");
        hosts.insert(disk(4), &four);
        let error = choose(&hosts, None, &first).unwrap_err().to_string();
        assert!(error.starts_with("several hosts wait") && error.contains(&disk(4).to_string()), "{error}");
        assert_eq!(choose(&hosts, Some("four"), &first).unwrap(), disk(4));
        let error = choose(&BTreeMap::new(), None, &first).unwrap_err().to_string();
        assert_eq!(error, "no host waits; is it on, and does it know this broker?");
    }

    #[test]
    fn a_host_that_has_died_or_says_nothing_that_can_be_read_does_not_wait() {
        let node =
            |disk: u128| EdgeNodeDescriptor::parse("ACME-Paint-Join", &Uuid::from_u128(disk).to_string()).unwrap();
        let (bd_seq, timestamp) = (BdSeq::ZERO, 7);
        let birth = |disk: u128, metrics: Vec<Metric>| HostEvent::NodeBirth {
            node: node(disk),
            bd_seq,
            timestamp,
            uuid: None,
            metrics: metrics.into(),
        };
        let mut hosts = Hosts::new();
        for event in [
            birth(1, host("one", "join", "resting").to_metrics()),
            birth(2, vec![Metric::new("State", 3_u64)]),
            birth(3, host("three", "join", "resting").to_metrics()),
            HostEvent::NodeDeath { node: node(3), timestamp },
        ] {
            note(&mut hosts, &event);
        }
        assert_eq!(alive(&hosts), BTreeMap::from([(Uuid::from_u128(1), &host("one", "join", "resting"))]));
    }
}
