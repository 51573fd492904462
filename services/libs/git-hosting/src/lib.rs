//! Hosts git repositories: bare ones on disk, served over smart HTTP.
//!
//! | module | knows |
//! |---|---|
//! | [`repositories`] | which repositories are on the disk, which of them are served and where, what is on branch `main` |
//! | [`http`] | how git reads and pushes over HTTP |
//! | [`passwords`] | by which passwords clusters read, as digests |
//! | [`gatekeeper`] | what has to be decided elsewhere: which users may read and push |
//! | [`push`] | pushes, and the hook that judges what they change |
//! | [`report`] | what git answers to a push, as a refusal |
//! | `pkt_line` | lines of git's protocol |
//! | [`originals`] | which refs and objects a copy in another process lacks, and pushes that were received there |
//! | [`places`] | how many requests are served at the same time, for all and for each client |
//! | [`copies`] | repositories whose commits are made elsewhere: packs and references that are taken over |
//! | [`scratch`] | repositories for a moment, in which pushes and packs are judged |
//! | [`pulls`] | branches that follow another git server |
//! | [`external`] | the git server of a site, which has what counts as written |
//! | [`upkeep`] | when a repository is packed |
//! | [`credential`] | the credential of a user who pushes, sealed on its way to the program that decides |
//! | [`client`] | the program git, with an environment of its own |
//!
//! This package must not know who a user is, why a repository exists, or what its files mean. It holds no password and no key.

#![warn(missing_docs, unreachable_pub)]

pub mod client;
pub mod copies;
pub mod credential;
pub mod external;
pub mod gatekeeper;
pub mod http;
pub mod originals;
pub mod passwords;
mod pkt_line;
pub mod places;
pub mod pulls;
pub mod push;
pub mod report;
pub mod repositories;
pub mod scratch;
pub mod upkeep;
