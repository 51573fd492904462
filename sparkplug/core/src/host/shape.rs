//! What births have in common: names, aliases and types. Nodes of one kind are born with the same ones, so they share one [`Shape`]; a replica of its own holds values.
//! Names that occur in several shapes are shared, too, from the second on. A table of names that occur once would be of no use and cost as much as the names.
//!
//! Both tables forget what is not used any more, at the latest when they have doubled since they last did.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use foldhash::fast::{FixedState, FoldHasher};

use super::work;
use crate::metric::{DataType, MetaData, Properties};

/// Below this size nothing is forgotten.
const KEPT_MIN: usize = 256;

/// A hash that no other program can predict, as long as the seed is not known, and that is the same in every run with the same seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seeded(pub u64);

impl BuildHasher for Seeded {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> FoldHasher<'static> {
        FixedState::with_seed(self.0).build_hasher()
    }
}

/// What a metric has beside its value, and mostly has not.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Details {
    pub properties: Properties,
    pub metadata: Option<Box<MetaData>>,
    pub is_historical: bool,
    pub is_transient: bool,
}

impl Details {
    /// Nothing but properties, which data keeps as they are.
    pub(super) const fn is_plain(&self) -> bool {
        self.metadata.is_none() && !self.is_historical && !self.is_transient
    }
}

/// A metric of a birth that could be read, without what differs between nodes of one kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct BirthMetric<'a> {
    pub name: &'a str,
    pub alias: Option<u64>,
    pub datatype: DataType,
}

/// A metric of a birth that could not be read.
pub(super) type Unreadable<'a> = (Option<&'a str>, Option<u64>);

/// Metrics of a birth that could not be read, sorted: a birth may have many, and data ask for many of them.
#[derive(Debug, PartialEq, Eq)]
struct PassedOver {
    names: Box<[Box<str>]>,
    /// Of those without a name, and of those with one.
    aliases: Box<[u64]>,
}

impl PassedOver {
    fn new(unreadable: &[Unreadable<'_>]) -> Self {
        let mut names: Box<[Box<str>]> = unreadable.iter().filter_map(|(name, _)| name.map(Box::from)).collect();
        let mut aliases: Box<[u64]> = unreadable.iter().filter_map(|(_, alias)| *alias).collect();
        names.sort_unstable();
        aliases.sort_unstable();
        Self { names, aliases }
    }
}

/// Successive aliases of successive columns. Mostly those of a whole birth are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    alias: u64,
    column: u32,
    length: u32,
}

impl Run {
    /// All runs, in the order of their aliases, and whether an alias occurs more than once.
    fn all(metrics: &[BirthMetric<'_>]) -> (Vec<Self>, bool) {
        let aliased = || (0..u32::MAX).zip(metrics).filter_map(|(column, metric)| Some((metric.alias?, column)));
        let mut runs: Vec<Self> = Vec::new();
        for (alias, column) in aliased() {
            match runs.last_mut() {
                Some(run) if run.is_continued_by(alias, column) => run.length += 1,
                _ => runs.push(Self { alias, column, length: 1 }),
            }
        }
        runs.sort_unstable_by_key(|run| (run.alias, run.column));
        let is_ambiguous = runs.windows(2).any(|w| w[1].alias - w[0].alias < u64::from(w[0].length));
        if is_ambiguous {
            // Of runs that overlap one would hide the other.
            runs = aliased().map(|(alias, column)| Self { alias, column, length: 1 }).collect();
            runs.sort_unstable_by_key(|run| (run.alias, run.column));
        }
        (runs, is_ambiguous)
    }

    fn is_continued_by(&self, alias: u64, column: u32) -> bool {
        self.alias.checked_add(self.length.into()) == Some(alias) && self.column + self.length == column
    }

    fn find(&self, alias: u64) -> Option<usize> {
        let steps = u32::try_from(alias.checked_sub(self.alias)?).ok()?;
        (steps < self.length).then_some((self.column + steps) as usize)
    }
}

/// Names, aliases and types of a birth. A metric of it is a column, and has the same index in all tables. There may be as many shapes as nodes, so they are kept small.
#[derive(Debug)]
pub(super) struct Shape {
    pub names: Box<[Arc<str>]>,
    pub datatypes: Box<[DataType]>,
    /// As in the birth that came first; None where no metric has any.
    details: Option<Box<[Details]>>,
    /// Indices of columns, in the order of the names.
    by_name: Box<[u32]>,
    aliases: Box<[Run]>,
    /// Data of them is passed over.
    unreadable: PassedOver,
    /// What is wrong with it, for people.
    pub doubts: Box<[&'static str]>,
}

/// No details.
pub(super) static NO_DETAILS: Details =
    Details { properties: Properties::new(), metadata: None, is_historical: false, is_transient: false };

impl Shape {
    fn new(metrics: &[BirthMetric<'_>], details: &[Details], unreadable: &[Unreadable<'_>], known: &mut Names) -> Self {
        let names: Box<[Arc<str>]> = metrics.iter().map(|metric| known.shared(metric.name)).collect();
        let mut by_name: Box<[u32]> = (0..u32::MAX).zip(&names).map(|(index, _)| index).collect();
        by_name.sort_by(|a, b| names[*a as usize].cmp(&names[*b as usize]));
        let mut doubts = Vec::new();
        if by_name.windows(2).any(|w| names[w[0] as usize] == names[w[1] as usize]) {
            doubts.push("a name occurs more than once; data of it goes to one of them");
        }
        let (aliases, is_ambiguous) = Run::all(metrics);
        if is_ambiguous {
            doubts.push("an alias occurs more than once; data of it goes to one of them");
        }
        Self {
            names,
            datatypes: metrics.iter().map(|metric| metric.datatype).collect(),
            details: details.iter().any(|details| *details != NO_DETAILS).then(|| details.into()),
            by_name,
            aliases: aliases.into(),
            unreadable: PassedOver::new(unreadable),
            doubts: doubts.into(),
        }
    }

