//! The STATE message of a Host Application: retained JSON at `spBv1.0/STATE/<host id>` (Sparkplug 3.0, 6.4.23).
//!
//! Exactly the keys `online` and `timestamp`; the little JSON that this takes is read here, strictly.

use bytes::Bytes;

/// `{"online": bool, "timestamp": ms}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostState {
    /// Birth (true) or death (false).
    pub online: bool,
    /// UTC ms; of a birth: equal to the will's (tck-id-host-topic-phid-birth-payload-timestamp).
    pub timestamp: u64,
}

/// Why bytes are not a STATE payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("STATE payload is not `{{\"online\": <boolean>, \"timestamp\": <integer ms>}}`: {reason}")]
pub struct StateError {
    /// The rule that is broken.
    pub reason: String,
}

impl HostState {
    /// The JSON (tck-id-host-topic-phid-birth-payload, tck-id-host-topic-phid-death-payload).
    #[must_use]
    pub fn encode(self) -> Bytes {
        format!("{{\"online\":{},\"timestamp\":{}}}", self.online, self.timestamp).into()
    }

    /// Reads the JSON: exactly the two keys, in any order.
    ///
    /// # Errors
    /// [`StateError`] names the rule that the bytes break.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut reader = Reader { rest: bytes };
        let (mut online, mut timestamp) = (None, None);
        reader.expect(b"{")?;
        loop {
            reader.expect(b"\"")?;
            if reader.take(b"online\"") {
                reader.expect(b":")?;
                let value = reader.boolean()?;
                once(&mut online, value, "online")?;
            } else if reader.take(b"timestamp\"") {
                reader.expect(b":")?;
                let value = reader.integer()?;
                once(&mut timestamp, value, "timestamp")?;
            } else {
                return Err(error("it has a key other than `online` and `timestamp`"));
            }
            reader.skip_space();
            if !reader.take(b",") {
                break;
            }
        }
        reader.expect(b"}")?;
        reader.skip_space();
        if !reader.rest.is_empty() {
            return Err(error("something follows the object"));
        }
        match (online, timestamp) {
            (Some(online), Some(timestamp)) => Ok(Self { online, timestamp }),
            (None, _) => Err(error("`online` is missing")),
            (_, None) => Err(error("`timestamp` is missing")),
        }
    }
}

fn error(reason: impl Into<String>) -> StateError {
    StateError { reason: reason.into() }
}

fn once<T>(slot: &mut Option<T>, value: T, key: &str) -> Result<(), StateError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(error(format!("`{key}` occurs twice"))),
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn take(&mut self, token: &[u8]) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &'static [u8]) -> Result<(), StateError> {
        self.skip_space();
        if self.take(token) { Ok(()) } else { Err(error(format!("`{}` is missing", token.escape_ascii()))) }
    }

    fn boolean(&mut self) -> Result<bool, StateError> {
        self.skip_space();
        if self.take(b"true") {
            Ok(true)
        } else if self.take(b"false") {
            Ok(false)
        } else {
            Err(error("`online` is not true or false"))
        }
    }

    fn integer(&mut self) -> Result<u64, StateError> {
        self.skip_space();
        let digits = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        let plain = !rest.first().is_some_and(|b| matches!(b, b'.' | b'e' | b'E'))
            && (digits == 1 || number.first() != Some(&b'0'));
        let value = std::str::from_utf8(number).ok().and_then(|n| n.parse().ok()).filter(|_| plain);
        self.rest = rest;
        value.ok_or_else(|| error("`timestamp` is not a whole number of milliseconds"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tck-id-host-topic-phid-birth-payload, tck-id-host-topic-phid-death-payload
    #[test]
    fn state_is_written_with_the_two_keys_and_read_back() {
        let state = HostState { online: true, timestamp: 1_700_000_000_123 };
        assert_eq!(&state.encode()[..], b"{\"online\":true,\"timestamp\":1700000000123}");
        for state in
            [state, HostState { online: false, timestamp: 0 }, HostState { online: false, timestamp: u64::MAX }]
        {
            assert_eq!(HostState::decode(&state.encode()), Ok(state));
        }
    }

    #[test]
    fn order_and_white_space_are_free() {
        let read = HostState::decode(b" {\n \"timestamp\" : 12 ,\t\"online\":false}\r\n");
        assert_eq!(read, Ok(HostState { online: false, timestamp: 12 }));
    }

    #[test]
    fn anything_else_is_refused() {
        for bytes in [
            &b""[..],
            b"ONLINE",
            b"{}",
            b"{\"online\":true}",
            b"{\"timestamp\":1}",
            b"{\"online\":\"true\",\"timestamp\":1}",
            b"{\"online\":true,\"timestamp\":\"1\"}",
            b"{\"online\":true,\"timestamp\":1.5}",
            b"{\"online\":true,\"timestamp\":1e3}",
            b"{\"online\":true,\"timestamp\":-1}",
            b"{\"online\":true,\"timestamp\":01}",
            b"{\"online\":true,\"timestamp\":18446744073709551616}",
            b"{\"online\":true,\"timestamp\":1,\"bdSeq\":0}",
            b"{\"online\":true,\"online\":true,\"timestamp\":1}",
            b"{\"online\":true,\"timestamp\":1,}",
            b"{\"online\":true,\"timestamp\":1} x",
            b"{\"online\":true,\"timestamp\":}",
            b"[true,1]",
        ] {
            assert!(HostState::decode(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
