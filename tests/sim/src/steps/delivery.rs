//! What arrives at the broker and at processes, and sockets that are cut.

use std::time::Duration;

use sparkplug::session::TransportEvent;

use crate::model::broker::{SessionId, ToBroker, ToClient};
use crate::model::endpoint::Side;
use crate::model::happening::Happening;
use crate::model::ids::ProcessId;
use crate::model::network::Packet;
use crate::world::{World, trace};

impl World {
    /// Something arrives on a connection.
    pub fn on_packet(&mut self, session: SessionId, packet: Packet) {
        let Some(wire) = self.network.wires.get_mut(&session) else { return };
        let process = wire.process;
        let cut_off_until = self.processes.get(&process).and_then(|process| process.partitioned_until);
        let paused_until = self.processes.get(&process).and_then(|process| process.paused_until);
        match packet {
            // The operating system has it; the process reads it when it continues.
            Packet::Down(_) | Packet::ClientOver { .. } | Packet::ConnectTimeout if paused_until.is_some() => {
                let until = paused_until.unwrap_or(self.mono).max(self.mono + Duration::from_micros(1));
                wire.down_at = wire.down_at.max(until);
                self.at(until, Happening::Packet(session, packet));
            }
            Packet::Up(_) | Packet::Down(_) if cut_off_until.is_some() => {
                // TCP sends again until the connection is given up; what is sent later does not overtake it.
                let until = cut_off_until.unwrap_or(self.mono).max(self.mono + Duration::from_micros(1));
                match packet {
                    Packet::Up(_) => wire.up_at = wire.up_at.max(until),
                    _ => wire.down_at = wire.down_at.max(until),
                }
                self.at(until, Happening::Packet(session, packet));
            }
            Packet::Up(packet) => self.arrive_at_broker(session, packet),
            Packet::Down(packet) => self.arrive_at_client(session, packet),
            Packet::ClientOver { reason, reached, if_partitioned } => {
                if !if_partitioned || cut_off_until.is_some() {
                    self.client_over(session, reason, reached);
                }
            }
            Packet::ConnectTimeout => {
                let endpoint = self.processes.get(&process).and_then(|process| process.endpoints.get(&wire.side));
                if endpoint.is_some_and(|endpoint| endpoint.session == Some(session) && !endpoint.is_connected) {
                    self.client_over(session, "no answer", true);
                }
            }
            Packet::ServerTimeout => {
                let is_gone = wire.drops_up && !wire.is_open;
                if (cut_off_until.is_some() || paused_until.is_some() || is_gone) && self.broker.has(session) {
                    trace!(self, "broker gives {session:?} up");
                    self.broker.lose(session);
                    self.flush_broker();
                    // The server closes its socket; a client that comes back receives of it, at its next ping at the latest.
                    self.down(session, ToClient::Closed);
                }
            }
        }
    }

    fn arrive_at_broker(&mut self, session: SessionId, packet: ToBroker) {
        let Some(wire) = self.network.wires.get(&session) else { return };
        if self.network.broker_down_until.is_some() || (wire.drops_up && packet != ToBroker::Gone) {
            return;
        }
        if !self.broker.has(session) && !matches!(packet, ToBroker::Connect { .. }) {
            if wire.is_open {
                self.down(session, ToClient::Closed);
            }
            return;
        }
        if let ToBroker::Publish(publish) = &packet {
            self.mix(publish.payload.len() as u64 ^ (publish.topic.len() as u64) << 32);
            self.checks.on_broker_publish(&publish.topic);
            if self.with_joins && publish.topic.contains("Join") {
                let payload = sparkplug::Value::Bytes(publish.payload.to_vec().into());
                self.join_wire.carry([&sparkplug::Metric::new("payload", payload)]);
                if self.mutation == Some(crate::model::mutation::Mutation::SaysDiskKeys) {
                    self.say_disk_keys();
                }
            }
        }
        self.broker.on_packet(session, packet);
        self.flush_broker();
    }

    /// The mutation: a topic that no one reads has the disk keys of hosts.
    fn say_disk_keys(&mut self) {
        let hosts = self.joins.values().flat_map(|joins| joins.hosts.values());
        let keys: Vec<Vec<u8>> = hosts
            .flat_map(|(_, host)| host.lock().disk_keys.iter().map(|key| key.to_vec()).collect::<Vec<_>>())
            .collect();
        for key in keys {
            let payload = sparkplug::Value::Bytes(key.into());
            self.join_wire.carry([&sparkplug::Metric::new("debug", payload)]);
        }
    }

    fn arrive_at_client(&mut self, session: SessionId, packet: ToClient) {
        let Some(wire) = self.network.wires.get(&session).filter(|wire| wire.is_open) else { return };
        let (id, side) = (wire.process, wire.side);
        let now = self.now_of(id);
        let event = match packet {
            ToClient::ConnAck => TransportEvent::Connected,
            ToClient::SubAck => TransportEvent::Subscribed,
            ToClient::Message { topic, payload, retain, qos, .. } => {
                let payload = self.spoil(id, side, &topic, payload);
                if side == Side::Host {
                    self.checks.on_delivery(id, &topic, &payload);
                }
                TransportEvent::Message { topic, payload, qos, retain }
            }
            ToClient::Closed => return self.client_over(session, "closed by the server", true),
        };
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(endpoint) = process.endpoints.get_mut(&side).filter(|endpoint| endpoint.session == Some(session))
        else {
            return;
        };
        endpoint.on_transport(event, now);
        self.pump(id, side);
    }

    /// The client's side of a connection is over.
    pub fn client_over(&mut self, session: SessionId, reason: &str, reached: bool) {
        let Some(wire) = self.network.wires.get_mut(&session).filter(|wire| wire.is_open) else { return };
        wire.is_open = false;
        let (id, side) = (wire.process, wire.side);
        let now = self.now_of(id);
        trace!(self, "{session:?} of {id:?} is over: {reason}");
        self.gone_up(session, false);
        if side == Side::Host {
            self.checks.on_session_over(id);
        }
        let Some(process) = self.processes.get_mut(&id) else { return };
        if let Some(endpoint) = process.endpoints.get_mut(&side).filter(|endpoint| endpoint.session == Some(session)) {
            endpoint.on_transport(TransportEvent::Disconnected { reason: reason.to_owned(), reached }, now);
            self.pump(id, side);
        }
    }

    /// Cuts every socket of a process.
    pub fn cut(&mut self, id: ProcessId) {
        for session in self.sessions_of(id) {
            self.client_over(session, "connection reset", true);
        }
    }
}
