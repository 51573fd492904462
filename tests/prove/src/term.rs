//! Terms of perfect cryptography. Equal terms have one id, so comparing two is comparing ids, and a substitution visits each part of a term once.

use std::collections::{HashMap, HashSet};

/// A term of an [`Arena`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term(u32);

/// A name of a function, together with how many arguments it takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Symbol {
    /// The name as it is written.
    pub name: String,
    /// How many arguments it takes.
    pub arity: usize,
}

/// A function symbol of an [`Arena`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function(u32);

/// What a term is made of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Node {
    /// Any term; variables of two clauses are never the same.
    Variable(u32),
    /// A function of terms; a name has no arguments.
    Apply(Function, Vec<Term>),
}

/// Where all terms and function symbols are.
#[derive(Debug, Default)]
pub struct Arena {
    nodes: Vec<Node>,
    is_ground: Vec<bool>,
    terms: HashMap<Node, Term>,
    symbols: Vec<Symbol>,
    functions: HashMap<Symbol, Function>,
}

/// Terms for variables.
pub type Substitution = HashMap<u32, Term>;

impl Arena {
    /// The symbol of this name and arity.
    pub fn function(&mut self, name: &str, arity: usize) -> Function {
        let symbol = Symbol { name: name.to_owned(), arity };
        if let Some(known) = self.functions.get(&symbol) {
            return *known;
        }
        let function = Function(u32::try_from(self.symbols.len()).unwrap_or(u32::MAX));
        self.symbols.push(symbol.clone());
        self.functions.insert(symbol, function);
        function
    }

    /// Name and arity of a symbol.
    #[must_use]
    pub fn symbol(&self, function: Function) -> &Symbol {
        &self.symbols[function.0 as usize]
    }

    /// All symbols so far.
    pub fn all_functions(&self) -> impl Iterator<Item = Function> + use<> {
        (0..u32::try_from(self.symbols.len()).unwrap_or(u32::MAX)).map(Function)
    }

    /// A variable.
    pub fn variable(&mut self, number: u32) -> Term {
        self.intern(Node::Variable(number))
    }

    /// A function of terms.
    pub fn apply(&mut self, function: Function, arguments: Vec<Term>) -> Term {
        self.intern(Node::Apply(function, arguments))
    }

    /// A function, by its name, of terms.
    pub fn call(&mut self, name: &str, arguments: &[Term]) -> Term {
        let function = self.function(name, arguments.len());
        self.apply(function, arguments.to_vec())
    }

    fn intern(&mut self, node: Node) -> Term {
        if let Some(known) = self.terms.get(&node) {
            return *known;
        }
        let is_ground = match &node {
            Node::Variable(_) => false,
            Node::Apply(_, arguments) => arguments.iter().all(|argument| self.is_ground[argument.0 as usize]),
        };
        let term = Term(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node.clone());
        self.is_ground.push(is_ground);
        self.terms.insert(node, term);
        term
    }

    /// What a term is made of.
    #[must_use]
    pub fn node(&self, term: Term) -> &Node {
        &self.nodes[term.0 as usize]
    }

    /// The variable, if the term is one.
    #[must_use]
    pub fn as_variable(&self, term: Term) -> Option<u32> {
        match self.node(term) {
            Node::Variable(number) => Some(*number),
            Node::Apply(..) => None,
        }
    }

    /// The term with its variables replaced; bindings may themselves hold bound variables.
    pub fn substitute(&mut self, term: Term, bindings: &Substitution, done: &mut HashMap<Term, Term>) -> Term {
        if self.is_ground[term.0 as usize] {
            return term;
        }
        if let Some(known) = done.get(&term) {
            return *known;
        }
        let replaced = match self.node(term).clone() {
            Node::Variable(number) => match bindings.get(&number) {
                Some(bound) if *bound != term => self.substitute(*bound, bindings, done),
                _ => term,
            },
            Node::Apply(function, arguments) => {
                let arguments = arguments.iter().map(|at| self.substitute(*at, bindings, done)).collect();
                self.apply(function, arguments)
            }
        };
        done.insert(term, replaced);
        replaced
    }

    /// The term with every variable moved up by `offset`.
    pub fn shift(&mut self, term: Term, offset: u32, done: &mut HashMap<Term, Term>) -> Term {
        if self.is_ground[term.0 as usize] {
            return term;
        }
        if let Some(known) = done.get(&term) {
            return *known;
        }
        let shifted = match self.node(term).clone() {
            Node::Variable(number) => self.variable(number + offset),
            Node::Apply(function, arguments) => {
                let arguments = arguments.iter().map(|at| self.shift(*at, offset, done)).collect();
                self.apply(function, arguments)
            }
        };
        done.insert(term, shifted);
        shifted
    }

