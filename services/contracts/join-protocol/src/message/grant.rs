//! What a ticket holds: keys of the disk and of the measurement, and how to become a member. All of it is secret until it is used.

use proto::join as wire;

use super::{Fields, WireError};
use crate::limits::{CONTROL_PLANE_CONTENT_BYTES, HASH_BYTES, NAME_BYTES_MAX};
use crate::message::evidence::is_node_name;
use crate::message::local_unlock::LocalUnlock;
use crate::secret::{Secret, SecretBytes, wipe};
use crate::terms::{Kind, Role};

const ITEMS_MAX: usize = 64;
const PATH_BYTES_MAX: usize = 255;
const URL_BYTES_MAX: usize = 2048;
const SERVERS_MAX: usize = 16;
const TEXT_BYTES_MAX: usize = 4096;

/// What a host receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Key of the state disk.
    pub disk_key: Secret,
    /// From it and the salt follows the cluster id that the host is locked to.
    pub measurement_secret: Secret,
    /// See there.
    pub measurement_salt: Secret,
    /// Of a join: how to become a member.
    pub membership: Option<Membership>,
    /// Of an init: what to set up.
    pub setup: Option<Setup>,
    /// The host may give its disk a second key, which its TPM gives out under these values of PCRs. None: it may not.
    pub local_unlock: Option<LocalUnlock>,
}

/// What an administrator gives to the first member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Public key, of the suite of the request, to which the result is sealed.
    pub result_key: Vec<u8>,
    /// Parameters in a form of the admin tool.
    pub parameters: SecretBytes,
}

/// How to become a member of the Kubernetes cluster. What a distribution does not need is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// The name that the node must have.
    pub node_name: String,
    /// URLs of the API servers.
    pub servers: Vec<String>,
    /// Join token.
    pub token: SecretBytes,
    /// Pin of the cluster authority.
    pub authority_pin: String,
    /// Password of the node (k3s).
    pub node_password: SecretBytes,
    /// Kubernetes version to install.
    pub kubernetes_version: String,
    /// What to install.
    pub components: Vec<Component>,
    /// Kubelet certificate, DER.
    pub kubelet_certificate: Vec<u8>,
    /// SSH authority, an authorized_keys line.
    pub ssh_authority: String,
    /// SSH host certificate, one line.
    pub ssh_host_certificate: String,
    /// Labels of the node, `key=value`.
    pub labels: Vec<String>,
    /// Taints of the node, `key=value:effect`.
    pub taints: Vec<String>,
    /// Files of a control plane, by their path below the folder of keys. None for a worker.
    pub files: Vec<(String, SecretBytes)>,
}

/// A thing to install. The hash is mandatory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// Where it is.
    pub url: String,
    /// SHA-256 of it.
    pub sha256: [u8; HASH_BYTES],
    /// Where it goes, absolute.
    pub path: String,
}

impl Grant {
    const NAME: &'static str = "grant";

    /// Checks that it is what a request of this kind and role asks for.
    ///
    /// # Errors
    /// The field that is missing or too much.
    pub fn check_for(&self, kind: Kind, role: Role) -> Result<(), WireError> {
        let fields = Fields(Self::NAME);
        if kind == Kind::Renew {
            return Err(fields.error("disk_key", "does not belong to renew"));
        }
        let wrong = |field, there: bool| {
            fields.error(field, format!("{} {kind}", if there { "does not belong to" } else { "is missing for" }))
        };
        if self.membership.is_some() != (kind == Kind::Join) {
            return Err(wrong("membership", self.membership.is_some()));
        }
        if self.setup.is_some() != (kind == Kind::Init) {
            return Err(wrong("result_key", self.setup.is_some()));
        }
        let files = self.membership.iter().any(|membership| !membership.files.is_empty());
        if files && role == Role::Worker {
            return Err(fields.error("files", "are only for a control plane"));
        }
        Ok(())
    }

    pub(crate) fn to_wire(&self) -> wire::Grant {
        let (result_key, parameters) = match &self.setup {
            Some(setup) => (setup.result_key.clone(), setup.parameters.expose().to_vec()),
            None => Default::default(),
        };
        wire::Grant {
            disk_key: self.disk_key.expose().to_vec(),
            measurement_secret: self.measurement_secret.expose().to_vec(),
            measurement_salt: self.measurement_salt.expose().to_vec(),
            membership: self.membership.as_ref().map(Membership::to_wire),
            result_key,
            parameters,
            local_unlock: self.local_unlock.as_ref().map(LocalUnlock::to_wire),
        }
    }

