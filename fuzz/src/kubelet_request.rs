//! Certificate requests of kubelets: no bytes make the parser panic, and what is accepted has a key that can be certified.
//!
//! Apart from the other targets, because a test of `join-tickets` includes this file by its path.

use std::collections::BTreeSet;

use join_tickets::request::{Allowed, KubeletRequest};

/// Name of the target and of its folder of seeds.
pub const NAME: &str = "join_kubelet_request";

/// A request of the host that the seeds are of.
pub fn kubelet_request(bytes: &[u8]) {
    let addresses = BTreeSet::from([[10, 2, 0, 7].into()]);
    if let Ok(request) = KubeletRequest::check(bytes, &Allowed { node_name: "press-shop-2", addresses: &addresses }) {
        assert!(matches!(request.public_key().len(), 91 | 120), "P-256 or P-384");
    }
}
