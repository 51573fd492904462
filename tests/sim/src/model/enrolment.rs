//! Clusters that enrol by a one-time token, each beside a thief who has copied the token.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use enrolment_protocol::refusal::Refusal;
use uuid::Uuid;

use crate::model::ids::ClusterId;

/// Who asks by a cluster's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Applicant {
    /// The cluster.
    Cluster,
    /// Someone who has copied the token.
    Thief,
}

/// The enrolment of one cluster.
#[derive(Debug)]
pub struct Enrolment {
    pub(crate) cluster: Uuid,
    pub(crate) token: [u8; 32],
    /// The cluster was deleted after the token was made, which revokes what the token gave.
    pub was_deleted: bool,
    /// What each applicant has been answered.
    pub answers: BTreeMap<Applicant, Result<String, Refusal>>,
}

/// All enrolments of a run.
#[derive(Debug, Clone, Default)]
pub struct Enrolments(Arc<Mutex<BTreeMap<ClusterId, Enrolment>>>);

impl Enrolments {
    /// All of them, for a moment.
    pub fn lock(&self) -> MutexGuard<'_, BTreeMap<ClusterId, Enrolment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
