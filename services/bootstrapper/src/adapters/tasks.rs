//! Carries out what the state wants of the host. Work on the TPM goes one after another; of the other tasks there is one at a time.

use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use join_protocol::limits::ID_BYTES;
use join_protocol::message::local_unlock::LocalUnlock;
use join_protocol::secret::Secret;
use join_protocol::selection::Selection;
use join_protocol::terms::{Kind, RequestId, Variant};
use join_protocol::transcript::Hash;
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use super::files::Files;
use super::identity;
use crate::config::{Checked, Config};
use crate::event::{Done, Event, Inspection, Task, TaskError, TpmAnswer, TpmWork};
use crate::platform::{
    Activity, Attester, DiskFound, Installer, Mark, Outcome, PlatformError, Reboot, SealedKey, StateDisk,
};
use crate::record::Progress;

/// Work for the TPM that waits behind work that does not end: an attempt asks once a minute.
const TPM_WORK_MAX: usize = 8;

/// The host, to be worked on.
#[derive(Debug)]
pub struct Tasks {
    host: Arc<Host>,
    activity: Activity,
    running: JoinSet<Event>,
    tpm: JoinSet<Event>,
}

#[derive(Debug)]
struct Host {
    attester: Arc<Mutex<Box<dyn Attester>>>,
    disk: AsyncMutex<Box<dyn StateDisk>>,
    installer: AsyncMutex<Box<dyn Installer>>,
    reboot: AsyncMutex<Box<dyn Reboot>>,
    files: Files,
    config: Config,
    checked: Checked,
    root: std::path::PathBuf,
    boot: [u8; 16],
    /// Key of the certificate request of this run.
    kubelet_key: Mutex<Option<Zeroizing<String>>>,
}

/// The parts of a platform that tasks need.
#[derive(Debug)]
pub struct Parts {
    /// Its TPM.
    pub attester: Box<dyn Attester>,
    /// Its state disk.
    pub disk: Box<dyn StateDisk>,
    /// Its Kubernetes.
    pub installer: Box<dyn Installer>,
    /// Its power switch.
    pub reboot: Box<dyn Reboot>,
    /// Its root directory.
    pub root: std::path::PathBuf,
    /// Id of this boot.
    pub boot: [u8; 16],
}

impl Tasks {
    /// Tasks on this host; what installers say goes to `activity`.
    #[must_use]
    pub fn new(parts: Parts, config: Config, checked: Checked, activity: mpsc::Sender<String>) -> Self {
        let host = Host {
            attester: Arc::new(Mutex::new(parts.attester)),
            disk: AsyncMutex::new(parts.disk),
            installer: AsyncMutex::new(parts.installer),
            reboot: AsyncMutex::new(parts.reboot),
            files: Files::new(&parts.root, &config.paths),
            config,
            checked,
            root: parts.root,
            boot: parts.boot,
            kubelet_key: Mutex::new(None),
        };
        let activity = Activity::new(activity);
        Self { host: Arc::new(host), activity, running: JoinSet::new(), tpm: JoinSet::new() }
    }

    /// Begins a task in the place of the running one.
    pub fn run(&mut self, number: u64, task: Task) {
        self.cancel();
        let (host, activity) = (Arc::clone(&self.host), self.activity.clone());
        self.running.spawn(async move { Event::TaskEnded { number, result: host.run(task, activity).await } });
    }

    /// Ends the running task; a command that it started is killed.
    pub fn cancel(&mut self) {
        self.running.abort_all();
    }

    /// Asks the TPM.
    pub fn ask_tpm(&mut self, kind: Kind, request: RequestId, work: TpmWork) {
        if self.tpm.len() >= TPM_WORK_MAX {
            let error = TaskError("the TPM does not answer".to_owned());
            self.tpm.spawn(std::future::ready(Event::Tpm { kind, request, result: Err(error) }));
            return;
        }
        let attester = Arc::clone(&self.host.attester);
        self.tpm.spawn_blocking(move || {
            let mut attester = attester.lock().unwrap_or_else(PoisonError::into_inner);
            let result = match work {
                TpmWork::Activate(credential) => attester.activate_credential(&credential).map(TpmAnswer::Secret),
                TpmWork::Quote(data, selection, variant) => {
                    evidence_quote(attester.as_mut(), &data, &selection, variant).map(TpmAnswer::Quote)
                }
            };
            Event::Tpm { kind, request, result: result.map_err(TaskError::from) }
        });
    }

