//! The closed lists of what can happen from outside: what people do, what breaks.

use sparkplug::replication::Point;
use uuid::Uuid;

use crate::model::copies::Loss;
use crate::model::enrolment::Applicant;
use crate::model::ids::{ClusterId, ProcessId};

/// One thing from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// Whatever the seed chooses of what follows.
    Something,
    /// Someone makes a cluster.
    CreateCluster,
    /// Someone deletes a cluster.
    DeleteCluster,
    /// Someone makes a deleted cluster again, perhaps before its tear-down has ended.
    RecreateCluster,
    /// The machines of a cluster start: edge sync and edge monitor.
    Bootstrap(Uuid),
    /// The machines of a cluster are switched off for ever.
    Decommission(ClusterId),
    /// Someone makes a deployment.
    CreateDeployment,
    /// Someone changes one.
    ChangeDeployment,
    /// Someone moves one to another cluster.
    MoveDeployment,
    /// Someone deletes one.
    DeleteDeployment,
    /// Someone changes a chart template that many deployments use.
    EditTemplate,
    /// Someone changes or deletes the configuration of an agent.
    ConfigureAgent,
    /// Someone writes what no schema allows.
    WriteNonsense,
    /// A host of a cluster comes, goes or changes.
    HostChanges,
    /// Someone deletes an object in a cluster by hand.
    DeleteByHand,
    /// Someone seals a secret again.
    RotateSecret,
    /// A service is killed.
    Crash,
    /// A service loses its power: the broker is not informed.
    PowerCut,
    /// Sockets of a process break.
    Cut,
    /// A process is cut off from the network for some time.
    Partition,
    /// All processes of a cluster are.
    PartitionSite,
    /// The end of a partition.
    Heal(ProcessId),
    /// The broker crashes.
    CrashBroker,
    /// It is back.
    BrokerBack,
    /// Messages are lost, doubled, reordered, delayed for some time.
    Storm,
    /// The end of that.
    Calm,
    /// The wall clock of the world jumps.
    ClockJump,
    /// An API server does not answer for some time.
    KubernetesOutage,
    /// Watches of a cluster list again.
    Relist(ClusterId),
    /// The disk of the cluster manager is full for some time.
    GitFull,
    /// Someone publishes garbage.
    Garbage,
    /// An operator signs the attestation policy of a cluster again.
    SignPolicy,
    /// People ask over git.
    Ask,
    /// An operator writes a key of a Secret, or deletes one.
    PutSecret,
    /// A user pushes.
    Push,
    /// A cluster asks the git server for its repository.
    Poll,
    /// Something breaks.
    Fault(Fault),
    /// Something becomes of ConfigDB's store.
    Recovery(Recovery),
    /// Something happens around clusters that enrol.
    Enrolling(Enrolling),
    /// Something happens around hosts that join.
    Joining(Joining),
    /// Something happens around Kerberos keys.
    Keying(Keying),
}

/// One thing that breaks, or that someone breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// ConfigDB's disk is full, broken, or writes something without saying so.
    Disk,
    /// It is whole again.
    DiskIsWell,
    /// For some time the cluster manager's disk says of work on repositories that it failed, although it is done.
    GitTorn,
    /// The cluster manager's disk becomes what it was some time ago, under a new life of the manager.
    GitRollsBack,
    /// The git server's disk is full for some time.
    CopiesFull,
    /// For some time the git server's disk says of work on copies that it failed, although it is done.
    CopiesTorn,
    /// The git server's disk loses something, under a new life of the git server.
    CopiesLost(Loss),
    /// The cluster manager or the git server is killed.
    GitCrash,
    /// The file with the bdSeq of a service becomes what it was some sessions ago, and the service starts again.
    BdSeqRollsBack,
    /// The database of a cluster's API server has no room for some time.
    ClusterFull,
    /// A process is frozen, perhaps for longer than its keep-alive.
    Pause,
    /// It continues.
    Resume(ProcessId),
    /// Someone takes the client ids of a process again and again.
    Steal,
    /// Once more.
    TakeOver(ProcessId),
    /// A second instance of a service runs beside the first for some time, a second ConfigDB with a store of its own.
    SecondInstance,
    /// A member of a cluster's group floods it with data of nodes that no one knows, and with forged births.
    Flood,
    /// The next part of that: in which group, and how many messages are left.
    FloodsOn(String, u32),
}

/// One thing that becomes of a store, or that is decided about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovery {
    /// ConfigDB's store is restored: any state that it ever had.
    Restore,
    /// The last commits are gone after a loss of power: the disk had not written them.
    RollBack,
    /// An empty store takes the place of ConfigDB's.
    Replace,
    /// An operator decides about a cluster that does not follow the store.
    Decide(ClusterId),
    /// An operator decides for every cluster that is held.
    Review,
    /// What the decision needs is written: it is given.
    Release {
        /// The cluster.
        site: ClusterId,
        /// The store that is decided for.
        store: Uuid,
        /// Requests that come first.
        after: Vec<String>,
        /// What runs at the edge was written back; otherwise it is deleted.
        adopts: bool,
        /// Deployments that the store had or got.
        kept: Vec<Uuid>,
        /// State of the store that was compared.
        seen: Option<Point>,
        /// Digest of the index that the edge had accepted when it was compared.
        accepted: Option<String>,
    },
}

/// One thing that happens around enrolment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enrolling {
    /// Someone begins to ask.
    Begin(ClusterId, Applicant),
    /// The thief gives up.
    Leave(ClusterId),
    /// An operator writes a token again, because what was written before did not arrive or was lost with a store.
    Again(ClusterId),
}

/// One thing that happens around joining.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joining {
    /// An operator signs the policy of a cluster again, perhaps with another worker revoked.
    Sign(ClusterId),
    /// A machine starts for the first time.
    PowerOn(ClusterId, u64),
    /// Some machine is reset.
    Reset,
    /// This machine is reset.
    ResetOne(ProcessId),
}

/// One thing that people do around keys, or that breaks there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keying {
    /// Someone makes a resource.
    Create,
    /// Someone deletes one.
    Delete,
    /// Someone wants another key.
    Force,
    /// Someone wants the key in another Secret.
    Move,
    /// Someone lets principals get no tickets, or again.
    Disable,
    /// Someone changes the key of a principal in the KDC by hand.
    ChangeByHand,
    /// Someone deletes a Secret.
    LoseSecret,
    /// Someone writes something else into a Secret.
    SpoilSecret,
    /// The KDC is restored from its last backup, and a backup is made.
    RestoreKdc,
    /// The KDC does not answer for some time, or answers what says nothing.
    KdcAway,
}
