//! What each command does: one module a noun.

pub mod acl;
pub mod administrator;
pub mod alert;
pub mod audit;
pub mod bootstrap;
pub mod capture;
pub mod cluster;
pub mod config;
pub mod console;
pub mod crl;
pub mod deployment;
pub mod enrol;
pub mod from_image;
pub mod host;
pub mod identity;
pub mod join_secret;
pub mod past;
pub mod policy;
pub mod prepare;
#[cfg(test)]
mod printed;
pub mod recover;
pub mod replay;
pub mod rollout;
pub mod secret;
pub mod signer;
pub mod status;
pub mod token;
pub mod trust;
pub mod write;

use anyhow::{Context as _, anyhow};
use serde_json::Value;
use service_runtime::exit;
use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use uuid::Uuid;

use fleet_view::Fleet;

/// Most names that an error lists.
const CANDIDATES_MAX: usize = 20;

/// Reads a file, or standard input for `-`.
///
/// # Errors
/// With [`exit::CONFIG`], naming the file.
pub fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(|_| ())
    } else {
        std::fs::read_to_string(file).map(|read| text = read)
    };
    read.with_context(|| format!("cannot read {}", file.display()))
        .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    Ok(text)
}

/// Reads a JSON or YAML document from a file, or standard input for `-`.
///
/// # Errors
/// With [`exit::CONFIG`], naming the file and the place in it.
fn read_document(file: &Path) -> anyhow::Result<Value> {
    let text = read(file)?;
    let document: Value = match serde_json::from_str(&text) {
        Ok(value) => value,
        Err(_) => serde_saphyr::from_str(&text)
            .with_context(|| format!("{} is neither JSON nor YAML", file.display()))
            .map_err(|error| exit::with_code(exit::CONFIG, error))?,
    };
    Ok(document)
}

/// The object with that UUID or that name; of several with one name the caller has to choose by UUID.
///
/// # Errors
/// With [`exit::NOT_FOUND`] when there is none, [`exit::USAGE`] when there is more than one.
fn object(fleet: &Fleet, wanted: &str) -> anyhow::Result<Uuid> {
    if let Ok(uuid) = Uuid::try_parse(wanted) {
        return Ok(uuid);
    }
    let named: Vec<Uuid> = fleet.named(wanted).collect();
    match named[..] {
        [uuid] => Ok(uuid),
        [] => {
            let names: BTreeSet<String> = fleet.object_names().collect();
            Err(not_found("object named", wanted, &names))
        }
        _ => {
            let uuids = named.iter().map(Uuid::to_string).collect::<Vec<_>>().join(", ");
            Err(usage(anyhow!("{wanted:?} is the name of several objects; choose one by its UUID: {uuids}")))
        }
    }
}

/// The error for a name that nothing has: the nearest name that there is, and what else there is.
pub(crate) fn not_found<T: AsRef<str>>(kind: &str, wanted: &str, names: impl IntoIterator<Item = T>) -> anyhow::Error {
    let names: Vec<T> = names.into_iter().collect();
    let hint = nearest(wanted, names.iter().map(AsRef::as_ref));
    let hint = hint.map_or_else(|| ";".to_owned(), |name| format!("; did you mean {name:?}?"));
    let all = candidates(names.iter());
    exit::with_code(exit::NOT_FOUND, anyhow!("there is no {kind} {wanted:?}{hint} there are: {all}"))
}

/// The name that somebody has mistyped, if one is near: one edit for each three characters, and one at least. `CLUSTER/NAME` is also near by its name alone.
fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = wanted.to_lowercase();
    let edits = |name: &str| {
        let compared = if wanted.contains('/') { name } else { name.rsplit('/').next().unwrap_or(name) };
        strsim::osa_distance(&folded, &compared.to_lowercase())
    };
    let near = (wanted.chars().count() / 3).max(1);
    names.map(|name| (edits(name), name)).filter(|(edits, _)| *edits <= near).min().map(|(_, name)| name)
}

