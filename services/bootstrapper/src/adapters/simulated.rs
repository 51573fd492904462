//! A host that is not there: a software attester that proves nothing, a directory for a state disk, and no Kubernetes. For `sparkfleet up`, demonstrations and tests.
//!
//! Many fit into one process. What a real host keeps over a reboot is kept in the directory; the rest is gone with [`SimulatedHost::reboot`] or with the process.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bootstrapper_contract::InitParameters;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use join_protocol::message::grant::Component;
use join_protocol::secret::{Secret, SecretBytes};
use join_protocol::selection::Selection;
use join_protocol::simulated::{LOCK_PCR, SimulatedTpm};
use join_protocol::terms::Variant;
use join_protocol::transcript::{Hash, hash};
use serde::{Deserialize, Serialize};
use service_runtime::atomic_file::OWNER_ONLY;
use uuid::Uuid;

use super::files;
use crate::platform::{
    Activity, Attester, AttesterKeys, DiskFound, Installer, JoinPlan, Mark, Outcome, Platform, PlatformError, Reboot,
    StateDisk, UnlockError,
};

/// Where the simulated disk is mounted, below the root directory: the default of the configuration.
const STATE: &str = "run/state";

/// A simulated host.
#[derive(Debug, Clone)]
pub struct SimulatedHost {
    inside: Arc<Mutex<Inside>>,
    root: PathBuf,
}

#[derive(Debug)]
struct Inside {
    tpm: SimulatedTpm,
    locked: bool,
    disk_open: bool,
    boot: [u8; 16],
    boots: u64,
    seed: Secret,
    boot_chain: Vec<(u32, Hash)>,
    reboots_asked: Vec<String>,
    uuid: Uuid,
}

impl Inside {
    fn measure_boot(&mut self) {
        for (pcr, digest) in &self.boot_chain {
            self.tpm.extend(*pcr, digest);
        }
    }
}

/// The simulated disk as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    uuid: Uuid,
    mark: String,
    /// Hash of its key, hexadecimal; None: the temporary one.
    key: Option<String>,
    /// Drawn when it was made.
    #[serde(default)]
    generation: Option<Uuid>,
}

impl SimulatedHost {
    /// The host with this directory and state disk. The same `seed` is the same TPM; a program that has the seed is the TPM.
    ///
    /// # Errors
    /// The seed makes no key, which no seed does.
    pub fn new(root: &Path, disk: Uuid, seed: Secret) -> Outcome<Self> {
        let tpm = SimulatedTpm::new(&seed).ok_or_else(|| PlatformError("the seed makes no key".to_owned()))?;
        let inside = Inside {
            tpm,
            locked: false,
            disk_open: false,
            boot: boot_id(&seed, Uuid::new_v4().as_bytes()),
            boots: 0,
            seed,
            boot_chain: Vec::new(),
            reboots_asked: Vec::new(),
            uuid: disk,
        };
        Ok(Self { inside: Arc::new(Mutex::new(inside)), root: root.to_owned() })
    }

    /// What the host has, for one run of the bootstrapper. Replace what is to be another.
    #[must_use]
    pub fn platform(&self) -> Platform {
        Platform {
            attester: Box::new(self.clone()),
            disk: Box::new(self.clone()),
            installer: Box::new(SimulatedInstaller),
            reboot: Box::new(self.clone()),
            root: self.root.clone(),
            boot: self.inside().boot,
        }
    }

    /// What the host measures whenever it boots: PCRs and what they are extended with. The host boots with it at once; without, every PCR is zero.
    pub fn set_boot_chain(&self, measurements: Vec<(u32, Hash)>) {
        self.inside().boot_chain = measurements;
        self.reboot();
    }

    /// Switches the host off and on: PCRs hold the boot chain and nothing else, the disk waits for its key.
    pub fn reboot(&self) {
        let mut inside = self.inside();
        inside.tpm.reboot();
        inside.measure_boot();
        (inside.locked, inside.disk_open) = (false, false);
        inside.boots += 1;
        let number = inside.boots.to_be_bytes();
        inside.boot = boot_id(&inside.seed, &[inside.boot.as_slice(), &number].concat());
    }

    /// Why reboots were asked for, the first first.
    #[must_use]
    pub fn reboots_asked(&self) -> Vec<String> {
        self.inside().reboots_asked.clone()
    }

    /// True while its PCR is extended.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.inside().locked
    }

    /// Public endorsement key, as an enrolment needs it.
    #[must_use]
    pub fn endorsement_key(&self) -> Vec<u8> {
        self.inside().tpm.endorsement_key()
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // A thread that panicked while it held the lock left a simulation that is still consistent: each change is one assignment.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn header(&self) -> Outcome<Option<Header>> {
        let path = self.root.join("disk.json");
        match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(PlatformError::new(path.display(), error)),
            Ok(bytes) => {
                let header = serde_json::from_slice(&bytes);
                header.map(Some).map_err(|error| PlatformError::new(path.display(), error))
            }
        }
    }

    fn existing_header(&self) -> Outcome<Header> {
        self.header()?.ok_or_else(|| PlatformError("the simulated disk is blank".to_owned()))
    }

    fn write_header(&self, header: &Header) -> Outcome<()> {
        let bytes = serde_json::to_vec(header).map_err(|error| PlatformError::new("disk.json", error))?;
        files::write(&self.root.join("disk.json"), &bytes, OWNER_ONLY)
    }
}

fn boot_id(seed: &Secret, context: &[u8]) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&seed.derive("simulated boot", context).expose()[..16]);
    id
}

