//! Bytes -> choices. When the bytes are at their end, every choice is the first one.

/// See the module.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((byte, rest)) => {
                self.rest = rest;
                *byte
            }
            None => 0,
        }
    }

    pub fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// One of `0..count`.
    pub fn below(&mut self, count: u8) -> u8 {
        self.byte() % count
    }

    /// Some bytes; the first says how many.
    pub fn bytes(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte()).min(self.rest.len());
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        taken
    }
}
