//! How an edge service reaches the Kubernetes API of its cluster: the `[kubernetes]` table of its configuration, and the client made of it; and what a
//! watch tells ([`watch`]). Imports nothing of ours, and knows no kind of object.
#![warn(missing_docs)]

pub mod watch;

use kube::Client;
use serde::{Deserialize, Serialize};

/// The API of the cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesConfig {
    /// The only namespace in which anything is read or applied, hosts aside.
    pub namespace: String,
    /// Plain HTTP of an API server without authentication (a simulator); None: the pod's service account, or kubeconfig.
    pub url: Option<String>,
}

impl Default for KubernetesConfig {
    fn default() -> Self {
        Self { namespace: "fplus-edge".to_owned(), url: None }
    }
}

/// Kubernetes cannot be reached as configured.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// `kubernetes.url`
    #[error("kubernetes.url {url:?} is not the address of an API server; write it as http://host:port")]
    Url {
        /// As given.
        url: String,
    },
    /// Neither a service account nor a kubeconfig.
    #[error(
        "no way to Kubernetes: neither a service account nor a kubeconfig was found; set kubernetes.url for a simulator"
    )]
    Inference(#[source] kube::config::InferConfigError),
    /// The client could not be made of what was found.
    #[error("cannot make a Kubernetes client")]
    Client(#[source] kube::Error),
}

/// A client for the API server at `url`, or for the one whose service account or kubeconfig is found.
///
/// # Errors
/// [`ClientError`]
pub async fn connect(url: Option<&str>) -> Result<Client, ClientError> {
    let mut config = match url {
        Some(url) => kube::Config::new(url.parse().map_err(|_| ClientError::Url { url: url.to_owned() })?),
        None => kube::Config::infer().await.map_err(ClientError::Inference)?,
    };
    // A service decides when something is tried again; a second retry below it would only hide for how long nothing has worked.
    config.default_retry = false;
    Client::try_from(config).map_err(ClientError::Client)
}
