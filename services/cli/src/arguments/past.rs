//! Options of the commands that ask the console about the past.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use configdb_schema::timestamp::from_text;
use fleet_view::history::View;

use crate::options::{ConsoleAddress, Presentation};

/// `sparkfleet events`.
#[derive(Debug, Clone, Args)]
pub struct EventsArguments {
    /// From this time on: how long ago (2h, 30m), a time (2026-01-31T08:00:00Z), or milliseconds since 1970
    #[arg(long, default_value = "24h", value_parser = moment)]
    pub since: Moment,
    /// Until this time; by default now
    #[arg(long, value_parser = moment)]
    pub until: Option<Moment>,
    /// Only of the cluster of this name
    #[arg(long)]
    pub cluster: Option<String>,
    /// As many at most, the latest ones
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// Write everything that the console has recorded of that time into a new file, for `sparkfleet up --replay`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cluster", "limit"])]
    pub export: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub address: ConsoleAddress,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub presentation: Presentation,
}

/// `sparkfleet at`.
#[derive(Debug, Clone, Args)]
pub struct AtArguments {
    /// The time: how long ago (2h, 30m), a time (2026-01-31T08:00:00Z), or milliseconds since 1970
    #[arg(value_parser = moment)]
    pub time: Moment,
    /// What to list; by default the clusters, and with --diff everything
    #[arg(value_enum)]
    pub table: Option<PastTable>,
    /// Show what was different at this second time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub diff: Option<Moment>,
    /// Only of the cluster of this name
    #[arg(long)]
    pub cluster: Option<String>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub address: ConsoleAddress,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub presentation: Presentation,
}

/// Lists that there are of the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PastTable {
    /// Edge clusters
    Clusters,
    /// Hosts
    Hosts,
    /// Deployments
    Deployments,
    /// Active alerts
    Alerts,
    /// Central services and those of clusters
    Services,
}

impl PastTable {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Clusters, Self::Hosts, Self::Deployments, Self::Alerts, Self::Services];

    /// The view of the console.
    #[must_use]
    pub const fn view(self) -> View {
        match self {
            Self::Clusters => View::Clusters,
            Self::Hosts => View::Hosts,
            Self::Deployments => View::Deployments,
            Self::Alerts => View::Alerts,
            Self::Services => View::Services,
        }
    }
}

/// A time as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// So long ago, ms.
    Ago(u64),
    /// UTC ms.
    At(u64),
}

impl Moment {
    /// The time, UTC ms, if it is `now`.
    #[must_use]
    pub const fn at(self, now: u64) -> u64 {
        match self {
            Self::Ago(ms) => now.saturating_sub(ms),
            Self::At(ms) => ms,
        }
    }
}

fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(ms) = text.parse::<u64>() {
        return Ok(Moment::At(ms));
    }
    if let Ok(ago) = humantime::parse_duration(text) {
        return Ok(Moment::Ago(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)));
    }
    from_text(text).map(Moment::At).ok_or_else(|| {
        "write how long ago (2h, 30m), a time with its zone (2026-01-31T08:00:00Z), or milliseconds since 1970"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_an_age_a_date_or_milliseconds() {
        let day = 86_400_000;
        for (text, expected) in [
            ("2h", Moment::Ago(7_200_000)),
            ("1h 30m", Moment::Ago(5_400_000)),
            ("1970-01-02T00:00:00Z", Moment::At(day)),
            ("1970-01-02T01:00:00+01:00", Moment::At(day)),
            ("86400000", Moment::At(day)),
        ] {
            assert_eq!(moment(text), Ok(expected), "{text}");
        }
        for bad in ["", "yesterday", "1970-01-02", "1969-12-31T00:00:00Z", "-5"] {
            assert!(moment(bad).unwrap_err().contains("how long ago"), "{bad}");
        }
        assert_eq!((Moment::Ago(5).at(3), Moment::Ago(5).at(8), Moment::At(9).at(3)), (0, 3, 9));
    }
}
