//! Set-up and tear-down of one cluster: what is, compared with what shall be -> the next step.
//!
//! Level-triggered: nothing is remembered between two calls but what ConfigDB holds, so a manager that is killed between any two steps continues where it was. Each step
//! is recorded in the `EdgeClusterSetup` entry, in the same transaction as its effect where both concern the cluster's object. Ids of what is created are derived, so
//! that doing a step twice is doing it once. This module must not know how a step is carried out.
//!
//! ```text
//! set-up     spec -> address -> flux account -> krbkeys account -> git config -> repository -> principals -> ready
//! tear-down  marked -> edge emptied -> principals disabled -> accounts removed -> config removed -> repository closed -> entries removed
//! ```

use std::collections::{BTreeMap, BTreeSet};

use cluster_manager_contract::{SetupState, SetupStep};
use configdb_contract::WriteRequest;
use configdb_schema::document::{
    AccountStep, EdgeCluster, EdgeClusterSetup, EdgeClusterStatus, GitConfig, GitRef, Info, SparkplugAddress,
};
use configdb_schema::{ClusterName, Document, Organisation, address, known};
use git_hosting::repositories::cluster_path;
use manifests::names::LABEL_CHARACTERS_MAX;
use serde_json::Value;
use uuid::Uuid;

/// Version of Flux that the default templates are written for; recorded with the set-up.
const FLUX_VERSION: &str = "2.7.5";

/// Key of the record: last step.
const STEP: &str = "step";

/// Key of the record: where the cluster stays in repositories of charts, as its repository was set up with.
const PINS: &str = "pins";

/// The two accounts of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Account {
    /// Pulls the repository.
    Flux,
    /// Makes Kerberos keys.
    Krbkeys,
}

impl Account {
    /// Both, in the order in which they are made.
    pub(crate) const ALL: [Self; 2] = [Self::Flux, Self::Krbkeys];

    const fn word(self) -> &'static str {
        match self {
            Self::Flux => "flux",
            Self::Krbkeys => "krbkeys",
        }
    }

    const fn step(self) -> SetupStep {
        match self {
            Self::Flux => SetupStep::FluxAccount,
            Self::Krbkeys => SetupStep::KrbkeysAccount,
        }
    }

    /// Its object: the recorded one (an older manager chose it), else derived from the cluster.
    #[must_use]
    pub(crate) fn uuid(self, cluster: Uuid, record: Option<&EdgeClusterSetup>) -> Uuid {
        let recorded = record.and_then(|record| self.recorded(record)).map(AccountStep::uuid);
        recorded.unwrap_or_else(|| address::v5(&["Account", &cluster.to_string(), self.word()]))
    }

    /// Its principal in a realm, as Factory+ names it.
    #[must_use]
    pub(crate) fn principal(self, cluster_name: &str, realm: &str) -> String {
        format!("op1{}/{cluster_name}@{realm}", self.word())
    }

    fn recorded(self, record: &EdgeClusterSetup) -> Option<&AccountStep> {
        match self {
            Self::Flux => record.flux.as_ref(),
            Self::Krbkeys => record.krbkeys.as_ref(),
        }
    }

    fn record(self, record: &mut EdgeClusterSetup, uuid: Uuid, done: bool) {
        let step = Some(AccountStep::Account { uuid, done: Some(done) });
        match self {
            Self::Flux => record.flux = step,
            Self::Krbkeys => record.krbkeys = step,
        }
    }
}

/// An account object as ConfigDB has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccountObject {
    /// Its class is that of accounts.
    pub is_account: bool,
    /// Its name.
    pub name: Option<String>,
}

/// What is left of a cluster's deployments at its edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// It says that nothing is.
    Empty,
    /// It is not there, for long enough.
    Away,
    /// So many deployments, or the index is not accepted yet.
    Busy(usize),
    /// Not known yet.
    Unknown,
}

/// The cluster's repository, as the disk has answered since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Repository {
    /// Nothing is known, or what is known is not what shall be.
    Behind,
    /// Branch `main` is what shall be.
    Written,
    /// Branch `main` is something else, and stays so until an earlier wave has settled.
    Held,
    /// It is closed.
    Closed,
    /// The last try failed; the next one is due later.
    Failed(String),
}

