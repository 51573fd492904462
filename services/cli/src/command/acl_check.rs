//! `sparkfleet acl check`: tries on a running MQTT server what each user may and may not do, and compares it with the table that `acl generate` writes from.
//!
//! What is tried names an Edge Node that does not exist, with a payload that is not Sparkplug. Or it is the STATE of a host, with a death that is older than any other. No one acts on it. A server that refuses a message says nothing, so a witness that
//! may receive everything shows what was published; what others may receive is published by it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use broker_acl::check::{NODE, Probe, STATE, own_filter, probes};
use broker_acl::{Action, Principal, Site};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use serde::Serialize;
use serde_json::json;
use service_runtime::exit;
use sparkplug::session::QoS;
use sparkplug_mqtt::{Clock, ListenerEvent, ListenerHandle, MqttConfig, spawn_listener};
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use super::acl_site;
use crate::arguments::AclCheckArguments;
use crate::certificate::subject;
use crate::client::mqtt_config;
use crate::output::{self, Table};

/// Sessions at the same time.
const AT_ONCE: usize = 32;
/// Longest wait for a connection, and for what must arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// After what must arrive has arrived, so long for what must not.
const GRACE: Duration = Duration::from_secs(1);

/// Something that is not as the table says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Deviation {
    /// `publish`, `receive` or `connect`.
    action: &'static str,
    topic: String,
    /// What the table says, and what the server does.
    found: String,
}

/// One user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct UserRow {
    user: String,
    /// So many things were tried; None: there are no credentials to try them with.
    tried: Option<usize>,
    deviations: Vec<Deviation>,
}

/// Someone who tries.
struct Client {
    user: String,
    mqtt: MqttConfig,
    /// What it may subscribe to.
    filter: String,
    probes: Vec<Probe>,
}

/// Carries out the command.
///
/// # Errors
/// With [`exit::UNAVAILABLE`] if the witness cannot connect, [`exit::CONFIG`] without any credentials, [`exit::FAILURE`] if the server does something else than the table says.
pub async fn run(arguments: &AclCheckArguments) -> anyhow::Result<()> {
    let site = acl_site::site(&arguments.options.connection.organisation, &arguments.site)?;
    let own = MqttConfig {
        client_id_prefix: "sparkfleet-acl-check".to_owned(),
        ..mqtt_config(&arguments.options.connection)?
    };
    let mut rows = Vec::new();
    let mut clients = Vec::new();
    for principal in site.principals() {
        let client = client(&site, &principal, &own, &arguments.credentials)?;
        let user = site.user(&principal);
        rows.push(UserRow { user, tried: client.as_ref().map(|client| client.probes.len()), deviations: Vec::new() });
        clients.extend(client);
    }
    if clients.is_empty() {
        let wanted: Vec<&str> = rows.iter().map(|row| row.user.as_str()).collect();
        let error = anyhow!(
            "--credentials {} has no USER.pem with USER.key and no USER.password of any of these users: {}",
            arguments.credentials.display(),
            wanted.join(", ")
        );
        return Err(exit::with_code(exit::CONFIG, error));
    }
    let mut witness = online(&own, "spBv1.0/#").await.map_err(|reason| {
        let error =
            anyhow!("{reason}").context("the own credentials, which must be those of an operator, are not usable");
        exit::with_code(exit::UNAVAILABLE, error)
    })?;
    for (user, deviation) in tried(&clients, &mut witness).await {
        rows.iter_mut().filter(|row| row.user == user).for_each(|row| row.deviations.push(deviation.clone()));
    }
    witness.stop().await;
    rows.extend(revoked(&site, &own, &arguments.credentials.join("revoked")).await?);
    output::print(arguments.options.presentation.output, || table(&rows).lines(), &json!(rows))?;
    let wrong: usize = rows.iter().map(|row| row.deviations.len()).sum();
    if wrong == 0 {
        return Ok(());
    }
    let error = anyhow!(
        "the server does not do what the table says in {wrong} cases; write its files again (sparkfleet acl generate) and have it read them"
    );
    Err(exit::with_code(exit::FAILURE, error))
}

