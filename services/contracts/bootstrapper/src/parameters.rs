//! What an administrator gives to the first member of a cluster: JSON in the field `parameters` of the grant of an `init`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// What is applied once the API answers: the network of pods. For kubeadm; k3s brings a network.
    #[serde(default, skip_serializing_if = "Manifests::is_package")]
    pub manifests: Manifests,
    /// SSH authority whose users may log in, an authorized_keys line. Empty: none.
    #[serde(default)]
    pub ssh_authority: String,
}

/// The network of pods: a list of paths, the text `none`, or not given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Manifests {
    /// Not given: the network of pods in the bootstrapper's package.
    #[default]
    Package,
    /// `none`: the site brings a network by other means.
    None,
    /// Files on the host, by absolute path. They are in its image or come as components.
    Files(Vec<String>),
}

/// The text for [`Manifests::None`].
const NONE: &str = "none";

impl Manifests {
    const fn is_package(&self) -> bool {
        matches!(self, Self::Package)
    }
}

impl TryFrom<Value> for Manifests {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        if value == NONE {
            return Ok(Self::None);
        }
        let error = |_| format!("manifests is neither a list of paths nor {NONE:?}");
        serde_json::from_value(value).map(Self::Files).map_err(error)
    }
}

impl From<Manifests> for Value {
    fn from(manifests: Manifests) -> Self {
        match manifests {
            Manifests::Package => Self::Null,
            Manifests::None => NONE.into(),
            Manifests::Files(paths) => paths.into(),
        }
    }
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
        if let Manifests::Files(paths) = &parameters.manifests
            && let Some(path) = paths.iter().find(|path| !path.starts_with('/') || path.contains(".."))
        {
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

    #[test]
    fn the_network_of_pods_is_that_of_the_package_or_none_or_a_list_of_files() {
        let read = |manifests: &str| {
            InitParameters::from_bytes(format!(r#"{{"nodeName": "a", "clusterName": "b"{manifests}}}"#).as_bytes())
        };
        let given = |manifests: &str| read(&format!(r#", "manifests": {manifests}"#));
        let files = Manifests::Files(vec!["/a.yaml".to_owned()]);
        for (parameters, manifests) in
            [(read(""), Manifests::Package), (given("\"none\""), Manifests::None), (given(r#"["/a.yaml"]"#), files)]
        {
            let parameters = parameters.unwrap();
            assert_eq!(parameters.manifests, manifests);
            assert_eq!(InitParameters::from_bytes(&parameters.to_bytes()), Ok(parameters));
        }
        let error = given("\"all\"").unwrap_err();
        assert!(error.to_string().contains("neither a list of paths nor \"none\""), "{error}");
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let error = InitParameters::from_bytes(br#"{"nodeName": "a", "clusterName": "b", "x": 1}"#).unwrap_err();
        assert!(error.to_string().contains("unknown field `x`"), "{error}");
    }
}
