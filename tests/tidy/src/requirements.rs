//! Requirement ids of the Sparkplug specification that are cited beside code and tests.
//!
//! A cited id that does not exist is a typing error that would hide a missing requirement.

use crate::Finding;
use crate::rust_text::is_word;
use crate::tree::SourceFile;
use std::collections::BTreeSet;

/// How every id begins.
const PREFIX: &str = "tck-id-";

/// The ids in a text, each with its line.
#[must_use]
pub fn ids(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (at, _) in line.match_indices(PREFIX) {
            let id: String = line[at..].chars().take_while(|c| is_word(*c) || *c == '-').collect();
            // The prefix alone is how prose speaks of the ids.
            if id.len() > PREFIX.len() {
                found.push((number + 1, id.trim_end_matches('-').to_owned()));
            }
        }
    }
    found
}

/// The ids that a list names, one or more a line.
#[must_use]
pub fn known(lists: &[&SourceFile]) -> BTreeSet<String> {
    lists.iter().flat_map(|list| ids(&list.text)).map(|(_, id)| id).collect()
}

/// Checks that every id that a file cites is known.
#[must_use]
pub fn check(file: &SourceFile, known: &BTreeSet<String>) -> Vec<Finding> {
    let unknown = ids(&file.text).into_iter().filter(|(_, id)| !known.contains(id));
    unknown
        .map(|(line, id)| Finding::at(&file.path, line, format!("{id} is not a requirement of the specification")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_not_listed_is_found() {
        let known = known(&[&SourceFile::new("list.tsv", concat!("tck", "-id-topics-nbirth-qos\tMUST be 0\n"))]);
        let text = concat!("// tck", "-id-topics-nbirth-qos, tck", "-id-topics-nbirth-qso.\n// all tck", "-id-* ids\n");
        let findings = check(&SourceFile::new("x.rs", text), &known);
        assert_eq!(findings.len(), 1);
        assert!(
            findings[0].to_string().starts_with(concat!("x.rs:1: tck", "-id-topics-nbirth-qso is not")),
            "{}",
            findings[0]
        );
    }
}
