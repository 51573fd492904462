//! Circles between the files of a package: who reads one of them has to read all.
//!
//! A file uses another if its code names a path of `crate::`, `super::` or a module of its own that leads there. A module that only declares another below it,
//! or passes on what is in it (`pub use`), does not use it. Tests do not count.
//! How many files of a package lie on circles only falls ([`crate::ratchet`]), and so does the number of top-level modules, where a folder and its file are one.

use crate::rust_text::{split, without_tests};
use crate::tree::SourceFile;
use std::collections::{BTreeMap, BTreeSet};

/// Modules of a package and the modules that each uses.
pub type Uses = BTreeMap<String, BTreeSet<String>>;

/// The package's folder and the module of a source file: `services/x/src/a/b.rs` is `a::b` of `services/x`. Programs and tests are none.
fn module_of(path: &str) -> Option<(&str, String)> {
    let (package, file) = path.split_once("/src/")?;
    let module = file.strip_suffix(".rs")?;
    if module == "main" || module.starts_with("bin/") || path.contains("/tests/") || module.ends_with("tests") {
        return None;
    }
    let module = module.strip_suffix("/mod").unwrap_or(module);
    Some((package, if module == "lib" { String::new() } else { module.replace('/', "::") }))
}

/// What uses what, for each package.
#[must_use]
pub fn uses<'a>(files: impl Iterator<Item = &'a SourceFile>) -> BTreeMap<String, Uses> {
    let mut sources: BTreeMap<&str, BTreeMap<String, &SourceFile>> = BTreeMap::new();
    for file in files {
        if let Some((package, module)) = module_of(&file.path) {
            sources.entry(package).or_default().insert(module, file);
        }
    }
    let of_package = |(package, modules): (&str, BTreeMap<String, &SourceFile>)| {
        let names: BTreeSet<&str> = modules.keys().map(String::as_str).collect();
        let used = modules.iter().map(|(module, file)| {
            let code = without_tests(&split(&file.text).code);
            let targets = paths(&code, &inner(module, &names)).into_iter();
            let targets = targets.filter_map(|path| resolve(&path, module, &names));
            (module.clone(), targets.filter(|target| target != module).collect())
        });
        (package.to_owned(), used.collect())
    };
    sources.into_iter().map(of_package).collect()
}

/// The modules that are files directly below a module: their last names.
fn inner<'a>(module: &str, names: &BTreeSet<&'a str>) -> Vec<&'a str> {
    let below = |name: &&'a str| match (module, name.rsplit_once("::")) {
        ("", None) => !name.is_empty(),
        (_, Some((outer, _))) => outer == module,
        (_, None) => false,
    };
    let last = |name: &'a str| name.rsplit("::").next().unwrap_or(name);
    names.iter().copied().filter(|name| below(name)).map(last).collect()
}

/// Every path that begins with `crate`, `super` or one of `inner`, groups opened: `crate::{a, b::C}` is `crate::a` and `crate::b::C`.
fn paths(code: &str, inner: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let starts = ["crate", "super"].map(|name| (name, false)).into_iter().chain(inner.iter().map(|name| (*name, true)));
    for (name, is_inner) in starts {
        for (at, _) in code.match_indices(&format!("{name}::")) {
            let before = code[..at].chars().next_back();
            let is_start = before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == ':'));
            if is_start && !(is_inner && is_passed_on(&code[..at])) {
                open(&code[at..], "", &mut found);
            }
        }
    }
    found
}

/// Whether the path after this code is that of a `pub use`.
fn is_passed_on(before: &str) -> bool {
    let visibility = before.trim_end().strip_suffix("use").map(str::trim_end).unwrap_or_default();
    let visibility =
        visibility.strip_suffix(')').map_or(visibility, |open| open.rsplit_once('(').map_or("", |(word, _)| word));
    visibility.ends_with("pub")
}

/// Reads one path at the beginning of `text`, its groups with `prefix` before them; returns how much was read.
fn open(text: &str, prefix: &str, found: &mut Vec<String>) -> usize {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let end = text.find(|c| !is_path(c)).unwrap_or(text.len());
    let path = format!("{prefix}{}", &text[..end]);
    if !(path.ends_with("::") && text[end..].starts_with('{')) {
        found.push(path);
        return end;
    }
    let mut at = end + 1;
    loop {
        at += text[at..].len() - text[at..].trim_start_matches([' ', '\n', ',']).len();
        match text[at..].chars().next() {
            None => return at,
            Some('}') => return at + 1,
            Some(c) if is_path(c) => at += open(&text[at..], &path, found),
            Some(c) => at += c.len_utf8(),
        }
    }
}

