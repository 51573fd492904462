//! The least that taking in a stream of messages can cost. Packets are read off a plain socket, and every field of a payload is walked over. Nothing is built or kept.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::TcpStream;

use super::Tally;
use crate::walk::{Seen, payload};

/// What is read in one go, as by rumqttc.
const BUFFER_BYTES: usize = 64 * 1024;

pub fn run(port: u16, mut tally: Tally) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a server");
    stream.set_nodelay(true).expect("a socket");
    // CONNECT of MQTT 3.1.1 with a clean session, and SUBSCRIBE to `spBv1.0/#`.
    stream.write_all(b"\x10\x13\x00\x04MQTT\x04\x02\x00\x00\x00\x07visitor").expect("the server reads");
    stream.write_all(b"\x82\x0e\x00\x01\x00\x09spBv1.0/#\x00").expect("the server reads");
    let births = tally.births;
    let mut born = 0;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut filled = 0;
    loop {
        if filled == buffer.len() {
            buffer.resize(buffer.len() * 2, 0);
        }
        let read = stream.read(&mut buffer[filled..]).expect("a session");
        assert!(read > 0, "the server has ended the session");
        filled += read;
        let mut taken = 0;
        while let Some((kind, body, length)) = packet(&buffer[taken..filled]) {
            taken += length;
            if kind >> 4 != 3 {
                continue;
            }
            let topic = usize::from(u16::from_be_bytes([body[0], body[1]]));
            std::str::from_utf8(black_box(&body[2..2 + topic])).expect("a topic");
            let mut seen = Seen::default();
            payload(&body[2 + topic..], &mut seen).expect("the message is well-formed");
            let metrics = black_box(seen).metrics as usize;
            if born < births {
                born += 1;
                tally.birth();
            } else {
                tally.data(metrics);
            }
        }
        buffer.copy_within(taken..filled, 0);
        filled -= taken;
    }
}

/// The first packet of these bytes, if all of it is there: its first byte, its body, and the bytes of both.
fn packet(bytes: &[u8]) -> Option<(u8, &[u8], usize)> {
    let (mut length, mut shift, mut at) = (0, 0, 1);
    loop {
        let byte = *bytes.get(at)?;
        length |= usize::from(byte & 0x7f) << shift;
        (shift, at) = (shift + 7, at + 1);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some((*bytes.first()?, bytes.get(at..at + length)?, at + length))
}
