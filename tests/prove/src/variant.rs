//! Settings, limits and seeded faults, as a model lists them: `setting NAME breaks ID, ...: TEXT`, `fault NAME with SETTING breaks ID, ...: TEXT`.

use std::collections::BTreeSet;

use crate::syntax::{Line, ModelError};
use crate::verdict::Report;

/// What a variant is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The attacker has more; exactly the named claims fail.
    Setting,
    /// The attacker has what the protocol stands on; at least the named claims fail.
    Limit,
    /// The protocol has a fault; at least the named claims fail.
    Fault,
}

/// A setting or a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// Which of the two.
    pub purpose: Purpose,
    /// Its name.
    pub name: String,
    /// The setting in which a fault shows.
    pub with: Option<String>,
    /// The ids of the claims that it breaks.
    pub breaks: BTreeSet<String>,
    /// What it is.
    pub text: String,
}

impl Variant {
    /// The names that are on.
    #[must_use]
    pub fn names(&self) -> BTreeSet<&str> {
        [Some(self.name.as_str()), self.with.as_deref()].into_iter().flatten().collect()
    }

    /// The claims whose attacks end a search; none if all claims are to be judged.
    #[must_use]
    pub fn attacked(&self) -> BTreeSet<String> {
        if self.purpose == Purpose::Setting { BTreeSet::new() } else { self.breaks.clone() }
    }

    /// True if those claims failed that had to.
    #[must_use]
    pub fn is_as_expected(&self, report: &Report) -> bool {
        let expected: BTreeSet<&str> = self.breaks.iter().map(String::as_str).collect();
        match self.purpose {
            Purpose::Setting => report.unproven() == expected && report.attacked() == expected,
            Purpose::Limit | Purpose::Fault => report.attacked().is_superset(&expected),
        }
    }
}

/// All variants of a model, in their order.
///
/// # Errors
/// A line has another form.
pub fn variants(lines: &[Line]) -> Result<Vec<Variant>, ModelError> {
    let declared = lines.iter().filter(|line| matches!(line.keyword.as_str(), "setting" | "limit" | "fault"));
    declared.map(variant).collect()
}

fn variant(line: &Line) -> Result<Variant, ModelError> {
    let form = || ModelError::at(line.number, "must be NAME [with SETTING] breaks ID, ...: TEXT");
    let purpose = match line.keyword.as_str() {
        "setting" => Purpose::Setting,
        "limit" => Purpose::Limit,
        _ => Purpose::Fault,
    };
    let (what, text) = line.rest.split_once(':').ok_or_else(form)?;
    let (name, breaks) = what.split_once(" breaks ").ok_or_else(form)?;
    let (name, with) = name.split_once(" with ").map_or((name, None), |(name, with)| (name, Some(with.to_owned())));
    let breaks = breaks.split(',').map(str::trim).filter(|id| *id != "nothing").map(str::to_owned).collect();
    Ok(Variant { purpose, name: name.to_owned(), with, breaks, text: text.trim().to_owned() })
}
