//! Our Host Application beside its peers, on the same prepared stream of MQTT packets: `cargo run --release --manifest-path tests/peers/Cargo.toml -p ingest`.
//!
//! A plain TCP server replaces the MQTT server, so that nothing of a real one is measured. It sends births and waits until the contender says that it has them. Then it sends
//! data as fast as the contender reads. Each contender is a process of its own with one thread; what counts is that process' CPU time, because the machine is shared. Contenders
//! take turns over several rounds; ratios are made within a round, and their median is what to trust.
//!
//! | contender | does |
//! |---|---|
//! | raw rumqttc | takes packets off the connection and counts them: nothing of Sparkplug |
//! | rumqttc and visitor | takes all packets that rumqttc has read in one go, as we do, and walks over every field of them: what no host with this client can be faster than |
//! | TCP and visitor | takes packets off a plain socket and walks over every field of them: builds and keeps nothing |
//! | ours | `sparkplug-mqtt`: decodes, orders, replicates, hands every event to an application that counts metrics |
//! | ours, machine | the machine alone, without a connection, on the same payloads |
//! | srad, no store | decodes, orders, hands to a store that counts metrics and keeps nothing |
//! | srad, store | the same with a store that keeps the last value of each metric in a `HashMap`, as the example in srad's documentation does |

mod allocations;
mod broker;
mod contender;
mod kind;
mod report;
mod stream;
#[path = "../../src/walk.rs"]
mod walk;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use kind::Kind;
use report::{Run, Table};
use stream::{Names, Stream};

/// Rounds; odd, so that there is a median.
const ROUNDS: usize = 5;

/// What a fleet is, and how much it says.
#[derive(Debug, Clone, Copy)]
struct Fleet {
    nodes: usize,
    /// Beside `bdSeq` and `Node Control/Rebirth`.
    metrics: usize,
    names: Names,
    /// How often each node's 256 data messages are sent.
    cycles: usize,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("contender") => contender::run(&arguments.collect::<Vec<_>>()),
        None => {
            ingest(&Kind::ALL);
            memory();
        }
        Some("ingest") => match arguments.map(|name| Kind::of_argument(&name)).collect::<Option<Vec<Kind>>>() {
            Some(kinds) if kinds.is_empty() => ingest(&Kind::ALL),
            Some(kinds) => ingest(&kinds),
            None => eprintln!("contenders: {}", Kind::ALL.map(Kind::argument).join(", ")),
        },
        Some("memory") => memory(),
        Some(_) => eprintln!("ingest [ingest [contender...] | memory]"),
    }
}

fn ingest(kinds: &[Kind]) {
    println!("Process CPU time, one thread each; {ROUNDS} rounds in turn; load average {}\n", load());
    let ingest = |nodes, metrics, cycles| Fleet { nodes, metrics, names: Names::OfKind, cycles };
    for (fleet, rounds) in
        [(ingest(100, 50, 40), ROUNDS), (ingest(2_000, 50, 1), ROUNDS), (ingest(5_000, 50, 1), ROUNDS)]
    {
        let table = rounds_of(kinds, fleet, rounds);
        println!("**Ingest: {} nodes of {} metrics, NDATA of 10 Doubles by alias**\n", fleet.nodes, fleet.metrics + 2);
        println!("{}", table.ingest());
    }
    println!("Load average at the end {}\n", load());
}

fn memory() {
    for (metrics, names) in [(50, Names::OfKind), (100, Names::OfKind), (100, Names::OfNode)] {
        let fleet = Fleet { nodes: 10_000, metrics, names, cycles: 0 };
        let table = rounds_of(&[Kind::Raw, Kind::Ours, Kind::SradNoStore, Kind::SradStore], fleet, 1);
        println!("**Memory: {} nodes of {} metrics, {}**\n", fleet.nodes, metrics + 2, names.as_str());
        println!("{}", table.memory());
    }
}

fn rounds_of(kinds: &[Kind], fleet: Fleet, rounds: usize) -> Table {
    let (v4, v5) = (Stream::new(fleet, false), Stream::new(fleet, true));
    let mut table = Table::new(fleet);
    for round in 0..rounds {
        for step in 0..kinds.len() {
            // Each contender comes first in some rounds.
            let kind = kinds[(step + round) % kinds.len()];
            let stream = if kind.speaks_v5() { &v5 } else { &v4 };
            let run = one(kind, fleet, stream);
            eprintln!("{}: {run:?}", kind.name());
            table.add(kind, run);
        }
    }
    table
}

/// One contender on one stream, in a process of its own.
fn one(kind: Kind, fleet: Fleet, stream: &Stream) -> Run {
    let broker = broker::Broker::listen();
    let program = std::env::current_exe().expect("a program knows where it is");
    let [nodes, data] = [fleet.nodes, stream.data_messages()].map(|n| n.to_string());
    let mut child: Child = Command::new(program)
        .args(["contender", kind.argument(), &broker.port().to_string(), &nodes, &data])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program can be started again");
    let mut progress = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut orders = child.stdin.take().expect("piped");
    let mut line = || progress.next().expect("the contender says how far it is").expect("text");
    if kind == Kind::OursMachine {
        // It has no connection: the packets come over its standard input.
        stream.write_to(&mut orders);
        drop(orders);
        assert_eq!(line(), "born");
    } else {
        let mut connection = broker.accept();
        connection.send(&stream.births, 1);
        assert_eq!(line(), "born");
        connection.send(&stream.cycle, fleet.cycles);
        connection.serve_in_background();
    }
    let run = Run::parse(&line());
    assert!(child.wait().expect("a child").success(), "{} failed", kind.name());
    run
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
