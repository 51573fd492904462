//! What `tests/tidy` can do beside checking.
//!
//! ```text
//! cargo run -p tidy -- count [RULE]     prints what only falls: each place of a rule, or the number of each
//! cargo run -p tidy -- lower            writes down every number that has fallen
//! cargo run -p tidy -- sentences        prints the Markdown files with several sentences on a line
//! cargo run -p tidy -- sentences --fix  gives every sentence a line of its own
//! ```

#![expect(clippy::print_stdout, reason = "this program's purpose is to print")]

use std::process::ExitCode;

use tidy::ratchet;
use tidy::sentences::{has_sentences, one_a_line};
use tidy::tree::{Tree, root};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["count"] => count(None),
        ["count", rule] => count(Some(rule)),
        ["lower"] => lower(),
        ["sentences"] => sentences(false),
        ["sentences", "--fix"] => sentences(true),
        _ => Err("usage: tidy count [RULE] | lower | sentences [--fix]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

type Done = Result<(), Box<dyn std::error::Error>>;

fn count(rule: Option<&str>) -> Done {
    for count in ratchet::counts(&Tree::read(&root())?) {
        match rule {
            Some(rule) if rule == count.rule || rule == count.subject => {
                count.places.iter().for_each(|place| println!("{place}"))
            }
            Some(_) => {}
            None if count.places.is_empty() => {}
            None => println!("{} {} {}", count.rule, count.subject, count.places.len()),
        }
    }
    Ok(())
}

fn lower() -> Done {
    let tree = Tree::read(&root())?;
    let list = tree.text(ratchet::FILE).unwrap_or_default();
    let lowered = ratchet::lowered(&ratchet::counts(&tree), list).map_err(|finding| finding.to_string())?;
    Ok(std::fs::write(root().join(ratchet::FILE), lowered)?)
}

fn sentences(fix: bool) -> Done {
    for file in Tree::read(&root())?.with_extension("md").filter(|file| has_sentences(&file.path)) {
        let wrapped = one_a_line(&file.text);
        if wrapped != file.text {
            println!("{}", file.path);
            if fix {
                std::fs::write(root().join(&file.path), wrapped)?;
            }
        }
    }
    Ok(())
}
