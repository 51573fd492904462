//! `GET /bootstrap/<cluster uuid>` with `Authorization: Bearer <token>`: the script that bootstraps that cluster's edge, for every holder of one of its tokens.
//!
//! Whatever is wrong with the request, the answer is the same 404: a client does not learn which clusters exist, or whether a token was ever valid. The reason is in the log. What
//! passes by itself is answered with 503 and `Retry-After`, and curl repeats the request. First that is every request until the tokens are known. Then it is a request with a valid
//! token whose cluster is being set up. The token is not used up by fetching: the script must be fetched again after a failure. What is given out holds credentials, so nothing may
//! store it. This module must not know how an offer comes about.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use enrolment_protocol::token::Token;
use git_hosting::http::bearer;
use sparkplug_mqtt::Clock;
use uuid::Uuid;

use super::passwords::ClusterPasswords;
use super::quarantine::QuarantineFiles;
use crate::bootstrap::site::SiteScript;
use crate::bootstrap::{self, Bootstrap, BootstrapGrant, Credentials, Enrolment, FluxSource, ScriptValues};

const NOT_FOUND: &str = "There is no such cluster, or this token does not open its script (any more): sparkfleet cluster bootstrap NAME prints another line.\n";

const NOT_YET: &str = "The cluster manager is starting, or it is still setting the cluster up: try again in a few seconds. sparkfleet cluster show NAME says what it waits for.\n";

/// When a client shall try again, seconds.
const RETRY_AFTER: &str = "2";

/// The offers in force, and the site's own script. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct ScriptStore(Arc<RwLock<PostedScripts>>);

#[derive(Debug, Default)]
struct PostedScripts {
    /// The offers of all clusters were put up once.
    is_known: bool,
    offers: BTreeMap<Uuid, Arc<BootstrapGrant>>,
    script: Option<Arc<SiteScript>>,
}

impl ScriptStore {
    /// Puts the offer of a cluster up, or takes it down.
    pub fn set(&self, cluster: Uuid, offer: Option<BootstrapGrant>) {
        let mut posted = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match offer {
            Some(offer) => posted.offers.insert(cluster, Arc::new(offer)),
            None => posted.offers.remove(&cluster),
        };
    }

    /// From here on a token that no cluster has is refused: the offers of all clusters are up.
    pub fn complete(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).is_known = true;
    }

    fn is_known(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_known
    }

    /// From here on scripts are made of this one; None: of the shipped one.
    pub fn set_script(&self, script: Option<Arc<SiteScript>>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).script = script;
    }

    fn script(&self) -> Option<Arc<SiteScript>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).script.clone()
    }

    fn get(&self, cluster: Uuid) -> Option<Arc<BootstrapGrant>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).offers.get(&cluster).cloned()
    }
}

/// What is the same for every cluster.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The organisation.
    pub organisation: String,
    /// Where Flux comes from.
    pub flux: FluxSource,
    /// Image of the enrolment; None: the credentials of the repository travel in the script.
    pub image: Option<String>,
    /// MQTT servers, as the clusters see them.
    pub mqtt_servers: Vec<String>,
    /// What an enrolling cluster connects to them with.
    pub login: QuarantineFiles,
}

#[derive(Debug, Clone)]
struct Server {
    script_store: ScriptStore,
    passwords: ClusterPasswords,
    settings: Arc<Settings>,
    clock: Clock,
}

/// Why no script is given out, for the log.
#[derive(Debug)]
enum Refusal {
    /// The request is wrong, and stays so.
    NotFound(String),
    /// It is answered later.
    NotYet(String),
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        let stored_nowhere = [(header::CACHE_CONTROL, "no-store")];
        match refusal {
            Refusal::NotFound(_) => (StatusCode::NOT_FOUND, stored_nowhere, NOT_FOUND).into_response(),
            Refusal::NotYet(_) => {
                let later = [(header::RETRY_AFTER, RETRY_AFTER)];
                (StatusCode::SERVICE_UNAVAILABLE, stored_nowhere, later, NOT_YET).into_response()
            }
        }
    }
}

