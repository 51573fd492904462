//! Numbers that only fall: what is not as it should be, counted, beside what is known of it.
//!
//! `tests/tidy/ratchets.txt` has a line `rule subject number` for each. More than the number is a finding; fewer is progress, which `cargo run -p tidy -- lower` writes down.

use crate::tree::{SourceFile, Tree};
use crate::{Finding, circles, sentences, words};
use std::collections::BTreeMap;

/// Where the known numbers are.
pub const FILE: &str = "tests/tidy/ratchets.txt";

/// Most places that a finding lists: `cargo run -p tidy -- count RULE` prints all.
const PLACES_SHOWN: usize = 20;

/// What was counted of one rule and subject (a package, a word, a file).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// Which rule.
    pub rule: &'static str,
    /// What it was counted in; without blanks.
    pub subject: String,
    /// Where: one text for each.
    pub places: Vec<String>,
}

/// Everything that is counted in the repository.
#[must_use]
pub fn counts(tree: &Tree) -> Vec<Count> {
    let ours = |file: &&SourceFile| !file.path.starts_with("tests/tidy/");
    let rust = || tree.with_extension("rs").filter(ours);
    let markdown = || tree.with_extension("md").filter(ours);
    let others = tree.files.iter().filter(ours).filter(|file| words::is_read_besides(file));
    let mut counts = words::private_english(rust().chain(markdown()).chain(others));
    let uses = circles::uses(rust());
    for (package, uses) in &uses {
        let folders = circles::top_level(uses);
        for (rule, uses) in [("circle-of-files", uses), ("circle-of-folders", &folders)] {
            let places = circles::on_circles(uses).into_iter().map(str::to_owned).collect();
            counts.push(Count { rule, subject: package.clone(), places });
        }
    }
    let long = |path: &str, paragraphs: Vec<sentences::Paragraph>| {
        let long = move |paragraph: &sentences::Paragraph| {
            sentences::sentences(&paragraph.text)
                .into_iter()
                .any(|sentence| sentences::words(sentence) > sentences::WORDS_MAX)
        };
        paragraphs.into_iter().filter(long).map(|paragraph| format!("{path}:{}", paragraph.line)).collect::<Vec<_>>()
    };
    let of_rust = rust().flat_map(|file| long(&file.path, sentences::of_rust(&file.text))).collect();
    let of_markdown = markdown().flat_map(|file| long(&file.path, sentences::of_markdown(&file.text))).collect();
    counts.push(Count { rule: "long-sentence", subject: "comments".to_owned(), places: of_rust });
    counts.push(Count { rule: "long-sentence", subject: "documentation".to_owned(), places: of_markdown });
    let crowded = markdown().filter(|file| sentences::has_sentences(&file.path)).flat_map(|file| {
        sentences::crowded(&file.text).into_iter().map(|line| format!("{}:{line}", file.path)).collect::<Vec<_>>()
    });
    let places = crowded.collect();
    counts.push(Count { rule: "several-sentences-a-line", subject: "documentation".to_owned(), places });
    counts
}

type Known = BTreeMap<(String, String), usize>;

/// Reads the known numbers.
///
/// # Errors
/// The line that cannot be read.
fn known(list: &str) -> Result<Known, Finding> {
    let lines = list.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    let read = |(number, line): (usize, &str)| {
        let parts: Vec<&str> = line.split(' ').collect();
        match parts[..] {
            [rule, subject, count] if count.parse::<usize>().is_ok() => {
                Ok(((rule.to_owned(), subject.to_owned()), count.parse().unwrap_or_default()))
            }
            _ => Err(Finding::at(FILE, number + 1, "must be `rule subject number`")),
        }
    };
    lines.map(read).collect()
}

/// Compares what was counted with the known numbers, the text of [`FILE`].
#[must_use]
pub fn check(counts: &[Count], list: &str) -> Vec<Finding> {
    let known = match known(list) {
        Ok(known) => known,
        Err(finding) => return vec![finding],
    };
    let more = counts.iter().filter_map(|Count { rule, subject, places }| {
        let allowed = known.get(&((*rule).to_owned(), subject.clone())).copied().unwrap_or(0);
        (places.len() > allowed).then(|| {
            let shown = if places.len() > PLACES_SHOWN { "; ..." } else { "" };
            let listed = places[..places.len().min(PLACES_SHOWN)].join("; ");
            let message = format!("{} instead of {allowed} ({rule}): {listed}{shown}", places.len());
            Finding::of(subject, message)
        })
    });
    more.collect()
}

/// The text of [`FILE`] with every number that has fallen. None has risen: that is a finding of [`check`].
///
/// # Errors
/// A line of the present text cannot be read.
pub fn lowered(counts: &[Count], list: &str) -> Result<String, Finding> {
    let known = known(list)?;
    let mut text: String = list.lines().filter(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    for ((rule, subject), number) in known {
        let counted = counts.iter().find(|count| count.rule == rule && count.subject == subject);
        let number = number.min(counted.map_or(0, |count| count.places.len()));
        if number > 0 {
            text.push_str(&format!("{rule} {subject} {number}\n"));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(subject: &str, places: usize) -> Count {
        Count { rule: "word", subject: subject.to_owned(), places: vec!["x".to_owned(); places] }
    }

    #[test]
    fn a_number_may_fall_and_not_rise() {
        let list = "# why\nword nobody 3\n";
        assert!(check(&[count("nobody", 3)], list).is_empty());
        assert!(check(&[count("nobody", 2)], list).is_empty());
        assert_eq!(check(&[count("nobody", 4)], list).len(), 1);
        assert_eq!(check(&[count("somebody", 1)], list).len(), 1, "what is not listed is zero");
        assert_eq!(check(&[], "word nobody\n").len(), 1);
    }

    #[test]
    fn what_has_fallen_is_written_down_and_what_is_gone_leaves() {
        let list = "# why\nword a 3\nword b 2\nword c 1\n";
        let counts = [count("a", 1), count("b", 5)];
        assert_eq!(lowered(&counts, list).unwrap(), "# why\nword a 1\nword b 2\n");
    }
}
