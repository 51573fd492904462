//! What the copy of one repository shall be: the desired state that the cluster manager sends.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sparkplug::host::HostRequest;
use sparkplug::{EdgeNodeDescriptor, Metric};
use uuid::Uuid;

use crate::names::DESIRED_REPOSITORY;

/// Most refs of one repository.
pub const REFS_MAX: usize = 1_000;
/// Most bytes of the name of a ref.
pub const REF_BYTES_MAX: usize = 255;
/// Most bytes of a desired state as JSON.
pub const BYTES_MAX: usize = 512 * 1024;
const PATH_BYTES_MAX: usize = 255;
const REASON_BYTES_MAX: usize = 1_000;

/// Whose a repository is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Of one cluster, which reads it by its password.
    Cluster,
    /// Of the site: every cluster reads it.
    Shared,
}

/// Where a repository is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepositoryPath {
    /// Such as `cluster/Paint_Shop`: two names without control characters, with one slash between them.
    pub path: String,
    /// Whose it is.
    pub kind: Kind,
}

/// What the copy of one repository shall be. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DesiredRepository {
    /// Which repository; of a cluster's the cluster.
    pub repository: Uuid,
    /// Grows with every change; at least 1.
    pub version: u64,
    /// Where it is served; None: no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<RepositoryPath>,
    /// The commit of each ref, by its full name such as `refs/heads/main`. Others are removed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refs: BTreeMap<String, String>,
    /// SHA-256 of the password by which the cluster reads, 64 lower-case hex digits; None: it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Branches that take no push, because they are pulled from elsewhere.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub pulled: BTreeSet<String>,
    /// Why no push is taken at all, for people; None: pushes are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_push: Option<String>,
}

/// A desired state that cannot be used. Names the field and the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{DESIRED_REPOSITORY}{field} {rule}")]
pub struct DesiredError {
    /// Which repository, as far as that could be read.
    pub repository: Option<Uuid>,
    /// The field, with a blank before it; empty: all of it.
    pub field: &'static str,
    /// The rule that it breaks.
    pub rule: String,
}

