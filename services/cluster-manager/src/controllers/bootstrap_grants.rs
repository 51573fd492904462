//! To which tokens the bootstrap script of each cluster is offered, and which script that is.
//!
//! A cluster that is set up offers its script to every token in its `EdgeClusterEnrolment` entry. The tokens of one that is being set up are known too: they work later.
//! Whether a token has ended is judged where it is used.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster_manager_contract::BootstrapReport;
use configdb_schema::Document;
use configdb_schema::document::{EdgeClusterEnrolment, EdgeClusterSetup};
use uuid::Uuid;

use super::{Controller, Forgotten};
use crate::bootstrap::site::SiteScript;
use crate::bootstrap::{BootstrapGrant, OfferedToken, ScriptValues};
use crate::event::Effect;
use crate::fleet::FleetView;
use crate::identity::IdentityEntries;

/// The scripts of all clusters.
#[derive(Debug)]
pub(crate) struct BootstrapGrantsController {
    /// Base URL of the scripts.
    base_url: String,
    /// The site's own script.
    script: Option<Arc<SiteScript>>,
    /// As the HTTP server was given them last.
    grants: BTreeMap<Uuid, BootstrapGrant>,
}

impl Controller for BootstrapGrantsController {
    fn retain(&mut self, is_left: &dyn Fn(&Uuid) -> bool) -> Vec<Effect> {
        let gone: Vec<Uuid> = self.grants.keys().copied().filter(|uuid| !is_left(uuid)).collect();
        gone.into_iter().filter_map(|uuid| self.set(uuid, None)).collect()
    }

    fn forget(&mut self, uuid: Uuid) -> Forgotten {
        Forgotten { effects: self.set(uuid, None).into_iter().collect(), released: Vec::new() }
    }
}

impl BootstrapGrantsController {
    /// Nothing is offered. `base_url`: that of the scripts.
    pub(crate) const fn new(base_url: String) -> Self {
        Self { base_url, script: None, grants: BTreeMap::new() }
    }

    /// Takes the site's own script over, if it can be used; else the shipped one stays in use.
    ///
    /// # Errors
    /// Why the script cannot be used.
    pub(crate) fn on_script(&mut self, json: Option<&str>) -> (Result<(), String>, Option<Effect>) {
        let read = json.map(SiteScript::read).transpose();
        if let Err(error) = &read {
            tracing::warn!(error, "the BootstrapScript entry cannot be used; the shipped script is");
        }
        let result = read.as_ref().map(|_| ()).map_err(ToString::to_string);
        let script = read.ok().flatten().map(Arc::new);
        let is_other = self.script != script;
        self.script.clone_from(&script);
        (result, is_other.then_some(Effect::Script(script)))
    }

    /// The site's own script is in use.
    pub(crate) const fn is_site_script(&self) -> bool {
        self.script.is_some()
    }

    /// Brings the grant of a cluster up to date. `record` is that of its set-up if it is ready; a cluster that is being deleted has no grant.
    pub(crate) fn reconcile(
        &mut self,
        fleet: &FleetView,
        (uuid, deleting): (Uuid, bool),
        record: Option<&EdgeClusterSetup>,
        entries: &IdentityEntries,
    ) -> (BootstrapReport, Option<Effect>) {
        let entry = fleet.config().entry(uuid, EdgeClusterEnrolment::slug());
        let tokens = entries.wanted.iter().flat_map(|wanted| &wanted.tokens).filter_map(OfferedToken::of).collect();
        let values = record.and_then(|record| {
            let spec = record.spec.as_ref()?;
            Some(ScriptValues {
                name: spec.name.clone(),
                namespace: spec.namespace.clone(),
                bare: spec.bare,
                self_link: record.self_link.clone()?,
                identity_key: entries.identity().map(|identity| identity.key.clone()).filter(|key| !key.is_empty()),
            })
        });
        let report = BootstrapReport {
            url: values.as_ref().map(|_| enrolment_protocol::bootstrap::script_url(&self.base_url, uuid)),
            enrolment: entry.filter(|_| values.is_some()).map(|entry| entry.etag.to_string()),
        };
        let grant = BootstrapGrant { values, tokens };
        (report, self.set(uuid, Some(grant).filter(|grant| !deleting && !grant.tokens.is_empty())))
    }

    fn set(&mut self, uuid: Uuid, offer: Option<BootstrapGrant>) -> Option<Effect> {
        let before = match offer.clone() {
            Some(offer) => self.grants.insert(uuid, offer),
            None => self.grants.remove(&uuid),
        };
        (before != offer).then_some(Effect::BootstrapGrant { cluster: uuid, offer })
    }
}
