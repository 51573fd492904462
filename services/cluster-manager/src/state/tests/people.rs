//! Who asks over HTTP, by tokens that stand in ConfigDB.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::*;
use crate::api::{Asked, Credential, Question, Refusal, Reply};
use crate::event::{SecretAction, SecretOutcome, SecretResult, SecretWork};
use crate::secrets::{SecretFault, SecretKey};
use access::audit::{AuditRecord, AuditResult};
use access::{Denied, Grant, Operation};
use cluster_manager_contract::api_token::TokenHash;
use configdb_schema::document::TokenScope;

const FROM: &str = "192.0.2.7";
const LONG: &str = "2099-01-01T00:00:00Z";

impl Disk {
    pub(super) fn carry_out_secret(&mut self, work: SecretWork) -> SecretResult {
        let SecretWork { id, cluster, action } = work;
        let outcome = match action {
            _ if self.broken => Err(SecretFault::Repository("disk full".to_owned())),
            SecretAction::List => Ok(SecretOutcome::Listed(crate::secrets::stored(&self.secrets))),
            SecretAction::Change { change, dry_run } => {
                let path = change.key().path().strip_prefix("edo/secrets/").unwrap().to_owned();
                change.apply(self.secrets.get(&path).map(Vec::as_slice)).map(|after| {
                    let changed = (!dry_run).then(|| match after {
                        Some(after) => drop(self.secrets.insert(path, after)),
                        None => drop(self.secrets.remove(&path)),
                    });
                    if changed.is_some() {
                        self.push(cluster);
                    }
                    SecretOutcome::Written { commit: changed.map(|()| self.commit(cluster)) }
                })
            }
        };
        SecretResult { id, cluster, outcome }
    }
}

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

fn key(name: &str) -> SecretKey {
    SecretKey::new("fplus-edge", "press-login", name).unwrap()
}

fn put(name: &str) -> Question {
    let metadata = json!({"name": "press-login", "namespace": "fplus-edge"});
    let sealed = json!({"apiVersion": "bitnami.com/v1alpha1", "kind": "SealedSecret", "metadata": metadata,
        "spec": {"encryptedData": {name: "AAAA"}, "template": {"metadata": metadata, "type": "Opaque"}}});
    let fingerprint = "f1".to_owned();
    Question::PutSecret { cluster: CLUSTER, key: key(name), sealed: Box::new(sealed), fingerprint, dry_run: false }
}

