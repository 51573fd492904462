//! A Host Application on the command line, to be driven by users, by scripts and by the official compliance kit.
//!
//! ```text
//! cargo run -p tck --bin tck-host -- --host-id Office
//! ```
//!
//! It prints what it receives: births, data, deaths, with names and types resolved. It reads commands from standard input, whose end is a `stop`. A word with
//! spaces is written in double quotes; `src/console/value.rs` describes how values are written.
//!
//! | line | |
//! |---|---|
//! | `ncmd GROUP NODE NAME TYPE VALUE` | NCMD with one metric; dropped while offline |
//! | `dcmd GROUP NODE DEVICE NAME TYPE VALUE` | DCMD |
//! | `rebirth GROUP NODE` | asks the node for its births |
//! | `expect GROUP NODE`, `forget GROUP NODE` | asks for births until they come; takes that back and drops the replica |
//! | `state GROUP NODE` | prints whether the node and its devices are alive, or since when they are dead (ms since 1970): of NDEATH the time of its arrival, of DDEATH its own |
//! | `stop` | STATE offline, DISCONNECT, end |
//! | `close` | STATE offline, end of the connection without a DISCONNECT, end; needs `--relay` |
//! | `drop` | end as if killed: the server publishes the will |
#![allow(clippy::print_stdout, reason = "a program on the command line")]

use clap::Parser;
use sparkplug::host::{HostConfig, HostEvent, HostRequest, Liveness};
use sparkplug::payload::Dialect;
use sparkplug::{DeviceId, EdgeNodeDescriptor, HostId};
use sparkplug_mqtt::{Clock, HostRequests, MqttConfig, NodeSnapshot, spawn_host};
use tck::console::{self, Words, word};

/// A Sparkplug Host Application that prints what it receives
#[derive(Debug, Parser)]
struct Args {
    /// Host id
    #[arg(long, default_value = "Office")]
    host_id: HostId,
    /// Milliseconds that a gap in the sequence numbers may stay open
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    reorder_timeout: u64,
    /// Never ask nodes for rebirth on its own
    #[arg(long)]
    no_rebirth_requests: bool,
    /// How commands are written: strict, or tahu for nodes that keep no births
    #[arg(long, default_value = "strict")]
    dialect: Dialect,
    /// Be on every server of the list at once, not on one after the other
    #[arg(long)]
    all_servers: bool,
    #[command(flatten)]
    server: console::Server,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut args = Args::parse();
    let relays = args.server.relayed().await?;
    let config = HostConfig {
        reorder_timeout: std::time::Duration::from_millis(args.reorder_timeout),
        rebirth_requests: !args.no_rebirth_requests,
        dialect: args.dialect,
        reconnect: args.server.backoff(),
        ..HostConfig::new(Some(args.host_id))
    };
    let mqtt = MqttConfig { all_servers: args.all_servers, ..args.server.config() };
    let mut host = spawn_host(config, &mqtt, Clock::new())?;
    let requests = host.requests();
    let mut lines = console::lines();
    loop {
        tokio::select! {
            event = host.recv() => match event {
                Some(event) => print(&event),
                None => return Ok(()),
            },
            line = lines.recv() => match line.as_deref().map(str::trim) {
                None | Some("stop") => break,
                Some("close") => match relays.withhold_disconnect() {
                    Ok(()) => break,
                    Err(error) => eprintln!("close: {error}"),
                },
                // The process ends at once, without a DISCONNECT.
                Some("drop") => std::process::exit(0),
                Some("") => {}
                Some(line) => if let Err(error) = order(&requests, line).await {
                    eprintln!("{line}: {error}");
                },
            },
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                break;
            }
        }
    }
    host.stop().await;
    println!("stopped");
    Ok(())
}

