//! `sparkfleet up --replay FILE`: the console with a fleet as it was, in place of one that runs.
//!
//! | file | what is played | what it holds |
//! |---|---|---|
//! | export (`events --export`) | the console shows its rows in their time; there is no broker | what the console showed, for days |
//! | recording (`watch --record`) | its births, data and deaths are published on the embedded broker, and the console replicates them | every message, as it was |

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use console::adapters::replay::{self, Contents, Source};
use console::replay::Progress;
use fleet_view::history::export::moment;
use service_runtime::exit;
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use sparkfleet_cli::arguments::replay::ReplayArguments;
use sparkfleet_cli::options::Connection;
use sparkplug_mqtt::MqttConfig;
use tokio::sync::watch;

use crate::arguments::UpArguments;
use crate::broker::{Broker, BrokerConfig};
use crate::factory;

/// How often it is said how far a replay is.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Bytes of a first line by which a file is known.
const FIRST_LINE_MAX: u64 = 4 * 1024;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Export,
    Recording,
}

/// Shows a file until it is stopped.
///
/// # Errors
/// With [`exit::CONFIG`] for a file that is neither, or damaged; [`exit::UNAVAILABLE`] for a port that is taken.
pub(crate) async fn run(arguments: &UpArguments, file: &Path) -> anyhow::Result<()> {
    if let Some(broker) = &arguments.broker {
        let error = anyhow!(
            "--replay publishes on a broker of its own, so that no client takes what was for what is: leave out --broker {broker}, or unset SPARKFLEET_BROKER"
        );
        return Err(exit::with_code(exit::USAGE, error));
    }
    let kind = kind(file).with_context(|| format!("--replay {}", file.display()));
    let kind = kind.map_err(|error| exit::with_code(exit::CONFIG, error))?;
    match kind {
        Kind::Export => {
            let contents = replay::check(file).await.context("--replay")?;
            let (shutdown, _lock) = prepare(arguments)?;
            export(arguments, file, contents, shutdown).await
        }
        Kind::Recording => {
            let (shutdown, _lock) = prepare(arguments)?;
            recording(arguments, file, shutdown).await
        }
    }
}

/// The lock of the data directory, and an empty directory in it for what a console of a replay writes.
fn prepare(arguments: &UpArguments) -> anyhow::Result<(Shutdown, File)> {
    let lock = factory::prepare(arguments)?;
    let directory = console_dir(arguments);
    match std::fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let error = anyhow::Error::new(error).context(format!("cannot empty {}", directory.display()));
            return Err(exit::with_code(exit::CONFIG, error));
        }
        _ => {}
    }
    Ok((Shutdown::on_signals().context("cannot listen to signals")?, lock))
}

/// Of a replay alone: what it shows is not mixed with what the factory of this directory has recorded.
fn console_dir(arguments: &UpArguments) -> std::path::PathBuf {
    arguments.data_dir.join("replay")
}

fn kind(file: &Path) -> anyhow::Result<Kind> {
    let mut line = Vec::new();
    BufReader::new(File::open(file)?).take(FIRST_LINE_MAX).read_until(b'\n', &mut line)?;
    let first: serde_json::Value = serde_json::from_slice(&line).unwrap_or_default();
    match (first.get("sparkfleetHistory"), first.get("sparkplugRecording")) {
        (Some(_), None) => Ok(Kind::Export),
        (None, Some(_)) => Ok(Kind::Recording),
        _ => Err(anyhow!(
            "is neither an export (`sparkfleet events --export FILE`) nor a recording (`sparkfleet watch --record FILE`): its first line says nothing of either"
        )),
    }
}

async fn export(arguments: &UpArguments, file: &Path, contents: Contents, shutdown: Shutdown) -> anyhow::Result<()> {
    let Contents { header, changes, is_whole } = contents;
    let listener = factory::console_listener(arguments).await?;
    let address = listener.local_addr()?;
    let (progress, followed) = watch::channel(Progress::default());
    let source = Source { file: file.to_owned(), speed: arguments.speed, repeat: arguments.repeat, progress };
    let config = console::Config {
        organisation: header.organisation.clone(),
        state_dir: console_dir(arguments).into(),
        ..console::Config::default()
    };
    let (since, until) = (moment(header.since), moment(header.until));
    let cut = if is_whole { "" } else { "; it is cut off, its last line is missing" };
    crate::print_now(&format!(
        "sparkfleet {}: replay of fleet {}, {since} to {until}, {changes} changes{cut}\nconsole   http://{address}/\n",
        env!("CARGO_PKG_VERSION"),
        header.organisation,
    ))?;
    let console = console::replay(config, source, listener, shutdown.clone(), Health::new());
    tokio::select! {
        ended = console => ended,
        failed = print_progress(followed, changes, arguments.repeat) => failed,
    }
}