    /// The next result. Cancel-safe.
    ///
    /// # Errors
    /// A task panicked.
    pub async fn next(&mut self) -> anyhow::Result<Event> {
        loop {
            let ended = tokio::select! {
                Some(ended) = self.running.join_next() => ended,
                Some(ended) = self.tpm.join_next() => ended,
                else => std::future::pending().await,
            };
            match ended {
                Ok(event) => return Ok(event),
                Err(error) if error.is_cancelled() => {}
                Err(error) => return Err(anyhow::Error::new(error).context("work on the host panicked")),
            }
        }
    }
}

/// The quote of evidence: with the event log before it, where the issuer asks for that.
fn evidence_quote(
    attester: &mut dyn Attester,
    data: &Hash,
    selection: &Selection,
    variant: Variant,
) -> Outcome<Vec<u8>> {
    let quote = attester.quote(data, selection)?;
    if variant != Variant::Tpm2EventLog {
        return Ok(quote);
    }
    let log = attester.event_log();
    let size = u32::try_from(log.len()).map_err(|error| PlatformError::new("event log", error))?;
    Ok([&size.to_be_bytes()[..], &log, &quote].concat())
}

impl Host {
    async fn run(self: Arc<Self>, task: Task, activity: Activity) -> Result<Done, TaskError> {
        match task {
            Task::Inspect => return self.inspect().await.map(|found| Done::Inspected(Box::new(found))),
            Task::Prepare(found) => {
                self.disk.lock().await.prepare(&found).await?;
            }
            Task::Unlock(key) => {
                self.disk.lock().await.unlock(&key).await?;
                return Ok(Done::Unlocked(self.files.record()?));
            }
            Task::UnlockSealed => return self.unlock_sealed().await,
            Task::LockAgain => {
                let id =
                    self.files.cluster_id()?.ok_or_else(|| TaskError("the disk holds no cluster id".to_owned()))?;
                self.with_attester(move |attester| attester.lock(&id)).await?;
            }
            Task::Seal { key, id, unlock, cluster_id } => self.seal(&key, id, *unlock, &cluster_id).await?,
            Task::RemoveSealedKey => self.remove_sealed_key().await?,
            Task::Close { removes_sealed_key } => {
                self.disk.lock().await.close().await?;
                if removes_sealed_key {
                    self.remove_sealed_key().await?;
                }
            }
            Task::Save(record) => self.files.save(&record)?,
            Task::Lock { cluster_id, qualifying_data, selection } => {
                let locked = self.with_attester(move |attester| {
                    attester.lock(&cluster_id)?;
                    attester.quote(&qualifying_data, &selection)
                });
                return Ok(Done::Locked(locked.await?));
            }
            Task::SetKey(key) => self.disk.lock().await.set_key(&key).await?,
            Task::MountDirectories { is_member } => self.disk.lock().await.mount_directories(is_member).await?,
            Task::Write(membership) => {
                let key = self.kubelet_key.lock().unwrap_or_else(PoisonError::into_inner).clone();
                self.files.write_membership(&membership, key.as_ref())?;
            }
            Task::Renew(renewal) => {
                let key = self.kubelet_key.lock().unwrap_or_else(PoisonError::into_inner).clone();
                self.files.write_renewal(&renewal, key.as_ref())?;
                match renewal.local_unlock {
                    Some(unlock) => self.add_values(unlock).await?,
                    None => self.remove_sealed_key().await?,
                }
                self.installer.lock().await.renewed(activity).await;
            }
            Task::WriteAuthority(authority) => self.files.write_ssh_authority(&authority)?,
            Task::Install(components) => self.installer.lock().await.install(&components, activity).await?,
            Task::Join(plan) => self.installer.lock().await.join(&plan, activity).await?,
            Task::Init(parameters) => {
                let kubeconfig = self.installer.lock().await.init(&parameters, activity).await?;
                return Ok(Done::Kubeconfig(kubeconfig));
            }
            Task::Resume => {
                let mut installer = self.installer.lock().await;
                installer.resume(activity).await?;
                return Ok(Done::Resumed(installer.fault()));
            }
            Task::Mark(mark) => self.disk.lock().await.mark(mark).await?,
            Task::Reboot(reason) => self.reboot.lock().await.reboot(&reason).await?,
        }
        Ok(Done::Done)
    }

    async fn unlock_sealed(&self) -> Result<Done, TaskError> {
        let sealed = self.disk.lock().await.sealed_key().await?;
        let sealed = sealed.ok_or_else(|| TaskError("the disk has no second key".to_owned()))?;
        let key = self.with_attester(move |attester| attester.unseal(&sealed)).await?;
        self.disk.lock().await.unlock_sealed(&key).await?;
        Ok(Done::Unlocked(self.files.record()?))
    }

