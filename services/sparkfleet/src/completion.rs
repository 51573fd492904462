//! Completion in a shell: the script that the shell reads once, and what it asks the program for at each key.
//!
//! bash, zsh and fish ask the program, which knows the names of the fleet; the scripts of other shells know commands and options alone. The scripts are ours, because those of the library
//! leave it to the user's shell to expand what is in a name. Each of ours has its shell quote a candidate.

use std::ffi::OsString;
use std::io::Write as _;

use sparkfleet_cli::completion::Names;
use sparkfleet_cli::output::visible;

use crate::arguments::{Arguments, Asking};

const BASH: &str = include_str!("completion/sparkfleet.bash");
const ZSH: &str = include_str!("completion/sparkfleet.zsh");
const FISH: &str = include_str!("completion/sparkfleet.fish");

/// Prints the script of a shell.
pub fn print_script(shell: clap_complete::Shell) {
    let script = match shell {
        clap_complete::Shell::Bash => BASH,
        clap_complete::Shell::Zsh => ZSH,
        clap_complete::Shell::Fish => FISH,
        other => {
            let mut command = <Arguments as clap::CommandFactory>::command();
            return clap_complete::generate(other, &mut command, "sparkfleet", &mut std::io::stdout());
        }
    };
    // A reader that has gone needs no script.
    let _ = std::io::stdout().write_all(script.as_bytes());
}

/// Prints what the last of these words can be, a candidate a line; the first word is the program.
pub async fn print_candidates(shell: Asking, words: Vec<OsString>) {
    // Names are asked for by a runtime of their own, which needs a thread that has none.
    let candidates = tokio::task::spawn_blocking(move || candidates(shell, words)).await.unwrap_or_default();
    let lines: String = candidates.iter().map(|candidate| format!("{candidate}\n")).collect();
    let _ = std::io::stdout().write_all(lines.as_bytes());
}

fn candidates(shell: Asking, mut words: Vec<OsString>) -> Vec<String> {
    let Some(last) = words.len().checked_sub(1) else { return Vec::new() };
    let quoted = if shell == Asking::Fish { last } else { 0 };
    for word in &mut words[quoted..] {
        *word = unquoted(std::mem::take(word));
    }
    let is_option_wanted = words[last].as_encoded_bytes().starts_with(b"-");
    let mut command = Names::new(&words).complete(Arguments::described());
    let current = std::env::current_dir().ok();
    let found = clap_complete::engine::complete(&mut command, words, last, current.as_deref()).unwrap_or_default();
    let shown = |candidate: &clap_complete::CompletionCandidate| {
        // Names of files are as hostile as those of the fleet.
        let value = candidate.get_value().to_str().filter(|value| visible(value) == **value && *value != ".")?;
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.lines().next().map(visible).filter(|help| !help.is_empty() && shell != Asking::Bash);
        Some(help.map_or_else(|| value.to_owned(), |help| format!("{value}\t{help}")))
    };
    let mut lines: Vec<String> = found.iter().filter_map(shown).collect();
    // Where there is something else, the options of a command would hide it.
    if !is_option_wanted && lines.iter().any(|line| !line.starts_with('-')) {
        lines.retain(|line| !line.starts_with('-'));
    }
    lines
}

/// A word of a shell without its quotes, which may not be closed yet. Nothing in it is expanded.
fn unquoted(word: OsString) -> OsString {
    let Some(text) = word.to_str().filter(|text| text.contains(['\\', '\'', '"'])) else { return word };
    let (mut plain, mut quote) = (String::new(), None);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => plain.extend(characters.next()),
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (c, _) => plain.push(c),
        }
    }
    plain.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(shell: Asking, words: &[&str]) -> Vec<String> {
        candidates(shell, words.iter().map(OsString::from).collect())
    }

    #[test]
    fn commands_and_options_are_completed_and_options_only_where_nothing_else_is_or_one_is_begun() {
        assert_eq!(of(Asking::Bash, &["sparkfleet", "clus"]), ["cluster", "cluster-manager"]);
        let below = of(Asking::Bash, &["sparkfleet", "cluster", ""]);
        assert!(
            below.iter().any(|word| word == "show") && below.iter().all(|word| !word.starts_with('-')),
            "{below:?}"
        );
        assert_eq!(of(Asking::Bash, &["sparkfleet", "cluster", "list", "--sel"]), ["--selector"]);
        let options = of(Asking::Bash, &["sparkfleet", "cluster", "list", ""]);
        assert!(options.iter().any(|word| word == "--watch"), "{options:?}");
        assert_eq!(of(Asking::Bash, &["sparkfleet", "cluster", "list", "-o", "js"]), ["json"]);
        assert_eq!(of(Asking::Bash, &[]), [""; 0]);
        assert!(of(Asking::Bash, &["sparkfleet", "compl"]).iter().all(|word| word == "completions"), "not this one");
    }

    #[test]
    fn shells_that_show_what_a_candidate_means_get_one_line_of_it() {
        let lines = of(Asking::Fish, &["sparkfleet", "alert", ""]);
        assert!(lines.iter().any(|line| line.starts_with("list\t") && line.len() > 8), "{lines:?}");
        assert_eq!(lines, of(Asking::Zsh, &["sparkfleet", "alert", ""]));
    }

    #[test]
    fn quotes_of_bash_are_taken_off() {
        for (word, plain) in [
            (r"Edge\ agent", "Edge agent"),
            (r#""Edge a"#, "Edge a"),
            ("'a\\b'c", r"a\bc"),
            (r#""a\"b""#, r#"a"b"#),
            ("$(touch x)", "$(touch x)"),
            ("plain", "plain"),
            ("end\\", "end"),
        ] {
            assert_eq!(unquoted(word.into()), OsString::from(plain), "{word}");
        }
    }
}