fn key_hash(key: &Secret) -> String {
    hex::encode(hash("simulated disk", &[key.expose()]))
}

impl Attester for SimulatedHost {
    fn keys(&mut self) -> Outcome<AttesterKeys> {
        let inside = self.inside();
        Ok(AttesterKeys {
            variant: Variant::Simulated,
            attestation: inside.tpm.attestation_key(),
            endorsement: inside.tpm.endorsement_key(),
            certificates: Vec::new(),
            lock_pcr: LOCK_PCR as u8,
            seals: false,
        })
    }

    fn is_locked(&mut self) -> Outcome<bool> {
        Ok(self.inside().locked)
    }

    fn activate_credential(&mut self, credential: &[u8]) -> Outcome<Secret> {
        let secret = self.inside().tpm.activate_credential(credential);
        secret.ok_or_else(|| PlatformError("the credential is for another TPM".to_owned()))
    }

    fn quote(&mut self, qualifying_data: &Hash, selection: &Selection) -> Outcome<Vec<u8>> {
        Ok(self.inside().tpm.quote_of(qualifying_data, selection))
    }

    fn lock(&mut self, cluster_id: &Hash) -> Outcome<()> {
        let mut inside = self.inside();
        inside.tpm.lock(cluster_id);
        inside.locked = true;
        Ok(())
    }
}

fn mark_text(mark: Mark) -> String {
    match mark {
        Mark::New => "new",
        Mark::Initialised => "initialised",
        Mark::Reset => "reset",
    }
    .to_owned()
}

impl StateDisk for SimulatedHost {
    fn inspect(&mut self) -> BoxFuture<'_, Outcome<DiskFound>> {
        let found = || {
            let Some(header) = self.header()? else { return Ok(DiskFound::Blank) };
            let mark =
                [Mark::New, Mark::Initialised, Mark::Reset].into_iter().find(|mark| mark_text(*mark) == header.mark);
            let mark = mark.ok_or_else(|| PlatformError(format!("disk.json: unknown mark {:?}", header.mark)))?;
            let Header { uuid, generation, .. } = header;
            Ok(DiskFound::Ours { uuid, mark, open: self.inside().disk_open, generation, second_key: None })
        };
        std::future::ready(found()).boxed()
    }

    fn prepare<'a>(&'a mut self, _: &'a DiskFound) -> BoxFuture<'a, Outcome<Uuid>> {
        let prepare = || {
            let uuid = self.inside().uuid;
            let state = self.root.join(STATE);
            if state.exists() {
                fs::remove_dir_all(&state).map_err(|error| PlatformError::new(state.display(), error))?;
            }
            let generation = Some(Uuid::new_v4());
            self.write_header(&Header { uuid, mark: mark_text(Mark::New), key: None, generation })?;
            self.inside().disk_open = true;
            Ok(uuid)
        };
        std::future::ready(prepare()).boxed()
    }

    fn unlock<'a>(&'a mut self, key: &'a Secret) -> BoxFuture<'a, Result<(), UnlockError>> {
        let unlock = || {
            if self.existing_header()?.key != Some(key_hash(key)) {
                return Err(UnlockError::WrongKey);
            }
            self.inside().disk_open = true;
            Ok(())
        };
        std::future::ready(unlock()).boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, Outcome<()>> {
        self.inside().disk_open = false;
        std::future::ready(Ok(())).boxed()
    }

    fn set_key<'a>(&'a mut self, key: &'a Secret) -> BoxFuture<'a, Outcome<()>> {
        let set = || self.write_header(&Header { key: Some(key_hash(key)), ..self.existing_header()? });
        std::future::ready(set()).boxed()
    }

    fn mount_directories(&mut self, _: bool) -> BoxFuture<'_, Outcome<()>> {
        std::future::ready(Ok(())).boxed()
    }

    fn mark(&mut self, mark: Mark) -> BoxFuture<'_, Outcome<()>> {
        let write = || self.write_header(&Header { mark: mark_text(mark), ..self.existing_header()? });
        std::future::ready(write()).boxed()
    }
}

impl Reboot for SimulatedHost {
    fn reboot<'a>(&'a mut self, reason: &'a str) -> BoxFuture<'a, Outcome<()>> {
        self.inside().reboots_asked.push(reason.to_owned());
        std::future::ready(Ok(())).boxed()
    }
}

/// Kubernetes that is not there: everything succeeds at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct SimulatedInstaller;

impl Installer for SimulatedInstaller {
    fn install<'a>(&'a mut self, components: &'a [Component], activity: Activity) -> BoxFuture<'a, Outcome<()>> {
        activity.say(format!("simulating the installation of {} components", components.len()));
        std::future::ready(Ok(())).boxed()
    }

    fn join<'a>(&'a mut self, _: &'a JoinPlan, activity: Activity) -> BoxFuture<'a, Outcome<()>> {
        activity.say("simulating a join");
        std::future::ready(Ok(())).boxed()
    }

    fn init<'a>(
        &'a mut self,
        parameters: &'a InitParameters,
        activity: Activity,
    ) -> BoxFuture<'a, Outcome<SecretBytes>> {
        activity.say("simulating an init");
        let kubeconfig = format!("# A simulated cluster: {}\n", parameters.cluster_name);
        std::future::ready(Ok(kubeconfig.as_str().into())).boxed()
    }

    fn resume(&mut self, activity: Activity) -> BoxFuture<'_, Outcome<()>> {
        activity.say("simulating a start");
        std::future::ready(Ok(())).boxed()
    }
}
