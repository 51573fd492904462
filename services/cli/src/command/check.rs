//! `sparkfleet check`: whether what this machine needs works: certificates, the broker and its rules, the services, the git server, the console, clocks. Each finding says what to do.
//!
//! ```text
//! certificates -> session (Client::look) -> finding::{services, versions, clocks} -> rights and message size -> git server, console -> print, bundle
//! ```

mod bundle;
mod finding;
mod server_certificate;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use broker_acl::{Principal, Site};
use bytes::Bytes;
use configdb_schema::address::{ClusterName, Organisation};
use http_body_util::Empty;
use hyper::{Request, Uri};
use serde_json::{Value, json};
use service_runtime::exit;
use sparkplug::HostId;
use sparkplug_mqtt::Clock;
use tokio::time::{Instant, timeout};
use x509_parser::pem::Pem;

use super::acl_check;
use crate::arguments::check::CheckArguments;
use crate::client::{Client, mqtt_config, user};
use crate::console_api::ConsoleApi;
use crate::listing;
use crate::options::{Connection, Options, ReadingSource};
use crate::output;
use finding::{Finding, Outcome, failures, listed};
use fleet_view::Fleet;
use fleet_view::tables::Rows;

/// Largest message that services send; ConfigDB refuses an entry that would make a larger one.
const MESSAGE_BYTES: usize = 256 * 1024;

/// Longest wait for an HTTP server.
const PATIENCE: Duration = Duration::from_secs(10);

/// A console whose clock differs by more is wrong, ms.
const CONSOLE_SKEW_MS: u64 = 5_000;

/// Carries out the command.
///
/// # Errors
/// With [`exit::FAILURE`] if anything has failed; with [`exit::CONFIG`] for options that cannot be used, or a bundle that cannot be written.
pub async fn run(arguments: &CheckArguments) -> anyhow::Result<()> {
    let CheckArguments { bundle, source, options } = arguments;
    let wall = Clock::new().now().wall;
    let mut findings = certificates(&options.connection, wall).await;
    let mut documents = fleet(options, &mut findings).await?;
    findings.extend(console(source, options, &mut documents).await?);
    if let Some(file) = bundle {
        documents.insert(0, ("check", json!(findings)));
        documents.insert(1, ("program", program(options, wall)));
        bundle::write(file, &documents, wall)?;
    }
    let lines = || finding::table(&findings).shown();
    output::print(options.presentation.output, lines, &json!(findings))?;
    match failures(&findings).len() {
        0 => Ok(()),
        count => Err(exit::with_code(exit::FAILURE, anyhow!("{count} of {} checks have failed", findings.len()))),
    }
}

/// The own certificate, the authorities that are trusted, and the broker's certificate.
async fn certificates(connection: &Connection, wall: u64) -> Vec<Finding> {
    let now = i64::try_from(wall / 1_000).unwrap_or(i64::MAX);
    let renewed = "sparkfleet cannot connect without it: have its authority issue another";
    let mut findings = Vec::new();
    let files = [("the own certificate", &connection.cert_file), ("the authority in --ca-file", &connection.ca_file)];
    for (whose, file) in files.into_iter().filter_map(|(whose, file)| Some((whose, file.as_deref()?))) {
        findings.push(match ends_in_file(file) {
            Ok(until) => finding::certificate("certificates", whose, until, now, renewed),
            Err(error) => Finding::failed("certificates", format!("{error:#}"), "name the right PEM file"),
        });
    }
    let Some((host, port)) = tls_address(&connection.broker) else {
        let detail = format!("{} is not encrypted", connection.broker);
        let help = "outside of this machine use mqtts://, so that passwords and values cannot be read on the way";
        let is_here = ["127.0.0.1", "localhost", "[::1]"].iter().any(|here| connection.broker.contains(here));
        findings.push(if is_here {
            Finding::ok("tls", format!("{detail}, and is on this machine"))
        } else {
            Finding::warning("tls", detail, help)
        });
        return findings;
    };
    findings.push(match server_certificate::fetch(&host, port).await.and_then(|der| ends(&der)) {
        Ok(until) => {
            finding::certificate("tls", &format!("the certificate of {host}"), until, now, "renew it on the server")
        }
        Err(error) => {
            Finding::failed("tls", format!("{host}:{port}: {error:#}"), "look at the server, and at its port")
        }
    });
    findings
}

