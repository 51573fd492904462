//! Templates of deployments: no JSON makes their expansion panic or grow without bound, and it is the same twice.
//!
//! Apart from the other targets, because a test of `cluster-manager` includes this file by its path.

use manifests::template::{Context, expand, whole_string_uses};
use serde_json::{Value, json};

/// A fuzz target: its name, which is that of its folder of seeds, too, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 1] = [("rendering", rendering)];

/// What placeholders may refer to in a template of a deployment.
fn context() -> Context {
    Context::default()
        .with("uuid", "00000000-0000-0000-0000-000000000007")
        .with("name", "Robot_Cell_3")
        .with("cluster.name", "Paint_Shop")
        .with("values", json!({"image": {"tag": "v1"}, "list": [1, null, {"a": true}]}))
        .with_optional("hostname", None::<&str>)
}

/// A template as JSON.
pub fn rendering(bytes: &[u8]) {
    let Ok(template) = serde_json::from_slice::<Value>(bytes) else { return };
    let expanded = expand("template", &template, &context());
    assert_eq!(expand("template", &template, &context()), expanded);
    match expanded {
        // Values are inserted up to a limit; the rest is the template's own.
        Ok(expanded) => assert!(expanded.map_or(0, |value| value.to_string().len()) <= (2 << 20) + 12 * bytes.len()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let _ = whole_string_uses(&template, &["values", "image"]);
}
