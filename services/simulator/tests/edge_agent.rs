//! A simulated edge agent from its HelmRelease to what a Host Application receives of it, over Mosquitto.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use mosquitto::Mosquitto;
use serde_json::{Value, json};
use simulator::cluster::{ClusterSpec, SimulatedCluster};
use simulator::edge_agent::link::LinkMode;
use simulator::edge_agent::{AgentChart, Agents, AgentsOptions, Behaviour};
use simulator::flux::FluxOptions;
use simulator::flux::chart::Charts;
use simulator::flux::git::write_charts;
use simulator::kubernetes::ObjectRef;
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::{EdgeNodeDescriptor, Metric};
use sparkplug_mqtt::{Clock, HostHandle, MqttConfig};
use uuid::Uuid;

const AGENT: &str = "5b2e0b4e-1111-4000-8000-000000000001";
const REVISIONS: [&str; 2] = ["aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"];
const RELOAD: &str = "Node Control/Reload Edge Agent Config";

use crate::mosquitto;

struct Story {
    cluster: SimulatedCluster,
    agents: Agents,
    host: HostHandle,
    node: EdgeNodeDescriptor,
    charts: tempfile::TempDir,
    _server: Mosquitto,
}

async fn story() -> Story {
    let server = Mosquitto::start();
    let mqtt = MqttConfig { keep_alive_s: 1, ..server.config() };
    let chart = AgentChart::with(AgentsOptions {
        group_id: "ACME-Paint_Shop".into(),
        mqtt: mqtt.clone(),
        seed: 1,
        config_retry: Duration::from_millis(50),
    });
    let agents = chart.agents();
    let flux_options = FluxOptions { retry: Duration::from_millis(50), tick: Duration::from_millis(20) };
    let spec = ClusterSpec { flux_options, ..ClusterSpec::new("Paint_Shop") };
    let cluster = SimulatedCluster::start(spec, Charts::new().with("edge-agent", chart)).await.unwrap();
    let config = HostConfig { rebirth_jitter: Duration::ZERO, ..HostConfig::of_contracts(None) };
    let mut host = sparkplug_mqtt::spawn_host(config, &mqtt, Clock::new()).unwrap();
    while !matches!(soon("own session", host.recv()).await, Some(HostEvent::Online)) {}
    let node = EdgeNodeDescriptor::parse("ACME-Paint_Shop", "Robot_Cell_3").unwrap();
    let charts = tempfile::tempdir().unwrap();
    Story { cluster, agents, host, node, charts, _server: server }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

fn text(metrics: &[Metric], name: &str) -> Option<String> {
    metrics.iter().find(|m| &*m.name == name)?.as_str().map(str::to_owned)
}

fn flag(metrics: &[Metric], name: &str) -> Option<bool> {
    metrics.iter().find(|m| &*m.name == name)?.as_bool()
}

impl Story {
    fn install(&self) {
        let url = write_charts(self.charts.path(), &[]).unwrap();
        let source = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "helm-charts", "namespace": "fplus-edge"}, "spec": {"interval": "3m", "url": url, "ref": {"branch": "main"}}
        });
        let release = json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": "edge-agent-1", "namespace": "fplus-edge"},
            "spec": {"interval": "2m", "chart": {"spec": {"chart": "edge-agent", "sourceRef": {"kind": "GitRepository", "name": "helm-charts"}}},
                "values": {"name": "Robot_Cell_3", "uuid": AGENT}}
        });
        self.cluster.kubernetes().apply("sync", source).unwrap();
        self.cluster.kubernetes().apply("sync", release).unwrap();
    }

    fn configure(&self, revision: &str, config: &Value) {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("edge-agent-config-{AGENT}"), "namespace": "fplus-edge",
                "annotations": {"factoryplus.app.amrc.co.uk/config-revision": revision}},
            "data": {"config.json": config.to_string()}
        });
        self.cluster.kubernetes().apply("sync", object).unwrap();
    }

    async fn reload(&self) {
        let metrics = vec![Metric::new(RELOAD, true)];
        self.host.request(HostRequest::Command { node: self.node.clone(), device: None, metrics }).await.unwrap();
    }

    /// Waits for an event that the function makes something of.
    async fn until<T>(&mut self, what: &str, pick: impl Fn(HostEvent) -> Option<T>) -> T {
        soon(what, async {
            loop {
                if let Some(found) = pick(self.host.recv().await.expect("the host runs")) {
                    return found;
                }
            }
        })
        .await
    }

    async fn birth(&mut self, what: &str, wanted: impl Fn(&[Metric]) -> bool) -> i64 {
        let pick = |event| match event {
            HostEvent::NodeBirth { metrics, bd_seq, .. } if wanted(&metrics) => Some(bd_seq.get()),
            _ => None,
        };
        self.until(what, pick).await
    }

    async fn device_birth(&mut self, id: &str) -> Vec<Metric> {
        let pick = |event| match event {
            HostEvent::DeviceBirth { device, metrics, .. } if device.as_str() == id => Some(metrics.to_vec()),
            _ => None,
        };
        self.until(&format!("DBIRTH of {id}"), pick).await
    }

    async fn end(self) {
        self.cluster.stop().await;
        self.host.stop().await;
    }
}

fn devices(ids: &[&str]) -> Value {
    let list: Vec<Value> = ids.iter().map(|id| json!({"deviceId": id, "pubInterval": 50})).collect();
    json!({"deviceConnections": [{"name": "PLC", "connType": "Simulated", "devices": list}]})
}

