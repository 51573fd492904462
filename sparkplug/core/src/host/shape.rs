//! What births have in common: names, aliases and types. Nodes of one kind are born with the same ones, so they share one [`Shape`]; a replica of its own
//! holds values. Names that occur in several shapes are shared, too.
//!
//! Both tables forget what nobody uses any more, at the latest when they have doubled since they last did.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use foldhash::fast::{FixedState, FoldHasher};

use super::work;
use crate::metric::{DataType, MetaData, Properties};

/// Below this size nothing is forgotten.
const KEPT_MIN: usize = 256;

/// A hash that nobody outside can predict, as long as the seed is not known, and that is the same in every run with the same seed.
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
pub(super) struct Told<'a> {
    pub name: &'a str,
    pub alias: Option<u64>,
    pub datatype: DataType,
}

/// A metric of a birth that could not be read.
pub(super) type Unreadable<'a> = (Option<&'a str>, Option<u64>);

/// The same, kept.
type Kept = (Option<Arc<str>>, Option<u64>);

#[derive(Debug)]
pub(super) struct Column {
    pub name: Arc<str>,
    pub alias: Option<u64>,
    pub datatype: DataType,
    /// As in the birth that came first.
    pub details: Details,
}

/// Names, aliases and types of a birth.
#[derive(Debug)]
pub(super) struct Shape {
    pub columns: Box<[Column]>,
    /// Indices of columns, in the order of the names.
    by_name: Box<[u32]>,
    /// Aliases and indices of columns, in the order of the aliases.
    by_alias: Box<[(u64, u32)]>,
    /// Data of them is passed over.
    unreadable: Box<[Kept]>,
    /// What is wrong with it, for people.
    pub doubts: Box<[&'static str]>,
}

impl Shape {
    fn new(told: &[Told<'_>], details: &[Details], unreadable: &[Unreadable<'_>], names: &mut Names) -> Self {
        let column = |(told, details): (&Told<'_>, &Details)| Column {
            name: names.shared(told.name),
            alias: told.alias,
            datatype: told.datatype,
            details: details.clone(),
        };
        let columns: Box<[Column]> = told.iter().zip(details).map(column).collect();
        let numbered = || (0..u32::MAX).zip(&columns);
        let mut by_name: Box<[u32]> = numbered().map(|(index, _)| index).collect();
        by_name.sort_by(|a, b| columns[*a as usize].name.cmp(&columns[*b as usize].name));
        let mut by_alias: Box<[(u64, u32)]> =
            numbered().filter_map(|(index, column)| Some((column.alias?, index))).collect();
        by_alias.sort_unstable();
        let mut doubts = Vec::new();
        if by_name.windows(2).any(|w| columns[w[0] as usize].name == columns[w[1] as usize].name) {
            doubts.push("a name occurs more than once; data of it goes to one of them");
        }
        if by_alias.windows(2).any(|w| w[0].0 == w[1].0) {
            doubts.push("an alias occurs more than once; data of it goes to one of them");
        }
        let unreadable = unreadable.iter().map(|(name, alias)| (name.map(Arc::from), *alias)).collect();
        Self { columns, by_name, by_alias, unreadable, doubts: doubts.into() }
    }

    fn is_of(&self, told: &[Told<'_>], unreadable: &[Unreadable<'_>]) -> bool {
        work::count(told.len());
        let same = |(column, told): (&Column, &Told<'_>)| {
            (&*column.name, column.alias, column.datatype) == (told.name, told.alias, told.datatype)
        };
        self.columns.len() == told.len()
            && self.columns.iter().zip(told).all(same)
            && self.unreadable.iter().map(|(name, alias)| (name.as_deref(), *alias)).eq(unreadable.iter().copied())
    }

    /// Column of that name. Data often has the order of the birth: `hint` is tried first.
    pub(super) fn find_name(&self, name: &str, hint: usize) -> Option<usize> {
        work::count(1);
        if self.columns.get(hint).is_some_and(|column| &*column.name == name) {
            return Some(hint);
        }
        let compare = |index: &u32| {
            work::count(1);
            (*self.columns[*index as usize].name).cmp(name)
        };
        let at = self.by_name.binary_search_by(compare).ok()?;
        Some(self.by_name[at] as usize)
    }

    /// Column of that alias. Aliases mostly are successive numbers, so the distance to the first one is tried first.
    pub(super) fn find_alias(&self, alias: u64) -> Option<usize> {
        work::count(1);
        let guess = alias.wrapping_sub(self.by_alias.first()?.0);
        if let Some((found, index)) = usize::try_from(guess).ok().and_then(|guess| self.by_alias.get(guess))
            && *found == alias
        {
            return Some(*index as usize);
        }
        let compare = |(known, _): &(u64, u32)| {
            work::count(1);
            known.cmp(&alias)
        };
        let at = self.by_alias.binary_search_by(compare).ok()?;
        Some(self.by_alias[at].1 as usize)
    }

    /// Whether the birth had it, unreadable.
    pub(super) fn passes_over(&self, name: Option<&str>, alias: Option<u64>) -> bool {
        self.unreadable.iter().any(|known| match name {
            Some(_) => known.0.as_deref() == name,
            None => known.1 == alias,
        })
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

    /// The shape of a birth; `details` belong to `told` one by one.
    pub(super) fn of(&mut self, told: &[Told<'_>], details: &[Details], unreadable: &[Unreadable<'_>]) -> Arc<Shape> {
        let mut hasher = self.seed.build_hasher();
        work::count(told.len());
        for Told { name, alias, datatype } in told {
            (name, alias, datatype).hash(&mut hasher);
        }
        unreadable.hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(known) = self.shapes.get(&hash).and_then(Weak::upgrade)
            && known.is_of(told, unreadable)
        {
            return known;
        }
        let shape = Arc::new(Shape::new(told, details, unreadable, &mut self.names));
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

#[derive(Debug)]
struct Names {
    names: HashSet<Arc<str>, Seeded>,
    sweep_at: usize,
}

impl Names {
    fn new(seed: Seeded) -> Self {
        Self { names: HashSet::with_hasher(seed), sweep_at: KEPT_MIN }
    }

    fn shared(&mut self, name: &str) -> Arc<str> {
        work::count(1);
        if let Some(known) = self.names.get(name) {
            return known.clone();
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
