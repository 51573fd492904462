//! Names that say nothing, marks that nobody owns, and code that is only a comment.

use crate::Finding;
use crate::ratchet::Count;
use crate::rust_text::{lines_with, split, without_tests};
use crate::tree::SourceFile;

/// Names of modules, files, folders and packages that tell where something is used instead of what it knows.
const EMPTY_NAMES: &[&str] = &["common", "util", "utils", "helper", "helpers", "misc", "shared"];

/// Names of types that a reader who knows Kubernetes, MQTT and TPMs does not recognise, and what the field calls them.
const PRIVATE_NAMES: &[(&str, &str)] = &[
    ("AccountWish", "AccountRequest"),
    ("Answer", "name what answers: `IssuerResponse`, `AccountDecision`"),
    ("Asked", "the request: `ApiRequest`, `GitRequest`"),
    ("Asker", "RequestContext"),
    ("Assigned", "SentVersions"),
    ("Board", "ScriptStore"),
    ("Caller", "AuthenticatedCaller"),
    ("Carrier", "BasicValue, Scheme"),
    ("Course", "NextAttempt"),
    ("Currency", "ConfigFreshness"),
    ("Desk", "StateClient"),
    ("Due", "name what is due: `DueRequests`"),
    ("Ended", "name what has ended: `SessionEnded`"),
    ("Ends", "DriverHandles"),
    ("Facts", "name the inputs: `SetupInputs`"),
    ("FallSilent", "StepDown"),
    ("FellSilent", "NodeTimedOut"),
    ("Hands", "KeyExecutor"),
    ("Held", "name what is held: `ConsoleTables`"),
    ("IndexKeeper", "AcceptedIndex"),
    ("Left", "PersistedRepositories"),
    ("Life", "ValidityPeriod"),
    ("Look", "name what is looked for: `FileChange`"),
    ("News", "WatchEvent"),
    ("NotBelieved", "Unauthenticated"),
    ("Outlet", "EventSender"),
    ("Outside", "Io"),
    ("Place", "the name of what is there: `RepositoryPath`, `ObjectRef`"),
    ("PolicyKeeper", "ActivePolicy"),
    ("Question", "name what is asked for: `ObservationRequest`"),
    ("Reading", "ReadState"),
    ("Rim", "Io"),
    ("Roster", "WatchedNodes"),
    ("Settling", "RolloutStatus"),
    ("Standing", "the status of what: `HistoryStatus`"),
    ("Taken", "name the outcome: `PushOutcome`, `CallbackOutcome`"),
    ("Touched", "Affected"),
    ("Track", "JoinSession"),
    ("Trouble", "the error or failure: `KeyError`"),
    ("WantedLine", "BootstrapCommand"),
    ("Wish", "the name of what is asked for: a write, a manifest, a key"),
];

/// Extensions of the files beside Rust and Markdown whose words are counted.
const READ_BESIDES: &[&str] = &["json", "ts", "tsx", "mjs", "proto", "toml"];

/// Files with such an extension that are generated, or the text of others.
const FOREIGN: &[&str] = &["package-lock.json", "sparkplug_b.proto"];

/// Marks of unfinished work. Put together here so that this file does not carry them.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];

/// Words and phrases of a private English, with what to write instead. How often each occurs in code, comments and documentation only falls ([`crate::ratchet`]).
const PRIVATE_ENGLISH: &[(&str, &str)] = &[
    ("nobody", "no one, or say who: no client, no service"),
    ("somebody", "say who: a user, another process"),
    ("anybody", "say who: any client"),
    ("everybody", "say who: every client"),
    ("whoever", "say who: the operator, the sender"),
    ("told", "published, sent, reported, given"),
    ("tell", "publish, send, report, say"),
    ("tells", "publishes, sends, reports, says"),
    ("hear", "receive"),
    ("hears", "receives, subscribes to"),
    ("heard", "received"),
    ("centre", "control plane, central services"),
    ("walls", "broker ACL, ACL rules"),
    ("let in", "enrol, admit, authorise"),
    ("lets in", "enrols, admits, authorises"),
    ("anew", "again, from the start"),
    ("by whom", "write a sentence of its own"),
    ("sees to", "manages"),
    ("stands in", "is stored in, is written in"),
    ("goes on", "continues"),
    ("forgive", "retry now"),
    ("is no", "is not a"),
    ("are no", "are not"),
    ("roster", "watched nodes"),
    ("currency", "freshness"),
    ("news", "event, change"),
    ("outlet", "sender"),
    ("asker", "request, client"),
    ("wishes", "requests"),
    ("unattributed", "invalid deployments"),
    ("lose track", "become stale"),
    ("lost track", "is stale"),
    ("in this life", "since process start"),
    ("lock register", "lock PCR"),
    ("is void", "is revoked, is no longer valid"),
    ("are void", "are revoked, are no longer valid"),
];

