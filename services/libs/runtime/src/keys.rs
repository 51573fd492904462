//! Configuration keys as `--help` and the reference print them. What a key is, [`ConfigKey`] says; this module must not know any.

use std::fmt::Write;

use crate::config::ConfigKey;

/// The keys as aligned text, for `--help`.
#[must_use]
pub fn help(keys: &[ConfigKey]) -> String {
    let width = keys.iter().map(|key| key.key.len()).max().unwrap_or_default();
    let mut text = String::new();
    for ConfigKey { key, default, help } in keys {
        let default = if default.is_empty() { String::new() } else { format!(" [default: {default}]") };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {key:width$}  {help}{default}");
    }
    text
}

/// The keys as a Markdown table, for the reference.
#[must_use]
pub fn markdown(keys: &[ConfigKey]) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let mut text = String::from("| Key | Environment | Default | Meaning |\n|---|---|---|---|\n");
    for key in keys {
        let default = if key.default.is_empty() { String::new() } else { format!("`{}`", cell(&key.default)) };
        let _ = writeln!(text, "| `{}` | `{}` | {default} | {} |", key.key, key.variable(), cell(&key.help));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> [ConfigKey; 2] {
        let key = |key: &str, default: &str, help: &str| ConfigKey {
            key: key.to_owned(),
            default: default.to_owned(),
            help: help.to_owned(),
        };
        [key("name", "(the host's name)", "who | what"), key("mqtt.servers", "a,b", "brokers, tried in turn")]
    }

    #[test]
    fn help_is_aligned_and_markdown_is_escaped() {
        assert_eq!(
            help(&keys()),
            "  name          who | what [default: (the host's name)]\n  mqtt.servers  brokers, tried in turn [default: a,b]\n"
        );
        let row = markdown(&keys()[..1]).lines().last().unwrap().to_owned();
        assert_eq!(row, "| `name` | `SPARKFLEET__NAME` | `(the host's name)` | who \\| what |");
    }
}
