//! What tests do to a simulated API: requests that fail, requests that are slow, watches that break. Pure but for the signal to the watches.

use std::time::Duration;

use tokio::sync::watch;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub count: u32,
    /// With which HTTP status.
    pub code: u16,
    /// Only this HTTP method.
    pub method: Option<String>,
    /// Only requests whose path contains this.
    pub path: Option<String>,
}

impl Fault {
    /// The next `count` requests, whatever they are.
    pub fn next(count: u32, code: u16) -> Self {
        Self { count, code, method: None, path: None }
    }

    /// The same, for requests with this method.
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.to_string());
        self
    }

    /// The same, for requests whose path contains this text.
    pub fn path(mut self, path: &str) -> Self {
        self.path = Some(path.to_string());
        self
    }
}

/// How watches are broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// The response ends, as at a time-out.
    End,
    /// The connection is cut in the middle of the response.
    Cut,
}

/// The faults in force.
#[derive(Debug)]
pub struct Faults {
    rules: Vec<Fault>,
    latency: Duration,
    breaks: watch::Sender<Option<Break>>,
}

impl Default for Faults {
    fn default() -> Self {
        Self { rules: Vec::new(), latency: Duration::ZERO, breaks: watch::Sender::new(None) }
    }
}

impl Faults {
    pub fn add(&mut self, fault: Fault) {
        self.rules.push(fault);
    }

    /// Takes all rules away.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    pub fn set_latency(&mut self, latency: Duration) {
        self.latency = latency;
    }

    /// The delay in force.
    pub fn latency(&self) -> Duration {
        self.latency
    }

    /// Breaks all watches that are open.
    pub fn break_watches(&self, how: Break) {
        self.breaks.send_replace(Some(how));
    }

    /// Signals an open watch when it is to break.
    pub fn breaks(&self) -> watch::Receiver<Option<Break>> {
        let mut receiver = self.breaks.subscribe();
        receiver.mark_unchanged();
        receiver
    }

    /// Whether this request is to fail; uses one count up.
    pub fn strike(&mut self, method: &str, path: &str) -> Option<u16> {
        let hit = self.rules.iter_mut().find(|rule| {
            rule.count > 0
                && rule.method.as_deref().is_none_or(|m| m == method)
                && rule.path.as_deref().is_none_or(|p| path.contains(p))
        })?;
        hit.count -= 1;
        let code = hit.code;
        self.rules.retain(|rule| rule.count > 0);
        Some(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_strikes_matching_requests_as_often_as_it_says() {
        let mut faults = Faults::default();
        faults.add(Fault::next(2, 503).method("PATCH").path("/helmreleases"));
        assert_eq!(faults.strike("GET", "/x/helmreleases"), None);
        assert_eq!(faults.strike("PATCH", "/x/secrets"), None);
        assert_eq!(faults.strike("PATCH", "/x/helmreleases"), Some(503));
        assert_eq!(faults.strike("PATCH", "/x/helmreleases/a"), Some(503));
        assert_eq!(faults.strike("PATCH", "/x/helmreleases"), None);
    }
}