    fn is_of(&self, metrics: &[BirthMetric<'_>], unreadable: &[Unreadable<'_>]) -> bool {
        work::count(metrics.len());
        self.names.iter().map(|name| &**name).eq(metrics.iter().map(|metric| metric.name))
            && self.datatypes.iter().copied().eq(metrics.iter().map(|metric| metric.datatype))
            && *self.aliases == *Run::all(metrics).0
            && self.unreadable == PassedOver::new(unreadable)
    }

    /// Name and type of a column.
    #[inline]
    pub(super) fn column(&self, index: usize) -> Option<(&Arc<str>, DataType)> {
        Some((self.names.get(index)?, *self.datatypes.get(index)?))
    }

    #[inline]
    pub(super) fn details(&self, index: usize) -> &Details {
        self.details.as_ref().and_then(|details| details.get(index)).unwrap_or(&NO_DETAILS)
    }

    /// Column of that name. Data often has the order of the birth: `hint` is tried first.
    pub(super) fn find_name(&self, name: &str, hint: usize) -> Option<usize> {
        work::count(1);
        if self.names.get(hint).is_some_and(|known| **known == *name) {
            return Some(hint);
        }
        let compare = |index: &u32| {
            work::count(1);
            (*self.names[*index as usize]).cmp(name)
        };
        let at = self.by_name.binary_search_by(compare).ok()?;
        Some(self.by_name[at] as usize)
    }

    /// Column of that alias.
    #[inline]
    pub(super) fn find_alias(&self, alias: u64) -> Option<usize> {
        work::count(1);
        let first = self.aliases.first()?;
        first.find(alias).or_else(|| {
            let after = self.aliases.partition_point(|run| {
                work::count(1);
                run.alias <= alias
            });
            self.aliases.get(after.checked_sub(1)?)?.find(alias)
        })
    }

    /// Columns that have an alias, in the order of their aliases.
    pub(super) fn aliases(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        let steps = self.aliases.iter().flat_map(|run| (0..run.length).map(move |step| (run, step)));
        steps.filter_map(|(run, step)| {
            Some((self.names.get((run.column + step) as usize)?, run.alias + u64::from(step)))
        })
    }

    /// Whether the birth had it, unreadable.
    pub(super) fn passes_over(&self, name: Option<&str>, alias: Option<u64>) -> bool {
        let compare = |known: &str, name: &str| {
            work::count(1);
            known.cmp(name)
        };
        match (name, alias) {
            (Some(name), _) => self.unreadable.names.binary_search_by(|known| compare(known, name)).is_ok(),
            (None, Some(alias)) => self.unreadable.aliases.binary_search(&alias).is_ok(),
            (None, None) => false,
        }
    }
}

/// Every shape and every name that a replica uses.
#[derive(Debug)]
pub(super) struct Shapes {
    seed: Seeded,
    /// By hash. Of two shapes with one hash the later is found.
    shapes: HashMap<u64, Weak<Shape>, Seeded>,
    names: Names,
    sweep_at: usize,
}

impl Shapes {
    pub(super) fn new(seed: u64) -> Self {
        let seed = Seeded(seed);
        Self { seed, shapes: HashMap::with_hasher(seed), names: Names::new(seed), sweep_at: KEPT_MIN }
    }

    /// The shape of a birth; `details` belong to `metrics` one by one.
    pub(super) fn of(
        &mut self,
        metrics: &[BirthMetric<'_>],
        details: &[Details],
        unreadable: &[Unreadable<'_>],
    ) -> Arc<Shape> {
        let mut hasher = self.seed.build_hasher();
        work::count(metrics.len());
        for BirthMetric { name, alias, datatype } in metrics {
            (name, alias, datatype).hash(&mut hasher);
        }
        unreadable.hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(known) = self.shapes.get(&hash).and_then(Weak::upgrade)
            && known.is_of(metrics, unreadable)
        {
            return known;
        }
        let shape = Arc::new(Shape::new(metrics, details, unreadable, &mut self.names));
        if self.shapes.len() >= self.sweep_at {
            work::count(self.shapes.len());
            self.shapes.retain(|_, shape| shape.strong_count() > 0);
            self.sweep_at = KEPT_MIN.max(2 * self.shapes.len());
        }
        self.shapes.insert(hash, Arc::downgrade(&shape));
        shape
    }

    /// Number of shapes and of names that are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.shapes.len(), self.names.names.len())
    }
}

/// Names that came more than once.
#[derive(Debug)]
struct Names {
    names: HashSet<Arc<str>, Seeded>,
    sweep_at: usize,
    seen: Seen,
}

impl Names {
    fn new(seed: Seeded) -> Self {
        Self { names: HashSet::with_hasher(seed), sweep_at: KEPT_MIN, seen: Seen::new() }
    }

