//! One token that says "stop": triggered by SIGINT, SIGTERM, or by a holder of the token.
//!
//! The first signal asks for a clean stop (deaths published, files closed). An operator who sends a second one does not want to
//! wait: the process ends at once with code 130. This module must not know what a clean stop consists of.

use crate::exit;
use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A cheap handle; clones are the same token, children follow their parent but not the other way round.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    /// A token that no signal triggers; for tests and for parts of a bigger process.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A token that SIGINT and SIGTERM trigger. To be called once, by `main`, inside the tokio runtime.
    ///
    /// # Errors
    /// The operating system refused to install a handler.
    pub fn on_signals() -> io::Result<Self> {
        let shutdown = Self::new();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let triggered = shutdown.clone();
        tokio::spawn(async move {
            let mut signals_seen = 0_u32;
            loop {
                let name = tokio::select! {
                    _ = interrupt.recv() => "SIGINT",
                    _ = terminate.recv() => "SIGTERM",
                };
                signals_seen += 1;
                if signals_seen > 1 {
                    tracing::warn!(signal = name, "second signal, ending at once");
                    std::process::exit(i32::from(exit::INTERRUPTED));
                }
                tracing::info!(signal = name, "stopping");
                triggered.trigger();
            }
        });
        Ok(shutdown)
    }

    /// Asks for a stop. Repeating it changes nothing.
    pub fn trigger(&self) {
        self.token.cancel();
    }

    /// True once a stop was asked for.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Returns when a stop was asked for. Cancel-safe: fit for a `select!` branch.
    pub async fn wait(&self) {
        self.token.cancelled().await;
    }

    /// A token that stops with this one, and can be stopped alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { token: self.token.child_token() }
    }

    /// The wrapped token, for interfaces that take one.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn triggering_the_parent_triggers_the_child_and_not_the_other_way_round() {
        let parent = Shutdown::new();
        let child = parent.child();
        let other = parent.child();
        child.trigger();
        child.wait().await;
        assert!(!parent.is_triggered() && !other.is_triggered());
        parent.trigger();
        other.wait().await;
        assert!(parent.clone().is_triggered());
    }
}
