//! Horn clauses: if all hypotheses are true, the conclusion is.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash as _, Hasher as _};

use crate::term::{Arena, Node, Substitution, Term};

/// What a fact says.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Predicate {
    /// The attacker knows a term.
    Known,
    /// The attacker knows a term after the long-lived keys were lost.
    KnownLater,
    /// An honest role began something. It is only ever a hypothesis: nothing but the run itself makes it true.
    Begun(String),
    /// An honest role concluded something.
    Ended(String),
    /// Something else that a model says.
    Other(String),
}

impl Predicate {
    /// Knowledge of the attacker, at either time.
    #[must_use]
    pub const fn is_knowledge(&self) -> bool {
        matches!(self, Self::Known | Self::KnownLater)
    }
}

/// A predicate of terms.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fact {
    /// What it says.
    pub predicate: Predicate,
    /// Of what.
    pub arguments: Vec<Term>,
}

impl Fact {
    /// The attacker knows this term.
    #[must_use]
    pub fn known(predicate: Predicate, term: Term) -> Self {
        Self { predicate, arguments: vec![term] }
    }

    /// False if `other` is not an instance of this fact by its outermost symbol alone.
    fn may_cover(&self, other: &Self, arena: &Arena) -> bool {
        let heads = (self.arguments.first(), other.arguments.first());
        self.predicate == other.predicate
            && match (heads.0.map(|term| arena.node(*term)), heads.1.map(|term| arena.node(*term))) {
                (Some(Node::Apply(f, _)), Some(Node::Apply(g, _))) => f == g,
                (Some(Node::Apply(..)), _) => false,
                _ => true,
            }
    }
}

/// If all hypotheses are true, the conclusion is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Clause {
    /// What must be true.
    pub hypotheses: Vec<Fact>,
    /// What is true then.
    pub conclusion: Fact,
}

impl Clause {
    /// What a search continues with: None if nothing but begun facts and knowledge of any term is left.
    #[must_use]
    pub fn selected(&self, arena: &Arena) -> Option<usize> {
        let is_open = |fact: &Fact| match &fact.predicate {
            Predicate::Known | Predicate::KnownLater => arena.as_variable(fact.arguments[0]).is_none(),
            Predicate::Begun(_) => false,
            Predicate::Ended(_) | Predicate::Other(_) => true,
        };
        let open = |wanted: fn(&Predicate) -> bool| {
            self.hypotheses.iter().position(|fact| is_open(fact) && wanted(&fact.predicate))
        };
        open(|predicate| !predicate.is_knowledge()).or_else(|| open(Predicate::is_knowledge))
    }

    /// Resolves this clause's conclusion with a hypothesis of `other`.
    pub fn resolve(&self, other: &Self, at: usize, arena: &mut Arena) -> Option<Self> {
        let wanted = &other.hypotheses[at];
        if wanted.predicate != self.conclusion.predicate || !self.may_unify(wanted, arena) {
            return None;
        }
        let offset = self.variables(arena).into_iter().max().map_or(0, |highest| highest + 1);
        let mut moved = HashMap::new();
        let other_facts: Vec<Fact> =
            other.facts().map(|fact| map(fact, |term| arena.shift(term, offset, &mut moved))).collect();
        let pairs: Vec<(Term, Term)> =
            self.conclusion.arguments.iter().copied().zip(other_facts[at].arguments.iter().copied()).collect();
        let mut bindings = Substitution::new();
        if !arena.unify(&pairs, &mut bindings) {
            return None;
        }
        let mut done = HashMap::new();
        let mut replaced = |fact: &Fact| map(fact, |term| arena.substitute(term, &bindings, &mut done));
        let mut hypotheses: Vec<Fact> = self.hypotheses.iter().map(&mut replaced).collect();
        let last = other_facts.len() - 1;
        hypotheses.extend(other_facts[..last].iter().enumerate().filter(|(i, _)| *i != at).map(|(_, f)| replaced(f)));
        Some(Self { hypotheses, conclusion: replaced(&other_facts[last]) })
    }

    fn may_unify(&self, wanted: &Fact, arena: &Arena) -> bool {
        self.conclusion.arguments.len() == wanted.arguments.len()
            && self.conclusion.arguments.iter().zip(&wanted.arguments).all(|(ours, theirs)| {
                match (arena.node(*ours), arena.node(*theirs)) {
                    (Node::Apply(f, _), Node::Apply(g, _)) => f == g,
                    _ => true,
                }
            })
    }

    /// A bit for each kind of fact among the hypotheses: a clause with a bit that another lacks cannot subsume it.
    #[must_use]
    pub fn kinds(&self, arena: &Arena) -> u64 {
        let kind = |fact: &Fact| {
            let mut hasher = std::hash::DefaultHasher::new();
            fact.predicate.hash(&mut hasher);
            match fact.arguments.first().map(|term| arena.node(*term)) {
                // Any fact of its predicate is an instance.
                Some(Node::Variable(_)) | None => return 0,
                Some(Node::Apply(function, _)) => function.hash(&mut hasher),
            }
            1 << (hasher.finish() % 64)
        };
        self.hypotheses.iter().map(kind).fold(0, |kinds, kind| kinds | kind)
    }

