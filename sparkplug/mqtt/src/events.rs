//! The way of events from a task to the application: in batches, because handing over costs more than most events do.

use std::vec;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

/// Events of a batch at most.
pub(crate) const BATCH_MAX: usize = 32;
/// Batches handed to the application's side; all else waits where it is counted.
const BATCHES_MAX: usize = 2;

/// The way out of a machine: its events, in their order.
#[derive(Debug)]
pub struct Events<E> {
    batches: mpsc::Receiver<Vec<E>>,
    /// What is left of the last one.
    batch: vec::IntoIter<E>,
}

pub(crate) fn channel<E>() -> (mpsc::Sender<Vec<E>>, Events<E>) {
    let (sender, batches) = mpsc::channel(BATCHES_MAX);
    (sender, Events { batches, batch: Vec::new().into_iter() })
}

impl<E> Events<E> {
    /// The next event; None after the last one. Cancel-safe.
    pub async fn recv(&mut self) -> Option<E> {
        loop {
            if let Some(event) = self.batch.next() {
                return Some(event);
            }
            self.batch = self.batches.recv().await?.into_iter();
        }
    }

    /// The next event, if it is there.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] if there is none at present, [`TryRecvError::Disconnected`] after the last one.
    pub fn try_recv(&mut self) -> Result<E, TryRecvError> {
        loop {
            if let Some(event) = self.batch.next() {
                return Ok(event);
            }
            self.batch = self.batches.try_recv()?.into_iter();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_come_one_by_one_in_their_order_and_then_the_end() {
        let (sender, mut events) = channel();
        assert_eq!(events.try_recv(), Err(TryRecvError::Empty));
        for batch in [vec![1, 2], vec![3]] {
            sender.try_send(batch).expect("there is room");
        }
        assert!(sender.try_send(vec![4]).is_err(), "the third batch waits elsewhere");
        assert_eq!((events.recv().await, events.try_recv(), events.recv().await), (Some(1), Ok(2), Some(3)));
        drop(sender);
        assert_eq!((events.try_recv(), events.recv().await), (Err(TryRecvError::Disconnected), None));
    }
}
