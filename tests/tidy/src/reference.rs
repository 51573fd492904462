//! Every metric name that a contract knows is written in the reference.
//!
//! A name is the text of a `pub const ...: &str` in a contract's `names.rs`; the reference writes it in back-ticks. Names in folders (`Links/Node/Target`) may
//! be written there as a folder with dots (`Alerts/Offline/...`).

use crate::Finding;
use crate::tree::SourceFile;

/// The constants of a contract's `names.rs`: line and text. Test modules are left out.
#[must_use]
pub fn names(file: &SourceFile) -> Vec<(usize, String)> {
    let code = file.text.split("#[cfg(test)]").next().unwrap_or_default();
    let constants = code.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("pub const "));
    let text = |line: &str| Some(line.split_once("&str = \"")?.1.split('"').next()?.to_owned());
    constants.filter_map(|(number, line)| Some((number + 1, text(line)?))).collect()
}

/// Checks that `reference` has every name of `file` in back-ticks.
#[must_use]
pub fn check(file: &SourceFile, reference: &str) -> Vec<Finding> {
    let stands = |name: &str| {
        let folder = name.rsplit_once('/').map(|(folder, _)| format!("`{folder}/...`"));
        reference.contains(&format!("`{name}`"))
            || reference.contains(&format!("/{name}`"))
            || folder.is_some_and(|folder| reference.contains(&folder))
    };
    let missing = names(file).into_iter().filter(|(_, name)| !stands(name));
    missing
        .map(|(line, name)| {
            Finding::at(
                &file.path,
                line,
                format!("{name:?} is neither in docs/metrics.md nor in docs/reference.md; describe it there"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_the_reference_lacks_is_found() {
        let file = SourceFile::new(
            "services/contracts/x/src/names.rs",
            "pub const A: &str = \"Hosts/Total\";\npub const B: &str = \"Hosts/Lost\";\npub const N: u8 = 1;\npub const C: &str = \"Alerts/Offline/Type\";\n",
        );
        let findings = check(&file, "metrics `Hosts/Total` and `Alerts/Offline/...`");
        assert_eq!(findings.len(), 1);
        assert!(
            findings[0].to_string().starts_with("services/contracts/x/src/names.rs:2: \"Hosts/Lost\""),
            "{}",
            findings[0]
        );
    }
}
