//! What goes into a ticket. Everything is derived, certified or configured; nothing is stored here and nothing is sent.

use std::collections::BTreeSet;
use std::time::Duration;

use join_protocol::issuer::Verified;
use join_protocol::message::grant::{Grant, Membership};
use join_protocol::message::local_unlock::LocalUnlock;
use join_protocol::message::renewal::Renewal;
use join_protocol::message::ticket::TicketPayload;
use join_protocol::secret::{Secret, SecretBytes};
use join_protocol::terms::{Kind, Role};
use join_tickets::certificate::Purpose;
use join_tickets::kubeadm::BootstrapToken;
use join_tickets::request::{Allowed, KubeletRequest};
use join_tickets::ssh::HostRequest;

use crate::identity::Admission;
use crate::settings::{Distribution, Settings};
use join_trust::keys::KeyProvider;
use join_trust::replica::KubernetesTrust;
use join_trust::unlock;

/// Group of hosts that join with a token of kubeadm.
const KUBEADM_GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
/// The same of k3s.
const K3S_GROUP: &str = "system:bootstrappers:k3s:default-node-token";

/// What tickets are made of.
#[derive(Debug, Clone)]
pub(crate) struct Issuing<'a> {
    /// Keys of the cluster.
    pub keys: &'a dyn KeyProvider,
    /// Its authority.
    pub kubernetes: &'a KubernetesTrust,
    /// The configuration.
    pub settings: &'a Settings,
    /// UTC ms.
    pub wall_ms: u64,
}

/// Group of the bearer of a join token.
#[must_use]
pub(crate) const fn token_group(distribution: Distribution) -> &'static str {
    match distribution {
        Distribution::Kubeadm => KUBEADM_GROUP,
        Distribution::K3s => K3S_GROUP,
    }
}

/// Whether a host joins with a token that is made for it alone. Further servers of k3s join with the cluster's server token.
#[must_use]
pub(crate) fn needs_token(distribution: Distribution, kind: Kind, role: Role) -> bool {
    kind == Kind::Join && !(distribution == Distribution::K3s && role == Role::ControlPlane)
}

