//! The public face of the git server on the wire: Edge Node `<ORG>-Central/Git`. It has a Device for each repository that it has a copy of, and one for each push under way.
//!
//! ```text
//!  cluster manager                                                     git server
//!    | NCMD  Desired/Repository: where it is served, its refs             -> |   Device of the repository: version, refs, Pack/Missing
//!    | DCMD  Pack/...: objects that the copy lacks, a part at a time      -> |   Pack/Received
//!    | <- Device of a push: the sealed credential, the refs, a part of the pack |
//!    | DCMD  Answer/...: how much has arrived; accepted, or why not       -> |
//! ```
//!
//! Packs travel in parts of at most [`pack::PART_BYTES_MAX`], one at a time. The receiver says how many bytes it has. The sender sends the part that begins there, and repeats it
//! until that number changes. A part that is lost, repeated or changed does no harm: the digest of the whole decides.
//!
//! | module | knows |
//! |---|---|
//! | [`names`] | node id, device ids, metric names |
//! | [`node`] | the metrics of the node |
//! | [`desired`] | what a copy shall be |
//! | [`repository`] | what a copy is |
//! | [`push`] | a push under way, and the answer to it |
//! | [`pack`] | the parts of a pack |
//! | [`replica`] | a typed copy of the node, fed with events of a Host Application |
//!
//! The package is pure: no clock, no sockets, no async. It must not know git's formats, who a user is, or how credentials are sealed.
#![warn(missing_docs, unreachable_pub)]

pub mod desired;
pub mod names;
pub mod node;
pub mod pack;
pub mod push;
pub mod replica;
pub mod repository;

pub use desired::{DesiredRepository, Kind, RepositoryPath};
pub use node::GitNode;
pub use pack::{PackPart, PackReceiver};
pub use push::{PushAnswer, PushDevice};
pub use replica::{GitDevice, GitReplica};
pub use repository::RepositoryCopy;
