//! The text of a model: lines, terms, and which lines a variant changes.

use std::collections::BTreeSet;

/// A term as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// A name or a variable.
    Word(String),
    /// A function of terms.
    Call(String, Vec<Written>),
}

/// A model's text is against a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelError(pub String);

impl ModelError {
    /// With the line's number, counted from 1.
    #[must_use]
    pub fn at(line: usize, rule: impl std::fmt::Display) -> Self {
        Self(format!("line {line}: {rule}"))
    }
}

/// A line that is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its number, counted from 1.
    pub number: usize,
    /// Its first word.
    pub keyword: String,
    /// What follows.
    pub rest: String,
}

/// The lines that are in force when these variants are on. `!NAME line` replaces the line above it, `+NAME line` is added.
///
/// # Errors
/// A replacement stands above the first line.
pub fn lines(text: &str, variants: &BTreeSet<&str>) -> Result<Vec<Line>, ModelError> {
    let mut lines: Vec<Line> = Vec::new();
    // Where the line that a replacement replaces begins.
    let mut replaceable = None;
    for (at, raw) in text.lines().enumerate() {
        let number = at + 1;
        let content = raw.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        let (mark, content) = match content.split_at(1) {
            (mark @ ("!" | "+"), rest) => (mark, rest),
            _ => ("", content),
        };
        let (name, content) = if mark.is_empty() {
            ("", content)
        } else {
            content.split_once(' ').map_or((content, ""), |(name, rest)| (name, rest.trim()))
        };
        if !mark.is_empty() && !variants.contains(name) {
            continue;
        }
        match mark {
            "!" => lines.truncate(replaceable.ok_or_else(|| ModelError::at(number, "replaces no line"))?),
            "+" => {}
            _ => replaceable = Some(lines.len()),
        }
        if !content.is_empty() {
            let (keyword, rest) = content.split_once(' ').unwrap_or((content, ""));
            lines.push(Line { number, keyword: keyword.to_owned(), rest: rest.trim().to_owned() });
        }
    }
    Ok(lines)
}

struct Parser<'a> {
    rest: &'a str,
    number: usize,
}

/// Terms with commas between them.
///
/// # Errors
/// The text is not a list of terms.
pub fn terms(text: &str, number: usize) -> Result<Vec<Written>, ModelError> {
    let mut parser = Parser { rest: text.trim(), number };
    if parser.rest.is_empty() {
        return Ok(Vec::new());
    }
    let terms = parser.list()?;
    if parser.rest.is_empty() { Ok(terms) } else { Err(parser.error()) }
}

impl Parser<'_> {
    fn error(&self) -> ModelError {
        ModelError::at(self.number, format!("cannot read {:?}", self.rest))
    }

    fn takes(&mut self, mark: char) -> bool {
        self.rest = self.rest.trim_start();
        self.rest.strip_prefix(mark).is_some_and(|rest| {
            self.rest = rest;
            true
        })
    }

    fn list(&mut self) -> Result<Vec<Written>, ModelError> {
        let mut terms = vec![self.term()?];
        while self.takes(',') {
            terms.push(self.term()?);
        }
        Ok(terms)
    }

    fn term(&mut self) -> Result<Written, ModelError> {
        self.rest = self.rest.trim_start();
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '/');
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() {
            return Err(self.error());
        }
        self.rest = rest;
        let word = word.to_owned();
        if !self.takes('(') {
            return Ok(Written::Word(word));
        }
        let arguments = self.list()?;
        if self.takes(')') { Ok(Written::Call(word, arguments)) } else { Err(self.error()) }
    }
}