/// What a write has made of an entry: `created`, `changed` or `unchanged`, by its ETag before and after.
pub(crate) fn outcome(before: Option<Uuid>, after: Option<Uuid>) -> &'static str {
    match (before, after) {
        (None, Some(_)) => "created",
        (Some(before), Some(after)) if before == after => "unchanged",
        _ => "changed",
    }
}

/// Names that could have been meant, for an error: not more than a person reads.
pub(crate) fn candidates<T: AsRef<str>>(names: impl Iterator<Item = T>) -> String {
    let mut names: Vec<String> = names.take(CANDIDATES_MAX + 1).map(|name| name.as_ref().to_owned()).collect();
    names.sort();
    match names.len() {
        0 => "none".to_owned(),
        n if n > CANDIDATES_MAX => format!("{}, ...", names[..CANDIDATES_MAX].join(", ")),
        _ => names.join(", "),
    }
}

/// What `--if-match` asks for: an ETag, or None for `none`.
fn etag_option(text: &str) -> anyhow::Result<Option<Uuid>> {
    match text {
        "none" => Ok(None),
        text => Uuid::try_parse(text).map(Some).context("--if-match is neither a UUID nor `none`").map_err(usage),
    }
}

/// Shows a person on the terminal what is going to happen, and asks.
///
/// # Errors
/// With [`exit::USAGE`] if there is no terminal: `instead` says what to give the command then.
pub fn confirmed(what: &[String], question: &str, instead: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(usage(anyhow!("there is no terminal to ask on; {instead}")));
    }
    what.iter().for_each(|line| eprintln!("{line}"));
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "yes"))
}

pub(crate) fn usage(error: anyhow::Error) -> anyhow::Error {
    exit::with_code(exit::USAGE, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_there_names_the_nearest_and_all() {
        let error = not_found("cluster", "paint_shp", ["Body_Shop", "Paint_Shop"]);
        assert_eq!(exit::code_of(&error), exit::NOT_FOUND);
        let text = "there is no cluster \"paint_shp\"; did you mean \"Paint_Shop\"? there are: Body_Shop, Paint_Shop";
        assert_eq!(error.to_string(), text);
        let far = not_found("cluster", "Nowhere", ["Body_Shop"]).to_string();
        assert_eq!(far, "there is no cluster \"Nowhere\"; there are: Body_Shop");
        let none = not_found("cluster", "Nowhere", Vec::<String>::new()).to_string();
        assert_eq!(none, "there is no cluster \"Nowhere\"; there are: none");
    }

    #[test]
    fn the_nearest_name_is_at_most_a_third_away_and_swapped_letters_are_one_edit() {
        for (wanted, nearby) in [
            ("Robot_Cell_3", Some("Robot_Cell_1")),
            ("Rboot_Cell_1", Some("Robot_Cell_1")),
            ("OVEN", Some("oven")),
            ("ab", Some("ad")),
            ("xy", None),
            ("Robot", None),
            ("pres", Some("Body_Shop/press")),
            ("Body_Shpo/press", Some("Body_Shop/press")),
        ] {
            assert_eq!(
                nearest(wanted, ["Robot_Cell_1", "oven", "ad", "Body_Shop/press"].into_iter()),
                nearby,
                "{wanted}"
            );
        }
    }

    #[test]
    fn long_lists_of_names_are_cut() {
        let names = candidates((0..CANDIDATES_MAX + 5).map(|n| format!("n{n:02}")));
        assert!(names.ends_with("n19, ..."), "{names}");
    }

    #[test]
    fn an_etag_is_an_uuid_or_none() {
        assert_eq!(etag_option("none").unwrap(), None);
        assert_eq!(etag_option(&Uuid::nil().to_string()).unwrap(), Some(Uuid::nil()));
        assert_eq!(exit::code_of(&etag_option("7").unwrap_err()), exit::USAGE);
    }

    #[test]
    fn what_a_write_made_is_told_by_its_etags() {
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(outcome(None, Some(one)), "created");
        assert_eq!(outcome(Some(one), Some(two)), "changed");
        assert_eq!(outcome(Some(one), Some(one)), "unchanged");
        assert_eq!(outcome(Some(one), None), "changed");
    }
}
