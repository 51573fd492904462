//! When a member asks for other certificates: a function of how long they live.

/// Of when until when a certificate is valid, UTC ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValidityPeriod {
    /// Its beginning.
    pub from_ms: u64,
    /// Its end.
    pub until_ms: u64,
}

impl ValidityPeriod {
    /// When that share of its validity is over, UTC ms.
    #[must_use]
    pub const fn share_over_ms(self, percent: u8) -> u64 {
        let life_ms = self.until_ms.saturating_sub(self.from_ms);
        self.from_ms.saturating_add(life_ms / 100 * percent as u64)
    }
}

/// True if one of the certificates is to be renewed. Without certificates nothing is.
#[must_use]
pub(crate) fn is_due(certificates: &[ValidityPeriod], percent: u8, wall_ms: u64) -> bool {
    certificates.iter().any(|certificate| wall_ms >= certificate.share_over_ms(percent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_has_lived_its_share_decides() {
        let validity = |from_ms, until_ms| ValidityPeriod { from_ms, until_ms };
        let certificates = [validity(1_000, 10_000), validity(2_000, 5_000)];
        assert!(!is_due(&certificates, 66, 3_979));
        assert!(is_due(&certificates, 66, 3_980));
        assert!(is_due(&certificates, 0, 2_000) && is_due(&certificates[..1], 66, u64::MAX));
        assert!(!is_due(&[], 0, u64::MAX));
        assert!(is_due(&[validity(9, 1)], 66, 9), "one that ends before it begins is of no use");
    }
}
