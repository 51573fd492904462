//! Identity of a client by the credential that it shows, over HTTP and over git: the holder of one of our tokens, or a user whom the identity provider vouches for.

use crate::api::{Credential, Refusal};
use access::claims::{ClaimError, ClaimRules};
use cluster_manager_contract::api_token::TokenHash;
use identity_provider::{IdentityError, Provider};

/// Users who are admitted because an identity provider vouches for them.
#[derive(Debug, Clone)]
pub struct Identities {
    /// The provider.
    pub provider: Provider,
    /// What its claims come to.
    pub rules: ClaimRules,
}

/// Why a credential admits no one.
#[derive(Debug)]
pub enum IdentityFault {
    /// It is not good, or cannot be checked at present.
    Refused(Refusal),
    /// They are who they say, and nothing is granted to them.
    NoScope(String),
}

/// The credential that a client shows, in the form that the state takes. `identities`: None if no provider is configured.
///
/// # Errors
/// [`IdentityFault`]
pub async fn credential(identities: Option<&Identities>, shown: &str) -> Result<Credential, IdentityFault> {
    if let Some(hash) = TokenHash::of(shown) {
        return Ok(Credential::Token(hash));
    }
    let Some(Identities { provider, rules }) = identities else { return Ok(Credential::None) };
    let claims = provider.verify(shown).await.map_err(|error| {
        IdentityFault::Refused(match error {
            IdentityError::Away => Refusal::NotAtPresent(error.to_string()),
            IdentityError::Refused(_) => Refusal::Unauthenticated(error.to_string()),
        })
    })?;
    let principal = rules.principal(&claims).map_err(|error| match error {
        ClaimError::Subject => IdentityFault::Refused(Refusal::Unauthenticated(error.to_string())),
        ClaimError::NoScope => IdentityFault::NoScope(error.to_string()),
    })?;
    Ok(Credential::Verified(principal))
}