/// The principals of the cluster's accounts, as the KDC has answered since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Principals {
    /// The site has no KDC.
    Off,
    /// Nothing is known.
    Behind,
    /// They get tickets.
    Enabled,
    /// They get none.
    Disabled,
    /// The last try failed; the next one is due later.
    Failed(String),
}

/// What shall be in the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedRepository {
    /// Content of the file that links the cluster to it.
    pub self_link: String,
}

/// Everything that a decision needs.
#[derive(Debug, Clone)]
pub(crate) struct SetupInputs<'a> {
    /// The cluster.
    pub cluster: Uuid,
    /// Prefix of the groups.
    pub organisation: &'a Organisation,
    /// Its object is alive in ConfigDB.
    pub object_exists: bool,
    /// Its `EdgeCluster` entry; Err: what is wrong with it.
    pub config: Option<Result<EdgeCluster, String>>,
    /// Its `EdgeClusterSetup` entry; Err: what is wrong with it.
    pub record: Option<Result<EdgeClusterSetup, String>>,
    /// ETag of the record.
    pub record_etag: Option<Uuid>,
    /// Its `SparkplugAddress` entry.
    pub address: Option<SparkplugAddress>,
    /// Its `GitConfig` entry.
    pub git_config: Option<GitConfig>,
    /// Classes that it is a direct member of.
    pub member_of: BTreeSet<Uuid>,
    /// It has an `EdgeClusterStatus` entry.
    pub has_status: bool,
    /// Its accounts, in the order of [`Account::ALL`].
    pub accounts: [Option<AccountObject>; 2],
    /// What is to be done to the accounts of its principals when it goes, some at a time; nothing: there are none.
    pub account_removals: Vec<WriteRequest>,
    /// Where it stays in repositories of charts.
    pub pins: &'a BTreeMap<Uuid, GitRef>,
    /// It is known where clusters reach the git server.
    pub is_git_known: bool,
    /// Another cluster that has its name.
    pub name_taken_by: Option<Uuid>,
    /// What its repository shall hold, rendered from `config`; Err: why that is not possible.
    pub wanted: Option<Result<WantedRepository, String>>,
    /// What its repository is.
    pub repository: Repository,
    /// Where clusters read it, that is there.
    pub is_served: bool,
    /// What its principals are.
    pub principals: Principals,
    /// It has a certificate that Identity has not revoked.
    pub has_certificate: bool,
    /// What is left at its edge.
    pub edge: Edge,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Writes to ConfigDB, each to another object. Their ids are still to be given.
    Write(Vec<WriteRequest>),
    /// Write the repository.
    WriteRepository,
    /// Close the repository.
    CloseRepository,
    /// Let the principals get tickets, or not. They are made if they are to get some, and never deleted.
    AllowPrincipals(bool),
}

/// Where the cluster stands, and what to do next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decision {
    /// State to show; None: the cluster is gone.
    pub state: Option<SetupState>,
    /// Last recorded step.
    pub step: SetupStep,
    /// Why it does not go on, or what it waits for.
    pub reason: Option<String>,
    /// What to do next; None: wait for something to change.
    pub action: Option<Action>,
}

/// The last step of a record.
#[must_use]
pub(crate) fn step(record: &EdgeClusterSetup) -> SetupStep {
    match record.extra.get(STEP).and_then(Value::as_str).and_then(|text| text.parse().ok()) {
        Some(step) => step,
        // Written by Factory+'s manager, which records no step.
        None if record.ready == Some(true) => SetupStep::Ready,
        None => SetupStep::None,
    }
}

/// Whether the repository was set up for exactly this configuration: nothing else has been wanted on this cluster since.
#[must_use]
pub(crate) fn is_set_up_for(record: &EdgeClusterSetup, config: &EdgeCluster, pins: &BTreeMap<Uuid, GitRef>) -> bool {
    !record.is_deleting() && record.ready == Some(true) && is_recorded(record, config, pins)
}

