//! The rules of the repository that a compiler does not check, as functions from text to findings.
//!
//! | module | rule |
//! |---|---|
//! | [`arrows`] | which package may import which; what pure packages may pull in |
//! | [`circles`] | files and top-level modules of a package that need each other: which lie on circles |
//! | [`ratchet`] | numbers that only fall: circles, private English, long sentences |
//! | [`sentences`] | sentences of comments and Markdown |
//! | [`manifests`] | versions and lints only in the root `Cargo.toml`; duplicate dependencies only fall |
//! | [`purity`] | no async, clock, socket, file, thread or randomness in pure code |
//! | [`mod@reference`] | every metric name of a contract is documented |
//! | [`dashboard`] | every number of the Grafana example is given by a service |
//! | [`rooms`] | every service has the same files |
//! | [`docs`] | module docs, links and paths in Markdown, decision numbers, CHANGELOG |
//! | [`words`] | folder names that say nothing, work marks without an owner, commented-out code |
//! | [`functions`] | long functions say why |
//! | [`requirements`] | requirement ids cited in code exist |
//!
//! `tests/repository.rs` applies each to the repository. Each module's own tests apply it to a small sample that breaks
//! the rule, so that none of them is a check that cannot fail. The functions must not touch the disk: [`tree`] reads it.
#![warn(missing_docs)]

pub mod arrows;
pub mod circles;
pub mod dashboard;
pub mod docs;
pub mod functions;
pub mod manifests;
pub mod named_tests;
pub mod purity;
pub mod ratchet;
pub mod reference;
pub mod requirements;
pub mod rooms;
pub mod rust_text;
pub mod sentences;
pub mod tree;
pub mod words;

use std::fmt;

/// A place where a rule is broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the root of the repository, or the name of a package.
    pub place: String,
    /// Line, from 1; 0 if the whole place is meant.
    pub line: usize,
    /// What is wrong and what to do.
    pub message: String,
}

impl Finding {
    /// A finding about a line.
    pub fn at(place: &str, line: usize, message: impl Into<String>) -> Self {
        Self { place: place.to_owned(), line, message: message.into() }
    }

    /// A finding about a whole file, folder or package.
    pub fn of(place: &str, message: impl Into<String>) -> Self {
        Self::at(place, 0, message)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.place, self.message),
            line => write!(f, "{}:{line}: {}", self.place, self.message),
        }
    }
}
