//! Which publishes the server has for certain. MQTT acknowledges nothing of QoS 0, but a server takes packets in their order. So a server that answers a PINGREQ, or
//! acknowledges a message of QoS 1, has everything that was written before it.

use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Receipts {
    written: u64,
    /// How many publishes were written before each PINGREQ without answer.
    pings: VecDeque<u64>,
    /// Packet id of each publish of QoS 1 without acknowledgement, and how many publishes were written up to it.
    acknowledgements: VecDeque<(u16, u64)>,
    received: u64,
}

impl Receipts {
    /// A PUBLISH is on the wire; 0 is the id of QoS 0.
    pub(crate) fn written(&mut self, id: u16) {
        self.written += 1;
        if id != 0 {
            self.acknowledgements.push_back((id, self.written));
        }
    }

    pub(crate) fn ping(&mut self) {
        self.pings.push_back(self.written);
    }

    /// Yields how many publishes the server has, if that number has grown.
    pub(crate) fn pong(&mut self) -> Option<u64> {
        let publishes = self.pings.pop_front()?;
        self.increase(publishes)
    }

    /// As [`Receipts::pong`].
    pub(crate) fn acknowledged(&mut self, id: u16) -> Option<u64> {
        let at = self.acknowledgements.iter().position(|(known, _)| *known == id)?;
        let (_, publishes) = self.acknowledgements.remove(at)?;
        self.increase(publishes)
    }

    fn increase(&mut self, publishes: u64) -> Option<u64> {
        (publishes > self.received).then(|| {
            self.received = publishes;
            publishes
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_proves_what_was_written_before_its_question() {
        let mut receipts = Receipts::default();
        assert_eq!(receipts.pong(), None);
        receipts.written(0);
        receipts.written(0);
        receipts.ping();
        receipts.written(0);
        assert_eq!(receipts.pong(), Some(2));
        receipts.written(7);
        receipts.written(0);
        assert_eq!(receipts.acknowledged(8), None);
        assert_eq!(receipts.acknowledged(7), Some(4));
        assert_eq!(receipts.acknowledged(7), None);
        // The second of two pings at once says nothing new.
        receipts.ping();
        receipts.ping();
        assert_eq!((receipts.pong(), receipts.pong()), (Some(5), None));
    }
}
