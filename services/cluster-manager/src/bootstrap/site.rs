//! A site's own bootstrap script: the entry `BootstrapScript`, checked before it is given out. Whether the script does what it should is for the site to check.

use std::collections::BTreeMap;

use configdb_schema::document::BootstrapScript;

/// Most bytes of script and files together.
const BYTES_MAX: usize = 512 * 1024;

/// A script that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteScript {
    text: String,
    /// By variable.
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
        if wrapper.trim().is_empty() {
            return Err("wrapper is empty; it is the whole script".to_owned());
        }
        if let Some(line) = wrapper.split('\n').position(|line| line.contains(['\0', '\r'])) {
            return Err(format!("wrapper, line {}: holds a NUL or carriage return character", line + 1));
        }
        if let Some(line) = wrapper.lines().position(|line| line.contains("'{{")) {
            let line = line + 1;
            return Err(format!(
                "wrapper, line {line}: nothing is put in for '{{{{...}}}}'; values are shell variables, such as $cluster_name"
            ));
        }
        let mut variables: BTreeMap<String, String> = BTreeMap::new();
        for (name, text) in files {
            if text.contains('\0') {
                return Err(format!("files.{name} holds a NUL character, which no script can hold"));
            }
            let variable = variable(&name);
            if variables.insert(variable.clone(), text).is_some() {
                return Err(format!("files.{name}: another file is the variable ${variable}, too"));
            }
        }
        Ok(Self { text: wrapper, files: variables })
    }

    /// What follows the preamble.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its files, by variable.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(variable, text)| (variable.as_str(), text.as_str()))
    }
}

/// The variable of a file: `file_`, and `_` for what no name of a variable can hold.
fn variable(name: &str) -> String {
    let name = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    "file_".chars().chain(name).collect()
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
    fn files_are_variables_and_the_script_stays_as_it_is() {
        let script = of(TEMPLATE).unwrap();
        assert_eq!(script.text(), TEMPLATE);
        assert_eq!(script.values().collect::<Vec<_>>(), [("file_note_txt", "it's $(a note)\n")]);
    }

    #[test]
    fn what_cannot_be_a_script_is_refused_with_its_rule() {
        for (bad, part) in [
            ("", "wrapper is empty"),
            ("true\necho '{{name}}'", "line 2: nothing is put in for '{{...}}'"),
            ("a\r\n", "carriage return"),
            ("a\nb\0", "line 2: holds a NUL"),
        ] {
            let error = of(bad).unwrap_err();
            assert!(error.contains(part), "{bad:?}: {error}");
        }
        assert!(SiteScript::read(r#"{"files": {}, "wrapper": 5}"#).unwrap_err().contains("invalid type"));
        let large = "x".repeat(BYTES_MAX + 1);
        assert!(of(&large).unwrap_err().contains("are allowed"));
        let files = |files: serde_json::Value| {
            SiteScript::read(&serde_json::json!({"files": files, "wrapper": "true"}).to_string()).unwrap_err()
        };
        assert!(files(serde_json::json!({"a": "\0"})).contains("files.a holds a NUL"));
        let same = files(serde_json::json!({"a.b": "", "a-b": ""}));
        assert!(same.contains("another file is the variable $file_a_b"), "{same}");
    }
}
