//! `sparkfleet host prepare`: cloud-init's user data for the hosts of a cluster: the bootstrapper's configuration, checked by its rules, and its units started.
//! Nothing of it is secret: what a host logs in to the broker with is named by its path on the host.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::{Context as _, anyhow};
use configdb_schema::{ClusterName, Organisation};
use join_protocol::message::evidence::is_node_name;
use serde_json::json;
use service_runtime::atomic_file;
use service_runtime::exit;
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

use crate::arguments::joining::PrepareArguments;
use crate::client::{Client, Scope};
use crate::input::read;
use crate::look_up;
use crate::output;

/// Where the authorities that the broker is trusted by lie on the host.
const CA_FILE: &str = "/etc/sparkfleet/mqtt/ca.crt";
/// Where the password lies, if nothing else is said.
const PASSWORD_FILE: &str = "/etc/sparkfleet/mqtt/password";
const CONFIGURATION: &str = "/etc/sparkfleet/bootstrapper.toml";

/// A file that the host gets.
struct HostFile {
    path: &'static str,
    mode: &'static str,
    content: String,
}

/// Writes the user data.
///
/// # Errors
/// With [`exit::CONFIG`]: a file cannot be read, or the bootstrapper could not use the configuration; as documented for the exit codes.
pub async fn run(arguments: PrepareArguments) -> anyhow::Result<()> {
    let client = Client::open(&arguments.options, Scope::Config).await?;
    let found =
        look_up::cluster_entry(&client.fleet, &arguments.cluster).map(|(uuid, cluster)| (uuid, cluster.name.clone()));
    client.close().await;
    let (uuid, name) = found?;
    let root_file = arguments.trust.join(join_trust::files::ROOT_PUBLIC);
    let root = read(&root_file)?.trim().to_owned();
    let authorities = arguments.server_ca.as_deref().map(read).transpose()?;
    let configuration = configuration(&arguments, &name, uuid, &root)?;
    let text = user_data(&[
        HostFile { path: CONFIGURATION, mode: "0644", content: configuration },
        HostFile { path: CA_FILE, mode: "0644", content: authorities.unwrap_or_default() },
    ]);
    match &arguments.out {
        None => std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output"),
        Some(out) => {
            atomic_file::write(out, text.as_bytes(), Some(0o644))?;
            let value = json!({ "cluster": name, "uuid": uuid, "root": root, "disk": arguments.disk, "file": out });
            let lines = || {
                vec![
                    format!("{}: user data for hosts of {name} ({uuid}); no secret is in it", out.display()),
                    format!("  believes the root {root}"),
                    format!("  logs in by {}", login(&arguments)),
                ]
            };
            output::print(arguments.options.presentation.output, lines, &value)
        }
    }
}

fn login(arguments: &PrepareArguments) -> String {
    match (&arguments.host_cert_file, &arguments.host_password_file) {
        (Some(certificate), _) => format!("the certificate in {} on the host", certificate.display()),
        (None, Some(file)) => format!("the password in {} on the host", file.display()),
        (None, None) => format!("the password in {PASSWORD_FILE} on the host"),
    }
}

/// The bootstrapper's configuration as a file.
fn configuration(arguments: &PrepareArguments, name: &str, uuid: Uuid, root: &str) -> anyhow::Result<String> {
    check(arguments, root)?;
    let organisation = &arguments.options.connection.organisation;
    // What JSON writes of a string is a string of TOML.
    let text = |value: &str| json!(value).to_string();
    let mut lines = String::new();
    let mut line = |key: &str, value: String| writeln!(lines, "{key} = {value}");
    line("organisation", text(organisation))?;
    line("role", text(if arguments.control_plane { "control-plane" } else { "worker" }))?;
    if let Some(name) = &arguments.name {
        line("node_name", text(name))?;
    }
    if !arguments.address.is_empty() {
        line("addresses", json!(arguments.address).to_string())?;
    }
    write!(
        lines,
        "\n[cluster]\nname = {}\nuuid = \"{uuid}\"\n\n[trust]\nroot = {}\n\n[attestation]\nlock_pcr = {}\n\n[disk]\ndevice = {}\nformat = true\n",
        text(name),
        text(root),
        arguments.lock,
        text(&arguments.device.display().to_string()),
    )?;
    if let Some(disk) = arguments.disk {
        writeln!(lines, "uuid = \"{disk}\"")?;
    }
    let distribution = arguments.distribution.name();
    write!(
        lines,
        "\n[kubernetes]\ndistribution = {}\n\n[mqtt]\nservers = {}\n",
        text(distribution),
        json!(arguments.server)
    )?;
    if arguments.server_ca.is_some() {
        writeln!(lines, "ca_file = {}", text(CA_FILE))?;
    }
    match (&arguments.host_cert_file, &arguments.host_key_file) {
        (Some(certificate), Some(key)) => {
            let [certificate, key] = [certificate, key].map(|path| text(&path.display().to_string()));
            write!(lines, "cert_file = {certificate}\nkey_file = {key}\n")?;
        }
        _ => {
            let user = user(arguments, organisation, name)?;
            let file = arguments.host_password_file.as_deref().map(|file| file.display().to_string());
            let file = text(file.as_deref().unwrap_or(PASSWORD_FILE));
            write!(lines, "username = {}\npassword_file = {file}\n", text(&user))?;
        }
    }
    Ok(lines)
}

