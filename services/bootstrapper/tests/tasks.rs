//! A look around, with the tasks of a host.

use std::path::Path;
use std::sync::{Arc, Mutex};

use bootstrapper::adapters::simulated::SimulatedHost;
use bootstrapper::adapters::tasks::{Parts, Tasks};
use bootstrapper::config::{ClusterConfig, Config, TrustConfig};
use bootstrapper::event::{Done, Event, Inspection, Task, TaskError};
use bootstrapper::platform::{
    Activity, Attester, AttesterKeys, DiskFound, Installer, JoinPlan, Mark, Outcome, Platform, PlatformError,
    StateDisk as _,
};
use bootstrapper_contract::InitParameters;
use futures::future::BoxFuture;
use join_protocol::message::grant::Component;
use join_protocol::secret::{Secret, SecretBytes};
use join_protocol::selection::Selection;
use join_protocol::transcript::Hash;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::support::issuer::{CLUSTER, anchor};

/// A TPM that cannot be read.
#[derive(Debug)]
struct Silent;

impl Attester for Silent {
    fn keys(&mut self) -> Outcome<AttesterKeys> {
        Err(PlatformError("the TPM is silent".to_owned()))
    }

    fn is_locked(&mut self) -> Outcome<bool> {
        Err(PlatformError("the TPM is silent".to_owned()))
    }

    fn activate_credential(&mut self, _: &[u8]) -> Outcome<Secret> {
        unreachable!("it is only looked around")
    }

    fn quote(&mut self, _: &Hash, _: &Selection) -> Outcome<Vec<u8>> {
        unreachable!("it is only looked around")
    }

    fn lock(&mut self, _: &Hash) -> Outcome<()> {
        unreachable!("it is only looked around")
    }
}

/// Counts how often Kubernetes was stopped.
#[derive(Debug, Clone, Default)]
struct Stops(Arc<Mutex<u32>>);

impl Installer for Stops {
    fn install<'a>(&'a mut self, _: &'a [Component], _: Activity) -> BoxFuture<'a, Outcome<()>> {
        unreachable!("it is only looked around")
    }

    fn join<'a>(&'a mut self, _: &'a JoinPlan, _: Activity) -> BoxFuture<'a, Outcome<()>> {
        unreachable!("it is only looked around")
    }

    fn init<'a>(&'a mut self, _: &'a InitParameters, _: Activity) -> BoxFuture<'a, Outcome<SecretBytes>> {
        unreachable!("it is only looked around")
    }

    fn stop(&mut self) -> BoxFuture<'_, Outcome<()>> {
        *self.0.lock().unwrap() += 1;
        Box::pin(std::future::ready(Ok(())))
    }

    fn resume(&mut self, _: Activity) -> BoxFuture<'_, Outcome<()>> {
        unreachable!("it is only looked around")
    }
}

async fn inspect(root: &Path, platform: Platform) -> Result<Inspection, TaskError> {
    let config = Config {
        state_dir: root.join("bdseq").into(),
        node_name: Some("edge-1".to_owned()),
        cluster: ClusterConfig { name: "Cell".to_owned(), uuid: Some(CLUSTER) },
        trust: TrustConfig { root: Some(hex::encode(anchor().root)), ..TrustConfig::default() },
        ..Config::default()
    };
    let checked = config.validate().unwrap();
    let Platform { attester, disk, installer, reboot, root, boot } = platform;
    let parts = Parts { attester, disk, installer, reboot, root, boot };
    let mut tasks = Tasks::new(parts, config, checked, mpsc::channel(1).0);
    tasks.run(1, Task::Inspect);
    match tasks.next().await.unwrap() {
        Event::TaskEnded { result: Ok(Done::Inspected(inspection)), .. } => Ok(*inspection),
        Event::TaskEnded { result: Err(error), .. } => Err(error),
        other => panic!("{other:?}"),
    }
}

/// A member's disk, open or not.
async fn member(root: &Path, open: bool) -> SimulatedHost {
    let mut host = SimulatedHost::new(root, Uuid::from_u128(7), Secret::new([9; 32])).unwrap();
    host.prepare(&DiskFound::Blank).await.unwrap();
    host.mark(Mark::Initialised).await.unwrap();
    if !open {
        host.close().await.unwrap();
    }
    host
}

#[tokio::test]
async fn where_the_tpm_cannot_be_read_nothing_of_kubernetes_runs_but_on_a_member_whose_disk_is_open() {
    for (open, wanted) in [(false, 1), (true, 0)] {
        let root = tempfile::tempdir().unwrap();
        let (host, stops) = (member(root.path(), open).await, Stops::default());
        let mut platform = host.platform();
        (platform.attester, platform.installer) = (Box::new(Silent), Box::new(stops.clone()));
        let error = inspect(root.path(), platform).await.unwrap_err();
        assert_eq!((error.0.as_str(), *stops.0.lock().unwrap()), ("the TPM is silent", wanted), "open: {open}");
    }
}

/// A process that was killed between unlock and lock leaves a disk open of which no one knows whether it is the host's.
#[tokio::test]
async fn the_disk_of_a_member_that_is_not_locked_is_closed_and_one_of_a_member_that_runs_stays_open() {
    for locked in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let mut host = member(root.path(), true).await;
        // Not a record, and never read before the lock.
        std::fs::create_dir_all(root.path().join("run/state/sparkfleet/node_state.json")).unwrap();
        if locked {
            host.lock(&[1; 32]).unwrap();
            std::fs::remove_dir(root.path().join("run/state/sparkfleet/node_state.json")).unwrap();
        }
        let inspection = inspect(root.path(), host.platform()).await.unwrap();
        let DiskFound::Ours { open, .. } = inspection.disk else { panic!("{inspection:?}") };
        let DiskFound::Ours { open: is_open, .. } = host.inspect().await.unwrap() else { panic!("it is ours") };
        assert_eq!((open, is_open), (locked, locked));
    }
}