fn delete(name: &str) -> Question {
    Question::DeleteSecret { cluster: CLUSTER, key: key(name), dry_run: false }
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

    fn ask(&mut self, credential: Credential, question: Question) -> (Result<Reply, Refusal>, Option<AuditRecord>) {
        let asked = Asked { id: 7, from: FROM.to_owned(), credential, question };
        self.manager.on_event(Event::Asked(asked), self.now);
        self.run(Duration::ZERO);
        let answer = self.answers.pop().expect("every question is answered");
        assert!(self.answers.is_empty() && answer.id == 7);
        (answer.reply, answer.audit)
    }

    fn reply(&mut self, name: &str, question: Question) -> Result<Reply, Refusal> {
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

#[test]
fn only_a_token_that_is_known_in_time_for_the_cluster_and_large_enough_writes() {
    let mut world = staffed();
    let unauthenticated = |reply| matches!(reply, Err(Refusal::Unauthenticated(_)));
    for question in [put("k"), delete("k"), Question::Clusters, Question::Secrets { cluster: CLUSTER }] {
        assert!(unauthenticated(world.ask(Credential::None, question.clone()).0));
        assert!(unauthenticated(world.reply("expired", question.clone())));
        assert!(unauthenticated(world.reply("unknown", question)));
    }
    let scope = Denied::Scope { operation: Operation::PutSecret, scope: configdb_schema::document::TokenScope::Viewer };
    assert_eq!(world.reply("viewer", put("k")), Err(Refusal::Forbidden(scope)));
    assert_eq!(world.reply("other", put("k")), Err(Refusal::Forbidden(Denied::Cluster)));
    let certificate = Question::Certificate { cluster: CLUSTER, key: key("k") };
    assert_eq!(world.reply("viewer", certificate.clone()), Err(Refusal::Forbidden(scope)));
    assert!(world.disk.secrets.is_empty());
    assert_eq!(world.reply("operator", put("k")), Ok(Reply::Written));
    assert_eq!(world.disk.secrets.len(), 1);
    // Revoked: without a restart of anything.
    world.delete(object("operator"), "ApiToken");
    assert!(unauthenticated(world.reply("operator", put("k"))));
}

#[test]
fn a_token_that_comes_over_the_broker_leaves_a_record_that_says_whose_claim_it_is() {
    let mut world = staffed();
    world.records.clear();
    world.issue("late", "administrator", None, LONG);
    world.settle();
    world.delete(object("late"), "ApiToken");
    world.settle();
    let records: Vec<_> =
        world.records.iter().map(|one| (one.operation, &*one.who, &*one.from, &*one.target)).collect();
    assert_eq!(
        records,
        [
            (Operation::CreateToken, "claimed:ada", "broker", "late"),
            (Operation::RevokeToken, "claimed:unnamed", "broker", "late")
        ]
    );
    // One that was made over HTTP has its record already.
    world.records.clear();
    let create = Question::CreateToken {
        name: "by-http".to_owned(),
        hash: TokenHash::of(&text("by-http")).unwrap(),
        grant: Grant { scope: TokenScope::Viewer, clusters: None },
        lifetime: Duration::from_secs(3600),
    };
    let (_, record) = world.ask(token("admin"), create);
    assert_eq!(record.unwrap().operation, Operation::CreateToken);
    let is_name = |one: &AuditRecord| one.operation == Operation::PutEntry && one.target.contains("/Info revision ");
    assert!(world.records.iter().all(is_name), "{:?}", world.records);
}

#[test]
fn entries_that_are_written_over_the_broker_leave_records_with_their_revision() {
    let mut world = staffed();
    world.records.clear();
    world.put(CLUSTER, "EdgeClusterRollout", json!({"wave": 2}));
    world.settle();
    world.delete(CLUSTER, "EdgeClusterRollout");
    world.settle();
    let records: Vec<_> = world.records.iter().map(|one| (one.operation.as_str(), &*one.who, &*one.target)).collect();
    let slug = format!("{CLUSTER}/EdgeClusterRollout");
    let [(written, who, target), deleted] = records[..] else { panic!("{records:?}") };
    assert_eq!((written, who), ("put-entry", "unnamed"));
    assert!(target.strip_prefix(&*slug).is_some_and(|rest| rest.starts_with(" revision ")), "{target}");
    assert_eq!(deleted, ("delete-entry", "unnamed", &*slug));
}

#[test]
fn every_write_of_a_known_user_is_recorded_with_its_end() {
    let mut world = staffed();
    let record = |world: &mut World, name: &str, question| world.ask(token(name), question).1;
    let done = record(&mut world, "operator", put("password")).unwrap();
    let commit = world.device().git_commit.clone();
    assert_eq!(
        commit,
        Some(format!("{:040x}", world.disk.commits)),
        "the Device says which commit the edge is to have"
    );
    assert_eq!((done.who.as_str(), done.from.as_str(), done.operation), ("token:operator", FROM, Operation::PutSecret));
    assert_eq!((done.cluster, done.target.as_str()), (Some(CLUSTER), "fplus-edge/press-login/password"));
    assert_eq!((done.result, done.at), (AuditResult::Done { commit }, world.now.wall));
    let refused = record(&mut world, "viewer", put("password")).unwrap();
    assert!(matches!(refused.result, AuditResult::Refused { .. }));
    let missing = record(&mut world, "operator", delete("other")).unwrap();
    let reason = "there is no secret fplus-edge/press-login/other".to_owned();
    assert_eq!(missing.result, AuditResult::Refused { reason });
    world.disk.broken = true;
    let failed = record(&mut world, "operator", delete("password")).unwrap();
    assert!(matches!(failed.result, AuditResult::Failed { .. }));
    world.disk.broken = false;
    assert_eq!(record(&mut world, "operator", Question::Secrets { cluster: CLUSTER }), None, "reading is not recorded");
    assert_eq!(record(&mut world, "unknown", put("k")), None, "strangers cannot fill the disk");
}

#[test]
fn one_sees_the_clusters_of_the_own_token_and_what_is_to_be_sealed_again() {
    let mut world = staffed();
    let names = |reply| match reply {
        Ok(Reply::Clusters(devices)) => devices.into_iter().map(|(_, device)| device.name).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(names(world.reply("viewer", Question::Clusters)), ["Paint_Shop", "Weld_Shop"]);
    assert_eq!(names(world.reply("other", Question::Clusters)), ["Weld_Shop"]);
    let unknown = Question::Status { cluster: Uuid::from_u128(0xFF) };
    assert_eq!(world.reply("viewer", unknown.clone()), Err(Refusal::NoCluster));
    assert_eq!(world.reply("other", unknown), Err(Refusal::Forbidden(Denied::Cluster)), "as for one that exists");
    world.reply("operator", put("password")).unwrap();
    let Ok(Reply::Secrets(secrets, fingerprint)) = world.reply("viewer", Question::Secrets { cluster: CLUSTER }) else {
        panic!("listed")
    };
    assert_eq!(secrets[0].keys, [("password".to_owned(), Some("f1".to_owned()))].into());
    assert_eq!(fingerprint, None, "this edge has not published a certificate");
}

#[test]
fn a_certificate_comes_from_the_edge_and_stays_known_while_it_is_away() {
    let mut world = staffed();
    let certificate = Question::Certificate { cluster: CLUSTER, key: key("k") };
    assert!(matches!(world.reply("operator", certificate.clone()), Err(Refusal::NotAtPresent(_))));
    let sealing = super::certificate(0);
    let edge = world.edges.get_mut("Paint_Shop").unwrap();
    edge.node.sealing_certificate = Some(sealing.clone());
    let events = edge.birth();
    world.feed(events);
    world.settle();
    assert_eq!(world.reply("operator", certificate.clone()), Ok(Reply::Certificate(sealing.clone())));
    let other = Question::Certificate { cluster: OTHER, key: key("k") };
    assert!(matches!(world.reply("operator", other), Err(Refusal::NotAtPresent(_))), "never another cluster's");
    // Another run of the manager, which receives no Sync.
    world.edges.clear();
    world.start();
    world.settle();
    assert_eq!(world.reply("operator", certificate), Ok(Reply::Certificate(sealing.clone())));
}

#[test]
fn no_one_is_admitted_while_configdb_is_not_known_and_a_credential_asks_at_a_limited_rate() {
    let mut world = staffed();
    let node = configdb_node(&organisation());
    world.feed(vec![HostEvent::NodeDeath { node, timestamp: 5 }]);
    assert!(matches!(world.reply("operator", put("k")), Err(Refusal::NotAtPresent(_))));
    let births = world.db.birth();
    world.feed(births);
    let mut taken = 0;
    while !matches!(world.reply("viewer", Question::Clusters), Err(Refusal::TooOften(_))) {
        taken += 1;
        assert!(taken <= 60, "a fifth of 300 at once");
    }
    assert_eq!(taken, 60);
    assert_eq!(world.reply("operator", put("k")), Ok(Reply::Written), "others are not held up");
    world.delete(CLUSTER, "EdgeCluster");
    world.run(Duration::ZERO);
    assert!(matches!(world.reply("operator", put("k")), Err(Refusal::NotAtPresent(_) | Refusal::NoCluster)));
}

#[test]
fn an_operator_gets_a_line_once_its_token_is_in_force_and_the_state_knows_its_hash_alone() {
    let mut world = staffed();
    let line = |hash: &str, cluster| Question::BootstrapLine {
        cluster,
        hash: hash.repeat(32),
        lifetime: Duration::from_secs(3600),
    };
    let ask = |world: &mut World, name: &str, question| {
        let asked = Asked { id: 7, from: FROM.to_owned(), credential: token(name), question };
        world.manager.on_event(Event::Asked(asked), world.now);
        let wall = world.now.wall;
        world.settle();
        let answer = world.answers.pop().expect("it is answered");
        (answer.reply, answer.audit, wall)
    };
    for (name, cluster) in [("viewer", CLUSTER), ("other", CLUSTER), ("operator", Uuid::from_u128(404))] {
        let (reply, ..) = ask(&mut world, name, line("ab", cluster));
        assert!(matches!(reply, Err(Refusal::Forbidden(_) | Refusal::NoCluster)), "{name}: {reply:?}");
    }
    for hash in ["ab", "cd"] {
        let (reply, audit, wall) = ask(&mut world, "operator", line(hash, CLUSTER));
        let url = enrolment_protocol::bootstrap::script_url("http://api", CLUSTER);
        assert_eq!(reply, Ok(Reply::Offered { url, expires: wall + 3_600_000 }));
        let audit = audit.unwrap();
        assert_eq!((audit.operation, audit.result), (Operation::BootstrapLine, AuditResult::Done { commit: None }));
        assert_eq!(audit.target, format!("token {}", hash.repeat(4)));
    }
    let offer = world.manager.bootstrap_grants.grant(CLUSTER).cloned().unwrap();
    let hashes: Vec<_> = offer.tokens.iter().map(|token| token.hash[..2].to_owned()).collect();
    assert_eq!(hashes, ["ab", "cd"], "the tokens of others stay");
    world.delete(CLUSTER, "EdgeCluster");
    world.settle();
    let (reply, ..) = ask(&mut world, "operator", line("ef", CLUSTER));
    assert!(reply.is_err(), "{reply:?}");
}

fn create(name: &str, clusters: Option<&[Uuid]>) -> Question {
    let hash = TokenHash::of(&text(name)).unwrap();
    let clusters = clusters.map(|clusters| clusters.iter().copied().collect());
    let grant = Grant { scope: TokenScope::Operator, clusters };
    Question::CreateToken { name: name.to_owned(), hash, grant, lifetime: Duration::from_secs(60) }
}

fn revoke(name: &str) -> Question {
    Question::RevokeToken { name: name.to_owned() }
}

#[test]
fn an_administrator_of_all_clusters_makes_and_revokes_tokens_and_the_answer_comes_when_that_is_in_force() {
    let mut world = staffed();
    for question in [Question::Tokens, create("ci", None), revoke("viewer"), Question::Audit] {
        assert!(matches!(world.reply("operator", question.clone()), Err(Refusal::Forbidden(Denied::Scope { .. }))));
        assert!(matches!(world.reply("other", question), Err(Refusal::Forbidden(Denied::NotForAll { .. }))));
    }
    let (reply, audit) = world.ask(token("admin"), create("ci", Some(&[OTHER])));
    let Ok(Reply::Created { expires }) = reply else { panic!("{reply:?}") };
    assert!(expires.parse::<jiff::Timestamp>().unwrap().as_millisecond() > world.now.wall.cast_signed());
    let audit = audit.unwrap();
    assert_eq!((audit.operation, audit.cluster, audit.target.as_str()), (Operation::CreateToken, None, "ci"));
    assert_eq!(
        world.reply("ci", put("k")),
        Err(Refusal::Forbidden(Denied::Cluster)),
        "in force, for the other cluster"
    );
    assert_eq!(world.reply("admin", create("ci", None)), Err(Refusal::NameTaken));
    assert_eq!(world.reply("admin", create("../ci", None)).unwrap_err().to_string().split(' ').next(), Some("name"));
    assert_eq!(world.reply("admin", create("of-none", Some(&[Uuid::from_u128(404)]))), Err(Refusal::NoCluster));
    let Ok(Reply::Tokens(tokens)) = world.reply("admin", Question::Tokens) else { panic!("listed") };
    let named: Vec<_> = tokens.iter().map(|token| (token.name.as_str(), token.by.as_str())).collect();
    assert!(named.contains(&("ci", "token:admin")), "{named:?}");
    assert_eq!(world.reply("admin", revoke("ci")), Ok(Reply::Written));
    assert!(matches!(world.reply("ci", Question::Clusters), Err(Refusal::Unauthenticated(_))));
    assert_eq!(world.reply("admin", revoke("ci")), Err(Refusal::NoToken));
    assert_eq!(world.reply("admin", Question::Audit), Ok(Reply::Permitted));
}

#[test]
fn a_change_of_tokens_that_configdb_does_not_take_is_reported_as_not_done() {
    let mut world = staffed();
    world.db.refuse = Some("disk full");
    let (reply, audit) = world.ask(token("admin"), create("ci", None));
    assert!(reply.unwrap_err().to_string().starts_with("the token could not be stored"));
    assert!(matches!(audit.unwrap().result, AuditResult::Refused { .. }));
    assert!(matches!(world.reply("ci", Question::Clusters), Err(Refusal::Unauthenticated(_))));
}

fn push(repository: Uuid, shared: bool) -> Question {
    Question::Repository { repository, shared, push: true }
}

#[test]
fn who_may_push_where() {
    let mut world = staffed();
    world.issue("here", "operator", Some(&[CLUSTER]), LONG);
    let charts = known::repository::HELM_CHARTS;
    let may = |reply: Result<Reply, Refusal>| matches!(reply, Ok(Reply::Repository { .. }));
    for (name, cluster, shared) in
        [("operator", true, true), ("here", true, false), ("other", false, false), ("viewer", false, false)]
    {
        assert_eq!(may(world.reply(name, push(CLUSTER, false))), cluster, "{name}");
        assert_eq!(may(world.reply(name, push(charts, true))), shared, "{name}");
    }
    // Reading is for every scope, of the clusters of the token and of what all share.
    let read = |repository, shared| Question::Repository { repository, shared, push: false };
    assert!(may(world.reply("viewer", read(CLUSTER, false))) && may(world.reply("other", read(charts, true))));
    assert!(!may(world.reply("other", read(CLUSTER, false))));
    let (refused, record) = world.ask(token("viewer"), push(CLUSTER, false));
    assert!(refused.is_err());
    assert!(matches!(record.unwrap().result, AuditResult::Refused { .. }));
    // A branch that is pulled from elsewhere takes no push.
    let pull = json!({"path": "shared/helm", "pull": {"main": {"url": "https://code.example/x", "ref": "main", "interval": "never"}}});
    world.put(charts, "GitConfig", pull);
    world.settle();
    let Ok(Reply::Repository { pulled, .. }) = world.reply("operator", push(charts, true)) else { panic!("they may") };
    assert_eq!(pulled, ["main".to_owned()].into());
}

#[test]
fn a_push_is_sent_to_the_edges_at_once_and_recorded() {
    let mut world = staffed();
    world.follow_sources(CLUSTER, "Paint_Shop");
    world.settle();
    let Ok(Reply::Repository { who, .. }) = world.reply("operator", push(CLUSTER, false)) else { panic!("they may") };
    let pushed = |repository, shared, before: &str, after: &str| {
        let (before, after) = (Some(before.to_owned()), Some(after.to_owned()));
        Question::Pushed(crate::api::RepositoryPush { repository, shared, before, after })
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
    let Ok(Reply::Repository { who, .. }) = world.reply("operator", push(CLUSTER, false)) else { panic!("they may") };
    let after = "a".repeat(40);
    let (repository, shared) = (CLUSTER, false);
    let [start, end] = [&before, &after].map(|commit| Some(commit.clone()));
    let pushed = crate::api::RepositoryPush { repository, shared, before: start, after: end };
    assert!(world.ask(Credential::Verified(who), Question::Pushed(pushed)).1.is_some(), "it is recorded");
    world.settle();
    assert_eq!(sent(&world), Some(before), "Flux would fetch the commit before, and look again only at its interval");
    serve(&mut world, &after);
    assert_eq!(sent(&world), Some(after));
}
