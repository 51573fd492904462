//! The JSON of the API. The OpenAPI document is made of these types.

use cluster_manager_contract::{ClusterDevice, SetupState};
use configdb_schema::document::ApiToken;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::secrets::StoredSecret;

/// A cluster.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Cluster {
    /// UUID of its object.
    #[schemars(with = "String")]
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its Sparkplug group.
    pub group: String,
    /// Namespace of the edge services.
    pub namespace: String,
    /// Whether its setup is complete.
    pub ready: bool,
    /// State of the setup.
    pub state: String,
    /// Step of the setup that is under way.
    pub step: String,
    /// Why it is in that state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when, UTC ms.
    pub since: u64,
    /// Its repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_url: Option<String>,
    /// Commit of branch `main`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_commit: Option<String>,
    /// Whether its edge sync is alive.
    pub sync_alive: bool,
}

/// The secrets in a cluster's repository; only the cluster can read the values.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Secrets {
    /// SHA-256 fingerprint of the certificate that the cluster seals with at present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The secrets.
    pub secrets: Vec<Secret>,
}

/// What values are sealed with for a cluster. It is public.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SealingCertificate {
    /// The certificate, PEM.
    pub certificate: String,
    /// Its SHA-256 fingerprint.
    pub fingerprint: String,
}

/// A Secret.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Secret {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What its values are bound to: `strict`, `namespace-wide` or `cluster-wide`.
    pub scope: String,
    /// Its type, such as `Opaque`.
    #[serde(rename = "type")]
    pub secret_type: String,
    /// Its keys.
    pub keys: Vec<Key>,
}

/// A key of a Secret.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Key {
    /// Its name.
    pub key: String,
    /// Fingerprint of the certificate that its value was sealed for, if that is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sealed_for: Option<String>,
    /// The cluster has another certificate since, or it is not known for which the value was sealed: write the value again.
    pub seal_again: bool,
}

/// A line to paste where kubectl reaches the cluster. A person who has it can become the cluster.
#[derive(Serialize, JsonSchema)]
#[expect(missing_debug_implementations, reason = "the token in it is not to be shown")]
pub struct BootstrapLine {
    /// The line, with its token.
    pub line: String,
    /// Where the script is fetched with that token.
    pub url: String,
    /// When the token ends, UTC ms.
    pub expires: u64,
}

/// A token; its text is known to its holder alone.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Token {
    /// Its name, as the record of writes has it.
    pub name: String,
    /// `viewer`, `operator` or `administrator`.
    pub scope: String,
    /// UUIDs of the clusters that it is for; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub clusters: Option<Vec<Uuid>>,
    /// When it was made, RFC 3339.
    pub issued: String,
    /// When it ends, RFC 3339.
    pub expires: String,
    /// Who made it.
    pub by: String,
}

/// A token that was made.
#[derive(Serialize, JsonSchema)]
#[expect(missing_debug_implementations, reason = "the token is not to be shown")]
pub struct CreatedToken {
    /// Its name.
    pub name: String,
    /// Its text, returned this once.
    pub token: String,
    /// When it ends, RFC 3339.
    pub expires: String,
}

/// A write, done or not.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Write {
    /// When it ended, UTC ms.
    pub at: u64,
    /// Who: `token:<name>` or `oidc:<subject>`.
    pub who: String,
    /// From which address.
    pub from: String,
    /// What.
    pub operation: String,
    /// UUID of the cluster; absent: it concerns all.
    pub cluster: Option<String>,
    /// On what.
    pub target: String,
    /// `done`, `refused` or `failed`.
    pub result: String,
    /// Commit that it ended in.
    pub commit: Option<String>,
    /// Why it was not done.
    pub reason: Option<String>,
}

/// Why a request was not carried out.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Problem {
    /// For people.
    pub error: String,
}

impl Cluster {
    /// As the cluster manager's Device says it.
    #[must_use]
    pub fn new(uuid: Uuid, device: ClusterDevice) -> Self {
        Self {
            uuid,
            ready: device.setup.state == SetupState::Ready,
            state: device.setup.state.to_string(),
            step: device.setup.step.to_string(),
            reason: device.setup.reason,
            since: device.setup.since,
            name: device.name,
            group: device.group,
            namespace: device.namespace,
            git_url: device.git_url,
            git_commit: device.git_commit,
            sync_alive: device.sync_alive,
        }
    }
}

impl From<ApiToken> for Token {
    fn from(token: ApiToken) -> Self {
        let ApiToken { name, hash: _, scope, clusters, issued, expires, by } = token;
        Self { name, scope: scope.as_str().to_owned(), clusters, issued, expires, by }
    }
}

impl Secrets {
    /// The secrets of a cluster that seals with the certificate of that fingerprint.
    #[must_use]
    pub fn new(stored: Vec<StoredSecret>, fingerprint: Option<String>) -> Self {
        let key = |(key, sealed_for): (String, Option<String>)| {
            let seal_again = fingerprint.is_some() && sealed_for != fingerprint;
            Key { key, sealed_for, seal_again }
        };
        let secret = |stored: StoredSecret| Secret {
            namespace: stored.namespace,
            name: stored.name,
            scope: stored.scope.to_owned(),
            secret_type: stored.secret_type,
            keys: stored.keys.into_iter().map(key).collect(),
        };
        let secrets = stored.into_iter().map(secret).collect();
        Self { fingerprint, secrets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_for_another_certificate_or_for_none_that_is_known_is_to_be_sealed_again() {
        let keys = [("a", Some("f1")), ("b", Some("f2")), ("c", None)];
        let keys = keys.map(|(key, of)| (key.to_owned(), of.map(str::to_owned)));
        let stored = StoredSecret {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
            scope: "strict",
            secret_type: "Opaque".to_owned(),
            keys: keys.into(),
        };
        let again = |fingerprint: Option<&str>| {
            let secrets = Secrets::new(vec![stored.clone()], fingerprint.map(str::to_owned)).secrets;
            secrets[0].keys.iter().map(|key| key.seal_again).collect::<Vec<_>>()
        };
        assert_eq!(again(Some("f2")), [true, false, true]);
        assert_eq!(again(None), [false, false, false], "without a certificate nothing follows");
    }
}
