//! What a search says of a model's claims.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use crate::clause::{Clause, Fact, Predicate};
use crate::model::{Claim, Compiled, Named, compile};
use crate::saturate::{Saturated, saturate};
use crate::syntax::ModelError;
use crate::term::{Arena, Substitution, Term};

/// Searches of the join protocol take seconds; one that continues says nothing.
const TIME_MAX: Duration = Duration::from_secs(120);

/// What was found of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It holds in any number of runs.
    Proven,
    /// It does not; the steps that break it.
    Attack(Vec<String>),
    /// No run gets as far as what it is about, so it says nothing.
    Vacuous,
}

/// What was found of a model.
#[derive(Debug)]
pub struct Report {
    /// Of each claim, by its id.
    pub verdicts: Vec<(String, Verdict)>,
    /// How many clauses were looked at.
    pub clauses: usize,
}

impl Report {
    /// The ids of the claims that there is an attack on.
    #[must_use]
    pub fn attacked(&self) -> BTreeSet<&str> {
        self.ids(|verdict| matches!(verdict, Verdict::Attack(_)))
    }

    /// The ids of the claims that are not proven.
    #[must_use]
    pub fn unproven(&self) -> BTreeSet<&str> {
        self.ids(|verdict| *verdict != Verdict::Proven)
    }

    fn ids(&self, is_wanted: fn(&Verdict) -> bool) -> BTreeSet<&str> {
        self.verdicts.iter().filter(|(_, verdict)| is_wanted(verdict)).map(|(id, _)| id.as_str()).collect()
    }
}

/// Judges every claim of a model with these variants on. The search stops early as soon as all of `attacked` are broken, if any is named; the others may be unjudged then and stand as
/// proven in no report.
///
/// # Errors
/// The model is against a rule, or the search does not end.
pub fn judge(text: &str, variants: &BTreeSet<&str>, attacked: &BTreeSet<String>) -> Result<Report, ModelError> {
    let Compiled { mut arena, mut clauses, claims } = compile(text, variants)?;
    // What a claim is about becomes a conclusion of its own, so that it is derived as the claim says it and not more generally.
    for Named { id, claim } in &claims {
        let (Claim::Secret(about) | Claim::Agree(about, _) | Claim::Possible(about)) = claim;
        let conclusion = Fact { predicate: asked(id), arguments: about.arguments.clone() };
        clauses.push((String::new(), Clause { hypotheses: vec![about.clone()], conclusion }));
    }
    let mut missing: Vec<&Named> = claims.iter().filter(|named| attacked.contains(&named.id)).collect();
    let is_enough = |clause: &Clause, arena: &mut Arena| {
        missing.retain(|named| !is_attack(&named.id, &named.claim, clause, arena));
        !attacked.is_empty() && missing.is_empty()
    };
    let saturated = saturate(clauses, &mut arena, TIME_MAX, is_enough)
        .map_err(|ended| ModelError(format!("no answer after {} clauses", ended.clauses)))?;
    let verdicts =
        claims.iter().map(|Named { id, claim }| (id.clone(), verdict(id, claim, &saturated, &mut arena))).collect();
    Ok(Report { verdicts, clauses: saturated.looked_at })
}

fn asked(id: &str) -> Predicate {
    Predicate::Ended(format!("claim {id}"))
}

fn verdict(id: &str, claim: &Claim, saturated: &Saturated, arena: &mut Arena) -> Verdict {
    let is_reached = saturated.solved().any(|(_, clause)| clause.conclusion.predicate == asked(id));
    if !matches!(claim, Claim::Secret(_)) && !is_reached {
        return Verdict::Vacuous;
    }
    let attack = saturated.solved().find(|(_, clause)| is_attack(id, claim, clause, arena));
    attack.map_or(Verdict::Proven, |(number, _)| {
        let steps = saturated.steps(number).into_iter().filter(|step| !step.is_empty());
        Verdict::Attack(steps.map(str::to_owned).collect())
    })
}

/// True if what the clause describes breaks the claim.
fn is_attack(id: &str, claim: &Claim, clause: &Clause, arena: &mut Arena) -> bool {
    clause.conclusion.predicate == asked(id)
        && match claim {
            Claim::Secret(_) => true,
            Claim::Agree(ended, begun) => breaks(ended, begun, clause, arena),
            Claim::Possible(_) => false,
        }
}

/// True if the clause concludes an instance of `ended` for which no instance of `begun` is a condition.
fn breaks(ended: &Fact, begun: &Fact, clause: &Clause, arena: &mut Arena) -> bool {
    // The claim's variables are moved above those of the clause.
    let offset = 1_000_000;
    let mut moved = HashMap::new();
    let mut raised = |fact: &Fact, arena: &mut Arena| -> Vec<Term> {
        fact.arguments.iter().map(|term| arena.shift(*term, offset, &mut moved)).collect()
    };
    let (ended, begun_terms) = (raised(ended, arena), raised(begun, arena));
    let mut bindings = Substitution::new();
    let is_instance = |(pattern, term): (&Term, &Term)| arena.matches(*pattern, *term, &mut bindings);
    if !ended.iter().zip(&clause.conclusion.arguments).all(is_instance) {
        // The conclusion was derived from the claim's own pattern.
        return true;
    }
    let mut done = HashMap::new();
    let wanted: Vec<Term> = begun_terms.iter().map(|term| arena.substitute(*term, &bindings, &mut done)).collect();
    // Only what is in the claim's second part alone may be anything; everything else is as it is.
    let (mut seen, mut numbers) = (HashSet::new(), Vec::new());
    wanted.iter().for_each(|term| arena.variables(*term, &mut seen, &mut numbers));
    numbers.retain(|number| *number < offset);
    let fixed: Substitution = numbers.into_iter().map(|number| (number, arena.variable(number))).collect();
    let begun_here = clause.hypotheses.iter().filter(|fact| fact.predicate == begun.predicate);
    !begun_here.into_iter().any(|fact| {
        let mut free = fixed.clone();
        wanted.len() == fact.arguments.len()
            && wanted.iter().zip(&fact.arguments).all(|(w, f)| arena.matches(*w, *f, &mut free))
    })
}
