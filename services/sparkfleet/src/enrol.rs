//! `sparkfleet enrol`: on a cluster that is not in yet. One token in, one certificate out, as Kubernetes Secrets.
//!
//! ```text
//! token, manager's key ──> keys (Secret sparkfleet-enrolment-keys) ──> request: NBIRTH of <ORG>-Enrol/<cluster uuid>
//!                                     Secrets flux-secrets, sparkfleet-identity <── answer: NCMD
//! ```
//!
//! The keys are kept before anything is asked, and the Secret `sparkfleet-identity` is written last: killed anywhere and run again, it asks the same and ends the same.

mod keys;
mod secrets;

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use configdb_schema::Organisation;
use enrolment_protocol::cluster::{Grant, Request};
use enrolment_protocol::metrics::{self, ANSWER, ATTEMPT, REQUEST, STATE};
use enrolment_protocol::refusal::Refusal;
use enrolment_protocol::token::Token;
use service_runtime::backoff::Backoff;
use service_runtime::exit;
use service_runtime::logging::{self, LogFormat};
use service_runtime::shutdown::Shutdown;
use sparkplug::Metric;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig};
use tokio::time::Instant;

use crate::cli::EnrolArguments;
use crate::command::read;
use keys::Keys;
use secrets::Secrets;

/// First and longest pause before the request is made again.
const REPEAT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// Enrols the cluster; returns when its Secrets are written.
///
/// # Errors
/// A refusal and everything else that ends it; [`exit::CONFIG`] for unusable arguments, [`exit::TIMEOUT`] when nobody answered in time.
pub async fn run(arguments: EnrolArguments) -> anyhow::Result<()> {
    logging::init(LogFormat::Human, "info").map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let unusable = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    let organisation = Organisation::new(arguments.organisation.clone()).context("--organisation").map_err(unusable)?;
    let token = zeroize::Zeroizing::new(read(&arguments.token_file)?);
    let token = Token::parse(&token)
        .with_context(|| format!("--token-file {}", arguments.token_file.display()))
        .map_err(unusable)?;
    let manager_key = arguments.manager_key.parse().context("--manager-key").map_err(unusable)?;
    let mqtt = mqtt_config(&arguments)?;
    mqtt.validate().map_err(|error| unusable(error.into()))?;
    let ca = arguments.ca_file.as_deref().map(read).transpose()?.unwrap_or_default();

    let client = kubernetes_client::connect(arguments.kubernetes_url.as_deref())
        .await
        .map_err(|error| exit::with_code(exit::UNAVAILABLE, anyhow::Error::new(error).context("Kubernetes")))?;
    let secrets = Secrets::new(client, &arguments.namespace);
    let name = &arguments.name;
    if secrets.is_enrolled(&token.hash()).await? {
        tracing::info!(name, "the cluster is enrolled already with this token");
        return Ok(());
    }
    let keys = secrets.keys(&token.hash()).await?;
    let request = keys.request(arguments.cluster, &token, &manager_key)?;
    let shutdown = Shutdown::on_signals().context("cannot listen to signals")?;
    let node = metrics::node(&organisation, arguments.cluster).map_err(|error| unusable(error.into()))?;
    let clock = Clock::new();
    let config = EdgeNodeConfig::new(node);
    let birth =
        vec![metrics::metric(REQUEST, &request.bytes), Metric::new(ATTEMPT, 1_u32), Metric::new(STATE, "asking")];
    let mut session = sparkplug_mqtt::spawn_edge_node(config, birth, &mqtt, BdSeqStore::Memory, clock)
        .map_err(|error| unusable(anyhow::Error::new(error).context("MQTT")))?;
    tracing::info!(name, cluster_id = %arguments.cluster, "asking the cluster manager");
    let answer = tokio::select! {
        answer = ask(&mut session, &request, arguments.timeout) => answer,
        () = shutdown.wait() => Err(exit::with_code(exit::INTERRUPTED, anyhow!("interrupted; run it again"))),
    };
    let ended = match answer {
        Ok(Ok(grant)) => enter(&secrets, &keys, &token, &grant, &ca).await,
        Ok(Err(refusal)) => Err(anyhow!("the cluster manager refuses the enrolment of {name}: {refusal}")),
        Err(error) => Err(error),
    };
    let state = if ended.is_ok() { "enrolled" } else { "refused" };
    let update = NodeUpdate::Set { device: None, metrics: vec![Metric::new(STATE, state)] };
    // For whoever watches; the Secrets are what counts.
    let _ = session.update(update).await;
    session.stop().await;
    if ended.is_ok() {
        tracing::info!(name, namespace = arguments.namespace, "the cluster is enrolled");
    }
    ended
}

