//! What a simulated edge cluster needs so that hosts join it. These are keys that the hosts believe, a join service, and a policy that names simulated evidence explicitly. The
//! machines are switched on when the join service judges. Keys are made at the first start of a cluster and kept in the data directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use bootstrapper::config::RoleChoice;
use configdb_schema::document::{
    AttestationPolicy, EndorsementProof, EndorsementRules, EnrolledHost, EvidenceVariant, PcrBank, PcrLock, PcrRule,
};
use join_attestation::signed::{self, Claims};
use join_protocol::attestation::{HostKeys, Verifier as _};
use join_protocol::certificate::IssuerCertificate;
use join_protocol::secret::Secret;
use join_protocol::simulated::{LOCK_PCR, SimulatedTpm, SimulatedVerifier};
use join_protocol::terms::{Purpose, Variant};
use service_runtime::atomic_file::{self, OWNER_ONLY};
use service_runtime::shutdown::Shutdown;
use simulator::kubernetes::Kubernetes;
use sparkplug_mqtt::MqttConfig;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::host::{Home, Machine, boot_chain};
use join_trust::files::{self as trust, Present, Wanted};

/// Days that the certificates of a simulated cluster are valid: longer than anyone tries it.
const DAYS: u32 = 3_650;

/// The keys of a simulated cluster, and its machines.
#[derive(Debug, Clone)]
pub struct Joining {
    /// UUID of the cluster.
    pub cluster: Uuid,
    /// Directory of the keys of the join service and the policy signer.
    pub trust: PathBuf,
    /// Public key of the root, hexadecimal.
    pub root: String,
    /// Machines that join; all but the first host, which is there when the join service begins.
    pub machines: Vec<Machine>,
}

impl Joining {
    /// Makes what is missing of it. `names`: of all hosts of the cluster.
    ///
    /// # Errors
    /// A file cannot be written or read.
    pub fn prepare(data_dir: &Path, cluster: Uuid, names: &[String]) -> anyhow::Result<Self> {
        let dir = data_dir.join("trust");
        if !dir.join(trust::ROOT_PUBLIC).exists() {
            trust::init(&dir, false).context("trust")?;
        }
        let own = dir.join(cluster.to_string());
        if !own.join("ca.crt").exists() {
            let present = if own.join("issuer.key").exists() { Present::Renew } else { Present::Refuse };
            let wanted = Wanted { cluster, purpose: Purpose::JoinIssuer, days: DAYS, epoch: 1, present };
            trust::issue(&dir, &own, &wanted, trust::now_ms()).context("trust")?;
            let authority = simulator::cluster::CLUSTER_AUTHORITY;
            atomic_file::write(&own.join("ca.crt"), authority.as_bytes(), Some(OWNER_ONLY)).context("trust")?;
        }
        if !own.join(trust::SIGNER_CERTIFICATES).exists() {
            let present = if own.join(trust::SIGNER_KEY).exists() { Present::Renew } else { Present::Refuse };
            let wanted = Wanted { cluster, purpose: Purpose::PolicySigner, days: DAYS, epoch: 1, present };
            trust::issue(&dir, &own, &wanted, trust::now_ms()).context("trust")?;
        }
        let root = dir.join(trust::ROOT_PUBLIC);
        let root = std::fs::read_to_string(&root).with_context(|| root.display().to_string())?;
        let hosts = data_dir.join("edge").join(cluster.to_string()).join("hosts");
        let machine = |name: &String| Machine::new(&hosts.join(name), cluster, name, boot_chain(&[]));
        let machines = names.iter().skip(1).map(machine).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self { cluster, trust: own, root: root.trim().to_owned(), machines })
    }

    /// The policy that admits these machines with what they measure, and no one else, signed as the first one.
    ///
    /// # Errors
    /// A file of the signer cannot be read, or the simulated TPM does not show its PCRs, which it does.
    pub fn policy(&self) -> anyhow::Result<AttestationPolicy> {
        let enrolled = self.machines.iter().map(|machine| EnrolledHost {
            ek: machine.endorsement_key(),
            host: Some(machine.hostname.clone()),
            disk: Some(machine.disk),
            iak: None,
            control_plane: false,
        });
        let lock = u8::try_from(LOCK_PCR).context("the lock PCR")?;
        let key = trust::signing_key(&self.trust.join(trust::SIGNER_KEY))?;
        let certificates = trust::certificates(&self.trust.join(trust::SIGNER_CERTIFICATES))?;
        let certificate = certificates.first().context("the signer has no certificate")?;
        let not_after_ms = IssuerCertificate::read_unverified(certificate)?.not_after_ms;
        let claims = Claims { cluster: self.cluster, serial: 1, not_after_ms };
        let policy = AttestationPolicy {
            variants: vec![EvidenceVariant::Simulated],
            bank: PcrBank::Sha256,
            pcrs: reference_values()?,
            boot: None,
            lock: PcrLock { pcr: lock, before: None, after: None },
            local_unlock: None,
            endorsement: EndorsementRules {
                require: EndorsementProof::Enrolment,
                manufacturers: Vec::new(),
                device_manufacturers: Vec::new(),
                enrolled: enrolled.collect(),
                revoked: Vec::new(),
            },
            signature: None,
        };
        Ok(signed::sign(&policy, &claims, &key, &certificates))
    }
}

