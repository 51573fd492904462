//! An OpenID Connect provider: whom it vouches for, by a token that a user shows ([`Provider::verify`]), or by sending them there and back ([`Login`]).
//!
//! | module | knows |
//! |---|---|
//! | `provider` | discovery, keys, and what makes a token good |
//! | [`issuer`] | which issuers are believed at all |
//! | `login` | the authorization code flow with PKCE |
//! | `config` | the keys of a service that admits its users |
//! | `identities` | which user a token makes, by the rules of a configuration |
//!
//! What a user may do is not known here.
#![warn(missing_docs, unreachable_pub)]

mod config;
mod identities;
pub mod issuer;
mod login;
mod provider;

pub use config::{OidcConfig, OidcError};
pub use identities::{Identities, IdentityFault};
pub use login::{Begun, Client, Login, LoginError};
pub use provider::{IdentityError, Limits, Provider, ProviderError};
