//! How an edge service reaches the Kubernetes API of its cluster. Here are the `[kubernetes]` table of its configuration, and the client made
//! of it. Here are also the events of a watch ([`watch`]), and how to continue after an error ([`error`]). Knows no kind of object.
#![warn(missing_docs, unreachable_pub)]

pub mod error;
mod token;
pub mod watch;

use std::path::PathBuf;

use kube::Client;
use kube::client::ClientBuilder;
use service_runtime::config_table;
use token::FileToken;
use tower::buffer::BufferLayer;
use tower::retry::RetryLayer;
use tower::util::MapRequestLayer;

/// Requests that wait for a connection, at most; more wait before they are made. As many as the client itself lets wait.
const REQUESTS_WAITING_MAX: usize = 1024;

config_table! {
    /// The API of the cluster.
    pub struct KubernetesConfig {
        /// Namespace of the resources of this service; nothing elsewhere is read or applied, hosts aside.
        namespace: String = "fplus-edge".to_owned();
        /// Plain HTTP of an API server without authentication, for simulators; absent: service account or kubeconfig.
        url: Option<String>;
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
    client(match url {
        Some(url) => kube::Config::new(url.parse().map_err(|_| ClientError::Url { url: url.to_owned() })?),
        None => kube::Config::infer().await.map_err(ClientError::Inference)?,
    })
}

/// A client by this configuration.
///
/// # Errors
/// [`ClientError::Client`]
pub fn client(mut config: kube::Config) -> Result<Client, ClientError> {
    // A service decides when something is tried again; a second retry below it would only hide for how long nothing has worked.
    config.default_retry = false;
    let Some(token) = take_file_token(&mut config) else {
        return Client::try_from(config).map_err(ClientError::Client);
    };
    let on_requests = token.clone();
    let client = ClientBuilder::try_from(config).map_err(ClientError::Client)?;
    let client = client.with_layer(&MapRequestLayer::new(move |request| on_requests.put_on(request)));
    let client = client.with_layer(&BufferLayer::new(REQUESTS_WAITING_MAX));
    Ok(client.with_layer(&RetryLayer::new(token)).build())
}

/// The token of a file, if that is what the configuration would authenticate with.
fn take_file_token(config: &mut kube::Config) -> Option<FileToken> {
    let auth = &mut config.auth_info;
    if auth.token.is_some() || auth.auth_provider.is_some() || (auth.username.is_some() && auth.password.is_some()) {
        return None;
    }
    let token = FileToken::read(PathBuf::from(auth.token_file.as_ref()?))?;
    auth.token_file = None;
    Some(token)
}