/// The user of the broker: as given, that of the state disk, or that of all hosts of the cluster.
fn user(arguments: &PrepareArguments, organisation: &str, name: &str) -> anyhow::Result<String> {
    if let Some(user) = &arguments.host_username {
        return Ok(user.clone());
    }
    if let Some(disk) = arguments.disk {
        return Ok(disk.hyphenated().to_string());
    }
    let organisation = Organisation::new(organisation).context("--organisation")?;
    let name = ClusterName::new(name).context("name of the cluster")?;
    Ok(organisation.join_group(&name))
}

/// Judges the values by the rules that the bootstrapper has for them; the file of authorities is the one that lies here.
fn check(arguments: &PrepareArguments, root: &str) -> anyhow::Result<()> {
    let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    if hex::decode(root).map_or(0, |key| key.len()) != 32 {
        return Err(wrong(anyhow!("root.pub must have 64 hexadecimal digits")));
    }
    if let Some(name) = arguments.name.as_deref().filter(|name| !is_node_name(name)) {
        return Err(wrong(anyhow!("--name {name:?} is not an RFC 1123 subdomain")));
    }
    if let Some(address) = arguments.address.iter().find(|text| text.parse::<std::net::IpAddr>().is_err()) {
        return Err(wrong(anyhow!("--address {address:?} is not an IP address")));
    }
    if !arguments.device.is_absolute() {
        return Err(wrong(anyhow!("--device must be an absolute path")));
    }
    let named = arguments.host_username.as_deref().and_then(|user| Uuid::parse_str(user).ok());
    if named.zip(arguments.disk).is_some_and(|(user, disk)| user != disk) {
        return Err(wrong(anyhow!("--host-username is another UUID than --disk")));
    }
    let mqtt =
        MqttConfig { servers: arguments.server.clone(), ca_file: arguments.server_ca.clone(), ..MqttConfig::default() };
    mqtt.validate().context("--server or --server-ca").map_err(wrong)
}

