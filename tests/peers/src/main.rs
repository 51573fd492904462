//! Our codec beside its peers, on the same bytes: `cargo run --release --manifest-path tests/peers/Cargo.toml`.
//!
//! Every implementation first has to read the same content out of the bytes, and to write bytes of the same length with that content. Then all are measured in turn, again
//! and again, so that a change of the machine's speed meets all of them; times are the thread's CPU time. A decoded message is dropped within the measured time,
//! as in an application. The last column compares within each round, and is the median of the rounds: it is the one to trust on a busy machine.

mod allocations;
mod codecs;
mod content;

use std::hint::black_box;
use std::time::Duration;

use codecs::plain::Prost;
use codecs::sparkplug_rs_crate::SparkplugRs;
use codecs::srad::Srad;
use codecs::{Codec, Raw, Resolved};
use content::Case;
use rustix::time::{ClockId, clock_gettime};

/// Rounds; odd, so that there is a median.
const ROUNDS: usize = 41;
/// CPU time of one measurement: long against the clock's resolution, short against changes of the machine's speed.
const SLICE: Duration = Duration::from_millis(4);
/// What the others are compared with.
const REFERENCE: &str = "prost 0.14 structs";

/// Something to measure.
struct Contender {
    name: &'static str,
    /// Does it as often as told.
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

fn main() {
    let [birth, data, json] = content::cases();
    println!("{ROUNDS} rounds in turn, thread CPU time; `× prost`: median over the rounds, above 1 is faster\n");
    let ours = Resolved::knowing(&birth.content);
    for case in [birth, data, json] {
        let bytes = Prost.encode(&Prost.write(&case)).as_ref().to_vec();
        let mut decoders = Vec::new();
        let mut encoders = Vec::new();
        enter(&mut decoders, &mut encoders, "ours", Raw(ours.clone()), &case, &bytes);
        enter(&mut decoders, &mut Vec::new(), "ours, names and types resolved", ours.clone(), &case, &bytes);
        enter(&mut decoders, &mut encoders, REFERENCE, Prost, &case, &bytes);
        enter(&mut decoders, &mut encoders, "srad-types 0.3.1", Srad, &case, &bytes);
        enter(&mut decoders, &mut encoders, "sparkplug-rs 0.5.1", SparkplugRs, &case, &bytes);
        for (what, contenders) in [("decode", decoders), ("encode", encoders)] {
            print(&format!("{what} {}: {} bytes", case.name, bytes.len()), &case, bytes.len(), &measure(contenders));
        }
    }
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
    assert!(codec.agrees(&codec.decode(bytes), case), "{name} reads something else in {}", case.name);
    let message = codec.write(case);
    let written = codec.encode(&message).as_ref().to_vec();
    assert_eq!(written.len(), bytes.len(), "{name} writes {} in another length", case.name);
    assert!(Prost.agrees(&Prost.decode(&written), case), "{name} writes something else in {}", case.name);
    let (codec, bytes) = (std::rc::Rc::new(codec), bytes.to_vec());
    let reader = codec.clone();
    let decode = move |times| (0..times).for_each(|_| drop(black_box(reader.decode(black_box(&bytes)))));
    decoders.push(Contender { name, run: Box::new(decode) });
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
            // Nobody always comes first.
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

fn print(title: &str, case: &Case, bytes: usize, seen: &[Seen]) {
    let reference = seen.iter().find(|seen| seen.name == REFERENCE).expect("the reference is measured");
    println!("**{title}**\n");
    println!("| | ns median (min) | MB/s | M metrics/s | allocations / KB | × prost |");
    println!("|---|---|---|---|---|---|");
    for Seen { name, rounds, allocations, allocated_bytes } in seen {
        let ns = median(rounds.clone());
        let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let ratio = median(reference.rounds.iter().zip(rounds).map(|(theirs, own)| theirs / own).collect());
        println!(
            "| {name} | {ns:.0} ({least:.0}) | {:.0} | {:.1} | {allocations} / {:.1} | {ratio:.2} |",
            bytes as f64 * 1e3 / ns,
            case.content.metrics.len() as f64 * 1e3 / ns,
            *allocated_bytes as f64 / 1e3,
        );
    }
    println!();
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
