//! Long functions say why.
//!
//! The limit is a ratchet against creeping, not a law: a function of more than 70 lines carries a line `// long: <reason>`
//! among the comments and attributes just above it.

use crate::Finding;
use crate::rust_text::{brace_end, is_word, split};
use crate::tree::SourceFile;

/// Lines from `fn` to the closing brace that need no reason.
const LIMIT: usize = 70;

/// A function of a file.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Checks one Rust file.
#[must_use]
pub fn check(file: &SourceFile) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let long = functions(&split(&file.text).code).into_iter().filter(|function| function.lines > LIMIT);
    long.filter(|function| !has_reason(&lines, function.line))
        .map(|Function { name, line, lines }| {
            let message =
                format!("{name} has {lines} lines: split it by what it decides, or write `// long: <reason>` above it");
            Finding::at(&file.path, line, message)
        })
        .collect()
}

/// True if the comments and attributes just above the line hold a reason of some words.
fn has_reason(lines: &[&str], line: usize) -> bool {
    let above = lines[..line - 1].iter().rev().map(|line| line.trim());
    let mut attached =
        above.take_while(|line| line.starts_with("//") || line.starts_with("#[") || line.ends_with(")]"));
    attached.any(|line| line.strip_prefix("// long: ").is_some_and(|reason| reason.split_whitespace().count() >= 3))
}

fn functions(code: &str) -> Vec<Function> {
    let chars: Vec<char> = code.chars().collect();
    let mut found = Vec::new();
    let mut line = 1;
    for at in 0..chars.len() {
        if chars[at] == '\n' {
            line += 1;
        }
        if let Some((name, after)) = name_of_function(&chars, at)
            && let Some(end) = body_end(&chars, after)
        {
            let lines = chars[at..end].iter().filter(|c| **c == '\n').count() + 1;
            found.push(Function { name, line, lines });
        }
    }
    found
}

/// If the word `fn` with a name stands at `at`: the name and the position after it.
fn name_of_function(chars: &[char], at: usize) -> Option<(String, usize)> {
    let starts = at == 0 || !is_word(chars[at - 1]);
    if !starts || chars.get(at..at + 3)? != ['f', 'n', ' '] {
        return None;
    }
    let name: String = chars[at + 3..].iter().take_while(|c| is_word(**c) || **c == '#').collect();
    let after = at + 3 + name.chars().count();
    (!name.is_empty()).then_some((name, after))
}

/// The end of the body that follows a function's name; none if it is only declared.
fn body_end(chars: &[char], from: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (offset, c) in chars[from..].iter().enumerate() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 => return None,
            '{' if depth == 0 => return brace_end(chars, from + offset),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(above: &str, body_lines: usize) -> SourceFile {
        let body = "    call(\"}\");\n".repeat(body_lines);
        SourceFile::new("x.rs", &format!("fn short() {{}}\n\n{above}pub fn long(x: [u8; 4]) -> u8 {{\n{body}}}\n"))
    }

    #[test]
    fn a_function_beyond_the_limit_is_found_with_its_length_and_line() {
        let findings = check(&file("", 69));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 3);
        assert!(findings[0].message.starts_with("long has 71 lines"), "{}", findings[0]);
        assert!(check(&file("", 68)).is_empty());
    }

    #[test]
    fn a_reason_above_the_function_is_accepted_and_an_empty_one_is_not() {
        assert!(check(&file("/// Doc.\n// long: flat dispatch over Event\n#[must_use]\n", 90)).is_empty());
        assert_eq!(check(&file("// long: because\n", 90)).len(), 1);
        assert_eq!(
            check(&file("// long: flat dispatch over Event\nconst X: u8 = 1;\n", 90)).len(),
            1,
            "it belongs to another item"
        );
    }

    #[test]
    fn declarations_and_function_pointers_do_not_count_as_functions() {
        let code = "trait T { fn a(&self, x: [u8; 2]); fn b(&self) { } } type F = fn (u8); ";
        let names: Vec<_> = functions(code).into_iter().map(|function| function.name).collect();
        assert_eq!(names, ["b"]);
    }
}
