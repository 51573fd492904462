//! Rust source split into code and comments, without a parser: enough to ask "does this word occur in code?".
//!
//! Both views keep every character at its place and every line break, so that positions and lines agree with the file.
//! String and character literals are blank in both.

/// A file seen as code and as comments.
#[derive(Debug, Clone)]
pub struct Views {
    /// The file with comments and literals blanked.
    pub code: String,
    /// The file with everything but comments (documentation included) blanked.
    pub comments: String,
}

/// Splits a Rust source text.
#[must_use]
pub fn split(text: &str) -> Views {
    let chars: Vec<char> = text.chars().collect();
    let mut kinds = vec![Kind::Code; chars.len()];
    let mut at = 0;
    while at < chars.len() {
        let (end, kind) = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => (line_end(&chars, at), Kind::Comment),
            '/' if chars.get(at + 1) == Some(&'*') => (block_comment_end(&chars, at), Kind::Comment),
            '"' => (string_end(&chars, at), Kind::Literal),
            'r' if raw_string_quote(&chars, at).is_some() => (raw_string_end(&chars, at), Kind::Literal),
            '\'' => match char_literal_end(&chars, at) {
                Some(end) => (end, Kind::Literal),
                None => (at + 1, Kind::Code),
            },
            _ => (at + 1, Kind::Code),
        };
        kinds[at..end].fill(kind);
        at = end;
    }
    Views { code: view(&chars, &kinds, Kind::Code), comments: view(&chars, &kinds, Kind::Comment) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

fn view(chars: &[char], kinds: &[Kind], wanted: Kind) -> String {
    let keep = |(c, kind): (&char, &Kind)| if *c == '\n' || *kind == wanted { *c } else { ' ' };
    chars.iter().zip(kinds).map(keep).collect()
}

fn line_end(chars: &[char], from: usize) -> usize {
    chars[from..].iter().position(|c| *c == '\n').map_or(chars.len(), |offset| from + offset)
}

fn block_comment_end(chars: &[char], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0_usize);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (at, depth) = (at + 2, depth + 1),
            ('*', Some('/')) => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], from: usize) -> usize {
    let mut at = from + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// If a raw string starts with the `r` at `at`: where its opening quote is.
fn raw_string_quote(chars: &[char], at: usize) -> Option<usize> {
    // The `r` of an identifier is not the start of a literal; `br` and `cr` are.
    let before = at.checked_sub(1).map(|before| chars[before]);
    let prefixed = matches!(before, Some('b' | 'c')) && !at.checked_sub(2).is_some_and(|before| is_word(chars[before]));
    if before.is_some_and(is_word) && !prefixed {
        return None;
    }
    let quote = at + 1 + chars[at + 1..].iter().take_while(|c| **c == '#').count();
    (chars.get(quote) == Some(&'"')).then_some(quote)
}

fn raw_string_end(chars: &[char], at: usize) -> usize {
    let quote = raw_string_quote(chars, at).unwrap_or(at);
    let hashes = quote.saturating_sub(at + 1);
    let mut end = quote + 1;
    while end < chars.len() {
        let closing = chars[end] == '"' && chars[end + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
        end += 1;
        if closing {
            return end + hashes;
        }
    }
    chars.len()
}

/// Where the character literal that starts at `at` ends; none if the quote starts a lifetime.
fn char_literal_end(chars: &[char], at: usize) -> Option<usize> {
    match chars.get(at + 1)? {
        '\\' => {
            let close = chars.get(at + 3..)?.iter().position(|c| *c == '\'')?;
            Some(at + 3 + close + 1)
        }
        _ => (chars.get(at + 2) == Some(&'\'')).then_some(at + 3),
    }
}

/// True for characters of identifiers.
#[must_use]
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Blanks every item under `#[cfg(test)]`. Takes and returns a code view.
#[must_use]
pub fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut chars: Vec<char> = code.chars().collect();
    let mark: Vec<char> = MARK.chars().collect();
    let mut at = 0;
    while at + mark.len() <= chars.len() {
        if chars[at..at + mark.len()] != mark[..] {
            at += 1;
            continue;
        }
        let end = item_end(&chars, at + mark.len());
        for c in &mut chars[at..end] {
            if *c != '\n' {
                *c = ' ';
            }
        }
        at = end;
    }
    chars.into_iter().collect()
}

/// The end of the item that follows `from`: its closing brace, or its semicolon if that comes before any brace.
fn item_end(chars: &[char], from: usize) -> usize {
    match chars[from..].iter().position(|c| matches!(c, '{' | ';')) {
        Some(offset) if chars[from + offset] == '{' => brace_end(chars, from + offset).unwrap_or(chars.len()),
        Some(offset) => from + offset + 1,
        None => chars.len(),
    }
}

/// The position after the brace that closes the one at `open`.
#[must_use]
pub fn brace_end(chars: &[char], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, c) in chars[open..].iter().enumerate() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(open + offset + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The lines (from 1) on which `needle` occurs as a whole word or path: not as a part of a longer identifier.
#[must_use]
pub fn lines_with(code: &str, needle: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let whole = line.match_indices(needle).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + needle.len()..].chars().next();
            let starts_word = needle.chars().next().is_some_and(is_word);
            let ends_word = needle.chars().next_back().is_some_and(is_word);
            !(starts_word && before.is_some_and(is_word) || ends_word && after.is_some_and(is_word))
        });
        if whole {
            lines.push(number + 1);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_comments_are_not_code() {
        let text =
            "let a = \"tokio // \\\" x\"; // tokio\n/* a /* b */ tokio */ let b = br#\"to\"kio\"#; let c = 'x';\n";
        let views = split(text);
        assert_eq!(views.code.matches("tokio").count(), 0, "{}", views.code);
        assert_eq!(views.comments.matches("tokio").count(), 2);
        assert!(views.code.contains("let b =") && views.code.contains("let c ="));
        assert_eq!(views.code.chars().count(), text.chars().count());
        assert_eq!(views.code.lines().count(), 2);
    }

    #[test]
    fn lifetimes_quotes_and_raw_identifiers_are_code() {
        let text = "fn f<'a>(x: &'a str, r#type: u8) -> char { if x == \"'\" { '\"' } else { '\\'' } } fn tokio() {}";
        let code = split(text).code;
        assert!(code.contains("<'a>(x: &'a str, r#type: u8)") && code.contains("fn tokio()"), "{code}");
        assert_eq!(code.matches('"').count(), 0);
    }

    #[test]
    fn items_of_tests_are_blanked_and_the_rest_stays() {
        let code = "use a;\n#[cfg(test)]\nmod tests { fn x() { y } }\n#[cfg(test)]\nuse b;\nfn z() {}\n";
        assert_eq!(without_tests(code).split_whitespace().collect::<Vec<_>>(), ["use", "a;", "fn", "z()", "{}"]);
        assert_eq!(without_tests(code).lines().count(), code.lines().count());
    }

    #[test]
    fn only_whole_words_are_found() {
        assert_eq!(lines_with("operand\nrand::x\nmy_rand\nrand", "rand"), [2, 4]);
        assert_eq!(lines_with("x.await\n.awaiting", ".await"), [1]);
        assert_eq!(lines_with("my.await_all", ".await"), Vec::<usize>::new());
    }
}
