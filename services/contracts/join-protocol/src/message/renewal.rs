//! What a member receives that renews its certificates. No key of a disk, no secret of the cluster and no token has a place in it.

use proto::join as wire;

use super::{Fields, WireError};
use crate::message::evidence::is_node_name;
use crate::message::local_unlock::LocalUnlock;

const CERTIFICATE_BYTES_MAX: usize = 4096;
const LINE_BYTES_MAX: usize = 4096;

/// Certificates of a member. What it did not ask for is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Renewal {
    /// The name that the node has.
    pub node_name: String,
    /// Kubelet certificate, DER.
    pub kubelet_certificate: Vec<u8>,
    /// SSH authority, an authorized_keys line.
    pub ssh_authority: String,
    /// SSH host certificate, one line.
    pub ssh_host_certificate: String,
    /// Values of PCRs for the second key that the evidence names. None: the host may not open its disk by its TPM any more.
    pub local_unlock: Option<LocalUnlock>,
}

impl Renewal {
    pub(crate) fn to_wire(&self) -> wire::Renewal {
        wire::Renewal {
            node_name: self.node_name.clone(),
            kubelet_certificate: self.kubelet_certificate.clone(),
            ssh_authority: self.ssh_authority.clone(),
            ssh_host_certificate: self.ssh_host_certificate.clone(),
            local_unlock: self.local_unlock.as_ref().map(LocalUnlock::to_wire),
        }
    }

    pub(crate) fn from_wire(renewal: wire::Renewal) -> Result<Self, WireError> {
        let fields = Fields("renewal");
        if !is_node_name(&renewal.node_name) {
            return Err(fields.error("node_name", "is not an RFC 1123 subdomain"));
        }
        fields.at_most("kubelet_certificate", &renewal.kubelet_certificate, CERTIFICATE_BYTES_MAX)?;
        fields.text("ssh_authority", &renewal.ssh_authority, LINE_BYTES_MAX)?;
        fields.text("ssh_host_certificate", &renewal.ssh_host_certificate, LINE_BYTES_MAX)?;
        let wire::Renewal { node_name, kubelet_certificate, ssh_authority, ssh_host_certificate, local_unlock } =
            renewal;
        let local_unlock = local_unlock.map(|one| LocalUnlock::from_wire(&one, false)).transpose()?;
        Ok(Self { node_name, kubelet_certificate, ssh_authority, ssh_host_certificate, local_unlock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_goes_both_ways_and_names_the_field_at_fault() {
        let renewal = Renewal {
            node_name: "edge-1".to_owned(),
            kubelet_certificate: vec![0x30, 0],
            ssh_authority: "ssh-ed25519 AAAA".to_owned(),
            ssh_host_certificate: "ssh-ed25519-cert-v01@openssh.com AAAA edge-1".to_owned(),
            local_unlock: None,
        };
        assert_eq!(Renewal::from_wire(renewal.to_wire()), Ok(renewal.clone()));
        let error = |renewal: Renewal| Renewal::from_wire(renewal.to_wire()).unwrap_err().to_string();
        let unnamed = Renewal { node_name: String::new(), ..renewal.clone() };
        assert_eq!(error(unnamed), "renewal.node_name is not an RFC 1123 subdomain");
        let large = Renewal { kubelet_certificate: vec![0; 4097], ..renewal };
        assert!(error(large).starts_with("renewal.kubelet_certificate has 4097 bytes"));
    }
}
