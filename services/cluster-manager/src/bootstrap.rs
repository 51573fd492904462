//! One cluster -> the script that bootstraps its edge, and the line to paste that fetches and runs it.
//!
//! The script is a preamble, which assigns the cluster's values to variables, and after it a text that is the same for all clusters: [`TEMPLATE`] or a site's own. A value is one word in
//! single quotes, whatever is in it, so nothing in it is expanded or executed. Manifests are such values, too: the script gives them to kubectl by here-documents that name a variable. The
//! shell looks for the marker in the script's text and not in what a variable brings, so no content can end a here-document. This module must not know HTTP, nor where the values come from.

pub mod site;

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use configdb_schema::document::EnrolmentToken;
use configdb_schema::timestamp;
use enrolment_protocol::bootstrap::shell_word;
use enrolment_protocol::token::Token;
use serde_json::{Value, json};
use service_runtime::config::{ExposeSecret, Secret};
use uuid::Uuid;

use site::SiteScript;

/// The script that is shipped.
pub const TEMPLATE: &str = include_str!("bootstrap.sh");

/// First lines of every script.
const HEAD: &str = "#!/bin/sh\n# shellcheck disable=SC2016,SC2034,SC2317 # nothing in a value is to be expanded; a script needs not all of them; functions are called by their names\n# Written by the cluster manager for one edge cluster, with that cluster's credentials in it: do not pass it on.\n";

/// Annotation of the namespace: whose edge cluster this is.
pub const CLUSTER_ANNOTATION: &str = "sparkfleet.io/cluster";

/// Deployment of edge sync and edge monitor that the chart `edge-cluster` installs; it is ready when both are born.
const EDGE_DEPLOYMENT: &str = "sparkfleet-edge";

/// What Flux objects of the default templates need.
const FLUX_NEEDED: &str =
    "Flux 2.7 or newer (GitRepository v1, Kustomization v1, HelmRelease v2 with install.strategy)";

/// Name of the Secret with the token, and of what the enrolment runs as.
pub const ENROLMENT: &str = "sparkfleet-enrolment";

/// Where the enrolment finds the values of that Secret.
const ENROLMENT_DIRECTORY: &str = "/etc/sparkfleet/enrolment";

/// A token that opens a cluster's script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedToken {
    /// As [`enrolment_protocol::token::TokenHash`].
    pub hash: String,
    /// When it ends, UTC ms.
    pub expires: u64,
}

impl OfferedToken {
    /// As it is in the entry; None if its end cannot be read.
    #[must_use]
    pub fn of(token: &EnrolmentToken) -> Option<Self> {
        Some(Self { hash: token.hash.clone(), expires: timestamp::from_text(&token.expires)? })
    }
}

/// Who may fetch the script of a cluster. No secret is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapGrant {
    /// What its script says; None: the cluster is still being set up, so its tokens open nothing yet.
    pub values: Option<ScriptValues>,
    /// Its tokens.
    pub tokens: Vec<OfferedToken>,
}

/// What the script of a cluster that is set up says of it. No secret is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptValues {
    /// Name of the cluster.
    pub name: String,
    /// Namespace of its edge services.
    pub namespace: String,
    /// Its site brings Flux itself.
    pub bare: bool,
    /// Manifests that make Flux follow its repository, YAML.
    pub self_link: String,
    /// Public key that an enrolling cluster seals its request to, if there is one.
    pub identity_key: Option<String>,
}

/// Where a script takes Flux from if there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FluxSource {
    /// The edge fetches its manifests.
    Url(String),
    /// Its manifests travel in the script.
    Manifests(Arc<str>),
    /// The site brings it; the script does not.
    Site,
}

/// How the cluster gets its credentials.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// They travel in the script: those of its repository.
    Git {
        /// User.
        username: String,
        /// Password.
        password: Arc<Secret>,
    },
    /// The cluster makes its keys itself and enrols.
    Enrolment(Enrolment),
}

/// What an enrolling cluster gets.
#[derive(Debug, Clone)]
pub struct Enrolment {
    /// Its one-time token.
    pub token: Token,
    /// Public enrolment key, base64url: only Identity can read the request.
    pub identity_key: String,
    /// Image with the program `sparkfleet`.
    pub image: String,
    /// MQTT servers, as the cluster sees them.
    pub mqtt_servers: Vec<String>,
    /// What it connects to them with.
    pub login: QuarantineLogin,
}

