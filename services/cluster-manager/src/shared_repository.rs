//! The `GitConfig` entry of a shared repository -> where it is served, and which of its branches are pulled from where.
//!
//! Only `http://` and `https://` are spoken with other git servers: everything else that git understands (files, commands, ssh) would reach what is this host's own.
//! Pure. This module must not know git, nor who may read the repository.

use std::collections::BTreeMap;
use std::time::Duration;

use configdb_schema::document::{GitConfig, GitPull};
use configdb_schema::known;
use git_hosting::pulls::Pull;
use jiff::SpanRelativeTo;
use manifests::git_address::HELM_PATH;
use uuid::Uuid;

/// Why the repository of the well-known charts takes no push that the manager writes itself.
pub(crate) const CHARTS_WRITTEN: &str =
    "git.charts_dir of the cluster manager writes this repository; change the charts there";

/// Why a repository takes no push that clusters follow elsewhere.
pub(crate) const ELSEWHERE: &str =
    "Clusters follow this repository on the site's own git server (git.external): push there";

/// How often a branch is pulled that says nothing about it.
const INTERVAL: Duration = Duration::from_secs(3600);

/// Shortest interval. For more speed the other side pushes.
const INTERVAL_MIN: Duration = Duration::from_secs(10);

/// Longest text of a URL, a ref or a name.
const URL_BYTES_MAX: usize = 2048;
const NAME_BYTES_MAX: usize = 200;

/// Most branches that are pulled into one repository: each is an answer to wait for.
const BRANCHES_MAX: usize = 50;

/// What is configured cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {rule}")]
pub(crate) struct SharedError {
    /// Such as `pull.upstream.url`.
    pub field: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

/// A shared repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shared {
    /// Where it is served.
    pub path: String,
    /// The branches that are pulled; Err: what is wrong with that one.
    pub pulls: BTreeMap<String, Result<Pull, SharedError>>,
}

/// Reads the configuration of a shared repository.
///
/// # Errors
/// It cannot be served: field and rule. A branch that cannot be pulled is an error of its own.
pub(crate) fn read(repository: Uuid, config: &GitConfig) -> Result<Shared, SharedError> {
    let fault = |field: &str, rule| Err(SharedError { field: field.to_owned(), rule });
    let path = config.path.as_str();
    if path.starts_with("cluster/") {
        return fault("path", "must not begin with cluster/: there the repositories of clusters are");
    }
    if (repository == known::repository::HELM_CHARTS) != (path == HELM_PATH) {
        return fault("path", "shared/helm is that of the well-known repository of charts, and its only one");
    }
    let pulls = config.pull.iter().flatten();
    if pulls.clone().count() > BRANCHES_MAX {
        return fault("pull", "has more than 50 branches");
    }
    let pulled = |name: &str| config.pull.iter().flatten().any(|(branch, _)| branch == name);
    let read = |(branch, pull): (&String, &GitPull)| {
        let parsed = match is_branch(branch) {
            true => read_pull(branch, pull, pulled),
            false => {
                Err(SharedError { field: format!("pull.{}", branch.escape_debug()), rule: "is not a name of a branch" })
            }
        };
        (branch.clone(), parsed)
    };
    // A name that git would not take is not a part of a metric's name either.
    let shown = |name: String| if is_branch(&name) { name } else { "(unnamed)".to_owned() };
    Ok(Shared { path: path.to_owned(), pulls: pulls.map(read).map(|(name, pull)| (shown(name), pull)).collect() })
}