/// The PCRs of an ordinary simulated machine, as a quote shows them.
fn reference_values() -> anyhow::Result<BTreeMap<String, PcrRule>> {
    let unreadable = || anyhow!("the simulated TPM does not show its PCRs");
    // PCRs do not depend on whose TPM it is.
    let mut tpm = SimulatedTpm::new(&Secret::new([1; 32])).with_context(unreadable)?;
    let chain = boot_chain(&[]);
    for (pcr, digest) in &chain {
        tpm.extend(*pcr, digest);
    }
    let (attestation_key, endorsement_key) = (tpm.attestation_key(), tpm.endorsement_key());
    let keys = HostKeys {
        variant: Variant::Simulated,
        attestation_key: &attestation_key,
        endorsement_key: &endorsement_key,
        endorsement_certificates: &[],
    };
    let about = [0; 32];
    let shown = SimulatedVerifier::default().read_pcrs(&keys, &tpm.quote(&about), &about);
    let measured = |(index, _): &(u32, _)| chain.iter().any(|(pcr, _)| pcr == index);
    let rule = |value: &[u8]| PcrRule { expected: vec![hex::encode(value)], warn_only: false };
    let shown = shown.with_context(unreadable)?;
    Ok(shown.iter().filter(|pcr| measured(pcr)).map(|(index, value)| (index.to_string(), rule(value))).collect())
}

/// Machines that are switched on.
#[derive(Debug)]
pub struct RunningMachines {
    stop: Shutdown,
    tasks: JoinSet<()>,
}

impl RunningMachines {
    /// Switches machines on, installed again. `logins`: how each reaches the broker, by its disk; the others do so as `home` says.
    pub fn start(
        machines: &[Machine],
        home: &Home,
        logins: &BTreeMap<Uuid, MqttConfig>,
        kubernetes: &Kubernetes,
        stop: Shutdown,
    ) -> Self {
        let mut tasks = JoinSet::new();
        for machine in machines {
            if let Err(error) = machine.wipe() {
                tracing::warn!(
                    host = machine.hostname,
                    error = format!("{error:#}"),
                    "a simulated host cannot be installed"
                );
                continue;
            }
            let mqtt = logins.get(&machine.disk).unwrap_or(&home.mqtt).clone();
            tasks.spawn(machine.clone().run(
                Home { mqtt, ..home.clone() },
                RoleChoice::Worker,
                Some(kubernetes.clone()),
                None,
                stop.child(),
            ));
        }
        Self { stop, tasks }
    }

    /// Switches them off; each says goodbye.
    pub async fn stop(mut self) {
        self.stop.trigger();
        while self.tasks.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use join_attestation::policy::Policy;

    #[test]
    fn the_first_policy_names_simulated_evidence_and_the_machines_and_is_one() {
        let directory = tempfile::tempdir().unwrap();
        let names = ["a-1".to_owned(), "a-2".to_owned(), "a-3".to_owned()];
        let prepare = || Joining::prepare(directory.path(), Uuid::from_u128(7), &names).unwrap();
        let first = prepare().policy().unwrap();
        assert_eq!(first.variants, [EvidenceVariant::Simulated]);
        assert_eq!(first.pcrs.keys().collect::<Vec<_>>(), ["11", "4", "7"]);
        let hosts: Vec<_> = first.endorsement.enrolled.iter().map(|host| host.host.as_deref().unwrap()).collect();
        assert_eq!(hosts, ["a-2", "a-3"]);
        assert_eq!(Policy::new(&first, 1).error(), None);
        assert_eq!(prepare().policy().unwrap(), first, "machines and keys are kept");
    }
}
