//! Places for the children of the git server: so many for all, and fewer for each client, so that a client that holds its own leaves room for the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Names that are known before those without a place are forgotten.
const NAMES_MAX: usize = 1024;

/// Clones are the same.
#[derive(Debug, Clone)]
pub struct Places {
    all: Arc<Semaphore>,
    each: usize,
    own: Arc<Mutex<HashMap<String, Weak<Semaphore>>>>,
}

/// A place; dropping it frees it.
#[derive(Debug)]
pub struct Permit {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Places {
    /// So many at the same time, of which one who asks has a quarter, and at least one.
    #[must_use]
    pub fn new(all: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), each: (all / 4).max(1), own: Arc::default() }
    }

    /// So many at the same time, of which each name has one.
    #[must_use]
    pub fn one_each(all: usize) -> Self {
        Self { each: 1, ..Self::new(all) }
    }

    /// A place for who is known by that name: first one of its own, then one of all. None: there is none within `wait`.
    pub async fn take(&self, name: &str, wait: Duration) -> Option<Permit> {
        let own = self.of(name);
        let taken = tokio::time::timeout(wait, async {
            let own = own.acquire_owned().await.ok()?;
            let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(Permit { _own: own, _all: all })
        });
        taken.await.ok()?
    }

    fn of(&self, name: &str) -> Arc<Semaphore> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = own.get(name).and_then(Weak::upgrade) {
            return known;
        }
        if own.len() >= NAMES_MAX {
            own.retain(|_, places| places.strong_count() > 0);
        }
        let places = Arc::new(Semaphore::new(self.each));
        own.insert(name.to_owned(), Arc::downgrade(&places));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_holds_all_of_its_places_leaves_the_others_theirs() {
        let places = Places::new(8);
        let now = Duration::ZERO;
        let first = places.take("a", now).await.unwrap();
        let _second = places.take("a", now).await.unwrap();
        assert!(places.take("a", now).await.is_none());
        let _other = places.take("b", now).await.unwrap();
        drop(first);
        assert!(places.take("a", now).await.is_some());
    }

    #[tokio::test]
    async fn names_without_a_place_are_forgotten() {
        let places = Places::new(4);
        let kept = places.take("kept", Duration::ZERO).await;
        for n in 0..3 * NAMES_MAX {
            assert!(places.take(&n.to_string(), Duration::ZERO).await.is_some());
        }
        assert!(places.own.lock().unwrap().len() <= NAMES_MAX);
        assert!(places.take("kept", Duration::ZERO).await.is_none(), "its place is still taken");
        drop(kept);
    }
}
