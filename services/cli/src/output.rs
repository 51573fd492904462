//! Printing for people and programs: tables, JSON, YAML. Knows nothing of Sparkplug.

pub mod colour;
pub mod page;

use std::io::Write as _;

use anyhow::anyhow;
use enrolment_protocol::bootstrap::shell_word;
use serde_json::Value;
use uuid::Uuid;

use crate::options::OutputForm;
use crate::usage_error::usage;

/// Longest cell that the others of its column are aligned with: what is longer, which only others can make so, moves its own line alone.
const ALIGNED_CHARS_MAX: usize = 120;

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

    /// Adds a row; missing cells are empty. Control characters are shown as escapes: a cell can hold what a foreign node says of itself.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| visible(&cell.into())).collect();
        row.resize(self.header.len(), String::new());
        self.rows.push(row);
    }

    /// Adds a column before the last one, which may be long; missing cells are empty.
    pub fn column(&mut self, header: &'static str, cells: impl IntoIterator<Item = String>) {
        let place = self.header.len().saturating_sub(1);
        self.header.insert(place, header);
        let mut cells = cells.into_iter();
        for row in &mut self.rows {
            row.insert(place, visible(&cells.next().unwrap_or_default()));
        }
    }

    /// The table as lines, columns aligned, no trailing blanks.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.drawn(false)
    }

    /// The same, with colours where standard output shows them.
    #[must_use]
    pub fn shown(&self) -> Vec<String> {
        self.drawn(colour::is_shown())
    }

    /// The lines below the header.
    #[must_use]
    pub fn shown_rows(&self) -> Vec<String> {
        self.shown().split_off(1)
    }

    fn drawn(&self, coloured: bool) -> Vec<String> {
        let widths: Vec<usize> = (0..self.header.len())
            .map(|column| {
                let cells = self.rows.iter().map(|row| row[column].chars().count());
                let cells = cells.filter(|chars| *chars <= ALIGNED_CHARS_MAX);
                cells.chain([self.header[column].chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let line = |cells: Vec<&str>, is_header: bool| {
            let last = cells.iter().rposition(|cell| !cell.is_empty()).unwrap_or_default();
            let padded = cells.iter().take(last + 1).enumerate().map(|(at, cell)| {
                let pad = if at == last { 0 } else { widths[at].saturating_sub(cell.chars().count()) };
                let style = match (coloured, is_header) {
                    (false, _) => colour::PLAIN,
                    (true, true) => colour::HEADER,
                    (true, false) => colour::of_cell(self.header[at], cell),
                };
                format!("{style}{cell}{style:#}{}", " ".repeat(pad))
            });
            padded.collect::<Vec<_>>().join("  ")
        };
        let header = line(self.header.clone(), true);
        let rows = self.rows.iter().map(|row| line(row.iter().map(String::as_str).collect(), false));
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
    let text = text(form, table, value)?;
    if text.is_empty() && form == OutputForm::Name { Ok(()) } else { print_text(&text) }
}

/// What [`print()`] prints.
///
/// # Errors
/// YAML cannot hold the value.
pub fn text(form: OutputForm, table: impl FnOnce() -> Vec<String>, value: &Value) -> anyhow::Result<String> {
    match form {
        OutputForm::Table | OutputForm::Wide => Ok(table().join("\n")),
        OutputForm::Name => Ok(names(value)?.join("\n")),
        OutputForm::Json => json(value),
        OutputForm::Yaml => yaml(value),
    }
}

/// What a value, or each value of a list, is called by other commands: `CLUSTER/NAME` of what is on a cluster, else its name, else its UUID.
///
/// # Errors
/// With [`service_runtime::exit::USAGE`] where something has no name.
fn names(value: &Value) -> anyhow::Result<Vec<String>> {
    let text = |row: &Value, field: &str| row[field].as_str().filter(|text| !text.is_empty()).map(visible);
    let name = |row: &Value| {
        let name = text(row, "name").or_else(|| text(row, "template")).or_else(|| text(row, "uuid"));
        let named = name.map(|name| match text(row, "cluster") {
            Some(cluster) => format!("{cluster}/{name}"),
            None => name,
        });
        named.ok_or_else(|| usage(anyhow!("what this prints has no name; choose another form with --output")))
    };
    value.as_array().map_or_else(|| Ok(vec![name(value)?]), |rows| rows.iter().map(name).collect())
}

/// Prints text and ends its last line, whatever the form of the output. What is in it steers no terminal.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_text(text: &str) -> anyhow::Result<()> {
    say(&format!("{}\n", harmless(text.trim_end())))?;
    Ok(())
}

/// Writes to standard output as it is; false when it has no reader any more.
///
/// # Errors
/// Standard output cannot be written.
pub fn say(text: &str) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // `sparkfleet ... | head` closes the pipe when it has enough; that is not a failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        written => Ok(written.map(|()| true)?),
    }
}

/// A line on standard error: standard output belongs to what was asked for.
pub fn remark(text: &str) {
    progress(&format!("sparkfleet: {text}"));
}

/// A line on standard error that says how it goes.
pub fn progress(text: &str) {
    // Where even this cannot be written the command continues without it.
    let _ = writeln!(std::io::stderr(), "{}", visible(text));
}

/// Whether a character is shown as it is: neither a control character, nor the end of a line, nor a mark of writing direction.
fn is_harmless(c: char) -> bool {
    let is_of_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !is_of_direction && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// Control characters, line ends and what changes writing direction are shown as escapes.
#[must_use]
pub fn visible(text: &str) -> String {
    if text.chars().all(is_harmless) {
        return text.to_owned();
    }
    text.chars().fold(String::new(), |mut shown, c| {
        if is_harmless(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_unicode());
        }
        shown
    })
}

/// A text as one word of a command that is printed to be pasted into a shell: bare if that is plain, else quoted.
#[must_use]
pub fn shell_argument(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+,-".contains(c);
    let text = visible(text);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { shell_word(&text) }
}

/// Lines that are [`visible`], tabs and the colours of tables aside: the last guard of a terminal against what others say.
#[must_use]
pub fn harmless(text: &str) -> String {
    let cell = |text: &str| if colour::is_shown() { colour::kept(text, visible) } else { visible(text) };
    let line = |line: &str| line.split('\t').map(cell).collect::<Vec<_>>().join("\t");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// A value as JSON for programs, indented.
///
/// # Errors
/// The value cannot be written as JSON.
pub fn json(value: &Value) -> anyhow::Result<String> {
    Ok(escaped(serde_json::to_string_pretty(value)?))
}

/// A text of JSON that holds the same, with an escape for each character that is not [`visible`]. Such characters are in strings only.
#[must_use]
pub fn escaped(json: String) -> String {
    let stays = |c: char| c == '\n' || is_harmless(c);
    if json.chars().all(stays) {
        return json;
    }
    json.chars().fold(String::with_capacity(json.len()), |mut text, c| {
        if stays(c) {
            text.push(c);
        } else {
            text.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
        text
    })
}

/// A value as YAML; as JSON, which is YAML, where a text in it needs escapes.
///
/// # Errors
/// The value cannot be written as YAML.
pub fn yaml(value: &Value) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(value)?;
    if text.chars().all(|c| c == '\n' || is_harmless(c)) { Ok(text) } else { json(value) }
}

/// A value as a document of a YAML stream, without a line break at its end.
///
/// # Errors
/// As [`yaml`].
pub fn yaml_document(value: &Value) -> anyhow::Result<String> {
    Ok(format!("---\n{}", yaml(value)?.trim_end()))
}

/// A moment (UTC ms) as text of second precision.
#[must_use]
pub fn moment(ms: u64) -> String {
    fleet_view::history::export::moment(ms)
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

/// What a write has made of an entry: `created`, `changed` or `unchanged`, by its ETag before and after.
pub(crate) fn outcome(before: Option<Uuid>, after: Option<Uuid>) -> &'static str {
    match (before, after) {
        (None, Some(_)) => "created",
        (Some(before), Some(after)) if before == after => "unchanged",
        _ => "changed",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_write_made_is_known_by_its_etags() {
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(outcome(None, Some(one)), "created");
        assert_eq!(outcome(Some(one), Some(two)), "changed");
        assert_eq!(outcome(Some(one), Some(one)), "unchanged");
        assert_eq!(outcome(Some(one), None), "changed");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["NAME", "STATE"]);
        table.row(["Paint_Shop", "ready"]);
        table.row(["B"]);
        assert_eq!(table.lines(), ["NAME        STATE", "Paint_Shop  ready", "B"]);
    }

    #[test]
    fn a_column_that_is_added_stands_before_the_last_one() {
        let mut table = Table::new(&["NAME", "REASON"]);
        table.row(["Paint_Shop", "late"]);
        table.row(["B", ""]);
        table.column("GROUP", ["ACME-Paint_Shop".to_owned()]);
        assert_eq!(table.lines(), ["NAME        GROUP            REASON", "Paint_Shop  ACME-Paint_Shop  late", "B"]);
    }

    #[test]
    fn names_are_those_that_other_commands_take() {
        let rows = json!([
            { "cluster": "Paint_Shop", "name": "Oven_1", "uuid": "u" },
            { "name": "Body_Shop", "uuid": "u" },
            { "template": "Edge agent", "uuid": "u" },
            { "name": "", "uuid": "0c" },
            { "name": "a\nb" },
        ]);
        assert_eq!(names(&rows).unwrap(), ["Paint_Shop/Oven_1", "Body_Shop", "Edge agent", "0c", "a\\u{a}b"]);
        assert_eq!(names(&json!([])).unwrap(), Vec::<String>::new());
        let error = names(&json!({ "deployments": 3 })).unwrap_err();
        assert_eq!(service_runtime::exit::code_of(&error), service_runtime::exit::USAGE);
    }

    #[test]
    fn a_cell_cannot_steer_the_terminal() {
        let mut table = Table::new(&["NAME", "STATE"]);
        table.row(["a\u{1b}[2Jb\nc", "ready\u{202e}"]);
        assert_eq!(table.lines()[1], "a\\u{1b}[2Jb\\u{a}c  ready\\u{202e}");
    }

    /// Any text, with much in it that steers terminals.
    fn hostile() -> impl Strategy<Value = String> {
        let steering = [
            "\u{1b}[2J",
            "\u{9b}31m",
            "\u{1b}]0;t\u{7}",
            "\u{202e}",
            "\u{200f}",
            "\u{feff}",
            "\r",
            "\n",
            "\t",
            "\u{7f}",
            "\u{2028}",
            "\u{1b}[32m",
        ];
        let part = prop_oneof![
            proptest::sample::select(steering.to_vec()).prop_map(str::to_owned),
            "\\PC{0,4}",
            any::<String>()
        ];
        proptest::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
    }

    /// Whether a terminal that is given the text only shows it. C1 control characters steer as ESC does.
    fn only_shows(text: &str) -> bool {
        let steers = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || ('\u{202a}'..='\u{202e}').contains(&c);
        !text.contains(steers) && !text.contains(['\u{200f}', '\u{feff}', '\u{2028}'])
    }

    proptest! {
        #[test]
        fn no_text_steers_a_terminal_in_any_form_and_programs_read_it_as_it_is(texts in proptest::collection::vec(hostile(), 1..4)) {
            let value = json!({ "rows": texts, texts[0].as_str(): 1 });
            let (json, yaml) = (json(&value).unwrap(), yaml(&value).unwrap());
            prop_assert!(only_shows(&json) && only_shows(&yaml), "{json}\n{yaml}");
            prop_assert_eq!(&serde_json::from_str::<Value>(&json).unwrap(), &value);
            prop_assert_eq!(&serde_saphyr::from_str::<Value>(&yaml).unwrap(), &value, "{}", yaml);
            prop_assert!(only_shows(&harmless(&texts.concat())));
            prop_assert!(!visible(&texts.concat()).contains(['\n', '\t']));
        }

        #[test]
        fn a_table_has_a_line_a_row_and_its_columns_begin_at_one_place(rows in proptest::collection::vec((hostile(), hostile()), 0..5)) {
            let mut table = Table::new(&["FIRST", "SECOND"]);
            rows.iter().for_each(|(first, second)| table.row([first.as_str(), second.as_str()]));
            let lines = table.lines();
            prop_assert_eq!(lines.len(), rows.len() + 1);
            prop_assert!(lines.iter().all(|line| only_shows(line) && !line.contains(['\n', '\t'])));
            let place = lines[0].find("SECOND").unwrap();
            // A cell that is too long to be aligned with moves its own line.
            let is_aligned = |(first, second): &(String, String)| visible(first).chars().count() <= ALIGNED_CHARS_MAX && !second.is_empty();
            for (line, (_, second)) in lines[1..].iter().zip(&rows).filter(|(_, row)| is_aligned(row)) {
                let cell: String = line.chars().skip(place).collect();
                prop_assert_eq!(cell, visible(second));
            }
        }
    }

    #[test]
    fn a_name_is_one_word_of_the_command_that_is_pasted() {
        for plain in ["press-1", "Paint_Shop/press-1", "http://127.0.0.1:8482/", "./a.tar.gz"] {
            assert_eq!(shell_argument(plain), plain);
        }
        let quoted = [
            ("", "''"),
            ("Oven 1", "'Oven 1'"),
            ("x; reboot", "'x; reboot'"),
            ("$(reboot)", "'$(reboot)'"),
            ("~", "'~'"),
            ("it's", r"'it'\''s'"),
            ("http://[::1]/?a&b", "'http://[::1]/?a&b'"),
            ("a\nb", r"'a\u{a}b'"),
        ];
        for (text, word) in quoted {
            assert_eq!(shell_argument(text), word);
        }
    }

    #[test]
    fn one_long_cell_does_not_make_every_line_long() {
        let mut table = Table::new(&["NAME", "STATE", "REASON"]);
        table.row(["x".repeat(10_000).as_str(), "ready", ""]);
        table.row(["b", "ready", "well"]);
        let lines = table.lines();
        assert_eq!(lines[0], "NAME  STATE  REASON");
        assert!(lines[1].ends_with("x  ready") && lines[1].len() == 10_007, "{}", lines[1].len());
        assert_eq!(lines[2], "b     ready  well");
    }

    #[test]
    fn colours_are_beside_the_text_and_do_not_move_columns() {
        let mut table = Table::new(&["NAME", "STATE", "REASON"]);
        table.row(["failed", "failed", "ready"]);
        table.row(["b", "ready", ""]);
        assert_eq!(
            table.drawn(true),
            [
                "\u{1b}[1mNAME\u{1b}[0m    \u{1b}[1mSTATE\u{1b}[0m   \u{1b}[1mREASON\u{1b}[0m",
                "failed  \u{1b}[31mfailed\u{1b}[0m  ready",
                "b       \u{1b}[32mready\u{1b}[0m",
            ]
        );
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
