//! A look at the wire that shares nothing with the code under test but the codec: a plain rumqttc subscriber.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS};
use sparkplug::payload::{DisplayPayload, Limits, decode_for_display};
use tokio::sync::mpsc;

use super::soon;

pub struct Tap {
    messages: mpsc::UnboundedReceiver<Seen>,
    client: AsyncClient,
}

/// A message on the wire.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub topic: String,
    pub payload: bytes::Bytes,
    pub retain: bool,
}

impl Seen {
    /// `NBIRTH` and so on.
    pub fn kind(&self) -> &str {
        let mut levels = self.topic.split('/');
        match (levels.next(), levels.next(), levels.next()) {
            (_, Some("STATE"), _) => "STATE",
            (_, _, Some(kind)) => kind,
            _ => "",
        }
    }

    pub fn sparkplug(&self) -> DisplayPayload {
        decode_for_display(&self.payload, &Limits::default()).unwrap()
    }

    pub fn seq(&self) -> u64 {
        self.sparkplug().seq.unwrap()
    }

    pub fn bd_seq(&self) -> u64 {
        let payload = self.sparkplug();
        let metric = payload.metrics.iter().find(|metric| metric.name.as_deref() == Some("bdSeq")).unwrap();
        metric.value.as_ref().unwrap().as_u64().unwrap()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.payload).unwrap()
    }
}

impl Tap {
    /// Subscribed to everything when this returns; follows the server through restarts.
    pub async fn start(port: u16) -> Self {
        // Two of one name would end each other.
        static TAPS: AtomicU32 = AtomicU32::new(0);
        let number = TAPS.fetch_add(1, Ordering::Relaxed);
        let mut options = MqttOptions::new(format!("tap-{}-{number}", std::process::id()), "127.0.0.1", port);
        options.set_keep_alive(Duration::from_secs(5));
        options.set_max_packet_size(64 << 20, 64 << 20);
        let (client, mut event_loop) = AsyncClient::new(options, 16);
        let (seen, messages) = mpsc::unbounded_channel();
        let (ready, subscribed) = tokio::sync::oneshot::channel();
        let mut ready = Some(ready);
        let subscriber = client.clone();
        tokio::spawn(async move {
            loop {
                match event_loop.poll().await {
                    Ok(Event::Incoming(Packet::ConnAck(_))) => {
                        subscriber.try_subscribe("#", QoS::AtLeastOnce).unwrap();
                    }
                    Ok(Event::Incoming(Packet::SubAck(_))) => {
                        if let Some(ready) = ready.take() {
                            let _ = ready.send(());
                        }
                    }
                    Ok(Event::Incoming(Packet::Publish(publish))) => {
                        let message = Seen { topic: publish.topic, payload: publish.payload, retain: publish.retain };
                        if seen.send(message).is_err() {
                            return;
                        }
                    }
                    Ok(_) => {}
                    // It must be back before the client under test: that waits half a second at least.
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        });
        soon("the tap is subscribed", subscribed).await.unwrap();
        Self { messages, client }
    }

    pub async fn next(&mut self) -> Seen {
        soon("a message", self.messages.recv()).await.unwrap()
    }

    /// The next message must be of this kind.
    pub async fn expect(&mut self, kind: &str) -> Seen {
        let seen = self.next().await;
        assert_eq!(seen.kind(), kind, "{seen:?}");
        seen
    }

    /// Skips messages until one of this kind.
    pub async fn until(&mut self, kind: &str) -> Seen {
        loop {
            let seen = self.next().await;
            if seen.kind() == kind {
                return seen;
            }
        }
    }

    pub fn nothing_waits(&mut self) {
        let waiting = self.messages.try_recv();
        assert!(waiting.is_err(), "{waiting:?}");
    }

    pub async fn publish_retained(&self, topic: &str, payload: Vec<u8>) {
        self.client.publish(topic, QoS::AtLeastOnce, true, payload).await.unwrap();
    }

    pub async fn publish(&self, topic: &str, payload: Vec<u8>) {
        self.client.publish(topic, QoS::AtMostOnce, false, payload).await.unwrap();
    }
}