    fn shared(&mut self, name: &str) -> Arc<str> {
        work::count(1);
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        if !self.seen.insert(self.names.hasher().hash_one(name)) {
            return name.into();
        }
        if self.names.len() >= self.sweep_at {
            work::count(self.names.len());
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.sweep_at = KEPT_MIN.max(2 * self.names.len());
        }
        let name: Arc<str> = name.into();
        self.names.insert(name.clone());
        name
    }
}

/// Which hashes came before, more or less: one bit each. It forgets everything when it is full; to forget, or to take one for another, costs a little memory elsewhere.
#[derive(Debug)]
struct Seen {
    bits: Vec<u64>,
    count: usize,
}

/// Words of 64 bits at first, and at most: 2 MiB.
const SEEN_WORDS: (usize, usize) = (32, 1 << 18);

impl Seen {
    fn new() -> Self {
        Self { bits: vec![0; SEEN_WORDS.0], count: 0 }
    }

    /// Whether it came before.
    fn insert(&mut self, hash: u64) -> bool {
        // An eighth of the bits: few are taken for others.
        if self.count >= self.bits.len() * 8 {
            let words = (self.bits.len() * 2).min(SEEN_WORDS.1);
            *self = Self { bits: vec![0; words], count: 0 };
        }
        let words = self.bits.len() as u64;
        let index = usize::try_from((hash >> 6) % words).unwrap_or_default();
        let bit = 1 << (hash & 63);
        let came = self.bits[index] & bit != 0;
        self.bits[index] |= bit;
        self.count += usize::from(!came);
        came
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(aliases: &[Option<u64>]) -> Vec<BirthMetric<'static>> {
        aliases.iter().map(|alias| BirthMetric { name: "n", alias: *alias, datatype: DataType::Boolean }).collect()
    }

    fn shape(aliases: &[Option<u64>]) -> Arc<Shape> {
        let metrics = metrics(aliases);
        Shapes::new(0).of(&metrics, &vec![NO_DETAILS.clone(); metrics.len()], &[])
    }

    #[test]
    fn every_alias_leads_to_its_column_however_they_are_numbered() {
        for aliases in [
            vec![None, None, Some(0), Some(1), Some(2)],
            vec![Some(5), Some(6), None, Some(7), Some(8)],
            vec![Some(9), Some(8), Some(7)],
            vec![Some(u64::MAX - 1), Some(u64::MAX), Some(0)],
            vec![Some(1 << 40), Some(3), Some(77), Some(4)],
            vec![None],
        ] {
            let shape = shape(&aliases);
            for (column, alias) in aliases.iter().enumerate() {
                assert_eq!(alias.and_then(|alias| shape.find_alias(alias)), alias.map(|_| column), "{aliases:?}");
            }
            for unknown in [10, 100, 1 << 41] {
                assert_eq!(shape.find_alias(unknown), None);
            }
            let mut numbers: Vec<u64> = aliases.iter().flatten().copied().collect();
            numbers.sort_unstable();
            assert!(shape.aliases().map(|(_, alias)| alias).eq(numbers), "{aliases:?}");
            assert!(shape.is_of(&metrics(&aliases), &[]));
            assert!(!shape.is_of(&metrics(&[Some(1), Some(1)]), &[]));
        }
    }

    #[test]
    fn an_alias_that_occurs_twice_hides_no_other() {
        let shape = shape(&[Some(1), Some(2), Some(3), Some(4), Some(2)]);
        for (alias, column) in [(1, 0), (3, 2), (4, 3)] {
            assert_eq!(shape.find_alias(alias), Some(column));
        }
        assert!(shape.find_alias(2).is_some_and(|column| column == 1 || column == 4));
        assert!(shape.doubts.iter().any(|doubt| doubt.contains("alias")));
    }

    #[test]
    fn names_are_shared_from_the_second_time_on_and_what_was_seen_stays_bounded() {
        let mut names = Names::new(Seeded(1));
        let [first, second, third] = [(); 3].map(|()| names.shared("Speed"));
        assert!(!Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&second, &third));
        let mut seen = Seen::new();
        let unseen = (0..4_000_000_u64).filter(|n| !seen.insert(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).count();
        assert!(unseen > 3_000_000, "{unseen}");
        assert_eq!(seen.bits.len(), SEEN_WORDS.1);
    }
}
