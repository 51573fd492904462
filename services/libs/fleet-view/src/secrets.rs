//! Secrets of clusters: what ConfigDB has of them, and what the cluster manager has seen in their repositories.

use std::collections::{BTreeMap, BTreeSet};

use cluster_manager_contract::{StoredKey, StoredSecret};
use configdb_schema::address;
use configdb_schema::document::{EdgeClusterStatus, SealedSecret, SealedValue, SealingScope};
use serde::Serialize;
use uuid::Uuid;

use crate::Fleet;

/// The object of a Secret: the same names are the same object.
#[must_use]
pub fn object(cluster: Uuid, namespace: &str, name: &str) -> Uuid {
    address::v5(&["SealedSecret", &cluster.to_string(), namespace, name])
}

/// A Secret of a cluster, without any value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecretRow {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// What its values are bound to.
    pub scope: SealingScope,
    /// Type of the Secret, such as `Opaque`.
    #[serde(rename = "type")]
    pub secret_type: String,
    /// Its keys, in the order of their names.
    pub keys: Vec<SecretKeyRow>,
}

/// A key of a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecretKeyRow {
    /// Its name.
    pub key: String,
    /// SHA-256 fingerprint of the certificate that it is sealed for, hexadecimal; None: not recorded.
    pub fingerprint: Option<String>,
    /// Whether the repository has what is wanted.
    pub state: SecretState,
}

/// How far a key of a Secret is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretState {
    /// The repository has it, and ConfigDB wants nothing else.
    Written,
    /// ConfigDB has a value that the repository does not have yet.
    Waits,
    /// ConfigDB wants it deleted, and the repository still has it.
    Goes,
}

/// What is known of a Secret.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) wanted: Option<SealedSecret>,
    pub(crate) stored: Option<StoredSecret>,
}

impl Known {
    fn row(self, namespace: String, name: String) -> Option<SecretRow> {
        let Self { wanted, stored } = self;
        // What is in the repository is what there is.
        let shared = stored.as_ref().map(|stored| (stored.scope, stored.secret_type.clone()));
        let shared = shared.or_else(|| wanted.as_ref().map(|wanted| (wanted.scope, wanted.secret_type.clone())));
        let (scope, secret_type) = shared?;
        let stored = stored.map(|stored| stored.keys).unwrap_or_default();
        let wanted = wanted.map(|wanted| wanted.keys).unwrap_or_default();
        let names: BTreeSet<&String> = stored.keys().chain(wanted.keys()).collect();
        let key = |name: &String| {
            let (fingerprint, state) = state(stored.get(name), wanted.get(name))?;
            Some(SecretKeyRow { key: name.clone(), fingerprint, state })
        };
        let keys: Vec<SecretKeyRow> = names.into_iter().filter_map(key).collect();
        (!keys.is_empty()).then_some(SecretRow { namespace, name, scope, secret_type, keys })
    }
}

/// A key as it is in the repository and in ConfigDB; None: it is gone.
fn state(stored: Option<&StoredKey>, wanted: Option<&SealedValue>) -> Option<(Option<String>, SecretState)> {
    match (stored, wanted) {
        (None, None) => None,
        (Some(stored), None) => Some((stored.sealed_for.clone(), SecretState::Written)),
        // A later one in the repository stays: ConfigDB comes from a backup.
        (Some(stored), Some(wanted)) if stored.at.as_ref().is_some_and(|at| *at >= wanted.at) => {
            Some((stored.sealed_for.clone(), SecretState::Written))
        }
        (_, Some(wanted)) if wanted.value.is_some() => Some((wanted.sealed_for.clone(), SecretState::Waits)),
        (Some(stored), Some(_)) => Some((stored.sealed_for.clone(), SecretState::Goes)),
        (None, Some(_)) => None,
    }
}

impl Fleet {
    /// The secrets of a cluster, by namespace and name.
    #[must_use]
    pub fn secrets(&self, cluster: Uuid) -> Vec<SecretRow> {
        self.secret_rows(Some(cluster)).into_iter().map(|(_, row)| row).collect()
    }

    /// The secrets of all clusters, each with its cluster, by cluster, namespace and name.
    #[must_use]
    pub fn all_secrets(&self) -> Vec<(Uuid, SecretRow)> {
        self.secret_rows(None)
    }

    /// Why something of a cluster's secrets is not in its repository, as the cluster manager says; None: nothing is missing.
    #[must_use]
    pub fn secrets_reason(&self, cluster: Uuid) -> Option<&str> {
        self.manager.cluster(cluster)?.secrets.reason.as_deref()
    }

    /// The certificate that a cluster's secrets are sealed for, PEM: what its edge reports, or reported last.
    #[must_use]
    pub fn sealing_certificate(&self, cluster: Uuid) -> Option<String> {
        let sync = self.manager.cluster(cluster).and_then(|device| self.sync(&device.name));
        let reported = sync.and_then(|sync| sync.node()).filter(|node| node.cluster_uuid == cluster);
        let reported = reported.and_then(|node| node.sealing_certificate.clone());
        reported.or_else(|| self.config.document::<EdgeClusterStatus>(cluster).ok().flatten()?.kubeseal_cert)
    }

    /// Of one cluster, or of all.
    fn secret_rows(&self, of: Option<Uuid>) -> Vec<(Uuid, SecretRow)> {
        let is_of = |cluster: Uuid| of.is_none_or(|of| of == cluster);
        let mut all: BTreeMap<(Uuid, String, String), Known> = BTreeMap::new();
        for (cluster, device) in self.manager.clusters().filter(|(cluster, _)| is_of(*cluster)) {
            for secret in device.secrets.stored.iter().flat_map(|stored| &stored.0) {
                let place = (cluster, secret.namespace.clone(), secret.name.clone());
                all.entry(place).or_default().stored = Some(secret.clone());
            }
        }
        for (_, secret) in self.secret_entries().filter(|(_, secret)| is_of(secret.cluster)) {
            let place = (secret.cluster, secret.namespace.clone(), secret.name.clone());
            all.entry(place).or_default().wanted = Some(secret);
        }
        let row = |((cluster, namespace, name), known): (_, Known)| Some((cluster, known.row(namespace, name)?));
        all.into_iter().filter_map(row).collect()
    }

    /// What is known of one Secret.
    pub(crate) fn known_secret(&self, cluster: Uuid, namespace: &str, name: &str) -> Known {
        let wanted: Option<SealedSecret> = self.config.document(object(cluster, namespace, name)).ok().flatten();
        let stored = self.manager.cluster(cluster).and_then(|device| device.secrets.stored.as_ref());
        let is_it = |secret: &&StoredSecret| secret.namespace == namespace && secret.name == name;
        let stored = stored.and_then(|stored| stored.0.iter().find(is_it).cloned());
        Known { wanted, stored }
    }
}
