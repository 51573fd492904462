//! Simulated hosts join, come back, and are initialised over a real Mosquitto; the issuer is in this process.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bootstrapper::Ending;
use bootstrapper::adapters::simulated::SimulatedHost;
use bootstrapper::platform::{Activity, Installer, JoinPlan, Outcome, PlatformError};
use bootstrapper_contract::InitParameters;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use join_protocol::message::acknowledgement::Stage;
use join_protocol::message::grant::Component;
use join_protocol::secret::{Secret, SecretBytes};
use join_protocol::simulated::SimulatedVerifier;
use join_protocol::terms::Variant;
use support::issuer::TestIssuer;
use support::mosquitto::Mosquitto;
use support::site::{Running, Site, config};
use tempfile::TempDir;
use tokio::sync::Notify;
use uuid::Uuid;

const JOINED: [Stage; 5] = [Stage::Opened, Stage::Locked, Stage::DiskReady, Stage::Installed, Stage::Member];

fn join_service() -> TestIssuer {
    TestIssuer::join_service(Variant::Simulated, Box::new(SimulatedVerifier::default()))
}

fn administrator() -> TestIssuer {
    TestIssuer::administrator(Variant::Simulated, Box::new(SimulatedVerifier::default()))
}

struct Machine {
    disk: Uuid,
    directory: TempDir,
    host: SimulatedHost,
}

impl Machine {
    fn new(number: u8) -> Self {
        let (disk, directory) = (Uuid::from_u128(u128::from(number)), tempfile::tempdir().unwrap());
        let host = SimulatedHost::new(directory.path(), disk, Secret::new([number; 32])).unwrap();
        Self { disk, directory, host }
    }

    fn start(&self, broker: &Mosquitto) -> Running {
        let config = config(broker, self.directory.path(), &format!("edge-{}", self.disk.as_u128()));
        Running::start(config, self.host.platform())
    }

    fn record(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("run/state/sparkfleet/node_state.json")).unwrap_or_default()
    }

    fn disk_mark(&self) -> String {
        let text = std::fs::read_to_string(self.directory.path().join("disk.json")).unwrap_or_default();
        serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default()["mark"].as_str().unwrap_or("").to_owned()
    }
}

