//! Everything that follows from a set of clauses, by resolution with free selection (Blanchet 2001). When nothing new follows, the clauses without a selected hypothesis
//! describe completely what the attacker can reach, in any number of runs.

use std::collections::{BinaryHeap, HashSet};
use std::time::{Duration, Instant};

use crate::clause::Clause;
use crate::term::Arena;

/// Where a clause comes from.
#[derive(Debug, Clone)]
enum Origin {
    Given(String),
    Resolved(usize, usize),
}

/// A clause that follows.
#[derive(Debug, Clone)]
struct Entry {
    clause: Clause,
    selected: Option<usize>,
    kinds: u64,
    origin: Origin,
    is_alive: bool,
}

/// A search that did not end within its time. It says nothing about the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfTime {
    /// How many clauses were looked at.
    pub clauses: usize,
}

/// All that follows.
#[derive(Debug)]
pub struct Saturated {
    entries: Vec<Entry>,
    /// How many clauses were looked at.
    pub looked_at: usize,
}

struct Waiting {
    size: usize,
    number: usize,
    clause: Clause,
    origin: Origin,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        (self.size, self.number) == (other.size, other.number)
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.size, other.number).cmp(&(self.size, self.number))
    }
}

struct Search<'a> {
    arena: &'a mut Arena,
    entries: Vec<Entry>,
    waiting: BinaryHeap<Waiting>,
    seen: HashSet<Clause>,
    number: usize,
}

/// Finds all that follows from labelled clauses, or as much as is enough: `is_enough` sees each clause that describes what can be reached.
///
/// # Errors
/// Nothing was settled within `limit`.
pub fn saturate(
    given: impl IntoIterator<Item = (String, Clause)>,
    arena: &mut Arena,
    limit: Duration,
    mut is_enough: impl FnMut(&Clause, &mut Arena) -> bool,
) -> Result<Saturated, OutOfTime> {
    let mut search = Search { arena, entries: Vec::new(), waiting: BinaryHeap::new(), seen: HashSet::new(), number: 0 };
    for (label, clause) in given {
        search.offer(clause, &Origin::Given(label));
    }
    let (mut looked_at, started) = (0, Instant::now());
    while let Some(next) = search.waiting.pop() {
        looked_at += 1;
        if started.elapsed() > limit {
            return Err(OutOfTime { clauses: looked_at });
        }
        let is_new = search.take(next.clause, next.origin);
        if let Some(entry) = search.entries.last().filter(|entry| is_new && entry.selected.is_none())
            && is_enough(&entry.clause, search.arena)
        {
            break;
        }
    }
    Ok(Saturated { entries: search.entries, looked_at })
}

impl Search<'_> {
    fn offer(&mut self, clause: Clause, origin: &Origin) {
        for clause in clause.simplified(self.arena) {
            if self.seen.insert(clause.clone()) {
                self.number += 1;
                let (size, number, origin) = (clause.hypotheses.len(), self.number, origin.clone());
                self.waiting.push(Waiting { size, number, clause, origin });
            }
        }
    }

    /// False if the clause says nothing new.
    fn take(&mut self, clause: Clause, origin: Origin) -> bool {
        let kinds = clause.kinds(self.arena);
        let is_old =
            |entry: &Entry| entry.is_alive && entry.kinds & !kinds == 0 && entry.clause.subsumes(&clause, self.arena);
        if self.entries.iter().any(is_old) {
            return false;
        }
        for entry in &mut self.entries {
            entry.is_alive &= kinds & !entry.kinds != 0 || !clause.subsumes(&entry.clause, self.arena);
        }
        let selected = clause.selected(self.arena);
        let this = self.entries.len();
        self.entries.push(Entry { clause, selected, kinds, origin, is_alive: true });
        for other in 0..=this {
            let (solved, open) = if selected.is_some() { (other, this) } else { (this, other) };
            let (
                Entry { selected: None, is_alive: true, clause: from, .. },
                Entry { selected: Some(at), is_alive: true, clause: into, .. },
            ) = (&self.entries[solved], &self.entries[open])
            else {
                continue;
            };
            if let Some(clause) = from.clone().resolve(into, *at, self.arena) {
                self.offer(clause, &Origin::Resolved(solved, open));
            }
        }
        true
    }
}

impl Saturated {
    /// The clauses that describe what can be reached, each with its number.
    pub fn solved(&self) -> impl Iterator<Item = (usize, &Clause)> {
        let solved = |entry: &Entry| entry.is_alive && entry.selected.is_none();
        self.entries.iter().enumerate().filter(move |(_, entry)| solved(entry)).map(|(at, entry)| (at, &entry.clause))
    }

    /// Which given clauses a clause was derived from: the steps of an attack, premises first.
    #[must_use]
    pub fn steps(&self, number: usize) -> Vec<&str> {
        let (mut steps, mut seen) = (Vec::new(), HashSet::new());
        self.collect(number, &mut steps, &mut seen);
        steps
    }

    fn collect<'a>(&'a self, number: usize, steps: &mut Vec<&'a str>, seen: &mut HashSet<usize>) {
        if !seen.insert(number) {
            return;
        }
        match &self.entries[number].origin {
            Origin::Given(label) if !steps.contains(&label.as_str()) => steps.push(label),
            Origin::Given(_) => {}
            Origin::Resolved(solved, open) => {
                self.collect(*solved, steps, seen);
                self.collect(*open, steps, seen);
            }
        }
    }
}
