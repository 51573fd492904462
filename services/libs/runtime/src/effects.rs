//! "Persist before send" as types.
//!
//! A state machine hands out `Effects<Unsaved, E>`. Nothing can look inside: only [`Effects::commit`] (or the explicit
//! [`Effects::nothing_to_save`]) turns it into `Effects<Saved, E>`, and only that one is an iterator. So a message that
//! promises something cannot leave before what it promises is stored.
//!
//! ```
//! use service_runtime::{Effects, Unsaved};
//!
//! let mut effects: Effects<Unsaved, &str> = Effects::new();
//! effects.push("publish the acknowledgement");
//!
//! let (revision, saved) = effects.commit(|| Ok::<u64, std::io::Error>(7)).expect("the store accepted the turn");
//! assert_eq!(revision, 7);
//! assert_eq!(saved.into_iter().collect::<Vec<_>>(), ["publish the acknowledgement"]);
//! ```
//!
//! Executing effects that were not committed does not compile:
//!
//! ```compile_fail,E0277
//! use service_runtime::{Effects, Unsaved};
//!
//! let mut effects: Effects<Unsaved, &str> = Effects::new();
//! effects.push("publish the acknowledgement");
//! for effect in effects {
//!     println!("{effect}");
//! }
//! ```
//!
//! Nor can anyone make saved effects from nothing:
//!
//! ```compile_fail,E0599
//! use service_runtime::{Effects, Saved};
//!
//! let effects: Effects<Saved, &str> = Effects::new();
//! ```
//!
//! This module must not know what an effect is or where it is stored.

use std::future::Future;
use std::marker::PhantomData;

/// Marks effects whose cause is not stored yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsaved;

/// Marks effects whose cause is stored, or that have none worth storing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved;

/// Effects in the order in which they are to be executed.
#[must_use = "effects that are dropped are never executed"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effects<S, E> {
    queue: Vec<E>,
    stage: PhantomData<S>,
}

/// A finished commit. On success it is what the store answered together with the executable effects. On failure it is
/// the store's error together with the effects that are still waiting, so that the turn can be tried again.
pub type Committed<T, Err, E> = Result<(T, Effects<Saved, E>), (Err, Effects<Unsaved, E>)>;

impl<S, E> Effects<S, E> {
    /// True if there is nothing to execute.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many effects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    fn into_stage<N>(self) -> Effects<N, E> {
        Effects { queue: self.queue, stage: PhantomData }
    }
}

impl<E> Effects<Unsaved, E> {
    /// No effects.
    pub fn new() -> Self {
        Self { queue: Vec::new(), stage: PhantomData }
    }

    /// Adds one effect after all others.
    pub fn push(&mut self, effect: E) {
        self.queue.push(effect);
    }

    /// Stores the cause with `save`; only if that succeeds can the effects be executed.
    ///
    /// On failure the effects come back unsaved, beside the error, and nothing of them has been executed.
    pub fn commit<T, Err>(self, save: impl FnOnce() -> Result<T, Err>) -> Committed<T, Err, E> {
        match save() {
            Ok(stored) => Ok((stored, self.into_stage())),
            Err(error) => Err((error, self)),
        }
    }

    /// Like [`Effects::commit`], for a store that is asynchronous.
    ///
    /// Dropping the returned future drops the effects: await it to its end, never in a `select!` branch that can lose.
    ///
    /// ```
    /// # use service_runtime::{Effects, Unsaved};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let mut effects: Effects<Unsaved, u8> = Effects::new();
    /// effects.push(1);
    /// let (error, effects) = effects.commit_async(async { Err::<(), _>("disk full") }).await.unwrap_err();
    /// assert_eq!((error, effects.len()), ("disk full", 1));
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn commit_async<T, Err>(self, save: impl Future<Output = Result<T, Err>>) -> Committed<T, Err, E> {
        match save.await {
            Ok(stored) => Ok((stored, self.into_stage())),
            Err(error) => Err((error, self)),
        }
    }

    /// For a turn that changed nothing which must survive a restart.
    pub fn nothing_to_save(self) -> Effects<Saved, E> {
        self.into_stage()
    }
}

impl<E> Default for Effects<Unsaved, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Extend<E> for Effects<Unsaved, E> {
    fn extend<I: IntoIterator<Item = E>>(&mut self, effects: I) {
        self.queue.extend(effects);
    }
}

impl<E> FromIterator<E> for Effects<Unsaved, E> {
    fn from_iter<I: IntoIterator<Item = E>>(effects: I) -> Self {
        Self { queue: effects.into_iter().collect(), stage: PhantomData }
    }
}

impl<E> IntoIterator for Effects<Saved, E> {
    type Item = E;
    type IntoIter = std::vec::IntoIter<E>;

    fn into_iter(self) -> Self::IntoIter {
        self.queue.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_come_out_in_the_order_they_went_in() {
        let mut effects = Effects::new();
        effects.push(1);
        effects.extend([2, 3]);
        assert_eq!(effects.len(), 3);
        assert_eq!(effects.nothing_to_save().into_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_failed_commit_returns_the_error_and_every_effect() {
        let effects: Effects<Unsaved, u8> = [1, 2].into_iter().collect();
        let (error, effects) = effects.commit(|| Err::<(), _>("locked")).unwrap_err();
        assert_eq!(error, "locked");
        let ((), saved) = effects.commit(|| Ok::<_, ()>(())).unwrap();
        assert_eq!(saved.into_iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn the_save_runs_once_even_without_effects() {
        let mut runs = 0;
        let effects: Effects<Unsaved, u8> = Effects::default();
        assert!(effects.is_empty());
        let (stored, saved) = effects
            .commit(|| {
                runs += 1;
                Ok::<_, ()>(runs)
            })
            .unwrap();
        assert_eq!((stored, saved.len()), (1, 0));
    }

    #[tokio::test]
    async fn an_asynchronous_commit_yields_saved_effects() {
        let effects: Effects<Unsaved, u8> = [9].into_iter().collect();
        let (revision, saved) = effects.commit_async(async { Ok::<_, ()>(4) }).await.unwrap();
        assert_eq!(revision, 4);
        assert_eq!(saved.into_iter().collect::<Vec<_>>(), [9]);
    }
}
