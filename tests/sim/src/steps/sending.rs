//! What processes and the broker send: delay, loss, duplication, reordering, partitions, a crashed broker.

use std::time::Duration;

use sparkplug::edge_node::NodeUpdate;
use sparkplug::host::HostRequest;
use sparkplug::session::{QoS, TransportAction};

use crate::model::broker::{SessionId, ToBroker, ToClient};
use crate::model::endpoint::{Endpoint, EndpointOutput, Machine, Side};
use crate::model::happening::Happening;
use crate::model::ids::ProcessId;
use crate::model::network::{Packet, Wire};
use crate::world::{World, trace};

/// Delay of a packet in fair weather, at most.
const DELAY_MAX: Duration = Duration::from_millis(20);

/// A client waits so long for CONNACK.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A server gives a silent client up after one and a half keep-alive times.
const SERVER_TIMEOUT: Duration = Duration::from_secs(15);

impl World {
    /// Carries out what a machine wants of its session.
    pub fn on_action(&mut self, id: ProcessId, side: Side, action: TransportAction) {
        let session = self.processes.get(&id).and_then(|process| process.endpoints.get(&side)?.session);
        match (action, session) {
            (TransportAction::Connect(connect), _) => {
                let Some(process) = self.processes.get_mut(&id) else { return };
                if let Some(bd_seq) = connect.bd_seq {
                    process.disk.store_bd_seq(bd_seq.next());
                }
                self.connect(id, side, connect.will);
            }
            (TransportAction::Subscribe(filters), Some(session)) => self.up(session, ToBroker::Subscribe(filters)),
            (TransportAction::Publish(publish), Some(session)) => {
                for _ in 0..self.repetitions(&publish.topic) {
                    self.checks.on_publish(id, &publish, self.mono);
                    self.up(session, ToBroker::Publish(publish.clone()));
                }
            }
            (TransportAction::Disconnect, Some(session)) => {
                self.up(session, ToBroker::Disconnect);
                let over = Packet::ClientOver { reason: "disconnected", reached: true, if_partitioned: false };
                self.after(Duration::from_secs(2), Happening::Packet(session, over));
            }
            (_, None) => {}
        }
    }

    pub(crate) fn connect(&mut self, id: ProcessId, side: Side, will: Option<sparkplug::session::Publish>) {
        self.network.next_session += 1;
        let session = SessionId(self.network.next_session);
        let Some(process) = self.processes.get_mut(&id) else { return };
        let is_cut_off = process.partitioned_until.is_some();
        let Some(endpoint) = process.endpoints.get_mut(&side) else { return };
        endpoint.session = Some(session);
        let client_id = endpoint.client_id.clone();
        let wire = Wire { process: id, side, is_open: true, up_at: self.mono, down_at: self.mono, drops_up: false };
        self.network.wires.insert(session, wire);
        if is_cut_off {
            let over = Packet::ClientOver { reason: "no answer", reached: false, if_partitioned: false };
            self.after(CONNECT_TIMEOUT, Happening::Packet(session, over));
        } else if self.network.broker_down_until.is_some() {
            let over = Packet::ClientOver { reason: "connection refused", reached: false, if_partitioned: false };
            self.after(Duration::from_millis(5), Happening::Packet(session, over));
        } else {
            self.up(session, ToBroker::Connect { client_id, will });
            self.after(CONNECT_TIMEOUT, Happening::Packet(session, Packet::ConnectTimeout));
        }
    }

    fn delay(&mut self) -> Duration {
        let max = self.network.weather.delay_max.max(DELAY_MAX);
        self.random.between(Duration::from_micros(200)..max)
    }

    fn up(&mut self, session: SessionId, packet: ToBroker) {
        let delay = self.delay();
        let Some(wire) = self.network.wires.get_mut(&session).filter(|wire| wire.is_open) else { return };
        wire.up_at = wire.up_at.max(self.mono + delay);
        let at = wire.up_at;
        self.at(at, Happening::Packet(session, Packet::Up(packet)));
    }

    /// Sends on what the broker has to say.
    pub fn flush_broker(&mut self) {
        for (session, output) in self.broker.take_outputs() {
            self.down(session, output);
        }
    }

