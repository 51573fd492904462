//! Certificate files that change while a session lasts: they are looked at from time to time, and a session that was opened with others is replaced.

use std::time::Duration;

use sparkplug::session::TransportEvent;

use super::{Driver, with_sources};
use crate::machine::Machine;
use crate::session::Session;
use crate::tls::{FileChange, Fingerprint};

/// How often it is looked whether the certificate files have changed. Kubernetes itself takes up to a minute to bring a changed Secret to a file.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What is known of the files.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    /// When they were looked at last.
    looked_at: Duration,
    /// What they held then, if it was of no use: within, None says that they could not be read.
    unusable: Option<Option<Fingerprint>>,
}

impl<M: Machine> Driver<M> {
    /// When the certificate files of the session are looked at again.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let files = self.session.as_ref().and_then(Session::files);
        files.filter(|_| self.closing_until.is_none()).map(|_| self.certificates.looked_at + LOOK_EVERY)
    }

    /// A session that was opened with other certificates than there are by now is replaced, if with those there are it can be.
    pub(super) async fn look_at_certificates(&mut self) {
        let now = self.clock.now();
        if self.next_look().is_none_or(|look| look > now.mono) {
            return;
        }
        self.certificates.looked_at = now.mono;
        let Some(used) = self.session.as_ref().and_then(Session::files) else { return };
        match self.connector.look(used).await {
            FileChange::Same => self.certificates.unusable = None,
            FileChange::Renewed => {
                tracing::info!("the certificate files have changed; a session with them follows");
                self.certificates.unusable = None;
                self.machine.on_transport(TransportEvent::Outdated, now);
            }
            FileChange::Unusable { fingerprint, error } => {
                if self.certificates.unusable.replace(fingerprint) != Some(fingerprint) {
                    let error = with_sources(&error);
                    tracing::error!(
                        error,
                        "the certificate files have changed and cannot be used; the session continues"
                    );
                }
            }
        }
    }
}