/// Tries what one user may and may not do, who connects so and receives everything: how much was tried, and what is not as the table says.
///
/// # Errors
/// With [`exit::UNAVAILABLE`] if it cannot connect.
pub(super) async fn own(site: &Site, principal: &Principal, mqtt: &MqttConfig) -> anyhow::Result<(usize, Vec<String>)> {
    let mqtt = MqttConfig { client_id_prefix: "sparkfleet-check".to_owned(), ..mqtt.clone() };
    let probes: Vec<Probe> =
        probes(site, principal).into_iter().filter(|probe| probe.action == Action::Publish).collect();
    let all = "spBv1.0/#".to_owned();
    let unavailable = |reason: String| exit::with_code(exit::UNAVAILABLE, anyhow!("{reason}"));
    let mut witness = online(&mqtt, &all).await.map_err(unavailable)?;
    let client = Client { user: site.user(principal), mqtt, filter: all, probes };
    let found = tried(std::slice::from_ref(&client), &mut witness).await;
    witness.stop().await;
    let texts = found.into_iter().map(|(_, one)| format!("{} {}: {}", one.action, one.topic, one.found));
    Ok((client.probes.len(), texts.collect()))
}

/// Whether a message of so many bytes arrives, of a user who may command in this group.
///
/// # Errors
/// Why there is no session.
pub(super) async fn takes(mqtt: &MqttConfig, group: &str, bytes: usize) -> Result<bool, String> {
    let topic = format!("spBv1.0/{group}/NCMD/{NODE}");
    let mqtt = MqttConfig { client_id_prefix: "sparkfleet-check".to_owned(), ..mqtt.clone() };
    let mut session = online(&mqtt, &topic).await?;
    let mut mark = format!("sparkfleet check {} ", Uuid::new_v4());
    mark.extend(std::iter::repeat_n('x', bytes.saturating_sub(mark.len())));
    let published = session.publish(topic, Bytes::from(mark.clone())).await;
    let must = BTreeSet::from([mark]);
    let has_arrived =
        published.is_ok() && !collected_within(&mut session, &must, PATIENCE, Duration::ZERO).await.is_disjoint(&must);
    session.stop().await;
    Ok(has_arrived)
}

fn table(rows: &[UserRow]) -> Table {
    let mut table = Table::new(&["USER", "TRIED", "RESULT"]);
    for row in rows {
        let tried = row.tried.map_or_else(String::new, |tried| tried.to_string());
        let result = match (row.tried, row.deviations.len()) {
            (None, _) => "not tried: no credentials",
            (_, 0) => "as the table says",
            _ => "",
        };
        let lines = row.deviations.iter().map(|one| format!("{} {}: {}", one.action, one.topic, one.found));
        let mut lines = lines.chain((!result.is_empty()).then(|| result.to_owned()));
        table.row([row.user.clone(), tried, lines.next().unwrap_or_default()]);
        lines.for_each(|line| table.row([String::new(), String::new(), line]));
    }
    table
}

/// None: there are no credentials of it.
fn client(site: &Site, principal: &Principal, own: &MqttConfig, directory: &Path) -> anyhow::Result<Option<Client>> {
    let user = site.user(principal);
    let Some(filter) = own_filter(site, principal) else { return Ok(None) };
    Ok(credentials(own, directory, &user)?.map(|mqtt| Client { probes: probes(site, principal), user, mqtt, filter }))
}

/// The connection of a user, by its certificate or its password. None: the directory has neither.
fn credentials(own: &MqttConfig, directory: &Path, user: &str) -> anyhow::Result<Option<MqttConfig>> {
    let [cert, key, password] = ["pem", "key", "password"].map(|ending| directory.join(format!("{user}.{ending}")));
    if cert.exists() && key.exists() {
        let (username, password) = (None, String::new().into());
        return Ok(Some(MqttConfig { cert_file: Some(cert), key_file: Some(key), username, password, ..own.clone() }));
    }
    if !password.exists() {
        return Ok(None);
    }
    let read = std::fs::read_to_string(&password).with_context(|| format!("cannot read {}", password.display()));
    let read = read.map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let password = read.trim_end_matches(['\r', '\n']).to_owned().into();
    Ok(Some(MqttConfig { cert_file: None, key_file: None, username: Some(user.to_owned()), password, ..own.clone() }))
}

