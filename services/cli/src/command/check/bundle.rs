//! An archive for support. What is in it are rows as lists show them: no entries, whose values may hold secrets, no credentials and no keys.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use service_runtime::exit;

/// What is written in place of a secret.
const HIDDEN: &str = "[hidden]";

/// Writes the documents by their names into a new file that its owner alone can read. `wall`: UTC ms.
///
/// # Errors
/// With [`exit::CONFIG`] if there is such a file already, or it cannot be written.
pub(super) fn write(file: &Path, documents: &[(&str, Value)], wall: u64) -> anyhow::Result<()> {
    let refused = |error: std::io::Error| {
        let error = anyhow::Error::new(error).context(format!("--bundle {}", file.display()));
        exit::with_code(exit::CONFIG, error)
    };
    let open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(refused)?;
    let mut archive = tar::Builder::new(GzEncoder::new(open, Compression::default()));
    for (name, document) in documents {
        let text = serde_json::to_vec_pretty(&without_secrets(document.clone()))?;
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(wall / 1_000);
        archive.append_data(&mut header, format!("sparkfleet/{name}.json"), &*text).map_err(refused)?;
    }
    let encoder = archive.into_inner().map_err(refused)?;
    encoder.finish().and_then(|mut open| open.flush()).map_err(refused).context("the archive is not complete")
}

/// The same without what looks like a credential in any text, such as a reason that quotes an address.
fn without_secrets(mut document: Value) -> Value {
    match &mut document {
        Value::String(text) => *text = hide(text),
        Value::Array(values) => values.iter_mut().for_each(|value| *value = without_secrets(value.take())),
        Value::Object(fields) => fields.values_mut().for_each(|value| *value = without_secrets(value.take())),
        _ => {}
    }
    document
}

/// Hides user and password of addresses, tokens, and PEM.
fn hide(text: &str) -> String {
    if text.contains("-----BEGIN") {
        return HIDDEN.to_owned();
    }
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let shown = match word.split_once("://") {
            Some((scheme, rest)) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                match rest[..end].rfind('@') {
                    Some(at) => format!("{scheme}://{HIDDEN}{}", &rest[at..]),
                    None => word.to_owned(),
                }
            }
            None => word.to_owned(),
        };
        words.push(match shown.find("sfp_") {
            Some(at) => format!("{}{HIDDEN}", &shown[..at]),
            None => shown,
        });
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;

    use flate2::read::GzDecoder;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_archive_holds_its_documents_without_secrets_and_replaces_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("support.tar.gz");
        let rows = json!([{ "reason": "cannot reach https://ada:geheim@git.example/x: 401", "n": 1 }]);
        write(&file, &[("check", json!({ "a": "sfp_geheim" })), ("clusters", rows)], 5_000).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(&file).unwrap()));
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            assert!(!text.contains("geheim"), "{text}");
            found.push((entry.path().unwrap().display().to_string(), text));
        }
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["sparkfleet/check.json", "sparkfleet/clusters.json"]);
        assert!(found[1].1.contains("https://[hidden]@git.example/x: 401"), "{}", found[1].1);
        let again = write(&file, &[], 0).unwrap_err();
        assert_eq!(exit::code_of(&again), exit::CONFIG);
    }

    #[test]
    fn what_looks_like_a_credential_is_hidden_and_nothing_else() {
        for (text, shown) in [
            ("https://git.example/a@b", "https://git.example/a@b"),
            ("mqtts://u:p@broker:8883", "mqtts://[hidden]@broker:8883"),
            ("https://u:p@a/ and ssh://git@b", "https://[hidden]@a/ and ssh://[hidden]@b"),
            ("token=sfp_0123 is over", "token=[hidden] is over"),
            ("key -----BEGIN PRIVATE KEY-----\nMC4", HIDDEN),
            ("host paint-1: 2 pods", "host paint-1: 2 pods"),
        ] {
            assert_eq!(hide(text), shown);
        }
    }
}
