//! Names in Kubernetes: normalised, short enough, and different for different things.

use std::collections::{BTreeMap, BTreeSet};

use configdb_schema::address::{k8s_name, v5};
use configdb_schema::document::EdgeDeployment;
use uuid::Uuid;

/// Longest name of a Helm release.
pub const HELM_RELEASE_CHARACTERS_MAX: usize = 53;

/// Longest value of a label, and longest DNS label.
pub const LABEL_CHARACTERS_MAX: usize = 63;

/// Digits of a hash: enough that two of a million names do not meet by chance (2 to the power of 48 values).
const HASH_DIGITS: usize = 12;

/// `parts` joined and normalised to `[a-z0-9-]`, at most `characters_max` long. A longer name is cut and ends with a hash of the whole, parts as given.
#[must_use]
pub fn k8sname(parts: &[&str], characters_max: usize) -> String {
    let name = k8s_name(parts);
    if name.is_empty() || name.len() > characters_max { with_hash(&name, parts, characters_max) } else { name }
}

/// One name for each of `originals`, in their order of precedence. Of those that normalise equally, the first keeps the plain name, and each other one
/// gets a hash of its original. A later original never changes the name of an earlier one.
#[must_use]
pub fn unique<'a>(originals: impl IntoIterator<Item = &'a str>, characters_max: usize) -> BTreeMap<&'a str, String> {
    let mut taken = BTreeSet::new();
    let mut names = BTreeMap::new();
    for original in originals {
        if names.contains_key(original) {
            continue;
        }
        let plain = k8sname(&[original], characters_max);
        // A hash could itself be the plain name of another; counting up avoids that.
        let hashed = (0_u32..).map(|n| match n {
            0 => plain.clone(),
            1 => with_hash(&plain, &[original], characters_max),
            n => with_hash(&plain, &[original, &n.to_string()], characters_max),
        });
        for name in hashed {
            if taken.insert(name.clone()) {
                names.insert(original, name);
                break;
            }
        }
    }
    names
}

/// A deployment that claims its name on its cluster. In the order of claims, an earlier one goes before a later one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// What runs keeps its name, when another one comes with the same.
    is_not_running: bool,
    /// The same for what the edge knows already.
    is_not_listed: bool,
    /// When it was made; without that it comes after those that have it.
    made: String,
    /// Which deployment.
    pub uuid: Uuid,
    /// Its name, as it was written.
    pub name: String,
}

impl Claim {
    /// The claim of an entry. `is_running`: its edge has applied manifests of it; `is_listed`: its edge knows of it.
    #[must_use]
    pub fn new(uuid: Uuid, entry: &EdgeDeployment, is_running: bool, is_listed: bool) -> Self {
        let made = entry.created_at.clone().unwrap_or_else(|| "~".to_owned());
        Self { is_not_running: !is_running, is_not_listed: !is_listed, made, uuid, name: entry.name.clone() }
    }
}

fn with_hash(name: &str, of: &[&str], characters_max: usize) -> String {
    let hash = v5(&[&["Name"], of].concat()).simple().to_string();
    let kept = characters_max.saturating_sub(HASH_DIGITS + 1).min(name.len());
    // A normalised name is ASCII, so any place is a good one to cut; a name may not begin or end with a hyphen.
    match name[..kept].trim_end_matches('-') {
        "" => format!("x{}", &hash[..HASH_DIGITS - 1]),
        kept => format!("{kept}-{}", &hash[..HASH_DIGITS]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_label(name: &str, characters_max: usize) -> bool {
        !name.is_empty()
            && name.len() <= characters_max
            && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-'))
            && !name.starts_with('-')
            && !name.ends_with('-')
    }

    #[test]
    fn short_names_are_those_of_factory_plus() {
        let uuid = "5b2e0000-0000-4000-8000-000000000001";
        assert_eq!(k8sname(&["edge-agent", uuid], 53), format!("edge-agent-{uuid}"));
        assert_eq!(k8sname(&["charts/Barcode Reader", uuid], 63), format!("charts-barcode-reader-{uuid}"));
        assert_eq!(k8sname(&["Robot_Cell_3"], 63), "robot-cell-3");
    }

    #[test]
    fn long_and_empty_names_become_labels_that_differ() {
        let names = [
            k8sname(&["a-very-long-chart-directory-name", "5b2e0000-0000-4000-8000-000000000001"], 53),
            k8sname(&["a-very-long-chart-directory-name", "5b2e0000-0000-4000-8000-000000000002"], 53),
            k8sname(&["Ü"], 53),
            k8sname(&["Ö"], 53),
            k8sname(&[&"-".repeat(90)], 53),
            k8sname(&[&"x-".repeat(90)], 53),
        ];
        for (i, name) in names.iter().enumerate() {
            assert!(is_label(name, 53), "{name}");
            assert!(!names[..i].contains(name), "{name}");
        }
        assert!(names[0].starts_with("a-very-long-chart-directory-name-"));
    }

    #[test]
    fn names_that_normalise_equally_get_different_names() {
        let names = unique(["Cell A", "cell_a", "cell-a", "Other", "Cell A"], 63);
        assert_eq!(names.len(), 4);
        assert_eq!(names["Cell A"], "cell-a");
        assert_eq!(names["Other"], "other");
        assert!(names["cell_a"].starts_with("cell-a-") && names["cell-a"].starts_with("cell-a-"));
        let values: BTreeSet<_> = names.values().collect();
        assert_eq!(values.len(), 4);
        assert!(names.values().all(|name| is_label(name, 63)));
    }

    #[test]
    fn a_later_name_does_not_change_an_earlier_one() {
        let before = unique(["Cell A", "cell_a"], 63);
        let stolen = before["cell_a"].clone();
        let after = unique(["Cell A", "cell_a", &stolen, "CELL A"], 63);
        assert_eq!(after["Cell A"], before["Cell A"]);
        assert_eq!(after["cell_a"], before["cell_a"]);
        assert_ne!(after[stolen.as_str()], stolen);
    }

    #[test]
    fn generated_names_never_meet_and_are_always_labels() {
        // Every way to write four characters of these: many normalise equally.
        let alphabet = ['a', 'A', '-', '_', ' ', 'é'];
        let mut originals = vec![String::new()];
        for _ in 0..4 {
            originals = originals.iter().flat_map(|o| alphabet.map(|c| format!("{o}{c}"))).collect();
        }
        for characters_max in [16, 53, 63] {
            let names = unique(originals.iter().map(String::as_str), characters_max);
            assert_eq!(names.len(), 6_usize.pow(4));
            assert!(names.values().all(|name| is_label(name, characters_max)));
            let values: BTreeSet<_> = names.values().collect();
            assert_eq!(values.len(), names.len());
        }
    }
}
