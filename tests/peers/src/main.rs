//! Our codec beside its peers, on the same bytes: `cargo run --release --manifest-path tests/peers/Cargo.toml`.
//!
//! Every implementation first has to read the same content out of the bytes, and to write bytes of the same length with that content. Then all are measured in turn, again
//! and again, so that a change of the machine's speed meets all of them; times are the thread's CPU time. A decoded message is dropped within the measured time,
//! as in an application. The last columns compare within each round, and are the medians of the rounds: they are what to trust on a busy machine, and so is the number of instructions.

mod allocations;
mod codecs;
mod content;
mod instructions;
mod visitor;
mod walk;

use std::hint::black_box;
use std::rc::Rc;
use std::time::Duration;

use codecs::plain::Prost;
use codecs::sparkplug_rs_crate::SparkplugRs;
use codecs::srad::Srad;
use codecs::{Borrowed, Codec, Owned, Resolved, Room};
use content::Case;
use rustix::time::{ClockId, clock_gettime};
use visitor::Visitor;

/// Rounds; odd, so that there is a median.
const ROUNDS: usize = 41;
/// CPU time of one measurement: long against the clock's resolution, short against changes of the machine's speed.
const SLICE: Duration = Duration::from_millis(4);
/// What the others are compared with.
const PROST: &str = "prost 0.14 structs";
const SRAD: &str = "srad-types 0.3.1";

/// Something to measure.
struct Contender {
    name: &'static str,
    /// Does it so many times.
    run: Box<dyn FnMut(u64)>,
}

/// What was seen of a contender.
struct Seen {
    name: &'static str,
    /// Nanoseconds per message, one entry a round.
    rounds: Vec<f64>,
    allocations: u64,
    allocated_bytes: u64,
}

/// What is measured together: one direction of one message.
struct Group {
    title: String,
    metrics: usize,
    bytes: usize,
    contenders: Vec<Contender>,
}

fn main() {
    let mut groups = groups();
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    if let [group, contender, times] = numbers[..] {
        // Under callgrind.
        return (groups[group].contenders[contender].run)(times as u64);
    }
    println!(
        "{ROUNDS} rounds in turn, thread CPU time; `× prost` and `× srad`: median over the rounds, above 1 is faster"
    );
    let count = instructions::can_be_counted();
    if !count {
        println!("there is no valgrind, so instructions are not counted");
    }
    for (number, group) in groups.into_iter().enumerate() {
        let counted = |contender| count.then(|| instructions::of_a_message(number, contender));
        let instructions = (0..group.contenders.len()).map(counted).collect();
        print(&group.title, group.metrics, group.bytes, &measure(group.contenders), instructions);
    }
}

fn groups() -> Vec<Group> {
    let [birth, data, json] = content::cases();
    let ours = Resolved::knowing(&birth.content);
    let mut groups = Vec::new();
    for case in [birth, data, json] {
        let bytes = Prost.encode(&Prost.write(&case)).as_ref().to_vec();
        let mut decoders = Vec::new();
        let mut encoders = vec![bare_copy(&bytes)];
        enter_reader(&mut decoders, "bare visitor", &Rc::new(Visitor), &case, &bytes);
        enter(&mut decoders, &mut encoders, "ours", Borrowed(ours.clone()), &case, &bytes);
        enter_reader(&mut decoders, "ours, names and types resolved", &Rc::new(ours.clone()), &case, &bytes);
        enter_reader(&mut decoders, "ours, everything copied", &Rc::new(Owned(ours.clone())), &case, &bytes);
        enter(&mut decoders, &mut encoders, PROST, Prost, &case, &bytes);
        enter(&mut decoders, &mut encoders, SRAD, Srad, &case, &bytes);
        enter(&mut decoders, &mut encoders, "sparkplug-rs 0.5.1", SparkplugRs, &case, &bytes);
        for (what, contenders) in [("decode", decoders), ("encode", encoders)] {
            let title = format!("{what} {}: {} bytes", case.name, bytes.len());
            groups.push(Group { title, metrics: case.content.metrics.len(), bytes: bytes.len(), contenders });
        }
    }
    groups
}

