//! The site's KDC: the principals of clusters are made, and let get tickets or not. Without the cargo feature `kerberos` there is none.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::config::KerberosConfig;
use crate::event::{Event, PrincipalsResult, PrincipalsWork};

/// Work at the same time. What waits is bounded by the state: one piece for a cluster.
const CALLS_MAX: usize = 2;

/// The KDC of a realm.
#[derive(Debug, Clone)]
pub struct Realm {
    #[cfg(feature = "kerberos")]
    kdc: Option<kerberos_client::Kdc>,
    places: Arc<Semaphore>,
}

impl Realm {
    /// As configured; files for handing over keys, of which there are none here, would be below `state_dir`.
    ///
    /// # Errors
    /// The configuration, or the directory.
    pub fn open(config: &KerberosConfig, state_dir: &Path) -> anyhow::Result<Self> {
        let places = Arc::new(Semaphore::new(CALLS_MAX));
        #[cfg(feature = "kerberos")]
        return Ok(Self { kdc: with_feature::open(config, state_dir)?, places });
        #[cfg(not(feature = "kerberos"))]
        {
            // A realm without the feature was refused with the configuration.
            let _ = (config, state_dir);
            Ok(Self { places })
        }
    }

    /// Carries out work; the answer is an event.
    pub async fn carry_out(self, work: PrincipalsWork) -> Event {
        let PrincipalsWork { cluster, principals, allowed } = work;
        let result = match self.places.acquire().await {
            Ok(_place) => self.allow(&principals, allowed).await,
            Err(closed) => Err(closed.to_string()),
        };
        Event::Principals(PrincipalsResult { cluster, allowed, result })
    }

    #[cfg(not(feature = "kerberos"))]
    #[expect(clippy::unused_async, reason = "with the feature it waits")]
    async fn allow(&self, _principals: &[String], _allowed: bool) -> Result<(), String> {
        Err("this program is built without the cargo feature kerberos".to_owned())
    }

    #[cfg(feature = "kerberos")]
    async fn allow(&self, principals: &[String], allowed: bool) -> Result<(), String> {
        let kdc = self.kdc.as_ref().ok_or("kerberos.realm is not set")?;
        for name in principals {
            let failed = |error: kerberos_client::KdcError| format!("{name}: {error}");
            let principal = name.parse().map_err(|error: kerberos_client::PrincipalError| error.to_string())?;
            with_feature::allow(kdc, &principal, allowed).await.map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(feature = "kerberos")]
mod with_feature {
    use std::path::Path;

    use anyhow::Context as _;
    use kerberos_client::{Kdc, KdcError, Presence, Principal};

    use crate::config::KerberosConfig;

    pub(super) fn open(config: &KerberosConfig, state_dir: &Path) -> anyhow::Result<Option<Kdc>> {
        if config.realm.is_none() {
            return Ok(None);
        }
        let client = kerberos_client::KerberosConfig {
            admin_principal: config.admin_principal.clone().unwrap_or_default(),
            keytab_file: config.keytab_file.clone().unwrap_or_default(),
            krb5_conf: config.krb5_conf.clone(),
            timeout_s: config.timeout_s,
        };
        client.validate().map_err(|error| anyhow::anyhow!("kerberos.{error}"))?;
        Kdc::open(client, &state_dir.join("kerberos")).map(Some).context("state_dir: kerberos")
    }

    pub(super) async fn allow(kdc: &Kdc, principal: &Principal, allowed: bool) -> Result<(), KdcError> {
        match (kdc.presence(principal).await?, allowed) {
            (Presence::Absent, true) => kdc.create(principal).await,
            (Presence::Disabled, true) | (Presence::Enabled, false) => kdc.allow(principal, allowed).await,
            (Presence::Enabled, true) | (Presence::Absent | Presence::Disabled, false) => Ok(()),
        }
    }
}
