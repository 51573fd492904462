//! Which clusters there are, as ConfigDB says.

use std::collections::{BTreeMap, BTreeSet};

use configdb_contract::ConfigReplica;
use configdb_schema::Document as _;
use configdb_schema::document::{EdgeCluster, EdgeClusterEnrolment, EdgeClusterIdentity, EdgeClusterSetup};
use uuid::Uuid;

/// A cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Cluster {
    /// As it is set up, once its repository was published: its group follows from it.
    pub name: Option<String>,
    /// The set-up is complete.
    pub is_set_up: bool,
    /// It is being torn down, or nothing but its identities is left.
    pub is_deleting: bool,
    /// There is a configuration or a set-up, so that it may enrol.
    pub may_enrol: bool,
}

/// Whether an entry under that application says something of a cluster.
pub(crate) fn concerns(slug: &str) -> bool {
    let slugs =
        [EdgeCluster::slug(), EdgeClusterSetup::slug(), EdgeClusterEnrolment::slug(), EdgeClusterIdentity::slug()];
    slugs.contains(&slug)
}

impl Cluster {
    /// As an object's entries say; None: it is not a cluster.
    fn read(config: &ConfigReplica, uuid: Uuid) -> Option<Self> {
        let has = |slug| config.entry(uuid, slug).is_some();
        let (is_configured, is_recorded) = (has(EdgeCluster::slug()), has(EdgeClusterSetup::slug()));
        if !is_configured && !is_recorded {
            let left = Self { is_deleting: true, ..Self::default() };
            return has(EdgeClusterIdentity::slug()).then_some(left);
        }
        // Nothing is concluded from a record that cannot be read.
        let Ok(record) = config.document::<EdgeClusterSetup>(uuid) else {
            return Some(Self { may_enrol: true, ..Self::default() });
        };
        let record = record.unwrap_or_default();
        let is_published = record.self_link.is_some();
        Some(Self {
            is_set_up: is_configured && is_published && record.ready == Some(true),
            is_deleting: !is_configured || record.is_deleting(),
            may_enrol: true,
            name: record.spec.map(|spec| spec.name).filter(|_| is_published),
        })
    }
}

/// All clusters.
#[derive(Debug, Default)]
pub(crate) struct Clusters {
    known: BTreeMap<Uuid, Cluster>,
    by_name: BTreeMap<String, BTreeSet<Uuid>>,
}

impl Clusters {
    /// Brings one up to date. Some: whether it may enrol has changed.
    pub(crate) fn read(&mut self, config: &ConfigReplica, uuid: Uuid) -> Option<bool> {
        let now = Cluster::read(config, uuid);
        let (name, may_enrol) = now.as_ref().map_or((None, false), |one| (one.name.clone(), one.may_enrol));
        let before = match now {
            Some(now) => self.known.insert(uuid, now),
            None => self.known.remove(&uuid),
        };
        let (old_name, could_enrol) = before.map_or((None, false), |one| (one.name, one.may_enrol));
        if old_name != name {
            if let Some(old_name) = old_name
                && let Some(same) = self.by_name.get_mut(&old_name)
            {
                same.remove(&uuid);
                if same.is_empty() {
                    self.by_name.remove(&old_name);
                }
            }
            if let Some(name) = name {
                self.by_name.entry(name).or_default().insert(uuid);
            }
        }
        (could_enrol != may_enrol).then_some(may_enrol)
    }

    /// One of them.
    pub(crate) fn get(&self, uuid: Uuid) -> Option<&Cluster> {
        self.known.get(&uuid)
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = Uuid> {
        self.known.keys().copied()
    }

    /// Those of that name: two only where ConfigDB holds two records of one name.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = Uuid> {
        self.by_name.get(name).into_iter().flatten().copied()
    }
}
