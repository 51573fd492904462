//! An OpenID Connect provider: whom it vouches for, by a token that a user shows ([`Provider::verify`]), or by sending them there and back ([`Login`]).
//!
//! | module | knows |
//! |---|---|
//! | `provider` | discovery, keys, and what makes a token good |
//! | [`issuer`] | which issuers are believed at all |
//! | `login` | the authorization code flow with PKCE |
//!
//! What a user may do is not known here.
#![warn(missing_docs, unreachable_pub)]

pub mod issuer;
mod login;
mod provider;

pub use login::{Begun, Client, Login, LoginError};
pub use provider::{IdentityError, Limits, Provider, ProviderError};
