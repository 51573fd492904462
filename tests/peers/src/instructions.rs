//! Counts the instructions of one message with valgrind's callgrind, which counts the same on a busy machine as on an idle one. The program runs itself under it, with a few messages and
//! with some more; the difference is the messages alone.

use std::process::Command;

/// Messages of the short run, and of the long one.
const TIMES: [u64; 2] = [4, 24];

/// Whether there is a valgrind.
pub fn can_be_counted() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Instructions of a message; `group` and `contender` are the arguments with which the program runs that contender alone.
pub fn of_a_message(group: usize, contender: usize) -> u64 {
    let [short, long] = TIMES.map(|times| collected(group, contender, times));
    (long - short) / (TIMES[1] - TIMES[0])
}

fn collected(group: usize, contender: usize, times: u64) -> u64 {
    let program = std::env::current_exe().expect("the program knows where it is");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([group.to_string(), contender.to_string(), times.to_string()])
        .output()
        .expect("valgrind runs");
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.split_once("Collected :")).expect("callgrind says what it collected");
    line.1.trim().parse().expect("a number")
}
