//! What a host has: the boundary to its TPM, its state disk, its Kubernetes and its power switch. Each is an object of a trait, so that a simulation puts its own in.
//!
//! Every method may be repeated after a crash at any moment: it must then end in the same state.

use std::fmt;
use std::path::PathBuf;

use bootstrapper_contract::InitParameters;
use futures::future::BoxFuture;
use join_protocol::limits::ID_BYTES;
use join_protocol::message::grant::{Component, Membership};
use join_protocol::message::local_unlock::LocalUnlock;
use join_protocol::secret::{Secret, SecretBytes};
use join_protocol::selection::Selection;
use join_protocol::terms::{Role, Variant};
use join_protocol::transcript::Hash;
use tokio::sync::mpsc;
use uuid::Uuid;

/// A host.
#[derive(Debug)]
pub struct Platform {
    /// Its TPM.
    pub attester: Box<dyn Attester>,
    /// Its state disk.
    pub disk: Box<dyn StateDisk>,
    /// Its Kubernetes.
    pub installer: Box<dyn Installer>,
    /// Its power switch.
    pub reboot: Box<dyn Reboot>,
    /// What every path of the configuration begins at: `/` on a real host.
    pub root: PathBuf,
    /// Id of this boot: another one after each reboot.
    pub boot: [u8; 16],
}

/// Something of the host failed. For people; holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlatformError(pub String);

impl PlatformError {
    /// What was done, and why it failed.
    pub fn new(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}

/// What a method of a [`Platform`] gives.
pub type Outcome<T> = Result<T, PlatformError>;

/// Keys of the host's TPM, in the form of the variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttesterKeys {
    /// The form.
    pub variant: Variant,
    /// Public attestation key.
    pub attestation: Vec<u8>,
    /// Public endorsement key.
    pub endorsement: Vec<u8>,
    /// Certificates of the endorsement key, DER, its own first; may be none.
    pub certificates: Vec<Vec<u8>>,
    /// PCR that it locks.
    pub lock_pcr: u8,
    /// It can seal a second key of the disk.
    pub seals: bool,
}

/// A second key of a state disk as only the TPM that sealed it can give it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedKey {
    /// Names it, among the second keys that the disk has had.
    pub id: [u8; ID_BYTES],
    /// Values that PCRs must have, and their signatures.
    pub unlock: LocalUnlock,
    /// Public part, `TPMT_PUBLIC`; its policy is that of the key which signs the values.
    pub public: Vec<u8>,
    /// Private part, encrypted by the TPM.
    pub private: Vec<u8>,
}

/// A TPM. Its methods may block for as long as a TPM takes; they are called one after another, off the event loop.
pub trait Attester: Send + fmt::Debug {
    /// Makes or finds the keys.
    ///
    /// # Errors
    /// There is no TPM, or it refuses.
    fn keys(&mut self) -> Outcome<AttesterKeys>;

    /// True if the lock PCR has another value than before any lock of this boot.
    ///
    /// # Errors
    /// The PCR cannot be read. That is neither true nor false.
    fn is_locked(&mut self) -> Outcome<bool>;

    /// The secret of a credential, if it was made for this TPM and its attestation key.
    ///
    /// # Errors
    /// It was not, or the TPM is busy.
    fn activate_credential(&mut self, credential: &[u8]) -> Outcome<Secret>;

    /// A quote over these PCRs, in the form of the variant.
    ///
    /// # Errors
    /// The TPM refuses.
    fn quote(&mut self, qualifying_data: &Hash, selection: &Selection) -> Outcome<Vec<u8>>;

