//! What is drawn in place on a terminal, and printed again elsewhere when it has changed.

use std::io::IsTerminal as _;
use std::time::Duration;

use serde_json::Value;

use super::{escaped, harmless, say, yaml_document};
use crate::options::OutputForm;

/// What changes within this time is shown at once.
pub const PACE: Duration = Duration::from_millis(250);

/// How often ages are counted again on a terminal.
pub const REDRAW: Duration = Duration::from_secs(1);

/// Draws lines over those that were drawn before, as many as the terminal has room for.
#[derive(Debug, Default)]
pub struct InPlace {
    drawn: bool,
}

impl InPlace {
    /// Whether output of that form is drawn in place.
    #[must_use]
    pub fn fits(form: OutputForm) -> bool {
        matches!(form, OutputForm::Table | OutputForm::Wide) && std::io::stdout().is_terminal()
    }

    /// Draws. False: standard output has no reader any more.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn draw(&mut self, lines: &[String]) -> anyhow::Result<bool> {
        let height = terminal_size::terminal_size().map(|(_, rows)| usize::from(rows.0));
        let text = drawn(lines, !self.drawn, height);
        self.drawn = true;
        say(&text)
    }
}

/// ECMA-48: the first time, the page is erased (ED). Then the cursor is set to its first place (CUP), and the rest of each line (EL) and of the page is erased. Lines that are too
/// long are cut by the terminal (DECAWM).
fn drawn(lines: &[String], is_first: bool, height: Option<usize>) -> String {
    let room = height.map_or(lines.len(), |height| height.saturating_sub(2));
    let hidden = lines.len().saturating_sub(room);
    let more = (hidden > 0).then(|| format!("... {hidden} more lines"));
    let shown = lines.iter().take(room).chain(&more).map(|line| format!("{}\x1b[K\n", harmless(line)));
    let clear = if is_first { "\x1b[2J" } else { "" };
    format!("{clear}\x1b[?7l\x1b[H{}\x1b[?7h\x1b[J", shown.collect::<String>())
}

/// A page that is shown again when it has changed.
#[derive(Debug)]
pub struct Page {
    form: OutputForm,
    in_place: Option<InPlace>,
    shown: Option<Value>,
}

impl Page {
    /// Nothing shown yet.
    #[must_use]
    pub fn new(form: OutputForm) -> Self {
        Self { form, in_place: InPlace::fits(form).then(InPlace::default), shown: None }
    }

    /// Shows the page. False: standard output has no reader any more.
    ///
    /// # Errors
    /// Standard output cannot be written, or YAML cannot hold the value.
    pub fn show(&mut self, value: &Value, lines: impl FnOnce() -> Vec<String>) -> anyhow::Result<bool> {
        if let Some(in_place) = &mut self.in_place {
            return in_place.draw(&lines());
        }
        if self.shown.as_ref() == Some(value) {
            return Ok(true);
        }
        let text = match self.form {
            OutputForm::Table | OutputForm::Wide | OutputForm::Name => {
                let apart = if self.shown.is_some() { "\n" } else { "" };
                format!("{apart}{}\n", harmless(&lines().join("\n")))
            }
            OutputForm::Json => format!("{}\n", escaped(value.to_string())),
            OutputForm::Yaml => format!("{}\n", yaml_document(value)?),
        };
        self.shown = Some(value.clone());
        say(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_terminal_is_filled_and_the_rest_counted() {
        let lines: Vec<String> = (0..5).map(|n| n.to_string()).collect();
        let text = drawn(&lines, false, Some(5));
        assert_eq!(text, "\x1b[?7l\x1b[H0\x1b[K\n1\x1b[K\n2\x1b[K\n... 2 more lines\x1b[K\n\x1b[?7h\x1b[J");
        let first = drawn(&lines, true, None);
        assert!(first.starts_with("\x1b[2J") && !first.contains("more"), "{first:?}");
    }
}
