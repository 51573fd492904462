//! A site's own bootstrap script: the entry `BootstrapScript`, checked before anybody gets it.
//!
//! What is put into a script is one word in single quotes, whatever is in it. That is safe only where a single quote begins such a word: not within double quotes, a comment or a
//! here-document, where the same characters would be text, or be executed. So the script is read as a shell reads it, as far as that needs; what cannot be followed for sure is
//! refused. Whether the script does what it should is the site's.

use std::collections::BTreeMap;

use configdb_schema::document::BootstrapScript;

use super::VALUES;

/// Most bytes of script and files together.
const BYTES_MAX: usize = 512 * 1024;

/// Before the name of a file in a placeholder.
const FILES: &str = "files.";

/// A script that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteScript {
    template: String,
    files: BTreeMap<String, String>,
}

impl SiteScript {
    /// Reads the entry.
    ///
    /// # Errors
    /// Names the field and the rule that it breaks.
    pub fn read(json: &str) -> Result<Self, String> {
        let BootstrapScript { files, wrapper } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let bytes = wrapper.len() + files.values().map(String::len).sum::<usize>();
        if bytes > BYTES_MAX {
            return Err(format!("wrapper and files have {bytes} bytes together; {BYTES_MAX} are allowed"));
        }
        if let Some((name, _)) = files.iter().find(|(_, text)| text.contains('\0')) {
            return Err(format!("files.{name} holds a NUL character, which no script can hold"));
        }
        if wrapper.trim().is_empty() {
            return Err("wrapper is empty; it is the whole script".to_owned());
        }
        let is_known =
            |key: &str| VALUES.contains(&key) || key.strip_prefix(FILES).is_some_and(|file| files.contains_key(file));
        check(&wrapper, is_known).map_err(|(line, rule)| format!("wrapper, line {line}: {rule}"))?;
        Ok(Self {
            template: wrapper,
            files: files.into_iter().map(|(name, text)| (format!("{FILES}{name}"), text)).collect(),
        })
    }

    /// The script, with placeholders.
    #[must_use]
    pub fn template(&self) -> &str {
        &self.template
    }

    /// Its own values, by placeholder.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(key, text)| (key.as_str(), text.as_str()))
    }
}

/// Where in a script one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    /// Commands, up to a closing parenthesis or the end.
    Commands { nested: bool },
    /// Double quotes.
    Double,
    /// `${...}` among commands.
    Parameter,
    /// `${...}` within double quotes.
    DoubleParameter,
}

type Fault = (usize, String);

/// Reads a script once from beginning to end.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    within: Vec<Within>,
    /// Marks of here-documents that begin after this line, and whether tabs before them do not count.
    documents: Vec<(String, bool)>,
    /// Placeholders read.
    placeholders: usize,
}

