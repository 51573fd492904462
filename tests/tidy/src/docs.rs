//! Documentation that can rot: module docs, Markdown links and paths, decision numbers, the CHANGELOG.

use crate::Finding;
use crate::tree::SourceFile;
use std::collections::{BTreeMap, BTreeSet};

/// A Rust file longer than this begins with a module doc.
const LINES_WITHOUT_DOC: usize = 50;

/// Checks that a Rust file of some length says what it knows.
#[must_use]
pub fn check_module_doc(file: &SourceFile) -> Vec<Finding> {
    let lines = file.text.lines().count();
    let first = file.text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("#!"));
    let documented = first.is_some_and(|line| line.starts_with("//!") || line.starts_with("/*!"));
    if lines > LINES_WITHOUT_DOC && !documented {
        return vec![Finding::of(
            &file.path,
            format!("has {lines} lines and no module doc: say what it knows and what it must not know"),
        )];
    }
    Vec::new()
}

/// Checks the links and the paths in code spans of one Markdown file. `anchors` holds those of every Markdown file.
#[must_use]
pub fn check_links(
    file: &SourceFile,
    paths: &BTreeSet<String>,
    anchors: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in prose(&file.text) {
        let without_code = without_code_spans(text);
        for target in targets(&without_code) {
            findings.extend(check_target(file, line, &target, paths, anchors));
        }
        for span in code_spans(text) {
            if is_path_of_ours(span) && !paths.contains(span.trim_end_matches('/')) {
                findings.push(Finding::at(&file.path, line, format!("`{span}` does not exist")));
            }
        }
    }
    findings
}

fn check_target(
    file: &SourceFile,
    line: usize,
    target: &str,
    paths: &BTreeSet<String>,
    anchors: &BTreeMap<String, BTreeSet<String>>,
) -> Option<Finding> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let resolved = if path.is_empty() { Some(file.path.clone()) } else { resolve(folder, path) };
    let Some(resolved) = resolved.filter(|path| path.is_empty() || paths.contains(path)) else {
        return Some(Finding::at(&file.path, line, format!("link to {target}: no such file")));
    };
    // Anchors are known of Markdown only.
    let known = anchors.get(&resolved)?;
    let missing = anchor.filter(|anchor| !known.contains(*anchor))?;
    Some(Finding::at(&file.path, line, format!("link to {target}: {resolved} has no heading #{missing}")))
}

/// The path from the root of the repository; none if it leaves the repository.
fn resolve(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = if path.starts_with('/') { Vec::new() } else { folder.split('/').collect() };
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.retain(|part| !part.is_empty());
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    parts.retain(|part| !part.is_empty());
    Some(parts.join("/"))
}

/// The lines outside fenced code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let trimmed = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => return Some((number + 1, line)),
            _ => {}
        }
        None
    })
}

/// The text between pairs of back-ticks of one line.
pub(crate) fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split('`').count();
    line.split('`').enumerate().filter(move |(at, _)| at % 2 == 1 && at + 1 < parts).map(|(_, span)| span)
}

fn without_code_spans(line: &str) -> String {
    let parts = line.split('`').count();
    let outside = |(at, part): (usize, &str)| {
        if at % 2 == 1 && at + 1 < parts { " ".repeat(part.len()) } else { part.to_owned() }
    };
    line.split('`').enumerate().map(outside).collect::<Vec<_>>().join("`")
}

/// What the links of a line point to: `[text](target "title")`, `![image](target)` and `[label]: target`.
fn targets(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("](") {
        let rest = &line[at + 2..];
        let target = match rest.strip_prefix('<') {
            Some(bracketed) => bracketed.split('>').next(),
            None => rest.split([')', ' ']).next(),
        };
        found.extend(target.map(str::to_owned));
    }
    if let Some((label, target)) = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "))
        && !label.contains(']')
    {
        found.extend(target.split_whitespace().next().map(str::to_owned));
    }
    found.retain(|target| !target.is_empty());
    found
}

/// True for a code span that names a file or folder of this repository.
fn is_path_of_ours(span: &str) -> bool {
    const TOP: &[&str] =
        &["services", "sparkplug", "tests", "docs", "proto", "configdb-schema", "compose", "helm", "bench", "fuzz"];
    let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let names_file = span.rsplit('/').next().is_some_and(|name| name.contains('.')) || span.ends_with('/');
    let top = span.split_once('/').map(|(top, _)| top);
    plain && names_file && !span.contains("NNNN") && top.is_some_and(|top| TOP.contains(&top))
}

/// The anchors of one Markdown file, as GitHub makes them.
#[must_use]
pub fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() < line.len() && line.len() - heading.len() <= 6 && heading.starts_with(' ') {
            let slug = slug(heading.trim().trim_end_matches('#').trim());
            let numbered = (1..).map(|number| format!("{slug}-{number}"));
            let free = std::iter::once(slug.clone()).chain(numbered).find(|slug| !found.contains(slug));
            found.extend(free);
        }
        for mark in ["id=\"", "name=\""] {
            found.extend(
                line.match_indices(mark)
                    .filter_map(|(at, _)| line[at + mark.len()..].split('"').next())
                    .map(str::to_owned),
            );
        }
    }
    found
}

