//! The limits on a real Mosquitto: a flood to readers that do not read takes no more memory than allowed, and everybody else goes on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use topic_walls::broker::mosquitto::limits;

/// As much as a test may take; the shipped limit is for a fleet.
const MEMORY_BYTES_MAX: u64 = 64 * 1024 * 1024;
const PAYLOAD_BYTES: usize = 500_000;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A packet of MQTT 3.1.1.
fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    let mut rest = body.len();
    loop {
        let low = u8::try_from(rest % 128).unwrap();
        rest /= 128;
        bytes.push(if rest > 0 { low | 0x80 } else { low });
        if rest == 0 {
            break;
        }
    }
    bytes.extend_from_slice(body);
    bytes
}

fn text(text: &str) -> Vec<u8> {
    [&u16::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat()
}

fn connect(socket: &Path, id: &str) -> UnixStream {
    let mut stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(&packet(0x10, &[text("MQTT"), vec![4, 2, 0, 0], text(id)].concat())).unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0x20, 2, 0, 0]);
    stream
}

fn subscribe(stream: &mut UnixStream, topic: &str) {
    stream.write_all(&packet(0x82, &[vec![0, 1], text(topic), vec![0]].concat())).unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
}

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
    let program = ["/usr/sbin/mosquitto", "mosquitto"].into_iter().find(|path| Path::new(path).exists());
    let mut command = Command::new(program.unwrap_or("mosquitto"));
    let server =
        Server(command.arg("-c").arg(&config).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("mosquitto"));
    let mut readers: Vec<_> = (0..10).map(|n| connect(&socket, &format!("reader-{n}"))).collect();
    readers.iter_mut().for_each(|reader| subscribe(reader, "flood"));
    let mut publisher = connect(&socket, "publisher");
    let flood = packet(0x30, &[text("flood"), vec![b'a'; PAYLOAD_BYTES]].concat());
    let sent = (0..600).take_while(|_| publisher.write_all(&flood).is_ok()).count();
    let (mut hears, mut says) = (connect(&socket, "hears"), connect(&socket, "says"));
    subscribe(&mut hears, "other");
    says.write_all(&packet(0x30, &[text("other"), b"on".to_vec()].concat())).unwrap();
    let mut heard = [0; 11];
    hears.read_exact(&mut heard).unwrap();
    assert!(heard.ends_with(b"otheron"), "{heard:?}");
    assert!(sent < 600, "the flood is ended");
    let peak = peak_bytes(server.0.id());
    assert!(peak < MEMORY_BYTES_MAX + MEMORY_BYTES_MAX / 2, "{peak} bytes after {sent} messages");
}
