//! The objects that carry Sync's label, as last observed, by name and by deployment.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::event::{Deletion, Observation};
use crate::object::{Kind, ObjectKey, ObservedObject};

/// What is known of the objects. Bounded by what Sync applied itself: no one else puts its label on.
#[derive(Debug, Default)]
pub struct Objects {
    by_key: BTreeMap<ObjectKey, ObservedObject>,
    by_deployment: BTreeMap<Uuid, BTreeSet<ObjectKey>>,
    known: BTreeSet<Kind>,
    not_installed: BTreeSet<Kind>,
}

impl Objects {
    /// True if each of the kinds has been listed (or is known not to exist).
    pub fn knows_all(&self, kinds: &[Kind]) -> bool {
        kinds.iter().all(|kind| self.known.contains(kind))
    }

    /// Kinds that the API server does not know.
    pub fn not_installed(&self) -> impl Iterator<Item = &Kind> {
        self.not_installed.iter()
    }

    /// Takes an observation over; yields the deployments whose objects may have changed.
    pub fn observe(&mut self, kind: &Kind, observation: Observation<ObservedObject>) -> BTreeSet<Uuid> {
        let mut touched = BTreeSet::new();
        match observation {
            Observation::Listed(objects) => {
                self.know(kind);
                let listed: BTreeSet<_> = objects.iter().map(|object| object.key.clone()).collect();
                let gone: Vec<_> = self.of_kind(kind).filter(|key| !listed.contains(key)).cloned().collect();
                touched.extend(gone.iter().filter_map(|key| self.remove(key)));
                for object in objects {
                    touched.extend(self.insert(object));
                }
            }
            Observation::Changed(object) => {
                self.know(kind);
                touched.extend(self.insert(object));
            }
            Observation::Gone(object) => touched.extend(self.gone(&object.key, &object.uid)),
            Observation::NotInstalled => {
                self.know(kind);
                self.not_installed.insert(kind.clone());
                let gone: Vec<_> = self.of_kind(kind).cloned().collect();
                touched.extend(gone.iter().filter_map(|key| self.remove(key)));
            }
            Observation::Failed(_) => {}
        }
        touched
    }

    /// Takes what an apply answered; yields the deployments touched.
    pub fn applied(&mut self, object: ObservedObject) -> BTreeSet<Uuid> {
        self.insert(object)
    }

    /// Takes what a deletion answered; yields the deployment touched.
    pub fn deleted(&mut self, key: &ObjectKey, uid: &str, deletion: Deletion) -> Option<Uuid> {
        match deletion {
            Deletion::Gone => self.gone(key, uid),
            Deletion::Waiting => {
                let object = self.by_key.get_mut(key).filter(|object| object.uid == uid)?;
                object.deleting = true;
                object.deployment
            }
        }
    }

    /// The object of that name.
    pub fn get(&self, key: &ObjectKey) -> Option<&ObservedObject> {
        self.by_key.get(key)
    }

    /// The objects of a deployment.
    pub fn of(&self, deployment: Uuid) -> Vec<&ObservedObject> {
        let keys = self.by_deployment.get(&deployment).into_iter().flatten();
        keys.filter_map(|key| self.by_key.get(key)).collect()
    }

    /// Deployments that have objects.
    pub fn deployments(&self) -> impl Iterator<Item = Uuid> {
        self.by_deployment.keys().copied()
    }

    /// Names of the HelmReleases, with the deployments that they belong to.
    pub fn releases(&self) -> impl Iterator<Item = (&str, Option<Uuid>)> {
        let releases = self.by_key.iter().filter(|(key, _)| &*key.kind.kind == "HelmRelease");
        releases.map(|(key, object)| (key.name.as_str(), object.deployment))
    }

    fn know(&mut self, kind: &Kind) {
        self.known.insert(kind.clone());
        self.not_installed.remove(kind);
    }

    fn of_kind(&self, kind: &Kind) -> impl Iterator<Item = &ObjectKey> {
        self.by_key.keys().filter(move |key| key.kind == *kind)
    }

    fn insert(&mut self, object: ObservedObject) -> BTreeSet<Uuid> {
        let mut touched = BTreeSet::new();
        if let Some(known) = self.by_key.get(&object.key) {
            // A watch may still report the state before an apply whose answer is here already.
            if object.is_older_than(known) || *known == object {
                return touched;
            }
            touched.extend(self.remove(&object.key));
        }
        if let Some(deployment) = object.deployment {
            self.by_deployment.entry(deployment).or_default().insert(object.key.clone());
            touched.insert(deployment);
        }
        self.by_key.insert(object.key.clone(), object);
        touched
    }

    /// The object is gone, unless it has been replaced by a later one of the same name.
    fn gone(&mut self, key: &ObjectKey, uid: &str) -> Option<Uuid> {
        let is_known = self.by_key.get(key).is_some_and(|object| object.uid == uid);
        is_known.then(|| self.remove(key)).flatten()
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Uuid> {
        let deployment = self.by_key.remove(key)?.deployment?;
        if let Some(keys) = self.by_deployment.get_mut(&deployment) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_deployment.remove(&deployment);
            }
        }
        Some(deployment)
    }
}
