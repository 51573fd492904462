//! What a cluster gets that is enrolled.

use std::fmt;

use join_protocol::secret::SecretBytes;

/// The cluster is in.
#[derive(Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its certificate, DER.
    pub certificate: Vec<u8>,
    /// The authority's certificates, DER: the one that signed first.
    pub authorities: Vec<Vec<u8>>,
    /// User at the git server.
    pub git_username: String,
    /// Its password.
    pub git_password: SecretBytes,
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("git_username", &self.git_username).finish_non_exhaustive()
    }
}