    pub(crate) fn from_wire(grant: &mut wire::Grant) -> Result<Self, WireError> {
        let fields = Fields(Self::NAME);
        let secret = |field, bytes: &[u8]| {
            Secret::from_slice(bytes).ok_or_else(|| fields.error(field, format!("must have {HASH_BYTES} bytes")))
        };
        let result_key = std::mem::take(&mut grant.result_key);
        let parameters = SecretBytes::new(std::mem::take(&mut grant.parameters));
        let setup = match (result_key.is_empty(), parameters.expose().is_empty()) {
            (true, true) => None,
            (true, false) => return Err(fields.error("result_key", "is missing beside parameters")),
            (false, _) => Some(Setup { result_key, parameters }),
        };
        let local_unlock = grant.local_unlock.as_ref().map(|one| LocalUnlock::from_wire(one, true));
        Ok(Self {
            disk_key: secret("disk_key", &grant.disk_key)?,
            measurement_secret: secret("measurement_secret", &grant.measurement_secret)?,
            measurement_salt: secret("measurement_salt", &grant.measurement_salt)?,
            membership: grant.membership.as_mut().map(Membership::from_wire).transpose()?,
            setup,
            local_unlock: local_unlock.transpose()?,
        })
    }
}

impl Membership {
    fn to_wire(&self) -> wire::Membership {
        let text = |secret: &SecretBytes| String::from_utf8_lossy(secret.expose()).into_owned();
        let component = |component: &Component| wire::Component {
            url: component.url.clone(),
            sha256: component.sha256.to_vec(),
            path: component.path.clone(),
        };
        let file = |(path, content): &(String, SecretBytes)| wire::File {
            path: path.clone(),
            content: content.expose().to_vec(),
        };
        wire::Membership {
            node_name: self.node_name.clone(),
            servers: self.servers.clone(),
            token: text(&self.token),
            authority_pin: self.authority_pin.clone(),
            node_password: text(&self.node_password),
            kubernetes_version: self.kubernetes_version.clone(),
            components: self.components.iter().map(component).collect(),
            kubelet_certificate: self.kubelet_certificate.clone(),
            ssh_authority: self.ssh_authority.clone(),
            ssh_host_certificate: self.ssh_host_certificate.clone(),
            labels: self.labels.clone(),
            taints: self.taints.clone(),
            files: self.files.iter().map(file).collect(),
        }
    }

    fn from_wire(wire: &mut wire::Membership) -> Result<Self, WireError> {
        let fields = Fields("membership");
        if !is_node_name(&wire.node_name) {
            return Err(fields.error("node_name", "is not an RFC 1123 subdomain"));
        }
        fields.count("servers", wire.servers.len(), SERVERS_MAX)?;
        wire.servers.iter().try_for_each(|url| fields.text("servers", url, URL_BYTES_MAX))?;
        for (field, items) in [("labels", &wire.labels), ("taints", &wire.taints)] {
            fields.count(field, items.len(), ITEMS_MAX)?;
            items.iter().try_for_each(|item| fields.text(field, item, 2 * NAME_BYTES_MAX))?;
        }
        let lines = [
            ("authority_pin", &wire.authority_pin),
            ("kubernetes_version", &wire.kubernetes_version),
            ("ssh_authority", &wire.ssh_authority),
            ("ssh_host_certificate", &wire.ssh_host_certificate),
        ];
        lines.into_iter().try_for_each(|(field, line)| fields.text(field, line, TEXT_BYTES_MAX))?;
        fields.count("components", wire.components.len(), ITEMS_MAX)?;
        fields.count("files", wire.files.len(), ITEMS_MAX)?;
        let components =
            wire.components.iter().map(|one| component_from_wire(one, fields)).collect::<Result<_, _>>()?;
        let files = wire.files.iter_mut().map(|one| file_from_wire(one, fields)).collect::<Result<_, _>>()?;
        let secret = |text: &mut String| SecretBytes::new(std::mem::take(text).into_bytes());
        Ok(Self {
            node_name: std::mem::take(&mut wire.node_name),
            servers: std::mem::take(&mut wire.servers),
            token: secret(&mut wire.token),
            authority_pin: std::mem::take(&mut wire.authority_pin),
            node_password: secret(&mut wire.node_password),
            kubernetes_version: std::mem::take(&mut wire.kubernetes_version),
            components,
            kubelet_certificate: std::mem::take(&mut wire.kubelet_certificate),
            ssh_authority: std::mem::take(&mut wire.ssh_authority),
            ssh_host_certificate: std::mem::take(&mut wire.ssh_host_certificate),
            labels: std::mem::take(&mut wire.labels),
            taints: std::mem::take(&mut wire.taints),
            files,
        })
    }
}

