//! `sparkfleet simulate-cluster`: one simulated edge cluster against a broker and a git server that are somewhere else.

use anyhow::Context as _;
use service_runtime::exit;
use service_runtime::logging::{self, LogFormat};
use service_runtime::shutdown::Shutdown;

use super::read;
use crate::cli::SimulateArguments;
use crate::client::mqtt_config;
use crate::up::edge::{EdgeSpec, SimulatedEdge};

/// Runs the cluster until it is told to stop.
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
        mqtt,
    };
    let edge = SimulatedEdge::start(spec, &shutdown).await?;
    eprintln!("simulated edge cluster {} runs; Ctrl-C stops it", arguments.name);
    shutdown.wait().await;
    edge.stop().await;
    Ok(())
}