/// Where a server with TLS is; None: it has none.
fn tls_address(broker: &str) -> Option<(String, u16)> {
    let uri: Uri = broker.parse().ok()?;
    let is_tls = matches!(uri.scheme_str(), Some("mqtts" | "ssl" | "tls"));
    let host = uri.host()?.trim_matches(['[', ']']).to_owned();
    is_tls.then(|| (host, uri.port_u16().unwrap_or(8883)))
}

/// When the first of the certificates of a file ends, UTC s.
fn ends_in_file(file: &Path) -> anyhow::Result<i64> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let all = Pem::iter_from_buffer(&text).map(|pem| ends(&pem.context("not PEM")?.contents));
    let all = all.collect::<anyhow::Result<Vec<i64>>>().with_context(|| file.display().to_string())?;
    all.into_iter().min().with_context(|| format!("{} holds no certificate", file.display()))
}

/// When a certificate (DER) ends, UTC s.
fn ends(der: &[u8]) -> anyhow::Result<i64> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).context("not a certificate")?;
    Ok(certificate.validity().not_after.timestamp())
}

/// The broker, and what is received by it; the rows for a bundle.
async fn fleet(options: &Options, findings: &mut Vec<Finding>) -> anyhow::Result<Vec<(&'static str, Value)>> {
    let (begin, broker) = (Instant::now(), &options.connection.broker);
    let client = match Client::look(options).await {
        Ok(client) => client,
        Err(error) if exit::code_of(&error) == exit::CONFIG => return Err(error),
        Err(error) => {
            let help =
                "look at --broker, at the server, at the network between, and at the login (--username, --cert-file)";
            findings.push(Finding::failed("broker", format!("{error:#}"), help));
            return Ok(Vec::new());
        }
    };
    findings.push(Finding::ok("broker", format!("{broker} has answered in {} ms", client.connected_in(begin))));
    findings.extend(finding::services(&client.fleet));
    findings.push(finding::versions(&client.births, env!("CARGO_PKG_VERSION")));
    findings.extend(finding::clocks(&client.births));
    findings.push(git(&client.fleet).await);
    findings.extend(rights(&client.fleet, &options.connection).await?);
    let rows = Rows::of(&client.fleet);
    let births: Vec<Value> =
        client.births.iter().map(|(node, birth)| json!({ "node": node.to_string(), "birth": birth })).collect();
    let documents = vec![
        ("clusters", json!(client.fleet.clusters())),
        ("hosts", json!(client.fleet.hosts(None))),
        ("joining-hosts", json!(client.fleet.joining_hosts(None))),
        ("deployments", json!(client.fleet.deployments())),
        ("alerts", json!(client.fleet.alerts())),
        ("rollout", json!(rows.rollout().values().collect::<Vec<_>>())),
        ("births", json!(births)),
    ];
    client.close().await;
    Ok(documents)
}

/// Whether the git server is there, and is reached from here.
async fn git(fleet: &Fleet) -> Finding {
    let check = "git server";
    let help = "clusters keep what they have until it is there: start it, and look at its log";
    match (fleet.manager.git_alive(), fleet.manager.git_url()) {
        (Some(false), _) => Finding::failed(check, "it is not alive", help),
        (None, _) => Finding::skipped(check, "the cluster manager does not say whether it is alive", help),
        (Some(true), None) => Finding::skipped(check, "it is alive, and the cluster manager does not say where", help),
        (Some(true), Some(url)) => match answers(url).await {
            Ok(()) => Finding::ok(check, format!("alive, and {url} answers")),
            Err(error) => {
                let help =
                    "that is as it should be where only edges reach it; else look at `git.url` and its certificate";
                Finding::warning(check, format!("alive, and {url} is not reached from here: {error:#}"), help)
            }
        },
    }
}

/// Whether an HTTP server answers at all.
async fn answers(url: &str) -> anyhow::Result<()> {
    let client = https_client::client::<Empty<Bytes>>(None)?;
    let request = Request::get(url).body(Empty::new())?;
    timeout(PATIENCE, client.request(request)).await.context("no answer in time")??;
    Ok(())
}

