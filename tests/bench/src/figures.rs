//! Distributions and Markdown tables.

use std::io::Write;
use std::time::Duration;

/// Quantiles that are shown.
pub const HEADS: [&str; 4] = ["p50", "p90", "p99", "max"];

/// A set of measured times.
#[derive(Debug, Clone, Default)]
pub struct Distribution(Vec<Duration>);

impl Distribution {
    /// One more.
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest time that at least `per_cent` of all do not exceed; zero of nothing.
    #[must_use]
    pub fn quantile(&self, per_cent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let place = (sorted.len() * per_cent).div_ceil(100).saturating_sub(1);
        sorted.get(place).copied().unwrap_or_default()
    }

    /// The values of [`HEADS`].
    #[must_use]
    pub fn quantiles(&self) -> [Duration; 4] {
        [50, 90, 99, 100].map(|per_cent| self.quantile(per_cent))
    }
}

/// A table on standard output, row by row, so that a run that is broken off has shown what it knew.
#[derive(Debug)]
pub struct Table;

impl Table {
    /// Says `title` and what was measured, and the heads.
    pub fn begin(title: &str, about: &str, heads: &[&str]) -> Self {
        say(&format!("\n## {title}\n\n{about}\n"));
        let table = Self;
        table.row(&heads.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>());
        say(&format!("|{}", "---|".repeat(heads.len())));
        table
    }

    /// One row.
    pub fn row(&self, cells: &[String]) {
        say(&format!("| {} |", cells.join(" | ")));
    }
}

/// Writes a line to standard output.
pub fn say(line: &str) {
    // A reader that has closed standard output wants no more.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Milliseconds for the printed tables.
#[must_use]
pub fn ms(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}

/// `a / b`, or a dash.
#[must_use]
pub fn ratio(a: f64, b: f64) -> String {
    if b > 0.0 { format!("{:.2}", a / b) } else { "-".to_owned() }
}

/// What this was built with.
#[must_use]
pub const fn profile() -> &'static str {
    if cfg!(debug_assertions) { "dev profile (NOT optimised: shapes only)" } else { "optimised profile" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_values() {
        let mut times = Distribution::default();
        for ms in (1..=200).rev() {
            times.push(Duration::from_millis(ms));
        }
        assert_eq!(times.quantiles().map(|time| time.as_millis()), [100, 180, 198, 200]);
        assert_eq!(Distribution::default().quantile(50), Duration::ZERO);
    }
}
