//! Single decisions; whole lives are in the tests of the state.

use super::*;
use serde_json::json;

static NO_PINS: BTreeMap<Uuid, GitRef> = BTreeMap::new();

const CLUSTER: Uuid = Uuid::from_u128(0xC1);

fn organisation() -> Organisation {
    Organisation::new("ACME").unwrap()
}

fn spec() -> EdgeCluster {
    EdgeCluster { name: "A".to_owned(), namespace: "x".to_owned(), ..EdgeCluster::default() }
}

fn account(word: &str) -> Option<AccountObject> {
    Some(AccountObject { is_account: true, name: Some(format!("Edge {word}: A")) })
}

fn record() -> EdgeClusterSetup {
    let done = |word: &str| {
        let uuid = address::v5(&["Account", &CLUSTER.to_string(), word]);
        Some(AccountStep::Account { uuid, done: Some(true) })
    };
    EdgeClusterSetup {
        spec: Some(spec()),
        flux: done("flux"),
        krbkeys: done("krbkeys"),
        self_link: Some("link".to_owned()),
        ready: Some(true),
        flux_version: Some(FLUX_VERSION.to_owned()),
        error: None,
        extra: json!({"step": "ready"}).as_object().unwrap().clone(),
    }
}

/// A cluster at which nothing is left to do.
fn ready(organisation: &Organisation) -> SetupInputs<'_> {
    SetupInputs {
        cluster: CLUSTER,
        organisation,
        object_exists: true,
        config: Some(Ok(spec())),
        record: Some(Ok(record())),
        record_etag: Some(Uuid::from_u128(1)),
        address: Some(SparkplugAddress::group("ACME-A")),
        git_config: Some(GitConfig { path: "cluster/A".to_owned(), ..GitConfig::default() }),
        member_of: [known::class::EDGE_CLUSTER, known::class::REPO_GROUP_CLUSTER].into(),
        has_status: true,
        accounts: [account("flux"), account("krbkeys")],
        account_removals: Vec::new(),
        pins: &NO_PINS,
        is_git_known: true,
        is_served: true,
        name_taken_by: None,
        wanted: Some(Ok(WantedRepository { self_link: "link".to_owned() })),
        repository: Repository::Written,
        principals: Principals::Off,
        has_certificate: false,
        edge: Edge::Unknown,
    }
}

