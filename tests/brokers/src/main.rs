//! Which MQTT servers carry Sparkfleet. Starts each of them, opens Sparkplug sessions of the library on it, and runs a whole factory on it. Prints a table as
//! Markdown, with one line for whatever failed. Exit code 1 if a server that is said to work does not.

mod factory;
mod server;
mod session;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use e2e::wait;
use sparkplug_mqtt::Protocol;

use server::{SERVERS, Server};

/// Try MQTT servers with Sparkplug sessions and a whole factory
#[derive(Debug, Parser)]
struct Arguments {
    /// Only these: mosquitto rabbitmq hivemq artemis aedes mochi embedded
    servers: Vec<String>,
}

/// Longer steps are named with their time.
const LONG: Duration = Duration::from_secs(20);

/// What a story does at present and since when, so that a failure can say where.
#[derive(Debug, Clone)]
pub struct Step(Arc<Mutex<(String, Instant)>>);

impl Step {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(("it starts".to_owned(), Instant::now()))))
    }

    /// From here on it does this.
    pub fn begin(&self, what: &str) {
        let mut step = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, since) = std::mem::replace(&mut *step, (what.to_owned(), Instant::now()));
        if since.elapsed() > LONG {
            let _ = writeln!(io::stderr(), "  {:.0?}: {before}", since.elapsed());
        }
    }

    fn name(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

/// One cell of the table, and whether it is what the server is said to do.
struct Cell {
    text: String,
    good: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let unknown = arguments.servers.iter().find(|name| !SERVERS.iter().any(|server| server.name == **name));
    if let Some(name) = unknown {
        anyhow::bail!("there is no server {name:?}; there are: {}", SERVERS.map(|server| server.name).join(" "));
    }
    let wanted = |server: &&Server| arguments.servers.is_empty() || arguments.servers.iter().any(|n| n == server.name);
    let (mut lines, mut all_good) = (Vec::new(), true);
    for server in SERVERS.iter().filter(wanted) {
        let mut cells = Vec::new();
        for protocol in [Protocol::V311, Protocol::V5] {
            cells.push(sessions(server, protocol).await);
            cells.push(factory(server, protocol).await);
        }
        all_good &= cells.iter().all(|cell| cell.good);
        let texts: Vec<&str> = cells.iter().map(|cell| cell.text.as_str()).collect();
        lines.push(format!("| {} | {} | {} | {} |", server.title, server.version()?, texts.join(" | "), server.needs));
    }
    let mut out = io::stdout().lock();
    writeln!(out, "| MQTT server | version | 3.1.1: sessions | factory | 5: sessions | factory | needs |")?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn sessions(server: &'static Server, protocol: Protocol) -> Cell {
    let step = Step::new();
    let current = step.clone();
    // With a server that does not speak it, a client that leaves the version open speaks 3.1.1.
    let is_spoken = server.speaks(protocol);
    let tried = if is_spoken { protocol } else { Protocol::Auto };
    let story = async move {
        let running = server.start().await;
        session::story(running.address(), tried, &current).await;
    };
    let cell = verdict(server, tried, "sessions", story, &step).await;
    if is_spoken || !cell.good {
        return cell;
    }
    let except = if cell.text == "yes" { String::new() } else { format!(", {}", cell.text) };
    Cell { text: format!("does not speak it; `auto` speaks 3.1.1{except}"), ..cell }
}

async fn factory(server: &'static Server, protocol: Protocol) -> Cell {
    if !server.speaks(protocol) {
        return Cell { text: "does not speak it".to_owned(), good: true };
    }
    let step = Step::new();
    let current = step.clone();
    let story = async move {
        let running = server.start().await;
        factory::story(running.address(), protocol, &current).await;
    };
    verdict(server, protocol, "factory", story, &step).await
}

/// Runs a story, whose failures are panics.
async fn verdict(
    server: &Server,
    protocol: Protocol,
    kind: &str,
    story: impl Future<Output = ()> + Send + 'static,
    step: &Step,
) -> Cell {
    let began = Instant::now();
    let ended = tokio::time::timeout(wait::PATIENCE * 5, tokio::spawn(story)).await;
    let is_v5 = protocol == Protocol::V5;
    let whole = matches!(ended, Ok(Ok(())));
    let known = server.fault.filter(|(failing, _)| !whole && !is_v5 && failing.contains(&step.name().as_str()));
    let text = match known {
        _ if whole => "yes".to_owned(),
        Some((_, fault)) => fault.to_owned(),
        None => format!("**no**: {}", step.name()),
    };
    let good = whole || known.is_some();
    let _ = writeln!(io::stderr(), "{} MQTT {protocol:?} {kind}: {text} ({:.0?})", server.name, began.elapsed());
    Cell { text, good }
}