fn is_recorded(record: &EdgeClusterSetup, config: &EdgeCluster, pins: &BTreeMap<Uuid, GitRef>) -> bool {
    record.spec.as_ref() == Some(config) && record.extra.get(PINS) == pins_json(pins).as_ref()
}

/// None: there are none.
fn pins_json(pins: &BTreeMap<Uuid, GitRef>) -> Option<Value> {
    (!pins.is_empty()).then(|| serde_json::to_value(pins).unwrap_or_default())
}

/// Decides.
#[must_use]
pub(crate) fn decide(inputs: &SetupInputs<'_>) -> Decision {
    let record = match &inputs.record {
        Some(Ok(record)) => Some(record),
        Some(Err(reason)) => {
            let reason =
                format!("the record of the set-up (EdgeClusterSetup) cannot be read: {reason}; correct or delete it");
            return Decision {
                state: Some(SetupState::Refused),
                step: SetupStep::None,
                reason: Some(reason),
                action: None,
            };
        }
        None => None,
    };
    match (&inputs.config, record) {
        (Some(config), record) if !record.is_some_and(EdgeClusterSetup::is_deleting) => set_up(inputs, config, record),
        (None, None) if inputs.object_exists => {
            Decision { state: None, step: SetupStep::None, reason: None, action: None }
        }
        (config, record) => tear_down(inputs, config.is_some(), record),
    }
}

fn set_up(
    inputs: &SetupInputs<'_>,
    config: &Result<EdgeCluster, String>,
    record: Option<&EdgeClusterSetup>,
) -> Decision {
    let step = record.map(step).unwrap_or_default();
    if !inputs.is_git_known {
        return without_git(inputs, config, record);
    }
    let (config, wanted) = match validate(inputs, config, record) {
        Ok(valid) => valid,
        Err(reason) => return refused(inputs, record, reason),
    };
    let action = next_step(inputs, config, wanted, &record.cloned().unwrap_or_default());
    let ready = record.is_some_and(|record| is_set_up_for(record, config, inputs.pins));
    let reason = match (&inputs.repository, &inputs.principals) {
        (Repository::Failed(reason), _) | (_, Principals::Failed(reason)) => Some(reason.clone()),
        _ if action.is_none() && !ready && !inputs.is_served => {
            Some("the git server does not have its repository yet".to_owned())
        }
        _ => None,
    };
    let state = if ready { SetupState::Ready } else { SetupState::SettingUp };
    Decision { state: Some(state), step, reason, action }
}

/// Nothing is written that would have to name an address which is not known.
fn without_git(
    inputs: &SetupInputs<'_>,
    config: &Result<EdgeCluster, String>,
    record: Option<&EdgeClusterSetup>,
) -> Decision {
    let is_ready = |config| record.is_some_and(|record| is_set_up_for(record, config, inputs.pins));
    let state = if config.as_ref().is_ok_and(is_ready) { SetupState::Ready } else { SetupState::SettingUp };
    let reason = "the git server is not known yet: it has not reported its URL, and git.public_url is not configured";
    let step = record.map(step).unwrap_or_default();
    Decision { state: Some(state), step, reason: Some(reason.to_owned()), action: None }
}

/// A configuration that cannot be followed is recorded with its reason; what was set up before stays as it is.
fn refused(inputs: &SetupInputs<'_>, record: Option<&EdgeClusterSetup>, reason: String) -> Decision {
    let known = record.and_then(|record| record.error.as_ref()) == Some(&reason);
    let action = (!known).then(|| {
        let mut next = record.cloned().unwrap_or_default();
        next.error = Some(reason.clone());
        record_only(inputs, &next)
    });
    let step = record.map(step).unwrap_or_default();
    Decision { state: Some(SetupState::Refused), step, reason: Some(reason), action }
}

