//! What is compared, each in a process of its own that says on its standard output when it has all births, and at the end what it took.

mod ours;
mod raw;
mod srad;
mod visitor;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::allocations;
use crate::kind::Kind;
use crate::report::Run;

/// Runs the contender that the arguments name: kind, port, number of births, number of data messages.
pub fn run(arguments: &[String]) {
    let [kind, port, births, data] = arguments else { panic!("contender <kind> <port> <births> <data>") };
    let kind = Kind::of_argument(kind).expect("a kind");
    let port = port.parse().expect("a port");
    let tally = Tally::new(births.parse().expect("a number"), data.parse().expect("a number"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match kind {
        Kind::Raw => runtime.block_on(raw::run(port, tally)),
        Kind::RawVisitor => runtime.block_on(raw::run_with_visitor(port, tally)),
        Kind::Ours => runtime.block_on(ours::run(port, tally)),
        Kind::OursMachine => ours::machine(tally),
        Kind::Visitor => visitor::run(port, tally),
        Kind::SradNoStore => runtime.block_on(srad::run(port, false, tally)),
        Kind::SradStore => runtime.block_on(srad::run(port, true, tally)),
    }
}

/// What has been seen, and what it took.
pub struct Tally {
    births: u64,
    data: u64,
    messages: u64,
    metrics: u64,
    before: Snapshot,
    born: Option<Snapshot>,
}

#[derive(Clone, Copy)]
struct Snapshot {
    cpu: Duration,
    allocations: u64,
    held: i64,
    resident: i64,
}

impl Snapshot {
    fn take() -> Self {
        let (allocations, held) = allocations::so_far();
        Self { cpu: cpu_time(), allocations, held, resident: resident() }
    }
}

impl Tally {
    fn new(births: u64, data: u64) -> Self {
        Self { births, data, messages: 0, metrics: 0, before: Snapshot::take(), born: None }
    }

    /// A birth was taken over.
    pub fn birth(&mut self) {
        self.births -= 1;
        if self.births == 0 {
            self.all_born();
        }
    }

    fn all_born(&mut self) {
        let born = Snapshot::take();
        println!("born");
        self.born = Some(Snapshot { cpu: cpu_time(), ..born });
        if self.data == 0 {
            self.end();
        }
    }

    /// A data message was taken over.
    pub fn data(&mut self, metrics: usize) {
        self.messages += 1;
        self.metrics += metrics as u64;
        if self.messages == self.data {
            self.end();
        }
    }

    fn end(&self) {
        let (now, before) = (Snapshot::take(), self.before);
        let born = self.born.expect("births come first");
        let run = Run {
            births_ns: (born.cpu - before.cpu).as_nanos() as u64,
            data_ns: (now.cpu - born.cpu).as_nanos() as u64,
            data_allocations: now.allocations - born.allocations,
            resident: born.resident - before.resident,
            held: born.held - before.held,
            messages: self.messages,
            metrics: self.metrics,
        };
        println!("{}", run.line());
        std::process::exit(0);
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn resident() -> i64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: i64 = text.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or_default();
    pages * 4096
}
