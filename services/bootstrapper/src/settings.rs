//! What the state needs to know of the configuration.

use std::time::Duration;

use join_protocol::certificate::TrustAnchor;
use join_protocol::terms::{Role, Suite};

/// Of one host.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Quarantine group of the cluster.
    pub group: String,
    /// Whom the host believes.
    pub anchor: TrustAnchor,
    /// The wall clock is believed, once it was set.
    pub clock_believed: bool,
    /// What the host wants to be.
    pub role: Role,
    /// Suites that it speaks, the preferred first.
    pub suites: Vec<Suite>,
    /// Its distribution, for people.
    pub distribution: &'static str,
    /// Version of the software.
    pub version: String,
    /// How long a kind rests after work before the lock failed.
    pub retry: Duration,
    /// How long a member asks for the key of its disk before it takes the second one, from its TPM. None: it never does.
    pub local_unlock_after: Option<Duration>,
    /// How long it may take from a ticket to the lock.
    pub lock_within: Duration,
    /// How long it may take from the lock until the host is a member.
    pub member_within: Duration,
    /// How long a failure can be read before the host reboots.
    pub reboot_after: Duration,
    /// How long a member keeps answering: an issuer may have missed something.
    pub linger: Duration,
    /// How long an administrator is asked after each command.
    pub administrator_for: Duration,
    /// Share of the validity of a certificate after which it is renewed, per cent.
    pub renew_percent: u8,
}
