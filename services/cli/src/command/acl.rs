//! `sparkfleet acl ...`: access control for MQTT servers. Needs no ConfigDB, and all but `check` no server.

use std::path::Path;

use anyhow::Context as _;
use broker_acl::{Broker, ConfigFile, configuration};
use service_runtime::{atomic_file, exit};

use super::{acl_check, acl_operator, acl_site, crl};
use crate::arguments::{AclCommand, BrokerKind};
use crate::output;

/// Carries out an access control command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: AclCommand) -> anyhow::Result<()> {
    let arguments = match command {
        AclCommand::Generate(arguments) => arguments,
        AclCommand::Check(arguments) => return acl_check::run(&arguments).await,
        AclCommand::Operator(arguments) => return acl_operator::run(&arguments),
        AclCommand::Crl(arguments) => return crl::run(&arguments),
    };
    let site = acl_site::site(&arguments.organisation, &arguments.site)?;
    let files = configuration(kind(arguments.broker), &site);
    match &arguments.directory {
        Some(directory) => write(directory, &files),
        None => {
            let shown = |file: &ConfigFile| format!("==> {} <==\n{}", file.name, file.text);
            output::print_text(&files.iter().map(shown).collect::<Vec<_>>().join("\n"))
        }
    }
}

const fn kind(broker: BrokerKind) -> Broker {
    match broker {
        BrokerKind::Mosquitto => Broker::Mosquitto,
        BrokerKind::MosquittoDynsec => Broker::MosquittoDynamicSecurity,
        BrokerKind::Emqx => Broker::Emqx,
        BrokerKind::Hivemq => Broker::HiveMq,
        BrokerKind::Vernemq => Broker::VerneMq,
    }
}

fn write(directory: &Path, files: &[ConfigFile]) -> anyhow::Result<()> {
    let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))
        .map_err(wrong)?;
    let paths: Vec<_> = files.iter().map(|file| directory.join(file.name)).collect();
    for (file, path) in files.iter().zip(&paths) {
        atomic_file::write(path, file.text.as_bytes(), None).map_err(|error| wrong(error.into()))?;
    }
    output::print_text(&paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n"))
}
