//! How rows are shown: once, in place on a terminal, or one change after the other.

use serde_json::{Value, json};

use super::Listed;
use crate::options::OutputForm;
use crate::output::page::InPlace;
use crate::output::{self, Table};

/// What was shown so far.
pub(super) struct Screen<L> {
    form: OutputForm,
    is_followed: bool,
    page: Option<InPlace>,
    /// The number of rows that were shown last.
    rows: usize,
    shown: Option<Vec<L>>,
}

impl<L: Listed> Screen<L> {
    /// Nothing shown yet.
    pub(super) fn new(form: OutputForm, is_followed: bool) -> Self {
        let page = (is_followed && InPlace::fits(form)).then(InPlace::default);
        Self { form, is_followed, page, rows: 0, shown: None }
    }

    /// The number of rows that were shown last.
    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    /// What was shown last.
    #[cfg(test)]
    pub(super) fn shown(&self) -> &[L] {
        self.shown.as_deref().unwrap_or_default()
    }

    /// Shows rows as they are at `now` (UTC ms). False: standard output has no reader any more.
    pub(super) fn show(&mut self, rows: Vec<L>, now: u64) -> anyhow::Result<bool> {
        self.rows = rows.len();
        if !self.is_followed && self.form == OutputForm::Name {
            let names: String = rows.iter().map(|row| format!("{}\n", output::visible(&row.argument()))).collect();
            return output::say(&names);
        }
        if !self.is_followed {
            output::print(self.form, || lines(self.form, &rows, now), &json!(rows))?;
            return Ok(true);
        }
        if let Some(page) = &mut self.page {
            return page.draw(&lines(self.form, &rows, now));
        }
        let text = changed(self.form, self.shown.as_deref(), &rows, now)?;
        self.shown = Some(rows);
        if text.is_empty() { Ok(true) } else { output::say(&text) }
    }
}

fn lines<L: Listed>(form: OutputForm, rows: &[L], now: u64) -> Vec<String> {
    match L::NONE {
        Some(none) if rows.is_empty() => vec![none.to_owned()],
        _ => table(form, rows, now).shown(),
    }
}

fn table<L: Listed>(form: OutputForm, rows: &[L], now: u64) -> Table {
    let mut table = L::table(rows, now);
    if form == OutputForm::Wide {
        L::widen(rows, &mut table);
    }
    table
}

/// What is different between two lists: rows that came or changed, and rows that are gone.
fn differences<L: Listed>(old: &[L], new: &[L]) -> (Vec<L>, Vec<L>) {
    let known: std::collections::BTreeMap<_, &L> = old.iter().map(|row| (row.key(), row)).collect();
    let now: std::collections::BTreeSet<_> = new.iter().map(L::key).collect();
    let set = new.iter().filter(|row| known.get(&row.key()) != Some(row)).cloned().collect();
    let gone = known.into_iter().filter(|(key, _)| !now.contains(key)).map(|(_, row)| row.clone()).collect();
    (set, gone)
}

/// The text for a list that was `old` before; None: nothing was shown.
fn changed<L: Listed>(form: OutputForm, old: Option<&[L]>, new: &[L], now: u64) -> anyhow::Result<String> {
    let (set, gone) = differences(old.unwrap_or_default(), new);
    if form == OutputForm::Name {
        let came = set.iter().map(|row| output::visible(&row.argument()));
        return Ok(came.map(|name| format!("{name}\n")).collect());
    }
    if matches!(form, OutputForm::Table | OutputForm::Wide) {
        let mut lines = match old {
            None => lines(form, new, now),
            Some(_) if set.is_empty() => Vec::new(),
            Some(_) => table(form, &set, now).shown_rows(),
        };
        lines.extend(gone.iter().map(|row| format!("{} is not listed any more", output::visible(&row.title()))));
        return Ok(lines.into_iter().map(|line| format!("{line}\n")).collect());
    }
    let set = set.iter().map(|row| json!({ "change": "set", "row": row }));
    let gone = gone.iter().map(|row| json!({ "change": "gone", "row": row }));
    let written = |value: Value| match form {
        OutputForm::Yaml => Ok(format!("{}\n", output::yaml_document(&value)?)),
        _ => Ok(format!("{}\n", output::escaped(value.to_string()))),
    };
    set.chain(gone).map(written).collect()
}