fn writes(decision: &Decision) -> &[WriteRequest] {
    match &decision.action {
        Some(Action::Write(writes)) => writes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_ready_cluster_needs_nothing() {
    let organisation = organisation();
    let decision = decide(&ready(&organisation));
    let state = Some(SetupState::Ready);
    assert_eq!(decision, Decision { state, step: SetupStep::Ready, reason: None, action: None });
}

#[test]
fn whatever_is_lost_is_made_again() {
    let organisation = organisation();
    type Loss = fn(&mut SetupInputs<'_>);
    let losses: [(Loss, &[&str]); 5] = [
        (|inputs| inputs.address = None, &["EdgeClusterSetup", "SparkplugAddress"]),
        (|inputs| inputs.accounts[1] = None, &["Info"]),
        (|inputs| inputs.git_config = None, &["EdgeClusterSetup", "GitConfig"]),
        (|inputs| inputs.member_of.clear(), &["EdgeClusterSetup", "GitConfig"]),
        (|inputs| inputs.record = None, &["EdgeClusterSetup"]),
    ];
    for (lose, slugs) in losses {
        let mut inputs = ready(&organisation);
        lose(&mut inputs);
        let decision = decide(&inputs);
        let [write] = writes(&decision) else { panic!("{decision:?}") };
        assert_eq!(write.entries.keys().collect::<Vec<_>>(), slugs);
    }
    for repository in [Repository::Behind, Repository::Closed] {
        let inputs = SetupInputs { repository, ..ready(&organisation) };
        assert_eq!(decide(&inputs).action, Some(Action::WriteRepository));
    }
}

#[test]
fn each_record_is_written_only_over_the_one_that_was_read() {
    let organisation = organisation();
    let inputs = SetupInputs { address: None, ..ready(&organisation) };
    let decision = decide(&inputs);
    assert_eq!(writes(&decision)[0].if_match, [("EdgeClusterSetup".to_owned(), inputs.record_etag)].into());
}

#[test]
fn accounts_of_an_older_manager_are_kept() {
    let organisation = organisation();
    let theirs = Uuid::from_u128(0xF1);
    let mut inputs = ready(&organisation);
    let mut record = record();
    record.flux = Some(AccountStep::Legacy(theirs));
    inputs.record = Some(Ok(record));
    let decision = decide(&inputs);
    let written = writes(&decision)[0].entries["EdgeClusterSetup"].clone().unwrap();
    assert_eq!(written["flux"], json!({"uuid": theirs, "done": true}));
}

#[test]
fn other_keys_of_a_git_configuration_and_of_a_record_stay() {
    let organisation = organisation();
    let mut inputs = ready(&organisation);
    let git: GitConfig = serde_json::from_value(json!({"path": "old", "hooks": {"main": "schemas"}})).unwrap();
    inputs.git_config = Some(git);
    let mut with_note = record();
    with_note.extra.insert("note".to_owned(), json!("x"));
    inputs.record = Some(Ok(with_note));
    let decision = decide(&inputs);
    let entries = &writes(&decision)[0].entries;
    assert_eq!(entries["GitConfig"], Some(json!({"path": "cluster/A", "hooks": {"main": "schemas"}})));
    assert_eq!(entries["EdgeClusterSetup"].as_ref().unwrap()["note"], "x");
}

#[test]
fn an_unreadable_record_is_not_touched() {
    let organisation = organisation();
    for config in [Some(Ok(spec())), None] {
        let inputs = SetupInputs { record: Some(Err("no object".to_owned())), config, ..ready(&organisation) };
        let decision = decide(&inputs);
        assert_eq!((decision.state, decision.action), (Some(SetupState::Refused), None));
        assert!(decision.reason.unwrap().contains("no object"));
    }
}

#[test]
fn a_known_refusal_is_not_recorded_again() {
    let organisation = organisation();
    let mut inputs = SetupInputs { wanted: Some(Err("no chart".to_owned())), ..ready(&organisation) };
    assert_eq!(writes(&decide(&inputs)).len(), 1);
    let mut record = record();
    record.error = Some("no chart".to_owned());
    inputs.record = Some(Ok(record));
    let decision = decide(&inputs);
    assert_eq!((decision.state, decision.action), (Some(SetupState::Refused), None));
}

#[test]
fn a_cluster_that_was_never_published_is_torn_down_without_waiting_for_an_edge() {
    let organisation = organisation();
    let mut young = record();
    young.self_link = None;
    young.mark_deleting();
    let inputs = SetupInputs { config: None, record: Some(Ok(young)), ..ready(&organisation) };
    assert!(decide(&inputs).action.is_some());
    let mut published = record();
    published.mark_deleting();
    let inputs = SetupInputs { config: None, record: Some(Ok(published)), ..ready(&organisation) };
    let decision = decide(&inputs);
    assert_eq!((decision.state, decision.action), (Some(SetupState::Deleting), None));
    assert!(decision.reason.unwrap().contains("waiting for a report from the edge"));
}

#[test]
fn nothing_is_left_of_a_cluster_without_configuration_and_record() {
    let organisation = organisation();
    let inputs = SetupInputs { config: None, record: None, ..ready(&organisation) };
    assert_eq!(decide(&inputs).state, None);
}

#[test]
fn a_site_with_a_kdc_is_ready_when_the_principals_are_and_a_ready_cluster_stays_so_during_an_outage() {
    let organisation = organisation();
    let mut inputs = SetupInputs { principals: Principals::Behind, ..ready(&organisation) };
    assert_eq!(decide(&inputs).action, Some(Action::AllowPrincipals(true)));
    inputs.principals = Principals::Failed("the KDC is not reachable".to_owned());
    let decision = decide(&inputs);
    assert_eq!((decision.state, decision.action), (Some(SetupState::Ready), None));
    assert_eq!(decision.reason.as_deref(), Some("the KDC is not reachable"));
    inputs.principals = Principals::Enabled;
    assert_eq!(decide(&inputs).action, None);
    let mut first = record();
    first.ready = Some(false);
    inputs.record = Some(Ok(first));
    inputs.principals = Principals::Failed("the KDC is not reachable".to_owned());
    let decision = decide(&inputs);
    assert_eq!((decision.state, decision.action), (Some(SetupState::SettingUp), None));
}

#[test]
fn the_end_of_a_cluster_waits_until_its_principals_get_no_tickets() {
    let organisation = organisation();
    let mut record = record();
    record.mark_deleting();
    record.extra.insert(STEP.to_owned(), Value::from(SetupStep::EdgeEmptied.as_str()));
    let mut inputs = SetupInputs { config: None, record: Some(Ok(record)), ..ready(&organisation) };
    for principals in [Principals::Behind, Principals::Enabled] {
        inputs.principals = principals;
        assert_eq!(decide(&inputs).action, Some(Action::AllowPrincipals(false)));
    }
    inputs.principals = Principals::Failed("away".to_owned());
    assert_eq!((decide(&inputs).action, decide(&inputs).reason), (None, Some("away".to_owned())));
    for principals in [Principals::Disabled, Principals::Off] {
        inputs.principals = principals;
        assert_eq!(writes(&decide(&inputs)).len(), 2, "both accounts go");
    }
}

#[test]
fn the_record_of_a_tear_down_stays_until_the_certificates_are_revoked() {
    let organisation = organisation();
    let mut record = record();
    record.mark_deleting();
    record.extra.insert(STEP.to_owned(), Value::from(SetupStep::RepositoryClosed.as_str()));
    let mut inputs =
        SetupInputs { config: None, record: Some(Ok(record)), has_certificate: true, ..ready(&organisation) };
    inputs.accounts = [None, None];
    (inputs.address, inputs.git_config, inputs.member_of) = (None, None, BTreeSet::new());
    let decision = decide(&inputs);
    assert_eq!((decision.state, decision.action), (Some(SetupState::Deleting), None));
    assert_eq!(decision.reason.as_deref(), Some("waiting for Identity to revoke the cluster's certificates"));
    inputs.has_certificate = false;
    assert_eq!(writes(&decide(&inputs)).len(), 1, "the record goes");
}

#[test]
fn a_repository_that_is_held_is_neither_written_nor_recorded() {
    let organisation = organisation();
    let mut inputs = ready(&organisation);
    inputs.repository = Repository::Held;
    inputs.wanted = Some(Ok(WantedRepository { self_link: "another".to_owned() }));
    let state = Some(SetupState::Ready);
    assert_eq!(decide(&inputs), Decision { state, step: SetupStep::Ready, reason: None, action: None });
    // What does not concern the repository continues.
    inputs.principals = Principals::Behind;
    assert_eq!(decide(&inputs).action, Some(Action::AllowPrincipals(true)));
}

#[test]
fn where_a_repository_is_read_is_recorded_when_it_is_there() {
    let organisation = organisation();
    let mut inputs = ready(&organisation);
    inputs.is_served = false;
    let decision = |state, reason: Option<&str>| {
        let reason = reason.map(str::to_owned);
        Decision { state: Some(state), step: SetupStep::Ready, reason, action: None }
    };
    assert_eq!(decide(&inputs), decision(SetupState::Ready, None), "a commit that is on its way changes nothing");
    inputs.wanted = Some(Ok(WantedRepository { self_link: "another".to_owned() }));
    assert_eq!(decide(&inputs), decision(SetupState::Ready, None));
    let never = EdgeClusterSetup { self_link: None, ready: None, ..record() };
    inputs.record = Some(Ok(never));
    let reason = "the git server does not have its repository yet";
    assert_eq!(decide(&inputs), decision(SetupState::SettingUp, Some(reason)));
    inputs.is_served = true;
    assert_eq!(writes(&decide(&inputs)).len(), 1);
}

#[test]
fn a_pin_is_recorded_before_the_repository_is_written_with_it() {
    let organisation = organisation();
    let pins = [(Uuid::from_u128(5), GitRef::Tag("v1".to_owned()))].into();
    let mut inputs = ready(&organisation);
    inputs.pins = &pins;
    let decision = decide(&inputs);
    assert_eq!(decision.state, Some(SetupState::SettingUp));
    let recorded: EdgeClusterSetup = {
        let [write] = writes(&decision) else { panic!("{decision:?}") };
        serde_json::from_value(write.entries[EdgeClusterSetup::slug()].clone().unwrap()).unwrap()
    };
    assert!(!is_set_up_for(&recorded, &spec(), &pins), "not before it is written");
    let recorded = EdgeClusterSetup { ready: Some(true), ..recorded };
    assert!(is_set_up_for(&recorded, &spec(), &pins) && !is_set_up_for(&recorded, &spec(), &NO_PINS));
}
