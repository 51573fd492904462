//! What a ticket must hold so that it can be used: looked at before the lock, because after it a ticket that cannot be used costs a reboot.

use bootstrapper_contract::{InitParameters, ParametersError};
use join_protocol::host::HostSettings;
use join_protocol::message::evidence::is_node_name;
use join_protocol::message::grant::{Grant, Membership};
use join_protocol::terms::Role;
use join_tickets::kubeadm::CONTROL_PLANE_FILES;

/// Where components may be taken from.
const SCHEMES: [&str; 3] = ["https://", "http://", "file:///"];

/// Folders below which components may be put.
const FOLDERS: [&str; 4] = ["/opt/", "/usr/local/", "/var/lib/", "/run/state/"];

/// Why a ticket cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GrantFault {
    /// A field of the membership.
    #[error("membership.{field} {rule}")]
    Membership {
        /// Which one.
        field: &'static str,
        /// Which rule.
        rule: String,
    },
    /// The parameters of an init.
    #[error(transparent)]
    Parameters(#[from] ParametersError),
}

fn fault(field: &'static str, rule: impl Into<String>) -> Result<(), GrantFault> {
    Err(GrantFault::Membership { field, rule: rule.into() })
}

/// Checks a ticket of a host with these settings.
///
/// # Errors
/// The first rule that is broken.
pub(crate) fn check_grant(grant: &Grant, settings: &HostSettings) -> Result<(), GrantFault> {
    if let Some(membership) = &grant.membership {
        check_membership(membership, settings)?;
    }
    if grant.setup.is_some() {
        let parameters = init_parameters(grant)?;
        if !is_node_name(&parameters.node_name) {
            return Err(ParametersError("nodeName is not an RFC 1123 subdomain".to_owned()).into());
        }
        if parameters.cluster_name.is_empty() {
            return Err(ParametersError("clusterName is missing".to_owned()).into());
        }
        for component in &parameters.components {
            check_component(&component.url, &component.path)?;
        }
    }
    Ok(())
}

/// What an administrator gave to the first member.
///
/// # Errors
/// There is nothing, or nothing that can be read.
pub(crate) fn init_parameters(grant: &Grant) -> Result<InitParameters, ParametersError> {
    match &grant.setup {
        Some(setup) => InitParameters::from_bytes(setup.parameters.expose()),
        None => Err(ParametersError("there are none".to_owned())),
    }
}

fn check_membership(membership: &Membership, settings: &HostSettings) -> Result<(), GrantFault> {
    let wanted = &settings.body.node_name;
    if !wanted.is_empty() && membership.node_name != *wanted {
        let rule = format!("is {:?}, and the host asked for {wanted:?}", membership.node_name);
        return fault("node_name", rule);
    }
    if membership.servers.is_empty() {
        return fault("servers", "is empty");
    }
    if let Some(server) = membership.servers.iter().find(|server| !is_server(server)) {
        return fault("servers", format!("holds {server:?}, which is not https://host:port"));
    }
    if membership.token.expose().is_empty() {
        return fault("token", "is missing");
    }
    let pin = membership.authority_pin.strip_prefix("sha256:");
    let is_pin = pin.is_some_and(|pin| pin.len() == 64 && pin.bytes().all(|c| c.is_ascii_hexdigit()));
    if !is_pin && !membership.token.expose().starts_with(b"K10") {
        return fault(
            "authority_pin",
            "must be sha256: and 64 hexadecimal digits: without it any machine could pose as the cluster",
        );
    }
    if settings.role == Role::ControlPlane {
        let known = |path: &str| CONTROL_PLANE_FILES.contains(&path);
        if let Some((path, _)) = membership.files.iter().find(|(path, _)| !known(path)) {
            return fault("files", format!("holds {path:?}, which is not a file of a control plane"));
        }
    }
    for component in &membership.components {
        check_component(&component.url, &component.path)?;
    }
    Ok(())
}

fn is_server(server: &str) -> bool {
    let Some(address) = server.strip_prefix("https://") else { return false };
    let plain = address.bytes().all(|c| c.is_ascii_alphanumeric() || b".-:[]".contains(&c));
    let port = address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    plain && port
}

/// A hash says what a component is; these say that it is nothing which decides about the host itself.
fn check_component(url: &str, path: &str) -> Result<(), GrantFault> {
    if !SCHEMES.iter().any(|scheme| url.starts_with(scheme)) {
        return fault("components", format!("holds {url:?}; only {} are fetched", SCHEMES.join(", ")));
    }
    let plain = path.split('/').skip(1).all(|part| !part.is_empty() && part != "." && part != "..");
    if !plain || !FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        return fault(
            "components",
            format!("holds the path {path:?}; only paths below {} are written", FOLDERS.join(", ")),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
