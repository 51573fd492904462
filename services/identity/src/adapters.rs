//! What Identity touches: the keys and lists on the disk, the ledger, Sparkplug.

pub mod authority;
pub mod ledger;
pub mod sparkplug;
