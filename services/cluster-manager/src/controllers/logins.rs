//! The login of each cluster's repository, sealed to Identity, which gives it to the cluster when that enrols or renews.

use std::collections::BTreeMap;

use cluster_manager_contract::SealedLogin;
use uuid::Uuid;

use super::{Controller, Forgotten};
use crate::event::{Effect, LoginResult};
use crate::fleet::FleetView;

/// The logins of all clusters.
#[derive(Debug, Default)]
pub(crate) struct LoginsController {
    /// Enrolment key that all of them are or shall be sealed to.
    key: Option<String>,
    /// None: it is being sealed.
    known: BTreeMap<Uuid, Option<SealedLogin>>,
}

impl Controller for LoginsController {
    fn forget(&mut self, uuid: Uuid) -> Forgotten {
        self.known.remove(&uuid);
        Forgotten::default()
    }
}

impl LoginsController {
    /// Has the login of a cluster sealed when that is to be done. `is_open`: its repository is published, and not on its way out.
    pub(crate) fn reconcile(&mut self, fleet: &FleetView, uuid: Uuid, is_open: bool) -> Option<Effect> {
        let key = fleet.identity().key().filter(|_| is_open);
        let Some(key) = key else {
            // A key that is known stays known while Identity is away, so this is a repository that is closed.
            self.known.remove(&uuid);
            return None;
        };
        if self.key.as_deref() != Some(key) {
            self.known.clear();
            self.key = Some(key.to_owned());
        }
        if self.known.contains_key(&uuid) {
            return None;
        }
        self.known.insert(uuid, None);
        Some(Effect::SealLogin { cluster: uuid, key: key.to_owned() })
    }

    /// Takes what was sealed.
    pub(crate) fn on_result(&mut self, result: LoginResult) {
        let LoginResult { cluster, key, sealed } = result;
        let Some(login) = self.known.get_mut(&cluster).filter(|_| self.key == Some(key)) else { return };
        match sealed {
            Ok(sealed) => *login = Some(sealed),
            Err(error) => {
                tracing::warn!(cluster_id = %cluster, error, "the login of a cluster's repository cannot be sealed");
                self.known.remove(&cluster);
            }
        }
    }

    /// The login of a cluster's repository, for Identity.
    pub(crate) fn get(&self, uuid: Uuid) -> Option<&SealedLogin> {
        self.known.get(&uuid)?.as_ref()
    }
}