    /// Adds the variables of a term, in the order in which they stand.
    pub fn variables(&self, term: Term, seen: &mut HashSet<Term>, found: &mut Vec<u32>) {
        if self.is_ground[term.0 as usize] || !seen.insert(term) {
            return;
        }
        match self.node(term) {
            Node::Variable(number) => found.push(*number),
            Node::Apply(_, arguments) => arguments.iter().for_each(|at| self.variables(*at, seen, found)),
        }
    }

    /// Makes two terms equal, or says that nothing does.
    #[must_use]
    pub fn unify(&self, pairs: &[(Term, Term)], bindings: &mut Substitution) -> bool {
        let mut seen = HashSet::new();
        let mut waiting = pairs.to_vec();
        while let Some((left, right)) = waiting.pop() {
            let (left, right) = (self.walk(left, bindings), self.walk(right, bindings));
            if left == right || !seen.insert((left, right)) {
                continue;
            }
            match (self.node(left), self.node(right)) {
                (Node::Variable(number), _) => {
                    if self.occurs(*number, right, bindings, &mut HashSet::new()) {
                        return false;
                    }
                    bindings.insert(*number, right);
                    seen.clear();
                }
                (_, Node::Variable(number)) => {
                    if self.occurs(*number, left, bindings, &mut HashSet::new()) {
                        return false;
                    }
                    bindings.insert(*number, left);
                    seen.clear();
                }
                (Node::Apply(f, ours), Node::Apply(g, theirs)) => {
                    let both_ground = self.is_ground[left.0 as usize] && self.is_ground[right.0 as usize];
                    if f != g || both_ground {
                        return false;
                    }
                    waiting.extend(ours.iter().copied().zip(theirs.iter().copied()));
                }
            }
        }
        true
    }

    fn walk(&self, mut term: Term, bindings: &Substitution) -> Term {
        while let Node::Variable(number) = self.node(term) {
            match bindings.get(number) {
                Some(bound) => term = *bound,
                None => break,
            }
        }
        term
    }

    fn occurs(&self, number: u32, term: Term, bindings: &Substitution, seen: &mut HashSet<Term>) -> bool {
        let term = self.walk(term, bindings);
        if self.is_ground[term.0 as usize] || !seen.insert(term) {
            return false;
        }
        match self.node(term) {
            Node::Variable(other) => *other == number,
            Node::Apply(_, arguments) => arguments.iter().any(|at| self.occurs(number, *at, bindings, seen)),
        }
    }

    /// Makes `pattern` equal to `term` by its own variables alone.
    #[must_use]
    pub fn matches(&self, pattern: Term, term: Term, bindings: &mut Substitution) -> bool {
        let mut seen = HashSet::new();
        let mut waiting = vec![(pattern, term)];
        while let Some((pattern, term)) = waiting.pop() {
            if self.is_ground[pattern.0 as usize] {
                if pattern == term {
                    continue;
                }
                return false;
            }
            match (self.node(pattern), self.node(term)) {
                (Node::Variable(number), _) => match bindings.get(number) {
                    Some(bound) if *bound != term => return false,
                    Some(_) => {}
                    None => {
                        bindings.insert(*number, term);
                    }
                },
                (Node::Apply(f, ours), Node::Apply(g, theirs)) => {
                    if f != g {
                        return false;
                    }
                    // Parts that a term has several times are compared once.
                    if ours.len() < 2 || seen.insert((pattern, term)) {
                        waiting.extend(ours.iter().copied().zip(theirs.iter().copied()));
                    }
                }
                (Node::Apply(..), Node::Variable(_)) => return false,
            }
        }
        true
    }

    /// The term in readable form.
    #[must_use]
    pub fn show(&self, term: Term, depth: usize) -> String {
        match self.node(term) {
            Node::Variable(number) => format!("x{number}"),
            Node::Apply(function, arguments) if arguments.is_empty() => self.symbol(*function).name.clone(),
            Node::Apply(function, _) if depth == 0 => format!("{}(..)", self.symbol(*function).name),
            Node::Apply(function, arguments) => {
                let arguments: Vec<String> = arguments.iter().map(|at| self.show(*at, depth - 1)).collect();
                format!("{}({})", self.symbol(*function).name, arguments.join(", "))
            }
        }
    }
}