    async fn seal(
        &self,
        key: &Secret,
        id: [u8; ID_BYTES],
        unlock: LocalUnlock,
        cluster_id: &Hash,
    ) -> Result<(), TaskError> {
        let mut disk = self.disk.lock().await;
        // A value that is not admitted any more ends with the key that it was signed for.
        let is_same =
            |sealed: &SealedKey| (sealed.unlock.bank, sealed.unlock.values()) == (unlock.bank, unlock.values());
        let is_current = disk.sealed_key().await?.as_ref().is_some_and(is_same);
        if is_current && self.files.cluster_id()?.as_ref() == Some(cluster_id) {
            return Ok(());
        }
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| TaskError("the system has no randomness".to_owned()))?;
        let second = Secret::new(bytes);
        let secret = second.clone();
        let sealed = self.with_attester(move |attester| attester.seal(&secret, id, &unlock)).await?;
        self.files.save_cluster_id(cluster_id)?;
        Ok(disk.set_sealed_key(key, &second, &sealed).await?)
    }

    /// Takes over the values of a renewal, so that the host comes back with an image that the policy has got since its last ticket.
    async fn add_values(&self, unlock: LocalUnlock) -> Result<(), TaskError> {
        let mut disk = self.disk.lock().await;
        let Some(mut sealed) = disk.sealed_key().await? else { return Ok(()) };
        let before = sealed.clone();
        if !sealed.unlock.add(unlock) {
            tracing::info!(
                "the second key is sealed to other PCRs than the policy has now; the next ticket makes another one"
            );
        }
        if sealed != before {
            disk.update_sealed_key(&sealed).await?;
        }
        Ok(())
    }

    async fn remove_sealed_key(&self) -> Result<(), TaskError> {
        self.disk.lock().await.remove_sealed_key().await?;
        Ok(self.files.remove_cluster_id()?)
    }

    async fn inspect(&self) -> Result<Inspection, TaskError> {
        let locked = self.is_locked().await?;
        let keys = self.with_attester(|attester| attester.keys()).await?;
        let disk = self.look_at_disk(locked).await?;
        let is_open = matches!(disk, DiskFound::Ours { open: true, .. });
        let record = if is_open { self.files.record()? } else { None };
        let certificates = if is_open { self.files.certificates() } else { Vec::new() };
        // A member that runs keeps its name and its key.
        let member = record.as_ref().filter(|record| locked && record.progress == Progress::Member);
        let member = member.map(|record| (record.node_name.clone(), self.files.kubelet_key()));
        let asked = identity::ask(&self.config, &self.checked.addresses, &self.root, self.boot, member)?;
        *self.kubelet_key.lock().unwrap_or_else(PoisonError::into_inner) = asked.kubelet_key;
        Ok(Inspection { keys, locked, disk, record, certificates, identity: asked.identity })
    }

    /// Whether the host is locked. Nothing of Kubernetes runs on one that is not. A member whose TPM does not answer for once runs on: its disk is open, as that of no host is
    /// before its lock.
    async fn is_locked(&self) -> Result<bool, TaskError> {
        let locked = self.with_attester(|attester| attester.is_locked()).await;
        let runs = match &locked {
            Ok(locked) => *locked,
            Err(_) => {
                let disk = self.disk.lock().await.inspect().await;
                matches!(disk, Ok(DiskFound::Ours { mark: Mark::Initialised, open: true, .. }))
            }
        };
        if runs {
            return locked;
        }
        match (self.installer.lock().await.stop().await, locked) {
            (Ok(()), locked) => locked,
            (Err(stop), Ok(_)) => Err(stop.into()),
            (Err(stop), Err(tpm)) => Err(TaskError(format!("{tpm}; and {stop}"))),
        }
    }

    /// The state disk. The disk of a member is closed before the lock. If it is open, a process that was killed left it so. No key of the cluster has opened it in this process.
    async fn look_at_disk(&self, locked: bool) -> Result<DiskFound, TaskError> {
        let mut disk = self.disk.lock().await;
        let mut found = disk.inspect().await?;
        if let DiskFound::Ours { mark: Mark::Initialised, open: open @ true, .. } = &mut found
            && !locked
        {
            if let Err(error) = disk.close().await {
                tracing::warn!(%error, "the state disk is still open; it is not looked into");
            }
            *open = false;
        }
        Ok(found)
    }

    /// Off the event loop: a TPM may take seconds.
    async fn with_attester<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Attester) -> Result<T, PlatformError> + Send + 'static,
    ) -> Result<T, TaskError> {
        let attester = Arc::clone(&self.attester);
        let done = tokio::task::spawn_blocking(move || {
            let mut attester = attester.lock().unwrap_or_else(PoisonError::into_inner);
            work(attester.as_mut())
        });
        match done.await {
            Ok(result) => Ok(result?),
            Err(error) => Err(TaskError(format!("the work on the TPM ended: {error}"))),
        }
    }
}