    /// The event log of firmware, of at most [`join_protocol::limits::EVENT_LOG_BYTES_MAX`]; empty if there is none.
    fn event_log(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Seals a secret under that id: the TPM gives it out while each of these PCRs has a value that is signed.
    ///
    /// # Errors
    /// The TPM refuses, or cannot seal; or the lock PCR is not among them with its value before a lock.
    fn seal(&mut self, _secret: &Secret, _id: [u8; ID_BYTES], _unlock: &LocalUnlock) -> Outcome<SealedKey> {
        Err(PlatformError("the TPM seals nothing".to_owned()))
    }

    /// The secret of a sealed key.
    ///
    /// # Errors
    /// Another TPM sealed it, a PCR has no value that is signed, or the host is locked.
    fn unseal(&mut self, _sealed: &SealedKey) -> Outcome<Secret> {
        Err(PlatformError("the TPM seals nothing".to_owned()))
    }

    /// Extends the lock PCR with the cluster id (`TPM2_PCR_Event`). There is no way back but a reboot.
    ///
    /// # Errors
    /// The TPM refuses. The PCR may have been extended.
    fn lock(&mut self, cluster_id: &Hash) -> Outcome<()>;
}

/// What the token in the header of a state disk says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Nothing on it is needed: it was made for a host that is not a member yet.
    New,
    /// It belongs to a member, and only the cluster has its key.
    Initialised,
    /// A host failed after its lock: what is on it is of no use.
    Reset,
}

/// What a look at a state disk shows. What cannot be understood is an error, never one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFound {
    /// Not a byte is written on it.
    Blank,
    /// One of ours.
    Ours {
        /// Its UUID, by which the host speaks.
        uuid: Uuid,
        /// What its token says.
        mark: Mark,
        /// It is open, and its files can be read and written.
        open: bool,
        /// Drawn when it was made, so that its key is another one than before; None: it was made without.
        generation: Option<Uuid>,
        /// Id of its second key, which is sealed to a TPM.
        second_key: Option<[u8; ID_BYTES]>,
    },
}

/// Why a disk was not unlocked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnlockError {
    /// The key is not that of the disk.
    #[error("the key does not open the state disk")]
    WrongKey,
    /// Something else.
    #[error(transparent)]
    Failed(#[from] PlatformError),
}

/// The state disk.
pub trait StateDisk: Send + fmt::Debug {
    /// Looks at the disk without changing it.
    ///
    /// # Errors
    /// What is on it cannot be read, breaks a rule, or belongs to another program. The caller must not take that for an empty disk.
    fn inspect(&mut self) -> BoxFuture<'_, Outcome<DiskFound>>;

    /// Makes an empty file system under a temporary passphrase, and opens it. Only for what [`Self::inspect`] called blank, new or to be reset; a disk keeps its UUID.
    ///
    /// # Errors
    /// It did not come about; the disk may then be empty.
    fn prepare<'a>(&'a mut self, found: &'a DiskFound) -> BoxFuture<'a, Outcome<Uuid>>;

    /// Opens the disk of a member with its key. What is open is closed before: it may be another disk, which this key does not open.
    ///
    /// # Errors
    /// [`UnlockError`]; the disk is then closed.
    fn unlock<'a>(&'a mut self, key: &'a Secret) -> BoxFuture<'a, Result<(), UnlockError>>;

    /// Unmounts and closes the disk of a host that is not locked. One that is closed stays so.
    ///
    /// # Errors
    /// It is still open.
    fn close(&mut self) -> BoxFuture<'_, Outcome<()>>;

    /// Replaces the temporary passphrase by this key. If the disk has this key already, nothing is done.
    ///
    /// # Errors
    /// It did not come about.
    fn set_key<'a>(&'a mut self, key: &'a Secret) -> BoxFuture<'a, Outcome<()>>;

    /// The second key, if it has one.
    ///
    /// # Errors
    /// The header cannot be read.
    fn sealed_key(&mut self) -> BoxFuture<'_, Outcome<Option<SealedKey>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The same with its second key, unsealed.
    ///
    /// # Errors
    /// [`UnlockError`]; the disk is then closed.
    fn unlock_sealed<'a>(&'a mut self, _key: &'a Secret) -> BoxFuture<'a, Result<(), UnlockError>> {
        Box::pin(std::future::ready(Err(UnlockError::WrongKey)))
    }

