//! A site: the organisation, its clusters, and who else may connect.

use std::collections::BTreeSet;

use configdb_schema::address::{CONSOLE_NODE, ClusterName, GIT_NODE, IDENTITY_NODE, OperatorName, Organisation};
use sparkplug::HostId;
use uuid::Uuid;

/// What the access control is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    organisation: Organisation,
    clusters: BTreeSet<ClusterName>,
    operator_hosts: BTreeSet<String>,
    viewer_hosts: BTreeSet<String>,
    operators: BTreeSet<OperatorName>,
    foreign_groups: BTreeSet<String>,
    has_own_hosts: bool,
    has_read_only_console: bool,
}

/// Who connects to the broker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Principal {
    /// ConfigDB, cluster manager and central monitor. They are neither Identity nor the git server.
    ControlPlane,
    /// The command line, and Host Applications that may command.
    Operator,
    /// One operator, by credentials of their own: what they write to ConfigDB is in their name.
    OneOperator(OperatorName),
    /// The web console: it commands as the command line does, and is an Edge Node of the control plane.
    Console,
    /// Host Applications that only read: historians, dashboards.
    Viewer,
    /// What runs on a cluster: Sync, Monitor, Join and the edge agents.
    Cluster(ClusterName),
    /// Hosts that want to join a cluster, by credentials that all of them share.
    JoiningHosts(ClusterName),
    /// The host with this state disk, by credentials of its own. Which cluster takes it in is the clusters' to say, so it may ask each.
    JoiningHost(Uuid),
    /// Identity, which certifies clusters: it answers those that enrol or renew, and writes to ConfigDB what it did.
    Identity,
    /// The git server, which strangers reach: it reads ConfigDB and the cluster manager, is one node, and commands no device.
    Git,
    /// Clusters that are not in yet.
    EnrollingClusters,
}

/// A host id that cannot be written into every server's files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "host id {host_id:?} contains {character:?}; with access control only A-Z, a-z, 0-9, `_`, `-` and `.` are allowed in a host id"
)]
pub struct SiteError {
    /// The refused id.
    pub host_id: String,
    /// The first character at fault.
    pub character: char,
}

/// A group that cannot be one of another make.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("group {name:?}: {rule}")]
pub struct ForeignGroupError {
    /// The refused name.
    pub name: String,
    /// What it breaks.
    pub rule: &'static str,
}

impl Site {
    /// A site with these clusters. `operator_hosts` and `viewer_hosts`: ids of the Host Applications that connect as operator or viewer and publish their own STATE.
    ///
    /// # Errors
    /// A host id has a character that means something in a server's file.
    pub fn new(
        organisation: Organisation,
        clusters: impl IntoIterator<Item = ClusterName>,
        operator_hosts: impl IntoIterator<Item = HostId>,
        viewer_hosts: impl IntoIterator<Item = HostId>,
    ) -> Result<Self, SiteError> {
        let plain = |ids: &mut dyn Iterator<Item = HostId>| ids.map(|id| checked(&id)).collect::<Result<_, _>>();
        Ok(Self {
            organisation,
            clusters: clusters.into_iter().collect(),
            operator_hosts: plain(&mut operator_hosts.into_iter())?,
            viewer_hosts: plain(&mut viewer_hosts.into_iter())?,
            operators: BTreeSet::new(),
            foreign_groups: BTreeSet::new(),
            has_own_hosts: false,
            has_read_only_console: false,
        })
    }

    /// The same, but operators and the console may command the nodes of these Sparkplug groups, which are of other makes.
    ///
    /// # Errors
    /// A name is not a Sparkplug group, has a character that means something in a server's file, or is that of a group of the organisation.
    pub fn with_foreign_groups(self, names: impl IntoIterator<Item = String>) -> Result<Self, ForeignGroupError> {
        let checked = |name: String| {
            let rule = if name.is_empty() || !name.chars().all(|character| is_plain(character) || character == ' ') {
                "a group here has only A-Z, a-z, 0-9, `_`, `-`, `.` and blanks"
            } else if self.organisation.has_group(&name) {
                "a group of the organisation is not a foreign one"
            } else {
                return Ok(name);
            };
            Err(ForeignGroupError { name, rule })
        };
        let foreign_groups = names.into_iter().map(checked).collect::<Result<_, _>>()?;
        Ok(Self { foreign_groups, ..self })
    }