impl Issuing<'_> {
    /// What a verified and admitted host is given. `randomness`: fresh.
    ///
    /// # Errors
    /// What could not be made, for people.
    pub(crate) fn grant(
        &self,
        verified: &Verified,
        admission: &Admission,
        token: Option<&BootstrapToken>,
        randomness: &Secret,
    ) -> Result<TicketPayload, String> {
        let hello = verified.recipient().hello();
        if hello.kind == Kind::Renew {
            return self.renewal(verified, admission, randomness).map(TicketPayload::Renewal);
        }
        let (measurement_secret, measurement_salt) = self.keys.measurement();
        let membership = match hello.kind {
            Kind::Join => Some(self.membership(verified, admission, token, randomness)?),
            _ => None,
        };
        let disk_key = self.keys.state_disk_key(admission.disk, verified.body().disk_generation.as_ref());
        let local_unlock = self.local_unlock(verified)?;
        let grant = Grant { disk_key, measurement_secret, measurement_salt, membership, setup: None, local_unlock };
        Ok(TicketPayload::Grant(Box::new(grant)))
    }

    /// Certificates for a member, of the same authorities as those of its join.
    fn renewal(&self, verified: &Verified, admission: &Admission, randomness: &Secret) -> Result<Renewal, String> {
        let (ssh_authority, ssh_host_certificate) = self.ssh(verified, admission, randomness)?;
        let kubelet_certificate = self.kubelet(verified, admission, randomness)?;
        Ok(Renewal {
            node_name: admission.name.clone(),
            kubelet_certificate,
            ssh_authority,
            ssh_host_certificate,
            local_unlock: self.local_unlock(verified)?,
        })
    }

    /// What the second key of the host's disk is sealed to, if the policy allows one.
    fn local_unlock(&self, verified: &Verified) -> Result<Option<LocalUnlock>, String> {
        unlock::local_unlock(self.keys, verified).map_err(|error| error.to_string())
    }

    fn membership(
        &self,
        verified: &Verified,
        admission: &Admission,
        token: Option<&BootstrapToken>,
        randomness: &Secret,
    ) -> Result<Membership, String> {
        let role = verified.recipient().hello().role;
        let settings = self.settings;
        let node_password = match settings.distribution {
            Distribution::K3s => SecretBytes::new(hex::encode(self.keys.node_password(&admission.ek).expose()).into()),
            Distribution::Kubeadm => SecretBytes::default(),
        };
        let (ssh_authority, ssh_host_certificate) = self.ssh(verified, admission, randomness)?;
        Ok(Membership {
            node_name: admission.name.clone(),
            servers: settings.servers.clone(),
            token: self.token(role, token)?,
            authority_pin: self.kubernetes.pins.first().cloned().ok_or("ca.crt has no pin")?,
            node_password,
            kubernetes_version: settings.kubernetes_version.clone(),
            components: settings.components.clone(),
            kubelet_certificate: self.kubelet(verified, admission, randomness)?,
            ssh_authority,
            ssh_host_certificate,
            labels: settings.labels.clone(),
            taints: settings.taints.clone(),
            files: self.files(role)?,
        })
    }

    fn token(&self, role: Role, token: Option<&BootstrapToken>) -> Result<SecretBytes, String> {
        match (self.settings.distribution, role, token) {
            (Distribution::Kubeadm, _, Some(token)) => Ok(SecretBytes::new(token.expose().as_bytes().to_vec())),
            (Distribution::K3s, Role::Worker, Some(token)) => {
                let pin = format!("K10{}::", hex::encode(self.kubernetes.file_hash));
                Ok(SecretBytes::new([pin.as_bytes(), token.expose().as_bytes()].concat()))
            }
            (Distribution::K3s, Role::ControlPlane, _) => self
                .kubernetes
                .server_token
                .clone()
                .ok_or_else(|| "k3s-server-token is missing: further servers cannot join".to_owned()),
            (_, _, None) => Err("there is no token".to_owned()),
        }
    }

    fn files(&self, role: Role) -> Result<Vec<(String, SecretBytes)>, String> {
        match (self.settings.distribution, role) {
            (Distribution::Kubeadm, Role::ControlPlane) => self
                .kubernetes
                .control_plane_files
                .clone()
                .ok_or_else(|| "the files of a control plane are not all there".to_owned()),
            _ => Ok(Vec::new()),
        }
    }

    /// The kubelet's serving certificate; none if the host asks for none, or k3s makes it.
    fn kubelet(&self, verified: &Verified, admission: &Admission, randomness: &Secret) -> Result<Vec<u8>, String> {
        let request = &verified.body().certificate_request;
        if request.is_empty() || self.settings.distribution == Distribution::K3s {
            return Ok(Vec::new());
        }
        let authority = self.kubernetes.authority.as_ref().ok_or("ca.key is missing: no kubelet can be certified")?;
        let addresses: BTreeSet<_> = admission.addresses.iter().copied().collect();
        let allowed = Allowed { node_name: &admission.name, addresses: &addresses };
        let request = KubeletRequest::check(request, &allowed).map_err(|error| error.to_string())?;
        let mut serial = [0; 16];
        serial.copy_from_slice(&randomness.derive("kubelet serial", &[]).expose()[..16]);
        let lifetime = self.settings.certificate_lifetime;
        authority.issue(&request, Purpose::Serving, serial, self.now(), lifetime).map_err(|error| error.to_string())
    }

    /// Authority and certificate of the SSH host key; no certificate if the host has no key.
    fn ssh(&self, verified: &Verified, admission: &Admission, randomness: &Secret) -> Result<(String, String), String> {
        let authority = self.keys.ssh_authority().map_err(|error| error.to_string())?;
        let key = &verified.body().ssh_host_key;
        if key.is_empty() {
            return Ok((authority.line(), String::new()));
        }
        let principals: Vec<String> =
            [admission.name.clone()].into_iter().chain(admission.addresses.iter().map(ToString::to_string)).collect();
        let request = HostRequest { key, principals: &principals, allowed: &principals };
        let mut serial = [0; 8];
        serial.copy_from_slice(&randomness.derive("ssh serial", &[]).expose()[..8]);
        let nonce = randomness.derive("ssh nonce", &[]);
        let serial = u64::from_be_bytes(serial);
        let certificate = authority
            .certify(&request, serial, nonce.expose(), self.now(), self.settings.certificate_lifetime)
            .map_err(|error| error.to_string())?;
        Ok((authority.line(), certificate.line))
    }

    const fn now(&self) -> Duration {
        Duration::from_millis(self.wall_ms)
    }
}
