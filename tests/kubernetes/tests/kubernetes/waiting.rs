//! Waiting for what an object says, with a bound and the logs of everything.

use std::time::{Duration, Instant};

use kube::api::{Api, DynamicObject};
use kubernetes_tests::control_plane::ControlPlane;
use serde_json::Value;

/// Far above what it takes: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);

/// Waits until the object is there and is as wanted, and returns it.
pub async fn until(plane: &ControlPlane, api: &Api<DynamicObject>, name: &str, is: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    let mut last = Value::Null;
    loop {
        if let Ok(Some(found)) = api.get_opt(name).await {
            last = serde_json::to_value(found).unwrap();
            if is(&last) {
                return last;
            }
        }
        let status = serde_json::to_string_pretty(&last["status"]).unwrap();
        assert!(Instant::now() < deadline, "{name} does not come to what is wanted: {status}\n{}", plane.tails());
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether the Ready condition is that, for the present generation.
pub fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    ready.is_some_and(|ready| ready["status"] == "True")
        && object["status"]["observedGeneration"] == object["metadata"]["generation"]
}