    pub(crate) fn down(&mut self, session: SessionId, packet: ToClient) {
        let weather = self.network.weather;
        let delay = self.delay();
        let ToClient::Message { topic, qos, .. } = &packet else { return self.send_down(session, packet, delay) };
        let kind = topic.split('/').nth(2).unwrap_or_default();
        if *qos == QoS::AtMostOnce && self.random.chance(weather.loss) {
            trace!(self, "lost on the way to {session:?}: {topic}");
            return;
        }
        if self.random.chance(weather.duplication) {
            self.send_down(session, packet.clone(), delay);
        }
        if matches!(kind, "NDATA" | "DDATA" | "DBIRTH") && self.random.chance(weather.reordering) {
            // Later packets overtake this one.
            let late = self.mono + delay + self.random.millis(1..300);
            self.at(late, Happening::Packet(session, Packet::Down(packet)));
            return;
        }
        self.send_down(session, packet, delay);
    }

    fn send_down(&mut self, session: SessionId, packet: ToClient, delay: Duration) {
        let Some(wire) = self.network.wires.get_mut(&session) else { return };
        wire.down_at = wire.down_at.max(self.mono + delay);
        let at = wire.down_at;
        self.at(at, Happening::Packet(session, Packet::Down(packet)));
    }

    /// The process behind a connection is gone. `silently`: the server is not informed.
    pub fn network_gone(&mut self, session: SessionId, silently: bool) {
        if let Some(wire) = self.network.wires.get_mut(&session) {
            wire.is_open = false;
            let (id, side) = (wire.process, wire.side);
            if side == Side::Host {
                self.checks.on_session_over(id);
            }
            self.gone_up(session, silently);
        }
    }

    pub(crate) fn gone_up(&mut self, session: SessionId, silently: bool) {
        let delay = self.delay();
        let loses_tail = self.random.chance(500);
        let Some(wire) = self.network.wires.get_mut(&session) else { return };
        if silently {
            wire.drops_up = true;
            self.after(SERVER_TIMEOUT, Happening::Packet(session, Packet::ServerTimeout));
            return;
        }
        wire.drops_up |= loses_tail;
        let at = wire.up_at.max(self.mono + delay);
        self.at(at, Happening::Packet(session, Packet::Up(ToBroker::Gone)));
    }

    /// The last words of a process that ends in good order: what its machines want to send goes out.
    pub fn farewell(&mut self, endpoint: &mut Endpoint) {
        let now = self.now();
        match &mut endpoint.machine {
            Machine::Node(node) => drop(node.update(NodeUpdate::Stop, now)),
            Machine::Host(host) => host.request(HostRequest::Stop, now),
        }
        while let Some(output) = endpoint.poll() {
            let Some(session) = endpoint.session else { return };
            match output {
                EndpointOutput::Transport(TransportAction::Publish(publish)) => {
                    self.up(session, ToBroker::Publish(publish))
                }
                EndpointOutput::Transport(TransportAction::Disconnect) => self.up(session, ToBroker::Disconnect),
                _ => {}
            }
        }
    }

    /// Cuts a process off for some time.
    pub fn partition(&mut self, id: ProcessId, until: Duration) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let until = process.partitioned_until.map_or(until, |known| known.max(until));
        process.partitioned_until = Some(until);
        for session in self.sessions_of(id) {
            let client = self.random.millis(10_000..20_000);
            let over =
                Packet::ClientOver { reason: "the server does not answer pings", reached: true, if_partitioned: true };
            self.after(client, Happening::Packet(session, over));
            let server = self.random.millis(5_000..15_000);
            self.after(server, Happening::Packet(session, Packet::ServerTimeout));
        }
    }

    /// Freezes a process for some time: the broker receives no ping of it meanwhile.
    pub fn pause(&mut self, id: ProcessId, until: Duration) {
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.paused_until.is_none()) else {
            return;
        };
        process.paused_until = Some(until);
        for session in self.sessions_of(id) {
            let server = self.random.millis(5_000..15_000);
            self.after(server, Happening::Packet(session, Packet::ServerTimeout));
        }
    }

    /// The broker crashes and comes back.
    pub fn crash_broker(&mut self, down: Duration, keep_retained: bool) {
        self.network.broker_down_until = Some(self.mono + down);
        for session in self.broker.crash(keep_retained) {
            let lag = self.random.millis(0..50);
            let over = Packet::ClientOver { reason: "connection reset", reached: true, if_partitioned: false };
            self.after(lag, Happening::Packet(session, over));
        }
    }

    pub(crate) fn sessions_of(&self, id: ProcessId) -> Vec<SessionId> {
        let Some(process) = self.processes.get(&id) else { return Vec::new() };
        process.endpoints.values().filter_map(|endpoint| endpoint.session).collect()
    }
}
