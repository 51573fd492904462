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

/// What switches the colours above on and off on a terminal (ECMA-48, SGR).
const SWITCHES: [&str; 5] = ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m"];

/// A text whose colours stay while the rest becomes what `shown` makes of it.
#[must_use]
pub fn kept(text: &str, shown: impl Fn(&str) -> String) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((at, switch)) = SWITCHES.iter().filter_map(|switch| Some((rest.find(switch)?, *switch))).min() {
        kept.push_str(&shown(&rest[..at]));
        kept.push_str(switch);
        rest = &rest[at + switch.len()..];
    }
    kept.push_str(&shown(rest));
    kept
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
    fn the_colours_of_tables_stay_and_nothing_else_that_steers_a_terminal() {
        for style in [HEADER, GOOD, WORKING, BAD] {
            let text = format!("{style}word{style:#} \x1b[2J\x1b[8m");
            let kept = kept(&text, crate::output::visible);
            assert_eq!(kept, format!("{style}word{style:#} \\u{{1b}}[2J\\u{{1b}}[8m"));
        }
        assert_eq!(kept("", crate::output::visible), "");
    }

    #[test]
    fn nothing_is_coloured_that_was_not_asked_for() {
        assert!(!is_shown(), "no test of this program detects a terminal");
    }
}
