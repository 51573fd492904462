//! People who use git repositories: one who may read that of one cluster, one who shows nothing, and one who asks without end.

use std::collections::{BTreeMap, BTreeSet};

use access::{Grant, Principal};
use cluster_manager::git_users::Credential;
use configdb_schema::document::TokenScope;
use uuid::Uuid;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Person {
    /// May read the repository of one cluster.
    Viewer(Uuid),
    /// Shows nothing.
    Stranger,
    /// May read everything, and asks without end.
    Flooder,
}

/// Questions on their way, and who asks.
#[derive(Debug, Default)]
pub struct People {
    pub(crate) asked: BTreeMap<u64, (Person, Option<Uuid>)>,
    pub(crate) next: u64,
    /// Questions that were answered so far.
    pub answered: u64,
}

pub(crate) fn credential(person: Person) -> Credential {
    let (name, clusters) = match person {
        Person::Stranger => return Credential::None,
        Person::Viewer(cluster) => (format!("oidc:viewer-{cluster}"), Some(BTreeSet::from([cluster]))),
        Person::Flooder => ("oidc:flooder".to_owned(), None),
    };
    Credential::Verified(Principal { name, grants: vec![Grant { scope: TokenScope::Viewer, clusters }] })
}
