//! The limits on a real Mosquitto: a flood to readers that do not read takes no more memory than allowed, and everyone else continues.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{Read as _, Write as _};

use broker_acl::broker::mosquitto::limits;

use crate::wire::{Server, connect, packet, subscribe, text};

/// As much as a test may take; the shipped limit is for a fleet.
const MEMORY_BYTES_MAX: u64 = 64 * 1024 * 1024;
const PAYLOAD_BYTES: usize = 500_000;

fn peak_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_flood_to_readers_that_do_not_read_is_bounded_and_others_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, config) = (directory.path().join("mqtt"), directory.path().join("mosquitto.conf"));
    let shipped = limits();
    let limits = shipped.replace("memory_limit 1073741824", &format!("memory_limit {MEMORY_BYTES_MAX}"));
    assert_ne!(limits, shipped);
    // max_connections belongs to the listener before it.
    let text_of = format!("user root\nlistener 0 {}\nallow_anonymous true\n{limits}", socket.display());
    fs::write(&config, text_of).unwrap();
    let server = Server::start(&config);
    let mut readers: Vec<_> = (0..10).map(|n| connect(&socket, &format!("reader-{n}"), None)).collect();
    assert!(readers.iter_mut().all(|reader| subscribe(reader, "flood")));
    let mut publisher = connect(&socket, "publisher", None);
    let flood = packet(0x30, &[text("flood"), vec![b'a'; PAYLOAD_BYTES]].concat());
    let sent = (0..600).take_while(|_| publisher.write_all(&flood).is_ok()).count();
    let (mut subscriber, mut other) = (connect(&socket, "subscriber", None), connect(&socket, "other", None));
    subscribe(&mut subscriber, "other");
    other.write_all(&packet(0x30, &[text("other"), b"on".to_vec()].concat())).unwrap();
    let mut received = [0; 11];
    subscriber.read_exact(&mut received).unwrap();
    assert!(received.ends_with(b"otheron"), "{received:?}");
    assert!(sent < 600, "the flood is ended");
    let peak = peak_bytes(server.0.id());
    assert!(peak < MEMORY_BYTES_MAX + MEMORY_BYTES_MAX / 2, "{peak} bytes after {sent} messages");
}