#[tokio::test]
async fn hosts_join_side_by_side_and_come_back_after_a_reboot() {
    let broker = Mosquitto::start();
    let mut site = Site::start(&broker, vec![join_service()]);
    let machines: Vec<Machine> = (1..=3).map(Machine::new).collect();
    let running: Vec<Running> = machines.iter().map(|machine| machine.start(&broker)).collect();
    let all = |state: &'static str| {
        let disks: Vec<Uuid> = machines.iter().map(|machine| machine.disk).collect();
        move |site: &Site| disks.iter().all(|disk| site.state(*disk) == state)
    };
    site.until("all to be members", all("member")).await;
    site.until("all acknowledgements", |site| site.issuers[0].acknowledged.len() == 3).await;
    for machine in &machines {
        let node = site.node(machine.disk).unwrap();
        assert_eq!((node.kind.as_str(), node.stage.as_deref(), node.simulated), ("join", Some("member"), true));
        assert_eq!((node.last_error.as_deref(), node.kubernetes_version.as_deref()), (None, Some("v1.33.2")));
        assert!(machine.host.is_locked() && machine.record().contains(r#""progress": "member""#));
        assert_eq!(
            (machine.disk_mark().as_str(), site.issuers[0].stages_of(machine.disk)),
            ("initialised", JOINED.to_vec())
        );
    }
    assert_eq!(site.issuers[0].tickets, 3);
    for running in running {
        assert_eq!(running.stop().await, Ending::Member);
    }

    // The process again, in the same boot: a member, which needs no ticket and no broker.
    assert_eq!(machines[0].start(&broker).end().await, Ending::Member);
    assert_eq!(site.issuers[0].tickets, 3);

    machines.iter().for_each(|machine| machine.host.reboot());
    let running: Vec<Running> = machines.iter().map(|machine| machine.start(&broker)).collect();
    let is_back = |site: &Site| {
        all("member")(site) && machines.iter().all(|machine| site.node(machine.disk).unwrap().kind == "rejoin")
    };
    site.until("all to be back", is_back).await;
    let came_back = [Stage::Opened, Stage::Locked, Stage::DiskReady, Stage::Member];
    let stages = site.issuers[0].stages_of(machines[1].disk);
    assert_eq!(stages[JOINED.len()..], came_back);
    for running in running {
        assert_eq!(running.stop().await, Ending::Member);
    }
}

#[tokio::test]
async fn an_administrator_makes_the_first_member_while_the_host_asks_the_join_service_in_vain() {
    let broker = Mosquitto::start();
    let mut site = Site::start(&broker, vec![administrator()]);
    let machine = Machine::new(7);
    let running = machine.start(&broker);
    site.until("the host", |site| site.state(machine.disk) == "awaits-challenge").await;
    assert_eq!(site.node(machine.disk).unwrap().kind, "join");
    site.ask_for_administrator(machine.disk).await;
    site.until("the first member", |site| site.state(machine.disk) == "member").await;
    site.until("the kubeconfig", |site| site.issuers[0].kubeconfig.is_some()).await;
    assert_eq!(site.issuers[0].kubeconfig.as_deref(), Some(b"# A simulated cluster: cell\n".as_slice()));
    let node = site.node(machine.disk).unwrap();
    assert_eq!((node.kind.as_str(), node.stage.as_deref()), ("init", Some("member")));
    assert!(machine.record().contains(r#""role": "control-plane""#), "{}", machine.record());
    assert_eq!(running.stop().await, Ending::Member);

    // And it is recovered by an administrator when no join service is left.
    machine.host.reboot();
    let running = machine.start(&broker);
    site.until("the host again", |site| site.state(machine.disk) == "awaits-challenge").await;
    site.ask_for_administrator(machine.disk).await;
    site.until("the recovered member", |site| {
        site.state(machine.disk) == "member" && site.node(machine.disk).unwrap().kind == "recover"
    })
    .await;
    assert_eq!(running.stop().await, Ending::Member);
}

#[tokio::test]
async fn a_host_that_waits_is_stopped_cleanly() {
    let broker = Mosquitto::start();
    let mut site = Site::start(&broker, Vec::new());
    let machine = Machine::new(9);
    let running = machine.start(&broker);
    site.until("the host", |site| site.state(machine.disk) == "awaits-challenge").await;
    assert_eq!(running.stop().await, Ending::Stopped);
    site.until("its death", |site| site.alive.values().all(|alive| !alive)).await;
    assert!(!machine.host.is_locked() && machine.disk_mark() == "new");
}

/// Kubernetes that gets ready when it is notified, or fails.
#[derive(Debug, Clone)]
struct Broken {
    hangs: Option<Arc<Notify>>,
    joins: Arc<AtomicUsize>,
}

impl Installer for Broken {
    fn install<'a>(&'a mut self, _: &'a [Component], _: Activity) -> BoxFuture<'a, Outcome<()>> {
        std::future::ready(Ok(())).boxed()
    }

    fn join<'a>(&'a mut self, _: &'a JoinPlan, activity: Activity) -> BoxFuture<'a, Outcome<()>> {
        self.joins.fetch_add(1, Ordering::SeqCst);
        activity.say("trying in vain");
        match self.hangs.clone() {
            Some(released) => async move {
                released.notified().await;
                Ok(())
            }
            .boxed(),
            None => std::future::ready(Err(PlatformError("no etcd".to_owned()))).boxed(),
        }
    }

    fn init<'a>(&'a mut self, _: &'a InitParameters, _: Activity) -> BoxFuture<'a, Outcome<SecretBytes>> {
        std::future::ready(Err(PlatformError("no etcd".to_owned()))).boxed()
    }

    fn resume(&mut self, _: Activity) -> BoxFuture<'_, Outcome<()>> {
        std::future::ready(Ok(())).boxed()
    }
}

impl Machine {
    fn start_broken(&self, broker: &Mosquitto, hangs: Option<Arc<Notify>>) -> (Running, Arc<AtomicUsize>) {
        let joins = Arc::new(AtomicUsize::new(0));
        let mut platform = self.host.platform();
        platform.installer = Box::new(Broken { hangs, joins: Arc::clone(&joins) });
        (Running::start(config(broker, self.directory.path(), "edge-1"), platform), joins)
    }

    fn mark_after(&self, running: &str) -> String {
        assert!(self.host.is_locked(), "{running}");
        self.disk_mark()
    }
}

#[tokio::test]
async fn a_join_that_fails_after_the_lock_marks_the_disk_reports_it_and_reboots_into_a_host_that_joins() {
    let broker = Mosquitto::start();
    let mut site = Site::start(&broker, vec![join_service()]);
    let machine = Machine::new(4);
    let (running, _) = machine.start_broken(&broker, None);
    site.until("the failure", |site| site.state(machine.disk) == "failed").await;
    let node = site.node(machine.disk).unwrap();
    assert_eq!(node.last_error.as_deref(), Some("joining the Kubernetes cluster: no etcd"));
    site.until("the issuer to know", |site| site.issuers[0].stages_of(machine.disk).contains(&Stage::Failed)).await;
    let Ending::Reboot(reason) = running.end().await else { panic!("no reboot") };
    assert_eq!(
        (reason.as_str(), machine.mark_after("failed").as_str()),
        ("joining the Kubernetes cluster: no etcd", "reset")
    );
    assert_eq!(machine.host.reboots_asked(), [reason]);

    machine.host.reboot();
    let running = machine.start(&broker);
    site.until("a member after all", |site| site.state(machine.disk) == "member").await;
    assert_eq!(running.stop().await, Ending::Member);
    assert_eq!(machine.disk_mark(), "initialised");
}

#[tokio::test]
async fn a_process_that_is_killed_after_the_lock_is_followed_by_one_that_reboots() {
    let broker = Mosquitto::start();
    let mut site = Site::start(&broker, vec![join_service()]);
    let machine = Machine::new(5);
    let (running, joins) = machine.start_broken(&broker, Some(Arc::default()));
    let trying =
        |site: &Site| site.node(machine.disk).is_some_and(|node| node.activity.as_deref() == Some("trying in vain"));
    site.until("the join under way", trying).await;
    assert_eq!((joins.load(Ordering::SeqCst), machine.mark_after("killed").as_str()), (1, "new"));
    running.kill().await;
    assert!(machine.record().contains(r#""progress": "joining""#));

    let Ending::Reboot(reason) = machine.start(&broker).end().await else { panic!("no reboot") };
    assert_eq!(reason, "the host was interrupted after its lock and before it was a member");
    assert_eq!((machine.disk_mark().as_str(), site.issuers[0].tickets), ("reset", 1));
    machine.host.reboot();
    let running = machine.start(&broker);
    site.until("a member after all", |site| site.state(machine.disk) == "member").await;
    assert_eq!(running.stop().await, Ending::Member);
}

#[tokio::test]
async fn a_broker_that_goes_away_after_the_lock_does_not_stop_a_join() {
    let mut broker = Mosquitto::start();
    let mut site = Site::start(&broker, vec![join_service()]);
    let (machine, released) = (Machine::new(6), Arc::new(Notify::new()));
    let (running, _) = machine.start_broken(&broker, Some(Arc::clone(&released)));
    let trying =
        |site: &Site| site.node(machine.disk).is_some_and(|node| node.activity.as_deref() == Some("trying in vain"));
    site.until("the join under way", trying).await;
    broker.kill();
    released.notify_one();
    while machine.disk_mark() != "initialised" {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    broker.restart();
    // What was said meanwhile is in the next birth.
    site.until("the member", |site| site.state(machine.disk) == "member").await;
    site.until("the last stage", |site| site.issuers[0].stages_of(machine.disk).contains(&Stage::Member)).await;
    assert_eq!(running.stop().await, Ending::Member);
}