/// A document of cloud-init. Files without content are left out.
fn user_data(files: &[HostFile]) -> String {
    let mut text = "#cloud-config\nwrite_files:\n".to_owned();
    for file in files.iter().filter(|file| !file.content.is_empty()) {
        let HostFile { path, mode, content } = file;
        text += &format!("  - path: {path}\n    permissions: \"{mode}\"\n    content: |\n");
        for line in content.lines() {
            text += if line.is_empty() { "" } else { "      " };
            text += line;
            text.push('\n');
        }
    }
    text += "runcmd:\n  - [systemctl, enable, --now, sparkfleet-bootstrapper.service, sparkfleet-bootstrapper-renew.timer]\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    const CLUSTER: Uuid = Uuid::from_u128(0x6f6e_e2b1);

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        prepare: PrepareArguments,
    }

    /// Authorities that hosts trust the broker by.
    fn authorities() -> tempfile::NamedTempFile {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), parameters.self_signed(&key).unwrap().pem()).unwrap();
        file
    }

    fn arguments(authorities: Option<&tempfile::NamedTempFile>, more: &[&str]) -> PrepareArguments {
        let line = ["test", "Paint_Shop", "--server", "mqtts://broker.plant.example:8883"];
        let authorities = authorities.map(|file| ["--server-ca".to_owned(), file.path().display().to_string()]);
        let line = line.iter().chain(more).map(|text| (*text).to_owned()).chain(authorities.into_iter().flatten());
        Line::try_parse_from(line).unwrap().prepare
    }

    fn of(authorities: Option<&tempfile::NamedTempFile>, more: &[&str], root: &str) -> anyhow::Result<String> {
        configuration(&arguments(authorities, more), "Paint_Shop", CLUSTER, root)
    }

    /// What cloud-init would write on the host, by path.
    fn written(text: &str) -> Vec<(String, String)> {
        let document: serde_json::Value = serde_saphyr::from_str(text).unwrap();
        assert_eq!(document["runcmd"][0][0], "systemctl");
        let files = document["write_files"].as_array().unwrap().iter();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        files.map(|file| (text(&file["path"]), text(&file["content"]))).collect()
    }

    #[test]
    fn a_host_reads_what_was_prepared_for_it() {
        let site = tempfile::tempdir().unwrap();
        let password = site.path().join("password");
        std::fs::write(&password, "of the broker\n").unwrap();
        let password = password.display().to_string();
        let disk = "0d3f9c1e-6f0a-4d57-9a53-3f6f3c9b7a10";
        let more = [
            "--name",
            "press-1",
            "--address",
            "10.1.0.7",
            "--control-plane",
            "--disk",
            disk,
            "--host-password-file",
            &password,
        ];
        let authorities = authorities();
        let certificate = std::fs::read_to_string(authorities.path()).unwrap().replace("\r\n", "\n");
        let text = user_data(&[
            HostFile {
                path: CONFIGURATION,
                mode: "0644",
                content: of(Some(&authorities), &more, &"ab".repeat(32)).unwrap(),
            },
            HostFile { path: CA_FILE, mode: "0644", content: certificate.clone() },
        ]);
        let files = written(&text);
        assert_eq!(files[1], (CA_FILE.to_owned(), certificate));
        assert!(!text.contains("of the broker"), "a secret is named by its path");
        let lines: Vec<&str> = files[0].1.lines().collect();
        let user = format!("username = \"{disk}\"");
        for line in [
            "organisation = \"ACME\"",
            "role = \"control-plane\"",
            "node_name = \"press-1\"",
            "addresses = [\"10.1.0.7\"]",
            "name = \"Paint_Shop\"",
            "format = true",
            &format!("uuid = \"{disk}\""),
            "servers = [\"mqtts://broker.plant.example:8883\"]",
            &user,
        ] {
            assert!(lines.contains(&line), "{line}: {}", files[0].1);
        }
    }

    #[test]
    fn all_hosts_of_a_cluster_share_a_user_unless_they_have_names_of_their_own() {
        let (root, authorities) = ("ab".repeat(32), authorities());
        let text = of(Some(&authorities), &[], &root).unwrap();
        assert!(
            text.contains("username = \"ACME-Paint_Shop-Join\"\npassword_file = \"/etc/sparkfleet/mqtt/password\"")
        );
        let more = ["--host-cert-file", "/etc/sparkfleet/host.pem", "--host-key-file", "/etc/sparkfleet/host.key"];
        let text = of(Some(&authorities), &more, &root).unwrap();
        assert!(text.ends_with("cert_file = \"/etc/sparkfleet/host.pem\"\nkey_file = \"/etc/sparkfleet/host.key\"\n"));
    }

    #[test]
    fn what_the_bootstrapper_would_refuse_is_refused_here_by_its_key() {
        let (root, authorities) = ("ab".repeat(32), authorities());
        let refused =
            |authorities, more: &[&str], root: &str| format!("{:#}", of(authorities, more, root).unwrap_err());
        let some = Some(&authorities);
        assert!(refused(some, &[], "xy").contains("root.pub must have 64 hexadecimal digits"));
        assert!(refused(some, &["--name", "Press 1"], &root).contains("RFC 1123"));
        assert!(refused(some, &["--address", "press-1"], &root).contains("--address \"press-1\""));
        assert!(refused(None, &[], &root).contains("ca_file"), "mqtts needs authorities");
    }
}