fn validate<'a>(
    inputs: &'a SetupInputs<'_>,
    config: &'a Result<EdgeCluster, String>,
    record: Option<&EdgeClusterSetup>,
) -> Result<(&'a EdgeCluster, &'a WantedRepository), String> {
    let config = config.as_ref().map_err(|reason| format!("EdgeCluster cannot be read: {reason}"))?;
    match record.and_then(|record| record.spec.as_ref()) {
        Some(spec) if spec.name != config.name => {
            return Err(format!(
                "name is {:?}, but the cluster is set up as {:?}: a set-up cluster cannot be renamed; restore the name, or delete the cluster and create it again",
                config.name, spec.name
            ));
        }
        Some(_) => {}
        None => {
            ClusterName::new(&*config.name).map_err(|rule| rule.to_string())?;
            if let Some(other) = inputs.name_taken_by {
                return Err(format!("name {:?} is taken by cluster {other}; choose another name", config.name));
            }
        }
    }
    check_namespace(&config.namespace)?;
    match &inputs.wanted {
        Some(Ok(wanted)) => Ok((config, wanted)),
        Some(Err(reason)) => Err(reason.clone()),
        None => Err("the content of the repository is not known".to_owned()),
    }
}

fn check_namespace(namespace: &str) -> Result<(), String> {
    let characters = namespace.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-'));
    let ends = !namespace.starts_with('-') && !namespace.ends_with('-');
    if namespace.is_empty() || namespace.len() > LABEL_CHARACTERS_MAX || !characters || !ends {
        return Err(format!(
            "namespace {namespace:?} is not a name of a Kubernetes namespace: 1 to {LABEL_CHARACTERS_MAX} characters of a-z, 0-9 and -, no - at its ends"
        ));
    }
    Ok(())
}

/// The first step whose result is not there.
fn next_step(
    inputs: &SetupInputs<'_>,
    config: &EdgeCluster,
    wanted: &WantedRepository,
    record: &EdgeClusterSetup,
) -> Option<Action> {
    if !is_recorded(record, config, inputs.pins) {
        let mut next = at(record, SetupStep::Spec);
        next.spec = Some(config.clone());
        next.extra.remove(PINS);
        next.extra.extend(pins_json(inputs.pins).map(|pins| (PINS.to_owned(), pins)));
        next.ready = Some(false);
        next.error = None;
        return Some(record_only(inputs, &next));
    }
    let group = format!("{}-{}", inputs.organisation, config.name);
    let address = SparkplugAddress::group(group);
    if inputs.address.as_ref() != Some(&address) {
        let write = with_record(inputs, &at(record, SetupStep::Address));
        return Some(Action::Write(vec![write.entry(SparkplugAddress::slug(), json(&address))]));
    }
    for (account, object) in Account::ALL.into_iter().zip(&inputs.accounts) {
        let uuid = account.uuid(inputs.cluster, Some(record));
        let name = format!("Edge {}: {}", account.word(), config.name);
        if object.as_ref().is_none_or(|object| !object.is_account || object.name.as_ref() != Some(&name)) {
            let create = request(uuid).create_object(known::class::EDGE_SERVICE_ACCOUNT, None);
            return Some(Action::Write(vec![create.entry(Info::slug(), json(&Info::named(name)))]));
        }
        if !account.recorded(record).is_some_and(AccountStep::is_done) {
            let mut next = at(record, account.step());
            account.record(&mut next, uuid, true);
            return Some(record_only(inputs, &next));
        }
    }
    let path = cluster_path(&config.name);
    let is_in_group = inputs.member_of.contains(&known::class::REPO_GROUP_CLUSTER);
    if !is_in_group || inputs.git_config.as_ref().is_none_or(|git| git.path != path) {
        let git = GitConfig { path, ..inputs.git_config.clone().unwrap_or_default() };
        let mut classes = inputs.member_of.clone();
        classes.insert(known::class::REPO_GROUP_CLUSTER);
        let write = with_record(inputs, &at(record, SetupStep::GitConfig)).member_of(classes);
        return Some(Action::Write(vec![write.entry(GitConfig::slug(), json(&git))]));
    }
    match inputs.repository {
        Repository::Written | Repository::Held => {}
        Repository::Behind | Repository::Closed => return Some(Action::WriteRepository),
        Repository::Failed(_) => return None,
    }
    let is_held = inputs.repository == Repository::Held;
    if record.self_link.as_ref() != Some(&wanted.self_link) && !is_held {
        let mut next = at(record, SetupStep::Repository);
        next.self_link = Some(wanted.self_link.clone());
        // Flux that is pointed there before would fetch what is there still, and look again only at its interval.
        return inputs.is_served.then(|| record_only(inputs, &next));
    }
    match inputs.principals {
        Principals::Off | Principals::Enabled => {}
        Principals::Behind | Principals::Disabled => return Some(Action::AllowPrincipals(true)),
        Principals::Failed(_) => return None,
    }
    // What is recorded is what the repository was written with.
    if is_held {
        return None;
    }
    let mut next = at(record, SetupStep::Ready);
    next.ready = Some(true);
    next.flux_version = Some(FLUX_VERSION.to_owned());
    next.error = None;
    (next != *record).then(|| record_only(inputs, &next))
}