/// A session with that subscription, or why there is none.
async fn online(mqtt: &MqttConfig, filter: &str) -> Result<ListenerHandle, String> {
    connected(opening(mqtt, filter).map_err(|error| format!("{error:#}"))?).await
}

fn opening(mqtt: &MqttConfig, filter: &str) -> anyhow::Result<ListenerHandle> {
    Ok(spawn_listener(vec![(filter.to_owned(), QoS::AtLeastOnce)], mqtt, Clock::new())?)
}

async fn connected(mut listener: ListenerHandle) -> Result<ListenerHandle, String> {
    let reason = match timeout(PATIENCE, listener.recv()).await {
        Ok(Some(ListenerEvent::Online)) => return Ok(listener),
        Ok(Some(ListenerEvent::Offline { reason })) => reason,
        Ok(_) => "the session has ended".to_owned(),
        Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
    };
    listener.stop().await;
    Err(reason)
}

/// What is not as the table says, with the user.
async fn tried(clients: &[Client], witness: &mut ListenerHandle) -> Vec<(String, Deviation)> {
    let nonce = Uuid::new_v4();
    let mark = |client: usize, position: usize, probe: &Probe| {
        payload(&probe.topic, format!("sparkfleet acl check {nonce} {client} {position}"))
    };
    let mut deviations = Vec::new();
    let all = clients.iter().enumerate().flat_map(|(number, client)| {
        client.probes.iter().enumerate().map(move |(position, probe)| (number, client, position, probe))
    });
    let publishes = all.clone().filter(|(.., probe)| probe.action == Action::Publish);
    let sending = publishes.clone().map(|(number, client, position, probe)| async move {
        let session = match online(&client.mqtt, &client.filter).await {
            Ok(session) => session,
            Err(reason) => return Some((client, reason)),
        };
        let _ = session.publish(probe.topic.clone(), Bytes::from(mark(number, position, probe))).await;
        session.stop().await;
        None
    });
    let mut refused = BTreeSet::new();
    for (client, reason) in
        stream::iter(sending).buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect::<Vec<_>>().await
    {
        if refused.insert(client.user.clone()) {
            let found = format!("it may, and cannot: {reason}");
            deviations
                .push((client.user.clone(), Deviation { action: "connect", topic: client.filter.clone(), found }));
        }
    }
    let is_tried = |client: &Client| !refused.contains(&client.user);
    let must: BTreeSet<String> = publishes
        .clone()
        .filter(|(_, client, _, probe)| probe.may && is_tried(client))
        .map(|(number, _, position, probe)| mark(number, position, probe))
        .collect();
    let arrived = collected(witness, &must).await;
    for (number, client, position, probe) in publishes.filter(|(_, client, ..)| is_tried(client)) {
        deviations.extend(compared(client, probe, arrived.contains(&mark(number, position, probe))));
    }
    let hearing = all.filter(|(_, client, _, probe)| probe.action == Action::Subscribe && is_tried(client));
    let hearing = hearing.map(|(_, client, _, probe)| async move {
        let session = online(&client.mqtt, &probe.topic).await.ok();
        (client, probe, session)
    });
    let hearing: Vec<_> = stream::iter(hearing).buffer_unordered(AT_ONCE).collect().await;
    let topics: BTreeSet<&String> = hearing.iter().map(|(_, probe, _)| &probe.topic).collect();
    let word = format!("sparkfleet acl check {nonce}");
    for topic in topics {
        let _ = witness.publish(topic.clone(), Bytes::from(word.clone())).await;
    }
    let received = hearing.into_iter().map(|(client, probe, session)| {
        let word = word.clone();
        async move {
            let Some(mut session) = session else { return compared(client, probe, false) };
            let patience = if probe.may { PATIENCE } else { GRACE };
            let has_received =
                !collected_within(&mut session, &BTreeSet::from([word]), patience, Duration::ZERO).await.is_empty();
            session.stop().await;
            compared(client, probe, has_received)
        }
    });
    deviations.extend(futures::future::join_all(received).await.into_iter().flatten());
    deviations
}