/// Prints how far a replay is, until it is dropped.
async fn print_progress(mut followed: watch::Receiver<Progress>, changes: u64, repeat: bool) -> anyhow::Result<()> {
    let mut ended = 0;
    loop {
        let is_gone = matches!(
            tokio::time::timeout(PROGRESS_EVERY, followed.wait_for(|progress| progress.ended > ended))
                .await
                .map(|seen| seen.is_err()),
            Ok(true)
        );
        // The player has nothing more to say, and the console continues.
        if is_gone {
            return std::future::pending().await;
        }
        let progress = *followed.borrow();
        if progress.ended > ended {
            ended = progress.ended;
            let next = if repeat { "it begins again" } else { "the console keeps showing its end; Ctrl-C stops it" };
            crate::print_now(&format!("the replay is over; {next}\n"))?;
        } else if progress.at > 0 && (repeat || ended == 0) {
            crate::print_now(&format!("{}: {} of {changes} changes\n", moment(progress.at), progress.changes))?;
        }
    }
}

async fn recording(arguments: &UpArguments, file: &Path, shutdown: Shutdown) -> anyhow::Result<()> {
    let listener = factory::console_listener(arguments).await?;
    let address = listener.local_addr()?;
    let config = BrokerConfig { listen: arguments.listen, ..BrokerConfig::default() };
    let broker = Broker::start(config).await.map_err(|error| exit::with_code(exit::UNAVAILABLE, error))?;
    let url = broker.url();
    let config = console::Config {
        organisation: arguments.organisation.clone(),
        state_dir: console_dir(arguments).into(),
        mqtt: MqttConfig {
            servers: vec![url.clone()],
            protocol: arguments.protocol,
            take_over: true,
            ..MqttConfig::default()
        },
        web: console::config::WebConfig { read_only: true, ..console::config::WebConfig::default() },
        ..console::Config::default()
    };
    crate::print_now(&format!(
        "sparkfleet {}: replay of {}\nconsole   http://{address}/\nembedded broker {url}\n",
        env!("CARGO_PKG_VERSION"),
        file.display(),
    ))?;
    let console_stop = Shutdown::new();
    let console = tokio::spawn(console::serve(config, listener, console_stop.clone(), Health::new()));
    let played = sparkfleet_cli::command::replay::play_until(replay_arguments(arguments, file, url), &shutdown).await;
    if played.is_ok() && !shutdown.is_triggered() {
        crate::print_now("the replay is over; the console keeps showing its end; Ctrl-C stops it\n")?;
        shutdown.wait().await;
    }
    console_stop.trigger();
    let served = console.await.context("the console has panicked")?;
    broker.stop().await;
    played.and(served)
}

fn replay_arguments(arguments: &UpArguments, file: &Path, broker: String) -> ReplayArguments {
    ReplayArguments {
        file: file.to_owned(),
        speed: arguments.speed,
        repeat: arguments.repeat,
        group_prefix: String::new(),
        filter: sparkfleet_cli::watch::FilterArguments::default(),
        connection: Connection {
            context: None,
            broker,
            protocol: arguments.protocol,
            organisation: arguments.organisation.clone(),
            username: None,
            password_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            host_id: "sparkfleet-replay".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_first_line() {
        let directory = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            let path = directory.path().join("file");
            std::fs::write(&path, text).unwrap();
            kind(&path)
        };
        assert_eq!(of("{\"sparkplugRecording\":1}\n{").unwrap(), Kind::Recording);
        assert_eq!(of("{\"sparkfleetHistory\":1,\"organisation\":\"A\"}\n").unwrap(), Kind::Export);
        let long = format!("{{\"sparkfleetHistory\":\"{}\"}}", "x".repeat(1 << 20));
        for text in ["", "PNG", "{}", "[1]", long.as_str()] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains("neither an export"), "{error}");
        }
        assert!(kind(&directory.path().join("none")).is_err());
    }
}
