//! The seeds of the fuzz target go through the same function as under the fuzzer. They are what the program git itself sends, and requests that were made of it by hand.
#![allow(clippy::expect_used, reason = "a test fails by it")]

#[path = "../../../../fuzz/src/git.rs"]
mod fuzz;
#[path = "../../../../fuzz/src/seeds.rs"]
mod seeds;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

#[test]
fn every_seed_holds() {
    for (name, target) in fuzz::TARGETS {
        seeds::hold(name, target, 12);
    }
}

/// Passes one connection on, and returns what the client has sent over it.
fn recorded(client: &TcpStream, server: SocketAddr) -> Vec<u8> {
    let server = TcpStream::connect(server).expect("the server listens");
    let (mut answers, mut back) = (server.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
    let passing = thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Both);
    });
    let (mut sent, mut part) = (Vec::new(), [0; 4096]);
    let (mut client, mut server) = (client, &server);
    while let Ok(read @ 1..) = client.read(&mut part) {
        sent.extend_from_slice(&part[..read]);
        if server.write_all(&part[..read]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
    let _ = passing.join();
    sent
}

fn git(directory: &Path, arguments: &[&str]) {
    let ended = Command::new("git")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").expect("a path"))
        .env("HOME", "/nonexistent")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=x", "-c", "user.email=x@example", "-c", "protocol.version=2"])
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("git");
    assert!(ended.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&ended.stderr));
}

/// Writes the seeds again from what git sends: `cargo test -p git-hosting --test fuzz_seeds -- --ignored record`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes the seeds"]
async fn record() {
    let site = fuzz::Site::start().await;
    let (address, proxy) = (site.address, TcpListener::bind("127.0.0.1:0").expect("a port"));
    let port = proxy.local_addr().expect("an address").port();
    let (sender, records) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for client in proxy.incoming().flatten() {
            let sender = sender.clone();
            thread::spawn(move || sender.send(recorded(&client, address)));
        }
    });
    let folder = seeds::folder().join("git_http");
    fs::create_dir_all(&folder).expect("a folder");
    let save = |step: &str| {
        // A client ends its connections when it ends.
        let first = records.recv_timeout(std::time::Duration::from_secs(10)).expect("git has connected");
        for (number, bytes) in std::iter::once(first).chain(records.try_iter()).enumerate() {
            fs::write(folder.join(format!("{step}-{number}")), bytes).expect("a seed");
        }
    };
    let directory = tempfile::tempdir().expect("a directory");
    let reader = format!("http://{}:{}@127.0.0.1:{port}/git/cluster/Fuzz", fuzz::CLUSTER, fuzz::PASSWORD);
    let writer = format!("http://x:{}@127.0.0.1:{port}/git/cluster/Fuzz.git", fuzz::TOKEN);
    let at = directory.path();
    for (step, arguments) in [
        ("clone-2", &["clone", "-q", &reader, "a"][..]),
        ("clone-0", &["-c", "protocol.version=0", "clone", "-q", &reader, "b"]),
        ("shallow", &["-c", "protocol.version=1", "clone", "-q", "--depth", "1", &reader, "c"]),
        ("list", &["ls-remote", "-q", &writer]),
    ] {
        git(at, arguments);
        save(step);
    }
    let clone = at.join("a");
    for (step, file) in [("push", "by-hand/mine.yaml"), ("push-again", "by-hand/other.yaml")] {
        fs::create_dir_all(clone.join("by-hand")).expect("a folder");
        fs::write(clone.join(file), step).expect("a file");
        git(&clone, &["add", "."]);
        git(&clone, &["commit", "-qm", step]);
        git(&clone, &["push", "-q", &writer, "HEAD:main"]);
        save(step);
    }
    git(&at.join("b"), &["fetch", "-q", &reader]);
    save("fetch");
    site.stop().await;
}