fn component_from_wire(wire: &wire::Component, fields: Fields) -> Result<Component, WireError> {
    fields.text("components", &wire.url, TEXT_BYTES_MAX)?;
    let below_root = wire.path.strip_prefix('/').is_some_and(is_path_below);
    if !below_root {
        return Err(fields.error("components", "holds a path that is not absolute and plain"));
    }
    Ok(Component { url: wire.url.clone(), sha256: fields.hash("components", &wire.sha256)?, path: wire.path.clone() })
}

fn file_from_wire(wire: &mut wire::File, fields: Fields) -> Result<(String, SecretBytes), WireError> {
    if !is_path_below(&wire.path) {
        return Err(fields.error("files", "holds a path that leaves its folder"));
    }
    fields.at_most("files", &wire.content, CONTROL_PLANE_CONTENT_BYTES)?;
    Ok((std::mem::take(&mut wire.path), SecretBytes::new(std::mem::take(&mut wire.content))))
}

/// True for a relative path that stays below its folder and has one meaning.
fn is_path_below(path: &str) -> bool {
    let plain = |part: &str| {
        let characters = part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+'));
        characters && !part.is_empty() && part != "." && part != ".."
    };
    path.len() <= PATH_BYTES_MAX && path.split('/').all(plain)
}

pub(crate) fn wipe_grant(grant: &mut wire::Grant) {
    for secret in
        [&mut grant.disk_key, &mut grant.measurement_secret, &mut grant.measurement_salt, &mut grant.parameters]
    {
        wipe(secret);
    }
    if let Some(membership) = &mut grant.membership {
        for text in [&mut membership.token, &mut membership.node_password] {
            wipe(&mut std::mem::take(text).into_bytes());
        }
        membership.files.iter_mut().for_each(|file| wipe(&mut file.content));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> Grant {
        let secret = |byte| Secret::new([byte; 32]);
        let membership = Membership {
            node_name: "edge-1".to_owned(),
            token: "abcdef.0123456789abcdef".into(),
            node_password: "hush".into(),
            components: vec![Component {
                url: "https://a/b".to_owned(),
                sha256: [1; 32],
                path: "/opt/bin/b".to_owned(),
            }],
            files: vec![("etcd/ca.key".to_owned(), "PRIVATE".into())],
            ..Default::default()
        };
        let (disk_key, measurement_secret, measurement_salt) = (secret(1), secret(2), secret(3));
        Grant {
            disk_key,
            measurement_secret,
            measurement_salt,
            membership: Some(membership),
            setup: None,
            local_unlock: None,
        }
    }

    #[test]
    fn a_grant_goes_both_ways_and_shows_no_secret() {
        assert_eq!(Grant::from_wire(&mut grant().to_wire()), Ok(grant()));
        let shown = format!("{:?}", grant());
        assert!(!shown.contains("hush") && !shown.contains("PRIVATE") && !shown.contains("abcdef"), "{shown}");
    }

    #[test]
    fn what_could_be_written_elsewhere_is_refused() {
        type Change = fn(&mut wire::Membership);
        let cases: [(Change, &str); 6] = [
            (
                |m| m.files[0].path = "../../etc/shadow".to_owned(),
                "membership.files holds a path that leaves its folder",
            ),
            (|m| m.files[0].path = "/etc/shadow".to_owned(), "membership.files holds a path that leaves its folder"),
            (|m| m.components[0].path = "opt".to_owned(), "membership.components holds a path that is not absolute"),
            (
                |m| m.components[0].path = "/opt/../etc".to_owned(),
                "membership.components holds a path that is not absolute",
            ),
            (|m| m.components[0].sha256.clear(), "membership.components has 0 bytes; it must have 32"),
            (|m| m.node_name = "A".to_owned(), "membership.node_name is not an RFC 1123 subdomain"),
        ];
        for (change, message) in cases {
            let mut wire = grant().to_wire();
            change(wire.membership.as_mut().unwrap());
            let error = Grant::from_wire(&mut wire).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn a_grant_is_for_its_kind_and_role_only() {
        assert_eq!(grant().check_for(Kind::Join, Role::ControlPlane), Ok(()));
        let error = |kind, role| grant().check_for(kind, role).unwrap_err().to_string();
        assert_eq!(error(Kind::Join, Role::Worker), "grant.files are only for a control plane");
        assert_eq!(error(Kind::Rejoin, Role::Worker), "grant.membership does not belong to rejoin");
        assert_eq!(error(Kind::Init, Role::ControlPlane), "grant.membership does not belong to init");
        assert_eq!(error(Kind::Renew, Role::Worker), "grant.disk_key does not belong to renew");
    }
}