/// The module that a path leads to, seen from `module`: the longest beginning of it that is a file. None: the root, which holds nothing but declarations.
fn resolve(path: &str, module: &str, names: &BTreeSet<&str>) -> Option<String> {
    let mut base: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let mut parts = path.split("::").filter(|part| !part.is_empty()).peekable();
    if parts.peek() == Some(&"crate") {
        parts.next();
        base.clear();
    }
    while parts.peek() == Some(&"super") {
        parts.next();
        base.pop();
    }
    let mut found = base.join("::");
    for part in parts {
        let next = if found.is_empty() { part.to_owned() } else { format!("{found}::{part}") };
        if !names.contains(next.as_str()) {
            break;
        }
        found = next;
    }
    (!found.is_empty()).then_some(found)
}

/// The same for top-level modules: `a::b` and `a` are `a`.
#[must_use]
pub fn top_level(uses: &Uses) -> Uses {
    let top = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
    let mut folded = Uses::new();
    for (module, used) in uses.iter().filter(|(module, _)| !module.is_empty()) {
        let own = top(module);
        let others = used.iter().map(|module| top(module)).filter(|other| *other != own);
        folded.entry(own.clone()).or_default().extend(others);
    }
    folded
}

/// The modules that lie on a circle.
#[must_use]
pub fn on_circles(uses: &Uses) -> BTreeSet<&str> {
    let is_reached = |from: &str| {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut waiting: Vec<&str> = uses.get(from).into_iter().flatten().map(String::as_str).collect();
        while let Some(module) = waiting.pop() {
            if seen.insert(module) {
                waiting.extend(uses.get(module).into_iter().flatten().map(String::as_str));
            }
        }
        seen.contains(from)
    };
    uses.keys().map(String::as_str).filter(|module| is_reached(module)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(files: &[(&str, &str)]) -> Uses {
        let files: Vec<SourceFile> =
            files.iter().map(|(path, text)| SourceFile::new(&format!("x/src/{path}"), text)).collect();
        uses(files.iter()).remove("x").unwrap()
    }

    #[test]
    fn a_circle_is_found_through_groups_and_parents() {
        let uses = sample(&[
            ("lib.rs", "pub mod a; use crate::a::A;"),
            ("a.rs", "use crate::{b::{self, B}, c};\nfn f() { crate::d::g(); }"),
            ("b.rs", "mod inner;"),
            ("b/inner.rs", "use super::super::a::A;\nuse super::B;"),
            ("c.rs", "use crate::d;\n#[cfg(test)]\nmod tests { use crate::a; }"),
            ("d.rs", "struct D;"),
        ]);
        assert_eq!(uses["a"], ["b", "c", "d"].map(str::to_owned).into());
        assert_eq!(uses["b::inner"], ["a", "b"].map(str::to_owned).into());
        assert!(on_circles(&uses).is_empty(), "nothing leads to b::inner");
        assert_eq!(on_circles(&top_level(&uses)), ["a", "b"].into());
    }

    #[test]
    fn a_module_below_is_used_by_its_bare_name_and_not_by_passing_on_what_it_has() {
        let uses = sample(&[
            ("a.rs", "mod x; mod y;\npub use x::X;\npub(crate) use x::Z;\nuse y::Y;"),
            ("a/x.rs", "use super::Y;"),
            ("a/y.rs", "fn y() { super::f(); other::x::g(); }"),
            ("b.rs", "use x::X;"),
        ]);
        assert_eq!(uses["a"], ["a::y"].map(str::to_owned).into());
        assert_eq!(on_circles(&uses), ["a", "a::y"].into());
        assert_eq!(uses["b"], [].into(), "another package");
        let uses = sample(&[("a.rs", "pub use crate::b::B;"), ("b.rs", "pub use super::a::A;")]);
        assert_eq!(on_circles(&uses), ["a", "b"].into(), "neither is below the other");
    }
}
