//! An object and its entries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use configdb_contract::Entry;
use configdb_schema::document::{Membership, Registration};
use uuid::Uuid;

/// An entry as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// The JSON, as text.
    pub json: Arc<str>,
    /// Differs after every change.
    pub etag: Uuid,
    /// Revision of the transaction that wrote it.
    pub revision: u64,
    /// It came with this program and no one has changed it.
    pub builtin: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub class: Uuid,
    pub rank: u8,
    /// A principal, or Unowned.
    pub owner: Uuid,
    /// Marked deleted: known, without entries, not published.
    pub deleted: bool,
    /// Direct memberships, the primary class included.
    pub member_of: BTreeSet<Uuid>,
    pub subclass_of: BTreeSet<Uuid>,
    pub entries: BTreeMap<Uuid, StoredEntry>,
}

/// An object without its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "its fields are those of an object")]
pub struct ObjectRow {
    pub uuid: Uuid,
    pub class: Uuid,
    pub rank: u8,
    pub owner: Uuid,
    pub deleted: bool,
    pub member_of: BTreeSet<Uuid>,
    pub subclass_of: BTreeSet<Uuid>,
}

impl Object {
    /// The stored form, without the entries.
    #[must_use]
    pub fn row(&self, uuid: Uuid) -> ObjectRow {
        ObjectRow {
            uuid,
            class: self.class,
            rank: self.rank,
            owner: self.owner,
            deleted: self.deleted,
            member_of: self.member_of.clone(),
            subclass_of: self.subclass_of.clone(),
        }
    }

    #[must_use]
    pub const fn registration(&self, uuid: Uuid) -> Registration {
        Registration {
            uuid,
            rank: self.rank,
            class: self.class,
            owner: self.owner,
            deleted: self.deleted,
            strict: true,
        }
    }

    #[must_use]
    pub fn membership(&self) -> Membership {
        Membership { member_of: self.member_of.clone(), subclass_of: self.subclass_of.clone() }
    }
}

impl StoredEntry {
    /// As readers see it.
    #[must_use]
    pub fn published(&self, application: Uuid) -> Entry {
        Entry { application, json: self.json.clone(), etag: self.etag, revision: self.revision }
    }
}