    fn facts(&self) -> impl Iterator<Item = &Fact> {
        self.hypotheses.iter().chain([&self.conclusion])
    }

    fn variables(&self, arena: &Arena) -> Vec<u32> {
        let (mut seen, mut found) = (HashSet::new(), Vec::new());
        let terms = self.facts().flat_map(|fact| &fact.arguments);
        terms.for_each(|term| arena.variables(*term, &mut seen, &mut found));
        found
    }

    /// Takes tuples apart, drops what says nothing, and numbers the variables from 0. None if the clause as a whole says nothing; a known tuple gives a clause for each part.
    #[must_use]
    pub fn simplified(self, arena: &mut Arena) -> Vec<Self> {
        let mut hypotheses = Vec::new();
        for fact in self.hypotheses {
            split(fact, arena, &mut hypotheses);
        }
        let mut conclusions = Vec::new();
        split(self.conclusion, arena, &mut conclusions);
        let clauses = conclusions.into_iter().map(|conclusion| Self { hypotheses: hypotheses.clone(), conclusion });
        clauses.collect::<Vec<_>>().into_iter().filter_map(|clause| clause.tidied(arena)).collect()
    }

    fn tidied(mut self, arena: &mut Arena) -> Option<Self> {
        let mut seen = HashSet::new();
        self.hypotheses.retain(|fact| seen.insert(fact.clone()));
        if self.hypotheses.contains(&self.conclusion) {
            return None;
        }
        // The attacker always knows some term, so knowing any term that stands nowhere else is not a condition.
        let mut uses: HashMap<u32, usize> = HashMap::new();
        for fact in self.facts() {
            let (mut seen, mut found) = (HashSet::new(), Vec::new());
            fact.arguments.iter().for_each(|term| arena.variables(*term, &mut seen, &mut found));
            found.into_iter().for_each(|number| *uses.entry(number).or_default() += 1);
        }
        self.hypotheses.retain(|fact| {
            let variable = arena.as_variable(fact.arguments[0]).filter(|_| fact.predicate.is_knowledge());
            variable.is_none_or(|number| uses.get(&number).is_some_and(|count| *count > 1))
        });
        let numbers: Vec<u32> = self.variables(arena);
        let high = numbers.iter().max().map_or(0, |highest| highest + 1);
        let mut numbered = Substitution::new();
        for (at, number) in numbers.iter().enumerate() {
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            // Above all others first, so that no variable is replaced twice.
            numbered.insert(*number, arena.variable(high + at));
        }
        let mut down = Substitution::new();
        for at in 0..u32::try_from(numbers.len()).unwrap_or(u32::MAX) {
            down.insert(high + at, arena.variable(at));
        }
        let (mut first, mut second) = (HashMap::new(), HashMap::new());
        let mut renamed = |fact: &Fact| {
            map(fact, |term| {
                let up = arena.substitute(term, &numbered, &mut first);
                arena.substitute(up, &down, &mut second)
            })
        };
        let conclusion = renamed(&self.conclusion);
        let hypotheses = self.hypotheses.iter().map(renamed).collect();
        Some(Self { hypotheses, conclusion })
    }

    /// True if `other` follows from this clause alone.
    #[must_use]
    pub fn subsumes(&self, other: &Self, arena: &Arena) -> bool {
        let mut bindings = Substitution::new();
        self.hypotheses.len() <= other.hypotheses.len()
            && matches(&self.conclusion, &other.conclusion, &mut bindings, arena)
            && self.covers(0, other, &bindings, arena)
    }

    fn covers(&self, at: usize, other: &Self, bindings: &Substitution, arena: &Arena) -> bool {
        let Some(fact) = self.hypotheses.get(at) else {
            return true;
        };
        let alike = other.hypotheses.iter().filter(|candidate| fact.may_cover(candidate, arena));
        alike.into_iter().any(|candidate| {
            let mut tried = bindings.clone();
            matches(fact, candidate, &mut tried, arena) && self.covers(at + 1, other, &tried, arena)
        })
    }
}

fn map(fact: &Fact, of_term: impl FnMut(Term) -> Term) -> Fact {
    Fact { predicate: fact.predicate.clone(), arguments: fact.arguments.iter().copied().map(of_term).collect() }
}

fn matches(pattern: &Fact, fact: &Fact, bindings: &mut Substitution, arena: &Arena) -> bool {
    pattern.predicate == fact.predicate
        && pattern.arguments.len() == fact.arguments.len()
        && pattern.arguments.iter().zip(&fact.arguments).all(|(ours, theirs)| arena.matches(*ours, *theirs, bindings))
}

/// The name of the symbol of tuples, whose parts are known exactly if they are.
pub const TUPLE: &str = "tuple";

fn split(fact: Fact, arena: &Arena, parts: &mut Vec<Fact>) {
    if fact.predicate.is_knowledge()
        && let Node::Apply(function, arguments) = arena.node(fact.arguments[0])
        && arena.symbol(*function).name == TUPLE
    {
        let knows = |term: &Term| Fact::known(fact.predicate.clone(), *term);
        arguments.iter().map(knows).for_each(|part| split(part, arena, parts));
    } else {
        parts.push(fact);
    }
}
