//! Prose: paragraphs of comments and Markdown, their sentences, long ones, and Markdown with one sentence a line.
//!
//! Tables, code, headings, quotations, HTML and link definitions are left out. A sentence ends with `.`, `?` or `!` before a blank and a letter that begins another; what ends an abbreviation (`e.g.`) does not.

use crate::rust_text::split;
use std::collections::BTreeMap;

/// Whether a Markdown file has one sentence a line. The changelog has one entry a line.
#[must_use]
pub fn has_sentences(path: &str) -> bool {
    !path.ends_with("CHANGELOG.md")
}

/// Longest sentence, words.
pub const WORDS_MAX: usize = 30;

/// Ends of words that look like the end of a sentence.
const ABBREVIATIONS: &[&str] = &["e.g.", "i.e.", "etc.", "vs.", "cf.", "approx.", "No.", "..."];

/// A paragraph, its lines joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paragraph {
    /// Its first line, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
}

/// The sentences of a paragraph.
#[must_use]
pub fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut begin = 0;
    let mut in_code = false;
    for (at, c) in text.char_indices() {
        in_code ^= c == '`';
        let ends = matches!(c, '.' | '?' | '!') && !in_code;
        let rest = &text[at + c.len_utf8()..];
        // What closes a sentence's end belongs to it.
        let closing = rest.len() - rest.trim_start_matches([')', '"', '*', '_']).len();
        let Some(next) = rest[closing..].strip_prefix(' ').filter(|_| ends) else { continue };
        let end = at + c.len_utf8() + closing;
        let word = text[begin..=at].rsplit([' ', '(']).next().unwrap_or_default();
        let begins = next.chars().next().is_some_and(|c| c.is_uppercase() || "`[*_\"(<".contains(c));
        let is_number = word.len() > 1
            && word[..word.len() - 1].chars().all(|c| c.is_ascii_digit())
            && begin == at + 1 - word.len();
        if begins && !is_number && !ABBREVIATIONS.iter().any(|short| word.ends_with(short)) {
            found.push(text[begin..end].trim());
            begin = end;
        }
    }
    found.push(text[begin..].trim());
    found.retain(|sentence| !sentence.is_empty());
    found
}

/// Its number of words. A table's cell or a picture is none: words are separated by blanks and hold a letter.
#[must_use]
pub fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).count()
}

/// The paragraphs of a Rust file's comments.
#[must_use]
pub fn of_rust(text: &str) -> Vec<Paragraph> {
    let comments = split(text).comments;
    let lines = comments.lines().map(|line| {
        let line = line.trim();
        line.strip_prefix("//").map(|line| line.trim_start_matches(['/', '!']).trim())
    });
    of_lines(lines)
}

/// The paragraphs of a Markdown file.
#[must_use]
pub fn of_markdown(text: &str) -> Vec<Paragraph> {
    of_lines(text.lines().map(|line| Some(line.trim())))
}

/// What begins a block of its own.
fn marker(line: &str) -> usize {
    let bullet =
        ["- [ ] ", "- [x] ", "- ", "* ", "+ "].iter().find(|mark| line.starts_with(**mark)).map(|mark| mark.len());
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number = (digits > 0 && line[digits..].starts_with(". ")).then_some(digits + 2);
    bullet.or(number).unwrap_or(0)
}

/// Whether a line is something else than prose.
fn is_other(line: &str) -> bool {
    let is_definition = line.starts_with('[') && line.contains("]: ");
    line.is_empty() || line.starts_with(['#', '|', '<', '=', '>']) || line.starts_with("---") || is_definition
}

fn of_lines<'a>(lines: impl Iterator<Item = Option<&'a str>>) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let (mut open, mut fenced) = (false, false);
    for (at, line) in lines.enumerate() {
        let Some(line) = line else {
            open = false;
            continue;
        };
        if line.starts_with("```") || line.starts_with("~~~") {
            (fenced, open) = (!fenced, false);
        } else if fenced || is_other(line) {
            open = false;
        } else {
            let begins = marker(line);
            match found.last_mut().filter(|_| open && begins == 0) {
                Some(paragraph) => {
                    paragraph.text.push(' ');
                    paragraph.text.push_str(line);
                }
                None => found.push(Paragraph { line: at + 1, text: line[begins..].to_owned() }),
            }
            open = true;
        }
    }
    found
}