fn compared(client: &Client, probe: &Probe, arrives: bool) -> Option<(String, Deviation)> {
    let found = match (probe.may, arrives) {
        (true, false) => "it may, and cannot",
        (false, true) => "it may not, and can",
        _ => return None,
    };
    let action = if probe.action == Action::Publish { "publish" } else { "receive" };
    Some((client.user.clone(), Deviation { action, topic: probe.topic.clone(), found: found.to_owned() }))
}

/// What is published. The hosts of the site may run, so on the topic of a STATE it is a death older than any other. Readers pass over it, and the host answers with its birth.
fn payload(topic: &str, mark: String) -> String {
    if topic.starts_with(STATE) { json!({ "online": false, "timestamp": 0, "probe": mark }).to_string() } else { mark }
}

/// A topic of a probe, among those of a whole fleet.
fn is_of_a_probe(topic: &str) -> bool {
    topic.contains(NODE) || topic.starts_with(STATE) || topic.contains("/NCMD/") || topic.contains("/DCMD/")
}

/// What arrives until everything has that must, and a little longer.
async fn collected(witness: &mut ListenerHandle, must: &BTreeSet<String>) -> BTreeSet<String> {
    collected_within(witness, must, PATIENCE, GRACE).await
}

async fn collected_within(
    session: &mut ListenerHandle,
    must: &BTreeSet<String>,
    patience: Duration,
    grace: Duration,
) -> BTreeSet<String> {
    let mut arrived = BTreeSet::new();
    let mut until = Instant::now() + patience;
    let mut is_complete = false;
    loop {
        if !is_complete && must.is_subset(&arrived) {
            (is_complete, until) = (true, Instant::now() + grace);
        }
        match timeout_at(until, session.recv()).await {
            Ok(Some(ListenerEvent::Message { topic, payload, .. })) if is_of_a_probe(&topic) => {
                arrived.extend(String::from_utf8(payload.to_vec()));
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return arrived,
        }
    }
}

/// Certificates that the server must refuse, one row each. A session is enough to find one: each asks for what its user may receive, so that a server is not taken for strict because it
/// refused a subscription.
async fn revoked(site: &Site, own: &MqttConfig, directory: &Path) -> anyhow::Result<Vec<UserRow>> {
    let mut rows = Vec::new();
    let Ok(files) = std::fs::read_dir(directory) else { return Ok(rows) };
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter_map(|name| name.strip_suffix(".pem").map(str::to_owned)).collect();
    names.sort();
    for name in names {
        let Some(mqtt) = credentials(own, directory, &name)? else { continue };
        let user = subject(&directory.join(format!("{name}.pem")))?;
        let principal = site.principals().into_iter().find(|principal| site.user(principal) == user);
        let filter = principal.and_then(|principal| own_filter(site, &principal));
        let filter = filter.unwrap_or_else(|| format!("spBv1.0/STATE/{NODE}"));
        // A key that does not fit would look like a refusal.
        let opened = opening(&mqtt, &filter).with_context(|| format!("revoked/{name}.pem and {name}.key"));
        let found = match connected(opened.map_err(|error| exit::with_code(exit::CONFIG, error))?).await {
            Ok(session) => {
                session.stop().await;
                Some(format!("it is revoked, and can connect and subscribe to {filter}"))
            }
            Err(_) => None,
        };
        let deviation = found.map(|found| Deviation { action: "connect", topic: name.clone(), found });
        rows.push(UserRow {
            user: format!("revoked/{name}"),
            tried: Some(1),
            deviations: deviation.into_iter().collect(),
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(action: Action, may: bool) -> Probe {
        Probe { action, topic: "spBv1.0/ACME-Paint/NDATA/x".to_owned(), may }
    }

    fn client() -> Client {
        let (user, filter) = ("ACME-Paint-Sync".to_owned(), "spBv1.0/ACME-Paint/#".to_owned());
        Client { user, mqtt: MqttConfig::default(), filter, probes: Vec::new() }
    }

    #[test]
    fn only_what_is_not_as_the_table_says_is_a_deviation() {
        let found = |action, may, arrives| compared(&client(), &probe(action, may), arrives).map(|(_, one)| one);
        for action in [Action::Publish, Action::Subscribe] {
            assert_eq!((found(action, true, true), found(action, false, false)), (None, None));
        }
        let hidden = found(Action::Publish, true, false).unwrap();
        assert_eq!((hidden.action, hidden.found.as_str()), ("publish", "it may, and cannot"));
        let open = found(Action::Subscribe, false, true).unwrap();
        assert_eq!((open.action, open.found.as_str()), ("receive", "it may not, and can"));
    }

    #[test]
    fn each_user_has_a_row_and_each_deviation_a_line() {
        let deviation = |found: &str| Deviation { action: "publish", topic: "a/b".to_owned(), found: found.to_owned() };
        let row = |user: &str, tried, deviations| UserRow { user: user.to_owned(), tried, deviations };
        let rows = [
            row("A", Some(7), Vec::new()),
            row("B", None, Vec::new()),
            row("C", Some(2), vec![deviation("it may, and cannot"), deviation("it may not, and can")]),
        ];
        let expected = [
            "USER  TRIED  RESULT",
            "A     7      as the table says",
            "B            not tried: no credentials",
            "C     2      publish a/b: it may, and cannot",
            "             publish a/b: it may not, and can",
        ];
        assert_eq!(table(&rows).lines(), expected);
        let value = json!(rows[2]);
        assert_eq!(
            value["deviations"][1],
            json!({ "action": "publish", "topic": "a/b", "found": "it may not, and can" })
        );
        assert_eq!(json!(rows[1])["tried"], serde_json::Value::Null);
    }

    #[test]
    fn a_user_has_a_certificate_or_a_password_or_is_not_tried() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        let own = MqttConfig { username: Some("me".to_owned()), ..MqttConfig::default() };
        let of = |user: &str| credentials(&own, directory.path(), user).unwrap();
        assert!(of("none").is_none());
        write("half.pem", "");
        assert!(of("half").is_none(), "a certificate without its key");
        write("half.key", "");
        let with_certificate = of("half").unwrap();
        assert_eq!(with_certificate.username, None, "the certificate says who it is");
        assert!(with_certificate.cert_file.is_some() && with_certificate.key_file.is_some());
        write("ada.password", "secret\r\n");
        let with_password = of("ada").unwrap();
        assert_eq!(with_password.username.as_deref(), Some("ada"));
        assert!(with_password.password.is_set() && !format!("{with_password:?}").contains("secret"));
        std::fs::create_dir(directory.path().join("dir.password")).unwrap();
        let error = credentials(&own, directory.path(), "dir").unwrap_err();
        assert!(exit::code_of(&error) == exit::CONFIG && format!("{error:#}").contains("dir.password"), "{error:#}");
    }

    #[test]
    fn a_file_that_is_not_a_certificate_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.pem");
        let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (text, why) in
            [(None, "No such file"), (Some("hello"), "is not PEM"), (Some(empty), "is not a certificate")]
        {
            text.map_or_else(|| drop(std::fs::remove_file(&file)), |text| std::fs::write(&file, text).unwrap());
            let error = subject(&file).unwrap_err();
            let text = format!("{error:#}");
            assert!(exit::code_of(&error) == exit::CONFIG && text.contains("x.pem") && text.contains(why), "{text}");
        }
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "ACME-Paint-Sync");
        std::fs::write(&file, parameters.self_signed(&key).unwrap().pem()).unwrap();
        assert_eq!(subject(&file).unwrap(), "ACME-Paint-Sync");
    }
}
