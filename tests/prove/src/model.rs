//! From the text of a model to Horn clauses.
//!
//! | line | meaning |
//! |---|---|
//! | `private k, ek(m)` | names and functions that the attacker cannot make |
//! | `public a, b` | names that are public |
//! | `known T` | the attacker knows T |
//! | `later T` | the attacker learns T after all runs are over; from then on secrecy is asked |
//! | `fact P(T)` | P holds; words that are not names stand for any term |
//! | `role R(m)` | a role, of which the attacker starts as many runs as it likes, for any `m` |
//! | `in T`, `out T` | the role waits for what has this form, or sends; words that it does not know yet are bound |
//! | `any x` | x is bound by what the role waits for next |
//! | `when P(T)` | the role continues only if P holds |
//! | `let x = T`, `new x(T)` | an abbreviation; a fresh name, another for each run and each T |
//! | `begin E(T)`, `end E(T)` | the role begins or concludes something |
//! | `secret ID T` | claim: the attacker never knows T |
//! | `agree ID E(T) => B(U)` | claim: for each E that was concluded, a role began B |
//! | `possible ID E(T)` | claim: a run gets as far as E |
//!
//! Functions are perfect: only the holder of a key opens, signs, or computes a code; a hash is never undone; a pattern that is waited for says what is checked.

use std::collections::{BTreeSet, HashMap};

use crate::clause::{Clause, Fact, Predicate, TUPLE};
use crate::syntax::{Line, ModelError, Written, lines, terms};
use crate::term::{Arena, Symbol, Term};

/// What is claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The attacker never knows such a term.
    Secret(Fact),
    /// The first happens only if the second began.
    Agree(Fact, Fact),
    /// It happens in some run.
    Possible(Fact),
}

/// A claim and the id that reports call it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The id.
    pub id: String,
    /// What is claimed.
    pub claim: Claim,
}

/// A model that is ready to be searched.
#[derive(Debug)]
pub struct Compiled {
    /// Where its terms are.
    pub arena: Arena,
    /// What all roles do, and what the attacker can do.
    pub clauses: Vec<(String, Clause)>,
    /// What is claimed of it.
    pub claims: Vec<Named>,
}

#[derive(Default)]
struct Compiler {
    arena: Arena,
    /// Symbols that the attacker cannot apply.
    private: BTreeSet<(String, usize)>,
    names: BTreeSet<String>,
    clauses: Vec<(String, Clause)>,
    claims: Vec<Named>,
    has_later: bool,
}

/// What a role knows at a line.
struct Scope {
    name: String,
    words: HashMap<String, Term>,
    hypotheses: Vec<Fact>,
    session: Term,
    parameters: Vec<Term>,
    variables: u32,
    outputs: usize,
}

impl Scope {
    fn fresh(&mut self, arena: &mut Arena) -> Term {
        self.variables += 1;
        arena.variable(self.variables - 1)
    }

    fn empty(arena: &mut Arena) -> Self {
        let session = arena.variable(0);
        let (words, hypotheses, parameters) = Default::default();
        Self { name: String::new(), words, hypotheses, session, parameters, variables: 1, outputs: 0 }
    }
}

/// Reads a model with these variants on.
///
/// # Errors
/// The text is against a rule.
pub fn compile(text: &str, variants: &BTreeSet<&str>) -> Result<Compiled, ModelError> {
    let mut compiler = Compiler::default();
    let lines = lines(text, variants)?;
    compiler.has_later = lines.iter().any(|line| line.keyword == "later");
    let mut scope = None;
    for line in &lines {
        compiler.line(line, &mut scope)?;
    }
    compiler.attacker();
    let Compiler { arena, clauses, claims, .. } = compiler;
    Ok(Compiled { arena, clauses, claims })
}

impl Compiler {
    fn line(&mut self, line: &Line, scope: &mut Option<Scope>) -> Result<(), ModelError> {
        let Line { number, keyword, rest } = line;
        match keyword.as_str() {
            "private" | "public" => self.declare(terms(rest, *number)?, keyword == "private"),
            "known" | "later" | "fact" => self.fact(keyword, rest, *number)?,
            "role" => *scope = Some(self.role(rest, *number)?),
            "secret" | "agree" | "possible" => self.claim(keyword, rest, *number)?,
            // What a report says of variants is read elsewhere.
            "setting" | "limit" | "fault" => {}
            _ => match scope {
                Some(scope) => self.step(scope, line)?,
                None => return Err(ModelError::at(*number, format!("{keyword} belongs into a role"))),
            },
        }
        Ok(())
    }

    fn declare(&mut self, declared: Vec<Written>, is_private: bool) {
        for written in declared {
            let (name, arity) = match written {
                Written::Word(name) => (name, 0),
                Written::Call(name, arguments) => (name, arguments.len()),
            };
            if is_private {
                self.private.insert((name.clone(), arity));
            } else {
                self.arena.function(&name, arity);
            }
            if arity == 0 {
                self.names.insert(name);
            }
        }
    }