#[cfg(test)]
mod tests {
    use fleet_view::bench::{Bench, NAME};
    use fleet_view::{ClusterRow, JoiningHostRow};

    use super::*;

    fn clusters() -> Vec<ClusterRow> {
        Bench::with_cluster().fleet.clusters()
    }

    #[test]
    fn a_change_is_a_line_of_its_own_and_the_header_stands_once() {
        let first = clusters();
        let text = changed(OutputForm::Table, None, &first, 0).unwrap();
        assert!(text.starts_with("CLUSTER ") && text.lines().count() == 2, "{text}");
        assert_eq!(changed(OutputForm::Table, Some(&first), &first, 9_000).unwrap(), "", "ages are not changes");
        let away = vec![ClusterRow { alive: false, ..first[0].clone() }];
        let text = changed(OutputForm::Table, Some(&first), &away, 0).unwrap();
        assert!(text.starts_with(NAME) && text.contains(" away ") && text.lines().count() == 1, "{text}");
        let gone = changed::<ClusterRow>(OutputForm::Table, Some(&away), &[], 0).unwrap();
        assert_eq!(gone, "Paint_Shop is not listed any more\n");
    }

    #[test]
    fn a_wide_list_has_more_columns_and_names_are_those_that_other_commands_take() {
        let rows = clusters();
        let lines = lines(OutputForm::Wide, &rows, 0);
        assert!(lines[0].contains("GROUP") && lines[1].contains(&rows[0].uuid.to_string()), "{lines:#?}");
        assert_eq!(changed(OutputForm::Name, None, &rows, 0).unwrap(), format!("{NAME}\n"));
        let mut bench = Bench::with_cluster();
        bench.monitor(NAME, &["Oven_1"]);
        let alerts = bench.fleet.alerts();
        assert_eq!(changed(OutputForm::Name, None, &alerts, 0).unwrap(), format!("{NAME}/Oven_1\n"));
        let wide = table(OutputForm::Wide, &alerts, 0).lines();
        assert!(wide[0].contains("BEGAN"), "{wide:#?}");
    }

    #[test]
    fn programs_get_a_document_for_each_change() {
        let first = clusters();
        let text = changed(OutputForm::Json, None, &first, 0).unwrap();
        let line: Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!((&line["change"], &line["row"]["name"]), (&json!("set"), &json!(NAME)));
        let gone = changed::<ClusterRow>(OutputForm::Json, Some(&first), &[], 0).unwrap();
        assert!(gone.starts_with(r#"{"change":"gone","row":{"#) && gone.ends_with("}\n"), "{gone}");
        let yaml = changed(OutputForm::Yaml, None, &first, 0).unwrap();
        assert!(yaml.starts_with("---\nchange: set\n"), "{yaml}");
        assert_eq!(changed(OutputForm::Json, Some(&first), &first, 0).unwrap(), "");
    }

    #[test]
    fn where_there_is_nothing_it_is_said_and_a_name_cannot_steer_the_terminal() {
        let text = changed::<JoiningHostRow>(OutputForm::Table, None, &[], 0).unwrap();
        assert_eq!(text, "no host has proven its TPM to a join service\n");
        let hostile = vec![ClusterRow { name: "a\x1b[2Jb".to_owned(), ..clusters()[0].clone() }];
        let gone = changed::<ClusterRow>(OutputForm::Table, Some(&hostile), &[], 0).unwrap();
        assert_eq!(gone, "a\\u{1b}[2Jb is not listed any more\n");
    }
}
