//! A Mosquitto on a socket file, and clients that speak bytes.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub struct Server(pub Child);

impl Server {
    pub fn start(config: &Path) -> Self {
        let program = ["/usr/sbin/mosquitto", "mosquitto"].into_iter().find(|path| Path::new(path).exists());
        let mut command = Command::new(program.unwrap_or("mosquitto"));
        Self(command.arg("-c").arg(config).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("mosquitto"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A packet of MQTT 3.1.1.
pub fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
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

pub fn text(text: &str) -> Vec<u8> {
    [&u16::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat()
}

pub fn connect(socket: &Path, id: &str, user: Option<&str>) -> UnixStream {
    let mut stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let flags = if user.is_some() { 0b1000_0010 } else { 0b0000_0010 };
    let body = [text("MQTT"), vec![4, flags, 0, 0], text(id), user.map(text).unwrap_or_default()].concat();
    stream.write_all(&packet(0x10, &body)).unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0x20, 2, 0, 0]);
    stream
}

/// Whether the server grants the subscription.
pub fn subscribe(stream: &mut UnixStream, topic: &str) -> bool {
    stream.write_all(&packet(0x82, &[vec![0, 1], text(topic), vec![0]].concat())).unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    answer[4] != 0x80
}

pub fn publish(stream: &mut UnixStream, topic: &str, payload: &str) {
    stream.write_all(&packet(0x30, &[text(topic), payload.as_bytes().to_vec()].concat())).unwrap();
}

/// Returns when the server has dealt with all that was sent, or has closed the connection for it.
pub fn settle(stream: &mut UnixStream) {
    let mut answer = [0; 2];
    let is_open = stream.write_all(&[0xc0, 0]).is_ok() && stream.read_exact(&mut answer).is_ok();
    assert!(!is_open || answer == [0xd0, 0], "{answer:?}");
}

/// The topic of the next message.
pub fn next_topic(stream: &mut UnixStream) -> String {
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    assert_eq!(byte[0] & 0xf0, 0x30);
    let (mut length, mut shift) = (0, 0);
    loop {
        stream.read_exact(&mut byte).unwrap();
        length |= usize::from(byte[0] & 0x7f) << shift;
        shift += 7;
        if byte[0] < 0x80 {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    let end = 2 + usize::from(u16::from_be_bytes([body[0], body[1]]));
    String::from_utf8(body[2..end].to_vec()).unwrap()
}
