//! When the cluster's certificate is renewed. Pure: the certificate's validity period and the time in, what is to be done out.

use std::time::Duration;

use enrolment_protocol::refusal::RefusalCode;

/// Longest time without a look at the Secret: someone else may have enrolled the cluster again, and clocks are set.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// Shortest time between two looks.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// From when until when a certificate is good, UTC ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValidityPeriod {
    pub begins: u64,
    pub ends: u64,
}

/// How a certificate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateStatus {
    /// Good; look again after that time.
    Good(Duration),
    /// Two thirds of its validity period are over: renew it, with itself as the way to the broker. It ends after that time.
    RenewalDue(Duration),
    /// It has ended, and opens no session any more: renew it through the quarantine group.
    Expired,
}

/// What follows from a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextAttempt {
    /// Continue to ask: an operator can approve it at any time.
    Ask,
    /// Ask again after that time; until then nothing here can change the answer.
    Pause(Duration),
}

impl ValidityPeriod {
    /// The status of the certificate at this time, UTC ms.
    #[must_use]
    pub fn status(self, now: u64) -> CertificateStatus {
        let due = self.begins.saturating_add(self.ends.saturating_sub(self.begins) / 3 * 2);
        if now >= self.ends {
            CertificateStatus::Expired
        } else if now >= due {
            CertificateStatus::RenewalDue(Duration::from_millis(self.ends - now))
        } else {
            CertificateStatus::Good(Duration::from_millis(due - now).clamp(PAUSE_MIN, LOOK_EVERY))
        }
    }

    /// What to do when the manager refuses.
    #[must_use]
    pub fn after(self, refusal: RefusalCode) -> NextAttempt {
        match refusal {
            RefusalCode::ApprovalNeeded => NextAttempt::Ask,
            // One of the two clocks is wrong.
            RefusalCode::TooEarly => {
                let validity = Duration::from_millis(self.ends.saturating_sub(self.begins));
                NextAttempt::Pause((validity / 20).clamp(PAUSE_MIN, LOOK_EVERY))
            }
            _ => NextAttempt::Pause(LOOK_EVERY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600 * 1000;

    #[test]
    fn a_certificate_is_due_when_two_thirds_of_its_life_are_over() {
        let validity = ValidityPeriod { begins: 100 * DAY, ends: 130 * DAY };
        assert_eq!(validity.status(0), CertificateStatus::Good(LOOK_EVERY), "the clock of the cluster is far behind");
        assert_eq!(validity.status(120 * DAY - 5_000), CertificateStatus::Good(Duration::from_secs(5)));
        assert_eq!(validity.status(120 * DAY - 1), CertificateStatus::Good(PAUSE_MIN));
        assert_eq!(validity.status(120 * DAY), CertificateStatus::RenewalDue(Duration::from_millis(10 * DAY)));
        assert_eq!(validity.status(130 * DAY - 1), CertificateStatus::RenewalDue(Duration::from_millis(1)));
        assert_eq!(validity.status(130 * DAY), CertificateStatus::Expired);
        let broken = ValidityPeriod { begins: 9, ends: 3 };
        assert_eq!(broken.status(5), CertificateStatus::Expired);
    }

    #[test]
    fn only_who_waits_for_an_operator_asks_on() {
        let validity = ValidityPeriod { begins: 0, ends: 60_000 };
        assert_eq!(validity.after(RefusalCode::ApprovalNeeded), NextAttempt::Ask);
        assert_eq!(validity.after(RefusalCode::TooEarly), NextAttempt::Pause(Duration::from_secs(3)));
        for code in [RefusalCode::Revoked, RefusalCode::AlreadyRenewed, RefusalCode::UnknownCertificate] {
            assert_eq!(validity.after(code), NextAttempt::Pause(LOOK_EVERY));
        }
    }
}
