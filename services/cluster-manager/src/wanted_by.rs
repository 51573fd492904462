//! Which state of ConfigDB a repository is of. A ConfigDB that does not contain that state changes nothing in the repository and takes nothing away. Flux follows a repository by
//! itself, so the repository is held as an edge holds its index.

use sparkplug::replication::{Hold, Origin};
use uuid::Uuid;

use crate::fleet::FleetView;

/// The state of ConfigDB that a repository was brought to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedBy {
    /// Identity of the store; nil: no ConfigDB wants it.
    pub store: Uuid,
    /// None: an earlier version recorded the store only.
    pub origin: Option<Origin>,
}

impl From<Origin> for WantedBy {
    fn from(origin: Origin) -> Self {
        Self { store: origin.store, origin: Some(origin) }
    }
}

impl WantedBy {
    /// Why what ConfigDB wants at `origin` is held. None: it contains this state, or an operator has decided for it.
    #[must_use]
    pub fn hold(&self, fleet: &FleetView, origin: Option<Origin>) -> Option<Hold> {
        match self.origin {
            Some(accepted) => Hold::of(self.origin, origin, fleet.config().follows(accepted)),
            None => self.hold_by_store(origin),
        }
    }

    /// Whether ConfigDB will forget this state.
    #[must_use]
    pub fn is_ageing(&self, fleet: &FleetView) -> bool {
        self.origin.is_some_and(|origin| fleet.config().is_ageing(origin))
    }

    fn hold_by_store(&self, origin: Option<Origin>) -> Option<Hold> {
        let origin = origin.filter(|origin| !self.store.is_nil() && origin.store != self.store && origin.epoch == 0)?;
        Some(Hold::OtherStore { store: origin.store, followed: self.store })
    }
}