fn read_pull(branch: &str, pull: &GitPull, pulled: impl Fn(&str) -> bool) -> Result<Pull, SharedError> {
    let fault = |field: &str, rule| SharedError { field: format!("pull.{branch}.{field}"), rule };
    check_url(&pull.url).map_err(|rule| fault("url", rule))?;
    if !is_branch(&pull.reference) {
        return Err(fault("ref", "must be the name of a branch or a tag, or a whole ref"));
    }
    let interval = match pull.interval.as_deref() {
        None => Some(INTERVAL),
        Some("never") => None,
        Some(text) => Some(interval(text).map_err(|rule| fault("interval", rule))?),
    };
    // A branch that follows itself needs nothing done.
    let merge = pull.merge.as_ref().filter(|merge| *merge != branch);
    if let Some(merge) = merge {
        if !is_branch(merge) {
            return Err(fault("merge", "is not a name of a branch"));
        }
        if pulled(merge) {
            return Err(fault("merge", "must not be a branch that is pulled itself"));
        }
    }
    let secret = pull.auth.as_ref().map(|auth| auth.secret_ref.clone());
    if secret.as_ref().is_some_and(|secret| !is_file_name(secret)) {
        return Err(fault("auth.secretRef", "must be the name of a file in git.credentials_dir"));
    }
    Ok(Pull { url: pull.url.clone(), reference: pull.reference.clone(), interval, merge: merge.cloned(), secret })
}

/// Whether that is the URL of a repository on another git server.
///
/// # Errors
/// The rule that it breaks.
pub(crate) fn check_url(url: &str) -> Result<(), &'static str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let Some(rest) = rest else { return Err("must begin with https:// or http://") };
    if url.len() > URL_BYTES_MAX {
        return Err("has more than 2048 bytes");
    }
    if url.chars().any(|c| !c.is_ascii_graphic() || matches!(c, '\\' | '"' | '\'' | '<' | '>' | '`')) {
        return Err("must consist of printable ASCII without quotes and backslashes");
    }
    if url.contains(['?', '#']) {
        return Err("must not have a query or a fragment");
    }
    let host = rest.split('/').next().unwrap_or_default();
    if host.contains('@') {
        return Err("must not hold a user or password: they belong into the file that auth.secretRef names");
    }
    if !host.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[') {
        return Err("has no host");
    }
    Ok(())
}

/// Whether git takes that as the name of a branch (or a ref), and no option either.
fn is_branch(name: &str) -> bool {
    let is_part = |part: &str| {
        let first = part.chars().next();
        first.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+'))
            && !part.contains("..")
            && !part.ends_with('.')
            && !part.ends_with(".lock")
    };
    name.len() <= NAME_BYTES_MAX && name.split('/').all(is_part)
}

fn is_file_name(name: &str) -> bool {
    is_branch(name) && !name.contains('/')
}