fn mqtt_config(arguments: &EnrolArguments) -> anyhow::Result<MqttConfig> {
    let password = arguments.password_file.as_deref().map(read).transpose()?.unwrap_or_default();
    Ok(MqttConfig {
        servers: arguments.servers.clone(),
        username: arguments.username.clone(),
        password: password.trim_end_matches(['\r', '\n']).to_owned().into(),
        ca_file: arguments.ca_file.clone(),
        cert_file: arguments.cert_file.clone(),
        key_file: arguments.key_file.clone(),
        ..MqttConfig::default()
    })
}

/// Says again and again that it asks, until an answer comes that is meant for it.
async fn ask(
    session: &mut EdgeNodeHandle,
    request: &Request,
    timeout: Duration,
) -> anyhow::Result<Result<Grant, Refusal>> {
    let end = Instant::now() + timeout;
    let mut pauses = Backoff::new(REPEAT.0, REPEAT.1, 0);
    let (mut attempt, mut next) = (1_u32, Instant::now() + pauses.next_delay());
    let mut last = "the MQTT server was not reached".to_owned();
    loop {
        tokio::select! {
            event = session.recv() => match event {
                Some(NodeEvent::Command { device: None, metrics, .. }) => {
                    let Some(answer) = metrics::bytes_of(&metrics, ANSWER) else { continue };
                    match request.open(&answer) {
                        Ok(answer) => return Ok(answer),
                        Err(error) => tracing::warn!(error = %error, "an answer is not believed"),
                    }
                }
                Some(NodeEvent::Born { .. }) => {
                    "the cluster manager does not answer: does it know this cluster, is it ready, and is the pinned key its own?"
                        .clone_into(&mut last);
                }
                Some(NodeEvent::Offline { reason }) => {
                    tracing::warn!(reason, "the MQTT server is away");
                    last = format!("the MQTT server is away: {reason}");
                }
                Some(_) => {}
                None => return Err(anyhow!("the MQTT session ended by itself")),
            },
            () = tokio::time::sleep_until(next) => {
                attempt = attempt.saturating_add(1);
                next = Instant::now() + pauses.next_delay();
                let again = vec![Metric::new(ATTEMPT, attempt)];
                session.update(NodeUpdate::Set { device: None, metrics: again }).await?;
            }
            () = tokio::time::sleep_until(end) => {
                return Err(exit::with_code(exit::TIMEOUT, anyhow!("not enrolled within {timeout:?}: {last}")));
            }
        }
    }
}

/// Writes what was granted. `ca`: what the MQTT server is trusted by.
async fn enter(secrets: &Secrets, keys: &Keys, token: &Token, grant: &Grant, ca: &str) -> anyhow::Result<()> {
    if !keys.are_certified_by(&grant.certificate) {
        return Err(anyhow!("the certificate that came is not for this cluster's key"));
    }
    secrets.write_git(&grant.git_username, grant.git_password.expose()).await?;
    let chain: Vec<&[u8]> = std::iter::once(&grant.certificate).chain(&grant.authorities).map(Vec::as_slice).collect();
    let authorities: String = grant.authorities.iter().map(|one| keys::to_pem("CERTIFICATE", one)).collect();
    let certificates: String = chain.into_iter().map(|one| keys::to_pem("CERTIFICATE", one)).collect();
    secrets.write_identity(&token.hash(), &certificates, &keys.pem(), &format!("{ca}{authorities}")).await
}
