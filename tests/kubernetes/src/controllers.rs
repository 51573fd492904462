//! Flux' real controllers as processes beside the control plane, each with an identity of its own that may do everything.

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::definitions;
use crate::process::Launch;
use crate::sources::Sources;

/// Where Flux' controllers live.
pub const NAMESPACE: &str = "flux-system";

/// How Flux' controllers are started.
#[derive(Debug, Clone, Default)]
pub struct FluxOptions {
    /// More arguments of both controllers, such as `--no-cross-namespace-refs`.
    pub arguments: Vec<String>,
}

/// helm-controller, kustomize-controller and what stands for source-controller; the first two end with the control plane.
#[derive(Debug)]
pub struct Flux {
    _sources: Sources,
}

impl Flux {
    /// Starts them. The definitions must be there ([`definitions::apply_all`]).
    ///
    /// # Panics
    /// They cannot be started.
    pub async fn start(plane: &mut ControlPlane, options: &FluxOptions) -> Self {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        apply(plane, "v1", "Namespace", "", &namespace).await;
        for (name, metrics, health) in [("helm-controller", 8081, 9441), ("kustomize-controller", 8082, 9442)] {
            let address = plane.network().address(1);
            let flags = [
                "--watch-all-namespaces".to_owned(),
                "--enable-leader-election=false".to_owned(),
                "--log-level=info".to_owned(),
                format!("--metrics-addr={address}:{metrics}"),
                format!("--health-addr={address}:{health}"),
            ];
            let flags = flags.into_iter().chain(options.arguments.iter().cloned());
            let mut launch = Launch::new(name, &plane.programs().program(name), flags)
                .with_env("KUBECONFIG", plane.kubeconfig().display().to_string())
                .with_env("RUNTIME_NAMESPACE", NAMESPACE)
                .with_env("TMPDIR", plane.directory().display().to_string())
                .with_env("HOME", plane.directory().display().to_string());
            launch.directory = plane.directory().to_owned();
            plane.run(launch);
        }
        Self { _sources: Sources::start(plane).await }
    }
}

/// Applies an object, as `kubectl apply --server-side` does.
///
/// # Panics
/// The API refuses it.
pub async fn apply(plane: &ControlPlane, api_version: &str, kind: &str, namespace: &str, object: &Value) {
    apply_by(&plane.client(), api_version, kind, namespace, object).await;
}

/// The same, with a client.
///
/// # Panics
/// As [`apply`].
pub async fn apply_by(client: &Client, api_version: &str, kind: &str, namespace: &str, object: &Value) {
    let api = if namespace.is_empty() {
        definitions::api_everywhere(client.clone(), api_version, kind)
    } else {
        definitions::api(client.clone(), api_version, kind, namespace)
    };
    let name = object["metadata"]["name"].as_str().expect("an object has a name");
    let applied = api.patch(name, &PatchParams::apply("kubectl").force(), &Patch::Apply(object)).await;
    applied.unwrap_or_else(|error| panic!("{kind} {name} is refused: {error}"));
}
