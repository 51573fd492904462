//! Printing for people and programs: tables, JSON, YAML. Pure formatting; knows nothing of Sparkplug.

use std::io::Write as _;

use serde_json::Value;

use crate::arguments::OutputForm;

/// A table with a header; cells are plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.header.len(), String::new());
        self.rows.push(row);
    }

    /// The table as lines, columns aligned, no trailing blanks.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let widths: Vec<usize> = (0..self.header.len())
            .map(|column| {
                let cells = self.rows.iter().map(|row| row[column].chars().count());
                cells.chain([self.header[column].chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let line = |cells: Vec<&str>| {
            let padded = cells.iter().zip(&widths).map(|(cell, width)| {
                let pad = width - cell.chars().count();
                format!("{cell}{}", " ".repeat(pad))
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let header = line(self.header.clone());
        let rows = self.rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
        std::iter::once(header).chain(rows).collect()
    }

    /// Number of rows below the header.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Prints `table` for people, `value` for programs.
///
/// # Errors
/// Standard output cannot be written, or YAML cannot hold the value.
pub fn print(form: OutputForm, table: impl FnOnce() -> Vec<String>, value: &Value) -> anyhow::Result<()> {
    let text = match form {
        OutputForm::Table => table().join("\n"),
        OutputForm::Json => serde_json::to_string_pretty(value)?,
        OutputForm::Yaml => yaml(value)?,
    };
    print_text(&text)
}

/// Prints text, whatever the form of the output.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_text(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()) {
        // `sparkfleet ... | head` closes the pipe when it has enough; that is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// A value as YAML.
///
/// # Errors
/// The value cannot be written as YAML.
pub fn yaml(value: &Value) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(value)?)
}

/// A moment (UTC ms) as text of second precision.
#[must_use]
pub fn moment(ms: u64) -> String {
    let stamp = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    stamp.map_or_else(|| format!("{ms} ms"), |t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// How long ago `since` lies before `now` (both UTC ms), in its two largest units.
#[must_use]
pub fn age(since: u64, now: u64) -> String {
    let s = now.saturating_sub(since) / 1000;
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{:02}h", s / 86_400, s % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["NAME", "STATE"]);
        table.row(["Paint_Shop", "ready"]);
        table.row(["B"]);
        assert_eq!(table.lines(), ["NAME        STATE", "Paint_Shop  ready", "B"]);
    }

    #[test]
    fn ages_have_two_units() {
        let cases = [(0, "0s"), (59_999, "59s"), (61_000, "1m01s"), (3_661_000, "1h01m"), (90_000_000, "1d01h")];
        for (ms, text) in cases {
            assert_eq!(age(1_000, 1_000 + ms), text);
        }
    }

    #[test]
    fn an_age_of_the_future_is_zero() {
        assert_eq!(age(5_000, 1_000), "0s");
    }
}
