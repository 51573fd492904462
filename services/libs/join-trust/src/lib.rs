//! What the trust of a cluster's join service rests on: the files, the keys that follow from them, and what a replica reads from them.
//!
//! | module | knows |
//! |---|---|
//! | [`files`] | the files that an administrator makes: root, certified keys, master secret |
//! | [`keys`] | the keys of a cluster, derived from its master secret |
//! | [`replica`] | the files that a join service begins with |
//! | [`unlock_key`] | the key that signs for the second key of a disk |
//! | [`unlock`] | what the second key of a disk is sealed to |
//!
//! The side that makes the files is the command line or `up`. The side that reads them is the join service, or the administrator who sets the first host up. Both share this
//! package, so that they derive the same keys. It must not know which hosts join, nor how.
#![warn(unreachable_pub)]

pub mod files;
pub mod keys;
pub mod replica;
pub mod unlock;
pub mod unlock_key;
