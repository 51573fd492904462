//! What must hold for any bytes whatever, one function a fuzz target. The functions are apart from the targets. So a test of `sparkplug` can run the seeds through them
//! with the stable compiler and without a sanitizer. That test includes this file by its path.

mod codec;
mod edge_node;
mod host;
mod reader;

pub use codec::{compressed, payload, state, topic};
pub use edge_node::edge_node;
pub use host::host;

/// A fuzz target: its name, which is that of its folder of seeds, too, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 6] = [
    ("compressed", compressed),
    ("edge_node", edge_node),
    ("host", host),
    ("payload", payload),
    ("state", state),
    ("topic", topic),
];