/// Words before `is no` and after it with which it is plain English: `there is no node`, `is no longer`.
const PLAIN: (&[&str], &[&str]) = (&["there", "where"], &["longer", "more", "such"]);

/// True for a file beside Rust and Markdown whose words are counted.
#[must_use]
pub fn is_read_besides(file: &SourceFile) -> bool {
    READ_BESIDES.iter().any(|extension| file.is(extension)) && !FOREIGN.contains(&file.name())
}

/// How often each word and phrase of private English occurs in these files, and where.
#[must_use]
pub fn private_english<'a>(files: impl Iterator<Item = &'a SourceFile>) -> Vec<Count> {
    let mut places: Vec<Vec<String>> = vec![Vec::new(); PRIVATE_ENGLISH.len()];
    for file in files {
        for (number, line) in file.text.lines().enumerate() {
            let lower = line.to_lowercase();
            let words: Vec<&str> = lower.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()).collect();
            for ((phrase, better), found) in PRIVATE_ENGLISH.iter().zip(&mut places) {
                let times = occurrences(&words, phrase);
                found.extend((0..times).map(|_| format!("{}:{} ({better})", file.path, number + 1)));
            }
        }
    }
    let count = |((phrase, _), places): (&(&str, &str), Vec<String>)| Count {
        rule: "word",
        subject: phrase.replace(' ', "-"),
        places,
    };
    PRIVATE_ENGLISH.iter().zip(places).map(count).collect()
}

fn occurrences(words: &[&str], phrase: &str) -> usize {
    let phrase: Vec<&str> = phrase.split(' ').collect();
    let is_plain = |at: usize| {
        let before = at.checked_sub(1).map(|before| words[before]);
        let after = words.get(at + phrase.len());
        phrase.ends_with(&["no"])
            && (before.is_some_and(|word| PLAIN.0.contains(&word)) || after.is_some_and(|word| PLAIN.1.contains(word)))
    };
    let starts = words.windows(phrase.len()).enumerate().filter(|(_, window)| **window == *phrase);
    starts.filter(|(at, _)| !is_plain(*at)).count()
}

/// Checks the names of a path.
#[must_use]
pub fn check_path(path: &str) -> Vec<Finding> {
    let parts = path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    let empty = parts.filter(|part| EMPTY_NAMES.contains(part));
    empty.map(|part| Finding::of(path, format!("`{part}` says nothing: name it by what it knows"))).collect()
}

/// Checks one Rust file.
#[must_use]
pub fn check_rust(file: &SourceFile) -> Vec<Finding> {
    let views = split(&file.text);
    let mut findings = Vec::new();
    for name in EMPTY_NAMES {
        for line in lines_with(&views.code, &format!("mod {name}")) {
            findings.push(Finding::at(
                &file.path,
                line,
                format!("module `{name}` says nothing: name it by what it knows"),
            ));
        }
    }
    for (number, line) in views.code.lines().enumerate() {
        let named = defined_type(line).and_then(|name| PRIVATE_NAMES.iter().find(|(private, _)| *private == name));
        findings.extend(named.map(|(name, better)| {
            Finding::at(&file.path, number + 1, format!("`{name}` is not a word of the field: {better}"))
        }));
    }
    let code = without_tests(&views.code);
    for call in [concat!("to", "do!"), concat!("unimple", "mented!")] {
        for line in lines_with(&code, call) {
            findings.push(Finding::at(&file.path, line, format!("`{call}`: finish it or return an error")));
        }
    }
    for (number, line) in views.comments.lines().enumerate() {
        findings.extend(check_marks(&file.path, number + 1, line));
        if is_code(line.trim()) {
            findings.push(Finding::at(
                &file.path,
                number + 1,
                "looks like commented-out code: delete it, git remembers",
            ));
        }
    }
    findings
}