/// What an enrolling cluster connects to an MQTT server with. A person who has the bootstrap command has it, so it must be good for the enrolment alone.
#[derive(Debug, Clone, Default)]
pub struct QuarantineLogin {
    /// Authorities by which the server is trusted, PEM.
    pub authorities: Option<String>,
    /// Certificate with its chain, PEM, and its private key.
    pub certificate: Option<(String, Arc<Secret>)>,
    /// User and password.
    pub password: Option<(String, Arc<Secret>)>,
}

impl QuarantineLogin {
    /// What of it is stored beside the token: key in the Secret, value, and the variable by which the program finds the file.
    fn files(&self) -> Vec<(&'static str, &str, &'static str)> {
        let authorities = self.authorities.iter().map(|text| ("ca.crt", text.as_str(), "SPARKFLEET_MQTT_CA_FILE"));
        let certificate = self.certificate.iter().flat_map(|(certificate, key)| {
            [
                ("tls.crt", certificate.as_str(), "SPARKFLEET_MQTT_CERT_FILE"),
                ("tls.key", key.expose_secret(), "SPARKFLEET_MQTT_KEY_FILE"),
            ]
        });
        let password =
            self.password.iter().map(|(_, text)| ("password", text.expose_secret(), "SPARKFLEET_MQTT_PASSWORD_FILE"));
        authorities.chain(certificate).chain(password).collect()
    }
}

/// What a script is made of.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// The cluster.
    pub cluster: Uuid,
    /// Its name.
    pub name: String,
    /// The organisation.
    pub organisation: String,
    /// Namespace of its edge services.
    pub namespace: String,
    /// Manifests that make Flux follow its repository, YAML.
    pub self_link: String,
    /// Its credentials.
    pub credentials: Credentials,
    /// Where Flux comes from.
    pub flux: FluxSource,
}

/// Why there is no script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// No shell text can hold it.
    #[error("{0} holds a NUL character, which no script can hold")]
    Nul(String),
}

/// The script that makes a Kubernetes cluster this edge cluster: the site's, or else the shipped one.
///
/// # Errors
/// [`BootstrapError`] names the value at fault.
pub fn script(site: Option<&SiteScript>, bootstrap: &Bootstrap) -> Result<String, BootstrapError> {
    let enrolment_job = match &bootstrap.credentials {
        Credentials::Git { .. } => String::new(),
        Credentials::Enrolment(enrolment) => enrolment_job(bootstrap, enrolment).0,
    };
    let cluster = bootstrap.cluster.to_string();
    let group = format!("{}-{}", bootstrap.organisation, bootstrap.name);
    let manifests = if let FluxSource::Manifests(manifests) = &bootstrap.flux { &**manifests } else { "" };
    let namespace = namespace(bootstrap);
    let (credentials, enrolment) = credentials(bootstrap);
    let values = [
        ("cluster_name", bootstrap.name.as_str()),
        ("cluster_uuid", &cluster),
        ("cluster_group", &group),
        ("namespace", &bootstrap.namespace),
        ("self_link", "self-link"),
        ("edge_deployment", EDGE_DEPLOYMENT),
        ("enrolment_job", &enrolment_job),
        ("flux_install", if bootstrap.flux == FluxSource::Site { "no" } else { "yes" }),
        ("flux_source", if let FluxSource::Url(url) = &bootstrap.flux { url } else { "" }),
        ("flux_needed", FLUX_NEEDED),
        ("namespace_manifest", &namespace),
        ("credentials_manifest", &credentials),
        ("enrolment_manifests", &enrolment),
        ("flux_manifests", manifests),
        ("self_link_manifests", &bootstrap.self_link),
    ];
    let of_site = site.into_iter().flat_map(SiteScript::values);
    Ok(preamble(values.into_iter().chain(of_site))? + site.map_or(TEMPLATE, SiteScript::text))
}

/// The lines that assign values to variables.
///
/// # Errors
/// [`BootstrapError`] names the value at fault.
pub fn preamble<'a>(values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<String, BootstrapError> {
    let mut lines = HEAD.to_owned();
    for (name, value) in values {
        if value.contains('\0') {
            return Err(BootstrapError::Nul(name.to_owned()));
        }
        lines.extend([name, "=", &shell_word(value), "\n"]);
    }
    Ok(lines)
}

