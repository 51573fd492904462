//! `sparkfleet enrol`: on a cluster that is not in yet. One token in, one certificate out, as Kubernetes Secrets.
//!
//! ```text
//! token, Identity's key ──> keys (Secret sparkfleet-enrolment-keys) ──> request: NBIRTH of <ORG>-Enrol/<cluster uuid>
//!                                     Secrets flux-secrets, sparkfleet-identity <── answer: NCMD
//! ```
//!
//! The keys are kept before anything is asked, and the Secret `sparkfleet-identity` is written last: killed anywhere and run again, it asks the same and ends the same.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use configdb_schema::Organisation;
use edge_sync::adapters::identity::{Exchange, Identity, KeyPurpose, Keys, Secrets, granted};
use enrolment_protocol::cluster::Grant;
use enrolment_protocol::identity::IdentityKey;
use enrolment_protocol::metrics;
use enrolment_protocol::refusal::Refusal;
use enrolment_protocol::token::Token;
use service_runtime::exit;
use service_runtime::logging::{self, LogFormat};
use service_runtime::shutdown::Shutdown;
use sparkfleet_cli::input::read;
use sparkplug_mqtt::MqttConfig;

use crate::arguments::EnrolArguments;

/// Enrols the cluster; returns when its Secrets are written.
///
/// # Errors
/// A refusal and everything else that ends it; [`exit::CONFIG`] for unusable arguments, [`exit::TIMEOUT`] when no answer came in time.
pub async fn run(arguments: EnrolArguments) -> anyhow::Result<()> {
    logging::init(LogFormat::Human, "info").map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let unusable = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    let organisation = Organisation::new(arguments.organisation.clone()).context("--organisation").map_err(unusable)?;
    let token = zeroize::Zeroizing::new(read(&arguments.token_file)?);
    let token = Token::parse(&token)
        .with_context(|| format!("--token-file {}", arguments.token_file.display()))
        .map_err(unusable)?;
    let identity_key: IdentityKey = arguments.identity_key.parse().context("--identity-key").map_err(unusable)?;
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
    let keys = secrets.keys(&KeyPurpose::Token(token.hash())).await?;
    let request = keys.request(arguments.cluster, &token, &identity_key)?;
    let shutdown = Shutdown::on_signals().context("cannot listen to signals")?;
    let node = metrics::node(&organisation, arguments.cluster).map_err(|error| unusable(error.into()))?;
    let mut exchange =
        Exchange::start(request, node, &mqtt).map_err(|error| unusable(anyhow::Error::new(error).context("MQTT")))?;
    tracing::info!(name, cluster_id = %arguments.cluster, "asking Identity");
    let answer = tokio::select! {
        answer = ask(&mut exchange, arguments.timeout) => answer,
        () = shutdown.wait() => Err(exit::with_code(exit::INTERRUPTED, anyhow!("interrupted; run it again"))),
    };
    let ended = match answer {
        Ok(Ok(grant)) => enter(&secrets, &keys, &token, &grant, &identity_key, &ca).await,
        Ok(Err(refusal)) => Err(anyhow!("Identity refuses the enrolment of {name}: {refusal}")),
        Err(error) => Err(error),
    };
    exchange.end(if ended.is_ok() { "enrolled" } else { "refused" }).await;
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

/// Asks until an answer comes that is meant for it.
async fn ask(exchange: &mut Exchange, timeout: Duration) -> anyhow::Result<Result<Grant, Refusal>> {
    let answer = tokio::time::timeout(timeout, exchange.answer()).await;
    match answer {
        Ok(answer) => Ok(answer?),
        Err(_) => {
            let last_error = exchange.last_error();
            Err(exit::with_code(exit::TIMEOUT, anyhow!("not enrolled within {timeout:?}: {last_error}")))
        }
    }
}

/// Writes what was granted. `ca`: what the MQTT server is trusted by.
async fn enter(
    secrets: &Secrets,
    keys: &Keys,
    token: &Token,
    grant: &Grant,
    identity_key: &IdentityKey,
    ca: &str,
) -> anyhow::Result<()> {
    let identity = granted(keys, grant, ca, identity_key.to_string())?;
    secrets.write_git(&grant.git_username, grant.git_password.expose()).await?;
    secrets.write_identity(&Identity { token: Some(token.hash().as_str().to_owned()), ..identity }).await
}
