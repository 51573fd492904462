//! The result of an init, which travels back: the administrator puts a public key into the grant, the host seals the kubeconfig to it, the administrator opens it.

use zeroize::Zeroizing;

use crate::seal::{Binding, KeyPair, SealError, Sealed, seal};
use crate::secret::{Entropy, Secret};
use crate::terms::{Address, RequestId, Suite};
use crate::transcript::{self, Hash};

/// Key pair of an administrator for one result.
#[derive(Clone)]
pub struct ResultKey(KeyPair);

/// The result cannot be opened: it was sealed to another key or belongs to another ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the result cannot be opened with this key and ticket")]
pub struct ResultError;

impl ResultKey {
    /// Of the suite of the request.
    #[must_use]
    pub fn generate(suite: Suite, entropy: Entropy) -> Self {
        Self(KeyPair::derive(suite, &entropy.secret("result key")))
    }

    /// What goes into the grant.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        &self.0.public
    }

    /// Opens the result that an acknowledgement carried; `th4` is the transcript after its ticket.
    ///
    /// # Errors
    /// It was sealed to another key or belongs to another ticket.
    pub fn open(
        &self,
        address: &Address,
        request: RequestId,
        th4: &Hash,
        (encapsulated_key, ciphertext): (&[u8], &[u8]),
    ) -> Result<Zeroizing<Vec<u8>>, ResultError> {
        self.0.open(encapsulated_key, ciphertext, &binding(address, request, th4)).map_err(|_| ResultError)
    }
}

impl std::fmt::Debug for ResultKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResultKey(..)")
    }
}

pub(crate) fn seal_result(
    suite: Suite,
    result_key: &[u8],
    result: &[u8],
    (address, request, th4): (&Address, RequestId, &Hash),
    randomness: Secret,
) -> Result<Sealed, SealError> {
    seal(suite, result_key, result, &binding(address, request, th4), randomness)
}

fn binding(address: &Address, request: RequestId, th4: &Hash) -> Binding<'static> {
    let additional_data = transcript::additional_data(address, request);
    Binding { info: transcript::result_info(th4), additional_data, psk: None }
}
