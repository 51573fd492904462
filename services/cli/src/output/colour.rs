//! Colours of words that say how something stands. A colour repeats what the word says, and is never all there is.

use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{AnsiColor, Style};

/// No colour.
pub const PLAIN: Style = Style::new();
/// The header of a table.
pub const HEADER: Style = Style::new().bold();

const GOOD: Style = AnsiColor::Green.on_default();
const WORKING: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default();

static SHOWN: AtomicBool = AtomicBool::new(false);

/// Finds out whether standard output shows colours: it is a terminal that can, and neither `NO_COLOR` nor `CLICOLOR=0` is set; `CLICOLOR_FORCE` shows them elsewhere, too.
pub fn detect() {
    let choice = anstream::AutoStream::choice(&std::io::stdout());
    SHOWN.store(choice != anstream::ColorChoice::Never, Ordering::Relaxed);
}

/// Whether colours are shown; never before [`detect`].
#[must_use]
pub fn is_shown() -> bool {
    SHOWN.load(Ordering::Relaxed)
}

/// The colour of a cell in a column of that title.
#[must_use]
pub fn of_cell(title: &str, cell: &str) -> Style {
    match title {
        "SETUP" | "EDGE" | "FLUX" | "STATE" | "READY" | "HEALTH" | "MEMBER" => of_word(cell),
        "ALERTS" if cell != "0" => BAD,
        _ => PLAIN,
    }
}

fn of_word(word: &str) -> Style {
    match word.strip_suffix(" (simulated)").unwrap_or(word) {
        "ready" | "alive" | "applied" | "yes" | "member" | "good" | "true" => GOOD,
        "failed" | "refused" | "away" | "no" | "locked-out" | "locked out" | "revoked" | "attention" | "false" => BAD,
        "" => PLAIN,
        _ => WORKING,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_columns_that_say_how_something_stands_are_coloured() {
        for (title, cell, style) in [
            ("STATE", "applied", GOOD),
            ("EDGE", "alive (simulated)", GOOD),
            ("EDGE", "not yet", WORKING),
            ("SETUP", "refused", BAD),
            ("ALERTS", "0", PLAIN),
            ("ALERTS", "3", BAD),
            ("NAME", "failed", PLAIN),
            ("READY", "", PLAIN),
        ] {
            assert_eq!(of_cell(title, cell), style, "{title} {cell}");
        }
    }

    #[test]
    fn nothing_is_coloured_that_was_not_asked_for() {
        assert!(!is_shown(), "no test of this program detects a terminal");
    }
}
