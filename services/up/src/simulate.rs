//! `sparkfleet simulate-cluster`: one simulated edge cluster against a broker and a git server that are somewhere else; `simulate-host`: one simulated host that wants to join.

use std::collections::BTreeMap;

use anyhow::Context as _;
use bootstrapper::config::RoleChoice;
use service_runtime::exit;
use service_runtime::logging::{self, LogFormat};
use service_runtime::shutdown::Shutdown;

use crate::arguments::{SimulateArguments, SimulateHostArguments};
use crate::edge::{EdgeSpec, SimulatedEdge};
use crate::host::{Home, Machine, boot_chain};
use sparkfleet_cli::client::{Client, Scope, mqtt_config};
use sparkfleet_cli::input::read;
use sparkfleet_cli::look_up;

/// Runs the cluster until the stop signal.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(arguments: SimulateArguments) -> anyhow::Result<()> {
    logging::init(LogFormat::Human, "info").map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let git_password = match &arguments.git_password_file {
        Some(file) => read(file)?.trim_end_matches(['\r', '\n']).to_owned(),
        None => String::new(),
    };
    let self_link = read(&arguments.self_link)?;
    let mqtt = sparkplug_mqtt::MqttConfig {
        // Every node of the cluster has a session of its own; their client ids are made of their Sparkplug ids.
        client_id_prefix: sparkplug_mqtt::MqttConfig::default().client_id_prefix,
        ..mqtt_config(&arguments.connection)?
    };
    let shutdown = Shutdown::on_signals().context("cannot listen to signals")?;
    let spec = EdgeSpec {
        name: arguments.name.clone(),
        namespace: arguments.namespace.clone(),
        self_link,
        git_password,
        hosts: arguments.hosts,
        state_dir: arguments.data_dir.join(&arguments.name),
        organisation: arguments.connection.organisation.clone(),
        host_logins: BTreeMap::new(),
        mqtt,
        joining: None,
    };
    let edge = SimulatedEdge::start(spec, &shutdown).await?;
    let api = edge.kubernetes_url().context("the simulated API does not listen")?;
    eprintln!("simulated edge cluster {} runs, its Kubernetes API is {api}; Ctrl-C stops it", arguments.name);
    shutdown.wait().await;
    edge.stop().await;
    Ok(())
}

/// Runs the host until the stop signal. Its TPM and its disk stay.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run_host(arguments: SimulateHostArguments) -> anyhow::Result<()> {
    logging::init(LogFormat::Human, "info").map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let root = read(&arguments.root)?.trim().to_owned();
    let options = &arguments.options;
    let client = Client::open(options, Scope::Config).await?;
    let found = look_up::cluster_entry(&client.fleet, &arguments.cluster);
    client.close().await;
    let (uuid, cluster) = found?;
    let directory = arguments.data_dir.join(&cluster.name).join(&arguments.name);
    let machine = Machine::new(&directory, uuid, &arguments.name, boot_chain(&arguments.measure))?;
    let own = mqtt_config(&options.connection)?;
    let home = Home {
        organisation: options.connection.organisation.clone(),
        cluster: cluster.name.clone(),
        uuid,
        root,
        mqtt: sparkplug_mqtt::MqttConfig {
            client_id_prefix: sparkplug_mqtt::MqttConfig::default().client_id_prefix,
            servers: arguments.host_broker.clone().map_or_else(|| own.servers.clone(), |server| vec![server]),
            ..own
        },
    };
    let role = if arguments.control_plane { RoleChoice::ControlPlane } else { RoleChoice::Worker };
    let shutdown = Shutdown::on_signals().context("cannot listen to signals")?;
    eprintln!(
        "simulated host {} of {}: state disk {}, endorsement key {}; Ctrl-C stops it",
        machine.hostname,
        cluster.name,
        machine.disk,
        machine.endorsement_key()
    );
    machine.run(home, role, None, arguments.renew_every, shutdown).await;
    Ok(())
}
