//! People who use git repositories: one who may read that of one cluster, one who shows nothing, and one who asks without end. Git itself is not here: what comes in are the questions
//! that the gatekeeper asks, what goes out are the answers that it gets.

use cluster_manager::git_users::{GitAccessError, GitOperation, GitOutcome, GitRequest, GitResponse};
use configdb_schema::known;
use uuid::Uuid;

use crate::model::checks::Violation;
use crate::model::happening::Happening;
use crate::model::people::{Person, credential};
use crate::model::program::Input;
use crate::model::role::Role;
use crate::world::World;

/// More than one person may ask in a minute.
const FLOOD: u64 = 400;

impl World {
    /// Some people ask at the same time.
    pub(crate) fn people_ask(&mut self) {
        let clusters: Vec<Uuid> = self.script.clusters.iter().map(|cluster| cluster.uuid).collect();
        let (Some(own), Some(other)) = (self.random.pick(&clusters).copied(), self.random.pick(&clusters).copied())
        else {
            return;
        };
        let floods = self.random.chance(300);
        for _ in 0..if floods { FLOOD } else { 0 } {
            self.question(Person::Flooder, None);
        }
        for cluster in [None, Some(own), Some(other)] {
            self.question(Person::Viewer(own), cluster);
            self.question(Person::Stranger, cluster);
        }
    }

    fn question(&mut self, person: Person, cluster: Option<Uuid>) {
        let Some(id) = self.process_of(&Role::ClusterManager) else { return };
        let life = self.processes[&id].life;
        self.people.next += 1;
        let number = self.people.next;
        self.people.asked.insert(number, (person, cluster));
        let (repository, shared) = cluster.map_or((known::repository::HELM_CHARTS, true), |cluster| (cluster, false));
        let question = GitOperation::Repository { repository, shared, push: false };
        let asked = GitRequest { id: number, from: "192.0.2.1".to_owned(), credential: credential(person), question };
        let lag = self.random.millis(0..50);
        self.after(lag, Happening::Input(id, life, Box::new(Input::GitRequest(asked))));
    }

    /// The cluster manager answers someone.
    pub(crate) fn on_answer(&mut self, answer: &GitResponse) {
        if self.on_decided(answer) {
            return;
        }
        let Some((person, cluster)) = self.people.asked.remove(&answer.id) else {
            let detail = format!("question {} is answered twice, or was never asked", answer.id);
            return self.checks.fail_with(Violation::new("applied-or-visible", detail));
        };
        self.people.answered += 1;
        let fault = |invariant, detail| Some(Violation::new(invariant, detail));
        let violation = match (person, &answer.reply) {
            (Person::Stranger, Err(GitAccessError::Unauthenticated(_))) => None,
            (Person::Stranger, reply) => {
                fault("group-is-isolated", format!("someone who shows nothing is answered {reply:.200?}"))
            }
            (Person::Viewer(_), Err(GitAccessError::TooOften(_))) => {
                fault("fair-share", "someone who asks rarely is refused, because another one floods".to_owned())
            }
            (Person::Viewer(own), Ok(GitOutcome::Repository { .. }))
                if cluster.is_some_and(|cluster| cluster != own) =>
            {
                fault("group-is-isolated", format!("who may read {own} reads {cluster:?}"))
            }
            _ => None,
        };
        if let Some(violation) = violation {
            self.checks.fail_with(violation);
        }
    }
}
