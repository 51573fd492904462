//! Replicated state beyond one session, each mechanism once: a typed copy of an Edge Node ([`Replica`]), and desired states from who wants them ([`DesiredSender`]) to who applies
//! them ([`DesiredReceiver`]).

pub mod desired;
pub mod replica;
pub mod sender;

pub use desired::{DesiredReceiver, Hold, Origin, OriginError, Outcome, Point, Stamp, Timelines};
pub use replica::{Contract, Devices, NodeOnly, Presence, Replica, ReplicaChange};
pub use sender::{Comparison, Desired, DesiredSender, Pace, Repetition, Report};
