//! Which user a token of the provider makes.

use access::Principal;
use access::claims::{ClaimError, ClaimRules};

use crate::provider::{IdentityError, Provider};

/// Users who are admitted because an identity provider vouches for them. Clones are the same.
#[derive(Debug, Clone)]
pub struct Identities {
    /// The provider.
    pub provider: Provider,
    /// What its claims come to.
    pub rules: ClaimRules,
}

/// Why a token admits no user; for who shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityFault {
    /// It cannot be checked at present.
    Away(String),
    /// It is not good.
    NotAccepted(String),
    /// They are who they say, and nothing is granted to them.
    NoScope(String),
}

impl Identities {
    /// Whether a text has the form of what the provider signs. What has another one, such as the wrong password of a cluster, is not for the provider.
    #[must_use]
    pub fn is_signed(shown: &str) -> bool {
        shown.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    /// The user that a token makes.
    ///
    /// # Errors
    /// [`IdentityFault`]
    pub async fn principal(&self, shown: &str) -> Result<Principal, IdentityFault> {
        let claims = self.provider.verify(shown).await.map_err(|error| match error {
            IdentityError::Away => IdentityFault::Away(error.to_string()),
            IdentityError::Refused(_) => IdentityFault::NotAccepted(error.to_string()),
        })?;
        self.rules.principal(&claims).map_err(|error| match error {
            ClaimError::Subject => IdentityFault::NotAccepted(error.to_string()),
            ClaimError::NoScope => IdentityFault::NoScope(error.to_string()),
        })
    }
}
