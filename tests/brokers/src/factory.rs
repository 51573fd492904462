//! A whole factory on a server: `sparkfleet up` with the built-in content, and an operator who creates and deletes.

use std::net::SocketAddr;

use e2e::cli::Cli;
use e2e::process::Process;
use e2e::program;
use sparkplug_mqtt::Protocol;

use crate::Step;

/// Goes through all of it.
///
/// # Panics
/// Something does not come about.
pub async fn story(server: SocketAddr, protocol: Protocol, step: &Step) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let (url, data) = (format!("mqtt://{server}"), directory.path().join("data").display().to_string());
    let version = match protocol {
        Protocol::Auto => "auto",
        Protocol::V311 => "3.1.1",
        Protocol::V5 => "5",
    };
    let any = "127.0.0.1:0";
    let arguments = [
        "up",
        "--plain",
        "--broker",
        &url,
        "--protocol",
        version,
        "--data-dir",
        &data,
        "--git",
        any,
        "--bootstrap",
        any,
        "--http",
        any,
        "--console-listen",
        any,
    ];
    let cli = Cli::new(&url).with_environment([("SPARKFLEET_PROTOCOL".to_owned(), version.to_owned())]);
    let up = Process::start("up", &program::sparkfleet(), &arguments, directory.path());

    step.begin("a factory comes up: hosts have joined, deployments run");
    for line in [
        "cluster Body_Shop: setup ready, edge alive, hosts 3/3 ready",
        "host Press_Shop/press-shop-3: member by simulated evidence",
        "deployment Press_Shop/Stacker_1: applied, ready",
        "deployment Body_Shop/Robot_Cell_2: applied, ready",
    ] {
        up.says(line).await;
    }
    step.begin("a cluster is created, and lives");
    cli.json(&["cluster", "create", "Paint_Shop", "--wait", "--timeout", "2m"]).await;
    step.begin("a deployment is created, and runs");
    cli.json(&["deployment", "create", "Oven_1", "--cluster", "Paint_Shop", "--wait", "--timeout", "2m"]).await;
    step.begin("lists are complete at once");
    let clusters = cli.json(&["cluster", "list"]).await;
    assert_eq!(clusters.as_array().map(Vec::len), Some(3), "{clusters}");
    step.begin("a cluster is deleted with its deployments");
    cli.json(&["cluster", "delete", "Paint_Shop", "--with-deployments", "--wait", "--timeout", "2m"]).await;

    step.begin("everything stops, and every node says that it dies");
    let mut up = up;
    up.interrupt();
    let ended = up.ended().await;
    assert!(matches!(ended.code(), Some(0 | 130)), "{ended:?}\n{}", up.tail());
    step.begin("it has ended");
}
