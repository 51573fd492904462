//! Tests that the documentation names. In every table whose last column is headed `Test`, a name in code is that of a test. A Rust file in code after it has that test.

use std::collections::{BTreeMap, BTreeSet};

use crate::Finding;
use crate::docs::code_spans;
use crate::tree::SourceFile;

/// Names of all tests of these files, with the paths of those that have one of that name.
pub type Tests = BTreeMap<String, BTreeSet<String>>;

/// Reads them.
#[must_use]
pub fn names<'a>(files: impl IntoIterator<Item = &'a SourceFile>) -> Tests {
    let mut found = Tests::new();
    for file in files {
        for name in of_file(&file.text) {
            found.entry(name).or_default().insert(file.path.clone());
        }
    }
    found
}

fn of_file(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ") {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            if std::mem::take(&mut is_test) {
                found.push(name.to_owned());
            }
        }
    }
    found
}

/// Checks the tables of one Markdown file.
#[must_use]
pub fn check(file: &SourceFile, tests: &Tests) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_table = false;
    for (number, line) in file.text.lines().enumerate() {
        let Some(cell) = line.strip_prefix('|').and_then(|row| row.trim_end().trim_end_matches('|').rsplit('|').next())
        else {
            in_table = false;
            continue;
        };
        in_table |= cell.trim() == "Test";
        if !in_table {
            continue;
        }
        let is_name = |span: &&str| span.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
        let mut named: Vec<(&str, &BTreeSet<String>)> = Vec::new();
        for span in code_spans(cell) {
            if is_name(&span) {
                match tests.get(span) {
                    Some(files) => named.push((span, files)),
                    None => findings.push(Finding::at(&file.path, number + 1, format!("there is no test `{span}`"))),
                }
            } else if span.contains('/') && span.ends_with(".rs") {
                let elsewhere = named.drain(..).filter(|(_, files)| !files.contains(span));
                findings.extend(
                    elsewhere
                        .map(|(name, _)| Finding::at(&file.path, number + 1, format!("{span} has no test `{name}`"))),
                );
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_column_of_tests_is_that_of_a_test() {
        let code =
            SourceFile::new("a/b.rs", "#[test]\nfn here() {}\n#[tokio::test]\nasync fn there() {}\nfn helper() {}\n");
        let tests = names([&code]);
        let table = "| Threat | Test |\n|---|---|\n| `x` | `here`, `there` in `a/b.rs`, `here` in `a/c.rs` |\n| y | `helper` |\n\n| Name | Value |\n|---|---|\n| a | `b` |\n";
        let found: Vec<String> =
            check(&SourceFile::new("a.md", table), &tests).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["a.md:3: a/c.rs has no test `here`", "a.md:4: there is no test `helper`"]);
    }
}
