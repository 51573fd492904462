//! A turn of a program, and what it wants done.

use crate::model::happening::Happening;
use crate::model::ids::ProcessId;
use crate::model::program::{Action, Input};
use crate::world::{World, trace};

impl World {
    /// One turn of a program: the state decides and commits, then the actions are carried out; a crash may come before each of them.
    pub fn turn(&mut self, id: ProcessId, input: Input) {
        let now = self.now_of(id);
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(mut program) = process.program.take() else { return };
        process.due = None;
        let (life, role) = (process.life, process.role.clone());
        if self.trace.is_some() && !matches!(input, Input::Timer) {
            let text: String = format!("{input:?}").chars().take(400).collect();
            trace!(self, "{role} <- {text}");
        }
        self.learn_of_git_server(id, &role, &input);
        let actions = program.on_input(input, now);
        if let Some(process) = self.processes.get_mut(&id) {
            process.program = Some(program);
        }
        for action in actions {
            if self.is_crash_due(&role) {
                trace!(self, "{role} crashes between commit and execution");
                self.crash(id);
                return;
            }
            self.execute(id, action);
            if self.processes.get(&id).is_none_or(|process| process.life != life || process.program.is_none()) {
                return;
            }
        }
    }

    pub(crate) fn execute(&mut self, id: ProcessId, action: Action) {
        if self.trace.is_some() {
            let text: String = format!("{action:?}").chars().take(400).collect();
            let role = self.processes[&id].role.clone();
            trace!(self, "{role} -> {text}");
        }
        let Some(process) = self.processes.get_mut(&id) else { return };
        match action {
            Action::Birth(config, metrics) => self.start_node(id, *config, metrics),
            Action::Node(update) => self.execute_node(id, update),
            Action::Host(request) => {
                self.check_what_is_sent(id, &request);
                self.execute_host(id, request);
            }
            Action::Sync(effect) => self.ask_kubernetes(id, effect),
            Action::Join(effect) => self.execute_join(id, *effect),
            Action::Keys(effect) => self.ask_for_keys(id, *effect),
            Action::Git(work) => {
                let life = process.life;
                let lag = self.random.millis(1..200);
                self.after(lag, Happening::Git(id, life, Box::new(work)));
            }
            Action::Copy(work) => self.work_for_copy(id, work),
            Action::Push(work) => {
                let life = process.life;
                let lag = self.random.millis(1..100);
                self.after(lag, Happening::Push(id, life, work));
            }
            Action::GitServer(effect) => self.execute_git_server(id, *effect),
            Action::GitResponse(answer) => self.on_answer(&answer),
            Action::Exit { again_after } => {
                self.stop(id, true);
                if let Some(after) = again_after {
                    self.after(after, Happening::Start(id));
                }
            }
        }
    }
}
