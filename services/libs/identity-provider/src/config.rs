//! The keys of a service that admits users because an OpenID Connect provider vouches for them.

use std::path::PathBuf;

use access::claims::ClaimRules;
use service_runtime::config_table;

use crate::identities::Identities;
use crate::issuer;
use crate::provider::{Limits, Provider, ProviderError};

config_table! {
    /// An OpenID Connect provider.
    pub struct OidcConfig {
        /// Issuer identifier (https://...) of the OpenID Connect provider whose identities are admitted; absent: only tokens are. To push, users need the same in users.oidc of the git server and in git.oidc of the cluster manager.
        issuer: Option<String>;
        /// Audience that the provider's tokens must be for.
        audience: String = "sparkfleet".to_owned();
        /// PEM file of the certificate authorities for HTTPS to the provider; absent: the system's.
        ca_file: Option<PathBuf>;
        /// Claim, a text or a list of texts, by which the lists below give a scope.
        claim: String = "groups".to_owned();
        /// Values of the claim that make a viewer.
        viewers: Vec<String>;
        /// Values of the claim that make an operator.
        operators: Vec<String>;
        /// Values of the claim that make an administrator.
        administrators: Vec<String>;
        /// VALUE=UUID: this value of the claim counts on that cluster only; several lines name several. Others count on all.
        clusters: Vec<String>;
    }
}

/// What is wrong with an [`OidcConfig`]. Begins with the name of the key below its table.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    /// A value that breaks a rule.
    #[error("{key} {rule}")]
    Key {
        /// Which.
        key: &'static str,
        /// The rule that it breaks, and what to do.
        rule: &'static str,
    },
    /// The file of authorities, or this machine.
    #[error("ca_file: {0}")]
    CaFile(#[source] ProviderError),
}

impl OidcConfig {
    /// Checks what can be checked without the provider and without files.
    ///
    /// # Errors
    /// [`OidcError::Key`]
    pub fn check(&self) -> Result<(), OidcError> {
        let fault = |key, rule| Err(OidcError::Key { key, rule });
        if self.issuer.as_ref().is_some_and(|issuer| !issuer::is_issuer(issuer)) {
            return fault("issuer", issuer::RULE);
        }
        if self.issuer.is_some() && self.audience.is_empty() {
            return fault("audience", "is empty; then tokens for any audience would be accepted");
        }
        self.rules().map(drop)
    }

    /// What the provider's claims come to.
    fn rules(&self) -> Result<ClaimRules, OidcError> {
        let scopes = [&*self.viewers, &*self.operators, &*self.administrators];
        let rules = ClaimRules::new(&self.claim, scopes, &self.clusters);
        rules.map_err(|rule| OidcError::Key { key: "clusters", rule })
    }

    /// The users of the provider; None: there is no provider. Blocks.
    ///
    /// # Errors
    /// [`OidcError`]
    pub fn identities(&self) -> Result<Option<Identities>, OidcError> {
        let Some(issuer) = &self.issuer else { return Ok(None) };
        let provider = Provider::new(issuer, &self.audience, self.ca_file.as_deref(), Limits::default());
        let provider = provider.map_err(OidcError::CaFile)?;
        Ok(Some(Identities { provider, rules: self.rules()? }))
    }
}
