//! One Device per shared repository: where it is served, at which commit it is, and how the branches do that are pulled from elsewhere.
//!
//! The metrics of a pulled branch have its name in theirs: `Pull/<branch>/Commit`. So the Device is born again when another branch is pulled.

use std::collections::BTreeMap;

use sparkplug::{DataType, DeviceId, Metric, Properties, Value};
use uuid::Uuid;

use crate::names::{
    GIT_COMMIT, GIT_URL, PULL_AT, PULL_COMMIT, PULL_DIVERGED, PULL_REASON, PULL_URL, REPOSITORY_PATH, STATUS_REASON,
    STATUS_SINCE, STATUS_STATE,
};

/// What a Device id of a shared repository begins with; its UUID follows.
const PREFIX: &str = "repository-";

/// Device id of a shared repository.
#[must_use]
pub fn device(repository: Uuid) -> DeviceId {
    DeviceId::new(format!("{PREFIX}{}", repository.hyphenated())).expect("letters, hex digits and hyphens are allowed")
}

/// The repository of a Device, if its id is as [`device`] writes it.
#[must_use]
pub fn repository(device: &DeviceId) -> Option<Uuid> {
    let text = device.as_str().strip_prefix(PREFIX)?;
    Uuid::parse_str(text).ok().filter(|uuid| uuid.hyphenated().to_string() == text)
}

/// A branch that is pulled from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PulledBranch {
    /// From where; None: what is configured cannot be followed, and `error` says why.
    pub url: Option<String>,
    /// The commit that was pulled last.
    pub commit: Option<String>,
    /// UTC ms of the last pull that went well.
    pub at: Option<u64>,
    /// Why the last pull did not go well; None: it did, or there was none yet.
    pub error: Option<String>,
    /// The branch that should follow it has commits of its own and stays where it is.
    pub diverged: bool,
}

/// The Device of one shared repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepositoryDevice {
    /// Such as `shared/helm`.
    pub path: String,
    /// Why it is not served; None: it is, or will be soon.
    pub reason: Option<String>,
    /// Since when it is served, or not, UTC ms.
    pub since: u64,
    /// Its URL; None: it is not served.
    pub git_url: Option<String>,
    /// Commit of branch `main`.
    pub git_commit: Option<String>,
    /// The branches that are pulled, by their names here.
    pub pulled: BTreeMap<String, PulledBranch>,
}

impl RepositoryDevice {
    /// As on the wire.
    #[must_use]
    pub fn to_metrics(&self) -> Vec<Metric> {
        let about = |metric: Metric, what: &str| metric.with_properties(Properties::described(&[what], true));
        let state = if self.git_url.is_some() { "served" } else { "not-served" };
        let mut metrics = vec![
            about(Metric::new(STATUS_STATE, state), "served or not-served."),
            about(
                Metric::string(STATUS_REASON, self.reason.as_deref()),
                "Why it is not served; null: it is, or will be soon.",
            ),
            about(Metric::new(STATUS_SINCE, Value::DateTime(self.since)), "Since when it is in that state."),
            about(Metric::new(REPOSITORY_PATH, self.path.as_str()), "Path on the git server."),
            about(Metric::string(GIT_URL, self.git_url.as_deref()), "URL of the repository; null: it is not served."),
            about(Metric::string(GIT_COMMIT, self.git_commit.as_deref()), "Commit of branch main."),
        ];
        for (branch, pulled) in &self.pulled {
            let name = |last: &str| format!("Pull/{branch}/{last}");
            let at = match pulled.at {
                Some(at) => Metric::new(name(PULL_AT), Value::DateTime(at)),
                None => Metric::null(name(PULL_AT), DataType::DateTime),
            };
            metrics.extend([
                about(
                    Metric::string(name(PULL_URL), pulled.url.as_deref()),
                    "From where the branch is pulled; null: what is configured cannot be followed.",
                ),
                about(Metric::string(name(PULL_COMMIT), pulled.commit.as_deref()), "Commit that was pulled last."),
                about(at, "When a pull went well last."),
                about(
                    Metric::string(name(PULL_REASON), pulled.error.as_deref()),
                    "Why the last pull did not go well; null: it did, or there was none yet.",
                ),
                about(
                    Metric::new(name(PULL_DIVERGED), pulled.diverged),
                    "The branch has commits of its own and stays where it is.",
                ),
            ]);
        }
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    #[test]
    fn a_device_id_names_the_repository_and_is_none_of_a_cluster() {
        let uuid = Uuid::from_u128(0xABCD);
        assert_eq!(repository(&device(uuid)), Some(uuid));
        assert_ne!(names::device(uuid, device(uuid).as_str()), device(uuid));
        assert_eq!(repository(&names::unnamed_device(uuid)), None);
        assert_eq!(repository(&DeviceId::new("repository-00000000-0000-0000-0000-00000000ABCD").unwrap()), None);
    }

    #[test]
    fn every_pulled_branch_has_its_metrics() {
        let pulled = PulledBranch { error: Some("away".to_owned()), at: Some(5), ..PulledBranch::default() };
        let device = RepositoryDevice {
            path: "shared/charts".to_owned(),
            pulled: [("release/1".to_owned(), pulled)].into(),
            ..RepositoryDevice::default()
        };
        let metrics = device.to_metrics();
        let find = |name: &str| metrics.iter().find(|metric| &*metric.name == name).unwrap();
        assert_eq!(find("Repository/Path").as_str(), Some("shared/charts"));
        assert_eq!(find("Pull/release/1/Reason").as_str(), Some("away"));
        assert_eq!(find("Pull/release/1/At").value, Some(Value::DateTime(5)));
        assert_eq!(find("Pull/release/1/Diverged").as_bool(), Some(false));
        assert_eq!((find("Pull/release/1/Commit").value.clone(), metrics.len()), (None, 11));
    }
}
