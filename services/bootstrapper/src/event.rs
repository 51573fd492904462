//! Everything that happens to a bootstrapper and everything that it does. Begin here.

use bootstrapper_contract::InitParameters;
use join_protocol::limits::ID_BYTES;
use join_protocol::message::grant::{Component, Membership};
use join_protocol::message::local_unlock::LocalUnlock;
use join_protocol::message::renewal::Renewal;
use join_protocol::secret::{Secret, SecretBytes};
use join_protocol::selection::Selection;
use join_protocol::terms::{Kind, RequestId, Variant};
use join_protocol::transcript::Hash;
use sparkplug::Metric;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use uuid::Uuid;

use crate::platform::{AttesterKeys, DiskFound, JoinPlan, Mark, UnlockError};
use crate::record::NodeRecord;
use crate::renewal::ValidityPeriod;

/// What is found when the host is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Keys of its TPM.
    pub keys: AttesterKeys,
    /// The lock PCR is extended.
    pub locked: bool,
    /// Its state disk.
    pub disk: DiskFound,
    /// The record on it, if it is open and there is one.
    pub record: Option<NodeRecord>,
    /// Of its certificates, if the disk is open and has any.
    pub certificates: Vec<ValidityPeriod>,
    /// What it asks to be certified.
    pub identity: Identity,
}

/// What a host asks to be certified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// Id of this boot.
    pub boot: [u8; 16],
    /// Name that it wants. Empty: the issuer names it.
    pub node_name: String,
    /// Request for the kubelet's certificate, DER; may be empty.
    pub certificate_request: Vec<u8>,
    /// SSH host key, SSH wire format; may be empty.
    pub ssh_host_key: Vec<u8>,
    /// Its names and addresses.
    pub principals: Vec<String>,
}

/// Work for the TPM before there is a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TpmWork {
    /// Activate this credential.
    Activate(Vec<u8>),
    /// Quote over this, these PCRs, in this form.
    Quote(Hash, Selection, Variant),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TpmAnswer {
    /// The secret of the credential.
    Secret(Secret),
    /// The quote.
    Quote(Vec<u8>),
}

/// Work on the host; one at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Look at everything.
    Inspect,
    /// Make an empty state disk.
    Prepare(DiskFound),
    /// Unlock the state disk, and read the record on it.
    Unlock(Secret),
    /// The same by the second key, which the TPM gives out.
    UnlockSealed,
    /// Extend the lock PCR with the cluster id that lies on the disk.
    LockAgain,
    /// Give the state disk a second key, sealed to the TPM, unless it has that already.
    Seal {
        /// Key of the disk.
        key: Secret,
        /// Names the second.
        id: [u8; ID_BYTES],
        /// What the second is sealed to.
        unlock: Box<LocalUnlock>,
        /// What the lock PCR is extended with when no issuer answers.
        cluster_id: Hash,
    },
    /// Take the second key away.
    RemoveSealedKey,
    /// Close the state disk of a host that is not locked.
    Close {
        /// Take the second key away, too.
        removes_sealed_key: bool,
    },
    /// Write the record.
    Save(NodeRecord),
    /// Extend the lock PCR, then quote.
    Lock {
        /// With this.
        cluster_id: Hash,
        /// Over this.
        qualifying_data: Hash,
        /// These PCRs.
        selection: Selection,
    },
    /// Give the state disk its key.
    SetKey(Secret),
    /// Make the directories of Kubernetes lie on the state disk.
    MountDirectories {
        /// The disk holds them already.
        is_member: bool,
    },
    /// Write what a ticket brought.
    Write(Box<Membership>),
    /// Put renewed certificates in place, and make the programs that use them read them.
    Renew(Box<Renewal>),
    /// Write the SSH authority of an init.
    WriteAuthority(String),
    /// Install components.
    Install(Vec<Component>),
    /// Become a member.
    Join(Box<JoinPlan>),
    /// Become the first member.
    Init(Box<InitParameters>),
    /// Start what makes a member of a host that was one before.
    Resume,
    /// Write the token of the disk.
    Mark(Mark),
    /// Reboot because of this.
    Reboot(String),
}

/// What came of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// It is done.
    Done,
    /// Of [`Task::Inspect`].
    Inspected(Box<Inspection>),
    /// Of [`Task::Unlock`] and [`Task::UnlockSealed`].
    Unlocked(Option<NodeRecord>),
    /// Of [`Task::Resume`]: why Kubernetes does not run yet.
    Resumed(Option<String>),
    /// Of [`Task::Lock`]: the second quote.
    Locked(Vec<u8>),
    /// Of [`Task::Init`]: the administrator's kubeconfig.
    Kubeconfig(SecretBytes),
}

/// Why a task failed. For people; holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TaskError(pub String);

impl From<UnlockError> for TaskError {
    fn from(error: UnlockError) -> Self {
        Self(error.to_string())
    }
}

impl From<crate::platform::PlatformError> for TaskError {
    fn from(error: crate::platform::PlatformError) -> Self {
        Self(error.0)
    }
}

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// From the own Edge Node.
    Node(NodeEvent),
    /// Answer to [`Effect::Tpm`].
    Tpm {
        /// Which machine asked.
        kind: Kind,
        /// For which attempt.
        request: RequestId,
        /// What came of it.
        result: Result<TpmAnswer, TaskError>,
    },
    /// Answer to [`Effect::Run`].
    TaskEnded {
        /// Of which task.
        number: u64,
        /// What came of it.
        result: Result<Done, TaskError>,
    },
    /// The running task says what it does.
    Activity(String),
    /// A deadline may have passed.
    DeadlineReached,
    /// The process is asked to end.
    Stop,
}

/// How a bootstrapper ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The host is a member.
    Member,
    /// It was asked to end before the host was locked.
    Stopped,
    /// A reboot is asked for, because of this.
    Reboot(String),
    /// The host cannot be joined as it is; the text says why.
    Blocked(String),
}

/// What is done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Start the Edge Node of this disk with these metrics. Once, before every [`Effect::Node`].
    Birth {
        /// UUID of the state disk.
        disk: Uuid,
        /// Its metrics.
        metrics: Vec<Metric>,
    },
    /// Give this to the Edge Node.
    Node(NodeUpdate),
    /// Ask the TPM.
    Tpm {
        /// Which machine asks.
        kind: Kind,
        /// For which attempt.
        request: RequestId,
        /// What.
        work: TpmWork,
    },
    /// Do this; the running task, if there is one, is over.
    Run {
        /// Number of the task.
        number: u64,
        /// What.
        task: Task,
    },
    /// The running task is over, whatever it still does.
    Cancel,
    /// Report this progress to the supervisor.
    Status(String),
    /// End.
    End(Ending),
}
