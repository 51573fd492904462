//! The fleet in virtual time: all services, a broker, clusters and people in one thread, from a seed, with everything that can go wrong.
//!
//! What is real: the states of ConfigDB, cluster manager, Identity, edge sync, edge monitor (edge and central), join service, krb-keys, git server and web console.
//! So are both sides of the enrolment and join protocols, and the Edge Node and Host Application machines of `sparkplug`.
//!
//! What is a model: the MQTT server ([`model::broker`], [`model::network`]), Kubernetes with Flux and edge agents ([`model::kubernetes`]), git ([`model::git`], [`model::copies`]) and disks ([`model::disk`]).
//! Also the fleet's authority and who asks it ([`model::enrolment`]), machines with TPMs ([`model::joins`]), the KDC and Secrets ([`model::keys`]), people ([`model::script`],
//! [`steps::transition`], [`steps::recovery`]), and what breaks ([`steps::fault`]).
//! Of people over HTTP ([`steps::people`], [`steps::pushes`]) only the questions and answers are here.
//!
//! A run ([`run`]) lives through a list of [transitions](model::transition) that the seed chooses; the checks of [`invariants`] are made after every step. Then everything is
//! mended and no one wants anything new. Within bounded virtual time every replica must equal its source, and everything that people wanted must be applied or visibly refused.
//!
//! `cargo run -p sim -- --seed N` runs one seed; `--trace` prints what happened. A failing seed is reported with exactly that command. [`model::mutation`] breaks one thing for each check and
//! so shows that it can fail.

pub mod errors;
pub mod fleet;
pub mod invariants;
mod join_site;
pub mod model;
pub mod run;
pub mod scheduler;
pub mod steps;
pub mod world;
