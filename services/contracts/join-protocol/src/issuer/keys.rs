//! Keys that all replicas of an issuer share, and that change with every epoch. All are derived from one secret an epoch.

use crate::seal::KeyPair;
use crate::secret::Secret;
use crate::terms::Suite;
use crate::transcript::{self, Hash};

/// Keys of the current epoch and of the one before it, whose challenges are still good.
#[derive(Clone)]
pub struct IssuerKeys {
    current: EpochKeys,
    previous: Option<EpochKeys>,
}

/// Keys of one epoch.
#[derive(Clone)]
pub(crate) struct EpochKeys {
    pub(crate) epoch: u32,
    cookie: Secret,
    credential: Secret,
    acknowledgement: Secret,
    refusal: Secret,
    pairs: Vec<KeyPair>,
}

impl IssuerKeys {
    /// From the number and the secret of the current and, if there was one, the previous epoch.
    #[must_use]
    pub fn new(current: (u32, &Secret), previous: Option<(u32, &Secret)>) -> Self {
        let keys = |(epoch, secret)| EpochKeys::derive(epoch, secret);
        Self { current: keys(current), previous: previous.map(keys) }
    }

    pub(crate) const fn current(&self) -> &EpochKeys {
        &self.current
    }

    pub(crate) fn of_epoch(&self, epoch: u32) -> Option<&EpochKeys> {
        [Some(&self.current), self.previous.as_ref()].into_iter().flatten().find(|keys| keys.epoch == epoch)
    }
}

impl EpochKeys {
    fn derive(epoch: u32, secret: &Secret) -> Self {
        let number = epoch.to_be_bytes();
        let pair = |&suite: &Suite| {
            KeyPair::derive(suite, &secret.derive("ajp1 issuer seal", &[&number[..], suite.name().as_bytes()].concat()))
        };
        Self {
            epoch,
            cookie: secret.derive("ajp1 issuer cookie", &number),
            credential: secret.derive("ajp1 issuer credential", &number),
            acknowledgement: secret.derive("ajp1 issuer acknowledgement", &number),
            refusal: secret.derive("ajp1 issuer refusal", &number),
            pairs: Suite::ALL.iter().map(pair).collect(),
        }
    }

    pub(crate) fn cookie(&self, th1: &Hash, challenge_body: &[u8]) -> Hash {
        self.cookie.mac(&transcript::cookie_input(th1, challenge_body))
    }

    pub(crate) fn is_cookie(&self, th1: &Hash, challenge_body: &[u8], cookie: &Hash) -> bool {
        self.cookie.is_mac(&transcript::cookie_input(th1, challenge_body), cookie)
    }

    /// What only the TPM of the hello gives out.
    pub(crate) fn credential_secret(&self, th1: &Hash, issuer_nonce: &[u8]) -> Secret {
        Secret::new(self.credential.mac(&transcript::credential_input(th1, issuer_nonce)))
    }

    /// Randomness of its wrapping.
    pub(crate) fn credential_randomness(&self, th1: &Hash, issuer_nonce: &[u8]) -> Secret {
        Secret::new(self.credential.mac(&transcript::credential_wrapping_input(th1, issuer_nonce)))
    }

    /// Key of progress and acknowledgement.
    pub(crate) fn acknowledgement_key(&self, th3: &Hash) -> Secret {
        Secret::new(self.acknowledgement.mac(&transcript::acknowledgement_key_input(th3)))
    }

    /// Randomness with which one refusal is sealed: the same refusal of the same evidence gives the same bytes.
    pub(crate) fn refusal_randomness(&self, th3: &Hash, content: &[u8]) -> Secret {
        Secret::new(self.refusal.mac(&transcript::hash("ajp1/4r", &[th3, content])))
    }

    pub(crate) fn pair(&self, suite: Suite) -> Option<&KeyPair> {
        self.pairs.iter().find(|pair| pair.suite == suite)
    }
}

impl std::fmt::Debug for IssuerKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuerKeys").field("epoch", &self.current.epoch).finish_non_exhaustive()
    }
}
