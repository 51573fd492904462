//! The host's side: one attempt as a chain of types ([`attempt`], [`member`]), and the machine around attempts that repeats, gives up and begins again ([`machine`]).

pub mod attempt;
pub mod event;
pub mod machine;
pub mod member;
mod settings;

pub use attempt::HostSettings;
pub use attempt::{Challenged, EvidenceSent, HelloSent, Quoting, TicketOutcome};
pub use event::{Condition, Effect, Event};
pub use machine::Machine;
pub use member::{Committed, Opened, Renewed};
