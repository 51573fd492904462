//! What real signals do to a real process.
//!
//! Each test starts this test binary once more as the process under test: the child runs the same test function and finds
//! in its environment that it is the child.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "the lints exempt test functions, not their helpers")]

use service_runtime::exit;
use service_runtime::shutdown::Shutdown;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

const CHILD: &str = "SIGNALS_TEST_IS_CHILD";

/// Waits for the stop; then ends cleanly, or never if `stuck`.
fn be_the_child(stuck: bool) -> ! {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(1).build().unwrap();
    runtime.block_on(async {
        let shutdown = Shutdown::on_signals().unwrap();
        println!("\nready");
        shutdown.wait().await;
        println!("\nstopping");
        if stuck {
            std::future::pending::<()>().await;
        }
    });
    std::process::exit(i32::from(exit::OK));
}

fn start(test: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    await_line(&mut output, "ready");
    (child, output)
}

fn await_line(output: &mut BufReader<ChildStdout>, wanted: &str) {
    let mut line = String::new();
    while line.trim() != wanted {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the child ended before it said {wanted:?}");
    }
}

fn send(signal: &str, child: &Child) {
    let kill = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", signal, &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
}

#[test]
fn the_first_signal_asks_for_a_clean_stop() {
    if std::env::var_os(CHILD).is_some() {
        be_the_child(false);
    }
    for signal in ["INT", "TERM"] {
        let (mut child, mut output) = start("the_first_signal_asks_for_a_clean_stop");
        send(signal, &child);
        await_line(&mut output, "stopping");
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
    }
}

#[test]
fn the_second_signal_ends_the_process_with_130() {
    if std::env::var_os(CHILD).is_some() {
        be_the_child(true);
    }
    let (mut child, mut output) = start("the_second_signal_ends_the_process_with_130");
    send("TERM", &child);
    await_line(&mut output, "stopping");
    send("INT", &child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
