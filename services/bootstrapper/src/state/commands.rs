//! What others say to the host: issuers with messages of the protocol, an administrator who wants to be asked.

use std::time::Duration;

use bootstrapper_contract::names;
use join_protocol::host::{Effect as MachineEffect, Event as MachineEvent, HostSettings};
use join_protocol::metrics::IssuerMessage;
use join_protocol::terms::{Kind, Role};
use sparkplug::Metric;

use super::join_session::JoinSession;
use super::{Phase, State, Turn};

/// How often a host that asks an administrator says its last message again because of a command, at most.
const REMINDER_INTERVAL: Duration = Duration::from_secs(1);

impl State {
    pub(super) fn on_command(&mut self, metrics: &[Metric], turn: &mut Turn) {
        for metric in metrics {
            if &*metric.name == names::ADMINISTRATOR {
                match metric.as_bool() {
                    Some(wanted) => self.on_administrator(wanted, turn),
                    None => self.node.ignored += 1,
                }
                continue;
            }
            match IssuerMessage::from_metric(metric) {
                Ok(Some(message)) => self.on_message(&message, turn),
                Ok(None) => {}
                Err(error) => self.ignored(&error),
            }
        }
    }

    /// An administrator wants to be asked, or no longer. Any client may send this command: it only makes the host publish more.
    fn on_administrator(&mut self, wanted: bool, turn: &mut Turn) {
        let Some(host) = self.host.as_ref().filter(|_| self.phase == Phase::Asking) else { return };
        let kind = match host.kind {
            Kind::Join | Kind::Init => Kind::Init,
            Kind::Rejoin | Kind::Recover => Kind::Recover,
            // An administrator renews nothing.
            Kind::Renew => return,
        };
        let ends_at = turn.now.mono + self.settings.administrator_for;
        match (wanted, self.sessions.iter_mut().find(|session| session.kind == kind)) {
            (false, _) => self.sessions.retain(|session| session.kind != kind),
            (true, Some(session)) => {
                session.ends_at = Some(ends_at);
                let due = self.reminded_at.is_none_or(|at| at + REMINDER_INTERVAL <= turn.now.mono);
                if due {
                    self.reminded_at = Some(turn.now.mono);
                    let messages = session.machine.current_messages();
                    messages.iter().for_each(|message| self.publish(message));
                }
            }
            (true, None) => {
                // The first member is a control plane, whatever the host was to be otherwise.
                let role = if kind == Kind::Init { Role::ControlPlane } else { host.role };
                let settings = HostSettings { kind, role, ..host.clone() };
                self.sessions.push(JoinSession::new(settings, Some(ends_at)));
                self.reminded_at = Some(turn.now.mono);
                self.drive(kind, MachineEvent::Start, turn);
            }
        }
    }

    /// Every machine looks at what an issuer says; a message is not believed only if none believes it.
    fn on_message(&mut self, message: &IssuerMessage, turn: &mut Turn) {
        let mut reasons = Vec::new();
        let kinds: Vec<Kind> = self.sessions.iter().map(|session| session.kind).collect();
        let machines = kinds.len();
        for kind in kinds {
            let event = match message {
                IssuerMessage::Challenge(bytes) => MachineEvent::Challenge(bytes),
                IssuerMessage::ClearRefusal(bytes) => MachineEvent::ClearRefusal(bytes),
                IssuerMessage::Ticket(bytes) => MachineEvent::Ticket(bytes),
                IssuerMessage::AskAgain => MachineEvent::AskAgain,
            };
            let mut effects = self.effects_of(kind, event, turn);
            effects.retain(|effect| match effect {
                MachineEffect::Ignored { message, reason } => {
                    reasons.push(format!("{message}: {reason}"));
                    false
                }
                _ => true,
            });
            self.carry_out(kind, effects, turn);
        }
        if !reasons.is_empty() && reasons.len() == machines {
            self.ignored(&reasons.join("; "));
        }
    }

    /// The answer cannot be used, and an operator has to look: a warning, once for each reason, and the status.
    pub(super) fn hindered(&mut self, reason: String) {
        if self.node.last_error.as_ref() != Some(&reason) {
            tracing::warn!(%reason, "the answer cannot be used");
            self.node.last_error = Some(reason);
        }
    }

    pub(super) fn ignored(&mut self, reason: &dyn std::fmt::Display) {
        self.node.ignored += 1;
        tracing::debug!(%reason, "message not believed");
    }
}