    fn role(&mut self, text: &str, number: usize) -> Result<Scope, ModelError> {
        let mut scope = Scope::empty(&mut self.arena);
        let [written] = terms(text, number)?.try_into().map_err(|_| ModelError::at(number, "one role"))?;
        let (name, parameters) = match written {
            Written::Word(name) => (name, Vec::new()),
            Written::Call(name, parameters) => (name, parameters),
        };
        for parameter in parameters {
            let term = self.term(&parameter, &mut scope, true, number)?;
            scope.parameters.push(term);
        }
        scope.name = name;
        Ok(scope)
    }

    /// `may_bind`: a word that is not known yet becomes a variable; otherwise it is an error.
    fn term(
        &mut self,
        written: &Written,
        scope: &mut Scope,
        may_bind: bool,
        number: usize,
    ) -> Result<Term, ModelError> {
        match written {
            Written::Word(word) if word == "_" && may_bind => Ok(scope.fresh(&mut self.arena)),
            Written::Word(word) => {
                if let Some(known) = scope.words.get(word) {
                    return Ok(*known);
                }
                if self.names.contains(word) {
                    return Ok(self.arena.call(word, &[]));
                }
                if !may_bind {
                    return Err(ModelError::at(number, format!("{word} is not known here")));
                }
                let variable = scope.fresh(&mut self.arena);
                scope.words.insert(word.clone(), variable);
                Ok(variable)
            }
            Written::Call(name, arguments) => {
                let arguments = arguments
                    .iter()
                    .map(|argument| self.term(argument, scope, may_bind, number))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(self.arena.call(name, &arguments))
            }
        }
    }

