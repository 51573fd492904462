//! Identity of a user by the credential that they show, over git: the holder of one of our tokens, or a user whom the identity provider vouches for.

use crate::git_users::Credential;
use cluster_manager_contract::api_token::TokenHash;
use identity_provider::{Identities, IdentityFault};

/// The credential that a user shows, in the form that the state takes. `identities`: None if no provider is configured.
///
/// # Errors
/// [`IdentityFault`]
pub async fn credential(identities: Option<&Identities>, shown: &str) -> Result<Credential, IdentityFault> {
    if let Some(hash) = TokenHash::of(shown) {
        return Ok(Credential::Token(hash));
    }
    let Some(identities) = identities else { return Ok(Credential::None) };
    identities.principal(shown).await.map(Credential::Verified)
}
