//! Errors about what a command was given: wrong use, and names that nothing has.

use anyhow::anyhow;
use fleet_view::requests::RequestError;
use service_runtime::exit;

/// Most names that an error lists.
const CANDIDATES_MAX: usize = 20;

/// The error for a name that nothing has: the nearest name that there is, and what else there is.
pub(crate) fn not_found<T: AsRef<str>>(kind: &str, wanted: &str, names: impl IntoIterator<Item = T>) -> anyhow::Error {
    let names: Vec<T> = names.into_iter().collect();
    let hint = nearest(wanted, names.iter().map(AsRef::as_ref));
    let hint = hint.map_or_else(|| ";".to_owned(), |name| format!("; did you mean {name:?}?"));
    let all = candidates(names.iter());
    exit::with_code(exit::NOT_FOUND, anyhow!("there is no {kind} {wanted:?}{hint} there are: {all}"))
}

/// The name that a user has mistyped, if one is near: one edit for each three characters, and one at least. `CLUSTER/NAME` is also near by its name alone.
fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = wanted.to_lowercase();
    let edits = |name: &str| {
        let compared = if wanted.contains('/') { name } else { name.rsplit('/').next().unwrap_or(name) };
        strsim::osa_distance(&folded, &compared.to_lowercase())
    };
    let near = (wanted.chars().count() / 3).max(1);
    names.map(|name| (edits(name), name)).filter(|(edits, _)| *edits <= near).min().map(|(_, name)| name)
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

/// The error for a request that cannot be made of what was given, with the exit code of its reason.
pub(crate) fn of_request(error: RequestError) -> anyhow::Error {
    let code = match &error {
        RequestError::Invalid { .. } => exit::USAGE,
        RequestError::Missing { .. } => exit::NOT_FOUND,
        RequestError::NotNow(_) => exit::REFUSED,
    };
    exit::with_code(code, error)
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
    fn a_request_that_cannot_be_made_has_the_exit_code_of_its_reason() {
        let invalid = RequestError::Invalid { field: "name", rule: "has a dot".to_owned() };
        let missing = RequestError::Missing { field: "cluster", wanted: "Nowhere".to_owned() };
        for (error, code, text) in [
            (invalid, exit::USAGE, "name: has a dot"),
            (missing, exit::NOT_FOUND, "cluster: there is no \"Nowhere\""),
            (RequestError::NotNow("it is not held".to_owned()), exit::REFUSED, "it is not held"),
        ] {
            let error = of_request(error);
            assert_eq!((exit::code_of(&error), error.to_string().as_str()), (code, text));
        }
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
}