/// The route.
pub fn router(script_store: ScriptStore, passwords: ClusterPasswords, settings: Settings, clock: Clock) -> Router {
    let server = Server { script_store, passwords, settings: Arc::new(settings), clock };
    Router::new().route("/bootstrap/{cluster}", get(script)).with_state(server)
}

async fn script(
    State(server): State<Server>,
    Path(cluster): Path<String>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    // What travels in the script is read from files.
    let made = tokio::task::spawn_blocking(move || server.script(&cluster, &headers)).await;
    match made.unwrap_or_else(|error| Err(Refusal::NotYet(error.to_string()))) {
        Ok((cluster, token, script)) => {
            // The beginning of a hash identifies the token to the operator, and reveals nothing else.
            tracing::info!(cluster_id = %cluster, %peer, token = &token[..8], "bootstrap script given out");
            let kind =
                [(header::CONTENT_TYPE, "text/x-shellscript; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
            (kind, script).into_response()
        }
        Err(refusal) => {
            let (Refusal::NotFound(reason) | Refusal::NotYet(reason)) = &refusal;
            tracing::warn!(%peer, reason, "bootstrap script refused");
            refusal.into()
        }
    }
}

impl Server {
    /// The cluster, the hash of the token, and the script.
    fn script(&self, cluster: &str, headers: &HeaderMap) -> Result<(Uuid, String, String), Refusal> {
        if !self.script_store.is_known() {
            return Err(Refusal::NotYet("the tokens of the clusters are not known yet".to_owned()));
        }
        let (cluster, token, grant) = self.admit(cluster, headers).map_err(Refusal::NotFound)?;
        let hash = token.hash();
        let values = grant.values.as_ref().ok_or_else(|| format!("cluster {cluster} is not set up at present"));
        let bootstrap = values.and_then(|values| self.bootstrap(cluster, values, token)).map_err(Refusal::NotYet)?;
        let script = bootstrap::script(self.script_store.script().as_deref(), &bootstrap)
            .map_err(|error| Refusal::NotYet(error.to_string()))?;
        Ok((cluster, hash.as_str().to_owned(), script))
    }

    /// The cluster, the token that opens its script, and its grant; or why the request is refused.
    fn admit(&self, cluster: &str, headers: &HeaderMap) -> Result<(Uuid, Token, Arc<BootstrapGrant>), String> {
        let token = bearer(headers).and_then(|shown| Token::exact(shown).ok());
        let token = token.ok_or("no bearer token of the form that there is")?;
        let cluster = Uuid::parse_str(cluster).map_err(|_| "no UUID of a cluster")?;
        let grant = self.script_store.get(cluster).ok_or_else(|| format!("cluster {cluster} has no token"))?;
        let hash = token.hash();
        let known = grant.tokens.iter().find(|known| hash.is(&known.hash));
        let known = known.ok_or_else(|| format!("cluster {cluster} does not know this token (any more)"))?;
        if known.expires <= self.clock.now().wall {
            return Err(format!("the token for cluster {cluster} has expired"));
        }
        Ok((cluster, token, grant))
    }

    fn bootstrap(&self, cluster: Uuid, values: &ScriptValues, token: Token) -> Result<Bootstrap, String> {
        let settings = &self.settings;
        let credentials = match (&settings.image, &values.identity_key) {
            (Some(image), Some(identity_key)) => Credentials::Enrolment(Enrolment {
                token,
                identity_key: identity_key.clone(),
                image: image.clone(),
                mqtt_servers: settings.mqtt_servers.clone(),
                login: settings.login.read().map_err(|error| error.to_string())?,
            }),
            (Some(_), None) => return Err(format!("cluster {cluster} has no key to enrol with yet")),
            (None, _) => {
                let login = self.passwords.login(cluster);
                let (username, password) =
                    login.ok_or_else(|| format!("the repository of cluster {cluster} is not open"))?;
                Credentials::Git { username, password }
            }
        };
        Ok(Bootstrap {
            cluster,
            name: values.name.clone(),
            organisation: settings.organisation.clone(),
            namespace: values.namespace.clone(),
            self_link: values.self_link.clone(),
            credentials,
            flux: if values.bare { FluxSource::Site } else { settings.flux.clone() },
        })
    }
}
