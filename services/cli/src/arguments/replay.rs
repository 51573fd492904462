//! Options of the commands that speak to any Edge Nodes: `replay` and `write`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sparkplug::payload::Dialect;

use crate::options::Connection;
use crate::watch::FilterArguments;

/// `sparkfleet replay`.
#[derive(Debug, Clone, Args)]
pub struct ReplayArguments {
    /// A recording of `sparkfleet watch --record FILE`
    pub file: PathBuf,
    /// How many times as fast as it was recorded, for example 10 or 0.5; max: as fast as it goes
    #[arg(long, default_value = "1", value_parser = speed, allow_hyphen_values = true)]
    pub speed: Speed,
    /// Begin again at the end, until Ctrl-C
    #[arg(long = "loop")]
    pub repeat: bool,
    /// Put this in front of every group, so that no host takes the replay for the living nodes
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub group_prefix: String,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub filter: FilterArguments,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub connection: Connection,
}

/// How many times as fast as it was recorded; None: as fast as it goes.
pub type Speed = Option<f64>;

/// Reads a speed: a number larger than 0, or `max`.
///
/// # Errors
/// It is something else.
pub fn speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(None);
    }
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.map(Some).ok_or_else(|| "it is a number larger than 0, or max".to_owned())
}

/// `sparkfleet write`.
#[derive(Debug, Clone, Args)]
pub struct WriteArguments {
    /// GROUP/NODE, or GROUP/NODE/DEVICE
    #[arg(value_name = "GROUP/NODE[/DEVICE]")]
    pub place: String,
    /// Name of the metric, as in the birth
    pub name: String,
    /// The value: a number, true or false, a text, `[1,2,3]` for an array, hexadecimal digits for bytes, null
    #[arg(allow_hyphen_values = true)]
    pub value: String,
    /// Write also what its birth calls read-only
    #[arg(long)]
    pub force: bool,
    /// Do not wait until the node reports the value
    #[arg(long)]
    pub no_wait: bool,
    /// How the command is written: tahu, which every client reads, or strict, as the standard says
    #[arg(long, default_value_t = Dialect::Tahu, value_name = "strict|tahu")]
    pub dialect: Dialect,
    /// Give up after this time, for example 20s or 2m
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    pub timeout: Duration,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub connection: Connection,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_a_number_larger_than_0_or_max() {
        assert_eq!([speed("max"), speed("0.5")], [Ok(None), Ok(Some(0.5))]);
        for wrong in ["0", "-1", "inf", "NaN", "fast", ""] {
            assert!(speed(wrong).is_err(), "{wrong}");
        }
    }
}