async fn order(requests: &HostRequests, line: &str) -> Result<(), String> {
    let mut words = Words::of(line);
    let request = match &*words.next("the order")? {
        "ncmd" => HostRequest::Command { node: node(&mut words)?, device: None, metrics: vec![words.metric()?] },
        "dcmd" => {
            let node = node(&mut words)?;
            let device = DeviceId::new(words.next("the device")?).map_err(|error| error.to_string())?;
            HostRequest::Command { node, device: Some(device), metrics: vec![words.metric()?] }
        }
        "rebirth" => HostRequest::Rebirth { node: node(&mut words)? },
        "expect" => HostRequest::Expect { node: node(&mut words)? },
        "forget" => HostRequest::Forget { node: node(&mut words)? },
        "state" => {
            let node = node(&mut words)?;
            let known = requests.node(&node).await.map_err(|error| error.to_string())?;
            print_state(&node, known.as_ref());
            return Ok(());
        }
        _ => return Err("is none of ncmd, dcmd, rebirth, expect, forget, state, stop, close, drop".to_owned()),
    };
    requests.request(request).await.map_err(|error| error.to_string())
}

fn node(words: &mut Words<'_>) -> Result<EdgeNodeDescriptor, String> {
    let group = words.next("the group")?;
    let edge_node = words.next("the edge node")?;
    EdgeNodeDescriptor::parse(&group, &edge_node).map_err(|error| error.to_string())
}

/// What is known of a node, in a line, and in one for each device.
fn print_state(node: &EdgeNodeDescriptor, known: Option<&NodeSnapshot>) {
    let Some(known) = known else { return println!("state {} unknown", of_node(node)) };
    let ended = |of: &str, stale_at: Option<u64>| stale_at.map_or("alive".to_owned(), |since| format!("{of} {since}"));
    let word_of_node = if known.liveness == Liveness::Stale { "stale" } else { "dead" };
    println!("state {} {}", of_node(node), ended(word_of_node, known.stale_at));
    for (device, replica) in &known.devices {
        let with_node = replica.stale_at == known.stale_at;
        let ended = ended(if with_node { word_of_node } else { "dead" }, replica.stale_at);
        println!("  {} {ended}", word(device.as_str()));
    }
}

fn of_node(node: &EdgeNodeDescriptor) -> String {
    format!("{} {}", word(node.group.as_str()), word(node.edge_node.as_str()))
}

fn print(event: &HostEvent) {
    let of_device =
        |node: &EdgeNodeDescriptor, device: &DeviceId| format!("{} {}", of_node(node), word(device.as_str()));
    match event {
        HostEvent::Online => println!("online"),
        HostEvent::Offline { reason } => println!("offline: {reason}"),
        HostEvent::NodeBirth { node, bd_seq, metrics, .. } => {
            println!("NBIRTH {} bdSeq={}", of_node(node), bd_seq.get());
            console::print_metrics(&**metrics);
        }
        HostEvent::NodeData { node, metrics, .. } => {
            println!("NDATA {}", of_node(node));
            console::print_metrics(metrics);
        }
        HostEvent::NodeDeath { node, .. } => println!("NDEATH {}", of_node(node)),
        // This program asks for neither.
        HostEvent::Message { .. } | HostEvent::NodeMessages { .. } | HostEvent::Aliases { .. } => {}
        HostEvent::DeviceBirth { node, device, metrics, .. } => {
            println!("DBIRTH {}", of_device(node, device));
            console::print_metrics(&**metrics);
        }
        HostEvent::DeviceData { node, device, metrics, .. } => {
            println!("DDATA {}", of_device(node, device));
            console::print_metrics(metrics);
        }
        HostEvent::DeviceDeath { node, device, .. } => println!("DDEATH {}", of_device(node, device)),
        HostEvent::NodeStale { node, reason } => println!("stale {}: {reason}", of_node(node)),
        HostEvent::RebirthRequested { node, reason } => println!("rebirth requested of {}: {reason}", of_node(node)),
        HostEvent::HostState { host, state } => {
            println!("STATE {} {}", word(host.as_str()), if state.online { "online" } else { "offline" });
        }
        HostEvent::Rejected { topic, reason } => println!("rejected {topic}: {reason}"),
        HostEvent::HostServed { .. } | HostEvent::Stopped => {}
    }
}
