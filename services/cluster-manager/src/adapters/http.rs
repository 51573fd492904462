//! HTTP for people: the API under `/v1`, on the address of the git server or on one of its own.
//!
//! | module | knows |
//! |---|---|
//! | [`people`] | requests -> questions for the state, answers -> responses |
//! | `request` | who asks, and why a request is not carried out |
//! | `secrets` | secrets in a cluster's repository |
//! | `sealed` | values that were sealed elsewhere |
//! | [`identities`] | identity of a client by its credential |
//! | [`state_client`] | who waits for which answer |
//! | [`shapes`], [`openapi`] | the JSON of the API, and its description |
//!
//! Nothing here decides who may do what: [`access`] and the state do.

mod administration;
pub mod identities;
pub mod openapi;
pub mod people;
mod request;
mod sealed;
pub mod secrets;
pub mod shapes;
pub mod state_client;
