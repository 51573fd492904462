//! Replicated state beyond one session: what a sender wants a receiver to have, and whether the receiver takes it.

pub mod desired;

pub use desired::{Hold, Origin, OriginError, Outcome, Point, Receiver, Stamp, Timelines};
