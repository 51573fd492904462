//! What ConfigDB entries look like and where Sparkfleet's nodes live: data, and nothing that acts.
//!
//! | module | knows |
//! |---|---|
//! | [`known`] | well-known UUIDs of Factory+ and the objects behind them |
//! | [`application`] | the applications: UUID, slug (= metric name), name, JSON Schema |
//! | [`document`] | a Rust type for the entries of each application |
//! | [`address`] | groups, nodes, cluster names, derived UUIDs, safe names |
//! | [`defaults`] | the entries that a fresh store starts with |
//! | [`timestamp`] | times in entries, to and from UTC ms |
//!
//! A JSON Schema says what may be written; the Rust type of the same name says what a reader gets. Closed schemas have closed types.
//! Free-form objects (chart values, manifests) stay [`serde_json::Value`], so that reading and writing back loses nothing.
//!
//! This package validates nothing at run time and opens no file: schemas are compiled in, as text.
#![warn(missing_docs, unreachable_pub)]

pub mod address;
pub mod application;
pub mod defaults;
pub mod document;
pub mod known;
pub mod timestamp;

pub use address::{ClusterName, NameRule, Organisation};
pub use application::{APPLICATIONS, Application, by_slug, by_uuid};
pub use document::Document;
