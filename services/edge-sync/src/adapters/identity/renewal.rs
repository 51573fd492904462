//! Keeps the certificate in Secret `sparkfleet-identity` good: asks for the next one in time, keeps its key before it asks, and writes the Secret when it has it. Services take it up from
//! the files that the Secret is mounted as.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use configdb_schema::{ClusterName, Organisation};
use enrolment_protocol::cluster::Grant;
use enrolment_protocol::identity::IdentityKey;
use enrolment_protocol::metrics as wire;
use service_runtime::shutdown::Shutdown;
use sparkplug::EdgeNodeDescriptor;
use sparkplug::backoff::Backoff;
use sparkplug_mqtt::{Clock, MqttConfig};
use tokio::time::Instant;
use uuid::Uuid;

use super::{Exchange, HeldCertificate, Identity, KeyPurpose, Keys, Secrets, granted};
use crate::renewal::{CertificateStatus, LOOK_EVERY, NextAttempt};

/// First and longest pause after something did not work.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(600));

/// What the renewal needs of the configuration.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// First part of the group.
    pub organisation: Organisation,
    /// Object of the cluster.
    pub cluster: Uuid,
    pub name: ClusterName,
    /// How the cluster's services reach the broker.
    pub mqtt: MqttConfig,
    /// How a cluster reaches it that has no certificate any more; None: it has no way.
    pub quarantine: Option<MqttConfig>,
}

impl Renewal {
    /// Runs until `shutdown`.
    pub async fn run(self, secrets: Secrets, clock: Clock, shutdown: Shutdown) {
        let mut retry = Backoff::new(RETRY, self.cluster.as_u64_pair().1);
        loop {
            let pause = tokio::select! {
                biased;
                () = shutdown.wait() => return,
                looked = self.look(&secrets, clock) => match looked {
                    Ok(pause) => {
                        retry.reset();
                        pause
                    }
                    Err(error) => {
                        tracing::warn!(error = format!("{error:#}"), "the cluster's certificate is not renewed");
                        record_failed(true);
                        retry.next_delay()
                    }
                },
            };
            tokio::select! {
                () = shutdown.wait() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Looks at the certificate and renews it if it is time; how long to wait until the next look.
    async fn look(&self, secrets: &Secrets, clock: Clock) -> anyhow::Result<Duration> {
        let Some(identity) = secrets.identity().await? else { return Ok(LOOK_EVERY) };
        let held = HeldCertificate::read(&identity.certificates, &identity.key)?;
        record_end(held.validity.ends);
        let status = held.validity.status(clock.now().wall);
        let (node, mqtt, limit) = match status {
            CertificateStatus::Good(pause) => {
                record_failed(false);
                return Ok(pause);
            }
            CertificateStatus::RenewalDue(left) => {
                (wire::renewal_node(&self.organisation, &self.name)?, &self.mqtt, left.min(LOOK_EVERY))
            }
            CertificateStatus::Expired => {
                let quarantine = self.quarantine.as_ref().context(
                    "the certificate has expired, and there are no credentials to ask with; set identity.cert_file and identity.key_file, or enrol with another token",
                )?;
                (wire::node(&self.organisation, self.cluster)?, quarantine, LOOK_EVERY)
            }
        };
        let identity_key = identity
            .enrolment_key
            .clone()
            .context("Secret sparkfleet-identity has no manager.key; it comes with the next enrolment")?;
        let keys = secrets.keys(&KeyPurpose::Renewal(held.serial())).await?;
        let asked = RenewalRequest {
            held: &held,
            keys: &keys,
            identity_key: identity_key.parse().context("manager.key")?,
            limit,
        };
        tracing::info!(
            serial = held.serial(),
            expired = status == CertificateStatus::Expired,
            "asking to renew the certificate"
        );
        match self.ask(asked, node, mqtt).await? {
            RenewalOutcome::Granted(grant) => {
                let renewed = Identity {
                    token: identity.token,
                    version: identity.version,
                    ..granted(&keys, &grant, &identity.authorities, identity_key)?
                };
                secrets.write_identity(&renewed).await?;
                tracing::info!("the certificate is renewed");
                Ok(Duration::ZERO)
            }
            RenewalOutcome::Refused(pause) => Ok(pause),
        }
    }

    /// Asks until the answer is final or its time is over.
    async fn ask(
        &self,
        asked: RenewalRequest<'_>,
        node: EdgeNodeDescriptor,
        mqtt: &MqttConfig,
    ) -> anyhow::Result<RenewalOutcome> {
        let request = asked.keys.renewal(self.cluster, asked.held, &asked.identity_key)?;
        let mut exchange = Exchange::start(request, node, mqtt)?;
        let end = Instant::now() + asked.limit;
        let mut refused = None;
        loop {
            let answer = tokio::select! {
                answer = exchange.answer() => answer?,
                () = tokio::time::sleep_until(end) => {
                    let error = anyhow!("not answered so far: {}", exchange.last_error());
                    exchange.end("refused").await;
                    return if refused.is_some() { Ok(RenewalOutcome::Refused(Duration::ZERO)) } else { Err(error) };
                }
            };
            match answer {
                Ok(grant) => {
                    exchange.end("enrolled").await;
                    return Ok(RenewalOutcome::Granted(grant));
                }
                Err(refusal) => {
                    let next_attempt = asked.held.validity.after(refusal.code);
                    if refused != Some(refusal.code) {
                        refused = Some(refusal.code);
                        record_failed(true);
                        tracing::warn!(reason = %refusal, "Identity does not renew the certificate");
                    }
                    if let NextAttempt::Pause(pause) = next_attempt {
                        exchange.end("refused").await;
                        return Ok(RenewalOutcome::Refused(pause));
                    }
                }
            }
        }
    }
}

/// What is asked for.
struct RenewalRequest<'a> {
    held: &'a HeldCertificate,
    keys: &'a Keys,
    identity_key: IdentityKey,
    limit: Duration,
}

enum RenewalOutcome {
    Granted(Grant),
    /// Look again after that time.
    Refused(Duration),
}

fn record_failed(failed: bool) {
    metrics::gauge!("edge_sync_renewal_failed").set(if failed { 1.0 } else { 0.0 });
}

#[allow(clippy::cast_precision_loss, reason = "seconds of this century are exact")]
fn record_end(ends_ms: u64) {
    metrics::gauge!("edge_sync_certificate_ends").set((ends_ms / 1000) as f64);
}