/// `config_is_back`: the cluster was created again and waits for the end of this.
fn tear_down(inputs: &SetupInputs<'_>, config_is_back: bool, record: Option<&EdgeClusterSetup>) -> Decision {
    let tear_down = TearDown { inputs, config_is_back, record, recorded: record.map(step).unwrap_or_default() };
    if let Some(record) = record.filter(|record| !record.is_deleting() && inputs.object_exists) {
        let mut next = at(record, SetupStep::TearDown);
        next.ready = Some(false);
        next.error = None;
        next.mark_deleting();
        return tear_down.go_on(record_only(inputs, &next));
    }
    let stages = [
        TearDown::empty_edge,
        TearDown::disable_principals,
        TearDown::remove_accounts,
        TearDown::remove_config,
        TearDown::close_repository,
    ];
    if let Some(decision) = stages.into_iter().find_map(|stage| stage(&tear_down)) {
        return decision;
    }
    if inputs.object_exists && record.is_some() && inputs.has_certificate {
        // By the record Identity sees that the cluster is being torn down. A cluster that is created again must not have the certificates of the former one.
        return tear_down.wait("waiting for Identity to revoke the cluster's certificates".to_owned());
    }
    if inputs.object_exists && (record.is_some() || inputs.has_status) {
        let write = if_unchanged(inputs, request(inputs.cluster));
        let write = write.delete(EdgeClusterStatus::slug()).delete(EdgeClusterSetup::slug());
        return tear_down.go_on(Action::Write(vec![write]));
    }
    Decision { state: None, step: tear_down.recorded, reason: None, action: None }
}

/// A tear-down under way. Each stage says what is to be done, or None when it is done with.
struct TearDown<'a> {
    inputs: &'a SetupInputs<'a>,
    config_is_back: bool,
    record: Option<&'a EdgeClusterSetup>,
    recorded: SetupStep,
}