#[tokio::test]
async fn an_agent_is_installed_configured_reloaded_and_uninstalled() {
    let mut story = story().await;
    story.install();
    story
        .birth("birth without configuration", |m| {
            text(m, "Config_Revision").is_none()
                && flag(m, "Alerts/Config_Unavailable/Active") == Some(true)
                && text(m, "Instance_UUID").as_deref() == Some(AGENT)
                && flag(m, "Properties/Simulated") == Some(true)
        })
        .await;
    let api = story.cluster.kubernetes().clone();
    let node =
        api.get("factoryplus.app.amrc.co.uk/v1", "SparkplugNode", "fplus-edge", "edge-agent.robot-cell-3").unwrap();
    assert_eq!(
        node["spec"],
        json!({"uuid": AGENT, "edgeAgent": true, "secrets": [format!("edge-agent-sensitive-information-{AGENT}")]})
    );

    story.configure(REVISIONS[0], &devices(&["Robot_A", "Robot_B"]));
    story
        .birth("birth with configuration", |m| {
            text(m, "Config_Revision").as_deref() == Some(REVISIONS[0])
                && flag(m, "Alerts/Config_Unavailable/Active") == Some(false)
        })
        .await;
    let machine = story.device_birth("Robot_B").await;
    assert!(machine.iter().any(|m| &*m.name == "Process/Temperature" && m.properties.get("engUnit").is_some()));
    story
        .until("changing data", |e| {
            matches!(e, HostEvent::DeviceData { device, .. } if device.as_str() == "Robot_B").then_some(())
        })
        .await;

    story.configure(REVISIONS[1], &devices(&["Robot_B", "Robot_C"]));
    story.reload().await;
    story
        .until("death of Robot_A", |e| {
            matches!(e, HostEvent::DeviceDeath { device, .. } if device.as_str() == "Robot_A").then_some(())
        })
        .await;
    story
        .birth("birth with the next configuration", |m| text(m, "Config_Revision").as_deref() == Some(REVISIONS[1]))
        .await;
    story.device_birth("Robot_C").await;

    story.configure(REVISIONS[0], &json!({"deviceConnections": [{"devices": [{"deviceId": "a/b"}]}]}));
    story.reload().await;
    story.birth("alert about the configuration", |m| flag(m, "Alerts/Config_Invalid/Active") == Some(true)).await;

    let place = ObjectRef {
        api_version: "helm.toolkit.fluxcd.io/v2",
        kind: "HelmRelease",
        namespace: "fplus-edge",
        name: "edge-agent-1",
    };
    api.delete(&place).unwrap();
    story.until("NDEATH", |e| matches!(e, HostEvent::NodeDeath { .. }).then_some(())).await;
    let gone = async {
        while api.get("helm.toolkit.fluxcd.io/v2", "HelmRelease", "fplus-edge", "edge-agent-1").is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("the release is gone", gone).await;
    assert!(
        api.get("factoryplus.app.amrc.co.uk/v1", "SparkplugNode", "fplus-edge", "edge-agent.robot-cell-3").is_err()
    );
    assert!(story.agents.running().await.is_empty());
    story.end().await;
}

#[tokio::test]
async fn an_agent_that_never_reloads_keeps_its_revision_until_it_behaves() {
    let mut story = story().await;
    story.configure(REVISIONS[0], &devices(&["Robot_A"]));
    story.install();
    story.birth("birth", |m| text(m, "Config_Revision").as_deref() == Some(REVISIONS[0])).await;
    let agent: Uuid = AGENT.parse().unwrap();
    assert!(story.agents.set_behaviour(agent, Behaviour::NeverReloads).await);
    story.configure(REVISIONS[1], &devices(&["Robot_B"]));
    story.reload().await;
    let mut ignored = story.agents.reloads_ignored(agent).await.unwrap();
    soon("the command is ignored", ignored.wait_for(|count| *count == 1)).await.unwrap();
    let rebirth = vec![Metric::new("Node Control/Rebirth", true)];
    story
        .host
        .request(HostRequest::Command { node: story.node.clone(), device: None, metrics: rebirth })
        .await
        .unwrap();
    story.birth("rebirth", |m| text(m, "Config_Revision").as_deref() == Some(REVISIONS[0])).await;
    assert!(story.agents.set_behaviour(agent, Behaviour::Normal).await);
    story.reload().await;
    story.birth("reload", |m| text(m, "Config_Revision").as_deref() == Some(REVISIONS[1])).await;
    story.end().await;
}

#[tokio::test]
async fn a_muted_agent_is_silent_but_connected_and_a_pulled_one_dies_and_comes_back() {
    let mut story = story().await;
    story.configure(REVISIONS[0], &devices(&["Robot_A"]));
    story.install();
    let first = story.birth("birth", |m| text(m, "Config_Revision").is_some()).await;
    story.device_birth("Robot_A").await;
    let agent: Uuid = AGENT.parse().unwrap();

    assert!(story.agents.set_link(agent, LinkMode::Mute).await);
    // What was under way arrives; then several keep-alive times pass without a word and without a death.
    tokio::time::sleep(Duration::from_millis(300)).await;
    while let Ok(event) = story.host.events().try_recv() {
        drop(event);
    }
    story.reload().await;
    let received = tokio::time::timeout(Duration::from_secs(4), story.host.recv()).await;
    assert!(received.is_err(), "{received:?}");

    assert!(story.agents.set_link(agent, LinkMode::Down).await);
    story.until("the will", |e| matches!(e, HostEvent::NodeDeath { .. }).then_some(())).await;
    assert!(story.agents.set_link(agent, LinkMode::Pass).await);
    let second = story.birth("birth of the next session", |_| true).await;
    assert!(second > first, "{first} -> {second}");

    story.cluster.stop().await;
    let farewell = async { while !matches!(story.host.recv().await, Some(HostEvent::NodeDeath { .. })) {} };
    soon("NDEATH when the cluster is switched off", farewell).await;
    story.host.stop().await;
}
