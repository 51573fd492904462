//! `sparkfleet up`: the whole factory in one process. Broker, ConfigDB, cluster manager, Identity, git server, central monitor, and a simulated edge cluster for every
//! cluster that is set up. What it shows it has replicated from the broker like any other Host Application.
#![warn(unreachable_pub)]

pub mod arguments;
pub mod broker;
mod charts;
pub mod edge;
mod factory;
pub mod gate;
mod hints;
pub mod host;
pub mod joining;
mod replay;
mod screen;
pub mod simulate;

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use configdb_schema::address::Organisation;
use fleet_view::Fleet;
use service_runtime::exit;
use service_runtime::shutdown::Shutdown;
use sparkfleet_cli::client::{Scope, filters};
use sparkplug::HostId;
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug_mqtt::Clock;

use arguments::UpArguments;
use factory::Factory;

/// How often the table is drawn at most.
const REDRAW: Duration = Duration::from_millis(500);

/// Columns and rows of a terminal that does not report its size.
const SIZE_UNKNOWN: (usize, usize) = (120, 50);

/// Runs the factory until the stop signal.
///
/// # Errors
/// With [`exit::UNAVAILABLE`] for a port that is taken, [`exit::CONFIG`] for arguments or files that cannot be used.
pub async fn run(arguments: UpArguments) -> anyhow::Result<()> {
    let organisation = Organisation::new(arguments.organisation.clone())
        .context("--organisation")
        .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    if let Some(file) = arguments.replay.clone() {
        return replay::run(&arguments, &file).await;
    }
    let load = factory::read_load(arguments.load.as_deref())?;
    let _lock = factory::prepare(&arguments)?;
    let shutdown = Shutdown::on_signals().context("cannot listen to signals")?;
    let factory = Factory::start(&arguments, &shutdown).await?;
    let shown = tokio::select! {
        shown = show(&arguments, organisation, &factory, load) => shown,
        () = shutdown.wait() => Ok(()),
        failed = factory.failed() => Err(failed),
    };
    eprintln!("stopping: every node publishes its death ...");
    factory.stop().await;
    shown
}

/// Follows the fleet on the screen; loads the first content; starts simulated edges.
async fn show(
    arguments: &UpArguments,
    organisation: Organisation,
    factory: &Factory,
    load: configdb_contract::dump::Dump,
) -> anyhow::Result<()> {
    let clock = Clock::new();
    let host_id = HostId::new(factory::TABLE).context("host id")?;
    let config =
        HostConfig { filters: filters(&organisation, Scope::Fleet), ..HostConfig::of_contracts(Some(host_id)) };
    let mut host = sparkplug_mqtt::spawn_host(config, &factory.table_mqtt()?, clock)?;
    let mut fleet = Fleet::new(organisation)?;
    for node in [fleet.config.node().clone(), fleet.manager.node().clone()] {
        host.request(HostRequest::Expect { node }).await?;
    }
    let mut first_content = factory::FirstContent::new(load, &arguments.data_dir, &fleet);
    let mut edges = factory.edges();
    let terminal = std::io::stdout().is_terminal() && !arguments.plain;
    let (header, next) = (hints::header(arguments, factory.places()), hints::next(arguments, factory.places()));
    if terminal {
        print_now("\x1b[2J")?;
    } else {
        print_now(&format!("{}\n{}\n", header.join("\n"), next.join("\n")))?;
    }
    let mut changes = screen::Changes::default();
    let mut redraw = tokio::time::interval(REDRAW);
    redraw.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            event = host.recv() => {
                let event: HostEvent = event.context("the session of the table has ended")?;
                let changes = fleet.on_event(&event);
                let now = clock.now();
                for request in first_content.on_changes(&fleet, &changes, now)? {
                    host.request(request).await?;
                }
                edges.follow(&fleet).await;
                for request in first_content.write_policies(edges.take_policies(), clock.now())? {
                    host.request(request).await?;
                }
            }
            () = clock.sleep_until(first_content.next_deadline()) => {
                for request in first_content.handle_timeout(clock.now())? {
                    host.request(request).await?;
                }
            }
            _ = redraw.tick() => {
                edges.follow(&fleet).await;
                if terminal {
                    print_now(&screen::draw(&fleet, &header, &next, clock.now().wall, size()))?;
                } else {
                    for line in changes.lines(&fleet) {
                        print_now(&format!("{} {line}\n", sparkfleet_cli::output::moment(clock.now().wall)))?;
                    }
                }
            }
        }
    }
}

/// Columns and rows of the terminal.
fn size() -> (usize, usize) {
    terminal_size::terminal_size().map_or(SIZE_UNKNOWN, |(width, height)| (width.0.into(), height.0.into()))
}

fn print_now(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A table that no one reads any more is not a reason to stop the factory.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("standard output"),
    }
}
