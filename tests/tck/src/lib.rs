//! Requirements of the Sparkplug specification -> the code that obeys them and the tests that prove it.
//!
//! The specification gives each requirement an id. Code that obeys one and tests that check it cite the id in a comment. This package reads the sources of the whole
//! repository, refuses ids that do not exist and says how many are covered. It trusts that a citation is meant: whether the test under it is any good is for its
//! reader to judge.
//!
//! Beside it are the devices under test for the official compliance kit: the programs `tck-node` and `tck-host`, which are driven by lines of text.

pub mod console;
pub mod relay;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How every id begins.
const PREFIX: &str = "tck-id-";
/// Folders that hold no source of ours, or only speak about ids.
const SKIPPED: [&str; 5] = ["target", ".git", "node_modules", "tidy", "tck"];

/// One requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// Its id.
    pub id: String,
    /// The party that has to obey it.
    pub actor: String,
}

/// Where an id is cited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Citation {
    /// The id.
    pub id: String,
    /// File, relative to the root of the repository.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// In a test, not in code.
    pub in_test: bool,
}

/// The requirements, in the order of the specification.
#[must_use]
pub fn requirements() -> Vec<Requirement> {
    let row = |line: &str| {
        let (id, actor) = line.split_once('\t').unwrap_or((line, ""));
        Requirement { id: id.to_owned(), actor: actor.to_owned() }
    };
    rows(include_str!("../requirements.tsv")).map(row).collect()
}

/// Requirements that are not ours to obey, with the reason.
#[must_use]
pub fn not_ours() -> BTreeMap<String, String> {
    let listed = rows(include_str!("../not_ours.tsv")).filter_map(|line| line.split_once('\t'));
    let broker = "the MQTT server's";
    // The embedded broker is an aware server, by code of ours.
    let is_the_servers = |r: &Requirement| r.actor == "broker" && !r.id.contains("-mqtt-aware-");
    let brokers = requirements().into_iter().filter(is_the_servers).map(|r| (r.id, broker.to_owned()));
    listed.map(|(id, reason)| (id.to_owned(), reason.to_owned())).chain(brokers).collect()
}

fn rows(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Chapter of an id.
#[must_use]
pub fn chapter(id: &str) -> &'static str {
    let name = id.strip_prefix(PREFIX).unwrap_or(id);
    match name.split('-').next().unwrap_or(name) {
        "intro" => "1 Introduction",
        "principles" => "2 Principles",
        "components" => "3 Components",
        "topic" | "topics" | "host" => "4 Topics and messages",
        "case" | "message" | "operational" => "5 Operational behavior",
        "payloads" => "6 Payloads",
        "conformance" => "10 Conformance",
        _ => "?",
    }
}

/// Root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All citations in the Rust sources below `root`.
///
/// # Errors
/// A file or folder that cannot be read.
pub fn citations(root: &Path) -> io::Result<Vec<Citation>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let mut entries = fs::read_dir(&folder)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|e| e == "rs") {
                let file = path.strip_prefix(root).unwrap_or(&path).to_owned();
                found.extend(citations_in(&file, &fs::read_to_string(&path)?));
            }
        }
    }
    Ok(found)
}

/// The citations in one file.
#[must_use]
pub fn citations_in(file: &Path, text: &str) -> Vec<Citation> {
    let of_tests =
        file.components().any(|c| c.as_os_str() == "tests") || file.file_name().is_some_and(|f| f == "tests.rs");
    let mut in_test = of_tests;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        // Unit tests stand at the end of a file; a module of tests in another file is only named.
        in_test |= line.trim_start().starts_with("mod tests {");
        for (at, _) in line.match_indices(PREFIX) {
            let id: String = line[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
            let id = id.trim_end_matches('-');
            // The prefix alone is how prose speaks of the ids.
            if id.len() >= PREFIX.len() {
                found.push(Citation { id: id.to_owned(), file: file.to_owned(), line: index + 1, in_test });
            }
        }
    }
    found
}

/// What is known of one requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coverage {
    /// A test cites it.
    Tested,
    /// Only code cites it.
    CodeOnly,
    /// Neither code nor a test cites it.
    Open,
    /// See [`not_ours`].
    NotOurs,
}

/// All requirements with their coverage.
#[derive(Debug)]
pub struct Report {
    rows: Vec<(Requirement, Coverage)>,
}

impl Report {
    /// From the citations of the repository.
    #[must_use]
    pub fn new(citations: &[Citation]) -> Self {
        let not_ours = not_ours();
        let coverage = |r: &Requirement| {
            let mut of_it = citations.iter().filter(|c| c.id == r.id).peekable();
            if not_ours.contains_key(&r.id) {
                Coverage::NotOurs
            } else if of_it.peek().is_none() {
                Coverage::Open
            } else if of_it.any(|c| c.in_test) {
                Coverage::Tested
            } else {
                Coverage::CodeOnly
            }
        };
        Self {
            rows: requirements()
                .into_iter()
                .map(|r| {
                    let c = coverage(&r);
                    (r, c)
                })
                .collect(),
        }
    }

    /// Requirements of this coverage.
    pub fn with(&self, coverage: Coverage) -> impl Iterator<Item = &Requirement> {
        self.rows.iter().filter(move |(_, c)| *c == coverage).map(|(r, _)| r)
    }

    fn count(&self, of: &str, coverage: Coverage) -> usize {
        self.with(coverage).filter(|r| chapter(&r.id) == of || of == TOTAL).count()
    }
}

const TOTAL: &str = "all";

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chapters: Vec<&str> = self.rows.iter().map(|(r, _)| chapter(&r.id)).collect();
        chapters.dedup();
        writeln!(f, "{:<24}{:>7}{:>9}{:>11}{:>6}{:>10}", "chapter", "ids", "tested", "code only", "open", "not ours")?;
        for of in chapters.into_iter().chain([TOTAL]) {
            let [tested, code, open, not_ours] =
                [Coverage::Tested, Coverage::CodeOnly, Coverage::Open, Coverage::NotOurs].map(|c| self.count(of, c));
            let ids = tested + code + open + not_ours;
            writeln!(f, "{of:<24}{ids:>7}{tested:>9}{code:>11}{open:>6}{not_ours:>10}")?;
        }
        for (coverage, title) in [(Coverage::Open, "open"), (Coverage::CodeOnly, "cited by code, by no test")] {
            writeln!(f, "\n{title}:")?;
            for requirement in self.with(coverage) {
                writeln!(f, "  {} ({})", requirement.id, requirement.actor)?;
            }
        }
        writeln!(f, "\nnot ours:")?;
        not_ours().iter().try_for_each(|(id, reason)| writeln!(f, "  {id}: {reason}"))
    }
}

/// The guide of the library, so that its code is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sparkplug.md")]
struct Guide;