fn slug(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    // A link in a heading counts with its text only.
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let kept = text.to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Checks that decision records are numbered from 0001 without a gap and without doubles.
#[must_use]
pub fn check_decisions(paths: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut numbers: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for path in paths {
        let Some(name) = path.strip_prefix("docs/decisions/").filter(|name| name.ends_with(".md")) else { continue };
        match name.split_once('-').filter(|(number, _)| number.len() == 4).and_then(|(number, _)| number.parse().ok()) {
            Some(number) => numbers.entry(number).or_default().push(path),
            None if name == "README.md" => {}
            None => findings.push(Finding::of(path, "a decision is named NNNN-what-was-decided.md")),
        }
    }
    let last = numbers.keys().next_back().copied().unwrap_or_default();
    for number in 1..=last {
        match numbers.get(&number).map(Vec::as_slice) {
            None => findings.push(Finding::of("docs/decisions", format!("there is no decision {number:04}"))),
            Some([first, second, ..]) => findings.push(Finding::of(second, format!("has the number of {first}"))),
            Some(_) => {}
        }
    }
    findings
}

/// Checks that the CHANGELOG has a place for what is not released.
#[must_use]
pub fn check_changelog(text: Option<&str>) -> Vec<Finding> {
    let has_section = text.is_some_and(|text| text.lines().any(|line| line.trim() == "## [Unreleased]"));
    if has_section { Vec::new() } else { vec![Finding::of("CHANGELOG.md", "has no section \"## [Unreleased]\"")] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_long_file_without_module_doc_is_found() {
        let long = "fn f() {}\n".repeat(51);
        assert_eq!(check_module_doc(&SourceFile::new("x.rs", &long)).len(), 1);
        assert!(check_module_doc(&SourceFile::new("x.rs", &format!("#![warn(x)]\n\n//! Doc.\n{long}"))).is_empty());
        assert!(check_module_doc(&SourceFile::new("x.rs", "fn f() {}\n")).is_empty());
    }

    #[test]
    fn broken_links_are_found_and_good_ones_are_not() {
        let text = "# Top\n[a](guide.md) [b](guide.md#set-up-1) [c](#top) ![d](../README.md \"t\") [e](https://x/y) [f](/docs)\n\
                    [g](missing.md) [h](guide.md#nowhere) [i](../../out.md) `[j](code.md)`\n\n[k]: gone.md\n```\n[l](fenced.md)\n```\n";
        let file = SourceFile::new("docs/index.md", text);
        let paths = set(&["docs", "docs/index.md", "docs/guide.md", "README.md"]);
        let known = BTreeMap::from([
            ("docs/guide.md".to_owned(), anchors("## Set up\n## Set *up*\n")),
            ("docs/index.md".to_owned(), anchors(text)),
        ]);
        let messages: Vec<_> = check_links(&file, &paths, &known).iter().map(ToString::to_string).collect();
        let expected = [
            "docs/index.md:3: link to missing.md: no such file",
            "docs/index.md:3: link to guide.md#nowhere: docs/guide.md has no heading #nowhere",
            "docs/index.md:3: link to ../../out.md: no such file",
            "docs/index.md:5: link to gone.md: no such file",
        ];
        assert_eq!(messages, expected);
    }

    #[test]
    fn paths_in_code_spans_must_exist() {
        let text = "`services/x/src/state.rs` `services/y/` `services/<name>/src/a.rs` `tests/sim` `docs/decisions/NNNN-x.md` `state.rs`\n";
        let file = SourceFile::new("ARCHITECTURE.md", text);
        assert_eq!(check_links(&file, &set(&["services/y"]), &BTreeMap::new()).len(), 1);
        assert_eq!(check_links(&file, &set(&[]), &BTreeMap::new()).len(), 2);
    }

    #[test]
    fn anchors_are_made_as_github_makes_them() {
        let found =
            anchors("# A `b` & C: d_e\n## [Link](x.md) text\n##no heading\n```\n# code\n```\n<a id=\"own\"></a>\n");
        assert_eq!(found, set(&["a-b--c-d_e", "link-text", "own"]));
    }

    #[test]
    fn decisions_with_gaps_doubles_or_odd_names_are_found() {
        let paths = set(&[
            "docs/decisions/0001-a.md",
            "docs/decisions/0003-b.md",
            "docs/decisions/0003-c.md",
            "docs/decisions/idea.md",
            "docs/decisions/README.md",
        ]);
        let messages: Vec<_> = check_decisions(&paths).iter().map(ToString::to_string).collect();
        let expected = [
            "docs/decisions/idea.md: a decision is named NNNN-what-was-decided.md",
            "docs/decisions: there is no decision 0002",
            "docs/decisions/0003-c.md: has the number of docs/decisions/0003-b.md",
        ];
        assert_eq!(messages, expected);
    }

    #[test]
    fn a_changelog_without_unreleased_section_is_found() {
        assert_eq!(check_changelog(None).len(), 1);
        assert_eq!(check_changelog(Some("# Changelog\n## [0.1.0]\n")).len(), 1);
        assert!(check_changelog(Some("# Changelog\n\n## [Unreleased]\n")).is_empty());
    }
}