    /// The same, but each of these operators has credentials of their own. If there is any, there is no user that operators share: ConfigDB could not say who of them writes.
    #[must_use]
    pub fn with_operators(self, operators: impl IntoIterator<Item = OperatorName>) -> Self {
        Self { operators: operators.into_iter().collect(), ..self }
    }

    /// The same, but each host has credentials of its own, and there are no users that the hosts of a cluster share. Not both at the same time: Mosquitto cannot say of a topic that one user
    /// receives it by a pattern and another must not command there.
    #[must_use]
    pub fn with_own_hosts(self) -> Self {
        Self { has_own_hosts: true, ..self }
    }

    /// The same, but the console can ask for births and command no device: nothing that is written to ConfigDB comes from it.
    #[must_use]
    pub fn with_read_only_console(self) -> Self {
        Self { has_read_only_console: true, ..self }
    }

    /// Whether the console commands no device.
    #[must_use]
    pub const fn has_read_only_console(&self) -> bool {
        self.has_read_only_console
    }

    /// Whether each host has credentials of its own.
    #[must_use]
    pub const fn has_own_hosts(&self) -> bool {
        self.has_own_hosts
    }

    /// The organisation.
    #[must_use]
    pub const fn organisation(&self) -> &Organisation {
        &self.organisation
    }

    /// Names of the clusters, sorted.
    pub fn clusters(&self) -> impl Iterator<Item = &ClusterName> {
        self.clusters.iter()
    }

    /// Sparkplug groups of nodes of other makes, which operators and the console may command.
    pub(crate) fn foreign_groups(&self) -> impl Iterator<Item = &String> {
        self.foreign_groups.iter()
    }

    pub(crate) fn operator_hosts(&self) -> impl Iterator<Item = &str> {
        self.operator_hosts.iter().map(String::as_str)
    }

    pub(crate) fn viewer_hosts(&self) -> impl Iterator<Item = &str> {
        self.viewer_hosts.iter().map(String::as_str)
    }

    /// Everyone who may connect, but for hosts with credentials of their own, of which there is no list: see [`crate::rules::grants_of_host`].
    #[must_use]
    pub fn principals(&self) -> Vec<Principal> {
        let operators: Vec<Principal> = match self.operators.len() {
            0 => vec![Principal::Operator],
            _ => self.operators.iter().cloned().map(Principal::OneOperator).collect(),
        };
        let others =
            [Principal::Console, Principal::Viewer, Principal::Identity, Principal::Git, Principal::EnrollingClusters];
        let shares = !self.has_own_hosts;
        let of_cluster = |name: &ClusterName| {
            let joining = shares.then(|| Principal::JoiningHosts(name.clone()));
            std::iter::once(Principal::Cluster(name.clone())).chain(joining).collect::<Vec<_>>()
        };
        let everywhere = std::iter::once(Principal::ControlPlane).chain(operators).chain(others);
        everywhere.chain(self.clusters.iter().flat_map(of_cluster)).collect()
    }

    /// The user's name at the broker: the group, which is the common name of the certificate. People have no group; no cluster can be called like them, because its name has no hyphen. A host is its Edge Node: the UUID of its state disk.
    #[must_use]
    pub fn user(&self, principal: &Principal) -> String {
        let organisation = &self.organisation;
        match principal {
            Principal::ControlPlane => organisation.central_group(),
            Principal::Operator => organisation.operators_user(),
            Principal::OneOperator(name) => organisation.operator_user(name),
            Principal::Console => format!("{}-{CONSOLE_NODE}", organisation.central_group()),
            Principal::Identity => format!("{}-{IDENTITY_NODE}", organisation.central_group()),
            Principal::Git => format!("{}-{GIT_NODE}", organisation.central_group()),
            Principal::Viewer => format!("{}-Viewer", organisation.central_group()),
            Principal::Cluster(name) => organisation.cluster_group(name),
            Principal::JoiningHosts(name) => organisation.join_group(name),
            Principal::JoiningHost(disk) => disk.hyphenated().to_string(),
            Principal::EnrollingClusters => organisation.enrol_group(),
        }
    }
}

fn checked(id: &HostId) -> Result<String, SiteError> {
    let text = id.as_str();
    match text.chars().find(|&character| !is_plain(character)) {
        None => Ok(text.to_owned()),
        Some(character) => Err(SiteError { host_id: text.to_owned(), character }),
    }
}

/// Whether a character means nothing in any server's file.
fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_-.".contains(character)
}
