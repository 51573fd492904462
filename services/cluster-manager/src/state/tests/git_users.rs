//! Users who use repositories over git, by tokens that are stored in ConfigDB.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::*;
use crate::git_users::{Credential, GitAccessError, GitOperation, GitOutcome, GitRequest, RepositoryPush};
use access::audit::{AuditRecord, AuditResult};
use access::{Denied, Operation};
use cluster_manager_contract::api_token::TokenHash;

const FROM: &str = "192.0.2.7";
const LONG: &str = "2099-01-01T00:00:00Z";

/// The token that the tests call `name`.
fn text(name: &str) -> String {
    let mut random = [0; 32];
    random[..name.len()].copy_from_slice(name.as_bytes());
    format!("sfp_{}", BASE64_URL_SAFE_NO_PAD.encode(random))
}

fn token(name: &str) -> Credential {
    Credential::Token(TokenHash::of(&text(name)).unwrap())
}

fn object(name: &str) -> Uuid {
    configdb_schema::address::v5(&["ApiToken", name])
}

impl World {
    fn issue(&mut self, name: &str, scope: &str, clusters: Option<&[Uuid]>, expires: &str) {
        let hash = TokenHash::of(&text(name)).unwrap().to_hex();
        let mut entry = json!({"name": name, "hash": hash, "scope": scope, "issued": "2026-01-01T00:00:00Z",
            "expires": expires, "by": "ada"});
        if let Some(clusters) = clusters {
            entry["clusters"] = json!(clusters);
        }
        self.put(object(name), "ApiToken", entry);
    }

    fn ask(
        &mut self,
        credential: Credential,
        question: GitOperation,
    ) -> (Result<GitOutcome, GitAccessError>, Option<AuditRecord>) {
        let asked = GitRequest { id: 7, from: FROM.to_owned(), credential, question };
        self.manager.on_event(Event::GitRequest(asked), self.now);
        self.run(Duration::ZERO);
        let answer = self.answers.pop().expect("every question is answered");
        assert!(self.answers.is_empty() && answer.id == 7);
        (answer.reply, answer.audit)
    }

    fn reply(&mut self, name: &str, question: GitOperation) -> Result<GitOutcome, GitAccessError> {
        self.ask(token(name), question).0
    }
}

/// A cluster at work, and a token of each kind.
fn staffed() -> World {
    let mut world = running();
    world.put_cluster(OTHER, "Weld_Shop");
    world.issue("viewer", "viewer", None, LONG);
    world.issue("operator", "operator", None, LONG);
    world.issue("admin", "administrator", None, LONG);
    world.issue("other", "administrator", Some(&[OTHER]), LONG);
    world.issue("expired", "administrator", None, "1970-01-01T00:00:00Z");
    world.settle();
    world
}

fn push(repository: Uuid, shared: bool) -> GitOperation {
    GitOperation::Repository { repository, shared, push: true }
}

#[test]
fn only_a_token_that_is_known_in_time_for_the_cluster_and_large_enough_pushes() {
    let mut world = staffed();
    let unauthenticated = |reply| matches!(reply, Err(GitAccessError::Unauthenticated(_)));
    for question in [push(CLUSTER, false), GitOperation::Repository { repository: CLUSTER, shared: false, push: false }]
    {
        assert!(unauthenticated(world.ask(Credential::None, question.clone()).0));
        assert!(unauthenticated(world.reply("expired", question.clone())));
        assert_eq!(world.ask(token("unknown"), question).1, None, "strangers cannot fill the disk");
    }
    let scope = Denied::Scope { operation: Operation::Push, scope: configdb_schema::document::TokenScope::Viewer };
    assert_eq!(world.reply("viewer", push(CLUSTER, false)), Err(GitAccessError::Forbidden(scope)));
    assert_eq!(world.reply("other", push(CLUSTER, false)), Err(GitAccessError::Forbidden(Denied::Cluster)));
    assert!(world.reply("operator", push(CLUSTER, false)).is_ok());
    // Revoked: without a restart of anything.
    world.delete(object("operator"), "ApiToken");
    assert!(unauthenticated(world.reply("operator", push(CLUSTER, false))));
}

#[test]
fn no_one_is_admitted_while_configdb_is_not_known_and_a_credential_asks_at_a_limited_rate() {
    let mut world = staffed();
    let node = configdb_node(&organisation());
    world.feed(vec![HostEvent::NodeDeath { node, timestamp: 5 }]);
    assert!(matches!(world.reply("operator", push(CLUSTER, false)), Err(GitAccessError::NotAtPresent(_))));
    let births = world.db.birth();
    world.feed(births);
    let mut taken = 0;
    let read = GitOperation::Repository { repository: CLUSTER, shared: false, push: false };
    while !matches!(world.reply("viewer", read.clone()), Err(GitAccessError::TooOften(_))) {
        taken += 1;
        assert!(taken <= 60, "a fifth of 300 at once");
    }
    assert_eq!(taken, 60);
    assert!(world.reply("operator", push(CLUSTER, false)).is_ok(), "others are not held up");
}

