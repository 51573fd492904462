//! A prover of protocols, and the join protocol's model (`join.model`).
//!
//! A role's every output becomes a Horn clause: if the attacker knows what the role waits for, it knows what the role sends. [`saturate`] derives all that follows, for any number of
//! runs, hosts and replicas. Where nothing derives a secret, or no conclusion lacks its beginning, the claim is proven, as far as the model says what the protocol does. Clauses
//! forget how often a role ran, so an attack that is found can be one that no execution has; a proof is a proof.
//!
//! `cargo run -p prove` judges the model as it is, then with each setting, limit and seeded fault that it lists. `cargo run -p prove -- NAME` shows how one of them is attacked.

pub mod clause;
pub mod model;
pub mod saturate;
pub mod syntax;
pub mod term;
pub mod variant;
pub mod verdict;
