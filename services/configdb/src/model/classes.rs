//! The rank rules (Factory+ object model): a member is one rank below its class, a subclass has the rank of its superclass, and no class is above itself.

use std::collections::BTreeSet;

use configdb_schema::known::class;
use uuid::Uuid;

use super::{Model, Object};

impl Model {
    /// Rank that the members of a class have.
    ///
    /// # Errors
    /// Why the object can have no members, for people.
    pub(super) fn rank_of_members(&self, class: Uuid) -> Result<u8, String> {
        if class == class::R3_CLASS {
            return Ok(3);
        }
        let object = self.live_object(class).ok_or_else(|| format!("class {class} does not exist; create it first"))?;
        object
            .rank
            .checked_sub(1)
            .ok_or_else(|| format!("{class} is an individual, not a class; it can have no members"))
    }

    /// All superclasses of a class, itself not included.
    pub(super) fn superclasses(&self, class: Uuid) -> BTreeSet<Uuid> {
        let mut found = BTreeSet::new();
        let mut open = vec![class];
        while let Some(class) = open.pop() {
            for superclass in self.objects.get(&class).into_iter().flat_map(|object| &object.subclass_of) {
                if found.insert(*superclass) {
                    open.push(*superclass);
                }
            }
        }
        found
    }

    /// Checks the direct memberships of an object.
    pub(super) fn check_member_of(&self, uuid: Uuid, rank: u8, member_of: &BTreeSet<Uuid>) -> Result<(), String> {
        for class in member_of {
            if *class == uuid && uuid != class::R3_CLASS {
                return Err(format!("{uuid} cannot be a member of itself"));
            }
            let members = self.rank_of_members(*class)?;
            if members != rank {
                return Err(format!("members of {class} have rank {members}, but {uuid} has rank {rank}"));
            }
        }
        Ok(())
    }

    /// Checks the direct superclasses of an object and leaves out those that another one implies.
    pub(super) fn check_subclass_of(
        &self,
        uuid: Uuid,
        rank: u8,
        subclass_of: &BTreeSet<Uuid>,
    ) -> Result<BTreeSet<Uuid>, String> {
        if rank == 0 && !subclass_of.is_empty() {
            return Err(format!("{uuid} is an individual; it can have no superclass"));
        }
        let mut implied = BTreeSet::new();
        for superclass in subclass_of {
            let object = self
                .live_object(*superclass)
                .ok_or_else(|| format!("class {superclass} does not exist; create it first"))?;
            if object.rank != rank {
                return Err(format!(
                    "{superclass} has rank {}, but {uuid} has rank {rank}; they must be equal",
                    object.rank
                ));
            }
            let above = self.superclasses(*superclass);
            if *superclass == uuid || above.contains(&uuid) {
                return Err(format!("{superclass} is a subclass of {uuid} already; a circle is not possible"));
            }
            implied.extend(above);
        }
        Ok(subclass_of.difference(&implied).copied().collect())
    }

    /// Whether a class is Application or below it.
    pub(super) fn is_class_of_applications(&self, class: Uuid) -> bool {
        class == class::APPLICATION || self.superclasses(class).contains(&class::APPLICATION)
    }

    /// Whether an object with these memberships is an application.
    pub(super) fn is_application(&self, object: &Object) -> bool {
        !object.deleted
            && object.rank == 1
            && object.member_of.iter().any(|class| self.is_class_of_applications(*class))
    }

    /// Up to five things that prevent the deletion of the object.
    pub(super) fn references_to(&self, uuid: Uuid) -> Vec<String> {
        let mut found = Vec::new();
        for (other, object) in self.live_objects().filter(|(other, _)| *other != uuid) {
            if object.member_of.contains(&uuid) {
                found.push(format!("{other} is a member of it"));
            }
            if object.subclass_of.contains(&uuid) {
                found.push(format!("{other} is a subclass of it"));
            }
            if object.owner == uuid {
                found.push(format!("{other} is owned by it"));
            }
            if object.entries.contains_key(&uuid) {
                found.push(format!("{other} has an entry under it"));
            }
            if found.len() >= 5 {
                break;
            }
        }
        found
    }
}