/// What the own user may and may not do at the broker, and how large a message may be.
async fn rights(fleet: &Fleet, connection: &Connection) -> anyhow::Result<Vec<Finding>> {
    let check = "rights";
    let all = "`sparkfleet acl check` tries every user whose credentials it is given";
    let user = user(connection)?;
    let mqtt = mqtt_config(connection)?;
    let site = site(fleet, connection)?;
    let principal = site.principals().into_iter().find(|principal| site.user(principal) == user);
    let mut findings = Vec::new();
    let commands =
        matches!(principal, None | Some(Principal::Operator | Principal::OneOperator(_) | Principal::Console));
    findings.push(match principal {
        None if user.is_empty() => {
            Finding::skipped(check, "this connection has no user, so the server knows of no rules for it", all)
        }
        None => Finding::skipped(check, format!("{user:?} is not a user that `sparkfleet acl generate` knows"), all),
        Some(
            principal @ (Principal::Operator | Principal::OneOperator(_) | Principal::Viewer | Principal::Console),
        ) => {
            let (tried, deviations) = acl_check::own(&site, &principal, &mqtt).await?;
            let help = "write the server's files again (`sparkfleet acl generate`), and have it read them";
            match deviations.len() {
                0 => Finding::ok(check, format!("{tried} attempts of {user} end as the table of rules says")),
                count => Finding::failed(
                    check,
                    format!(
                        "{count} of {tried} attempts of {user} do not end as the table of rules says: {}",
                        listed(&deviations)
                    ),
                    help,
                ),
            }
        }
        Some(_) => {
            Finding::skipped(check, format!("{user} does not receive everything, so it cannot see what arrives"), all)
        }
    });
    if commands {
        let group = fleet.organisation().central_group();
        let kib = MESSAGE_BYTES / 1024;
        findings.push(match acl_check::takes(&mqtt, &group, MESSAGE_BYTES).await {
            Ok(true) => Finding::ok("message size", format!("a message of {kib} KiB arrives")),
            Ok(false) => {
                let help = "raise the server's limit (Mosquitto: message_size_limit, max_packet_size), or lower `limits.message_bytes_max` of ConfigDB";
                Finding::failed("message size", format!("a message of {kib} KiB does not arrive"), help)
            }
            Err(reason) => Finding::failed("message size", reason, "look at the server's log"),
        });
    }
    Ok(findings)
}

fn site(fleet: &Fleet, connection: &Connection) -> anyhow::Result<Site> {
    let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    let host = HostId::new(&connection.host_id).context("--host-id").map_err(wrong)?;
    let organisation = Organisation::new(connection.organisation.clone()).context("--organisation").map_err(wrong)?;
    let clusters = fleet.clusters().into_iter().filter_map(|row| ClusterName::new(row.name).ok());
    Site::new(organisation, clusters, [host.clone()], [host]).map_err(|error| wrong(error.into()))
}