/// The text of a Markdown file with one sentence a line; what is not prose stays as it is.
#[must_use]
pub fn one_a_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut block: Option<(String, String)> = None;
    let (mut fenced, mut front) = (false, false);
    let flush = |block: &mut Option<(String, String)>, out: &mut String| {
        let Some((lead, prose)) = block.take() else { return };
        // Lines after the first are indented as far as the text of a list item.
        let next = " ".repeat(lead.chars().count());
        for (at, sentence) in sentences(&prose).into_iter().enumerate() {
            out.push_str(if at == 0 { lead.as_str() } else { next.as_str() });
            out.push_str(sentence);
            out.push('\n');
        }
    };
    for (at, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        let indent = line.len() - line.trim_start().len();
        let fence = trimmed.starts_with("```") || trimmed.starts_with("~~~");
        if trimmed == "---" && (at == 0 || front) {
            front = at == 0;
        }
        let is_code = indent >= 4 && block.is_none();
        // Two blanks or a backslash at the end are a line break of Markdown.
        let has_break = line.ends_with("  ") || line.ends_with('\\');
        if fence || fenced || front || is_other(trimmed) || is_code || has_break {
            flush(&mut block, &mut out);
            fenced ^= fence;
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let begins = marker(trimmed);
        match block.as_mut().filter(|_| begins == 0) {
            Some((_, prose)) => {
                prose.push(' ');
                prose.push_str(trimmed);
            }
            None => {
                flush(&mut block, &mut out);
                let lead = format!("{}{}", &line[..indent], &trimmed[..begins]);
                block = Some((lead, trimmed[begins..].to_owned()));
            }
        }
    }
    flush(&mut block, &mut out);
    out
}

/// The lines of a Markdown file that [`one_a_line`] would write otherwise, from 1.
#[must_use]
pub fn crowded(text: &str) -> Vec<usize> {
    let wrapped = one_a_line(text);
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for line in wrapped.lines() {
        *left.entry(line).or_default() += 1;
    }
    let mut is_other = |line: &str| match left.get_mut(line) {
        Some(times) if *times > 0 => {
            *times -= 1;
            false
        }
        _ => true,
    };
    text.lines().enumerate().filter(|(_, line)| is_other(line)).map(|(at, _)| at + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_where_another_begins() {
        let text = "Write `a.b. C` once (e.g. Here). Then (see 1.2) go on! `Next` is one. **Done.** 4. Not one.";
        let expected =
            ["Write `a.b. C` once (e.g. Here).", "Then (see 1.2) go on!", "`Next` is one.", "**Done.** 4.", "Not one."];
        assert_eq!(sentences(text), expected);
        assert_eq!(words("a b-c, 4 -> d"), 3);
    }

    #[test]
    fn comments_are_joined_and_code_is_left_out() {
        let text = "/// One\n/// two.\n///\n/// ```\n/// code here\n/// ```\nfn f() {} // three\n//! | a | b |\n";
        let texts: Vec<_> = of_rust(text).into_iter().map(|paragraph| (paragraph.line, paragraph.text)).collect();
        assert_eq!(texts, [(1, "One two.".to_owned()), (7, "three".to_owned())]);
    }

    #[test]
    fn every_sentence_gets_a_line_and_everything_else_stays() {
        let text = "# A. B\n\nOne. Two\nthree. Four.\n\n- Five. Six\n  seven.\n  - Eight. Nine.\n1. Ten. Eleven.\n\n| a. B | c |\n\n```\nX. Y\n```\n";
        let expected = "# A. B\n\nOne.\nTwo three.\nFour.\n\n- Five.\n  Six seven.\n  - Eight.\n    Nine.\n1. Ten.\n   Eleven.\n\n| a. B | c |\n\n```\nX. Y\n```\n";
        assert_eq!(one_a_line(text), expected);
        assert_eq!(one_a_line(expected), expected, "twice is once");
        assert_eq!((crowded(text).len(), crowded(expected).len()), (6, 0));
    }
}