/// Whether a text is the name of an object as git writes it: 40 lower-case hex digits, or 64.
#[must_use]
pub fn is_object(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && is_hex(text)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a text can be the name of a branch or tag here. It becomes part of a path and an argument.
#[must_use]
pub fn is_ref(name: &str) -> bool {
    let rest = ["refs/heads/", "refs/tags/"].iter().find_map(|prefix| name.strip_prefix(prefix));
    let is_part = |part: &str| {
        let has_odd = part.chars().any(|c| c.is_control() || " ~^:?*[\\\u{7f}".contains(c));
        let is_name = !part.is_empty() && !part.starts_with(['.', '-']) && !part.ends_with('.');
        is_name && !has_odd && !part.contains("..") && !part.contains("@{") && part != "@" && !part.ends_with(".lock")
    };
    name.len() <= REF_BYTES_MAX && rest.is_some_and(|rest| rest.split('/').all(is_part))
}

impl DesiredRepository {
    /// SHA-256 of everything but the version, 64 lower-case hex digits.
    #[must_use]
    pub fn digest(&self) -> String {
        let unversioned = Self { version: 0, ..self.clone() };
        hex::encode(Sha256::digest(unversioned.to_json()))
    }

    /// As on the wire: always the same text for the same state.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts, numbers and maps of them have a JSON form")
    }

    /// From the wire.
    ///
    /// # Errors
    /// [`DesiredError`] names the field and the rule.
    pub fn from_json(text: &str) -> Result<Self, DesiredError> {
        let whole = |rule| DesiredError { repository: None, field: "", rule };
        if text.len() > BYTES_MAX {
            return Err(whole(format!("has more than {BYTES_MAX} bytes")));
        }
        let desired: Self = serde_json::from_str(text).map_err(|reason| whole(format!("is not its JSON: {reason}")))?;
        match desired.fault() {
            None => Ok(desired),
            Some((field, rule)) => {
                Err(DesiredError { repository: Some(desired.repository), field, rule: rule.to_owned() })
            }
        }
    }

    /// The first rule that is broken, with its field.
    fn fault(&self) -> Option<(&'static str, &'static str)> {
        let path = self.place.as_ref().map(|place| &*place.path);
        let is_path = |path: &str| {
            let is_name =
                |name: &str| !name.is_empty() && !name.starts_with('.') && !name.chars().any(char::is_control);
            let parts: Vec<&str> = path.split('/').collect();
            path.len() <= PATH_BYTES_MAX && parts.len() == 2 && parts.into_iter().all(is_name)
        };
        let is_digest = |text: &String| text.len() == 64 && is_hex(text);
        let is_reason = |text: &String| text.len() <= REASON_BYTES_MAX && !text.chars().any(char::is_control);
        let cases = [
            (self.version == 0, " version", "must be at least 1"),
            (!path.is_none_or(is_path), " place path", "must be two names with a slash between them"),
            (self.refs.len() > REFS_MAX, " refs", "has more than 1000 members"),
            (!self.refs.keys().all(|name| is_ref(name)), " refs", "has a name that is not a branch's or tag's"),
            (!self.refs.values().all(|commit| is_object(commit)), " refs", "has a value that is not an object of git"),
            (!self.password.iter().all(is_digest), " password", "must be the 64 lower-case hex digits of a digest"),
            (self.pulled.len() > REFS_MAX, " pulled", "has more than 1000 items"),
            (
                !self.pulled.iter().all(|branch| is_ref(&format!("refs/heads/{branch}"))),
                " pulled",
                "has an item that is not the name of a branch",
            ),
            (!self.no_push.iter().all(is_reason), " no_push", "must be one line of at most 1000 bytes"),
        ];
        cases.into_iter().find_map(|(is_broken, field, rule)| is_broken.then_some((field, rule)))
    }

    /// The request to a Host Application that sends it.
    #[must_use]
    pub fn to_request(&self, node: EdgeNodeDescriptor) -> HostRequest {
        HostRequest::Command { node, device: None, metrics: vec![Metric::new(DESIRED_REPOSITORY, self.to_json())] }
    }

    /// From the metrics of an NCMD. None: it holds no desired state.
    ///
    /// # Errors
    /// [`DesiredError`] names the field and the rule.
    #[must_use]
    pub fn from_metrics(metrics: &[Metric]) -> Option<Result<Self, DesiredError>> {
        let metric = metrics.iter().find(|metric| &*metric.name == DESIRED_REPOSITORY)?;
        let rule = || DesiredError { repository: None, field: "", rule: "must be a String".to_owned() };
        Some(metric.as_str().ok_or_else(rule).and_then(Self::from_json))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    fn desired() -> DesiredRepository {
        DesiredRepository {
            repository: Uuid::from_u128(7),
            version: 3,
            place: Some(RepositoryPath { path: "cluster/Paint_Shop".to_owned(), kind: Kind::Cluster }),
            refs: [("refs/heads/main".to_owned(), "0123456789abcdef0123456789abcdef01234567".to_owned())].into(),
            password: Some("ab".repeat(32)),
            pulled: ["release/1".to_owned()].into(),
            no_push: Some("pushed elsewhere".to_owned()),
        }
    }

    #[test]
    fn what_is_sent_is_what_is_read() {
        let closed = DesiredRepository {
            place: None,
            refs: BTreeMap::new(),
            password: None,
            pulled: BTreeSet::new(),
            no_push: None,
            ..desired()
        };
        for desired in [desired(), closed] {
            let HostRequest::Command { device: None, metrics, .. } = desired.to_request(names::node("ACME").unwrap())
            else {
                panic!("an NCMD")
            };
            assert_eq!(DesiredRepository::from_metrics(&metrics), Some(Ok(desired)));
        }
        assert_eq!(DesiredRepository::from_metrics(&[]), None);
    }

    #[test]
    fn the_digest_is_of_all_but_the_version() {
        assert_eq!(DesiredRepository { version: 9, ..desired() }.digest(), desired().digest());
        let others = [
            DesiredRepository { repository: Uuid::nil(), ..desired() },
            DesiredRepository { place: None, ..desired() },
            DesiredRepository { refs: BTreeMap::new(), ..desired() },
            DesiredRepository { password: None, ..desired() },
            DesiredRepository { pulled: BTreeSet::new(), ..desired() },
            DesiredRepository { no_push: None, ..desired() },
        ];
        for other in others {
            assert_ne!(other.digest(), desired().digest());
        }
    }

    #[test]
    fn a_fault_names_its_field() {
        type Change = fn(&mut DesiredRepository);
        let at = |path: &str| Some(RepositoryPath { path: path.to_owned(), kind: Kind::Shared });
        let commit = "0".repeat(40);
        let cases: [(&str, Change); 10] = [
            ("Desired/Repository version", |d| d.version = 0),
            ("Desired/Repository refs", |d| drop(d.refs.insert("main".to_owned(), "0".repeat(40)))),
            ("Desired/Repository refs", |d| drop(d.refs.insert("refs/heads/a".to_owned(), "0".repeat(39)))),
            ("Desired/Repository refs", |d| drop(d.refs.insert("refs/heads/a".to_owned(), "G".repeat(40)))),
            ("Desired/Repository refs", |d| {
                d.refs.extend((0..REFS_MAX).map(|n| (format!("refs/tags/{n}"), "0".repeat(40))));
            }),
            ("Desired/Repository password", |d| d.password = Some("AB".repeat(32))),
            ("Desired/Repository pulled", |d| d.pulled = ["-x".to_owned()].into()),
            ("Desired/Repository no_push", |d| d.no_push = Some("a\nb".to_owned())),
            ("Desired/Repository no_push", |d| d.no_push = Some("x".repeat(1001))),
            ("Desired/Repository has more", |d| d.no_push = Some("x".repeat(BYTES_MAX))),
        ];
        for (begin, change) in cases {
            let mut changed = desired();
            change(&mut changed);
            let error = DesiredRepository::from_json(&changed.to_json()).unwrap_err();
            assert!(error.to_string().starts_with(begin), "{error} should begin with {begin}");
        }
        for path in ["", "a", "a/b/c", "/b", "a/", "a/..", "../b", ".git/b", "a/b\n"] {
            let error = DesiredRepository::from_json(&DesiredRepository { place: at(path), ..desired() }.to_json());
            assert_eq!(error.unwrap_err().field, " place path", "{path:?}");
        }
        assert!(DesiredRepository::from_json("[]").unwrap_err().to_string().contains("is not its JSON"));
        for name in [
            "refs/heads/",
            "refs/heads/a..b",
            "refs/heads/.a",
            "refs/heads/a.lock",
            "refs/pull/1",
            "HEAD",
            "refs/heads/a b",
            "refs/heads/a//b",
            "refs/heads/@",
            "refs/tags/a@{1}",
            "refs/heads/a.",
        ] {
            assert!(!is_ref(name), "{name}");
        }
        for name in ["refs/heads/main", "refs/heads/feature/x-1", "refs/tags/v1.2", "refs/tags/ä"] {
            assert!(is_ref(name), "{name}");
        }
        assert!(is_object(&commit) && is_object(&"a".repeat(64)));
    }
}
