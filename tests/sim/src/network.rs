//! What processes send and receive: delay, loss, duplication, reordering, partitions, cut sockets, a crashed broker.

use std::time::Duration;

use sparkplug::edge_node::NodeUpdate;
use sparkplug::host::HostRequest;
use sparkplug::session::{QoS, TransportAction, TransportEvent};

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

    /// Sends on what the broker has to say.
    pub fn flush_broker(&mut self) {
        for (session, output) in self.broker.take_outputs() {
            self.down(session, output);
        }
    }

    fn down(&mut self, session: SessionId, packet: ToClient) {
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

    fn arrive_at_client(&mut self, session: SessionId, packet: ToClient) {
        let Some(wire) = self.network.wires.get(&session).filter(|wire| wire.is_open) else { return };
        let (id, side) = (wire.process, wire.side);
        let now = self.now_of(id);
        let event = match packet {
            ToClient::ConnAck => TransportEvent::Connected,
            ToClient::SubAck => TransportEvent::Subscribed,
            ToClient::Message { topic, payload, retain, .. } => {
                let payload = self.spoil(id, side, &topic, payload);
                if side == Side::Host {
                    self.checks.on_delivery(id, &topic, &payload);
                }
                TransportEvent::Message { topic, payload, retain }
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

    fn gone_up(&mut self, session: SessionId, silently: bool) {
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

    /// Cuts every socket of a process.
    pub fn cut(&mut self, id: ProcessId) {
        for session in self.sessions_of(id) {
            self.client_over(session, "connection reset", true);
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