/// The console, if one is named; its events are for a bundle.
async fn console(
    source: &ReadingSource,
    options: &Options,
    documents: &mut Vec<(&'static str, Value)>,
) -> anyhow::Result<Vec<Finding>> {
    let check = "console";
    let Some(address) = listing::console_of(source)? else {
        return Ok(vec![Finding::skipped(check, "none is named", "add --console, or use a context that has one")]);
    };
    let api = ConsoleApi::open(address, &source.access, options.presentation.timeout)?;
    let asked = async {
        let session: Value = api.get("/api/v1/session", &[]).await?;
        let row = listing::table(&api, check).await?.pop().unwrap_or_default();
        anyhow::Ok((session, row))
    };
    let (session, row) = match asked.await {
        Ok(answers) => answers,
        Err(error) => {
            return Ok(vec![Finding::failed(check, format!("{error:#}"), "start it, or name the right address")]);
        }
    };
    if documents.iter().all(|(name, _)| *name != "console") {
        documents.push((check, row.clone()));
        if let Ok(events) = api.get("/api/v1/events", &[("limit", "1000".to_owned())]).await {
            documents.push(("events", events));
        }
    }
    Ok(of_console(&session, &row, api.address(), &options.connection.organisation, Clock::new().now().wall))
}

/// What a console says of itself. `wall`: UTC ms.
fn of_console(session: &Value, row: &Value, address: &str, organisation: &str, wall: u64) -> Vec<Finding> {
    let check = "console";
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let mut findings = Vec::new();
    let other = text(session, "organisation");
    if other != organisation {
        let help = "name the console of this organisation, or --organisation";
        findings.push(Finding::failed(
            check,
            format!("{address} is of organisation {other}, not {organisation}"),
            help,
        ));
    }
    if row["complete"] != true {
        let reason = row.pointer("/reasons/0").and_then(Value::as_str).unwrap_or("births are on their way");
        let help = "wait for births, or look at the service that it names";
        findings.push(Finding::warning(check, format!("it does not know everything: {reason}"), help));
    }
    if let Some(reason) = row.pointer("/history/reason").and_then(Value::as_str) {
        let help = "look at the disk of its `state_dir`";
        findings.push(Finding::warning(check, format!("it records no history: {reason}"), help));
    }
    if let Some(now) = session["now"].as_u64().filter(|now| now.abs_diff(wall) > CONSOLE_SKEW_MS) {
        let help = "let both machines follow a time server";
        findings.push(Finding::warning(
            "clocks",
            format!("the clock of the console differs by {} s", now.abs_diff(wall) / 1_000),
            help,
        ));
    }
    if findings.iter().all(|finding| finding.outcome == Outcome::Ok) {
        findings.push(Finding::ok(check, format!("{address} answers, version {}", text(session, "version"))));
    }
    findings
}

/// What this program is, and how it connects, without what it connects by.
fn program(options: &Options, wall: u64) -> Value {
    let Connection { broker, protocol, organisation, host_id, username, ca_file, cert_file, .. } = &options.connection;
    json!({
        "version": env!("CARGO_PKG_VERSION"), "os": std::env::consts::OS, "arch": std::env::consts::ARCH,
        "at": output::moment(wall), "broker": broker, "protocol": protocol, "organisation": organisation,
        "host_id": host_id, "has_username": username.is_some(), "has_ca_file": ca_file.is_some(),
        "has_certificate": cert_file.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_with_tls_has_a_certificate() {
        assert_eq!(tls_address("mqtts://broker.example"), Some(("broker.example".to_owned(), 8883)));
        assert_eq!(tls_address("mqtts://[::1]:8884"), Some(("::1".to_owned(), 8884)));
        assert_eq!((tls_address("mqtt://broker.example:1883"), tls_address("broker")), (None, None));
    }

    #[test]
    fn the_first_certificate_of_a_file_to_end_counts() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.pem");
        let made = |year: i32| {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
            parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
            parameters.self_signed(&key).unwrap().pem()
        };
        std::fs::write(&file, format!("{}{}", made(2031), made(2030))).unwrap();
        assert_eq!(ends_in_file(&file).unwrap(), 1_893_456_000);
        std::fs::write(&file, "").unwrap();
        assert!(ends_in_file(&file).unwrap_err().to_string().ends_with("holds no certificate"));
    }

    #[test]
    fn a_console_of_another_organisation_fails_and_one_that_lacks_something_is_a_warning() {
        let session = json!({ "organisation": "ACME", "version": "1.0.0", "now": 1_000_000 });
        let row = json!({ "complete": true, "reasons": [], "history": { "recording": true, "reason": null } });
        let of = |session: &Value, row: &Value| of_console(session, row, "http://c", "ACME", 1_001_000);
        let outcomes = |findings: &[Finding]| findings.iter().map(|one| one.outcome).collect::<Vec<_>>();
        assert_eq!(outcomes(&of(&session, &row)), [Outcome::Ok]);
        let other = json!({ "organisation": "OTHER", "now": 1_000_000 });
        assert_eq!(outcomes(&of(&other, &row)), [Outcome::Failed]);
        let late = json!({ "organisation": "ACME", "now": 1 });
        let lacks = json!({ "complete": false, "history": { "reason": "disk full" } });
        assert_eq!(outcomes(&of(&late, &lacks)), [Outcome::Warning; 3]);
    }
}