fn interval(text: &str) -> Result<Duration, &'static str> {
    let rule = "must be a duration such as 20m or 1h 30m, or never";
    let span: jiff::Span = text.parse().map_err(|_| rule)?;
    let exact = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| rule)?;
    let interval = Duration::try_from(exact).map_err(|_| rule)?;
    if interval < INTERVAL_MIN {
        return Err("must be 10 seconds or more");
    }
    // What a clock can be set to.
    if interval > Duration::from_secs(366 * 24 * 3600) { Err("must be a year or less") } else { Ok(interval) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const REPOSITORY: Uuid = Uuid::from_u128(9);

    fn pull(pull: Value) -> Result<Pull, SharedError> {
        let config = json!({"path": "shared/charts", "pull": {"upstream": pull}});
        read(REPOSITORY, &serde_json::from_value(config).unwrap()).unwrap().pulls["upstream"].clone()
    }

    fn with(field: &str, value: Value) -> Result<Pull, SharedError> {
        let mut entry = json!({"url": "https://code.example/site/charts.git", "ref": "release"});
        entry[field] = value;
        pull(entry)
    }

    #[test]
    fn what_sites_have_written_is_understood() {
        let whole = json!({"url": "https://code.example/site/charts.git", "ref": "release", "interval": "20m", "merge": "main",
            "auth": {"secretRef": "code-bot"}});
        let expected = Pull {
            url: "https://code.example/site/charts.git".to_owned(),
            reference: "release".to_owned(),
            interval: Some(Duration::from_secs(1200)),
            merge: Some("main".to_owned()),
            secret: Some("code-bot".to_owned()),
        };
        assert_eq!(pull(whole), Ok(expected));
        let least = with("ref", json!("refs/tags/v1.2")).unwrap();
        assert_eq!((least.interval, least.merge, least.secret), (Some(INTERVAL), None, None));
        assert_eq!(with("interval", json!("never")).unwrap().interval, None);
        for (text, seconds) in [("10s", 10), ("1h", 3600), ("1h 30m", 5400), ("1h30m", 5400), ("2d", 172_800)] {
            assert_eq!(with("interval", json!(text)).unwrap().interval, Some(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn what_git_would_take_for_something_else_is_refused_with_field_and_rule() {
        for url in [
            "file:///etc",
            "/srv/git",
            "ext::sh -c reboot",
            "--upload-pack=x",
            "ssh://git@host/x",
            "git@host:x",
            "ftp://h/x",
            "",
        ] {
            let error = with("url", json!(url)).unwrap_err().to_string();
            assert_eq!(error, "pull.upstream.url must begin with https:// or http://", "{url}");
        }
        for (field, value, rule) in [
            ("url", json!("https://u:secret@host/x"), "pull.upstream.url must not hold a user or password"),
            ("url", json!("https://-x/y"), "pull.upstream.url has no host"),
            ("url", json!("https:///y"), "pull.upstream.url has no host"),
            ("url", json!("https://host/a b"), "pull.upstream.url must consist of printable"),
            ("url", json!("https://host/a\nb"), "pull.upstream.url must consist of printable"),
            ("url", json!("https://host/a?token=x"), "pull.upstream.url must not have a query"),
            ("ref", json!("-x"), "pull.upstream.ref must be the name"),
            ("ref", json!("a:refs/heads/main"), "pull.upstream.ref must be the name"),
            ("ref", json!("a..b"), "pull.upstream.ref must be the name"),
            ("ref", json!(""), "pull.upstream.ref must be the name"),
            ("merge", json!("a lock"), "pull.upstream.merge is not a name"),
            ("merge", json!("x.lock"), "pull.upstream.merge is not a name"),
            ("interval", json!("soon"), "pull.upstream.interval must be a duration"),
            ("interval", json!("-1h"), "pull.upstream.interval must be"),
            ("interval", json!("1s"), "pull.upstream.interval must be 10 seconds or more"),
            ("interval", json!("3 years"), "pull.upstream.interval must be"),
            (
                "auth",
                json!({"secretRef": "../../etc/passwd"}),
                "pull.upstream.auth.secretRef must be the name of a file",
            ),
            ("auth", json!({"secretRef": ".hidden"}), "pull.upstream.auth.secretRef must be the name of a file"),
        ] {
            let error = with(field, value).unwrap_err().to_string();
            assert!(error.starts_with(rule), "{error}");
            assert!(!error.contains("secret@"), "{error}");
        }
    }

    #[test]
    fn one_bad_branch_stops_no_other_and_a_path_is_not_taken_from_others() {
        let config = json!({"path": "shared/charts", "pull": {
            "a": {"url": "file:///x", "ref": "main"}, "b": {"url": "https://h/x", "ref": "main"},
            "-x": {"url": "https://h/x", "ref": "main"}, "c": {"url": "https://h/x", "ref": "main", "merge": "b"},
            "d": {"url": "https://h/x", "ref": "main", "merge": "d"}}});
        let shared = read(REPOSITORY, &serde_json::from_value(config).unwrap()).unwrap();
        assert!(shared.pulls["a"].is_err() && shared.pulls["b"].is_ok());
        assert_eq!(
            shared.pulls["c"].as_ref().unwrap_err().to_string(),
            "pull.c.merge must not be a branch that is pulled itself"
        );
        assert_eq!(shared.pulls["d"].as_ref().unwrap().merge, None);
        assert_eq!(shared.pulls["(unnamed)"].as_ref().unwrap_err().to_string(), "pull.-x is not a name of a branch");
        let path = |repository, path: &str| {
            read(repository, &GitConfig { path: path.to_owned(), ..GitConfig::default() }).map(|shared| shared.path)
        };
        assert!(
            path(REPOSITORY, "cluster/A").unwrap_err().to_string().starts_with("path must not begin with cluster/")
        );
        assert!(path(REPOSITORY, HELM_PATH).is_err() && path(known::repository::HELM_CHARTS, "shared/x").is_err());
        assert_eq!(path(known::repository::HELM_CHARTS, HELM_PATH).unwrap(), HELM_PATH);
    }
}
