//! As much of an MQTT server as a subscriber needs before it can be sent what was prepared. Knows 3.1.1 and 5.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// What is sent before pings are answered.
const PIECE_BYTES: usize = 64 * 1024;

pub struct Broker(TcpListener);

pub struct Connection {
    stream: TcpStream,
    is_v5: bool,
}

impl Broker {
    pub fn listen() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").expect("a free port"))
    }

    pub fn port(&self) -> u16 {
        self.0.local_addr().expect("bound").port()
    }

    /// Takes one client as far as its subscription. A Host Application subscribes to its STATE and to data in one packet or in two, and then publishes its STATE.
    pub fn accept(&self) -> Connection {
        let (stream, _) = self.0.accept().expect("a client");
        stream.set_nodelay(true).expect("a socket");
        let mut connection = Connection { stream, is_v5: false };
        while !connection.answer_one() {}
        connection
    }
}

/// Bytes of the first packets that make up a piece.
fn piece(packets: &[u8]) -> usize {
    let mut end = 0;
    while end < PIECE_BYTES && end < packets.len() {
        let (mut length, mut shift, mut at) = (0, 0, end + 1);
        loop {
            let byte = packets[at];
            length |= usize::from(byte & 0x7f) << shift;
            (shift, at) = (shift + 7, at + 1);
            if byte & 0x80 == 0 {
                break;
            }
        }
        end = at + length;
    }
    end
}

impl Connection {
    /// Sends packets piece by piece, and answers pings between the pieces.
    pub fn send(&mut self, packets: &[u8], times: usize) {
        for _ in 0..times {
            let mut rest = packets;
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(piece(rest));
                self.stream.write_all(piece).expect("the client reads");
                rest = after;
                self.answer_waiting();
            }
        }
    }

    fn answer_waiting(&mut self) {
        loop {
            self.stream.set_nonblocking(true).expect("a socket");
            let waits = self.stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0);
            self.stream.set_nonblocking(false).expect("a socket");
            if !waits {
                return;
            }
            self.answer_one();
        }
    }

    /// Answers pings and publishes until the client leaves.
    pub fn serve_in_background(mut self) {
        thread::spawn(move || {
            while self.stream.peek(&mut [0]).is_ok_and(|n| n > 0) && {
                self.answer_one();
                true
            } {}
        });
    }

    /// Answers a packet; true if it was a subscription to data.
    fn answer_one(&mut self) -> bool {
        let mut first = [0];
        if self.stream.read_exact(&mut first).is_err() {
            return false;
        }
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).expect("a length");
            length |= usize::from(byte[0] & 0x7f) << shift;
            shift += 7;
            if byte[0] & 0x80 == 0 {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("a packet");
        match first[0] >> 4 {
            1 => {
                self.is_v5 = body[6] == 5;
                self.reply(if self.is_v5 { &[0x20, 3, 0, 0, 0] } else { &[0x20, 2, 0, 0] });
                false
            }
            3 if first[0] & 0x06 != 0 => {
                let at = 2 + usize::from(u16::from_be_bytes([body[0], body[1]]));
                self.reply(&[0x40, 2, body[at], body[at + 1]]);
                false
            }
            8 => {
                let filters = self.filters(&body[2..]);
                let mut reply = vec![0x90, (2 + usize::from(self.is_v5) + filters.len()) as u8, body[0], body[1]];
                if self.is_v5 {
                    reply.push(0);
                }
                reply.extend(filters.iter().map(|_| 0));
                self.reply(&reply);
                filters.iter().any(|filter| filter == "spBv1.0/#")
            }
            12 => {
                self.reply(&[0xd0, 0]);
                false
            }
            _ => false,
        }
    }

    fn filters(&self, mut rest: &[u8]) -> Vec<String> {
        if self.is_v5 {
            rest = &rest[1 + usize::from(rest[0])..];
        }
        let mut filters = Vec::new();
        while let Some((size, tail)) = rest.split_first_chunk::<2>() {
            let size = usize::from(u16::from_be_bytes(*size));
            filters.push(String::from_utf8_lossy(&tail[..size]).into_owned());
            rest = &tail[size + 1..];
        }
        filters
    }

    fn reply(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the client reads");
    }
}