/// The name of the type that a line of code defines.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.find(|word| matches!(*word, "struct" | "enum" | "trait" | "type"))?;
    words.next()
}

/// A mark needs an owner and a reason: `MARK(owner): reason`.
fn check_marks(path: &str, number: usize, line: &str) -> Option<Finding> {
    let mark = MARKS.iter().find(|mark| !lines_with(line, mark).is_empty())?;
    let owned = line.split_once(&format!("{mark}(")).and_then(|(_, rest)| rest.split_once("): "));
    let complete =
        owned.is_some_and(|(owner, reason)| !owner.trim().is_empty() && reason.split_whitespace().count() >= 2);
    (!complete).then(|| Finding::at(path, number, format!("write {mark}(owner): reason, or do it")))
}

/// A plain comment that ends and begins like a statement.
fn is_code(line: &str) -> bool {
    let Some(text) = line.strip_prefix("//").filter(|rest| !rest.starts_with(['/', '!'])) else {
        return false;
    };
    let text = text.trim();
    let starts =
        ["let ", "use ", "fn ", "pub ", "mod ", "impl ", "if ", "for ", "while ", "match ", "return ", "assert", "#["];
    let ends = text.ends_with(';') || text.ends_with('{') || text.ends_with("}]") || text.ends_with(")]");
    let call =
        text.ends_with(");") && !text.contains(". ") && text.split('(').next().is_some_and(|head| !head.contains(' '));
    call || ends && starts.iter().any(|start| text.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check_rust(&SourceFile::new("x.rs", text)).len()
    }

    #[test]
    fn names_that_say_nothing_are_found_in_paths_and_modules() {
        assert_eq!(check_path("services/configdb/src/utils.rs").len(), 1);
        assert_eq!(check_path("services/common/src/lib.rs").len(), 1);
        assert!(check_path("services/configdb/src/utilisation.rs").is_empty());
        assert_eq!(count("pub mod helpers;\nmod helpers_of_none;\n"), 1);
    }

    #[test]
    fn types_have_names_that_the_field_knows() {
        assert_eq!(count("pub struct Roster {}\nenum Wishes {}\npub(super) struct Desk;\n"), 2);
        assert_eq!(count("struct Rosters;\n// struct Roster\nlet roster = 1;\n"), 0);
    }

    #[test]
    fn private_english_is_counted_and_plain_english_is_not() {
        let file =
            SourceFile::new("x.md", "Nobody was told: it is no node.\nThere is no node; it is no longer let in.\n");
        let counts = private_english([&file].into_iter());
        let found: Vec<_> = counts.iter().filter(|count| !count.places.is_empty()).collect();
        let subjects: Vec<_> = found.iter().map(|count| (count.subject.as_str(), count.places.len())).collect();
        assert_eq!(subjects, [("nobody", 1), ("told", 1), ("let-in", 1), ("is-no", 1)]);
        assert!(found[3].places[0].starts_with("x.md:1 (is not a"), "{:?}", found[3].places);
    }

    #[test]
    fn words_of_other_texts_are_counted_but_not_those_of_others() {
        let is_read = |path: &str| is_read_besides(&SourceFile::new(path, ""));
        assert!(["a/schema.json", "a.ts", "a.tsx", "a.mjs", "join.proto", "clippy.toml"].into_iter().all(is_read));
        assert!(!["a/package-lock.json", "sparkplug_b.proto", "a.css", "a.rs"].into_iter().any(is_read));
    }

    #[test]
    fn marks_need_an_owner_and_a_reason() {
        for mark in MARKS {
            assert_eq!(count(&format!("// {mark}: later\n")), 1);
            assert_eq!(count(&format!("/// {mark}(anna):\n")), 1);
            assert_eq!(count(&format!("// {mark}(anna): wait for sqlx 0.10\n")), 0);
            assert_eq!(count(&format!("const A: &str = \"{mark}\";\n")), 0);
        }
        assert_eq!(count(concat!("fn f() { to", "do!() }\n")), 1);
    }

    #[test]
    fn commented_out_code_is_found_and_prose_is_not() {
        assert_eq!(count("// let x = 5;\n// if x > 3 {\n//self.send(x);\n// #[derive(Debug)]\n"), 4);
        assert_eq!(count("// Let it be; then return.\n/// let x = 5;\n// for each node, see above (and below).\n"), 0);
    }
}
