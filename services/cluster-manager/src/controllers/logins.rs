//! The login of each cluster's repository, sealed to Identity, which gives it to the cluster when that enrols or renews.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster_manager_contract::SealedLogin;
use uuid::Uuid;

use crate::event::{Effect, LoginResult};
use crate::fleet::FleetView;

/// The login of one cluster.
#[derive(Debug)]
struct Login {
    /// Enrolment key that it is or shall be sealed to; all have the same one, once.
    key: Arc<str>,
    /// None: it is being sealed.
    sealed: Option<SealedLogin>,
}

/// The logins of all clusters.
#[derive(Debug, Default)]
pub struct LoginsController {
    /// The key that logins were sealed to last.
    key: Option<Arc<str>>,
    known: BTreeMap<Uuid, Login>,
}

impl LoginsController {
    /// Has the login of a cluster sealed when that is to be done. `is_open`: its repository is published, and not on its way out.
    pub fn reconcile(&mut self, fleet: &FleetView, uuid: Uuid, is_open: bool) -> Option<Effect> {
        let key = fleet.identity().key().filter(|_| is_open);
        let Some(key) = key else {
            // A key that is known stays known while Identity is away, so this is a repository that is closed.
            self.known.remove(&uuid);
            return None;
        };
        if self.known.get(&uuid).is_some_and(|login| &*login.key == key) {
            return None;
        }
        let shared = self.key.take().filter(|shared| &**shared == key).unwrap_or_else(|| key.into());
        self.known.insert(uuid, Login { key: Arc::clone(&shared), sealed: None });
        self.key = Some(shared);
        Some(Effect::SealLogin { cluster: uuid, key: key.to_owned() })
    }

    /// Takes what was sealed.
    pub fn on_result(&mut self, result: LoginResult) {
        let LoginResult { cluster, key, sealed } = result;
        let Some(login) = self.known.get_mut(&cluster).filter(|login| *login.key == *key) else { return };
        match sealed {
            Ok(sealed) => login.sealed = Some(sealed),
            Err(error) => {
                tracing::warn!(cluster_id = %cluster, error, "the login of a cluster's repository cannot be sealed");
                self.known.remove(&cluster);
            }
        }
    }

    /// The login of a cluster's repository, for Identity.
    pub fn get(&self, uuid: Uuid) -> Option<&SealedLogin> {
        self.known.get(&uuid)?.sealed.as_ref()
    }

    /// The cluster is gone.
    pub fn forget(&mut self, uuid: Uuid) {
        self.known.remove(&uuid);
    }
}