/// Checks that each placeholder is known and stands where a single-quoted word may stand, and that everything that is opened is closed.
fn check(text: &str, is_known: impl Fn(&str) -> bool) -> Result<(), Fault> {
    let mut reader = Reader {
        text,
        at: 0,
        within: vec![Within::Commands { nested: false }],
        documents: Vec::new(),
        placeholders: 0,
    };
    if text.contains(['\0', '\r']) {
        return Err((1, "holds a NUL or carriage return character".to_owned()));
    }
    while !reader.rest().is_empty() {
        reader.step(&is_known)?;
    }
    if reader.within.len() > 1 || !reader.documents.is_empty() {
        return Err(reader.fault("a quote, parenthesis, brace or here-document is not closed at the end of the script"));
    }
    if text.matches("{{").count() != reader.placeholders {
        return Err(reader.fault("two braces begin a placeholder, '{{name}}', and nothing else"));
    }
    Ok(())
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn fault(&self, rule: &str) -> Fault {
        (self.text[..self.at].matches('\n').count() + 1, rule.to_owned())
    }

    fn skip(&mut self, text: &str) -> bool {
        let is_here = self.rest().starts_with(text);
        if is_here {
            self.at += text.len();
        }
        is_here
    }

    /// The next character, or escaped character.
    fn step(&mut self, is_known: &impl Fn(&str) -> bool) -> Result<(), Fault> {
        let within = self.within.last().copied().unwrap_or(Within::Commands { nested: false });
        let rest = self.rest();
        let Some(next) = rest.chars().next() else { return Ok(()) };
        if rest.starts_with("{{") {
            let rule = "a placeholder is a word of its own, '{{name}}' with single quotes, and not within double quotes or ${}";
            return Err(self.fault(rule));
        }
        if next == '`' {
            return Err(self.fault("backticks cannot be followed; write $( )"));
        }
        let is_quoted = matches!(within, Within::Double | Within::DoubleParameter);
        match next {
            '\\' => self.at += 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            '$' if self.skip("$(") => self.within.push(Within::Commands { nested: true }),
            '$' if self.skip("${") => {
                self.within.push(if is_quoted { Within::DoubleParameter } else { Within::Parameter });
            }
            '$' if !is_quoted && rest.starts_with("$'") => return Err(self.fault("$'...' is not in every sh")),
            '\'' if !is_quoted => self.single(matches!(within, Within::Commands { .. }), is_known)?,
            '\'' | '"' if within == Within::DoubleParameter => {
                return Err(self.fault("quotes in ${} within double quotes cannot be followed"));
            }
            '"' => {
                self.at += 1;
                if within == Within::Double {
                    self.within.pop();
                } else {
                    self.within.push(Within::Double);
                }
            }
            '}' if matches!(within, Within::Parameter | Within::DoubleParameter) => {
                self.at += 1;
                self.within.pop();
            }
            '\n' if !self.documents.is_empty() => self.here_documents()?,
            _ => match within {
                Within::Commands { nested } => self.command(next, nested)?,
                _ => self.at += next.len_utf8(),
            },
        }
        Ok(())
    }

    /// What only means something among commands.
    fn command(&mut self, next: char, nested: bool) -> Result<(), Fault> {
        let before = self.text[..self.at].chars().next_back();
        let begins_word = before.is_none_or(|c| c.is_whitespace() || matches!(c, ';' | '&' | '|' | '(' | ')'));
        let rest = self.rest();
        match next {
            '#' if begins_word => {
                let comment = rest.lines().next().unwrap_or_default();
                if comment.contains("{{") {
                    return Err(self.fault("a placeholder cannot stand in a comment"));
                }
                self.at += comment.len();
            }
            '<' if self.skip("<<") => self.document_mark()?,
            '(' => {
                self.at += 1;
                self.within.push(Within::Commands { nested: true });
            }
            ')' if nested => {
                self.at += 1;
                self.within.pop();
            }
            'c' if nested
                && begins_word
                && rest.starts_with("case")
                && !rest[4..].starts_with(|c: char| c.is_alphanumeric() || c == '_') =>
            {
                return Err(self.fault("case within parentheses cannot be followed; put it into a function"));
            }
            _ => self.at += next.len_utf8(),
        }
        Ok(())
    }

    /// A text in single quotes: a placeholder, or anything without one.
    fn single(&mut self, may_be_placeholder: bool, is_known: &impl Fn(&str) -> bool) -> Result<(), Fault> {
        let inner = &self.rest()[1..];
        let Some(end) = inner.find('\'') else { return Err(self.fault("a single quote is not closed")) };
        let text = &inner[..end];
        if text.contains("{{") {
            let key = text.strip_prefix("{{").and_then(|text| text.strip_suffix("}}"));
            let Some(key) = key.filter(|key| may_be_placeholder && !key.contains("{{")) else {
                return Err(
                    self.fault("a placeholder is a word of its own, '{{name}}', with nothing else in its quotes")
                );
            };
            if !is_known(key) {
                return Err(self.fault(&format!(
                    "there is no value {key:?} to put in; there are {}, and files.NAME",
                    VALUES.join(", ")
                )));
            }
        }
        self.placeholders += usize::from(text.contains("{{"));
        self.at += end + 2;
        Ok(())
    }

    /// What follows `<<`.
    fn document_mark(&mut self) -> Result<(), Fault> {
        let tabs = self.skip("-");
        let rest = self.rest();
        let rest = rest.trim_start_matches([' ', '\t']);
        self.at = self.text.len() - rest.len();
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, ';' | '&' | '|' | '<' | '>' | '(' | ')'));
        let word = &rest[..end.unwrap_or(rest.len())];
        let mark = word.trim_matches(['\'', '"']);
        if mark.is_empty() || !mark.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return Err(self.fault("the mark of a here-document must be one plain word"));
        }
        self.at += word.len();
        self.documents.push((mark.to_owned(), tabs));
        Ok(())
    }

    /// Skips the here-documents that begin at this end of a line.
    fn here_documents(&mut self) -> Result<(), Fault> {
        if !matches!(self.within.last(), Some(Within::Commands { .. })) {
            return Err(self.fault("a here-document begins within quotes or ${}"));
        }
        self.at += 1;
        for (mark, tabs) in std::mem::take(&mut self.documents) {
            loop {
                let rest = self.rest();
                if rest.is_empty() {
                    return Err(self.fault(&format!("here-document {mark} is not closed")));
                }
                let line = rest.split_inclusive('\n').next().unwrap_or(rest);
                if line.contains("{{") {
                    return Err(self.fault(
                        "a placeholder cannot stand in a here-document; put it into a variable, and name that",
                    ));
                }
                self.at += line.len();
                let content = line.trim_end_matches('\n');
                if mark == if tabs { content.trim_start_matches('\t') } else { content } {
                    break;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::TEMPLATE;
    use super::*;

    fn of(wrapper: &str) -> Result<SiteScript, String> {
        let json = serde_json::json!({"files": {"note.txt": "it's $(a note)\n"}, "wrapper": wrapper});
        SiteScript::read(&json.to_string())
    }

    #[test]
    fn the_script_that_is_shipped_and_ordinary_ones_are_good() {
        of(TEMPLATE).unwrap();
        for good in [
            "echo '{{name}}'\n",
            "note='{{files.note.txt}}'; cat <<END\n$note \"it's\" `\nEND\necho '{{uuid}}'",
            "x=$(printf '%s' '{{name}}' \"$(echo \"it's\")\") # don't\n",
            "f() { echo \"${1:-x}\" ${2:+'y'}; }\ncase $x in a) f '{{name}}';; esac",
            "cat <<-'A' <<B\n\ta\n\tA\nb\nB\n(echo '{{group}}')",
            "echo a\\'b \"\\\"\" '{{name}}'",
        ] {
            of(good).unwrap_or_else(|error| panic!("{good}: {error}"));
        }
    }

    #[test]
    fn what_is_not_safe_or_not_whole_is_refused_with_its_line() {
        for (bad, part) in [
            ("", "wrapper is empty"),
            ("\necho '{{realm}}'", "line 2: there is no value \"realm\""),
            ("echo '{{files.other}}'", "there is no value \"files.other\""),
            ("echo {{name}}", "a word of its own"),
            ("echo \"'{{name}}'\"", "not within double quotes"),
            ("echo \"${x:-'{{name}}'}\"", "cannot be followed"),
            ("echo ${x:-'{{name}}'}", "nothing else in its quotes"),
            ("echo 'a {{name}}'", "nothing else in its quotes"),
            ("true # '{{name}}'", "in a comment"),
            ("cat <<END\n'{{name}}'\nEND\n", "line 2: a placeholder cannot stand in a here-document"),
            ("cat <<END\n", "not closed"),
            ("echo \"a", "not closed at the end"),
            ("echo 'a", "a single quote is not closed"),
            ("(echo a", "not closed at the end"),
            ("echo `date`", "backticks"),
            ("echo $'a'", "not in every sh"),
            ("echo \"$(case x in a) echo \"b '{{name}}' c\";; esac)\"", "case within parentheses"),
            ("cat <<$x\n", "one plain word"),
            ("a\r\n", "carriage return"),
        ] {
            let error = of(bad).unwrap_err();
            assert!(error.contains(part), "{bad:?}: {error}");
        }
        assert!(
            SiteScript::read("{\"wrapper\": 5}").unwrap_err().contains("wrapper") || SiteScript::read("{}").is_err()
        );
        let large = "x".repeat(BYTES_MAX + 1);
        assert!(of(&large).unwrap_err().contains("are allowed"));
    }

    proptest::proptest! {
        /// No text makes the reader panic or run for ever, and one that was accepted can be expanded.
        #[test]
        fn any_text_is_read(parts in proptest::collection::vec(proptest::sample::select(vec![
            "'", "\"", "{{name}}", "'{{name}}'", "$(", ")", "${", "}", "\\", "\n", "<<A", "A\n", "#", " ", "case", "é", "(", "x",
        ]), 0..40)) {
            let text = parts.concat();
            if let Ok(script) = of(&text) {
                let values = BTreeMap::from([("name", "it's\n$(x)")]);
                super::super::expand(script.template(), &values).unwrap();
            }
        }
    }
}
