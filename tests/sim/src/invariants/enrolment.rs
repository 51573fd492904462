//! A token certifies one key; and in the end who asks by it is answered, and of two who ask an operator knows.

use enrolment_protocol::refusal::RefusalCode;

use crate::model::checks::{Checks, Violation};
use crate::model::enrolment::Applicant;
use crate::world::World;

impl Checks {
    /// At every moment. A store that came back from before its use knows a token as unused, and Identity remembers it.
    pub(crate) fn enrolment(world: &World) -> Result<(), Violation> {
        for (site, enrolment) in world.enrolments.lock().iter() {
            if enrolment.answers.len() > 1 && enrolment.answers.values().all(Result::is_ok) {
                let detail = format!("the token of {site:?} certified two keys");
                return Err(Violation::new("token-once", detail));
            }
        }
        Ok(())
    }
}

/// Every cluster that is set up has a certificate, or a thief has used its token and an operator sees it.
pub(crate) fn clusters_are_enrolled(world: &World) -> Result<(), Violation> {
    for (site, enrolment) in world.enrolments.lock().iter() {
        if !world.is_set_up(*site) || world.restores || world.checks.had_two_stores {
            continue;
        }
        let thief = enrolment.answers.get(&Applicant::Thief);
        match enrolment.answers.get(&Applicant::Cluster) {
            Some(Ok(_)) => {}
            // Made again under the same id while its machines ran on: the refusal says that it needs another token.
            Some(Err(refusal)) if refusal.code == RefusalCode::Revoked && enrolment.was_deleted => {}
            Some(Err(refusal)) if refusal.code == RefusalCode::TokenUsed => {
                if !world.is_reuse_known(*site) {
                    let detail = format!("{site:?}: a thief was certified, and no one says so");
                    return Err(Violation::new("applied-or-visible", detail));
                }
            }
            other => {
                let detail = format!("{site:?} asks to be enrolled and is answered {other:?}; the thief {thief:?}");
                return Err(Violation::new("applied-or-visible", detail));
            }
        }
    }
    Ok(())
}
