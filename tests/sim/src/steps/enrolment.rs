//! What happens around enrolment: an operator writes a token, the cluster asks by it, and so does a thief.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use configdb_contract::WriteRequest;
use configdb_schema::timestamp::to_text;
use enrolment_protocol::token::Token;
use serde_json::json;

use crate::model::disk::Disk;
use crate::model::enrolment::{Applicant, Enrolment};
use crate::model::happening::Happening;
use crate::model::ids::ClusterId;
use crate::model::role::Role;
use crate::model::transition::{Enrolling, Transition};
use crate::world::World;

/// Longer than clocks jump in a run.
const TOKEN_LIFETIME_MS: u64 = 30 * 86_400_000;

impl World {
    /// An operator makes a token for a cluster; the cluster asks by it, and so does a thief, at some time.
    pub(crate) fn begin_enrolment(&mut self, site: ClusterId) {
        let Some(cluster) = self.clusters.get(&site).map(|cluster| cluster.uuid) else { return };
        let mut token = [0; 32];
        token[..8].copy_from_slice(&self.random.number().to_be_bytes());
        self.enrolments.lock().insert(site, Enrolment { cluster, token, was_deleted: false, answers: BTreeMap::new() });
        self.write_token(site);
        for applicant in [Applicant::Cluster, Applicant::Thief] {
            let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key can be made");
            self.keys.insert((site, applicant), Arc::new(key));
            let later = self.random.millis(1_000..30_000);
            self.after(later, Happening::Transition(Transition::Enrolling(Enrolling::Begin(site, applicant))));
        }
    }

    /// An operator writes the hash of a cluster's token to ConfigDB.
    pub(crate) fn write_token(&mut self, site: ClusterId) {
        let Some((cluster, token)) = self.enrolments.lock().get(&site).map(|known| (known.cluster, known.token)) else {
            return;
        };
        let (hash, wall) = (Token::new(token).hash(), self.now().wall);
        let times = [wall, wall + TOKEN_LIFETIME_MS].map(|at| to_text(at).unwrap_or_default());
        let token = json!({"hash": hash.as_str(), "issued": times[0], "expires": times[1], "by": "people"});
        let entry = json!({"tokens": [token]});
        let request = WriteRequest::put(self.request_id(), cluster).by("people").entry("EdgeClusterEnrolment", entry);
        self.ask(request);
    }

    /// Something happens around enrolment.
    pub(crate) fn on_enrolling(&mut self, enrolling: Enrolling) {
        match enrolling {
            Enrolling::Begin(site, applicant) => {
                if !self.clusters.contains_key(&site) {
                    return;
                }
                self.add_process(Role::Enrolling(site, applicant), Disk::default());
                if applicant == Applicant::Thief {
                    let later = self.random.millis(1_000..40_000);
                    self.after(later, Happening::Transition(Transition::Enrolling(Enrolling::Leave(site))));
                }
            }
            Enrolling::Again(site) => self.write_token(site),
            Enrolling::Leave(site) => {
                for id in self.processes_of(&Role::Enrolling(site, Applicant::Thief)) {
                    self.after(Duration::ZERO, Happening::Remove(id));
                }
            }
        }
    }
}