    /// Gives the disk, which `key` opens, a second key, in place of the one that it has.
    ///
    /// # Errors
    /// It did not come about; the disk may then have no second key.
    fn set_sealed_key<'a>(
        &'a mut self,
        _key: &'a Secret,
        _second: &'a Secret,
        _sealed: &'a SealedKey,
    ) -> BoxFuture<'a, Outcome<()>> {
        Box::pin(std::future::ready(Err(PlatformError("the disk takes no second key".to_owned()))))
    }

    /// Writes what changed about the second key that the disk has: values of PCRs.
    ///
    /// # Errors
    /// It did not come about; what was there before is there.
    fn update_sealed_key<'a>(&'a mut self, _sealed: &'a SealedKey) -> BoxFuture<'a, Outcome<()>> {
        Box::pin(std::future::ready(Err(PlatformError("the disk takes no second key".to_owned()))))
    }

    /// Takes the second key away, if it has one.
    ///
    /// # Errors
    /// It is still there.
    fn remove_sealed_key(&mut self) -> BoxFuture<'_, Outcome<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Makes the directories of the host in which Kubernetes keeps its state lie on this disk, which is open. `is_member`: it holds them already. What lies there is not mounted again.
    ///
    /// # Errors
    /// One does not lie on the disk; nothing may be started that writes to it.
    fn mount_directories(&mut self, is_member: bool) -> BoxFuture<'_, Outcome<()>>;

    /// Writes the token.
    ///
    /// # Errors
    /// It is not written.
    fn mark(&mut self, mark: Mark) -> BoxFuture<'_, Outcome<()>>;
}

/// What an installer says while it works, in words for people and without secrets. Without a listener it is lost.
#[derive(Debug, Clone)]
pub struct Activity(mpsc::Sender<String>);

impl Activity {
    /// `sender` is given what is said; what does not fit is dropped.
    #[must_use]
    pub const fn new(sender: mpsc::Sender<String>) -> Self {
        Self(sender)
    }

    /// Says something.
    pub fn say(&self, text: impl Into<String>) {
        let text = text.into();
        tracing::info!(activity = text, "installing");
        // A reader that is slow wants the latest anyway, and gets the next.
        let _ = self.0.try_send(text);
    }
}

/// Becoming a member by a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinPlan {
    /// What to be.
    pub role: Role,
    /// How.
    pub membership: Membership,
}

/// Kubernetes of the host: a distribution that is installed or can be.
pub trait Installer: Send + fmt::Debug {
    /// Puts components in place, each only if its hash is right.
    ///
    /// # Errors
    /// The first that could not be installed.
    fn install<'a>(&'a mut self, components: &'a [Component], activity: Activity) -> BoxFuture<'a, Outcome<()>>;

    /// Makes the host a member. The files of the ticket are in place.
    ///
    /// # Errors
    /// The host is not a member; the text holds no secret.
    fn join<'a>(&'a mut self, plan: &'a JoinPlan, activity: Activity) -> BoxFuture<'a, Outcome<()>>;

    /// Makes the host the first member, and gives the administrator's kubeconfig.
    ///
    /// # Errors
    /// The host is not a member; the text holds no secret.
    fn init<'a>(
        &'a mut self,
        parameters: &'a InitParameters,
        activity: Activity,
    ) -> BoxFuture<'a, Outcome<SecretBytes>>;

    /// Before the host is attested: ends what is running of Kubernetes, and keeps it from being started at boot.
    ///
    /// # Errors
    /// It still runs.
    fn stop(&mut self) -> BoxFuture<'_, Outcome<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Starts what makes a member of a host that was one before. The directories on the state disk are mounted.
    ///
    /// # Errors
    /// It was not started, or there is nothing to start.
    fn resume(&mut self, activity: Activity) -> BoxFuture<'_, Outcome<()>>;

    /// Why what [`Self::resume`] has started does not run yet; None: it runs. It continues to try by itself.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Certificates were renewed: makes the programs read them that do not watch their files. Best effort: a program that does not read them at once does at its next start.
    fn renewed(&mut self, activity: Activity) -> BoxFuture<'_, ()> {
        activity.say("certificates are renewed");
        Box::pin(std::future::ready(()))
    }
}

/// The power switch.
pub trait Reboot: Send + fmt::Debug {
    /// Asks for a reboot because of `reason`; returns when it is asked for.
    ///
    /// # Errors
    /// No reboot could be asked for.
    fn reboot<'a>(&'a mut self, reason: &'a str) -> BoxFuture<'a, Outcome<()>>;
}
