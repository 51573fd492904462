//! Each benchmark runs to its end with a small fleet, so that one that does not start any more is found before someone measures. What it measures is not looked at.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// Far above what any of them takes: one that has not ended by then waits for something that never comes.
const LIMIT: Duration = Duration::from_secs(180);

async fn ends(arguments: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    let running = command.args(arguments.split(' ')).stdin(Stdio::null()).kill_on_drop(true).output();
    let ended = tokio::time::timeout(LIMIT, running).await;
    let output = ended.unwrap_or_else(|_| panic!("{arguments}: not in {LIMIT:?}")).expect("the program can be started");
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments}: {}\n{printed}\n{said}", output.status);
    let rows = printed.lines().filter(|line| line.starts_with("| ")).count();
    assert!(rows > 1, "{arguments}: no figure\n{printed}\n{said}");
}

#[tokio::test]
async fn a_change_passes_from_its_entry_to_the_report_of_the_edge() {
    ends("latency --clusters 3 --changes 5").await;
}

#[tokio::test]
async fn the_central_services_set_a_fleet_up_that_grows() {
    ends("central --clusters 2,3 --changes 3").await;
}

#[tokio::test]
async fn a_control_plane_that_was_killed_agrees_with_its_edges_again() {
    ends("restart --clusters 3").await;
}

#[tokio::test]
async fn a_replica_of_configdb_becomes_complete() {
    ends("replicate --objects 50").await;
}

#[tokio::test]
async fn an_empty_control_plane_gets_to_know_a_fleet() {
    ends("gather --nodes 20 --metrics 5").await;
}

#[tokio::test]
async fn the_history_of_the_console_is_recorded_and_read() {
    ends("history --events 1000").await;
}

#[tokio::test]
async fn evidence_is_judged() {
    ends("attestation --count 5").await;
}

#[tokio::test]
async fn hosts_join_by_attestation() {
    ends("join --hosts 2").await;
}

#[tokio::test]
async fn the_dialects_are_compared() {
    ends("dialect").await;
}
