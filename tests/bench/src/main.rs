//! Measurements of the whole, as Markdown on standard output. Nothing here passes or fails because of a time: shared machines are slow at any moment.
//!
//! | module | measures |
//! |---|---|
//! | [`latency`] | a change, until it is reported as applied |
//! | [`central_services`] | memory, processor time and messages of the central services as the fleet grows |
//! | [`edge_process`] | size, memory and start of the edge process |
//! | [`replicate`] | a fresh replica of a whole ConfigDB |
//! | [`gather`] | an empty control plane until it knows the fleet |
//! | [`restart`] | a control plane that was killed, until every edge has agreed |
//! | [`attestation`] | TPM evidence that one core judges in a second |
//! | [`join`] | an attested join: from hello to ticket, what a ticket costs, bytes |
//! | [`dialect`] | what the dialects of Sparkplug take on the wire and of a processor, and descriptions in births |
//! | [`history`] | recording the past in the console, and looking at it |
//! | [`raw`] | what the MQTT server alone takes for the same bytes |
//!
//! | module | knows |
//! |---|---|
//! | [`light_edge`], [`fleet`] | edges with an instant model of Kubernetes |
//! | [`operator`] | who writes into ConfigDB and watches |
//! | [`join_site`] | a join service and hosts that join |
//! | [`figures`] | distributions and tables |

mod attestation;
mod central_services;
mod dialect;
mod edge_process;
mod figures;
mod fleet;
mod gather;
mod history;
mod join;
mod join_site;
mod latency;
mod light_edge;
mod operator;
mod raw;
mod replicate;
mod restart;

use std::net::SocketAddr;

use clap::{Parser, Subcommand};

/// Sizes of the fleet that `all` measures the central services at.
const CENTRAL_SIZES: [usize; 3] = [10, 100, 1000];
/// Changes of one cluster at each of these sizes.
const CENTRAL_CHANGES: usize = 100;
/// How often `all` judges.
const JUDGED: u32 = 5_000;
/// Hosts that `all` lets join, one after another and at once.
const JOINING: u32 = 200;
/// Objects that `all` replicates.
const REPLICATED: usize = 10_000;
/// Events of the console's history that `all` records.
const RECORDED: u64 = 10_000_000;
/// Nodes that `all` gathers, and metrics of each.
const GATHERED: (usize, usize) = (10_000, 100);

/// Measures Sparkfleet; results are Markdown on standard output.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Clone, Subcommand)]
enum Benchmark {
    /// Everything.
    All {
        /// Edge clusters for the latency of a change.
        #[arg(long, default_value_t = 1000)]
        clusters: usize,
        /// Changes.
        #[arg(long, default_value_t = 500)]
        changes: usize,
    },
    /// A change of a deployment until it is reported as applied.
    Latency {
        /// Edge clusters.
        #[arg(long, default_value_t = 1000)]
        clusters: usize,
        /// Changes, one after another.
        #[arg(long, default_value_t = 500)]
        changes: usize,
    },
    /// Memory, processor time and messages of the central services as the fleet grows.
    Central {
        /// Sizes of the fleet, the smallest first.
        #[arg(long, value_delimiter = ',', default_value = "10,100,1000")]
        clusters: Vec<usize>,
        /// Changes of one cluster at each size.
        #[arg(long, default_value_t = 100)]
        changes: usize,
    },
    /// TPM evidence that one core judges in a second.
    Attestation {
        /// How often each is done.
        #[arg(long, default_value_t = 5_000)]
        count: u32,
    },
    /// An attested join: from hello to ticket, what a ticket costs, bytes.
    Join {
        /// Hosts, one after another and then at once.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=4_000))]
        hosts: u32,
    },
    /// What the dialects of Sparkplug take on the wire and of a processor, and what descriptions take in births.
    Dialect,
    /// Size, memory and start of the edge process, if it is built.
    Edge,
    /// An empty control plane until it knows the fleet.
    Gather {
        /// Nodes, each in a group of its own.
        #[arg(long, default_value_t = 10_000)]
        nodes: usize,
        /// Metrics of each.
        #[arg(long, default_value_t = 100)]
        metrics: usize,
    },
    /// The console's history: recording, and states and events of the past.
    History {
        /// Events, 1000 or more.
        #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
        events: u64,
    },
    /// A control plane that was killed, from its start until every edge has agreed.
    Restart {
        /// Edge clusters.
        #[arg(long, default_value_t = 1000)]
        clusters: usize,
        /// An MQTT server that runs already, such as 127.0.0.1:1883; without it the embedded one is started.
        #[arg(long, value_name = "ADDRESS")]
        server: Option<SocketAddr>,
    },
    /// A fresh replica of a whole ConfigDB.
    Replicate {
        /// Objects, besides those that every ConfigDB has.
        #[arg(long, default_value_t = 10_000)]
        objects: usize,
    },
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(arguments.benchmark))
}

async fn run(benchmark: Benchmark) -> anyhow::Result<()> {
    match benchmark {
        Benchmark::All { clusters, changes } => {
            latency::run(latency::Plan { clusters, changes }).await?;
            central_services::run(&CENTRAL_SIZES, CENTRAL_CHANGES).await?;
            restart::run(clusters, None).await?;
            replicate::run(REPLICATED).await?;
            gather::run(GATHERED.0, GATHERED.1).await?;
            history::run(RECORDED).await?;
            attestation::run(JUDGED)?;
            join::run(JOINING).await?;
            dialect::run()?;
            edge_process::run().await
        }
        Benchmark::Latency { clusters, changes } => latency::run(latency::Plan { clusters, changes }).await,
        Benchmark::Attestation { count } => attestation::run(count),
        Benchmark::Join { hosts } => join::run(hosts).await,
        Benchmark::Dialect => dialect::run(),
        Benchmark::Edge => edge_process::run().await,
        Benchmark::History { events } => history::run(events).await,
        Benchmark::Restart { clusters, server } => restart::run(clusters, server).await,
        Benchmark::Replicate { objects } => replicate::run(objects).await,
        Benchmark::Gather { nodes, metrics } => gather::run(nodes, metrics).await,
        Benchmark::Central { clusters, changes } => central_services::run(&clusters, changes).await,
    }
}