#[test]
fn who_may_push_where() {
    let mut world = staffed();
    world.issue("here", "operator", Some(&[CLUSTER]), LONG);
    let charts = known::repository::HELM_CHARTS;
    let may = |reply: Result<GitOutcome, GitAccessError>| matches!(reply, Ok(GitOutcome::Repository { .. }));
    for (name, cluster, shared) in
        [("operator", true, true), ("here", true, false), ("other", false, false), ("viewer", false, false)]
    {
        assert_eq!(may(world.reply(name, push(CLUSTER, false))), cluster, "{name}");
        assert_eq!(may(world.reply(name, push(charts, true))), shared, "{name}");
    }
    // Reading is for every scope, of the clusters of the token and of what all share.
    let read = |repository, shared| GitOperation::Repository { repository, shared, push: false };
    assert!(may(world.reply("viewer", read(CLUSTER, false))) && may(world.reply("other", read(charts, true))));
    assert!(!may(world.reply("other", read(CLUSTER, false))));
    let (refused, record) = world.ask(token("viewer"), push(CLUSTER, false));
    assert!(refused.is_err());
    assert!(matches!(record.unwrap().result, AuditResult::Refused { .. }));
    // A branch that is pulled from elsewhere takes no push.
    let pull = json!({"path": "shared/helm", "pull": {"main": {"url": "https://code.example/x", "ref": "main", "interval": "never"}}});
    world.put(charts, "GitConfig", pull);
    world.settle();
    let Ok(GitOutcome::Repository { pulled, .. }) = world.reply("operator", push(charts, true)) else {
        panic!("they may")
    };
    assert_eq!(pulled, ["main".to_owned()].into());
}

#[test]
fn a_push_is_sent_to_the_edges_at_once_and_recorded() {
    let mut world = staffed();
    world.follow_sources(CLUSTER, "Paint_Shop");
    world.settle();
    let Ok(GitOutcome::Repository { who, .. }) = world.reply("operator", push(CLUSTER, false)) else {
        panic!("they may")
    };
    let pushed = |repository, shared, before: &str, after: &str| {
        let (before, after) = (Some(before.to_owned()), Some(after.to_owned()));
        GitOperation::Pushed(RepositoryPush { repository, shared, before, after })
    };
    let (own, charts) = ("a".repeat(40), "b".repeat(40));
    let (_, record) = world.ask(Credential::Verified(who.clone()), pushed(CLUSTER, false, CHARTS, &own));
    let record = record.unwrap();
    assert_eq!((record.who.as_str(), record.from.as_str(), record.cluster), ("token:operator", FROM, Some(CLUSTER)));
    assert_eq!(record.target, format!("repository {CLUSTER} main {}..{}", &CHARTS[..12], &own[..12]));
    assert_eq!(record.result, AuditResult::Done { commit: Some(own.clone()) });
    let of_charts = pushed(known::repository::HELM_CHARTS, true, CHARTS, &charts);
    assert!(world.ask(Credential::Verified(who.clone()), of_charts).1.is_some(), "recorded as well");
    world.settle();
    let node = &world.edges["Paint_Shop"].node;
    let reported = [node.source_commit, node.source_charts].map(|commit| commit.map(|commit| commit.to_string()));
    assert_eq!(reported, [Some(own.clone()), Some(charts)]);
    assert_eq!(world.device().git_commit, Some(own.clone()));
    // What moved nothing is recorded without a commit. A client that only has a token cannot report a push.
    let (_, record) = world.ask(Credential::Verified(who), pushed(CLUSTER, false, &own, &own));
    assert_eq!(record.unwrap().result, AuditResult::Done { commit: None });
    let other = pushed(CLUSTER, false, &own, &"c".repeat(40));
    assert_eq!(world.ask(token("operator"), other).1, None);
    assert_eq!(world.device().git_commit, Some(own));
}

#[test]
fn a_commit_is_sent_to_the_edge_only_when_the_git_server_has_it() {
    let mut world = staffed();
    world.follow_sources(CLUSTER, "Paint_Shop");
    world.settle();
    let charts = (known::repository::HELM_CHARTS, CHARTS.to_owned());
    let serve = |world: &mut World, commit: &str| {
        let births = git_copies::polled(CLUSTER, 1, [(CLUSTER, commit.to_owned()), charts.clone()]);
        world.feed(births);
        world.settle();
    };
    let sent = |world: &World| world.edges["Paint_Shop"].node.source_commit.map(|commit| commit.to_string());
    let before = world.device().git_commit.clone().unwrap();
    serve(&mut world, &before);
    assert_eq!(sent(&world), Some(before.clone()));
    let Ok(GitOutcome::Repository { who, .. }) = world.reply("operator", push(CLUSTER, false)) else {
        panic!("they may")
    };
    world.disk.push(CLUSTER);
    let after = world.disk.commit(CLUSTER);
    let (repository, shared) = (CLUSTER, false);
    let [start, end] = [&before, &after].map(|commit| Some(commit.clone()));
    let pushed = RepositoryPush { repository, shared, before: start, after: end };
    assert!(world.ask(Credential::Verified(who), GitOperation::Pushed(pushed)).1.is_some(), "it is recorded");
    world.settle();
    assert_eq!(sent(&world), Some(before), "Flux would fetch the commit before, and look again only at its interval");
    serve(&mut world, &after);
    assert_eq!(sent(&world), Some(after));
}

#[test]
fn no_commit_is_sent_to_the_edge_while_the_git_server_is_away() {
    let mut world = staffed();
    let commit = world.device().git_commit.clone().unwrap();
    let charts = (known::repository::HELM_CHARTS, CHARTS.to_owned());
    let births = git_copies::polled(CLUSTER, 1, [(CLUSTER, commit.clone()), charts]);
    world.feed(births.clone());
    let node = git_server_contract::names::node("ACME").unwrap();
    world.feed(vec![HostEvent::NodeDeath { node, timestamp: 0 }]);
    world.follow_sources(CLUSTER, "Paint_Shop");
    world.settle();
    let sent = |world: &World| world.edges["Paint_Shop"].node.source_commit.map(|commit| commit.to_string());
    assert_eq!(sent(&world), None, "it may come back with an older disk");
    world.feed(births);
    world.settle();
    assert_eq!(sent(&world), Some(commit));
}
