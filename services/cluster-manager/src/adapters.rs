//! Outside things, one file each: they translate and execute, and never decide.

pub mod authority;
pub mod bootstrap_http;
pub mod external;
pub mod git_client;
pub mod git_http;
pub mod git_places;
pub mod git_push;
pub mod git_work;
pub mod http;
pub mod kdc;
pub mod pulls;
pub mod quarantine;
pub mod repositories;
pub mod sparkplug;
pub mod upkeep;