impl TearDown<'_> {
    fn empty_edge(&self) -> Option<Decision> {
        if self.recorded >= SetupStep::EdgeEmptied {
            return None;
        }
        // Without a self link the cluster can never have been bootstrapped.
        let was_published = self.record.is_none_or(|record| record.self_link.is_some());
        match self.inputs.edge {
            Edge::Busy(deployments) if was_published => {
                Some(self.wait(format!("waiting for the edge to remove {deployments} deployments")))
            }
            Edge::Unknown if was_published => {
                Some(self.wait("waiting for a report from the edge, or to be sure that it is away".to_owned()))
            }
            _ => self.record_step(SetupStep::EdgeEmptied),
        }
    }

    /// Before the accounts go: what is recorded as removed is not looked at again.
    fn disable_principals(&self) -> Option<Decision> {
        if self.recorded >= SetupStep::AccountsRemoved || self.record.is_none_or(|record| record.spec.is_none()) {
            return None;
        }
        match &self.inputs.principals {
            Principals::Off | Principals::Disabled => None,
            Principals::Behind | Principals::Enabled => Some(self.go_on(Action::AllowPrincipals(false))),
            Principals::Failed(reason) => Some(self.wait(reason.clone())),
        }
    }

    fn remove_accounts(&self) -> Option<Decision> {
        let alive = Account::ALL.into_iter().zip(&self.inputs.accounts).filter(|(_, object)| object.is_some());
        let accounts: BTreeSet<Uuid> =
            alive.map(|(account, _)| account.uuid(self.inputs.cluster, self.record)).collect();
        // One of its own accounts may be that of a principal as well: then it is deleted once.
        let removals =
            self.inputs.account_removals.iter().filter(|removal| !accounts.contains(&removal.object)).cloned();
        let deletions: Vec<WriteRequest> =
            accounts.iter().map(|account| request(*account).delete_object()).chain(removals).collect();
        if !deletions.is_empty() {
            return Some(self.go_on(Action::Write(deletions)));
        }
        let record = self.record_behind(SetupStep::AccountsRemoved)?;
        let mut next = at(record, SetupStep::AccountsRemoved);
        for account in Account::ALL {
            if account.recorded(record).is_some() {
                let uuid = account.uuid(self.inputs.cluster, Some(record));
                account.record(&mut next, uuid, false);
            }
        }
        Some(self.go_on(record_only(self.inputs, &next)))
    }

    fn remove_config(&self) -> Option<Decision> {
        let inputs = self.inputs;
        let mut classes = inputs.member_of.clone();
        let is_in_group = classes.remove(&known::class::REPO_GROUP_CLUSTER);
        let is_left = inputs.address.is_some() || inputs.git_config.is_some() || is_in_group;
        if !inputs.object_exists || !is_left {
            return None;
        }
        let record = self.record.cloned().unwrap_or_default();
        let write = with_record(inputs, &at(&record, SetupStep::ConfigRemoved)).member_of(classes);
        let write = write.delete(SparkplugAddress::slug()).delete(GitConfig::slug());
        Some(self.go_on(Action::Write(vec![write])))
    }

    fn close_repository(&self) -> Option<Decision> {
        if self.recorded >= SetupStep::RepositoryClosed {
            return None;
        }
        match &self.inputs.repository {
            Repository::Closed => self.record_step(SetupStep::RepositoryClosed),
            Repository::Failed(reason) => Some(self.wait(reason.clone())),
            Repository::Behind | Repository::Written | Repository::Held => Some(self.go_on(Action::CloseRepository)),
        }
    }

    /// The record, if that step is still to be written into it. Without an object there is nowhere to record: then the steps are simply taken again.
    fn record_behind(&self, step: SetupStep) -> Option<&EdgeClusterSetup> {
        self.record.filter(|_| self.inputs.object_exists && self.recorded < step)
    }

    fn record_step(&self, step: SetupStep) -> Option<Decision> {
        let record = self.record_behind(step)?;
        Some(self.go_on(record_only(self.inputs, &at(record, step))))
    }

    fn go_on(&self, action: Action) -> Decision {
        let reason = "the tear-down of the cluster's former instance has to end first";
        self.decision(self.config_is_back.then(|| reason.to_owned()), Some(action))
    }

    fn wait(&self, reason: String) -> Decision {
        self.decision(Some(reason), None)
    }

    fn decision(&self, reason: Option<String>, action: Option<Action>) -> Decision {
        let state = if self.config_is_back { SetupState::Waiting } else { SetupState::Deleting };
        Decision { state: Some(state), step: self.recorded, reason, action }
    }
}

fn at(record: &EdgeClusterSetup, step: SetupStep) -> EdgeClusterSetup {
    let mut next = record.clone();
    next.extra.insert(STEP.to_owned(), Value::from(step.as_str()));
    next
}

fn request(object: Uuid) -> WriteRequest {
    WriteRequest::put("", object)
}

/// The record has one writer; if it is not as it was read, another writer was at work and the step is decided again.
fn if_unchanged(inputs: &SetupInputs<'_>, write: WriteRequest) -> WriteRequest {
    write.if_match(EdgeClusterSetup::slug(), inputs.record_etag)
}

fn with_record(inputs: &SetupInputs<'_>, record: &EdgeClusterSetup) -> WriteRequest {
    if_unchanged(inputs, request(inputs.cluster)).entry(EdgeClusterSetup::slug(), json(record))
}

fn record_only(inputs: &SetupInputs<'_>, record: &EdgeClusterSetup) -> Action {
    Action::Write(vec![with_record(inputs, record)])
}

/// A document as it is written.
pub(crate) fn json(document: &impl Document) -> Value {
    serde_json::to_value(document).expect("documents have text keys, which is all that JSON asks for")
}

#[cfg(test)]
mod tests;
