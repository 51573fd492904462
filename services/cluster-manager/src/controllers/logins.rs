//! The login of each cluster's repository, sealed to Identity, which gives it to the cluster when that enrols or renews.

use std::collections::BTreeMap;

use cluster_manager_contract::SealedLogin;
use uuid::Uuid;

use crate::event::{Effect, LoginResult};
use crate::fleet::FleetView;

/// The login of one cluster.
#[derive(Debug)]
struct Login {
    /// Enrolment key that it is or shall be sealed to.
    key: String,
    /// None: it is being sealed.
    sealed: Option<SealedLogin>,
}

/// The logins of all clusters.
#[derive(Debug, Default)]
pub struct LoginsController(BTreeMap<Uuid, Login>);

impl LoginsController {
    /// Has the login of a cluster sealed when that is to be done. `is_open`: its repository is published, and not on its way out.
    pub fn reconcile(&mut self, fleet: &FleetView, uuid: Uuid, is_open: bool) -> Option<Effect> {
        let key = fleet.identity().key().filter(|_| is_open);
        let Some(key) = key else {
            // A key that is known stays known while Identity is away, so this is a repository that is closed.
            self.0.remove(&uuid);
            return None;
        };
        if self.0.get(&uuid).is_some_and(|login| login.key == key) {
            return None;
        }
        self.0.insert(uuid, Login { key: key.to_owned(), sealed: None });
        Some(Effect::SealLogin { cluster: uuid, key: key.to_owned() })
    }

    /// Takes what was sealed.
    pub fn on_result(&mut self, result: LoginResult) {
        let LoginResult { cluster, key, sealed } = result;
        if self.0.get(&cluster).is_none_or(|login| login.key != key) {
            return;
        }
        match sealed {
            Ok(sealed) => drop(self.0.insert(cluster, Login { key, sealed: Some(sealed) })),
            Err(error) => {
                tracing::warn!(cluster_id = %cluster, error, "the login of a cluster's repository cannot be sealed");
                self.0.remove(&cluster);
            }
        }
    }

    /// The login of a cluster's repository, for Identity.
    pub fn get(&self, uuid: Uuid) -> Option<&SealedLogin> {
        self.0.get(&uuid)?.sealed.as_ref()
    }

    /// The cluster is gone.
    pub fn forget(&mut self, uuid: Uuid) {
        self.0.remove(&uuid);
    }
}
