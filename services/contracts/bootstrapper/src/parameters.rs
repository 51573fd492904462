//! What an administrator gives to the first member of a cluster: JSON in the field `parameters` of the grant of an `init`.

use serde::{Deserialize, Serialize};

/// Parameters of an init. Names in camel case; unknown ones are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InitParameters {
    /// Name of the node: an RFC 1123 subdomain.
    pub node_name: String,
    /// Name of the Kubernetes cluster.
    pub cluster_name: String,
    /// Kubernetes version, such as `v1.33.2`. Empty: that of the installed programs.
    #[serde(default)]
    pub kubernetes_version: String,
    /// `host:port` by which other hosts will reach the API, such as that of a load balancer. Empty: the host's own address.
    #[serde(default)]
    pub endpoint: String,
    /// Further names and addresses for the API server's certificate.
    #[serde(default)]
    pub certificate_names: Vec<String>,
    /// Addresses of pods, such as `10.42.0.0/16`. Empty: the distribution's default.
    #[serde(default)]
    pub pod_subnet: String,
    /// Addresses of services, such as `10.43.0.0/16`. Empty: the distribution's default.
    #[serde(default)]
    pub service_subnet: String,
    /// Labels of the node, `key=value`.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Taints of the node, `key=value:effect`.
    #[serde(default)]
    pub taints: Vec<String>,
    /// What to install.
    #[serde(default)]
    pub components: Vec<InitComponent>,
    /// Manifests on the host, by absolute path, that are applied once the API answers: the network of pods. They are in its image or come as components. For kubeadm; k3s brings a
    /// network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<String>,
    /// SSH authority whose users may log in, an authorized_keys line. Empty: none.
    #[serde(default)]
    pub ssh_authority: String,
}

/// A thing to install. The hash is mandatory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InitComponent {
    /// Where it is.
    pub url: String,
    /// SHA-256 of it, hexadecimal.
    pub sha256: String,
    /// Where it goes, absolute.
    pub path: String,
}

/// These bytes are not the parameters of an init.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parameters of the init: {0}")]
pub struct ParametersError(pub String);

impl InitParameters {
    /// As in the grant.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Strings and lists of strings can always be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// From a grant.
    ///
    /// # Errors
    /// What it lacks, or has too much.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ParametersError> {
        let parameters: Self = serde_json::from_slice(bytes).map_err(|error| ParametersError(error.to_string()))?;
        for component in &parameters.components {
            component.hash()?;
        }
        if let Some(path) = parameters.manifests.iter().find(|path| !path.starts_with('/') || path.contains("..")) {
            return Err(ParametersError(format!("manifests: {path:?} is not an absolute path without ..")));
        }
        Ok(parameters)
    }
}

impl InitComponent {
    /// The hash as bytes.
    ///
    /// # Errors
    /// The text is not a hash.
    pub fn hash(&self) -> Result<[u8; 32], ParametersError> {
        let mut hash = [0; 32];
        match hex::decode_to_slice(&self.sha256, &mut hash) {
            Ok(()) => Ok(hash),
            Err(_) => Err(ParametersError("components: sha256 must have 64 hexadecimal digits".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_go_both_ways_and_what_is_wrong_is_named() {
        let text = r#"{"nodeName": "edge-1", "clusterName": "paint", "components": [{"url": "https://a/b", "sha256": "00", "path": "/b"}]}"#;
        let error = InitParameters::from_bytes(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "parameters of the init: components: sha256 must have 64 hexadecimal digits");
        let good = text.replace("\"00\"", &format!("\"{}\"", "ab".repeat(32)));
        let parameters = InitParameters::from_bytes(good.as_bytes()).unwrap();
        assert_eq!(parameters.components[0].hash(), Ok([0xab; 32]));
        assert_eq!(InitParameters::from_bytes(&parameters.to_bytes()), Ok(parameters));
        let relative = br#"{"nodeName": "a", "clusterName": "b", "manifests": ["cni.yaml"]}"#;
        let error = InitParameters::from_bytes(relative).unwrap_err().to_string();
        assert_eq!(error, "parameters of the init: manifests: \"cni.yaml\" is not an absolute path without ..");
        let error = InitParameters::from_bytes(br#"{"nodeName": "a", "clusterName": "b", "x": 1}"#).unwrap_err();
        assert!(error.to_string().contains("unknown field `x`"), "{error}");
    }
}