    /// A fact of a model: `P(T, U)`.
    fn event(
        &mut self,
        written: &Written,
        scope: &mut Scope,
        may_bind: bool,
        number: usize,
        predicate: fn(String) -> Predicate,
    ) -> Result<Fact, ModelError> {
        let Written::Call(name, arguments) = written else {
            return Err(ModelError::at(number, "must be of the form NAME(TERM, ...)"));
        };
        let arguments = arguments
            .iter()
            .map(|argument| self.term(argument, scope, may_bind, number))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Fact { predicate: predicate(name.clone()), arguments })
    }

    fn fact(&mut self, keyword: &str, text: &str, number: usize) -> Result<(), ModelError> {
        let mut scope = Scope::empty(&mut self.arena);
        for written in terms(text, number)? {
            let conclusion = match keyword {
                "fact" => self.event(&written, &mut scope, true, number, Predicate::Other)?,
                "known" => Fact::known(Predicate::Known, self.term(&written, &mut scope, true, number)?),
                _ => Fact::known(Predicate::KnownLater, self.term(&written, &mut scope, true, number)?),
            };
            let label = format!("{keyword} {text}");
            self.clauses.push((label, Clause { hypotheses: Vec::new(), conclusion }));
        }
        Ok(())
    }

    fn claim(&mut self, keyword: &str, text: &str, number: usize) -> Result<(), ModelError> {
        let (id, text) = text.split_once(' ').ok_or_else(|| ModelError::at(number, "a claim needs an id"))?;
        let mut scope = Scope::empty(&mut self.arena);
        let (first, second) = text.split_once("=>").map_or((text, None), |(first, second)| (first, Some(second)));
        let one = |text: &str| -> Result<Written, ModelError> {
            let [one] = terms(text, number)?.try_into().map_err(|_| ModelError::at(number, "one term"))?;
            Ok(one)
        };
        let first = one(first)?;
        let claim = match (keyword, second) {
            ("secret", None) => {
                let head = match &first {
                    Written::Word(name) => (name.clone(), 0),
                    Written::Call(name, arguments) => (name.clone(), arguments.len()),
                };
                if !self.private.contains(&head) {
                    return Err(ModelError::at(number, "no role makes this secret"));
                }
                let predicate = if self.has_later { Predicate::KnownLater } else { Predicate::Known };
                Claim::Secret(Fact::known(predicate, self.term(&first, &mut scope, true, number)?))
            }
            ("agree", Some(second)) => {
                let ended = self.event(&first, &mut scope, true, number, Predicate::Ended)?;
                Claim::Agree(ended, self.event(&one(second)?, &mut scope, true, number, Predicate::Begun)?)
            }
            ("possible", None) => Claim::Possible(self.event(&first, &mut scope, true, number, Predicate::Ended)?),
            _ => return Err(ModelError::at(number, "no claim has this form")),
        };
        self.claims.push(Named { id: id.to_owned(), claim });
        Ok(())
    }

    fn step(&mut self, scope: &mut Scope, line: &Line) -> Result<(), ModelError> {
        let Line { number, keyword, rest } = line;
        let number = *number;
        match keyword.as_str() {
            "let" => {
                let (name, text) = rest.split_once('=').ok_or_else(|| ModelError::at(number, "let NAME = TERM"))?;
                let mut values = Vec::new();
                for written in terms(text, number)? {
                    values.push(self.term(&written, scope, false, number)?);
                }
                let value = if let [one] = values[..] { one } else { self.arena.call(TUPLE, &values) };
                scope.words.insert(name.trim().to_owned(), value);
            }
            "new" => self.fresh_names(scope, rest, number)?,
            "any" => {
                for written in terms(rest, number)? {
                    self.term(&written, scope, true, number)?;
                }
            }
            "in" => {
                for written in terms(rest, number)? {
                    let term = self.term(&written, scope, true, number)?;
                    scope.hypotheses.push(Fact::known(Predicate::Known, term));
                }
            }
            "when" => {
                for written in terms(rest, number)? {
                    let fact = self.event(&written, scope, true, number, Predicate::Other)?;
                    scope.hypotheses.push(fact);
                }
            }
            "begin" => {
                for written in terms(rest, number)? {
                    let fact = self.event(&written, scope, false, number, Predicate::Begun)?;
                    scope.hypotheses.push(fact);
                }
            }
            "end" => {
                for written in terms(rest, number)? {
                    let fact = self.event(&written, scope, false, number, Predicate::Ended)?;
                    self.concludes(scope, fact, &format!("concludes {}", rest.split('(').next().unwrap_or_default()));
                }
            }
            "out" => {
                for written in terms(rest, number)? {
                    let term = self.term(&written, scope, false, number)?;
                    scope.outputs += 1;
                    let shown = match &written {
                        Written::Word(name) | Written::Call(name, _) => name.clone(),
                    };
                    self.concludes(scope, Fact::known(Predicate::Known, term), &format!("sends {shown}"));
                }
            }
            _ => return Err(ModelError::at(number, format!("{keyword} is not a step"))),
        }
        Ok(())
    }

    fn fresh_names(&mut self, scope: &mut Scope, text: &str, number: usize) -> Result<(), ModelError> {
        for written in terms(text, number)? {
            let (name, arguments) = match written {
                Written::Word(name) => (name, Vec::new()),
                Written::Call(name, arguments) => (name, arguments),
            };
            let mut made_of = vec![scope.session];
            made_of.extend(&scope.parameters);
            for argument in &arguments {
                made_of.push(self.term(argument, scope, false, number)?);
            }
            self.private.insert((name.clone(), made_of.len()));
            let value = self.arena.call(&name, &made_of);
            scope.words.insert(name, value);
        }
        Ok(())
    }

    fn concludes(&mut self, scope: &Scope, conclusion: Fact, what: &str) {
        let clause = Clause { hypotheses: scope.hypotheses.clone(), conclusion };
        self.clauses.push((format!("{} {what}", scope.name), clause));
    }

    /// What the attacker can do with what it knows.
    fn attacker(&mut self) {
        let times = if self.has_later { vec![Predicate::Known, Predicate::KnownLater] } else { vec![Predicate::Known] };
        // The attacker makes names of its own.
        let own = self.arena.call("own", &[]);
        self.clauses.push(("its own name".to_owned(), clause(vec![], Predicate::Known, own)));
        for predicate in times {
            self.opens(&predicate);
            for function in self.arena.all_functions().collect::<Vec<_>>() {
                let Symbol { name, arity } = self.arena.symbol(function).clone();
                if name == TUPLE || self.private.contains(&(name.clone(), arity)) {
                    continue;
                }
                let arguments: Vec<Term> =
                    (0..u32::try_from(arity).unwrap_or(u32::MAX)).map(|number| self.arena.variable(number)).collect();
                let made = self.arena.apply(function, arguments.clone());
                self.clauses.push((format!("computes {name}"), clause(arguments, predicate.clone(), made)));
            }
        }
        if self.has_later {
            let any = self.arena.variable(0);
            let conclusion = Fact::known(Predicate::KnownLater, any);
            let hypotheses = vec![Fact::known(Predicate::Known, any)];
            self.clauses.push(("remembers".to_owned(), Clause { hypotheses, conclusion }));
        }
    }

    fn opens(&mut self, predicate: &Predicate) {
        let [key, text, data] = [0, 1, 2].map(|number| self.arena.variable(number));
        let public = self.arena.call("pk", &[key]);
        let sealed = self.arena.call("aead", &[key, text, data]);
        let encapsulated = self.arena.call("encapsulated", &[public, text]);
        // Makes the symbol known, so that the attacker encapsulates, too.
        self.arena.call("shared", &[public, text]);
        for (label, hypotheses, conclusion) in
            [("opens aead", vec![sealed, key], text), ("decapsulates", vec![encapsulated, key], text)]
        {
            self.clauses.push((label.to_owned(), clause(hypotheses, predicate.clone(), conclusion)));
        }
    }
}

fn clause(hypotheses: Vec<Term>, predicate: Predicate, conclusion: Term) -> Clause {
    let hypotheses = hypotheses.into_iter().map(|term| Fact::known(predicate.clone(), term)).collect();
    Clause { hypotheses, conclusion: Fact::known(predicate, conclusion) }
}