/// What writing costs at least: to take memory and to put the bytes into it.
fn bare_copy(bytes: &[u8]) -> Contender {
    let bytes = bytes.to_vec();
    let copy = move |times| (0..times).for_each(|_| drop(black_box(black_box(&bytes).clone())));
    Contender { name: "bare copy", run: Box::new(copy) }
}

/// Checks a reader and lines it up.
fn enter_reader<C: Codec + 'static>(
    decoders: &mut Vec<Contender>,
    name: &'static str,
    codec: &Rc<C>,
    case: &Case,
    bytes: &[u8],
) {
    assert!(codec.agrees(&codec.decode(bytes, &mut Room::default()), case), "{name} misreads {}", case.name);
    let (codec, bytes) = (codec.clone(), bytes.to_vec());
    let decode = move |times| {
        (0..times).for_each(|_| drop(black_box(codec.decode(black_box(&bytes), &mut Room::default()))));
    };
    decoders.push(Contender { name, run: Box::new(decode) });
}

/// Checks an implementation and lines it up.
fn enter<C: Codec<Write: 'static> + 'static>(
    decoders: &mut Vec<Contender>,
    encoders: &mut Vec<Contender>,
    name: &'static str,
    codec: C,
    case: &Case,
    bytes: &[u8],
) {
    let codec = Rc::new(codec);
    enter_reader(decoders, name, &codec, case, bytes);
    let message = codec.write(case);
    let written = codec.encode(&message).as_ref().to_vec();
    assert_eq!(written.len(), bytes.len(), "{name} writes {} in another length", case.name);
    assert!(
        Prost.agrees(&Prost.decode(&written, &mut Room::default()), case),
        "{name} writes something else in {}",
        case.name
    );
    let encode = move |times| (0..times).for_each(|_| drop(black_box(codec.encode(black_box(&message)))));
    encoders.push(Contender { name, run: Box::new(encode) });
}

fn measure(mut contenders: Vec<Contender>) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut times = Vec::new();
    for contender in &mut contenders {
        (contender.run)(100);
        let (allocations, allocated_bytes) = allocations::during(|| (contender.run)(1));
        seen.push(Seen { name: contender.name, rounds: Vec::new(), allocations, allocated_bytes });
        let mut count = 1;
        while cpu_time(|| (contender.run)(count)) < SLICE {
            count *= 2;
        }
        times.push(count);
    }
    for round in 0..ROUNDS {
        for step in 0..contenders.len() {
            // Each contender comes first in some rounds.
            let turn = (step + round) % contenders.len();
            let spent = cpu_time(|| (contenders[turn].run)(times[turn]));
            seen[turn].rounds.push(spent.as_nanos() as f64 / times[turn] as f64);
        }
    }
    seen
}

fn cpu_time(work: impl FnOnce()) -> Duration {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let before = now();
    work();
    now() - before
}

fn print(title: &str, metrics: usize, bytes: usize, seen: &[Seen], instructions: Vec<Option<u64>>) {
    let of = |name| seen.iter().find(|seen| seen.name == name).expect("the reference is measured");
    let (prost, srad) = (of(PROST), of(SRAD));
    println!("\n**{title}**\n");
    println!("| | ns median (min) | MB/s | M metrics/s | instructions | allocations / KB | × prost | × srad |");
    println!("|---|---|---|---|---|---|---|---|");
    for (Seen { name, rounds, allocations, allocated_bytes }, instructions) in seen.iter().zip(instructions) {
        let ns = median(rounds.clone());
        let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let times_faster =
            |than: &Seen| median(than.rounds.iter().zip(rounds).map(|(theirs, own)| theirs / own).collect());
        println!(
            "| {name} | {ns:.0} ({least:.0}) | {:.0} | {:.1} | {} | {allocations} / {:.1} | {:.2} | {:.2} |",
            bytes as f64 * 1e3 / ns,
            metrics as f64 * 1e3 / ns,
            instructions.map_or_else(|| "-".to_owned(), |count| count.to_string()),
            *allocated_bytes as f64 / 1e3,
            times_faster(prost),
            times_faster(srad),
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
