//! One cluster's bootstrap: whether its script is offered, and to which tokens.
//!
//! A cluster that is set up offers its script to every token in its `EdgeClusterEnrolment` entry. When a token ends is for those to say who see the clock when it is used.

use std::sync::Arc;

use cluster_manager_contract::{BootstrapReport, names};
use configdb_schema::Document;
use configdb_schema::document::{EdgeClusterEnrolment, EdgeClusterSetup};
use uuid::Uuid;

use super::ClusterManager;
use super::identity::IdentityEntries;
use crate::bootstrap::site::SiteScript;
use crate::bootstrap::{BootstrapGrant, OfferedToken};
use crate::event::Effect;

impl ClusterManager {
    /// Takes the site's own script over, if it can be used; else the shipped one stays in use, and the node says why.
    pub(super) fn on_script(&mut self, json: Option<&str>) {
        let read = json.map(SiteScript::read).transpose();
        let error = read.as_ref().err().cloned();
        if let Some(error) = &error {
            tracing::warn!(error, "the BootstrapScript entry cannot be used; the shipped script is");
        }
        let script = read.ok().flatten().map(Arc::new);
        self.totals.bootstrap_script =
            if script.is_some() { names::SCRIPT_SITE } else { names::SCRIPT_SHIPPED }.to_owned();
        self.totals.bootstrap_error = error.map(|error| format!("BootstrapScript: {error}"));
        if self.script != script {
            self.script.clone_from(&script);
            self.effects.push(Effect::Script(script));
        }
    }

    /// Brings the offer of a cluster up to date. `record` is that of its set-up if it is ready.
    pub(super) fn offer(
        &mut self,
        uuid: Uuid,
        record: Option<&EdgeClusterSetup>,
        entries: &IdentityEntries,
    ) -> BootstrapReport {
        let entry = self.replica.entry(uuid, EdgeClusterEnrolment::slug());
        let tokens = entries.wanted.iter().flat_map(|wanted| &wanted.tokens);
        let offer = record.and_then(|record| {
            let spec = record.spec.as_ref()?;
            Some(BootstrapGrant {
                name: spec.name.clone(),
                namespace: spec.namespace.clone(),
                bare: spec.bare,
                self_link: record.self_link.clone()?,
                manager_key: entries.identity().map(|identity| identity.key.clone()).filter(|key| !key.is_empty()),
                tokens: tokens.filter_map(OfferedToken::of).collect(),
            })
        });
        let report = BootstrapReport {
            url: offer
                .as_ref()
                .map(|_| enrolment_protocol::bootstrap::script_url(&self.settings.cluster.git.own, uuid)),
            enrolment: entry.filter(|_| offer.is_some()).map(|entry| entry.etag.to_string()),
        };
        let offer = offer.filter(|offer| !offer.tokens.is_empty());
        if let Some(cluster) = self.clusters.get_mut(&uuid)
            && cluster.offer != offer
        {
            cluster.offer.clone_from(&offer);
            self.effects.push(Effect::BootstrapGrant { cluster: uuid, offer });
        }
        report
    }
}