fn namespace(bootstrap: &Bootstrap) -> String {
    let annotations = json!({ CLUSTER_ANNOTATION: bootstrap.cluster });
    let metadata = json!({ "name": bootstrap.namespace, "annotations": annotations });
    pretty(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata }))
}

/// What is stored before the enrolment, and what enrols.
fn credentials(bootstrap: &Bootstrap) -> (String, String) {
    let secret = |name: &str, data: Value| {
        let metadata = json!({ "name": name, "namespace": bootstrap.namespace });
        pretty(
            &json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "stringData": data }),
        )
    };
    match &bootstrap.credentials {
        Credentials::Git { username, password } => {
            let login = json!({ "username": username, "password": password.expose_secret() });
            (secret("flux-secrets", login), String::new())
        }
        Credentials::Enrolment(enrolment) => {
            let mut data = json!({ "token": enrolment.token.expose(), "identityKey": enrolment.identity_key.as_str() });
            for (key, value, _) in enrolment.login.files() {
                data[key] = Value::from(value);
            }
            (secret(ENROLMENT, data), pretty(&enrolment_job(bootstrap, enrolment).1))
        }
    }
}

/// Name of the Job that enrols, and everything that it needs. Another token or image is another Job, because a Job cannot be changed.
fn enrolment_job(bootstrap: &Bootstrap, enrolment: &Enrolment) -> (String, Value) {
    let metadata = |name: &str| json!({ "name": name, "namespace": bootstrap.namespace });
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    let mut environment = vec![
        variable("SPARKFLEET_ENROL_CLUSTER", &bootstrap.cluster.to_string()),
        variable("SPARKFLEET_ENROL_NAME", &bootstrap.name),
        variable("SPARKFLEET_ENROL_ORGANISATION", &bootstrap.organisation),
        variable("SPARKFLEET_ENROL_NAMESPACE", &bootstrap.namespace),
        variable("SPARKFLEET_ENROL_TOKEN_FILE", &format!("{ENROLMENT_DIRECTORY}/token")),
        variable("SPARKFLEET_ENROL_IDENTITY_KEY", &enrolment.identity_key),
        variable("SPARKFLEET_MQTT_SERVERS", &enrolment.mqtt_servers.join(",")),
    ];
    let user = enrolment.login.password.iter().map(|(user, _)| variable("SPARKFLEET_MQTT_USERNAME", user));
    environment.extend(user);
    let file = |(key, _, name): (&str, &str, &str)| variable(name, &format!("{ENROLMENT_DIRECTORY}/{key}"));
    environment.extend(enrolment.login.files().into_iter().map(file));
    let spec = json!({
        "backoffLimit": 6,
        "activeDeadlineSeconds": 3600,
        "template": {
            "metadata": { "labels": { "app.kubernetes.io/name": ENROLMENT } },
            "spec": {
                "serviceAccountName": ENROLMENT,
                "restartPolicy": "OnFailure",
                "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
                "containers": [{
                    "name": "enrol",
                    "image": enrolment.image,
                    "args": ["enrol"],
                    "env": environment,
                    "securityContext": { "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] } },
                    "volumeMounts": [{ "name": "enrolment", "mountPath": ENROLMENT_DIRECTORY, "readOnly": true }]
                }],
                "volumes": [{ "name": "enrolment", "secret": { "secretName": ENROLMENT } }]
            }
        }
    });
    let of = format!("{}{spec}", enrolment.token.hash().as_str());
    let name = format!("{ENROLMENT}-{}", &hex::encode(digest(&SHA256, of.as_bytes()))[..10]);
    let role = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "patch", "update"] }]);
    let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ENROLMENT });
    let subjects = json!([{ "kind": "ServiceAccount", "name": ENROLMENT, "namespace": bootstrap.namespace }]);
    let rbac = "rbac.authorization.k8s.io/v1";
    let items = json!([
        { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(ENROLMENT) },
        { "apiVersion": rbac, "kind": "Role", "metadata": metadata(ENROLMENT), "rules": role },
        { "apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata(ENROLMENT), "roleRef": reference, "subjects": subjects },
        { "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(&name), "spec": spec },
    ]);
    (name, json!({ "apiVersion": "v1", "kind": "List", "items": items }))
}

/// JSON over several lines: kubectl says in which one it finds a fault.
fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests;
