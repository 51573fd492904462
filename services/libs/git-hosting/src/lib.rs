//! Hosts git repositories: bare ones on disk, served over smart HTTP.
//!
//! | module | knows |
//! |---|---|
//! | [`repositories`] | which repositories are on the disk, which of them are served and where, what is on branch `main` |
//! | [`http`] | how git reads and pushes over HTTP |
//! | [`passwords`] | by which passwords clusters read, as digests |
//! | [`gatekeeper`] | what has to be decided elsewhere: which users may read and push |
//! | [`push`] | pushes, and the hook that judges what they change |
//! | [`places`] | how many requests are served at the same time, for all and for each client |
//! | [`pulls`] | branches that follow another git server |
//! | [`external`] | the git server of a site, which has what counts as written |
//! | [`upkeep`] | when a repository is packed |
//! | [`client`] | the program git, with an environment of its own |
//!
//! This package must not know who a user is, why a repository exists, or what its files mean. It holds no password and no key.

#![warn(missing_docs, unreachable_pub)]

pub mod client;
pub mod external;
pub mod gatekeeper;
pub mod http;
pub mod passwords;
pub mod places;
pub mod pulls;
pub mod push;
pub mod repositories;
pub mod upkeep;
