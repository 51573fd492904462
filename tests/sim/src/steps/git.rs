//! What the cluster manager asks of its repositories is done.

use cluster_manager::event::{GitOutcome, GitResult, GitWork};

use crate::model::checks::Violation;
use crate::model::git;
use crate::model::happening::Happening;
use crate::model::ids::ProcessId;
use crate::model::mutation::Mutation;
use crate::model::program::Input;
use crate::world::World;

impl World {
    /// The disk of git carries work out now, and says that it failed.
    pub(crate) fn is_git_torn(&mut self) -> bool {
        self.git.torn_until.is_some_and(|until| until > self.mono) && self.random.chance(500)
    }

    /// Git works for the cluster manager.
    pub fn on_git(&mut self, id: ProcessId, life: u64, work: GitWork) {
        let cluster = work.cluster;
        let is_torn = self.is_git_torn();
        let loses = self.mutation == Some(Mutation::GitLosesWrites) && self.random.chance(300);
        let forgets = self.mutation == Some(Mutation::ForgetsTimes);
        let before = self.git.secrets(cluster);
        let place = self.git.place(cluster);
        let mut outcome = self.git.perform(work, self.mono, (loses, forgets));
        if let Some(key) = git::gone_back(&before, &self.git.secrets(cluster)) {
            let detail = format!("{key} in the repository of {cluster} has an older value than before");
            self.checks.fail_with(Violation::new("no-value-goes-back", detail));
        }
        let is_as_before = !is_torn && place == self.git.place(cluster);
        if is_torn {
            outcome = GitOutcome::Failed { reason: "input/output error".to_owned() };
        }
        let lag = self.random.millis(1..100);
        let input = Input::Git(GitResult { cluster, outcome, is_as_before });
        self.after(lag, Happening::Input(id, life, Box::new(input)));
    }
}
